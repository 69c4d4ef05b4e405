//! What was measured: the reference's statistics block, with percentiles, as text and as JSON.

mod failure;
mod latencies;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Instant;

use serde::Serialize;

use crate::cli::{NAME, Strategy};

pub use failure::FailureReport;
pub use latencies::{Latencies, LatencySummary};

const RULE: &str = "+================================================+";

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
    /// Latencies of the flushes.
    pub flushes: Latencies,
    /// When the last transaction completed.
    pub end: Instant,
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
    /// Latencies of the flushes in microseconds, where there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_latency_us: Option<LatencySummary>,
    /// Flushes of all workers, where there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_count: Option<u64>,
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
        let (mut latencies, mut flushes) = (Latencies::new(), Latencies::new());
        for worker in workers {
            latencies.merge(&worker.latencies);
            flushes.merge(&worker.flushes);
        }
        let flush_count = (flushes.count() != 0).then(|| flushes.count());
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
            flush_latency_us: flush_count.map(|_| flushes.summary()),
            flush_count,
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
        writeln!(f, "| Latency:\n{}", self.latency_us)?;
        if let (Some(count), Some(latency)) = (self.flush_count, &self.flush_latency_us) {
            writeln!(f, "| Flush count: {count}")?;
            writeln!(f, "| Flush latency:\n{latency}")?;
        }
        writeln!(f, "{RULE}")?;
        // Behind the block, which has the lines of the reference.
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
