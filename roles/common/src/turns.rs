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

    /// The counters of the progress engine.
    fn pe_stats(&self) -> PeStats;
}

/// Takes turns until the flag is cleared, and then, for a bounded time, until nothing is in flight. Answers what the progress
/// engine counted meanwhile.
///
/// # Errors
///
/// As [`Turns::turn`].
pub fn run_to_end(path: &mut impl Turns, run: &RunFlag) -> Result<PeStats, Failure> {
    let before = path.pe_stats();
    while run.is_set() {
        path.turn(run)?;
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
