//! Poll iterations of data paths that handle completions during `progress`.

use doca::{Completion, CtxState, ErrorCode, Event, Pe};

use crate::failure::Failure;
use crate::worker::RunFlag;

/// Completion handler of a data path.
pub trait Ends {
    /// Handles a completion. It is called from C, which cannot take an error: failures are returned by
    /// [`outcome`](Self::outcome).
    fn ended(&mut self, completion: Completion, run: &RunFlag);

    /// Takes the first failure since the last call.
    ///
    /// # Errors
    ///
    /// The failure: the data path cannot continue.
    fn outcome(&mut self) -> Result<(), Failure>;

    /// Submits tasks whose submission was deferred.
    ///
    /// # Errors
    ///
    /// The data path cannot continue.
    fn retry(&mut self) -> Result<(), Failure>;
}

/// Makes progress once and handles the completions. `lost` is the message for a connection lost during the run.
///
/// # Errors
///
/// The data path cannot continue.
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
