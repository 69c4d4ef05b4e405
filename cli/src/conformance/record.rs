//! A relay that records the messages between services and targets.

use std::fs::File;
use std::net::{TcpListener, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::conformance::transcript::{Header, Recorder, Relay, Role};
use clap::{Args, value_parser};
use role_common::errln;
use role_common::shutdown::Shutdown;

use super::{Result, usage};

/// Time for which a target that refuses connections is retried: it may be starting.
const TIMEOUT: Duration = Duration::from_secs(3);

const HELP: &str = "\
Give the service the relay's address instead of the target's. Recording ends after --sessions, or with Ctrl-C.
Only the control messages over TCP are recorded, not RDMA (the data path) or Comch (between initiator and service).

Examples:
  doca-storage conformance record --listen 12346 --to 127.0.0.1:12345 --output session.transcript --sessions 1
  doca-storage zero-copy ... --storage-server 127.0.0.1:12346
  doca-storage conformance record --listen 2001 --to :1001 --listen 2002 --to :1002 --listen 2003 --to :1003 --output gga.transcript";

#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    override_usage = "doca-storage conformance record [OPTIONS]\n           --listen <[ADDRESS:]PORT> --to <HOST:PORT> --output <FILE>"
)]
pub(super) struct Record {
    /// TCP port to listen on, of 127.0.0.1 unless an address is given; 0 picks a free one and prints it. Once per --to
    #[arg(long, value_name = "[ADDRESS:]PORT", required = true)]
    listen: Vec<String>,

    /// Address of the target, by default on 127.0.0.1. Once per --listen, in the same order
    #[arg(long, value_name = "HOST:PORT", required = true)]
    to: Vec<String>,

    /// File for the transcript
    #[arg(long, value_name = "FILE")]
    output: PathBuf,

    /// Number of connections per --listen after which the recording ends
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..))]
    sessions: Option<u32>,
}

impl Record {
    /// Records until all sessions have ended, or a signal arrives.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let shutdown = Shutdown::on_signals()?;
        if self.listen.len() != self.to.len() {
            return Err(usage(format!(
                "expected as many --listen as --to, {} and {} came",
                self.listen.len(),
                self.to.len()
            )));
        }
        let mut channels = Vec::new();
        for (listen, to) in std::iter::zip(&self.listen, &self.to) {
            channels.push((listener(listen)?, server(to)?));
        }
        let servers = channels.iter().map(|(_, server)| server.clone()).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let header = Header {
            client: Role::Service,
            server: Role::Target,
            start_unix_ns: u64::try_from(now.as_nanos())?,
            channels: servers,
            recorder: concat!("doca-storage ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let output = |error: std::io::Error| format!("--output {}: {error}", self.output.display());
        let file = File::create(&self.output).map_err(output)?;
        let recorder = Recorder::new(file, &header).map_err(output)?;
        for (number, (listener, server)) in channels.iter().enumerate() {
            let port = listener.local_addr()?.port();
            errln!("channel {number} to {server}: listening on port {port}");
        }
        let relay = Relay {
            channels,
            timeout: TIMEOUT,
            sessions: self.sessions,
        };
        let relayed = relay.run(&recorder, &|| shutdown.is_requested());
        let summary = recorder.finish().map_err(output)?;
        relayed?;
        errln!(
            "{}: {} sessions, {} frames, {} bytes that are no frame",
            self.output.display(),
            summary.sessions,
            summary.frames,
            summary.raw_bytes
        );
        Ok(ExitCode::SUCCESS)
    }
}

fn listener(text: &str) -> Result<TcpListener> {
    let address = if text.contains(':') {
        text.to_owned()
    } else {
        format!("127.0.0.1:{text}")
    };
    let listener =
        TcpListener::bind(&address).map_err(|error| format!("--listen {text}: {error}"))?;
    Ok(listener)
}

/// Parses the address.
fn server(text: &str) -> Result<String> {
    let address = if text.starts_with(':') {
        format!("127.0.0.1{text}")
    } else {
        text.to_owned()
    };
    address
        .to_socket_addrs()
        .map_err(|error| format!("--to {text}: {error}"))?;
    Ok(address)
}
