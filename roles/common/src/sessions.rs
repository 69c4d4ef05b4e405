//! Consecutive sessions of a program: their limit and their results.

use std::time::{Duration, Instant};

use clap::Args;
use doca::ErrorCode;

use crate::application::Environment;
use crate::budget::{LOG_LINES_PER_SECOND, LogBudget};
use crate::control::Waiter;
use crate::failure::Failure;
pub use crate::flags::SessionLimit;

/// First and longest interval between attempts to prepare a session.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Flag of all programs that serve sessions.
#[derive(Debug, Clone, Copy, Args)]
pub struct SessionFlags {
    /// Sessions to serve, one after the other, before the program ends: a number, or forever
    #[arg(long, value_name = "N|forever", default_value = "1")]
    pub sessions: SessionLimit,
}

/// Reason why a session failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// Before it began: no peer was connected, or shutdown was requested.
    Before(Failure),
    /// After a peer was connected.
    During(Failure),
}

impl Broken {
    /// Returns the failure.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Before(failure) | Self::During(failure) => failure,
        }
    }
}

/// Calls `session` repeatedly until `limit` sessions have ended or shutdown is requested.
///
/// With a limit of one, the session's result, or the failure that prevented it, is the result. Otherwise each
/// session's result is printed on the console, and preparing a session is retried after a pause if it fails.
///
/// # Errors
///
/// A session failed; shutdown was requested before `limit` sessions.
pub fn serve(
    limit: SessionLimit,
    environment: &Environment,
    mut session: impl FnMut() -> Result<(), Broken>,
) -> Result<(), Failure> {
    let mut session = || {
        let outcome = session();
        if !matches!(outcome, Err(Broken::Before(_))) {
            environment.metrics.session_ended(outcome.is_ok());
        }
        outcome
    };
    if limit.is_single() {
        return session().map_err(Broken::into_failure);
    }
    let mut results = Results::default();
    let mut lines = LogBudget::new(LOG_LINES_PER_SECOND);
    let mut pause = FIRST_PAUSE;
    while !limit.is_reached_by(results.ended()) && !environment.shutdown.is_requested() {
        let number = results.ended() + 1;
        match session() {
            Ok(()) => results.completed += 1,
            Err(Broken::During(failure)) => {
                // Limited, because clients that fail at once, one after the other, would fill the log.
                let now = Instant::now();
                for ((), count) in lines.take_suppressed(now) {
                    let text = format_args!("{count} more sessions have failed");
                    environment.console.announce(text);
                }
                if lines.charge(now, ()) {
                    environment
                        .console
                        .announce(format_args!("session {number} has failed: {failure}"));
                }
                results.failed += 1;
                results.last = Some(failure);
                pause = FIRST_PAUSE;
                continue;
            }
            Err(Broken::Before(failure)) => {
                if !environment.shutdown.is_requested() {
                    tracing::warn!("not ready for session {number} yet: {failure}");
                    rest(environment, pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                continue;
            }
        }
        pause = FIRST_PAUSE;
        environment
            .console
            .announce(format_args!("session {number} has completed"));
    }
    results.conclude(limit)
}

/// Waits for `pause` or a shutdown request.
fn rest(environment: &Environment, pause: Duration) {
    let end = Instant::now() + pause;
    let mut waiter = Waiter::new(environment.shutdown.clone());
    while Instant::now() < end && !environment.shutdown.is_requested() {
        waiter.wait(&[], Some(end));
    }
}

/// Results of the sessions so far.
#[derive(Debug, Default)]
struct Results {
    completed: u64,
    failed: u64,
    /// Failure of the last session that failed.
    last: Option<Failure>,
}

impl Results {
    fn ended(&self) -> u64 {
        self.completed + self.failed
    }

    fn conclude(self, limit: SessionLimit) -> Result<(), Failure> {
        let ended = self.ended();
        match (self.last, limit) {
            (Some(last), _) => Err(Failure::new(
                last.code,
                format!(
                    "{} of {ended} sessions have failed, the last of these: {}",
                    self.failed, last.message
                ),
            )),
            (None, SessionLimit::Count(count)) if ended < u64::from(count) => Err(Failure::new(
                ErrorCode::CONNECTION_ABORTED,
                format!("aborted by a signal after {ended} of {count} sessions"),
            )),
            (None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Console;
    use crate::metrics::Metrics;
    use crate::shutdown::Shutdown;

    fn environment() -> Environment {
        Environment {
            console: Console::default(),
            shutdown: Shutdown::new().expect("a pipe"),
            metrics: Metrics::default(),
        }
    }

    fn broken(text: &str) -> Failure {
        Failure::new(ErrorCode::CONNECTION_RESET, text)
    }

    /// Serves sessions with these results; returns the number served, and the result.
    fn serve_all(
        limit: SessionLimit,
        ends: Vec<Result<(), Broken>>,
    ) -> (usize, Result<(), Failure>) {
        let environment = environment();
        let (mut ends, mut count) = (ends.into_iter(), 0);
        let result = serve(limit, &environment, || {
            count += 1;
            let end = ends.next().expect("no more sessions than there are");
            if ends.len() == 0 {
                environment.shutdown.request();
            }
            end
        });
        (count, result)
    }

    #[test]
    fn result_of_a_single_session_is_the_result() {
        let one = SessionLimit::Count(1);
        assert_eq!(serve_all(one, vec![Ok(())]), (1, Ok(())));
        for end in [Broken::Before, Broken::During] {
            let (count, result) = serve_all(one, vec![Err(end(broken("it"))), Ok(())]);
            assert_eq!((count, result), (1, Err(broken("it"))));
        }
    }

    #[test]
    fn failed_sessions_do_not_stop_serving_but_fail_the_program() {
        let during = |text| Err(Broken::During(broken(text)));
        let ends = vec![Ok(()), during("first"), Ok(()), during("second"), Ok(())];
        let (count, result) = serve_all(SessionLimit::Count(5), ends);
        let failure = result.expect_err("two have failed");
        assert_eq!((count, failure.code), (5, ErrorCode::CONNECTION_RESET));
        assert_eq!(
            failure.message,
            "2 of 5 sessions have failed, the last of these: second"
        );
        assert_eq!(
            serve_all(SessionLimit::Count(2), vec![Ok(()), Ok(())]),
            (2, Ok(()))
        );
    }

    #[test]
    fn session_that_never_began_is_not_counted() {
        let before = || Err(Broken::Before(broken("no client")));
        let ends = vec![before(), Ok(()), before(), Ok(())];
        assert_eq!(serve_all(SessionLimit::Count(2), ends), (4, Ok(())));
    }

    #[test]
    fn without_a_limit_shutdown_is_success() {
        let before = || Err(Broken::Before(Failure::aborted("waiting")));
        let ends = vec![Ok(()), Ok(()), before()];
        assert_eq!(serve_all(SessionLimit::Forever, ends), (3, Ok(())));
        let ends = vec![Ok(()), before()];
        let (_, result) = serve_all(SessionLimit::Count(3), ends);
        let failure = result.expect_err("two more were wanted");
        assert!(failure.message.contains("1 of 3"), "{failure}");
        let interrupted = vec![Err(Broken::During(Failure::aborted("serving")))];
        let (_, result) = serve_all(SessionLimit::Forever, interrupted);
        assert!(result.is_err(), "a client was being served");
    }

    #[test]
    fn limits_are_numbers_or_forever() {
        assert_eq!("1".parse(), Ok(SessionLimit::Count(1)));
        assert_eq!("forever".parse(), Ok(SessionLimit::Forever));
        assert!(SessionLimit::Count(1).is_single() && !SessionLimit::Forever.is_single());
        for wrong in ["0", "-1", "", "always", "4294967296"] {
            let message = wrong.parse::<SessionLimit>().expect_err(wrong);
            assert!(message.contains("or forever"), "{message}");
        }
    }
}
