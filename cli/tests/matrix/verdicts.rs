//! Every criterion of a session, with an implementation that violates it.

use serde_json::Value;

use super::scripts::{
    GGA_OFFLOAD, INITIATOR, PROGRAM, Scripts, TARGET, case, cases, matrix, ours, reason,
};

/// Answers `--help` like the reference, without the flag that ours have; other arguments are handled by the script that follows.
const REFERENCE: &str = "[ $1 = --help ] && exec echo usage";
/// Answers `--help` like ours.
const OURS: &str = "[ $1 = --help ] && exec echo --output";

/// Runs the zero-copy check `check` with this initiator or target; the other roles are ours.
fn tried(own: &Scripts, mix: &str, check: &str, more: &[&str]) -> Vec<Value> {
    let (ours, own) = (ours(), own.implementation());
    let arguments = [
        "--impl", &ours, "--impl", &own, "--only", mix, "--only", check, "--json",
    ];
    cases(&matrix(&[&arguments[..], more].concat()))
}

fn fails(program: &str, script: &str, check: &str, expected: &str) -> Value {
    fails_within("60", program, script, check, expected)
}

/// Runs a check, which must fail, with sessions of at most this many seconds.
fn fails_within(seconds: &str, program: &str, script: &str, check: &str, expected: &str) -> Value {
    let own = Scripts::new().add(program, script);
    let mix = match program {
        TARGET => "rust,rust,own",
        GGA_OFFLOAD => "rust,own,rust,rust,rust",
        _ => "own,rust,rust",
    };
    let cases = tried(&own, mix, check, &["--timeout", seconds]);
    let name = format!("{mix}: {check}");
    let reason = reason(&cases, &name);
    assert!(reason.contains(expected), "{reason}");
    case(&cases, &name).clone()
}

const READ: &str = "read_throughput_test";

#[test]
fn start_race_is_retried_and_counted() {
    let own = Scripts::new();
    let count = own.path().join("count");
    let crash_twice = format!(
        "{REFERENCE}\necho . >> {0}; [ $(wc -l < {0}) -le 2 ] && kill -SEGV $$\nexec {PROGRAM} target \"$@\"",
        count.display()
    );
    let own = own.add(TARGET, &crash_twice);
    let cases = tried(&own, "rust,rust,own", READ, &[]);
    let case = case(&cases, "rust,rust,own: read_throughput_test");
    assert_eq!(case["result"], "passed", "{case:#}");
    assert_eq!(case["start_races"], 2);
    assert_eq!(case["note"], "2 start races repeated");
}

#[test]
fn other_crash_is_a_failure() {
    let crash = "kill -SEGV $$";
    let worker = "echo '[DOCA][INF] Worker: 0x5 (core: 0) starting'";
    let signal = "signal: 11";
    let always = fails(TARGET, &format!("{REFERENCE}\n{crash}"), READ, signal);
    assert_eq!(always["start_races"], 60);
    let later = fails(
        TARGET,
        &format!("{REFERENCE}\n{worker}; {crash}"),
        READ,
        signal,
    );
    assert_eq!(later["start_races"], 0);
    let not_the_reference = fails(TARGET, &format!("{OURS}\n{crash}"), READ, signal);
    assert_eq!(not_the_reference["start_races"], 0);
    let other = fails(
        TARGET,
        &format!("{REFERENCE}\nkill -ABRT $$"),
        READ,
        "signal: 6",
    );
    assert_eq!(other["start_races"], 0);
}

/// Also if other roles have printed more, and only the last lines are shown.
#[test]
fn log_tail_of_a_dead_role_is_shown() {
    let last_words = "echo 'a handle without an object' >&2";
    let own = Scripts::new()
        .add(
            TARGET,
            &format!(
                "{OURS}\n{PROGRAM} target \"$@\" & sleep 2; {last_words}; kill $!; kill -ABRT $$"
            ),
        )
        .add(INITIATOR, &format!("{OURS}\nseq 1000 >&2; sleep 3; exit 1"));
    let (ours, own) = (ours(), own.implementation());
    let mix = "own,rust,own";
    let output = matrix(&[
        "--impl", &ours, "--impl", &own, "--only", mix, "--only", READ,
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("a handle without an object"), "{text}");
}

#[test]
fn leftover_resources_are_a_failure() {
    let script = format!("{OURS}\ntouch $SOFTDOCA_RUNTIME_DIR/left\nexec {PROGRAM} target \"$@\"");
    fails(TARGET, &script, READ, "expected an empty runtime directory");
}

#[test]
fn differing_operation_counts_are_a_failure() {
    let script = format!("{OURS}\n{PROGRAM} target \"$@\" | sed 's/count: 300/count: 299/'");
    fails(
        TARGET,
        &script,
        READ,
        "expected the targets to count 300 I/Os, got 299",
    );
    let script = format!("{OURS}\n{PROGRAM} initiator \"$@\" > /dev/null");
    fails(
        INITIATOR,
        &script,
        READ,
        "expected the initiator to print its operation count",
    );
}

#[test]
fn recovered_blocks_of_a_gga_service_are_counted() {
    let less = |what: &str| {
        format!("{OURS}\n{PROGRAM} gga-offload \"$@\" | sed 's/{what}: .*/{what}: 0/'")
    };
    let recoveries = less("Recovery count");
    fails(
        GGA_OFFLOAD,
        &recoveries,
        READ,
        "expected the service to count 150 recoveries",
    );
    let corrected = less("Corrected half blocks of data_1");
    fails(
        GGA_OFFLOAD,
        &corrected,
        "corrupt_block",
        "expected the service to count corrected half blocks",
    );
}

#[test]
fn exit_status_is_checked() {
    let script = format!("{OURS}\n{PROGRAM} target \"$@\"\nexit 4");
    fails(
        TARGET,
        &script,
        READ,
        "target of own failed (exit status: 4)",
    );
}

#[test]
fn initiator_that_misses_an_error_is_a_failure() {
    let script = format!("{OURS}\n{PROGRAM} initiator \"$@\"\nexit 0");
    for check in ["failing_io", "io_past_end", "corrupt_block"] {
        fails(INITIATOR, &script, check, "expected the initiator to fail");
    }
}

#[test]
fn failed_initiator_must_report_a_reason() {
    fails(
        INITIATOR,
        &format!("{OURS}\nexit 1"),
        "corrupt_block",
        "but did not say mismatch, block 13",
    );
}

#[test]
fn session_without_an_end_is_a_failure() {
    fails_within(
        "2",
        INITIATOR,
        &format!("{OURS}\nexec sleep 1000"),
        READ,
        "the initiator has not ended in 2 s",
    );
}
