//! The program: its flags; opens the storage, listens, and serves until a signal.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Parser};
use control::Failure;
use control::network::{self, HostPort};
use doca::ErrorCode;
use metrics::Count;
use role_common::application::Environment;
use role_common::flags::{self, FrontEndFlags, GeneralFlags, OutputFlags, RoleFlags};
use volume::{CloseError, Config, Service, Volume};

use crate::connection::Shared;
use crate::protocol::Export;
use crate::server::Server;
use crate::sockets::{self, Listener};
use crate::transmission::{Limits, MAX_PAYLOAD};

const EXAMPLES: &str = "Examples:
  A block device for the programs of this user, and a copy of an image onto it:
    doca-storage nbd -d 3b:00.0 --cpu 0 --socket /run/user/1000/disk
    nbdcopy disk.img 'nbd+unix:///?socket=/run/user/1000/disk'

  Two queues, for clients on other hosts that have a certificate:
    doca-storage nbd -d 3b:00.0 --cpu 0 --cpu 1 --listen storage.example.com:10809 --export disk \\
        --tls-certificate server.pem --tls-key server-key.pem --tls-client-ca ca.pem

  Two services of the same targets: when the session with one fails, or it does not answer for 2 s, the other one is used:
    doca-storage nbd -d 3b:00.0 --command-channel-name a -d 3b:00.0 --command-channel-name b --io-timeout 2 --cpu 0 \\
        --socket /run/user/1000/disk

  A kernel block device:
    nbd-client -unix /run/user/1000/disk /dev/nbd0";

/// Serves a storage as a network block device.
#[derive(Clone, Debug, Parser)]
#[command(about = "Serve a storage as a network block device (NBD)", after_help = EXAMPLES)]
#[command(group = ArgGroup::new("place").required(true).multiple(true).args(["socket", "listen"]))]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// Services of the storage, and timeouts.
    #[command(flatten)]
    pub storage: FrontEndFlags,

    /// CPU core of a queue and its thread; give it once for each queue. Connection n is served by queue n modulo the number of queues
    #[arg(long, value_name = "CPU", required = true, value_parser = flags::cpu)]
    pub cpu: Vec<u32>,

    /// Listen at a Unix socket with this path and mode 0600. A socket left by a server that was killed is replaced
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Listen for TCP connections at HOST:PORT; port 0 for a free one. On addresses other than loopback, TLS is
    /// required
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<HostPort>,

    /// Name of the export. Clients that name none get it, too
    #[arg(long, value_name = "NAME", default_value = "", value_parser = export_name)]
    pub export: String,

    /// Refuse writes
    #[arg(long)]
    pub read_only: bool,

    /// Maximum number of open connections; further ones are closed immediately
    #[arg(long, value_name = "N", default_value = "64", value_parser = flags::nonzero_u32)]
    pub max_connections: u32,

    /// Disconnect a client that makes no progress in a request or in reading replies for this time (in seconds, or with a unit such as 2m), or
    /// does not choose an export within a quarter of it. Idle clients are not disconnected
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = flags::duration)]
    pub client_timeout: Duration,

    /// TLS certificate in PEM, followed by its intermediate certificates. TCP clients must then use TLS
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "listen"])]
    pub tls_certificate: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,

    /// Accept only clients with a certificate that one of these authorities has signed (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_client_ca: Option<PathBuf>,

    /// Allow TCP without TLS beyond loopback: every host that reaches the port can read and write the storage
    #[arg(long, requires = "listen")]
    pub insecure: bool,

    /// Flags for output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

fn export_name(name: &str) -> Result<String, String> {
    if name.len() > crate::protocol::MAX_STRING {
        return Err(format!(
            "expected at most {} bytes, got {}",
            crate::protocol::MAX_STRING,
            name.len()
        ));
    }
    Ok(name.to_owned())
}

impl Flags {
    /// Returns `true` if TCP clients must use TLS, or `--insecure` was given.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.tls_certificate.is_some() || self.insecure
    }

    /// Loads the certificates named by the flags.
    ///
    /// # Errors
    ///
    /// A file is missing or unusable.
    pub fn tls(&self) -> Result<Option<std::sync::Arc<rustls::ServerConfig>>, Failure> {
        let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) else {
            return Ok(None);
        };
        network::tls_config(certificate, key, self.tls_client_ca.as_deref())
            .map(Some)
            .map_err(|error| Failure::invalid(error.to_string()))
    }
}

impl RoleFlags for Flags {
    fn general(&self) -> &GeneralFlags {
        &self.general
    }

    fn output(&self) -> &OutputFlags {
        &self.output
    }

    fn cpu(&self) -> &[u32] {
        &self.cpu
    }

    fn check(&self) -> Result<(), Failure> {
        self.storage.services()?;
        // A name that cannot be resolved is not wrong usage: listening reports it.
        let addresses = self.listen.as_ref().map(HostPort::resolve);
        let addresses = addresses.and_then(Result::ok).unwrap_or_default();
        sockets::permit(&addresses, self.is_secure())
            .map_err(|error| Failure::invalid(error.to_string()))
    }
}

/// Maximum number of I/Os in flight per queue.
const DEPTH: u32 = 128;

/// Buffers per queue: some are filled or sent while others are in flight.
const BUFFERS: u32 = 256;

/// Preferred block size announced to clients, in bytes, if the storage's block size is not a power of two or out of
/// the protocol's range.
const PREFERRED_BLOCK: u32 = 4096;

/// Serves the storage that the flags describe.
///
/// # Errors
///
/// The storage cannot be opened, an address cannot be listened at, or the server has failed.
pub fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let tls = flags.tls()?;
    let listeners = listen(&flags)?;
    let services = flags.storage.services()?;
    let places: Vec<_> = (services.iter())
        .map(|(device, name)| format!("{name} of {device}"))
        .collect();
    let service = |(device, name)| Service { device, name };
    let mut volume = Volume::open(Config {
        services: services.into_iter().map(service).collect(),
        queues: flags.cpu.len() as u32,
        depth: DEPTH,
        buffers: BUFFERS,
        largest_transfer: crate::MAX_SEGMENT,
        control_timeout: flags.storage.control_timeout,
        io_timeout: flags.storage.io_timeout.0.unwrap_or_default(),
        reconnect_timeout: flags.storage.reconnect_timeout,
        read_only: flags.read_only,
        ..Config::default()
    })?;
    let capabilities = volume.capabilities();
    let export = Export {
        name: flags.export.clone(),
        description: format!("{} bytes behind {}", volume.size(), places.join(" or ")),
        size: volume.size(),
        preferred_block: preferred_block(volume.block_size()),
        max_payload: MAX_PAYLOAD,
        read_only: flags.read_only,
        flush: capabilities.flush,
    };
    let shared = Shared {
        export: Arc::new(export),
        native_fua: capabilities.fua,
        tls,
        handshake_timeout: (flags.client_timeout / 4).max(Duration::from_secs(1)),
        client_timeout: flags.client_timeout,
        limits: Limits::default(),
    };
    announce(&flags, &environment, &listeners, &shared);
    environment.metrics.declare(&[Count::Failed], false);
    volume.publish_losses(&environment.metrics);
    let mut queues = volume.take_queues();
    for (queue, cpu) in queues.iter_mut().zip(&flags.cpu) {
        if let Some(metrics) = environment.metrics.worker(*cpu) {
            queue.publish_to(metrics);
        }
    }
    let system = |error: std::io::Error| {
        Failure::new(ErrorCode::OPERATING_SYSTEM, format!("NBD server: {error}"))
    };
    let server = Server::start(queues, &flags.cpu, shared, flags.max_connections as usize)
        .map_err(system)?;
    let served = server.serve(&listeners, &environment.shutdown);
    drop(listeners);
    let stopped = server.stop();
    // Queues are dropped before the volume.
    let queues = stopped.map(drop);
    let closed = volume.close();
    served.and(queues).map_err(system)?;
    match closed {
        Ok(()) => Ok(()),
        // A service that disconnected first is not a failure of the server.
        Err(error @ CloseError::Session(_)) => {
            tracing::warn!("the session was not closed in order: {error}");
            Ok(())
        }
        Err(error) => Err(Failure::new(
            ErrorCode::SHUTDOWN,
            format!("closing the volume: {error}"),
        )),
    }
}

fn listen(flags: &Flags) -> Result<Vec<Listener>, Failure> {
    let refused = |error: crate::sockets::ListenError| Failure::invalid(error.to_string());
    let mut listeners = Vec::new();
    if let Some(path) = &flags.socket {
        listeners.push(Listener::unix(path).map_err(refused)?);
    }
    if let Some(address) = &flags.listen {
        listeners.extend(Listener::tcp(address, flags.is_secure()).map_err(refused)?);
    }
    Ok(listeners)
}

/// Prints the URI of the export for each listening address.
fn announce(flags: &Flags, environment: &Environment, listeners: &[Listener], shared: &Shared) {
    let Export {
        size,
        flush,
        read_only,
        ..
    } = *shared.export;
    if !flush && !read_only {
        tracing::warn!(
            "the storage cannot flush: clients are not offered it, and a power failure may lose what they have written"
        );
    }
    for listener in listeners {
        let uri = listener.uri(&flags.export, shared.tls.is_some());
        environment
            .console
            .announce(format_args!("Serving {size} bytes at {uri}"));
    }
}

fn preferred_block(block_size: u32) -> u32 {
    let is_possible = block_size.is_power_of_two() && (512..=MAX_PAYLOAD).contains(&block_size);
    if is_possible {
        block_size
    } else {
        PREFERRED_BLOCK
    }
}
