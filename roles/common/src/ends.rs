//! Events of progress engines that are not completions.

use doca::{CtxState, ErrorCode, Event, Pe};

use crate::failure::Failure;
use crate::worker::RunFlag;

/// Handles an event that is not a completion. `lost` is the error message for a connection that is lost during the run.
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
