//! Measurements (the reference's statistics block, with percentiles, as text and as JSON), and the result of a test.

use std::fmt;
use std::time::{Duration, Instant};

use control::Failure;
use doca::ErrorCode;
use hdrhistogram::Histogram;
use role_common::console::Console;
use role_common::errln;
use role_common::flags::OutputFormat;
use serde::Serialize;
use volume::endpoint::EndpointError;
use volume::session::SessionError;

use crate::NAME;
use crate::app::Strategy;
use crate::data_path::{self, Mismatch};

// Output of a failed run.

/// A failed run: the reference's block, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureReport {
    pub application: &'static str,
    /// "failed", to distinguish it from a [`Report`].
    pub result: &'static str,
    pub execution_strategy: Strategy,
    pub error: String,
    /// The first wrong byte, for a validation failure.
    pub mismatch: Option<Mismatch>,
    /// Seed of the validation pattern, if one was written.
    pub seed: Option<u64>,
}

impl FailureReport {
    /// Creates the report of a failure.
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

// Latencies and their percentiles.

/// Maximum latency that is recorded exactly. Far above any practical `--io-timeout`.
const LONGEST: Duration = Duration::from_secs(3600);

/// Percentiles of the distribution in the JSON document.
const DISTRIBUTION: [f64; 12] = [
    1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 100.0,
];

/// Buckets of the histogram in the JSON document for each doubling of the latency.
const BUCKETS_PER_OCTAVE: f64 = 4.0;

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

    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
        self.sum = self.sum.saturating_add(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
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
            distribution: DISTRIBUTION.map(|percent| (percent, percentile(percent))),
            histogram: self.buckets(),
        }
    }
}

impl Latencies {
    /// Counts between the first and the last bucket that is not empty.
    fn buckets(&self) -> Vec<(f64, f64, u64)> {
        let mut buckets: Vec<(f64, f64, u64)> = Vec::new();
        let mut first = None;
        for value in self.histogram.iter_recorded() {
            let nanos = value.value_iterated_to().clamp(1, self.max.max(1)) as f64;
            let index = (nanos.log2() * BUCKETS_PER_OCTAVE).floor() as usize;
            let first = *first.get_or_insert(index);
            while buckets.len() <= index - first {
                let bound = |index: usize| (index as f64 / BUCKETS_PER_OCTAVE).exp2() / 1000.0;
                let index = first + buckets.len();
                buckets.push((bound(index), bound(index + 1), 0));
            }
            buckets[index - first].2 += value.count_since_last_iteration();
        }
        buckets
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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    pub min: u64,
    pub max: u64,
    pub mean: u64,
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
    /// Percentages with their percentiles.
    pub distribution: [(f64, f64); DISTRIBUTION.len()],
    /// Buckets of a quarter of an octave: bounds, the upper one excluded, and the number of transactions.
    pub histogram: Vec<(f64, f64, u64)>,
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

const RULE: &str = "+================================================+";

#[derive(Clone, Debug)]
pub struct WorkerStatistics {
    /// Completed transactions.
    pub operation_count: u64,
    /// Number of bytes transferred, counted once per transaction as in the reference.
    pub bytes: u64,
    /// Calls of the progress engine that found work.
    pub pe_hit_count: u64,
    /// Calls of the progress engine that found no work.
    pub pe_miss_count: u64,
    pub latencies: Latencies,
    pub flushes: Latencies,
    /// Completion time of the last transaction.
    pub end: Instant,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub application: &'static str,
    /// "passed" or "interrupted", to distinguish it from a [`FailureReport`].
    pub result: &'static str,
    /// Reason of the interruption, if the run was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub execution_strategy: Strategy,
    /// From the start of the data path to the last completed transaction.
    pub duration_seconds: f64,
    /// Completed transactions of all workers.
    pub operation_count: u64,
    /// Number of bytes transferred by these transactions.
    pub bytes: u64,
    pub data_rate_gib_per_second: f64,
    /// Millions of transactions per second.
    pub io_rate_miops: f64,
    /// Percentage of calls of the progress engines that found work.
    pub pe_hit_rate_percent: f64,
    /// Calls of the progress engines that found work.
    pub pe_hit_count: u64,
    /// Calls of the progress engines that found no work.
    pub pe_miss_count: u64,
    pub latency_us: LatencySummary,
    /// Latencies of the flushes in microseconds, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_latency_us: Option<LatencySummary>,
    /// Flushes of all workers, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_count: Option<u64>,
    /// Seed of the validation pattern, if one was written.
    pub seed: Option<u64>,
}

impl Report {
    /// Combines the workers' measurements since `start`.
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
        let (mut latencies, mut flushes) = (Latencies::new(), Latencies::new());
        for worker in workers {
            latencies.merge(&worker.latencies);
            flushes.merge(&worker.flushes);
        }
        let flush_count = (flushes.count() != 0).then(|| flushes.count());
        Self {
            application: NAME,
            result: "passed",
            error: None,
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
            flush_latency_us: flush_count.map(|_| flushes.summary()),
            flush_count,
            seed,
        }
    }

    /// Marks the measurements as those of a run that was interrupted for this reason.
    #[must_use]
    pub fn interrupted(mut self, error: String) -> Self {
        self.result = "interrupted";
        self.error = Some(error);
        self
    }
}

/// A quotient, 0 for a zero divisor: JSON has no infinity.
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
        writeln!(f, "| Latency:\n{}", self.latency_us)?;
        if let (Some(count), Some(latency)) = (self.flush_count, &self.flush_latency_us) {
            writeln!(f, "| Flush count: {count}")?;
            writeln!(f, "| Flush latency:\n{latency}")?;
        }
        writeln!(f, "{RULE}")?;
        // Appended to the lines of the reference.
        if self.error.is_some() {
            writeln!(f, "interrupted after {} operations", self.operation_count)?;
        }
        match self.execution_strategy {
            Strategy::ReadWriteDataValidityTest => writeln!(
                f,
                "compared with what was written: {} I/Os, {} bytes, all equal",
                self.operation_count, self.bytes
            ),
            Strategy::ReadOnlyDataValidityTest => writeln!(
                f,
                "compared with the plain content: {} I/Os, {} bytes, all equal",
                self.operation_count, self.bytes
            ),
            Strategy::ReadThroughputTest | Strategy::WriteThroughputTest => Ok(()),
        }
    }
}

/// Findings of a finished session.
#[derive(Debug)]
pub struct Findings<'a> {
    pub strategy: Strategy,
    /// Seed of the validation pattern, if one was written.
    pub seed: Option<u64>,
    pub session: Result<(), SessionError>,
    /// Failure of the run, if any.
    pub failure: Option<&'a data_path::Failure>,
    /// `true` if the run ended before the session failed.
    pub run_came_first: bool,
    /// Measurements, if the run completed or was halted.
    pub measured: Option<Report>,
}

#[derive(Debug)]
pub enum Conclusion {
    Passed(Report),
    RunFailed(FailureReport, Failure),
    /// The user interrupted the run. Measurements until then.
    Interrupted(Report, Failure),
    /// The session failed; with the measurements, if there was a run.
    SessionFailed(FailureReport, Option<Report>, Failure),
}

impl Findings<'_> {
    /// Distinguishes causes from consequences.
    #[must_use]
    pub fn conclude(self) -> Conclusion {
        let report =
            |error: String, mismatch| FailureReport::new(self.strategy, self.seed, error, mismatch);
        if let Some(failure) = self.failure.filter(|failure| self.is_cause(failure)) {
            return Conclusion::RunFailed(
                report(failure.to_string(), failure.mismatch()),
                failure.clone().into(),
            );
        }
        let halted = self.failure.is_some();
        match (self.session, self.measured) {
            (Ok(()), Some(measured)) => Conclusion::Passed(measured),
            (Ok(()), None) => {
                let failure =
                    Failure::new(ErrorCode::UNEXPECTED, "the session ended without a run");
                Conclusion::SessionFailed(report(failure.message.clone(), None), None, failure)
            }
            (Err(error @ SessionError::Interrupted), Some(measured)) => {
                Conclusion::Interrupted(measured.interrupted(error.to_string()), error.into())
            }
            (Err(error), measured) => Conclusion::SessionFailed(
                report(error.to_string(), None),
                // A run that ended with the session was measured only in part.
                measured.filter(|_| !halted),
                error.into(),
            ),
        }
    }

    /// Returns `true` if the run's failure is the cause to be reported.
    fn is_cause(&self, failure: &data_path::Failure) -> bool {
        use data_path::Failure as Run;
        match failure {
            // These failures cannot be consequences of a failed session.
            Run::Mismatch(_) | Run::Io { .. } | Run::Endpoint(EndpointError::Answer(_)) => true,
            // Without a service, timeouts are expected.
            Run::Timeout { .. } => self.run_came_first || self.session.is_ok(),
            Run::Endpoint(EndpointError::Doca { .. }) | Run::Halted { .. } => self.session.is_ok(),
        }
    }
}

impl Conclusion {
    /// Prints the result: statistics on standard output; failures on standard error, as the reference does, and as
    /// JSON if selected.
    ///
    /// # Errors
    /// The test has failed.
    pub fn print(self, console: Console) -> Result<(), Failure> {
        let json = console.format() == OutputFormat::Json;
        match self {
            Self::Passed(report) => {
                console.report(&report);
                Ok(())
            }
            Self::RunFailed(report, failure) => {
                errln!("{}", report.to_string().trim_end());
                if json {
                    console.report(&report);
                }
                Err(failure)
            }
            Self::Interrupted(report, failure) => {
                console.report(&report);
                Err(failure)
            }
            Self::SessionFailed(report, measured, failure) => {
                if json {
                    console.report(&report);
                } else if let Some(measured) = measured {
                    // Measurements made before the session failed are reported.
                    console.report(&measured);
                }
                Err(failure)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_path::{Direction, Failure, Io};

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
            flushes: Latencies::new(),
            end: start + Duration::from_secs(seconds),
        }
    }

    #[test]
    fn statistics_have_the_keys_and_format_of_the_reference() {
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
    fn validation_result_names_the_comparison() {
        let start = Instant::now();
        let text = |strategy| {
            Report::new(strategy, None, start, &[worker(start, 2, [1, 2, 3])]).to_string()
        };
        for (strategy, with) in [
            (Strategy::ReadWriteDataValidityTest, "written"),
            (Strategy::ReadOnlyDataValidityTest, "content"),
        ] {
            let text = text(strategy);
            let last = text.lines().last().expect("a line");
            for part in [with, " 3 ", " 3145728 ", "equal"] {
                assert!(last.contains(part), "{part} is missing in {last}");
            }
        }
        assert!(!text(Strategy::WriteThroughputTest).contains("equal"));
    }

    #[test]
    fn statistics_sum_workers_and_end_with_the_slowest() {
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
    fn json_has_the_values_of_the_text() {
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
        let median = &json["latency_us"]["distribution"][3];
        assert_eq!(median[0], 50.0);
        assert_eq!(median[1], json["latency_us"]["p50"]);
        let histogram = json["latency_us"]["histogram"].as_array().expect("a list");
        let counts: Vec<_> = histogram.iter().filter_map(|it| it[2].as_u64()).collect();
        assert_eq!(counts.iter().sum::<u64>(), 3);
        assert_eq!((counts.first(), counts.last()), (Some(&1), Some(&1)));
        for (bucket, latency) in [(&histogram[0], 10.0), (&histogram[counts.len() - 1], 31.0)] {
            assert!(bucket[0].as_f64() <= Some(latency) && Some(latency) < bucket[1].as_f64());
        }
    }

    #[test]
    fn empty_measurements_have_zero_rates() {
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
    fn failure_report_has_the_position() {
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
        for part in ["block 17", "offset 3", "0xab", "0x01", "Seed: 9"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let json = serde_json::to_value(&report).expect("serializable");
        assert_eq!(
            (&json["result"], &json["mismatch"]["block"]),
            (&"failed".into(), &17.into())
        );
    }

    const MISMATCH: data_path::Failure = data_path::Failure::Mismatch(Mismatch {
        block: 1,
        offset: 2,
        storage_offset: 514,
        expected: 3,
        actual: 4,
        pass: None,
    });
    const TIMEOUT: data_path::Failure = data_path::Failure::Timeout {
        io: Io {
            direction: Direction::Read,
            storage_offset: 0,
            size: 512,
        },
        after: Duration::from_secs(5),
    };
    const BROKEN: data_path::Failure = data_path::Failure::Endpoint(EndpointError::Doca {
        doing: "sending a request",
        code: ErrorCode::NOT_CONNECTED,
    });
    const LOST: SessionError = SessionError::Disconnected {
        waiting_for: "the operations to complete",
    };

    fn conclude(
        session: Result<(), SessionError>,
        failure: Option<&data_path::Failure>,
        run_came_first: bool,
        measured: bool,
    ) -> Conclusion {
        let strategy = Strategy::ReadThroughputTest;
        let measured = measured.then(|| Report::new(strategy, None, Instant::now(), &[]));
        Findings {
            strategy,
            seed: None,
            session,
            failure,
            run_came_first,
            measured,
        }
        .conclude()
    }

    #[test]
    fn successful_run_and_session_pass() {
        assert!(matches!(
            conclude(Ok(()), None, true, true),
            Conclusion::Passed(_)
        ));
    }

    #[test]
    fn wrong_data_is_reported_for_any_session_result() {
        for session in [Ok(()), Err(LOST), Err(SessionError::Interrupted)] {
            for first in [true, false] {
                let conclusion = conclude(session.clone(), Some(&MISMATCH), first, false);
                let Conclusion::RunFailed(report, _) = conclusion else {
                    panic!("{conclusion:?}")
                };
                assert_eq!(report.mismatch, MISMATCH.mismatch());
            }
        }
    }

    #[test]
    fn unanswered_io_is_reported_unless_the_service_disconnected_first() {
        assert!(matches!(
            conclude(Err(LOST), Some(&TIMEOUT), true, false),
            Conclusion::RunFailed(..)
        ));
        let conclusion = conclude(Err(LOST), Some(&TIMEOUT), false, false);
        let Conclusion::SessionFailed(report, None, failure) = conclusion else {
            panic!("{conclusion:?}")
        };
        assert_eq!(report.error, LOST.to_string());
        assert_eq!(failure.code, ErrorCode::CONNECTION_ABORTED);
    }

    #[test]
    fn failed_contexts_are_reported_if_the_session_has_no_failure() {
        assert!(matches!(
            conclude(Ok(()), Some(&BROKEN), true, false),
            Conclusion::RunFailed(..)
        ));
        assert!(matches!(
            conclude(Err(LOST), Some(&BROKEN), true, false),
            Conclusion::SessionFailed(..)
        ));
    }

    #[test]
    fn measurements_are_reported_for_a_failed_session() {
        let conclusion = conclude(Err(LOST), None, true, true);
        assert!(
            matches!(conclusion, Conclusion::SessionFailed(_, Some(_), _)),
            "{conclusion:?}"
        );
    }

    #[test]
    fn interrupted_run_reports_its_measurements() {
        let halted = data_path::Failure::Halted {
            completed: 3,
            expected: 5,
        };
        for failure in [None, Some(&halted)] {
            let conclusion = conclude(Err(SessionError::Interrupted), failure, true, true);
            let Conclusion::Interrupted(report, failure) = conclusion else {
                panic!("{conclusion:?}")
            };
            assert_eq!(report.result, "interrupted");
            assert_eq!(report.error, Some(SessionError::Interrupted.to_string()));
            assert_eq!(failure.code, ErrorCode::CONNECTION_ABORTED);
        }
        // Before the run, there are no measurements to report.
        let conclusion = conclude(Err(SessionError::Interrupted), None, false, false);
        assert!(
            matches!(conclusion, Conclusion::SessionFailed(_, None, _)),
            "{conclusion:?}"
        );
    }

    #[test]
    fn run_halted_by_a_lost_session_has_no_measurements() {
        let halted = data_path::Failure::Halted {
            completed: 3,
            expected: 5,
        };
        let conclusion = conclude(Err(LOST), Some(&halted), false, true);
        assert!(
            matches!(conclusion, Conclusion::SessionFailed(_, None, _)),
            "{conclusion:?}"
        );
    }

    #[test]
    fn session_without_a_run_fails() {
        assert!(
            conclude(Ok(()), None, false, false)
                .print(Console::default())
                .is_err()
        );
    }
}
