//! `doca-storage conformance role initiator`: our initiator passes all checks, and checks are no formality.

use crate::support::role::{PROGRAM, failures, ours_passes};

#[test]
fn our_initiator_passes() {
    ours_passes("initiator", 100);
}

#[test]
fn a_program_that_does_nothing_fails() {
    assert_eq!(failures("initiator", "exit 0", "message-ids"), Some(1));
}

#[test]
fn an_initiator_that_always_ends_well_fails() {
    let failures = |script: &str| failures("initiator", script, "error-result-of-write");
    let honest = format!("exec {PROGRAM} initiator \"$@\"");
    let never_fails = format!("{PROGRAM} initiator \"$@\"\nexit 0");
    assert_eq!(failures(&honest), Some(0));
    assert_eq!(failures(&never_fails), Some(1));
}
