//! What was measured: the reference's statistics block, with percentiles, as text and as JSON.

use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::cli::{NAME, Strategy};
use crate::data_path::Mismatch;

const RULE: &str = "+================================================+";

/// Longest latency that is told apart from longer ones. Far more than any `--io-timeout` in use.
const LONGEST: Duration = Duration::from_secs(3600);

/// Latencies of transactions, from the begin of the first I/O to the end of the validation.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Nanoseconds, with three significant digits.
    histogram: Histogram<u64>,
    sum: u64,
    min: u64,
    max: u64,
}

impl Latencies {
    /// No latencies. All memory that recording takes is allocated here.
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

    /// Takes note of one transaction.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
        self.sum = self.sum.saturating_add(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all histograms have the same bounds");
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    fn summary(&self) -> LatencySummary {
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

/// What one worker measured.
#[derive(Clone, Debug)]
pub struct WorkerStatistics {
    /// Completed transactions.
    pub operation_count: u64,
    /// Bytes of the blocks of these transactions, counted once per transaction as the reference does.
    pub bytes: u64,
    /// Calls of the progress engine that found something.
    pub pe_hit_count: u64,
    /// Calls of the progress engine that found nothing.
    pub pe_miss_count: u64,
    /// Latencies of the transactions.
    pub latencies: Latencies,
    /// When the last transaction completed.
    pub end: Instant,
}

/// Latencies in microseconds. Minimum, maximum and mean are whole, as the reference prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Shortest.
    pub min: u64,
    /// Longest.
    pub max: u64,
    /// Arithmetic mean.
    pub mean: u64,
    /// Half of the transactions took at most this.
    pub p50: f64,
    /// 99 % of the transactions took at most this.
    pub p99: f64,
    /// 99.9 % of the transactions took at most this.
    pub p99_9: f64,
}

/// The statistics of a run that passed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the program.
    pub application: &'static str,
    /// "passed", to tell it from a [`FailureReport`].
    pub result: &'static str,
    /// What was run.
    pub execution_strategy: Strategy,
    /// From the start of the data path to the last completed transaction.
    pub duration_seconds: f64,
    /// Completed transactions of all workers.
    pub operation_count: u64,
    /// Bytes of the blocks of these transactions.
    pub bytes: u64,
    /// GiB per second.
    pub data_rate_gib_per_second: f64,
    /// Millions of transactions per second.
    pub io_rate_miops: f64,
    /// Percent of the calls of the progress engines that found something.
    pub pe_hit_rate_percent: f64,
    /// Calls of the progress engines that found something.
    pub pe_hit_count: u64,
    /// Calls of the progress engines that found nothing.
    pub pe_miss_count: u64,
    /// Latencies in microseconds.
    pub latency_us: LatencySummary,
    /// Seed of the validation pattern, where one was written.
    pub seed: Option<u64>,
}

impl Report {
    /// Sums up what the workers measured since `start`.
    #[must_use]
    pub fn new(
        strategy: Strategy,
        seed: Option<u64>,
        start: Instant,
        workers: &[WorkerStatistics],
    ) -> Self {
        let end = workers
            .iter()
            .map(|worker| worker.end)
            .max()
            .unwrap_or(start);
        let duration = end.saturating_duration_since(start).as_secs_f64();
        let sum = |count: fn(&WorkerStatistics) -> u64| workers.iter().map(count).sum::<u64>();
        let (operation_count, bytes) = (
            sum(|worker| worker.operation_count),
            sum(|worker| worker.bytes),
        );
        let (hits, misses) = (
            sum(|worker| worker.pe_hit_count),
            sum(|worker| worker.pe_miss_count),
        );
        let mut latencies = Latencies::new();
        for worker in workers {
            latencies.merge(&worker.latencies);
        }
        Self {
            application: NAME,
            result: "passed",
            execution_strategy: strategy,
            duration_seconds: duration,
            operation_count,
            bytes,
            data_rate_gib_per_second: ratio(bytes as f64 / f64::from(1 << 30), duration),
            io_rate_miops: ratio(operation_count as f64 / 1e6, duration),
            pe_hit_rate_percent: ratio(hits as f64 * 100.0, (hits + misses) as f64),
            pe_hit_count: hits,
            pe_miss_count: misses,
            latency_us: latencies.summary(),
            seed,
        }
    }
}

/// A quotient that is 0 where there is nothing to divide by: JSON knows no infinity.
fn ratio(amount: f64, per: f64) -> f64 {
    if per > 0.0 { amount / per } else { 0.0 }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{RULE}\n| Stats\n{RULE}")?;
        writeln!(f, "| Duration (seconds): {:.6}", self.duration_seconds)?;
        writeln!(f, "| Operation count: {}", self.operation_count)?;
        writeln!(f, "| Data rate: {:.3} GiB/s", self.data_rate_gib_per_second)?;
        writeln!(f, "| IO rate: {:.3} MIOP/s", self.io_rate_miops)?;
        writeln!(
            f,
            "| PE hit rate: {:.3}% ({}:{})",
            self.pe_hit_rate_percent, self.pe_hit_count, self.pe_miss_count
        )?;
        writeln!(f, "| Latency:")?;
        let latency = &self.latency_us;
        writeln!(f, "| \tMin: {}us", latency.min)?;
        writeln!(f, "| \tMax: {}us", latency.max)?;
        writeln!(f, "| \tMean: {}us", latency.mean)?;
        for (name, value) in [
            ("p50", latency.p50),
            ("p99", latency.p99),
            ("p99.9", latency.p99_9),
        ] {
            writeln!(f, "| \t{name}: {value:.1}us")?;
        }
        writeln!(f, "{RULE}")
    }
}

/// A run that failed: the block that the reference prints, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureReport {
    /// Name of the program.
    pub application: &'static str,
    /// "failed", to tell it from a [`Report`].
    pub result: &'static str,
    /// What was run.
    pub execution_strategy: Strategy,
    /// Why it failed.
    pub error: String,
    /// The first byte that was not as expected, where that is why.
    pub mismatch: Option<Mismatch>,
    /// Seed of the validation pattern, where one was written.
    pub seed: Option<u64>,
}

impl FailureReport {
    /// The report of a failure.
    #[must_use]
    pub const fn new(
        strategy: Strategy,
        seed: Option<u64>,
        error: String,
        mismatch: Option<Mismatch>,
    ) -> Self {
        Self {
            application: NAME,
            result: "failed",
            execution_strategy: strategy,
            error,
            mismatch,
            seed,
        }
    }
}

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{RULE}\n| Test failed!!")?;
        match &self.mismatch {
            Some(mismatch) => writeln!(f, "| First mismatch: {mismatch}")?,
            None => writeln!(f, "| {}", self.error)?,
        }
        if let Some(seed) = self.seed {
            writeln!(f, "| Seed: {seed}")?;
        }
        writeln!(f, "{RULE}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_path::Failure;

    fn worker(
        start: Instant,
        seconds: u64,
        latencies: impl IntoIterator<Item = u64>,
    ) -> WorkerStatistics {
        let mut recorded = Latencies::new();
        let mut operation_count = 0;
        for micros in latencies {
            recorded.record(Duration::from_micros(micros));
            operation_count += 1;
        }
        WorkerStatistics {
            operation_count,
            bytes: operation_count * (1 << 20),
            pe_hit_count: 1,
            pe_miss_count: 3,
            latencies: recorded,
            end: start + Duration::from_secs(seconds),
        }
    }

    #[test]
    fn the_block_has_the_keys_and_the_format_of_the_reference() {
        let start = Instant::now();
        let report = Report::new(
            Strategy::ReadThroughputTest,
            None,
            start,
            &[worker(start, 2, [10, 20, 31])],
        );
        let expected = "\
+================================================+
| Stats
+================================================+
| Duration (seconds): 2.000000
| Operation count: 3
| Data rate: 0.001 GiB/s
| IO rate: 0.000 MIOP/s
| PE hit rate: 25.000% (1:3)
| Latency:
| \tMin: 10us
| \tMax: 31us
| \tMean: 20us
| \tp50: 20.0us
| \tp99: 31.0us
| \tp99.9: 31.0us
+================================================+
";
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn workers_are_summed_and_the_slowest_ends_the_run() {
        let start = Instant::now();
        let workers = [worker(start, 1, 1..=990), worker(start, 4, [100_000; 10])];
        let report = Report::new(Strategy::WriteThroughputTest, Some(5), start, &workers);
        assert_eq!((report.operation_count, report.bytes), (1000, 1000 << 20));
        assert!((report.duration_seconds - 4.0).abs() < 1e-9);
        assert!((report.data_rate_gib_per_second - 1000.0 / 1024.0 / 4.0).abs() < 1e-9);
        assert!((report.io_rate_miops - 0.000_25).abs() < 1e-9);
        assert_eq!((report.pe_hit_count, report.pe_miss_count), (2, 6));
        let latency = report.latency_us;
        assert_eq!((latency.min, latency.max), (1, 100_000));
        assert!((latency.p50 / 500.0 - 1.0).abs() < 0.002, "{latency:?}");
        assert!((latency.p99 / 990.0 - 1.0).abs() < 0.002, "{latency:?}");
        assert!(
            (latency.p99_9 / 100_000.0 - 1.0).abs() < 0.002,
            "{latency:?}"
        );
    }

    #[test]
    fn json_says_the_same() {
        let start = Instant::now();
        let report = Report::new(
            Strategy::ReadOnlyDataValidityTest,
            None,
            start,
            &[worker(start, 2, [10, 20, 31])],
        );
        let json = serde_json::to_value(&report).expect("serializable");
        assert_eq!(json["result"], "passed");
        assert_eq!(json["execution_strategy"], "read_only_data_validity_test");
        assert_eq!(json["operation_count"], 3);
        assert_eq!(json["duration_seconds"], 2.0);
        assert_eq!(json["latency_us"]["mean"], 20);
        assert!(json["latency_us"]["p99_9"].is_f64());
    }

    #[test]
    fn nothing_measured_is_no_division_by_zero() {
        let report = Report::new(Strategy::ReadThroughputTest, None, Instant::now(), &[]);
        assert_eq!(
            (
                report.io_rate_miops,
                report.pe_hit_rate_percent,
                report.latency_us.mean
            ),
            (0.0, 0.0, 0)
        );
        assert!(serde_json::to_string(&report).is_ok_and(|json| !json.contains("null,\"latency")));
    }

    #[test]
    fn a_failure_says_where() {
        let mismatch = Mismatch {
            block: 17,
            offset: 3,
            storage_offset: 17 * 512 + 3,
            expected: 0xAB,
            actual: 0x01,
            pass: Some(2),
        };
        let report = FailureReport::new(
            Strategy::ReadWriteDataValidityTest,
            Some(9),
            Failure::Mismatch(mismatch).to_string(),
            Some(mismatch),
        );
        let text = report.to_string();
        for part in [
            "| Test failed!!",
            "block 17",
            "offset 3",
            "0xab",
            "0x01",
            "Seed: 9",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let json = serde_json::to_value(&report).expect("serializable");
        assert_eq!(
            (&json["result"], &json["mismatch"]["block"]),
            (&"failed".into(), &17.into())
        );
    }
}
