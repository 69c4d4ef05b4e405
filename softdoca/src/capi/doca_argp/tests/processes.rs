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
    register_all();
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    println!("start answers {}", start(&arguments));
}

fn with_arguments(arguments: &str) -> Output {
    let test = "capi::doca_argp::tests::processes::exiting_child";
    child(test, &[("SOFTDOCA_TEST_ARGP", arguments)])
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

    let version = with_arguments("-v");
    let text = String::from_utf8_lossy(&version.stdout);
    assert!(version.status.success(), "{version:?}");
    assert!(text.contains("DOCA Version: 3.3.0"), "{text}");
    assert!(!text.contains("start answers"), "{text}");

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
