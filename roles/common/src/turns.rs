//! Run loop of a worker's data path, from its start to the last I/O.

use std::time::{Duration, Instant};

use doca::PeStats;

use crate::failure::Failure;
use crate::metrics::{Count, Counts, WorkerMetrics};
use crate::worker::RunFlag;

/// Time for I/Os in flight to complete after the run was stopped.
const DRAIN: Duration = Duration::from_secs(1);

/// One data path, as seen by the run loop.
pub trait Turns {
    /// Does one poll iteration.
    ///
    /// # Errors
    ///
    /// The data path cannot continue.
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure>;

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

    /// The role's counts. Requests in flight and calls of the progress engine are added by the loop.
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// Name of the peer whose I/Os these are.
    fn client(&self) -> &'static str {
        "initiator"
    }

    /// Probable cause of a timeout, for its message.
    fn suspect(&self) -> &'static str {
        "a peer does not answer"
    }
}

/// Poll iterations between clock reads. An iteration may sleep for 50 ms when idle: together less than [`GLANCE`].
const TURNS_PER_LOOK: u32 = 32;

/// Maximum time counted between two clock reads. If more time has passed, this worker itself was stopped, which is not the
/// peer's fault: events received meanwhile are handled in the next iterations.
const GLANCE: Duration = Duration::from_secs(2);

/// Time without progress after which a session is given up; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// With requests in flight: time without a completion.
    pub io: Option<Duration>,
    /// With none in flight: time without a request.
    pub idle: Option<Duration>,
}

/// Detects lack of progress.
#[derive(Debug, Default)]
struct Watch {
    turns: u32,
    seen: Option<Seen>,
}

/// State at the last progress.
#[derive(Debug)]
struct Seen {
    is_busy: bool,
    finished: u64,
    /// Time of the last clock read, and time counted without progress.
    looked: Instant,
    unchanged: Duration,
}

impl Watch {
    #[inline]
    fn turn(&mut self, path: &impl Turns) -> Result<(), Failure> {
        self.turns += 1;
        if self.turns < TURNS_PER_LOOK {
            return Ok(());
        }
        self.turns = 0;
        publish(path);
        let limits = path.limits();
        if limits == Limits::default() {
            return Ok(());
        }
        self.look(path, limits, Instant::now())
    }

    fn look(&mut self, path: &impl Turns, limits: Limits, now: Instant) -> Result<(), Failure> {
        let (in_flight, finished) = (path.in_flight(), path.finished());
        let is_busy = in_flight != 0;
        let since = match &mut self.seen {
            Some(seen) if (seen.is_busy, seen.finished) == (is_busy, finished) => {
                seen.unchanged += now.saturating_duration_since(seen.looked).min(GLANCE);
                seen.looked = now;
                seen.unchanged
            }
            _ => {
                self.seen = Some(Seen {
                    is_busy,
                    finished,
                    looked: now,
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
                format_args!(
                    "any of {in_flight} I/Os to come to its end: {}",
                    path.suspect()
                ),
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

/// Runs poll iterations until the flag is cleared, and then, for a limited time and unless the run is abandoned, until
/// no I/O is in flight. Returns the progress engine's counts for the run.
///
/// # Errors
///
/// As [`Turns::turn`].
pub fn run_to_end(path: &mut impl Turns, run: &RunFlag) -> Result<PeStats, Failure> {
    let result = run_until_drained(path, run);
    publish(path);
    result
}

/// Publishes the counts, with `--metrics`.
fn publish(path: &impl Turns) {
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

fn run_until_drained(path: &mut impl Turns, run: &RunFlag) -> Result<PeStats, Failure> {
    let before = path.pe_stats();
    let mut watch = Watch::default();
    while run.is_set() {
        path.turn(run)?;
        watch.turn(path)?;
    }
    let deadline = Instant::now() + DRAIN;
    while path.in_flight() != 0 && !run.is_abandoned() && Instant::now() < deadline {
        path.turn(run)?;
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

    #[derive(Default)]
    struct Path {
        in_flight: usize,
        finished: u64,
    }

    impl Turns for Path {
        fn turn(&mut self, _: &RunFlag) -> Result<(), Failure> {
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
        let mut look =
            |path: &Path, seconds| watch.look(path, limits, start + Duration::from_secs(seconds));
        // Idle for a long time, then slow but not stalled.
        for seconds in 0..20 {
            look(&path, seconds).expect("nothing is in flight");
        }
        path.in_flight = 2;
        for seconds in 20..40 {
            path.finished += seconds % 2;
            look(&path, seconds).expect("one comes to its end every other second");
        }
        path.in_flight = 0;
        look(&path, 41).expect("nothing is in flight");
        path.in_flight = 1;
        look(&path, 50).expect("it has just begun");
        look(&path, 52).expect("not yet");
        let failure = look(&path, 53).expect_err("stuck");
        path.finished += 1;
        look(&path, 60).expect("another one");
        look(&path, 1000).expect("it is this worker that was stopped");
        look(&path, 1001).expect_err("stuck");
        assert_eq!(failure.code, doca::ErrorCode::TIME_OUT);
        assert!(failure.message.contains("any of 1 I/Os"), "{failure}");
    }

    #[test]
    fn idle_initiator_times_out_if_a_limit_is_set() {
        let limits = Limits {
            io: Some(Duration::from_secs(100)),
            idle: Some(Duration::from_secs(3)),
        };
        let (mut watch, mut path) = (Watch::default(), Path::default());
        let start = Instant::now();
        let mut look =
            |path: &Path, seconds| watch.look(path, limits, start + Duration::from_secs(seconds));
        for seconds in 0..20 {
            path.finished += seconds % 2;
            look(&path, seconds).expect("there was one in between");
        }
        path.in_flight = 1;
        look(&path, 30).expect("the target is slow");
        path.in_flight = 0;
        path.finished += 1;
        look(&path, 40).expect("just answered");
        look(&path, 42).expect("not yet");
        let failure = look(&path, 43).expect_err("silent");
        assert!(
            failure.message.contains("an I/O of the initiator"),
            "{failure}"
        );
    }

    #[test]
    fn sleeping_worker_reads_the_clock_often_enough() {
        let pe = doca::Pe::new().expect("a progress engine");
        let timed_poll = || {
            let start = Instant::now();
            assert!(pe.poll().is_none());
            start.elapsed()
        };
        // Sleeps grow to a maximum, which is reached when the next one is not longer.
        let mut polls = (0..10_000).map(|_| timed_poll());
        let first = polls.find(|time| *time > Duration::from_millis(10));
        assert!(first.is_some(), "it never sleeps");
        let longest = polls.skip(4).take(4).min().expect("four of them");
        assert!(
            longest * TURNS_PER_LOOK < GLANCE,
            "{TURNS_PER_LOOK} turns of {longest:?}: of a silence, only {GLANCE:?} would be counted"
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
        assert!(start.elapsed() >= DRAIN, "it may still come to its end");
        let abandoned = RunFlag::default();
        abandoned.abandon();
        let start = Instant::now();
        run_to_end(&mut stuck, &abandoned).expect("no failure");
        assert!(start.elapsed() < DRAIN / 2, "{:?}", start.elapsed());
    }
}
