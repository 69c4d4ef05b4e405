//! Waits for contexts to become ready for tasks.

use std::time::Duration;

use doca::{CtxState, ErrorCode, Pe};

use crate::failure::Failure;

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
    let mut outlook = Outlook::Starting;
    let is_over = pe.progress_until(within, || {
        outlook = Outlook::of(states());
        outlook != Outlook::Starting
    });
    match outlook {
        Outlook::Lost => Err(Failure::new(
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
enum Outlook {
    Running,
    Starting,
    Lost,
}

impl Outlook {
    fn of(states: impl IntoIterator<Item = CtxState>) -> Self {
        let mut outlook = Self::Running;
        for state in states {
            match state {
                CtxState::Running => {}
                CtxState::Starting => outlook = Self::Starting,
                CtxState::Stopping | CtxState::Idle => return Self::Lost,
            }
        }
        outlook
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_stopped_context_fails_at_once() {
        use CtxState::{Idle, Running, Starting, Stopping};
        assert_eq!(Outlook::of([Running, Running]), Outlook::Running);
        assert_eq!(Outlook::of([Running, Starting]), Outlook::Starting);
        for gone in [Idle, Stopping] {
            assert_eq!(Outlook::of([gone, Starting]), Outlook::Lost);
            assert_eq!(Outlook::of([Starting, Running, gone]), Outlook::Lost);
        }
    }
}
