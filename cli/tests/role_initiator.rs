//! `doca-storage conformance role initiator`: our initiator passes all checks, and incorrect ones fail.

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
fn program_that_does_nothing_fails() {
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
