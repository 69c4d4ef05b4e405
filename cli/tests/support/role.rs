//! `doca-storage conformance role`, and incorrect programs as roles.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use super::text;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_doca-storage");

/// Runs checks of a role.
pub fn role(name: &str, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "role", name])
        .args(arguments)
        .output()
        .expect("started")
}

/// Checks that our own program passes all checks, and that there are at least `at_least`.
pub fn ours_passes(name: &str, at_least: usize) {
    ours_passes_with(name, at_least, &[]);
}

/// As [`ours_passes`], with further arguments.
pub fn ours_passes_with(name: &str, at_least: usize, arguments: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("role.xml");
    let base = ["--timeout", "60", "--junit", text(&path)];
    let output = role(name, &[&base, arguments].concat());
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}");
    assert!(
        table.contains("PASS: ") && table.contains(" 0 failed, 0 not run"),
        "{table}"
    );
    let xml = fs::read_to_string(path).expect("a document");
    let cases = xml.matches("<testcase ").count();
    assert!(cases >= at_least, "{cases} checks");
    assert!(xml.contains("failures=\"0\""), "{xml}");
}

/// Runs one check with a shell script as the role; returns the number of failures.
pub fn failures(name: &str, script: &str, check: &str) -> Option<i32> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("role");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("a program");
    let arguments = ["--bin", text(&path), "--only", check, "--timeout", "20"];
    let output = role(name, &arguments);
    let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(passed != (output.status.code() == Some(1)), "{output:?}");
    output.status.code()
}
