//! What a run of checks reports, whichever checks they are.

mod junit;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// The highest exit status that counts: those above mean signals to a shell.
const MOST_COUNTED: usize = 100;

/// What became of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", content = "reason", rename_all = "snake_case")]
pub enum Outcome {
    /// What was expected came.
    Passed,
    /// It did not: what was expected, and what came.
    Failed(String),
    /// It was not tried, and why. Never the same as passed.
    NotRun(String),
}

/// One check, after it was tried.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// The group that it belongs to: `layout`, `role.target`, `matrix.gga`.
    pub suite: String,
    /// Its name within the group.
    pub name: String,
    /// What it checks, in a sentence.
    pub meaning: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What a reader should know although it is no failure.
    pub note: Option<String>,
    /// Time that it took.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// What the processes under test wrote, where that explains a failure.
    pub output: Option<String>,
}

impl Case {
    /// A check with this outcome and nothing else to say.
    pub fn new(suite: &str, name: impl Into<String>, outcome: Outcome) -> Self {
        Self {
            suite: suite.to_owned(),
            name: name.into(),
            meaning: String::new(),
            outcome,
            note: None,
            took: Duration::ZERO,
            output: None,
        }
    }
}

fn seconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_secs_f64())
}

/// The checks of one run, in the order in which they were tried.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The checks.
    pub cases: Vec<Case>,
}

impl Report {
    /// Checks that failed.
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// Checks that were not tried.
    pub fn not_run(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::NotRun(_)))
    }

    /// Checks that passed.
    pub fn passed(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Passed)
    }

    /// The exit status that counts the failed checks, up to 100. A run without any check that passed is no success either.
    pub fn exit_status(&self) -> u8 {
        let counted = match self.failed() {
            0 if self.passed() == 0 => 1,
            failed => failed.min(MOST_COUNTED),
        };
        u8::try_from(counted).unwrap_or(u8::MAX)
    }

    /// The report as JUnit XML, which CI systems show: one test suite per [`Case::suite`].
    ///
    /// # Errors
    ///
    /// The document could not be written: text that XML cannot hold is replaced, so this has no known cause.
    pub fn to_junit_xml(&self, name: &str) -> Result<String, quick_junit::SerializeError> {
        junit::document(self, name)
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.cases.iter().filter(|case| is(&case.outcome)).count()
    }
}

/// `PASS` only where something was tried and nothing failed.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.failed(), self.passed()) {
            (0, 0) => "NOT RUN",
            (0, _) => "PASS",
            _ => "FAIL",
        };
        let (passed, failed, not_run) = (self.passed(), self.failed(), self.not_run());
        write!(
            f,
            "{verdict}: {passed} passed, {failed} failed, {not_run} not run"
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("pass"),
            Self::Failed(reason) => write!(f, "FAIL: {reason}"),
            Self::NotRun(reason) => write!(f, "NOT RUN: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: Vec<Outcome>) -> Report {
        let case = |outcome| Case::new("suite", "name", outcome);
        Report {
            cases: outcomes.into_iter().map(case).collect(),
        }
    }

    #[test]
    fn what_was_not_run_is_no_pass() {
        let nothing = report(vec![Outcome::NotRun("no binary".to_owned())]);
        assert_eq!(nothing.exit_status(), 1);
        assert_eq!(
            nothing.to_string(),
            "NOT RUN: 0 passed, 0 failed, 1 not run"
        );
        assert_eq!(report(vec![]).exit_status(), 1);
        let partly = report(vec![Outcome::Passed, Outcome::NotRun(String::new())]);
        assert_eq!(partly.exit_status(), 0);
        assert_eq!(partly.to_string(), "PASS: 1 passed, 0 failed, 1 not run");
    }

    #[test]
    fn the_exit_status_counts_failures() {
        let failed = || Outcome::Failed("wrong".to_owned());
        assert_eq!(
            report(vec![failed(), Outcome::Passed, failed()]).exit_status(),
            2
        );
        assert_eq!(
            report(std::iter::repeat_with(failed).take(300).collect()).exit_status(),
            100
        );
    }
}
