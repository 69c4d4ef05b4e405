//! The run of a worker's data path, from its start to the last I/O.

use std::time::{Duration, Instant};

use doca::PeStats;

use crate::failure::Failure;
use crate::worker::RunFlag;

/// How long I/Os in flight may take to finish after the end of the run was asked for.
const DRAIN: Duration = Duration::from_secs(1);

/// What a data path does again and again.
pub trait Turns {
    /// Handles what has happened, if anything has.
    ///
    /// # Errors
    ///
    /// The data path cannot go on.
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure>;

    /// Requests that were received and whose results have not been sent.
    fn in_flight(&self) -> usize;

    /// Requests that came to their end so far.
    fn finished(&self) -> u64;

    /// The counters of the progress engine.
    fn pe_stats(&self) -> PeStats;

    /// How long requests may be in flight without any of them coming to its end; `None` for as long as it takes.
    fn io_timeout(&self) -> Option<Duration> {
        None
    }

    /// Who probably is to blame when that is too long.
    fn suspect(&self) -> &'static str {
        "a peer does not answer"
    }
}

/// Turns between two looks at the clock. One may sleep for 20 ms, when nothing happens.
const TURNS_PER_LOOK: u32 = 64;

/// Notices that nothing comes to its end any more.
#[derive(Debug, Default)]
struct Watch {
    turns: u32,
    /// What had come to its end when it was seen that something had, and when that was. `None` with nothing in flight.
    progress: Option<(u64, Instant)>,
}

impl Watch {
    #[inline]
    fn turn(&mut self, path: &impl Turns) -> Result<(), Failure> {
        self.turns += 1;
        if self.turns < TURNS_PER_LOOK {
            return Ok(());
        }
        self.turns = 0;
        match path.io_timeout() {
            Some(limit) => self.look(path, limit, Instant::now()),
            None => Ok(()),
        }
    }

    fn look(&mut self, path: &impl Turns, limit: Duration, now: Instant) -> Result<(), Failure> {
        let (in_flight, finished) = (path.in_flight(), path.finished());
        match self.progress {
            _ if in_flight == 0 => self.progress = None,
            Some((before, since)) if before == finished => {
                if now.saturating_duration_since(since) >= limit {
                    return Err(Failure::timed_out(
                        format_args!(
                            "any of {in_flight} I/Os to come to its end: {}",
                            path.suspect()
                        ),
                        limit,
                    ));
                }
            }
            _ => self.progress = Some((finished, now)),
        }
        Ok(())
    }
}

/// Takes turns until the flag is cleared, and then, for a bounded time, until nothing is in flight. Answers what the progress
/// engine counted meanwhile.
///
/// # Errors
///
/// As [`Turns::turn`].
pub fn run_to_end(path: &mut impl Turns, run: &RunFlag) -> Result<PeStats, Failure> {
    let before = path.pe_stats();
    let mut watch = Watch::default();
    while run.is_set() {
        path.turn(run)?;
        watch.turn(path)?;
    }
    let deadline = Instant::now() + DRAIN;
    while path.in_flight() != 0 && Instant::now() < deadline {
        path.turn(run)?;
    }
    if path.in_flight() != 0 {
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
    fn only_what_is_in_flight_without_any_progress_times_out() {
        const LIMIT: Duration = Duration::from_secs(3);
        let (mut watch, mut path) = (Watch::default(), Path::default());
        let start = Instant::now();
        let mut look =
            |path: &Path, seconds| watch.look(path, LIMIT, start + Duration::from_secs(seconds));
        // Idle for long, then slow but not stuck.
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
        assert_eq!(failure.code, doca::ErrorCode::TIME_OUT);
        assert!(failure.message.contains("any of 1 I/Os"), "{failure}");
    }
}
