//! The flags of the gga_offload service.

use std::net::SocketAddrV4;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use role_common::flags::{GeneralFlags, OutputFlags, RoleFlags, mebibytes, socket_address};
use role_common::service::ServiceFlags;
use role_common::stored_block::{Checksum, MatrixType, logical_block_size};
use serde::Serialize;

use super::target::Target;

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
const DATA_1_STORAGE: &str = "Address of target data_1 (first half blocks), <IPv4 address>:<port>";
const DATA_2_STORAGE: &str = "Address of target data_2 (second half blocks), <IPv4 address>:<port>";
const DATA_P_STORAGE: &str = "Address of target data_p (parity), <IPv4 address>:<port>";

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
    #[arg(long = "data-1-storage", value_name = "ADDRESS", value_parser = socket_address, help = DATA_1_STORAGE)]
    pub data_1_storage: SocketAddrV4,

    /// Address of the target with the second half blocks.
    #[arg(long = "data-2-storage", value_name = "ADDRESS", value_parser = socket_address, help = DATA_2_STORAGE)]
    pub data_2_storage: SocketAddrV4,

    /// Address of the target with the parity.
    #[arg(long = "data-p-storage", value_name = "ADDRESS", value_parser = socket_address, help = DATA_P_STORAGE)]
    pub data_p_storage: SocketAddrV4,

    /// Type of matrix to use
    #[arg(long, value_enum, value_name = "TYPE", default_value = "vandermonde")]
    pub matrix_type: MatrixType,

    /// Trigger a recovery read flow every N th request, 0 for never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub trigger_recovery_read_every_n: u32,

    /// Size of the initiator's blocks, which may have any content; without it, they are as large as what is stored of
    /// them, and must compress
    #[arg(long, value_name = "BYTES", value_parser = logical_block_size)]
    pub logical_block_size: Option<u32>,

    /// Checksum of stored blocks: what is written, and whether reads insist on one
    #[arg(long, value_enum, value_name = "POLICY", default_value = "crc32c")]
    pub checksum: ChecksumPolicy,

    /// Continue I/O without a target that fails or does not respond
    #[arg(long, value_enum, value_name = "SWITCH", default_value = "off")]
    pub degraded: Degraded,

    /// With --degraded on, rebuild all of this target, whatever it holds, from the start of I/O on
    #[arg(long, value_enum, value_name = "TARGET")]
    pub rebuild: Option<Target>,

    /// When all stripes are verified and repaired while I/Os are served: off, once (from the first session on), or again and again
    /// after so much time in service, for example 12h or 7d
    #[arg(long, value_name = "off|once|PERIOD", value_parser = scrub, default_value = "7d")]
    pub scrub: Scrub,

    /// MiB of blocks that a scrub reads per second at most, or a size such as 512k
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
        period => match humantime::parse_duration(period) {
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
    /// Written; a block without one is checked against its parity when it is read
    #[default]
    Crc32c,
    /// Not written, which makes the reference's bytes; what has one is checked all the same
    Off,
    /// Written; a block without one is an I/O error when it is read
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
    /// The session ends, as the reference's does
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
}

#[cfg(test)]
mod tests;
