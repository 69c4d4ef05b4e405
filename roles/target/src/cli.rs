//! The flags of the target.

use std::path::PathBuf;

use clap::Parser;
use role_common::Failure;
use role_common::application::SessionFlags;
use role_common::budget::InitLimits;
use role_common::flags::{
    GeneralFlags, OutputFlags, RoleFlags, Timeout, cpu, listen_port, number_u32, size_u32, timeout,
};
use role_common::network::{Host, ServerTlsFlags};
use role_common::protocol::ProtocolFlags;

use crate::backing::BackingIo;

const EXAMPLES: &str = "\
Examples:
  128 blocks of 4 KiB, and one worker thread:
    doca_storage_target_rdma -d 3b:00.0 --listen-port 12345 --cpu 0
  Blocks from a file, two worker threads, any free port:
    doca_storage_target_rdma -d 3b:00.0 --listen-port 0 --binary-content blocks.sbc --cpu 0 --cpu 1";

/// A storage target, with its blocks in memory or in a file, for a DOCA storage service
#[derive(Debug, Clone, Parser)]
#[command(after_help = EXAMPLES)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// DOCA device: PCI address, RDMA device name or network interface name
    #[arg(short, long, value_name = "DEVICE")]
    pub device: String,

    /// CPU for a worker thread, which is pinned to it; repeat the flag for more workers
    #[arg(long, value_name = "CPU", required = true, value_parser = cpu)]
    pub cpu: Vec<u32>,

    /// TCP port for services; 0 picks a free one and prints it
    #[arg(long, value_name = "PORT", value_parser = listen_port)]
    pub listen_port: u16,

    /// Address or name of this machine to listen on; by default any IPv4 address, and with :: any IPv6 address, too
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub listen_address: Host,

    /// TLS of the control channel.
    #[command(flatten)]
    pub tls: ServerTlsFlags,

    /// File with the initial data: a .sbc file, or a plain file of exactly block count * block size bytes
    #[arg(long, value_name = "FILE")]
    pub binary_content: Option<PathBuf>,

    /// Regular file or block device for persistent blocks. A missing file is created with the initial data, which is
    /// not used again later
    #[arg(long, value_name = "FILE")]
    pub backing_file: Option<PathBuf>,

    /// I/O mode of the backing file
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub backing_io: BackingIo,

    /// Turn an existing file that is not a backing file (an empty or other file, or a block device) into one. Its data
    /// is lost. An existing backing file is kept as it is
    #[arg(long)]
    pub initialise: bool,

    /// Number of blocks, unless a .sbc file sets it
    #[arg(long, value_name = "COUNT", default_value = "128", value_parser = number_u32)]
    pub block_count: u32,

    /// Block size used by the storage, in bytes or with a unit such as 4k. (Ignored when using a .sbc file)
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = size_u32)]
    pub block_size: u32,

    /// Time without a request or a received result, in seconds or with a unit such as 2m, before the service's session
    /// is given up; 0 is unlimited. A stopped service cannot be told from an idle one
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = timeout)]
    pub idle_timeout: Timeout,

    /// Limits of a session.
    #[command(flatten)]
    pub init_limits: InitLimits,

    /// Wire format.
    #[command(flatten)]
    pub protocol: ProtocolFlags,

    /// Number of sessions.
    #[command(flatten)]
    pub sessions: SessionFlags,

    /// Flags for output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
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
        Ok(self.tls.check()?)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use role_common::flags::{self, FlagsError};

    use super::*;

    fn parse(args: &str) -> Result<Flags, FlagsError> {
        flags::read(
            crate::NAME,
            std::iter::once("x")
                .chain(args.split_whitespace())
                .map(OsString::from),
        )
    }

    #[test]
    fn command_line_of_the_guide_is_accepted() {
        let flags =
            parse("-d 3b:00.0 --listen-port 12345 --block-size 4096 --block-count 64 --cpu 0")
                .expect("flags");
        assert_eq!(
            (flags.device.as_str(), flags.listen_port, flags.block_count),
            ("3b:00.0", 12345, 64)
        );
        let flags = parse("--device 3b:00.0 --listen-port 0 --cpu 0 --cpu 0").expect("flags");
        assert_eq!(
            (flags.block_count, flags.block_size, flags.cpu.len()),
            (128, 4096, 2)
        );
    }

    #[test]
    fn errors_name_mandatory_flags_and_ranges() {
        let cases = [
            ("--listen-port 1 --cpu 0", "--device"),
            ("-d x --cpu 0", "--listen-port"),
            ("-d x --listen-port 1", "--cpu"),
            ("-d x --cpu 0 --listen-port 65536", "65535"),
            ("-d x --cpu 0 --listen-port http", "65535"),
            (
                "-d x --cpu 0 --listen-port 1 --block-count all",
                "4294967295",
            ),
            (
                "-d x --cpu 0 --listen-port 1 --block-size -4096",
                "4294967295",
            ),
            ("-d x --cpu 0 --listen-port 1 --blocks 5", "--blocks"),
            ("-d x --cpu 0 --listen-port 1 --sessions 0", "or forever"),
            (
                "-d x --cpu 0 --listen-port 1 --listen-address 1.2.3",
                "--listen-address",
            ),
        ];
        for (args, part) in cases {
            match parse(args) {
                Err(FlagsError::Usage(text)) => assert!(text.contains(part), "{args}: {text}"),
                other => panic!("{args}: {other:?}"),
            }
        }
    }
}
