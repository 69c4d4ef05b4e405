//! The flags of the target.

use std::path::PathBuf;

use clap::Parser;
use role_common::address::Host;
use role_common::budget::InitLimits;
use role_common::flags::{
    GeneralFlags, OutputFlags, Patience, RoleFlags, cpu, listen_port, number_u32, patience,
    size_u32,
};
use role_common::protocol::ProtocolFlags;
use role_common::sessions::SessionFlags;

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

    /// Device identifier: PCI address, RDMA device or network interface name
    #[arg(short, long, value_name = "DEVICE")]
    pub device: String,

    /// CPU core to which the process affinity can be set; one worker thread each, may be repeated
    #[arg(long, value_name = "CPU", required = true, value_parser = cpu)]
    pub cpu: Vec<u32>,

    /// TCP listen port number; 0 picks a free one and prints it
    #[arg(long, value_name = "PORT", value_parser = listen_port)]
    pub listen_port: u16,

    /// Address or name of this machine to listen on; by default any IPv4 address, and with :: any IPv6 address, too
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub listen_address: Host,

    /// Path to a file with the initial content: a .sbc file, or plain content of exactly block
    /// count * block size bytes
    #[arg(long, value_name = "FILE")]
    pub binary_content: Option<PathBuf>,

    /// Path to a regular file or a block device that the blocks are kept in, so that they outlive the program; a file is made when it is not
    /// there, with the initial content, which is not looked at again later
    #[arg(long, value_name = "FILE")]
    pub backing_file: Option<PathBuf>,

    /// How the backing file is read and written
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub backing_io: BackingIo,

    /// Make a backing file of what is at --backing-file and is none: an empty or another file, or a block device. What it holds is lost. A
    /// backing file stays as it is
    #[arg(long)]
    pub initialise: bool,

    /// Number of available storage blocks. (Ignored when using a .sbc file)
    #[arg(long, value_name = "COUNT", default_value = "128", value_parser = number_u32)]
    pub block_count: u32,

    /// Block size used by the storage, in bytes or with a unit such as 4k. (Ignored when using a .sbc file)
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = size_u32)]
    pub block_size: u32,

    /// Time (in seconds, or with units such as 2m) that a service may ask for nothing, or take no results, before its session is given up; 0 for any time. One
    /// that is stopped cannot be told from one that has nothing to do
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = patience)]
    pub idle_timeout: Patience,

    /// What a session may ask for.
    #[command(flatten)]
    pub init_limits: InitLimits,

    /// Which messages it speaks.
    #[command(flatten)]
    pub protocol: ProtocolFlags,

    /// How many sessions it serves.
    #[command(flatten)]
    pub sessions: SessionFlags,

    /// Flags of output, log and metrics.
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
    fn the_example_of_the_guide_is_accepted() {
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
    fn mandatory_flags_and_ranges_are_named() {
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
