//! Counters of workers: printed after a run in the reference's format ([`Statistics`]), and served to Prometheus as text over HTTP
//! with `--metrics ADDR` ([`Metrics`]).
//!
//! Workers count in private memory, with and without metrics. Whenever they read the clock, which they do once in a
//! number of poll iterations, they copy their counts with relaxed stores to a [`WorkerMetrics`] that no other thread
//! writes and that has its own cache lines. The metrics thread reads these on request. Therefore the data path has no
//! additional atomic read-modify-write, lock or system call. A count may be 2 s old while the worker is idle, and is
//! exact after its run.
//!
//! Counts of finished workers are kept as sums per core. Roles add further metrics with [`Metrics::add_section`].
#![forbid(unsafe_code)]
// These macros panic if the stream is closed or full.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod http;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::Failure;
use control::counts::ProcessCount;
use control::network::HostPort;
use doca::ErrorCode;
use prometheus_client::registry::Registry;
use serde::Serialize;

pub use http::Page;

/// Address on which metrics are served: a port of the loopback interface, or an address with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsAddress(pub HostPort);

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()));
        }
        text.parse().map(Self).map_err(|_| {
            "expected a port, which is served on 127.0.0.1 only, or <host>:<port>; port 0 selects a free one"
                .to_owned()
        })
    }
}

/// A counter or gauge that a worker publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Completed reads, with or without errors; for a service that forwards reads, received reads.
    Reads,
    /// Completed writes; counted like reads.
    Writes,
    /// Completed flushes; counted like reads.
    Flushes,
    /// Bytes of reads without an error; for a service that forwards reads, of all reads.
    ReadBytes,
    /// Bytes of writes; counted like those of reads.
    WrittenBytes,
    /// Invalid requests.
    Refused,
    /// I/Os that failed because of a media error.
    MediaErrors,
    /// I/Os that failed for any reason, including refused ones.
    Failed,
    /// Writes whose data does not compress enough, also counted as failed.
    Incompressible,
    /// Blocks that could not be recovered from any two chunks.
    Uncorrectable,
    /// Results without a request.
    Unexpected,
    /// Reads made to recover a chunk through parity (`--trigger-recovery-read-every-n`).
    RecoveryReads,
    /// Blocks read through parity because a target is missing.
    DegradedReads,
    /// Blocks written to two targets because the third is missing.
    DegradedWrites,
    /// Corrupt chunks corrected by reads.
    CorrectedChunks,
    /// Chunk reads that a target completed with an error.
    FailedChunkReads,
    InFlight,
    /// Calls of the progress engine that found work.
    ProgressHits,
    /// Calls of the progress engine that found no work.
    ProgressMisses,
}

/// Number of [`Count`]s.
const COUNTS: usize = Count::ProgressMisses as usize + 1;

/// Counters of every role with a data path.
const COMMON: [Count; 8] = [
    Count::Reads,
    Count::Writes,
    Count::Flushes,
    Count::ReadBytes,
    Count::WrittenBytes,
    Count::InFlight,
    Count::ProgressHits,
    Count::ProgressMisses,
];

/// One number for each [`Count`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts([u64; COUNTS]);

impl Counts {
    /// Returns the counts with this count set.
    #[inline]
    #[must_use]
    pub fn with(mut self, count: Count, number: u64) -> Self {
        self.0[count as usize] = number;
        self
    }

    #[must_use]
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    fn add(&mut self, other: &Self) {
        for (sum, number) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(number);
        }
    }
}

/// I/Os and their bytes, by kind, as counted by a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    reads: u64,
    writes: u64,
    flushes: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Traffic {
    /// Counts a read of `bytes`.
    #[inline(always)]
    pub fn read(&mut self, bytes: u64) {
        self.reads += 1;
        self.read_bytes += bytes;
    }

    /// Counts a write of `bytes`.
    #[inline(always)]
    pub fn write(&mut self, bytes: u64) {
        self.writes += 1;
        self.written_bytes += bytes;
    }

    /// Counts a flush.
    #[inline(always)]
    pub fn flush(&mut self) {
        self.flushes += 1;
    }

    /// Converts to counts for publishing.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts::default()
            .with(Count::Reads, self.reads)
            .with(Count::Writes, self.writes)
            .with(Count::Flushes, self.flushes)
            .with(Count::ReadBytes, self.read_bytes)
            .with(Count::WrittenBytes, self.written_bytes)
    }
}

/// Published counters of one worker, on separate cache lines to avoid false sharing.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerMetrics {
    counts: [AtomicU64; COUNTS],
    latencies: LatencyBuckets,
    core: u32,
}

impl WorkerMetrics {
    fn new(core: u32) -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            latencies: LatencyBuckets::default(),
            core,
        }
    }

    /// Publishes the worker's counts. Called by the worker only.
    #[inline]
    pub fn publish(&self, counts: &Counts) {
        for (published, &number) in self.counts.iter().zip(&counts.0) {
            published.store(number, Ordering::Relaxed);
        }
    }

    /// Records the latency of a transaction. Called by the worker only.
    #[inline]
    pub fn record(&self, latency: Duration) {
        self.latencies
            .record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    fn counts(&self) -> Counts {
        Counts(std::array::from_fn(|index| {
            self.counts[index].load(Ordering::Relaxed)
        }))
    }
}

/// Number of latency buckets with finite bounds: 1 us, 2 us, 4 us, ... 33.6 s.
const BUCKETS: usize = 26;

/// A histogram with one writer and no read-modify-write.
#[derive(Debug)]
struct LatencyBuckets {
    /// Number of latencies up to each bucket's bound and above the previous one. The last bucket has no bound.
    buckets: [AtomicU64; BUCKETS + 1],
    nanoseconds: AtomicU64,
}

impl Default for LatencyBuckets {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            nanoseconds: AtomicU64::new(0),
        }
    }
}

impl LatencyBuckets {
    #[inline]
    fn record(&self, nanoseconds: u64) {
        let add = |to: &AtomicU64, amount: u64| {
            to.store(
                to.load(Ordering::Relaxed).wrapping_add(amount),
                Ordering::Relaxed,
            );
        };
        // Rounded down: a latency equal to a bound belongs to that bound's bucket.
        let micros = nanoseconds.saturating_sub(1) / 1000;
        let index = (u64::BITS - micros.leading_zeros()) as usize;
        add(&self.buckets[index.min(BUCKETS)], 1);
        add(&self.nanoseconds, nanoseconds);
    }

    fn load(&self) -> Latencies {
        Latencies {
            buckets: std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed)),
            nanoseconds: self.nanoseconds.load(Ordering::Relaxed),
        }
    }
}

/// Snapshot of a [`LatencyBuckets`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Latencies {
    buckets: [u64; BUCKETS + 1],
    nanoseconds: u64,
}

impl Latencies {
    fn add(&mut self, other: &Self) {
        for (sum, number) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += number;
        }
        self.nanoseconds = self.nanoseconds.wrapping_add(other.nanoseconds);
    }

    /// Upper bound in seconds and count of each bucket.
    fn buckets(&self) -> [(f64, u64); BUCKETS + 1] {
        std::array::from_fn(|index| {
            let bound = if index == BUCKETS {
                f64::INFINITY
            } else {
                (1_u64 << index) as f64 / 1e6
            };
            (bound, self.buckets[index])
        })
    }
}

/// Number of log lines suppressed by the rate limit of their kind.
pub static SUPPRESSED_LOG_LINES: ProcessCount = ProcessCount::new();

type Section = Box<dyn Fn(&mut Page<'_>) -> fmt::Result + Send + Sync>;

/// Metrics of a process; does nothing without `--metrics`. Clones share the same state.
#[derive(Clone, Default)]
pub struct Metrics(Option<Arc<Shared>>);

struct Shared {
    role: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counters of the role's workers.
    declared: Vec<Count>,
    has_latencies: bool,
    workers: Vec<Arc<WorkerMetrics>>,
    /// Sums of finished workers, by core.
    ended: BTreeMap<u32, Sums>,
    sections: Vec<Section>,
    completed_sessions: u64,
    failed_sessions: u64,
}

/// Sums of the workers of a core.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    counts: Counts,
    latencies: Latencies,
}

impl Sums {
    fn add(&mut self, worker: &WorkerMetrics) {
        self.counts.add(&worker.counts());
        self.latencies.add(&worker.latencies.load());
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Metrics").field(&self.0.is_some()).finish()
    }
}

impl Metrics {
    /// Starts to serve the metrics of the program called `role` at this address, on a separate thread. Returns the
    /// address with the actual port.
    ///
    /// # Errors
    ///
    /// The address is not one of this machine's, its port is in use, or no thread can be created.
    pub fn serve(
        role: &'static str,
        address: &MetricsAddress,
    ) -> Result<(Self, SocketAddr), Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                ErrorCode::IO_FAILED,
                format!("--metrics {}: cannot listen: {error}", address.0),
            )
        };
        let addresses = address.0.resolve().map_err(failed)?;
        let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let metrics = Self(Some(Arc::new(Shared {
            role,
            state: Mutex::default(),
        })));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        http::serve(listener, registry).map_err(failed)?;
        Ok((metrics, local))
    }

    /// Declares the counts of the role's workers, in addition to I/Os, bytes, requests in flight and calls of the
    /// progress engine. Without a declaration, no count is served.
    pub fn declare(&self, counts: &[Count], has_latencies: bool) {
        if let Some(mut state) = self.state() {
            state.declared = [&COMMON, counts].concat();
            state.has_latencies = has_latencies;
        }
    }

    /// Counters for a new worker on this core; `None` without metrics.
    #[must_use]
    pub fn worker(&self, core: u32) -> Option<Arc<WorkerMetrics>> {
        let mut state = self.state()?;
        state.collect_ended();
        let worker = Arc::new(WorkerMetrics::new(core));
        state.workers.push(Arc::clone(&worker));
        Some(worker)
    }

    /// Adds `section` to every page. It is called on the metrics thread.
    pub fn add_section(
        &self,
        section: impl Fn(&mut Page<'_>) -> fmt::Result + Send + Sync + 'static,
    ) {
        if let Some(mut state) = self.state() {
            state.sections.push(Box::new(section));
        }
    }

    /// Counts the end of a session.
    pub fn session_ended(&self, is_completed: bool) {
        if let Some(mut state) = self.state() {
            state.completed_sessions += u64::from(is_completed);
            state.failed_sessions += u64::from(!is_completed);
        }
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        let shared = self.0.as_ref()?;
        // No operation under the lock leaves the state inconsistent.
        Some(shared.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// Adds the counts of finished workers to the sums.
    fn collect_ended(&mut self) {
        let ended = &mut self.ended;
        self.workers
            .retain_mut(|worker| match Arc::get_mut(worker) {
                None => true,
                Some(worker) => {
                    let sums = ended.entry(worker.core).or_default();
                    sums.add(worker);
                    sums.counts = sums.counts.with(Count::InFlight, 0);
                    false
                }
            });
    }

    fn by_core(&self) -> BTreeMap<u32, Sums> {
        let mut all = self.ended.clone();
        for worker in &self.workers {
            all.entry(worker.core).or_default().add(worker);
        }
        all
    }
}

/// The counters of one worker thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CoreStatistics {
    /// CPU that the worker is pinned to.
    pub core: u32,
    /// I/O operations that the worker completed.
    pub operation_count: u64,
    /// Calls of the progress engine that found work.
    pub pe_hit_count: u64,
    /// Calls of the progress engine that found no work.
    pub pe_miss_count: u64,
    /// I/O operations that failed because of a media error. Omitted from documents if zero.
    #[serde(skip_serializing_if = "is_zero")]
    pub media_errors: u64,
}

/// The signature is required by serde.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl CoreStatistics {
    /// Percentage of progress calls that found work; 0 without calls.
    #[must_use]
    pub fn pe_hit_rate(&self) -> f64 {
        let calls = self.pe_hit_count + self.pe_miss_count;
        if calls == 0 {
            0.0
        } else {
            self.pe_hit_count as f64 / calls as f64 * 100.0
        }
    }
}

/// The statistics of a service or a target: one block per worker, in the reference's format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    pub application: &'static str,
    /// Sum of the workers' operations.
    pub operation_count: u64,
    /// One entry per worker.
    pub cores: Vec<CoreStatistics>,
}

impl Statistics {
    /// Creates the statistics of all workers of the program called `application`.
    #[must_use]
    pub fn new(application: &'static str, cores: Vec<CoreStatistics>) -> Self {
        let operation_count = cores.iter().map(|core| core.operation_count).sum();
        Self {
            application,
            operation_count,
            cores,
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for core in &self.cores {
            writeln!(f, "+================================================+")?;
            writeln!(f, "| Core: {}", core.core)?;
            writeln!(f, "| Operation count: {}", core.operation_count)?;
            let (rate, hit, miss) = (core.pe_hit_rate(), core.pe_hit_count, core.pe_miss_count);
            writeln!(f, "| PE hit rate: {rate:.3}% ({hit}:{miss})")?;
            if core.media_errors != 0 {
                writeln!(f, "| Media errors: {}", core.media_errors)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_address_is_loopback() {
        let parse = |text: &str| text.parse::<MetricsAddress>().map(|it| it.0.to_string());
        assert_eq!(parse("9100"), Ok("127.0.0.1:9100".to_owned()));
        assert_eq!(parse("0.0.0.0:1"), Ok("0.0.0.0:1".to_owned()));
        assert_eq!(parse("[::1]:0"), Ok("[::1]:0".to_owned()));
        assert_eq!(parse("localhost:1"), Ok("localhost:1".to_owned()));
        for wrong in ["", "65536", "127.0.0:1", "127.0.0.1", ":80"] {
            let message = parse(wrong).expect_err(wrong);
            assert!(message.contains("127.0.0.1"), "{message}");
        }
    }

    #[test]
    fn latency_is_in_the_first_bucket_with_a_bound_not_below_it() {
        for nanos in [0, 1, 1000, 1001, 2000, 2001, 4000, 33_554_432_000, u64::MAX] {
            let buckets = LatencyBuckets::default();
            buckets.record(nanos);
            let read = buckets.load().buckets();
            let seconds = nanos as f64 / 1e9;
            let expected = read.iter().position(|&(bound, _)| seconds <= bound);
            let found = read.iter().position(|&(_, number)| number == 1);
            assert_eq!(found, expected, "{nanos}");
        }
    }

    fn shared() -> Metrics {
        Metrics(Some(Arc::new(Shared {
            role: "role",
            state: Mutex::default(),
        })))
    }

    #[test]
    fn finished_workers_keep_their_counts_but_not_requests_in_flight() {
        let metrics = shared();
        let counts = |number| {
            Counts::default()
                .with(Count::Reads, number)
                .with(Count::InFlight, 3)
        };
        for _ in 0..2 {
            let worker = metrics.worker(1).expect("it has metrics");
            worker.publish(&counts(5));
            worker.record(Duration::from_micros(3));
        }
        let live = metrics.worker(1).expect("it has metrics");
        live.publish(&counts(2));
        metrics.worker(0).expect("it has metrics");
        let state = metrics.state().expect("it has metrics");
        assert!(state.workers.len() <= 2, "{}", state.workers.len());
        let sums = state.by_core();
        assert_eq!(sums[&1].counts, counts(12));
        assert_eq!(sums[&1].latencies.buckets.iter().sum::<u64>(), 2);
        assert_eq!(sums[&1].latencies.nanoseconds, 6000);
        assert_eq!(sums[&0].counts, Counts::default());
    }

    #[test]
    fn nothing_is_published_without_metrics() {
        let metrics = Metrics::default();
        assert!(metrics.worker(0).is_none());
        metrics.session_ended(true);
    }

    #[test]
    fn workers_do_not_share_cache_lines() {
        assert_eq!(align_of::<WorkerMetrics>(), 128);
    }

    fn statistics() -> Statistics {
        let core = |core, operation_count| CoreStatistics {
            core,
            operation_count,
            pe_hit_count: 1,
            pe_miss_count: 3,
            media_errors: 0,
        };
        Statistics::new("app", vec![core(0, 5), core(3, 7)])
    }

    #[test]
    fn text_has_the_keys_of_the_reference() {
        let text = statistics().to_string();
        let expected = "+================================================+\n\
                        | Core: 0\n| Operation count: 5\n| PE hit rate: 25.000% (1:3)\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("| Core: 3\n"));
    }

    #[test]
    fn json_has_the_sum() {
        let json = serde_json::to_value(statistics()).expect("serializable");
        assert_eq!(json["operation_count"], 12);
        assert_eq!(json["cores"][1]["core"], 3);
    }

    #[test]
    fn hit_rate_without_calls_is_zero() {
        assert_eq!(CoreStatistics::default().pe_hit_rate().to_string(), "0");
    }
}
