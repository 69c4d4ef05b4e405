//! The report as a JUnit document.

use std::collections::BTreeMap;

use quick_junit::{NonSuccessKind, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::{Case, Outcome, Report};

pub(super) fn document(report: &Report, name: &str) -> Result<String, SerializeError> {
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reader_of_junit_finds_everything() {
        let failed = Case {
            took: Duration::from_millis(1500),
            output: Some("\u{1b}[31mERROR\u{1b}[0m <nothing>".to_owned()),
            ..Case::new(
                "role.target",
                "query",
                Outcome::Failed("expected 1 & got 2".to_owned()),
            )
        };
        let noted = Case {
            note: Some("hides the error".to_owned()),
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
        assert!(xml.contains("expected 1 &amp; got 2"), "{xml}");
        assert!(
            xml.contains("hides the error") && xml.contains("1.5"),
            "{xml}"
        );
        assert!(xml.contains("&lt;nothing&gt;"), "{xml}");
    }
}
