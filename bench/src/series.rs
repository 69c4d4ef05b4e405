//! Series of measurements that take turns.
//!
//! A noisy machine is noisy for minutes: two things that are measured one after the other are not measured on the same machine.
//! So everything that is going to be compared is run in turns, round after round, and ratios are made within a round.

use serde::{Deserialize, Serialize};

/// Figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// I/Os a second.
    pub rate: f64,
    /// Bytes of content a second.
    pub bandwidth: f64,
    /// Times of single I/Os, where the program measures them.
    pub latency: Option<Latency>,
    /// Number of I/Os by latency, where the program reports it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Bucket>,
    /// CPU time per I/O of each process, in nanoseconds: of the initiator as a whole, of the others while it was there.
    pub cpu_ns: Option<CpuTime>,
    /// System calls per I/O, where they were what was measured.
    pub system_calls: Option<SystemCalls>,
    /// The first I/Os after a pause, where they were.
    pub after_pause: Option<AfterPause>,
    /// Kernel times of gga for a block, where measured.
    pub kernels: Option<BlockKernels>,
    /// Wake-up time of a sleeping CPU in nanoseconds, where measured.
    pub wake_up_ns: Option<f64>,
}

impl Figures {
    /// Figures without a rate.
    pub fn without_rate() -> Self {
        Self::of_rate(0.0, 0)
    }

    /// This many I/Os of this size per second, without other figures.
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

/// Quantiles in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Half are not longer.
    pub p50_ns: f64,
    /// 99 of 100 are not longer.
    pub p99_ns: f64,
    /// 999 of 1000 are not longer.
    pub p99_9_ns: f64,
    /// Latency percentiles, where the program reports them.
    pub distribution: Option<Distribution>,
}

/// A bucket of a latency histogram: its bounds in microseconds, the upper one excluded, and the number of I/Os. Buckets of all runs have the same bounds.
pub type Bucket = (f64, f64, u64);

/// Percentages, and the latency in nanoseconds that this share of the I/Os does not exceed.
pub type Distribution = [(f64, f64); 12];

/// CPU time per I/O in nanoseconds; targets together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CpuTime {
    /// The initiator's.
    pub initiator: f64,
    /// The service's.
    pub service: f64,
    /// The sum of all targets.
    pub targets: f64,
}

/// System calls per I/O, by role; targets together. Those that only give the CPU away are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SystemCalls {
    /// The initiator's.
    pub initiator: f64,
    /// The service's.
    pub service: f64,
    /// The sum of all targets.
    pub targets: f64,
    /// `sched_yield` of all of them, which is in none of the others.
    pub yields: f64,
}

impl SystemCalls {
    /// The sum over all roles, without yields.
    pub fn total(&self) -> f64 {
        self.initiator + self.service + self.targets
    }
}

/// Duration of the first I/Os after a pause, and of the same I/Os without one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AfterPause {
    /// Length of the pause in seconds.
    pub pause_seconds: f64,
    /// Rate of the first I/Os after the pause, per second.
    pub first_rate: f64,
    /// Median rate of as many I/Os without a pause, per second.
    pub steady_rate: f64,
    /// A single I/O after another pause, in nanoseconds.
    pub first_ns: f64,
    /// A single I/O right after others, in the middle.
    pub steady_ns: f64,
}

impl AfterPause {
    /// The I/Os that count as the first ones.
    pub const IOS: u32 = 1000;

    /// Time of the first I/Os after the pause, in nanoseconds.
    pub fn first_time_ns(&self) -> f64 {
        f64::from(Self::IOS) * 1e9 / self.first_rate
    }

    /// Time of as many I/Os without a pause, in nanoseconds.
    pub fn steady_time_ns(&self) -> f64 {
        f64::from(Self::IOS) * 1e9 / self.steady_rate
    }
}

/// Times that gga's kernels need for a block of 4 KiB, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BlockKernels {
    /// Compression to a stored block with its checksum.
    pub compress_ns: f64,
    /// Decompression, without looking at checksums.
    pub decompress_ns: f64,
    /// The parity of two halves of 2 KiB.
    pub create_ns: f64,
    /// A half of 2 KiB from the other and the parity.
    pub recover_ns: f64,
    /// Extra time of verifying a stored block that another CPU has written, over using it unverified, in a sequence of blocks.
    pub check_ns: f64,
}

/// Repeated measurements of one subject.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    /// Name of the series.
    pub name: String,
    /// A run per round.
    pub runs: Vec<Figures>,
}

impl Series {
    /// A series without runs.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            runs: Vec::new(),
        }
    }

    /// The median of a figure over the runs that have it.
    pub fn median(&self, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        median(self.runs.iter().filter_map(of).collect())
    }

    /// The median of the ratios, round by round, of this figure to that of another series.
    pub fn ratio(&self, to: &Self, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        let ratios = std::iter::zip(&self.runs, &to.runs)
            .filter_map(|(own, other)| Some(of(own)? / of(other)?))
            .filter(|ratio| ratio.is_finite());
        median(ratios.collect())
    }
}

/// The value that this share (0 to 1) of the values does not exceed, interpolated between neighbours. `None` without values.
pub fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * values.len().checked_sub(1)? as f64;
    let (low, high) = (
        values[place.floor() as usize],
        values[place.ceil() as usize],
    );
    Some(low + (high - low) * place.fract())
}

/// The middle one; of an even number, the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count.is_multiple_of(2) => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
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
