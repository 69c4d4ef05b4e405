//! A target with faults, for one session.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use ::conformance::target::{Fault, Script, ScriptedTarget};
use clap::Args;
use role_common::{errln, flags};
use wire::release::Release;

use super::Result;

#[derive(Debug, Args)]
#[command(
    override_usage = "doca-storage conformance faulty-target [OPTIONS]\n           --content <FILE> --fault <FAULT>"
)]
pub(super) struct FaultyTarget {
    /// DOCA device
    #[arg(short, long, default_value = "3b:00.0")]
    device: String,

    /// TCP port to listen on; 0 picks a free one and prints it
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    listen_port: u16,

    /// IPv4 address of this machine to listen at
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::LOCALHOST)]
    listen_address: Ipv4Addr,

    /// File with the content of the storage
    #[arg(long, value_name = "FILE")]
    content: PathBuf,

    /// Size of a storage block in bytes, or with a unit such as 4k
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = block_size)]
    block_size: u32,

    /// none, ignore-writes, swap-blocks:A:B, replay-previous-pass, fail-io:N:RESULT, scribble-after-read,
    /// answer-twice, answer-late, echo, truncate, nonsense:N, reverse:N or swallow-io:N
    #[arg(long)]
    fault: Fault,

    /// Release of the service's protocol: 3.0, 3.1 or 3.2
    #[arg(long, value_name = "RELEASE", default_value_t, value_parser = release)]
    protocol: Release,

    /// File for the storage's data after the session
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

fn block_size(text: &str) -> std::result::Result<u32, String> {
    match flags::size_u32(text) {
        Ok(size @ 1..) => Ok(size),
        _ => Err("expected bytes, at least 1, or a size such as 4k".to_owned()),
    }
}

impl FaultyTarget {
    /// Serves one session.
    pub(super) fn serve(&self) -> Result<()> {
        let content = std::fs::read(&self.content)
            .map_err(|error| format!("--content {}: {error}", self.content.display()))?;
        let block_size = self.block_size as usize;
        if content.is_empty() || !content.len().is_multiple_of(block_size) {
            return Err(format!(
                "--content {}: expected a whole number of blocks of {block_size} bytes, the file has {}",
                self.content.display(),
                content.len()
            )
            .into());
        }
        let script = Script {
            device: self.device.clone(),
            block_size: self.block_size,
            content,
            fault: self.fault,
            features: 0,
            records: None,
            release: self.protocol,
        };
        let target = ScriptedTarget::listen_at(
            script,
            SocketAddrV4::new(self.listen_address, self.listen_port),
        )?;
        errln!("listening on port {}", target.port()?);
        let content = target.serve()?;
        if let Some(path) = &self.dump {
            std::fs::write(path, content)
                .map_err(|error| format!("--dump {}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// Parses the name of a release.
pub(super) fn release(text: &str) -> Result<Release, String> {
    let all = Release::ALL;
    let named = all.into_iter().find(|release| release.name() == text);
    named.ok_or_else(|| format!("expected one of {}", all.map(Release::name).join(", ")))
}
