//! Flags that end the process.

use std::process::Output;

use super::*;
use crate::capi::testing::child;

/// Run again by the test below as a process that may exit.
#[test]
fn exiting_child() {
    let Ok(arguments) = std::env::var("SOFTDOCA_TEST_ARGP") else {
        return;
    };
    let program = Program::default();
    let _parser = Parser::new(&program);
    if crate::api::Api::current() != crate::api::Api::V3_0 {
        register_all();
    }
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    println!("start answers {}", start(&arguments));
}

fn with_environment(environment: &[(&str, &str)]) -> Output {
    child(
        "capi::doca_argp::tests::processes::exiting_child",
        environment,
    )
}

fn with_arguments(arguments: &str) -> Output {
    with_environment(&[("SOFTDOCA_TEST_ARGP", arguments)])
}

#[test]
fn help_and_version_are_printed_and_the_process_exits_well() {
    let help = with_arguments("--help");
    let text = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.success(), "{help:?}");
    assert!(
        text.contains("Usage: tester [DOCA Flags] [Program Flags]\n"),
        "{text}"
    );
    assert!(
        text.contains("\n  -nm, --name <name>                What it is for\n"),
        "{text}"
    );
    assert!(
        !text.contains("--quiet") && !text.contains("start answers"),
        "{text}"
    );

    for (api, expected) in [("", "3.3.0"), ("3.0", "3.0.0"), ("3.2", "3.2.0")] {
        let version = with_environment(&[("SOFTDOCA_TEST_ARGP", "-v"), ("SOFTDOCA_API", api)]);
        let text = String::from_utf8_lossy(&version.stdout);
        assert!(version.status.success(), "{version:?}");
        assert!(
            text.contains(&format!("DOCA Version: {expected}")),
            "{text}"
        );
        assert!(!text.contains("start answers"), "{text}");
    }

    let wrong = with_arguments("--wrong");
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        text.contains("tester: --wrong is no flag of this program; -h shows the usage\n"),
        "{text}"
    );
    let text = String::from_utf8_lossy(&wrong.stdout);
    assert!(
        text.contains(&format!("start answers {DOCA_ERROR_NOT_SUPPORTED}\n")),
        "{text}"
    );
}
