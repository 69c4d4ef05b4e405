//! Measured points (layout, operation, sizes and depths), and series of their measurements, which are made alternately.
//!
//! A noisy machine is noisy for minutes, so consecutive measurements of two subjects are not comparable. All compared
//! subjects are therefore measured alternately, round after round, and ratios are computed within a round.

use std::fmt;

use deployment::network::{Network, Unavailable};
use serde::{Deserialize, Serialize};

pub use deployment::implementation::Layout;

/// Figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// I/Os per second.
    pub rate: f64,
    /// Bytes of content per second.
    pub bandwidth: f64,
    /// Latencies, if the program measures them.
    pub latency: Option<Latency>,
    /// Number of I/Os by latency, where the program reports it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Bucket>,
    /// CPU time per I/O of each process, in nanoseconds: the initiator's in total, the others' while it was running.
    pub cpu_ns: Option<CpuTime>,
    /// System calls per I/O, if measured.
    pub system_calls: Option<SystemCalls>,
    /// First I/Os after a pause, if measured.
    pub after_pause: Option<AfterPause>,
    /// Times of gga's kernels for a block, if measured.
    pub kernels: Option<BlockKernels>,
    /// Wake-up time of a sleeping CPU in nanoseconds, if measured.
    pub wake_up_ns: Option<f64>,
}

impl Figures {
    pub fn without_rate() -> Self {
        Self::of_rate(0.0, 0)
    }

    /// Figures that consist of a rate, in I/Os per second, and the resulting bandwidth.
    pub fn of_rate(rate: f64, block_size: u32) -> Self {
        Self {
            rate,
            bandwidth: rate * f64::from(block_size),
            latency: None,
            histogram: Vec::new(),
            cpu_ns: None,
            system_calls: None,
            after_pause: None,
            kernels: None,
            wake_up_ns: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub p99_9_ns: f64,
    /// Percentiles, if the program reports them.
    pub distribution: Option<Distribution>,
}

/// A bucket of a latency histogram: its bounds in microseconds, the upper one excluded, and the number of I/Os. Buckets of all runs have the same bounds.
pub type Bucket = (f64, f64, u64);

/// Percentages, and the percentiles in nanoseconds.
pub type Distribution = [(f64, f64); 12];

/// CPU time per I/O in nanoseconds; targets together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CpuTime {
    /// CPU time of the initiator.
    pub initiator: f64,
    /// CPU time of the service.
    pub service: f64,
    /// Sum over all targets.
    pub targets: f64,
}

/// System calls per I/O, by role; targets together. Calls that only yield the CPU are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SystemCalls {
    /// System calls of the initiator.
    pub initiator: f64,
    /// System calls of the service.
    pub service: f64,
    /// Sum over all targets.
    pub targets: f64,
    /// `sched_yield` calls of all roles, not included in the other counts.
    pub yields: f64,
}

impl SystemCalls {
    /// Sum over all roles, without yields.
    pub fn total(&self) -> f64 {
        self.initiator + self.service + self.targets
    }
}

/// Duration of the first I/Os after a pause, and of the same number of I/Os without a pause.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AfterPause {
    /// Length of the pause in seconds.
    pub pause_seconds: f64,
    /// Rate of the first I/Os after the pause, in I/Os per second.
    pub first_rate: f64,
    /// Median rate of the same number of I/Os without a pause, per second.
    pub steady_rate: f64,
    /// Latency of a single I/O after another pause, in nanoseconds.
    pub first_ns: f64,
    /// Median latency of a single I/O without a pause, in nanoseconds.
    pub steady_ns: f64,
}

impl AfterPause {
    /// Number of I/Os after the pause that are measured.
    pub const IOS: u32 = 1000;

    /// Time of the first I/Os after the pause, in nanoseconds.
    pub fn first_time_ns(&self) -> f64 {
        f64::from(Self::IOS) * 1e9 / self.first_rate
    }

    /// Time of the same number of I/Os without a pause, in nanoseconds.
    pub fn steady_time_ns(&self) -> f64 {
        f64::from(Self::IOS) * 1e9 / self.steady_rate
    }
}

/// Times of gga's kernels for a block of 4 KiB, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BlockKernels {
    /// Compression to a stored block.
    pub compress_ns: f64,
    /// Decompression.
    pub decompress_ns: f64,
    /// Parity of two halves of 2 KiB.
    pub create_ns: f64,
    /// Recovery of a half of 2 KiB from the other half and the parity, in nanoseconds.
    pub recover_ns: f64,
    /// Additional time for verifying a stored block that another CPU has written.
    pub check_ns: f64,
}

/// Repeated measurements of one subject.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    pub name: String,
    /// One run per round.
    pub runs: Vec<Figures>,
}

impl Series {
    /// Creates a series without runs.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            runs: Vec::new(),
        }
    }

    /// Median of a figure over the runs that include it.
    pub fn median(&self, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        median(self.runs.iter().filter_map(of).collect())
    }

    /// Median over the rounds of the ratio of this figure to that of another series.
    pub fn ratio(&self, to: &Self, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        let ratios = std::iter::zip(&self.runs, &to.runs)
            .filter_map(|(own, other)| Some(of(own)? / of(other)?))
            .filter(|ratio| ratio.is_finite());
        median(ratios.collect())
    }
}

/// Quantile, with linear interpolation: `share` is between 0 and 1. `None` without values.
pub fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * values.len().checked_sub(1)? as f64;
    let (low, high) = (
        values[place.floor() as usize],
        values[place.ceil() as usize],
    );
    Some(low + (high - low) * place.fract())
}

/// Median: for an even number of values, the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count.is_multiple_of(2) => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Read,
    /// Reads that recover one half through the parity: gga only.
    RecoveryRead,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Point {
    pub layout: Layout,
    pub operation: Operation,
    /// Size of an I/O, and of a block, in bytes.
    pub block_size: u32,
    /// I/Os in flight per worker.
    pub transactions: u32,
    /// Number of workers of every role.
    pub workers: u32,
}

impl Point {
    /// Point of the first threshold: 4 KiB reads, 64 in flight, one worker.
    pub const ZERO_COPY_READ: Self = Self {
        layout: Layout::ZeroCopy,
        operation: Operation::Read,
        block_size: 4096,
        transactions: 64,
        workers: 1,
    };

    /// Number of blocks of the storage: large blocks do not all fit into the caches, and there are at least two blocks per
    /// transaction.
    pub fn block_count(&self) -> u32 {
        const STORAGE: u32 = 16 << 20;
        let least = 2 * self.transactions * self.workers;
        (STORAGE / self.block_size).clamp(least, 4096)
    }

    /// Size of the storage in bytes.
    pub fn capacity(&self) -> u64 {
        u64::from(self.block_count()) * u64::from(self.block_size)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::RecoveryRead => "recovery read",
            Self::Write => "write",
        })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            layout,
            operation,
            block_size,
            transactions,
            workers,
        } = self;
        let size = match block_size {
            size if size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
            size if size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
            size => format!("{size} B"),
        };
        write!(f, "{layout} {operation} {size} x{transactions}")?;
        if *workers > 1 {
            write!(f, ", {workers} workers")?;
        }
        Ok(())
    }
}

/// Number of machines: one for service and initiator, one for the target.
pub const MACHINES: usize = 2;

/// Compared workloads: zero-copy reads, for the rate, the latency, and the bandwidth.
pub fn network_points() -> [Point; 4] {
    let base = Point::ZERO_COPY_READ;
    let of = |block_size, transactions| Point {
        block_size,
        transactions,
        ..base
    };
    [base, of(4096, 1), of(64 << 10, 64), of(1 << 20, 16)]
}

/// Two machines, which are removed when the value is dropped.
///
/// # Errors
///
/// The user is not permitted to create network namespaces, or a program is missing.
pub fn two_machines() -> Result<Network, Unavailable> {
    Network::new(MACHINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rates: &[f64]) -> Series {
        let figures = |rate: &f64| Figures::of_rate(*rate, 1);
        Series {
            runs: rates.iter().map(figures).collect(),
            ..Series::new("some")
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(vec![], 0.5), None);
        assert_eq!(quantile(vec![7.0], 0.25), Some(7.0));
        let values = vec![5.0, 1.0, 3.0, 2.0, 4.0];
        for (share, expected) in [
            (0.0, 1.0),
            (0.25, 2.0),
            (0.5, 3.0),
            (0.875, 4.5),
            (1.0, 5.0),
        ] {
            assert_eq!(quantile(values.clone(), share), Some(expected));
        }
    }

    #[test]
    fn ratios_are_computed_within_a_round() {
        // The machine was ten times slower in the second round, for both.
        let (ours, limit) = (series(&[50.0, 6.0, 70.0]), series(&[100.0, 10.0, 100.0]));
        assert_eq!(ours.ratio(&limit, |run| Some(run.rate)), Some(0.6));
        assert_eq!(
            ours.ratio(&limit, |run| run.latency.map(|l| l.p50_ns)),
            None
        );
    }
}
