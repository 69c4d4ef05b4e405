//! Shared parts of the data path of a worker: its contexts (Comch towards the initiator, RDMA towards the targets), the memory of
//! their messages, and the run loop, from its start to the last I/O.

use std::sync::Arc;
use std::time::{Duration, Instant};

use control::Failure;
use doca::{
    Consumer, CtxState, Device, ErrorCode, Event, MemoryRegion, Pe, PeStats, Producer, Rdma,
    RdmaBuilder, RdmaConnection,
};
use metrics::{Count, Counts, WorkerMetrics};
use wire::control::RdmaConnectionRole;
use wire::io_message;

use crate::worker::RunFlag;

/// One of the two RDMA contexts of a worker, with its connection once it is created.
pub struct RdmaEndpoint {
    // Dropped before the context.
    connection: Option<(RdmaConnection, Vec<u8>)>,
    rdma: Rdma,
    role: RdmaConnectionRole,
}

impl RdmaEndpoint {
    /// Creates the endpoint of a started context.
    #[must_use]
    pub fn new(role: RdmaConnectionRole, rdma: Rdma) -> Self {
        Self {
            connection: None,
            rdma,
            role,
        }
    }

    #[inline]
    #[must_use]
    pub fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// Creates the connection and returns its export. Later calls return the same export, because the context allows
    /// one connection and the peer may have refused the export.
    ///
    /// # Errors
    ///
    /// As [`Rdma::export`].
    pub fn export(&mut self) -> Result<Vec<u8>, Failure> {
        if let Some((_, export)) = &self.connection {
            return Ok(export.clone());
        }
        let (export, connection) = self.rdma.export()?;
        self.connection = Some((connection, export.clone()));
        Ok(export)
    }

    /// Connects to the peer's export.
    ///
    /// # Errors
    ///
    /// `export` was not called; as [`Rdma::connect`] for invalid connection details.
    pub fn connect(&self, details: &[u8]) -> Result<(), Failure> {
        self.rdma
            .connect(self.connection()?, details)
            .map_err(|error| {
                Failure::from(error).context(format_args!("{} connection details", self.role))
            })
    }

    /// The RDMA connection.
    ///
    /// # Errors
    ///
    /// `export` was not called.
    pub fn connection(&self) -> Result<&RdmaConnection, Failure> {
        let made = self.connection.as_ref().map(|(connection, _)| connection);
        made.ok_or_else(|| {
            let message = format!("the {} connection was not made yet", self.role);
            Failure::new(ErrorCode::NOT_CONNECTED, message)
        })
    }
}

/// Makes progress until all contexts are running. `states` returns their states each time it is called; `what` names
/// them in errors.
///
/// # Errors
///
/// A context has stopped by itself, which indicates the loss of its peer, or is not running `within` the time.
pub fn wait_until_running<S: IntoIterator<Item = CtxState>>(
    pe: &Pe,
    within: Duration,
    what: &str,
    states: impl Fn() -> S,
) -> Result<(), Failure> {
    let mut readiness = Readiness::Starting;
    let is_over = pe.progress_until(within, || {
        readiness = Readiness::of(states());
        readiness != Readiness::Starting
    });
    match readiness {
        Readiness::Lost => Err(Failure::new(
            ErrorCode::CONNECTION_RESET,
            format!("a peer has gone, or its device failed, before {what} were ready"),
        )),
        _ if is_over => Ok(()),
        _ => Err(Failure::timed_out(
            format_args!("{what} to be ready"),
            within,
        )),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Readiness {
    Running,
    Starting,
    Lost,
}

impl Readiness {
    fn of(states: impl IntoIterator<Item = CtxState>) -> Self {
        let mut readiness = Self::Running;
        for state in states {
            match state {
                CtxState::Running => {}
                CtxState::Starting => readiness = Self::Starting,
                CtxState::Stopping | CtxState::Idle => return Self::Lost,
            }
        }
        readiness
    }
}

/// Handles an event that is not a completion. `lost` is the error message if a connection is lost during the run.
///
/// # Errors
///
/// A connection was lost.
#[cold]
pub fn handle_event(pe: &Pe, run: &RunFlag, lost: &'static str) -> Result<(), Failure> {
    match pe.poll() {
        Some(Event::State {
            next: CtxState::Stopping | CtxState::Idle,
            ..
        }) if run.is_set() => Err(Failure::new(ErrorCode::CONNECTION_RESET, lost)),
        _ => Ok(()),
    }
}

/// Memory of I/O messages.
#[derive(Debug, Clone)]
pub struct Messages {
    region: Arc<MemoryRegion>,
}

impl Messages {
    /// Allocates memory for `places` messages.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub fn new(places: usize) -> doca::Result<Self> {
        let region = MemoryRegion::new(places.saturating_mul(io_message::SIZE))?;
        Ok(Self { region })
    }

    #[must_use]
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// Byte offset of a slot in the memory.
    #[inline]
    #[must_use]
    pub const fn offset(place: usize) -> usize {
        place * io_message::SIZE
    }
}

/// Comch endpoints of the fast path to the initiator.
pub struct ComchEndpoints {
    /// Receives the initiator's messages.
    pub consumer: Consumer,
    /// Sends messages to the initiator.
    pub producer: Producer,
}

impl ComchEndpoints {
    #[must_use]
    pub fn states(&self) -> [CtxState; 2] {
        [self.consumer.state(), self.producer.state()]
    }

    /// Stops both, even if the first fails to stop.
    ///
    /// # Errors
    ///
    /// As [`Consumer::stop`] and [`Producer::stop`].
    pub fn stop(self) -> Result<(), Failure> {
        let results = [self.consumer.stop(), self.producer.stop()];
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }
}

/// The two RDMA endpoints of one target.
pub struct TargetEndpoints {
    /// Carries I/O messages.
    pub control: RdmaEndpoint,
    /// Used by the target to read and write blocks; this module submits no tasks on it.
    pub data: RdmaEndpoint,
}

impl TargetEndpoints {
    /// Starts both contexts. The control context has capacity for this number of sends and the same number of receives;
    /// `settings` applies further settings, such as completion handlers.
    ///
    /// # Errors
    ///
    /// As the start of an [`Rdma`] context.
    pub fn start(
        pe: &Pe,
        device: &Device,
        messages: u32,
        settings: impl FnOnce(RdmaBuilder) -> RdmaBuilder,
    ) -> Result<Self, Failure> {
        use doca::Access;
        let permissions = Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE;
        let builder = || Rdma::builder(device).permissions(permissions);
        let control = builder().receive_tasks(messages).send_tasks(messages);
        let control = settings(control).start(pe)?;
        let data = builder().start(pe)?;
        Ok(Self {
            control: RdmaEndpoint::new(RdmaConnectionRole::IoControl, control),
            data: RdmaEndpoint::new(RdmaConnectionRole::IoData, data),
        })
    }

    pub fn endpoint(&mut self, role: RdmaConnectionRole) -> &mut RdmaEndpoint {
        match role {
            RdmaConnectionRole::IoData => &mut self.data,
            RdmaConnectionRole::IoControl => &mut self.control,
        }
    }

    /// Returns `true` if both are running.
    #[must_use]
    pub fn are_running(&self) -> bool {
        self.states() == [CtxState::Running; 2]
    }

    #[must_use]
    pub fn states(&self) -> [CtxState; 2] {
        [self.control.rdma().state(), self.data.rdma().state()]
    }
}

/// Time for I/Os in flight to complete after the run was stopped.
const DRAIN: Duration = Duration::from_secs(1);

/// A data path, as seen by the run loop.
pub trait PollDriven {
    /// Performs one poll iteration.
    ///
    /// # Errors
    ///
    /// The data path cannot continue.
    fn poll_once(&mut self, run: &RunFlag) -> Result<(), Failure>;

    /// Number of requests received whose results have not been sent.
    fn in_flight(&self) -> usize;

    /// Number of requests completed so far.
    fn finished(&self) -> u64;

    /// The counters of the progress engine.
    fn pe_stats(&self) -> PeStats;

    /// Timeouts for lack of progress.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Counters to publish to, with `--metrics`.
    fn metrics(&self) -> Option<&WorkerMetrics> {
        None
    }

    /// The role's counts. The loop adds the requests in flight and the calls of the progress engine.
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// Name of the peer that requests the I/Os.
    fn client(&self) -> &'static str {
        "initiator"
    }

    /// Probable cause of a timeout, for the error message.
    fn suspect(&self) -> &'static str {
        "a peer does not answer"
    }
}

/// Poll iterations between clock reads. An iteration may sleep for 50 ms when idle: together less than [`LONGEST_INTERVAL`].
const POLLS_PER_CLOCK_READ: u32 = 32;

/// Maximum time counted between two clock reads. If more time has passed, this worker itself was stopped, for which the
/// peer is not responsible: events received in the meantime are handled in the next iterations.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);

/// Time without progress after which a session is abandoned; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Time limit without a completion, while requests are in flight.
    pub io: Option<Duration>,
    /// Time limit without a request, while none is in flight.
    pub idle: Option<Duration>,
}

/// Detects lack of progress.
#[derive(Debug, Default)]
struct Watch {
    polls: u32,
    seen: Option<Seen>,
}

/// State at the last progress.
#[derive(Debug)]
struct Seen {
    is_busy: bool,
    finished: u64,
    /// Time of the last clock read, and time counted without progress.
    read_at: Instant,
    unchanged: Duration,
}

impl Watch {
    #[inline]
    fn polled(&mut self, path: &impl PollDriven) -> Result<(), Failure> {
        self.polls += 1;
        if self.polls < POLLS_PER_CLOCK_READ {
            return Ok(());
        }
        self.polls = 0;
        publish(path);
        let limits = path.limits();
        if limits == Limits::default() {
            return Ok(());
        }
        self.check(path, limits, Instant::now())
    }

    fn check(
        &mut self,
        path: &impl PollDriven,
        limits: Limits,
        now: Instant,
    ) -> Result<(), Failure> {
        let (in_flight, finished) = (path.in_flight(), path.finished());
        let is_busy = in_flight != 0;
        let since = match &mut self.seen {
            Some(seen) if (seen.is_busy, seen.finished) == (is_busy, finished) => {
                seen.unchanged += now
                    .saturating_duration_since(seen.read_at)
                    .min(LONGEST_INTERVAL);
                seen.read_at = now;
                seen.unchanged
            }
            _ => {
                self.seen = Some(Seen {
                    is_busy,
                    finished,
                    read_at: now,
                    unchanged: Duration::ZERO,
                });
                return Ok(());
            }
        };
        match (is_busy, limits) {
            (
                true,
                Limits {
                    io: Some(limit), ..
                },
            ) if since >= limit => Err(Failure::timed_out(
                format_args!("any of {in_flight} I/Os to complete: {}", path.suspect()),
                limit,
            )),
            (
                false,
                Limits {
                    idle: Some(limit), ..
                },
            ) if since >= limit => Err(Failure::timed_out(
                format_args!("an I/O of the {}", path.client()),
                limit,
            )),
            _ => Ok(()),
        }
    }
}

/// Runs poll iterations until the flag is cleared. Then continues for a limited time, unless the run is abandoned,
/// until no I/O is in flight. Returns the progress engine's counts for the run.
///
/// # Errors
///
/// As [`PollDriven::poll_once`].
pub fn run_to_end(path: &mut impl PollDriven, run: &RunFlag) -> Result<PeStats, Failure> {
    let result = run_until_drained(path, run);
    publish(path);
    result
}

/// Publishes the counts, with `--metrics`.
fn publish(path: &impl PollDriven) {
    if let Some(metrics) = path.metrics() {
        let calls = path.pe_stats();
        let counts = path
            .counts()
            .with(Count::InFlight, path.in_flight() as u64)
            .with(Count::ProgressHits, calls.hits)
            .with(Count::ProgressMisses, calls.misses);
        metrics.publish(&counts);
    }
}

fn run_until_drained(path: &mut impl PollDriven, run: &RunFlag) -> Result<PeStats, Failure> {
    let before = path.pe_stats();
    let mut watch = Watch::default();
    while run.is_set() {
        path.poll_once(run)?;
        watch.polled(path)?;
    }
    let deadline = Instant::now() + DRAIN;
    while path.in_flight() != 0 && !run.is_abandoned() && Instant::now() < deadline {
        path.poll_once(run)?;
    }
    if path.in_flight() != 0 && !run.is_abandoned() {
        tracing::warn!(
            "{} I/Os were not finished within {DRAIN:?} after the end",
            path.in_flight()
        );
    }
    let after = path.pe_stats();
    Ok(PeStats {
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_stopped_context_fails_at_once() {
        use CtxState::{Idle, Running, Starting, Stopping};
        assert_eq!(Readiness::of([Running, Running]), Readiness::Running);
        assert_eq!(Readiness::of([Running, Starting]), Readiness::Starting);
        for gone in [Idle, Stopping] {
            assert_eq!(Readiness::of([gone, Starting]), Readiness::Lost);
            assert_eq!(Readiness::of([Starting, Running, gone]), Readiness::Lost);
        }
    }

    #[derive(Default)]
    struct Path {
        in_flight: usize,
        finished: u64,
    }

    impl PollDriven for Path {
        fn poll_once(&mut self, _: &RunFlag) -> Result<(), Failure> {
            Ok(())
        }

        fn in_flight(&self) -> usize {
            self.in_flight
        }

        fn finished(&self) -> u64 {
            self.finished
        }

        fn pe_stats(&self) -> PeStats {
            PeStats::default()
        }
    }

    #[test]
    fn run_times_out_if_ios_in_flight_make_no_progress() {
        let limits = Limits {
            io: Some(Duration::from_secs(3)),
            idle: None,
        };
        let (mut watch, mut path) = (Watch::default(), Path::default());
        let start = Instant::now();
        let mut check =
            |path: &Path, seconds| watch.check(path, limits, start + Duration::from_secs(seconds));
        // Idle for a long time, then slow but not stalled.
        for seconds in 0..20 {
            check(&path, seconds).expect("nothing is in flight");
        }
        path.in_flight = 2;
        for seconds in 20..40 {
            path.finished += seconds % 2;
            check(&path, seconds).expect("one completes every other second");
        }
        path.in_flight = 0;
        check(&path, 41).expect("nothing is in flight");
        path.in_flight = 17;
        check(&path, 50).expect("it has just begun");
        check(&path, 52).expect("not yet");
        let failure = check(&path, 53).expect_err("stuck");
        path.finished += 1;
        check(&path, 60).expect("another one");
        check(&path, 1000).expect("it is this worker that was stopped");
        check(&path, 1001).expect_err("stuck");
        assert_eq!(failure.code, doca::ErrorCode::TIME_OUT);
        for value in ["3s", "17"] {
            assert!(failure.message.contains(value), "{failure}");
        }
    }

    #[test]
    fn idle_initiator_times_out_if_a_limit_is_set() {
        let limits = Limits {
            io: Some(Duration::from_secs(100)),
            idle: Some(Duration::from_secs(3)),
        };
        let (mut watch, mut path) = (Watch::default(), Path::default());
        let start = Instant::now();
        let mut check =
            |path: &Path, seconds| watch.check(path, limits, start + Duration::from_secs(seconds));
        for seconds in 0..20 {
            path.finished += seconds % 2;
            check(&path, seconds).expect("there was one in between");
        }
        path.in_flight = 1;
        check(&path, 30).expect("the target is slow");
        path.in_flight = 0;
        path.finished += 1;
        check(&path, 40).expect("just answered");
        check(&path, 42).expect("not yet");
        let failure = check(&path, 43).expect_err("silent");
        assert_eq!(failure.code, doca::ErrorCode::TIME_OUT);
        for value in ["3s", path.client()] {
            assert!(failure.message.contains(value), "{failure}");
        }
    }

    #[test]
    fn sleeping_worker_reads_the_clock_often_enough() {
        let pe = doca::Pe::new().expect("a progress engine");
        let timed_poll = || {
            let start = Instant::now();
            assert!(pe.poll().is_none());
            start.elapsed()
        };
        // Sleeps grow to a maximum, which is reached when a sleep is not longer than the previous one.
        let mut polls = (0..10_000).map(|_| timed_poll());
        let first = polls.find(|time| *time > Duration::from_millis(10));
        assert!(first.is_some(), "it never sleeps");
        let longest = polls.skip(4).take(4).min().expect("four of them");
        assert!(
            longest * POLLS_PER_CLOCK_READ < LONGEST_INTERVAL,
            "{POLLS_PER_CLOCK_READ} polls of {longest:?}: of a silence, only {LONGEST_INTERVAL:?} would be counted"
        );
    }

    #[test]
    fn abandoned_run_does_not_wait_for_ios_in_flight() {
        let mut stuck = Path {
            in_flight: 1,
            finished: 0,
        };
        let ended = RunFlag::default();
        let start = Instant::now();
        run_to_end(&mut stuck, &ended).expect("no failure");
        assert!(start.elapsed() >= DRAIN, "it may still complete");
        let abandoned = RunFlag::default();
        abandoned.abandon();
        let start = Instant::now();
        run_to_end(&mut stuck, &abandoned).expect("no failure");
        assert!(start.elapsed() < DRAIN / 2, "{:?}", start.elapsed());
    }
}
