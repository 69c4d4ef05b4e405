//! `doca-storage conformance role initiator`: our initiator passes all checks, and checks are no formality.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_doca-storage");

fn role(args: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "role", "initiator"])
        .args(args)
        .output()
        .expect("started")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

#[test]
fn our_initiator_passes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("initiator.xml");
    let output = role(&["--patience", "60", "--junit", text(&path)]);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}");
    assert!(
        table.contains("PASS: ") && table.contains(" 0 failed, 0 not run"),
        "{table}"
    );
    let xml = fs::read_to_string(path).expect("a document");
    let cases = xml.matches("<testcase ").count();
    assert!(cases >= 100, "{cases} checks");
    assert!(xml.contains("failures=\"0\""), "{xml}");
}

/// Runs one check on a script in the place of an initiator; the number of failures.
fn failures(script: &str, check: &str) -> Option<i32> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("initiator");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("a program");
    let output = role(&["--bin", text(&path), "--only", check, "--patience", "20"]);
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed")
            != (output.status.code() == Some(1)),
        "{output:?}"
    );
    output.status.code()
}

#[test]
fn a_program_that_does_nothing_fails() {
    assert_eq!(failures("exit 0", "message-ids"), Some(1));
}

#[test]
fn an_initiator_that_always_ends_well_fails() {
    let honest = format!("exec {PROGRAM} initiator \"$@\"");
    let never_fails = format!("{PROGRAM} initiator \"$@\"\nexit 0");
    assert_eq!(failures(&honest, "error-result-of-write"), Some(0));
    assert_eq!(failures(&never_fails, "error-result-of-write"), Some(1));
}
