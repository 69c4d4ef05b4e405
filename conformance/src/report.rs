//! Report of a run of checks, for terminals and as JUnit XML.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use quick_junit::{NonSuccessKind, SerializeError, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", content = "reason", rename_all = "snake_case")]
pub enum Outcome {
    Passed,
    /// The check failed; describes the expected and the actual behaviour.
    Failed(String),
    /// The check was not run, for this reason. Never counts as passed.
    NotRun(String),
}

/// A check with its result.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// Group, such as `layout`, `role.target`, `matrix.gga`.
    pub suite: String,
    /// Name within the group.
    pub name: String,
    /// Checked behaviour in one sentence.
    pub meaning: String,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Remark about a check that has passed or was not run.
    pub note: Option<String>,
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// Output of the processes under test, if it explains a failure.
    pub output: Option<String>,
}

impl Case {
    /// Creates a case with this outcome; other fields are empty.
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

/// Serializes a duration as a number of seconds.
pub(crate) fn seconds<S: serde::Serializer>(
    took: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_secs_f64())
}

/// Checks of one run in the order of their execution.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    pub cases: Vec<Case>,
}

impl Report {
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// Number of checks that were not run.
    pub fn not_run(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::NotRun(_)))
    }

    pub fn passed(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Passed)
    }

    /// Returns `true` if no check failed and at least one passed.
    pub fn is_success(&self) -> bool {
        self.failed() == 0 && self.passed() > 0
    }

    /// Report as JUnit XML for CI systems, with one test suite per [`Case::suite`].
    ///
    /// # Errors
    ///
    /// The document could not be written. Text that XML cannot represent is replaced, so there is no known cause.
    pub fn to_junit_xml(&self, name: &str) -> Result<String, quick_junit::SerializeError> {
        document(self, name)
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.cases.iter().filter(|case| is(&case.outcome)).count()
    }
}

/// `PASS` only if at least one check passed and none failed.
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

// Conversion to a JUnit document.

fn document(report: &Report, name: &str) -> Result<String, SerializeError> {
    let mut suites: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in &report.cases {
        suites.entry(&case.suite).or_default().push(case);
    }
    let mut document = quick_junit::Report::new(name);
    for (name, cases) in suites {
        let mut suite = TestSuite::new(name);
        suite.add_test_cases(cases.into_iter().map(test_case));
        document.add_test_suite(suite);
    }
    document.to_string()
}

fn test_case(case: &Case) -> TestCase {
    let mut status = match &case.outcome {
        Outcome::Passed => TestCaseStatus::success(),
        Outcome::Failed(_) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Outcome::NotRun(_) => TestCaseStatus::skipped(),
    };
    if let Outcome::Failed(reason) | Outcome::NotRun(reason) = &case.outcome {
        status.set_message(reason.as_str());
    }
    let mut test = TestCase::new(case.name.as_str(), status);
    test.set_classname(case.suite.as_str()).set_time(case.took);
    if let Some(note) = &case.note {
        test.set_system_out(note.as_str());
    }
    if let Some(output) = &case.output {
        test.set_system_err(output.as_str());
    }
    test
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
    fn check_that_was_not_run_has_not_passed() {
        let nothing = report(vec![Outcome::NotRun("no binary".to_owned())]);
        assert!(!nothing.is_success());
        assert_eq!(
            nothing.to_string(),
            "NOT RUN: 0 passed, 0 failed, 1 not run"
        );
        assert!(!report(vec![]).is_success());
        let partly = report(vec![Outcome::Passed, Outcome::NotRun(String::new())]);
        assert!(partly.is_success());
        assert_eq!(partly.to_string(), "PASS: 1 passed, 0 failed, 1 not run");
    }

    #[test]
    fn report_with_a_failure_is_not_a_success() {
        let failed = Outcome::Failed("wrong".to_owned());
        assert!(!report(vec![Outcome::Passed, failed]).is_success());
    }
}

#[cfg(test)]
mod junit_tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn junit_has_all_cases_and_texts() {
        let failed = Case {
            took: Duration::from_millis(1500),
            output: Some("\u{1b}[31mERROR\u{1b}[0m <nothing>".to_owned()),
            ..Case::new("role.target", "query", Outcome::Failed("1 & 2".to_owned()))
        };
        let noted = Case {
            note: Some("note-of-a-case".to_owned()),
            ..Case::new("matrix.zero_copy", "rust, cpp, rust", Outcome::Passed)
        };
        let skipped = Case::new(
            "matrix.zero_copy",
            "cpp",
            Outcome::NotRun("no binary".to_owned()),
        );
        let xml = document(
            &Report {
                cases: vec![failed, noted, skipped],
            },
            "conformance",
        )
        .expect("a document");
        let back = quick_junit::Report::deserialize_from_str(&xml).expect("JUnit XML");
        assert_eq!((back.tests, back.failures), (3, 1));
        let cases: Vec<_> = back
            .test_suites
            .iter()
            .flat_map(|suite| &suite.test_cases)
            .collect();
        assert!(matches!(cases[0].status, TestCaseStatus::Success { .. }));
        assert!(matches!(cases[1].status, TestCaseStatus::Skipped { .. }));
        assert!(xml.contains("1 &amp; 2"), "{xml}");
        assert!(
            xml.contains("note-of-a-case") && xml.contains("1.5"),
            "{xml}"
        );
        assert!(xml.contains("&lt;nothing&gt;"), "{xml}");
    }
}
