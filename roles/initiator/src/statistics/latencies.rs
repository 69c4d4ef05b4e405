//! Latencies and their percentiles.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Maximum latency that is recorded exactly. Far above any practical `--io-timeout`.
const LONGEST: Duration = Duration::from_secs(3600);

/// Percentiles of the distribution in the JSON document.
const DISTRIBUTION: [f64; 12] = [
    1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 100.0,
];

/// Latencies of transactions, from the start of the first I/O to the end of validation.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Nanoseconds, with three significant digits.
    histogram: Histogram<u64>,
    sum: u64,
    min: u64,
    max: u64,
}

impl Latencies {
    /// Creates an empty histogram. All memory for recording is allocated here.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3)
            .expect("1 <= LONGEST / 2, and at most 5 digits");
        Self {
            histogram,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Records a transaction.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
        self.sum = self.sum.saturating_add(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all histograms have the same bounds");
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    pub(super) fn summary(&self) -> LatencySummary {
        let count = self.histogram.len();
        if count == 0 {
            return LatencySummary::default();
        }
        let percentile =
            |percent| micros(self.histogram.value_at_percentile(percent).min(self.max));
        LatencySummary {
            min: self.min / 1000,
            max: self.max / 1000,
            mean: self.sum / count / 1000,
            p50: percentile(50.0),
            p99: percentile(99.0),
            p99_9: percentile(99.9),
            distribution: DISTRIBUTION.map(|percent| (percent, percentile(percent))),
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// Latencies in microseconds. Minimum, maximum and mean are integers, as in the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Shortest.
    pub min: u64,
    /// Longest.
    pub max: u64,
    /// Arithmetic mean.
    pub mean: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// Percentages with their percentiles.
    pub distribution: [(f64, f64); DISTRIBUTION.len()],
}

impl fmt::Display for LatencySummary {
    /// The reference's format, with percentiles.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| \tMin: {}us", self.min)?;
        writeln!(f, "| \tMax: {}us", self.max)?;
        writeln!(f, "| \tMean: {}us", self.mean)?;
        writeln!(f, "| \tp50: {:.1}us", self.p50)?;
        writeln!(f, "| \tp99: {:.1}us", self.p99)?;
        write!(f, "| \tp99.9: {:.1}us", self.p99_9)
    }
}
