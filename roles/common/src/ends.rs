//! Turns of data paths that handle the ends of their tasks inside of progress.

use doca::{Completion, CtxState, ErrorCode, Event, Pe};

use crate::failure::Failure;
use crate::worker::RunFlag;

/// What a data path does when its tasks end.
pub trait Ends {
    /// A task has ended. What goes wrong is told by [`outcome`](Self::outcome), as this is called by DOCA, to which it is nothing.
    fn ended(&mut self, completion: Completion, run: &RunFlag);

    /// Takes what has gone wrong since it was asked for the last time.
    ///
    /// # Errors
    ///
    /// The first of it: the data path cannot go on.
    fn outcome(&mut self) -> Result<(), Failure>;

    /// Submits what had to wait.
    ///
    /// # Errors
    ///
    /// The data path cannot go on.
    fn retry(&mut self) -> Result<(), Failure>;
}

/// Makes progress once, and handles what has happened. `lost` is said when a connection is lost while the run lasts.
///
/// # Errors
///
/// The data path cannot go on.
// Called from one loop of each program.
#[inline(always)]
pub fn turn(
    pe: &mut Pe,
    ends: &mut impl Ends,
    run: &RunFlag,
    lost: &'static str,
) -> Result<(), Failure> {
    let others = pe.progress_each(|completion| ends.ended(completion, run));
    ends.outcome()?;
    if others {
        happened(pe, run, lost)?;
    }
    ends.retry()
}

/// Takes an event that is not a completion. `lost` is the message of a connection that is lost during the run.
///
/// # Errors
///
/// A connection was lost.
#[cold]
pub fn happened(pe: &Pe, run: &RunFlag, lost: &'static str) -> Result<(), Failure> {
    match pe.poll() {
        Some(Event::State {
            next: CtxState::Stopping | CtxState::Idle,
            ..
        }) if run.is_set() => Err(Failure::new(ErrorCode::CONNECTION_RESET, lost)),
        _ => Ok(()),
    }
}
