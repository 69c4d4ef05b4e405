//! The flags of the gga_offload service.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use role_common::Failure;
use role_common::flags::{GeneralFlags, OutputFlags, RoleFlags, mebibytes, server_address};
use role_common::network::HostPort;
use role_common::service::ServiceFlags;
use role_common::stored_block::{Checksum, MatrixType, logical_block_size};
use serde::Serialize;

use super::target::{Placement, Target};

const EXAMPLES: &str = "\
Examples:
  A service for the host function 3b:00.0, with three targets:
    doca_storage_comch_to_rdma_gga_offload -d 03:00.0 -r 3b:00.0 --cpu 0 --data-1-storage 172.17.0.1:12345 \\
        --data-2-storage 172.17.0.2:12345 --data-p-storage 172.17.0.3:12345
  Blocks of 4096 bytes of any content, on targets with blocks of 2112 bytes, every 10th read through parity:
    doca_storage_comch_to_rdma_gga_offload -d 03:00.0 -r 3b:00.0 --cpu 0 --data-1-storage 172.17.0.1:12345 \\
        --data-2-storage 172.17.0.2:12345 --data-p-storage 172.17.0.3:12345 \\
        --logical-block-size 4096 --trigger-recovery-read-every-n 10";

// Help that is no documentation: to rustdoc, these are tags of HTML.
const DATA_1_STORAGE: &str =
    "Storage server addresses in <ip_addr>:<port> or <host>:<port> format: first half blocks";
const DATA_2_STORAGE: &str =
    "Storage server addresses in <ip_addr>:<port> or <host>:<port> format: second half blocks";
const DATA_P_STORAGE: &str = "Storage server addresses in <ip_addr>:<port> or <host>:<port> format: parity of the half blocks";

/// A storage service that compresses the blocks of an initiator and keeps them, with parity, on three targets
#[derive(Debug, Clone, Parser)]
#[command(after_help = EXAMPLES)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// Devices, CPUs, and the connection to the initiator.
    #[command(flatten)]
    pub service: ServiceFlags,

    /// Address of the target with the first half blocks.
    #[arg(long = "data-1-storage", value_name = "ADDRESS", value_parser = server_address, help = DATA_1_STORAGE)]
    pub data_1_storage: HostPort,

    /// Address of the target with the second half blocks.
    #[arg(long = "data-2-storage", value_name = "ADDRESS", value_parser = server_address, help = DATA_2_STORAGE)]
    pub data_2_storage: HostPort,

    /// Address of the target with the parity.
    #[arg(long = "data-p-storage", value_name = "ADDRESS", value_parser = server_address, help = DATA_P_STORAGE)]
    pub data_p_storage: HostPort,

    /// Type of matrix to use
    #[arg(long, value_enum, value_name = "TYPE", default_value = "vandermonde")]
    pub matrix_type: MatrixType,

    /// Trigger a recovery read flow every N th request, 0 for never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub trigger_recovery_read_every_n: u32,

    /// Size of the initiator's blocks, which may then have any content. Without it, they have the size of the stored blocks,
    /// and must compress
    #[arg(long, value_name = "BYTES", value_parser = logical_block_size)]
    pub logical_block_size: Option<u32>,

    /// Placement of stored blocks on the targets
    #[arg(
        long,
        value_enum,
        value_name = "PLACEMENT",
        default_value = "half-blocks"
    )]
    pub placement: Placement,

    /// Checksums of stored blocks: policy for writes and reads
    #[arg(long, value_enum, value_name = "POLICY", default_value = "crc32c")]
    pub checksum: ChecksumPolicy,

    /// Continue I/O without a target that fails or does not respond
    #[arg(long, value_enum, value_name = "SWITCH", default_value = "off")]
    pub degraded: Degraded,

    /// With --degraded on, rebuild all of this target, regardless of its contents, starting with the first I/O
    #[arg(long, value_enum, value_name = "TARGET")]
    pub rebuild: Option<Target>,

    /// Verify and repair all stripes while I/Os are served: off, once (from the first session on), or periodically, after this time in
    /// service, for example 12h or 7d
    #[arg(long, value_name = "off|once|PERIOD", value_parser = scrub, default_value = "7d")]
    pub scrub: Scrub,

    /// Maximum rate of a scrub, in MiB of blocks per second, or as a size such as 512k
    #[arg(long, value_name = "MIB", value_parser = mebibytes, default_value = "64")]
    pub scrub_rate: u64,

    /// Flags of output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

/// When all stripes are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrub {
    /// Never.
    Off,
    /// Once, from the first session on.
    Once,
    /// After so much time in service, again and again.
    Every(Duration),
}

fn scrub(text: &str) -> Result<Scrub, String> {
    match text {
        "off" => Ok(Scrub::Off),
        "once" => Ok(Scrub::Once),
        period => match period
            .parse()
            .map(Duration::from_secs)
            .or_else(|_| humantime::parse_duration(period))
        {
            Ok(period) if period >= Duration::from_secs(1) => Ok(Scrub::Every(period)),
            Ok(_) => Err("expected off, once, or a period of at least 1s".to_owned()),
            Err(error) => Err(format!(
                "expected off, once, or a period such as 12h or 7d: {error}"
            )),
        },
    }
}

/// Checksum policy: the trailer of written blocks, and the trailers that reads accept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChecksumPolicy {
    /// Write checksums; verify a block without one against its parity when it is read
    #[default]
    Crc32c,
    /// Do not write checksums (the reference's format); still verify those of blocks that have one
    Off,
    /// Write checksums; reading a block without one is an I/O error
    Require,
}

impl ChecksumPolicy {
    /// The checksum of written blocks.
    #[must_use]
    pub fn written(self) -> Checksum {
        match self {
            Self::Crc32c | Self::Require => Checksum::Crc32c,
            Self::Off => Checksum::Off,
        }
    }
}

/// Policy for the loss of a target during I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Degraded {
    /// End the session, as the reference does
    #[default]
    Off,
    /// Continue with the two others; after a second loss, writes are I/O errors
    On,
}

impl RoleFlags for Flags {
    fn general(&self) -> &GeneralFlags {
        &self.general
    }

    fn output(&self) -> &OutputFlags {
        &self.output
    }

    fn cpu(&self) -> &[u32] {
        &self.service.cpu
    }

    fn check(&self) -> Result<(), Failure> {
        self.service.tls.check()?;
        match self.rebuild {
            Some(target) if self.degraded == Degraded::Off => Err(Failure::invalid(format!(
                "--rebuild {} is only possible with --degraded on",
                target.name()
            ))),
            _ if self.degraded == Degraded::On && !self.placement.is_writable() => {
                Err(Failure::invalid(
                    "--placement whole-blocks is only possible with --degraded off: nothing is written to such targets"
                        .to_owned(),
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use role_common::flags::{self, FlagsError};

    use super::*;

    const MANDATORY: &str = "-d 03:00.0 -r 3b:00.0 --cpu 0 --data-1-storage 172.17.0.1:12345 \
                         --data-2-storage 172.17.0.2:12345 --data-p-storage 172.17.0.3:12345";

    fn parse(args: &str) -> Result<Flags, FlagsError> {
        flags::read(
            crate::NAME,
            std::iter::once("x")
                .chain(args.split_whitespace())
                .map(OsString::from),
        )
    }

    #[test]
    fn example_of_the_guide_is_accepted_with_reference_defaults() {
        let flags = parse(MANDATORY).expect("flags");
        assert_eq!(flags.data_p_storage.to_string(), "172.17.0.3:12345");
        assert_eq!(flags.matrix_type, MatrixType::Vandermonde);
        assert_eq!(flags.trigger_recovery_read_every_n, 0);
        assert_eq!(flags.logical_block_size, None);
        assert_eq!(flags.checksum, ChecksumPolicy::Crc32c);
        assert_eq!(flags.degraded, Degraded::Off);
        assert_eq!(flags.service.command_channel_name, "doca_storage_comch");
    }

    #[test]
    fn extensions_are_parsed() {
        let flags = parse(&format!(
            "{MANDATORY} --matrix-type cauchy --trigger-recovery-read-every-n 10 --logical-block-size 4096 --checksum require"
        ))
        .expect("flags");
        assert_eq!(flags.matrix_type, MatrixType::Cauchy);
        assert_eq!(flags.trigger_recovery_read_every_n, 10);
        assert_eq!(flags.logical_block_size, Some(4096));
        assert_eq!(flags.checksum.written(), Checksum::Crc32c);
        let flags = parse(&format!("{MANDATORY} --degraded on")).expect("flags");
        assert_eq!(flags.degraded, Degraded::On);
        assert_eq!(flags.rebuild, None);
        let flags = parse(&format!("{MANDATORY} --degraded on --rebuild data_p")).expect("flags");
        assert_eq!(flags.rebuild, Some(Target::DataP));
        let flags = parse(&format!("{MANDATORY} --checksum off")).expect("flags");
        assert_eq!(flags.checksum.written(), Checksum::Off);
    }

    #[test]
    fn missing_and_invalid_flags_are_named() {
        for flag in [
            "-d",
            "-r",
            "--cpu",
            "--data-1-storage",
            "--data-2-storage",
            "--data-p-storage",
        ] {
            let mut words: Vec<&str> = MANDATORY.split_whitespace().collect();
            let at = words.iter().position(|word| *word == flag).expect("there");
            words.drain(at..at + 2);
            let name = match flag {
                "-d" => "--device",
                "-r" => "--representor",
                long => long,
            };
            refused(&words.join(" "), name);
        }
        for (wrong, part) in [
            ("--matrix-type xor", "vandermonde"),
            ("--trigger-recovery-read-every-n -1", "--trigger-recovery"),
            ("--logical-block-size 0", "--logical-block-size"),
            ("--checksum md5", "require"),
            ("--control-timeout 0", "--control-timeout"),
            ("--degraded", "--degraded"),
            ("--degraded yes", "--degraded"),
            ("--degraded on --rebuild data_3", "data_p"),
        ] {
            refused(&format!("{MANDATORY} {wrong}"), part);
        }
    }

    fn refused(args: &str, part: &str) {
        match parse(args) {
            Err(FlagsError::Usage(text)) => assert!(text.contains(part), "{args}: {text}"),
            other => panic!("{args}: {other:?}"),
        }
    }
}
