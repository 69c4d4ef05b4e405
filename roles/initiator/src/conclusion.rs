//! Result of a test: printed output and pass or fail.

use doca::ErrorCode;
use role_common::Failure;
use role_common::console::Console;
use role_common::errln;
use role_common::flags::OutputFormat;
use volume::endpoint::EndpointError;
use volume::session::SessionError;

use crate::cli::Strategy;
use crate::data_path;
use crate::statistics::{FailureReport, Report};

/// Findings of a finished session.
#[derive(Debug)]
pub struct Findings<'a> {
    /// Test that was run.
    pub strategy: Strategy,
    /// Seed of the validation pattern, if one was written.
    pub seed: Option<u64>,
    /// Result of the session.
    pub session: Result<(), SessionError>,
    /// Failure of the run, if any.
    pub failure: Option<&'a data_path::Failure>,
    /// `true` if the run ended before the session failed.
    pub run_came_first: bool,
    /// Measurements, if the run completed or was halted.
    pub measured: Option<Report>,
}

/// Result of a test.
#[derive(Debug)]
pub enum Conclusion {
    /// The test passed.
    Passed(Report),
    /// The run failed.
    RunFailed(FailureReport, Failure),
    /// The user interrupted the run. Measurements until then.
    Interrupted(Report, Failure),
    /// The session failed. If there was a run, its measurements.
    SessionFailed(FailureReport, Option<Report>, Failure),
}

impl Findings<'_> {
    /// Distinguishes causes from consequences.
    #[must_use]
    pub fn conclude(self) -> Conclusion {
        let report =
            |error: String, mismatch| FailureReport::new(self.strategy, self.seed, error, mismatch);
        if let Some(failure) = self.failure.filter(|failure| self.is_cause(failure)) {
            return Conclusion::RunFailed(
                report(failure.to_string(), failure.mismatch()),
                failure.clone().into(),
            );
        }
        let halted = self.failure.is_some();
        match (self.session, self.measured) {
            (Ok(()), Some(measured)) => Conclusion::Passed(measured),
            (Ok(()), None) => {
                let failure =
                    Failure::new(ErrorCode::UNEXPECTED, "the session ended without a run");
                Conclusion::SessionFailed(report(failure.message.clone(), None), None, failure)
            }
            (Err(error @ SessionError::Interrupted), Some(measured)) => {
                Conclusion::Interrupted(measured.interrupted(error.to_string()), error.into())
            }
            (Err(error), measured) => Conclusion::SessionFailed(
                report(error.to_string(), None),
                // A run that ended with the session was measured only in part.
                measured.filter(|_| !halted),
                error.into(),
            ),
        }
    }

    /// Returns `true` if the run's failure is the cause to be reported.
    fn is_cause(&self, failure: &data_path::Failure) -> bool {
        use data_path::Failure as Run;
        match failure {
            // These cannot be consequences of a failed session.
            Run::Mismatch(_) | Run::Io { .. } | Run::Endpoint(EndpointError::Answer(_)) => true,
            // Without a service, timeouts are expected.
            Run::Timeout { .. } => self.run_came_first || self.session.is_ok(),
            Run::Endpoint(EndpointError::Doca { .. }) | Run::Halted { .. } => self.session.is_ok(),
        }
    }
}

impl Conclusion {
    /// Prints the result: statistics on standard output; failures on standard error, as the reference does, and as
    /// JSON if selected.
    ///
    /// # Errors
    /// The test did not pass.
    pub fn print(self, console: Console) -> Result<(), Failure> {
        let json = console.format() == OutputFormat::Json;
        match self {
            Self::Passed(report) => {
                console.report(&report);
                Ok(())
            }
            Self::RunFailed(report, failure) => {
                errln!("{}", report.to_string().trim_end());
                if json {
                    console.report(&report);
                }
                Err(failure)
            }
            Self::Interrupted(report, failure) => {
                console.report(&report);
                Err(failure)
            }
            Self::SessionFailed(report, measured, failure) => {
                if json {
                    console.report(&report);
                } else if let Some(measured) = measured {
                    // Measurements made before the session failed are kept.
                    console.report(&measured);
                }
                Err(failure)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::data_path::{Direction, Io, Mismatch};

    const MISMATCH: data_path::Failure = data_path::Failure::Mismatch(Mismatch {
        block: 1,
        offset: 2,
        storage_offset: 514,
        expected: 3,
        actual: 4,
        pass: None,
    });
    const TIMEOUT: data_path::Failure = data_path::Failure::Timeout {
        io: Io {
            direction: Direction::Read,
            storage_offset: 0,
            size: 512,
        },
        after: Duration::from_secs(5),
    };
    const BROKEN: data_path::Failure = data_path::Failure::Endpoint(EndpointError::Doca {
        doing: "sending a request",
        code: ErrorCode::NOT_CONNECTED,
    });
    const LOST: SessionError = SessionError::Disconnected {
        waiting_for: "the operations to complete",
    };

    fn conclude(
        session: Result<(), SessionError>,
        failure: Option<&data_path::Failure>,
        run_came_first: bool,
        measured: bool,
    ) -> Conclusion {
        let strategy = Strategy::ReadThroughputTest;
        let measured = measured.then(|| Report::new(strategy, None, Instant::now(), &[]));
        Findings {
            strategy,
            seed: None,
            session,
            failure,
            run_came_first,
            measured,
        }
        .conclude()
    }

    #[test]
    fn successful_run_and_session_pass() {
        assert!(matches!(
            conclude(Ok(()), None, true, true),
            Conclusion::Passed(_)
        ));
    }

    #[test]
    fn wrong_data_is_reported_for_any_session_result() {
        for session in [Ok(()), Err(LOST), Err(SessionError::Interrupted)] {
            for first in [true, false] {
                let conclusion = conclude(session.clone(), Some(&MISMATCH), first, false);
                let Conclusion::RunFailed(report, _) = conclusion else {
                    panic!("{conclusion:?}")
                };
                assert_eq!(report.mismatch, MISMATCH.mismatch());
            }
        }
    }

    #[test]
    fn unanswered_io_is_reported_unless_the_service_disconnected_first() {
        assert!(matches!(
            conclude(Err(LOST), Some(&TIMEOUT), true, false),
            Conclusion::RunFailed(..)
        ));
        let conclusion = conclude(Err(LOST), Some(&TIMEOUT), false, false);
        let Conclusion::SessionFailed(report, None, failure) = conclusion else {
            panic!("{conclusion:?}")
        };
        assert!(report.error.contains("closed the connection"), "{report:?}");
        assert_eq!(failure.code, ErrorCode::CONNECTION_ABORTED);
    }

    #[test]
    fn failed_contexts_are_reported_if_the_session_has_no_failure() {
        assert!(matches!(
            conclude(Ok(()), Some(&BROKEN), true, false),
            Conclusion::RunFailed(..)
        ));
        assert!(matches!(
            conclude(Err(LOST), Some(&BROKEN), true, false),
            Conclusion::SessionFailed(..)
        ));
    }

    #[test]
    fn measurements_are_reported_for_a_failed_session() {
        let conclusion = conclude(Err(LOST), None, true, true);
        assert!(
            matches!(conclusion, Conclusion::SessionFailed(_, Some(_), _)),
            "{conclusion:?}"
        );
    }

    #[test]
    fn interrupted_run_reports_its_measurements() {
        let halted = data_path::Failure::Halted {
            completed: 3,
            expected: 5,
        };
        for failure in [None, Some(&halted)] {
            let conclusion = conclude(Err(SessionError::Interrupted), failure, true, true);
            let Conclusion::Interrupted(report, failure) = conclusion else {
                panic!("{conclusion:?}")
            };
            assert_eq!(report.result, "interrupted");
            assert_eq!(report.error, Some(SessionError::Interrupted.to_string()));
            assert_eq!(failure.code, ErrorCode::CONNECTION_ABORTED);
        }
        // Before the run, there is nothing to report.
        let conclusion = conclude(Err(SessionError::Interrupted), None, false, false);
        assert!(
            matches!(conclusion, Conclusion::SessionFailed(_, None, _)),
            "{conclusion:?}"
        );
    }

    #[test]
    fn run_halted_by_a_lost_session_has_no_measurements() {
        let halted = data_path::Failure::Halted {
            completed: 3,
            expected: 5,
        };
        let conclusion = conclude(Err(LOST), Some(&halted), false, true);
        assert!(
            matches!(conclusion, Conclusion::SessionFailed(_, None, _)),
            "{conclusion:?}"
        );
    }

    #[test]
    fn session_without_a_run_fails() {
        assert!(
            conclude(Ok(()), None, false, false)
                .print(Console::default())
                .is_err()
        );
    }
}
