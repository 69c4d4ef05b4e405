//! `doca-storage conformance role target`: our target passes all checks, and incorrect ones fail.

use crate::support::role::{PROGRAM, failures, ours_passes};

#[test]
fn own_target_passes() {
    ours_passes("target", 80);
}

#[test]
fn program_that_does_nothing_fails() {
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
