//! `doca-storage conformance role`: our programs pass all checks, and incorrect ones fail.

use std::fs;
use std::process::{Command, Output};

use crate::support::role::{PROGRAM, failures, ours_passes, ours_passes_with};

#[test]
fn own_initiator_passes() {
    ours_passes("initiator", 100);
}

#[test]
fn own_initiator_passes_in_earlier_releases() {
    for release in ["3.0", "3.1"] {
        ours_passes_with("initiator", 100, &["--protocol", release]);
    }
}

/// An initiator of another release than its service does not complete a session.
#[test]
fn initiator_of_another_release_fails() {
    let script = format!("exec {PROGRAM} initiator \"$@\" --protocol 3.0");
    assert_eq!(failures("initiator", &script, "message-ids"), Some(1));
}

#[test]
fn program_that_is_not_an_initiator_fails() {
    assert_eq!(failures("initiator", "exit 0", "message-ids"), Some(1));
}

#[test]
fn initiator_that_always_succeeds_fails() {
    let failures = |script: &str| failures("initiator", script, "error-result-of-write");
    let honest = format!("exec {PROGRAM} initiator \"$@\"");
    let never_fails = format!("{PROGRAM} initiator \"$@\"\nexit 0");
    assert_eq!(failures(&honest), Some(0));
    assert_eq!(failures(&never_fails), Some(1));
}

// `doca-storage conformance role target`: our target passes all checks, and incorrect ones fail.

#[test]
fn own_target_passes() {
    ours_passes("target", 80);
}

#[test]
fn program_that_is_not_a_target_fails() {
    assert_eq!(failures("target", "exit 0", "session-without-io"), Some(1));
}

#[test]
fn target_with_one_wrong_byte_fails() {
    let failures = |script: &str| failures("target", script, "content-sbc-halves");
    let honest = format!("exec {PROGRAM} target \"$@\"");
    // The file is the last argument, except for `--help`.
    let spoil = "for file; do :; done; test ! -f \"$file\" || printf X | dd of=\"$file\" bs=1 seek=5000 conv=notrunc";
    assert_eq!(failures(&honest), Some(0));
    assert_eq!(failures(&format!("{spoil}\n{honest}")), Some(1));
}

#[test]
fn target_that_always_succeeds_fails() {
    let always = format!("{PROGRAM} target \"$@\"\nexit 0");
    assert_eq!(failures("target", &always, "closed-after-query"), Some(1));
}

// `doca-storage conformance role` with our services.

/// Number of checks common to both services.
const COMMON: usize = 80;

fn role(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_doca-storage"))
        .args(["conformance", "role"])
        .args(args)
        .output()
        .expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn passes(name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let junit = directory.path().join("role.xml");
    let output = role(&[
        name,
        "--timeout",
        "60",
        "--junit",
        junit.to_str().expect("text"),
    ]);
    assert!(output.status.success(), "{}", text(&output.stdout));
    let xml = fs::read_to_string(junit).expect("a document");
    assert!(xml.contains("failures=\"0\""), "{xml}");
    let cases = xml.matches("<testcase ").count();
    assert!(cases > COMMON, "{cases} checks");
}

#[test]
fn the_zero_copy_service_passes() {
    passes("zero-copy");
}

#[test]
fn the_gga_offload_service_passes() {
    passes("gga-offload");
}

#[test]
fn program_that_is_not_a_service_fails() {
    for name in ["zero-copy", "gga-offload"] {
        let args = [
            name,
            "--bin",
            "/bin/true",
            "--timeout",
            "1",
            "--only",
            "ids",
        ];
        let output = role(&args);
        assert_eq!(output.status.code(), Some(1));
        let text = text(&output.stdout);
        assert!(text.contains("2 failed"), "ids and unusual-ids: {text}");
        assert!(text.contains("expected a service to connect"), "{text}");
    }
}
