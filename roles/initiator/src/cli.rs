//! The flags: those of the reference under their names, and the initiator's own.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use role_common::Failure;
use role_common::flags::{self, GeneralFlags, OutputFlags, RoleFlags};
use role_common::protocol::ProtocolFlags;
use serde::Serialize;
use wire::release::Release;

/// Name of the program, of the reference's too.
pub const NAME: &str = "doca_storage_initiator_comch";

const EXAMPLE: &str = "Example:
  doca_storage_initiator_comch -d 3b:00.0 --cpu 0 --execution-strategy read_throughput_test --run-limit-operation-count 1000000";

/// Reads and writes blocks of a storage through its service, measures that, and validates what comes back.
#[derive(Clone, Debug, Parser)]
#[command(about = "Read, write, measure and validate a storage through its service", after_help = EXAMPLE)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// Device identifier: PCI address, IB device name or interface name
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub device: String,

    /// CPU core that a worker thread runs on; give it once for each worker
    #[arg(long, value_name = "CPU", required = true, value_parser = flags::cpu)]
    pub cpu: Vec<u32>,

    /// File containing the plain data that is represented by the storage; a validity test compares with it, and
    /// read_write_data_validity_test writes it instead of its own pattern
    #[arg(long, value_name = "FILE")]
    pub storage_plain_content: Option<PathBuf>,

    /// Define what to run
    #[arg(long, value_enum, value_name = "STRATEGY")]
    pub execution_strategy: Strategy,

    /// Run N operations (per thread) then stop
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = flags::nonzero_u32)]
    pub run_limit_operation_count: u32,

    /// Number of concurrent IO transactions (per thread) to use
    #[arg(long, value_name = "N", default_value = "64", value_parser = transaction_count)]
    pub transaction_count: u32,

    /// Name of the channel used by the doca_comch_client
    #[arg(long, value_name = "NAME", default_value = "doca_storage_comch", value_parser = flags::channel_name)]
    pub command_channel_name: String,

    /// Time (in seconds, or with units such as 2m) to wait while performing control operations
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = flags::duration)]
    pub control_timeout: Duration,

    /// Size of the local region, in bytes or with a unit such as 4M; 0 for the size of the storage, but not more than 1 GiB
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = region_size)]
    pub local_io_region_size: u64,

    /// Use multiple blocks per IO request
    #[arg(long, value_name = "N", default_value = "1", value_parser = blocks_per_io)]
    pub blocks_per_io: u16,

    /// Flush after every N writes (per thread), so that they survive a power failure; a write that a flush follows counts when the flush has
    /// completed. The service and its targets must have flush. 0 for none
    #[arg(long, value_name = "N", default_value = "0", value_parser = flags::number_u32)]
    pub flush_every: u32,

    /// Order in which the blocks are visited
    #[arg(long, value_enum, value_name = "ORDER", default_value = "sequential")]
    pub access_order: AccessOrder,

    /// Time (in seconds, or with units such as 2m) to wait for the answer to one IO request
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = flags::duration)]
    pub io_timeout: Duration,

    /// Seed of the pattern that read_write_data_validity_test writes; random by default, so that a storage
    /// which ignores writes is caught even when an earlier run left its pattern there
    #[arg(long, value_name = "N", value_parser = seed)]
    pub seed: Option<u64>,

    /// Show a progress line on standard error: auto shows it on a terminal
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub progress: ProgressMode,

    /// Which messages it speaks.
    #[command(flatten)]
    pub protocol: ProtocolFlags,

    /// Flags of output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Read, and look at the results only
    ReadThroughputTest,
    /// Write, and look at the results only
    WriteThroughputTest,
    /// Write each block, read it back, compare
    ReadWriteDataValidityTest,
    /// Read, and compare with the plain content
    ReadOnlyDataValidityTest,
}

impl Strategy {
    /// Returns `true` if a transaction writes (before it reads).
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::WriteThroughputTest | Self::ReadWriteDataValidityTest
        )
    }

    /// Returns `true` if a transaction reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::WriteThroughputTest)
    }

    /// Returns `true` if what was read is compared with what is expected.
    #[must_use]
    pub const fn validates(self) -> bool {
        matches!(
            self,
            Self::ReadWriteDataValidityTest | Self::ReadOnlyDataValidityTest
        )
    }
}

/// Order in which a worker visits its blocks, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccessOrder {
    /// One after the other
    Sequential,
    /// Scattered over all of them, each once before the first one comes again
    Scattered,
}

/// When to show the progress line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// When standard error is a terminal
    Auto,
    /// In any case
    Always,
    /// Not at all
    Never,
}

impl Flags {
    /// The release that the service is asked in.
    #[must_use]
    pub fn release(&self) -> Release {
        self.protocol.protocol.chosen().unwrap_or_default()
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
        if self.execution_strategy == Strategy::ReadOnlyDataValidityTest
            && self.storage_plain_content.is_none()
        {
            return Err(Failure::invalid(
                "--execution-strategy read_only_data_validity_test needs --storage-plain-content FILE to compare with",
            ));
        }
        if self.local_io_region_size != 0 && self.release() == Release::V3_0 {
            return Err(Failure::invalid(
                "--local-io-region-size: with --protocol 3.0, expected none: the local region is as large as the storage",
            ));
        }
        if self.flush_every != 0 && !self.execution_strategy.writes() {
            return Err(Failure::invalid(
                "--flush-every needs an --execution-strategy that writes",
            ));
        }
        Ok(())
    }
}

/// Each transaction takes two receive tasks and a send task, and twice as many at the service.
const MAX_TRANSACTIONS: u32 = 1 << 16;

fn transaction_count(text: &str) -> Result<u32, String> {
    in_range(text, 1, u64::from(MAX_TRANSACTIONS)).map(|count| count as u32)
}

fn blocks_per_io(text: &str) -> Result<u16, String> {
    in_range(text, 1, u64::from(u16::MAX)).map(|count| count as u16)
}

fn region_size(text: &str) -> Result<u64, String> {
    flags::size(text)
        .ok()
        .filter(|&size| size <= i64::MAX as u64)
        .ok_or_else(|| format!("expected bytes, 0 to {}, or a size such as 4M", i64::MAX))
}

fn seed(text: &str) -> Result<u64, String> {
    in_range(text, 0, u64::MAX)
}

fn in_range(text: &str, min: u64, max: u64) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("expected a number, {min} to {max}")),
    }
}

#[cfg(test)]
mod tests;
