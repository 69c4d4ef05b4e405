//! `doca-storage conformance matrix` with implementations that interoperate, with implementations that do not, and, for
//! each criterion of a session, with one that violates it. Mixes of ours with the C++ reference are in
//! `given_binaries.rs`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{PROGRAM, json, mentions, script};

const TARGET: &str = "doca_storage_target_rdma";
const INITIATOR: &str = "doca_storage_initiator_comch";
const GGA_OFFLOAD: &str = "doca_storage_comch_to_rdma_gga_offload";

fn matrix(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "matrix", "--operations", "300"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// Mixes of our programs with those of `own`.
fn mixed(own: &Scripts, arguments: &[&str]) -> Output {
    let (ours, own) = (ours(), own.implementation());
    let implementations = ["--impl", &ours, "--impl", &own];
    matrix(&[&implementations[..], arguments].concat())
}

/// Directory of our program, as an implementation.
fn ours() -> String {
    let directory = Path::new(PROGRAM).parent().expect("a directory");
    format!("rust={}", directory.display())
}

/// Scripts as programs of an implementation.
struct Scripts(TempDir);

impl Scripts {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn add(self, name: &str, script: &str) -> Self {
        self::script(self.0.path(), name, script);
        self
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn implementation(&self) -> String {
        format!("own={}", self.0.path().display())
    }
}

/// Cases of a document: mix and check, result, reason, cell, note.
fn cases(output: &Output) -> Vec<Value> {
    json(output)["cases"].as_array().expect("cases").clone()
}

fn case<'a>(cases: &'a [Value], name: &str) -> &'a Value {
    let found = cases.iter().find(|case| case["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {cases:#?}"))
}

/// Checks that all cases have passed; returns them.
fn have_passed(output: &Output) -> Vec<Value> {
    let cases = cases(output);
    let passed = cases.iter().all(|case| case["result"] == "passed");
    assert!(passed, "{cases:#?}");
    cases
}

fn reason<'a>(cases: &'a [Value], name: &str) -> &'a str {
    let case = case(cases, name);
    assert_eq!(case["result"], "failed", "{case:#}");
    case["reason"].as_str().expect("a reason")
}

#[test]
fn own_roles_interoperate_in_both_deployments() {
    let junit = tempfile::tempdir().expect("a directory");
    let junit = junit.path().join("junit.xml");
    let output = matrix(&["--junit", junit.to_str().expect("a plain path")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("│ rust"))
        .map(|line| line.trim_matches('│').split('│').map(str::trim).collect())
        .collect();
    let pass = ["pass"; 4];
    // The stored form of the reference has neither checksums nor repairs.
    let expected = [&pass[..], &["noticed"; 3]].concat();
    assert_eq!(rows[0][3..10], expected);
    assert_eq!(rows[1][5..12], expected);
    let junit = fs::read_to_string(junit).expect("a document");
    assert!(
        junit.contains("matrix.gga") && junit.contains("rust,rust,rust: failing_io"),
        "{junit}"
    );
    assert!(
        junit.contains("tests=\"14\"") && junit.contains("failures=\"0\""),
        "{junit}"
    );
}

/// The roles themselves check that the messages are of another release: an initiator fails without a correlation id.
#[test]
fn own_roles_interoperate_in_every_release() {
    for release in ["3.0", "3.1"] {
        let output = matrix(&[
            "--protocol",
            release,
            "--strategy",
            "read_write_data_validity_test",
            "--strategy",
            "read_only_data_validity_test",
            "--json",
        ]);
        assert!(output.status.success(), "{release}: {output:?}");
        assert_eq!(have_passed(&output).len(), 4, "{release}");
    }
}

#[test]
fn broken_role_fails_only_its_own_mixes() {
    let own = Scripts::new().add(TARGET, "echo 'aaa-bbb' >&2; exit 3");
    let output = mixed(
        &own,
        &[
            "--layout",
            "zero-copy",
            "--json",
            "--strategy",
            "read_throughput_test",
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    let cases = cases(&output);
    assert_eq!(
        case(&cases, "rust,rust,rust: read_throughput_test")["result"],
        "passed"
    );
    let bad = "rust,rust,own: read_throughput_test";
    mentions(reason(&cases, bad), &["target", "3"]);
    let output = case(&cases, bad)["output"].as_str().expect("output");
    assert!(output.contains("aaa-bbb"), "{output}");
}

/// A target that answers every write with success and executes none.
#[test]
fn target_that_ignores_writes_fails_only_validating_runs() {
    let arguments = r#"
while [ $# -gt 0 ]; do
    case $1 in
        --listen-port|--block-size) set -- "$@" "$1" "$2";;
        --binary-content) set -- "$@" --content "$2";;
        --end) shift; break;;
    esac
    shift 2
done"#;

    let own = Scripts::new().add(
        TARGET,
        &format!(
            "[ $1 = --help ] && exec {PROGRAM} target --help\nset -- \"$@\" --end\n{arguments}\n\
             exec {PROGRAM} conformance faulty-target --fault ignore-writes \"$@\""
        ),
    );
    let output = mixed(
        &own,
        &["--only", "rust,rust,own", "--layout", "zero-copy", "--json"],
    );
    let cases = cases(&output);
    let read_back = reason(&cases, "rust,rust,own: read_write_data_validity_test");
    // The role, its implementation and its exit status.
    mentions(read_back, &["initiator", "rust", "1"]);
    // The role answers, but prints no statistics.
    let counts = reason(&cases, "rust,rust,own: write_throughput_test");
    mentions(counts, &["targets", "count"]);
    assert_eq!(
        case(&cases, "rust,rust,own: corrupt_block")["cell"],
        "noticed"
    );
}

/// Traits of the reference are checked in both directions: a program that is assumed to be of the reference and behaves
/// better also fails.
#[test]
fn unexpected_implementation_fails() {
    // A usage without the flag that ours have.
    let disguise =
        |role: &str| format!("[ $1 = --help ] && exec echo usage\nexec {PROGRAM} {role} \"$@\"");
    let own = Scripts::new().add(INITIATOR, &disguise("initiator"));
    let output = mixed(
        &own,
        &[
            "--layout",
            "gga",
            "--json",
            "--only",
            "own,rust,rust,rust,rust",
            "--only",
            "failing_io",
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    let cases = cases(&output);
    // The initiator fails with 1 where that of the reference hides the failed I/O.
    mentions(
        reason(&cases, "own,rust,rust,rust,rust: failing_io"),
        &["initiator", "1"],
    );
}

#[test]
fn invalid_arguments_are_refused() {
    for (arguments, expected) in [
        (&["--impl", "rust"][..], &["NAME=DIR"][..]),
        (&["--only", "rust,rust"], &["rust,rust,rust,rust,rust"]),
        (
            &["--strategy", "read"],
            &["--strategy", "read_throughput_test"],
        ),
        (&["--impl", &ours(), "--impl", &ours()], &["--impl", "rust"]),
    ] {
        let output = matrix(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{text}");
        for value in expected {
            assert!(text.contains(value), "{value}: {text}");
        }
    }
}

/// The scripted target uses the roles' release.
#[test]
fn failing_io_is_detected_in_earlier_releases() {
    for release in ["3.0", "3.1"] {
        let output = matrix(&["--only", "failing_io", "--protocol", release, "--json"]);
        assert!(output.status.success(), "{output:?}");
        let cases = have_passed(&output);
        let cells: Vec<&Value> = cases.iter().map(|case| &case["cell"]).collect();
        assert_eq!(cells, ["noticed"; 2]);
    }
}

/// Answers `--help` like the reference, without the flag that ours have; other arguments are handled by the script that follows.
const REFERENCE: &str = "[ $1 = --help ] && exec echo usage";

/// Answers `--help` like ours.
const OURS: &str = "[ $1 = --help ] && exec echo --output";

/// Runs the zero-copy check `check` with this initiator or target; the other roles are ours.
fn tried(own: &Scripts, mix: &str, check: &str, more: &[&str]) -> Vec<Value> {
    let arguments = ["--only", mix, "--only", check, "--json"];
    cases(&mixed(own, &[&arguments[..], more].concat()))
}

/// Runs a check, which must fail for a reason with these values.
fn fails(program: &str, script: &str, check: &str, expected: &[&str]) -> Value {
    fails_within("60", program, script, check, expected)
}

/// Runs a check, which must fail, with sessions of at most this many seconds.
fn fails_within(
    seconds: &str,
    program: &str,
    script: &str,
    check: &str,
    expected: &[&str],
) -> Value {
    let own = Scripts::new().add(program, script);
    let mix = match program {
        TARGET => "rust,rust,own",
        GGA_OFFLOAD => "rust,own,rust,rust,rust",
        _ => "own,rust,rust",
    };
    let cases = tried(&own, mix, check, &["--timeout", seconds]);
    let name = format!("{mix}: {check}");
    mentions(reason(&cases, &name), expected);
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
    mentions(case["note"].as_str().expect("a note"), &["2"]);
}

#[test]
fn other_crash_is_a_failure() {
    let crash = "kill -SEGV $$";
    let worker = "echo '[DOCA][INF] Worker: 0x5 (core: 0) starting'";
    let signal = &["11"];
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
    let other = fails(TARGET, &format!("{REFERENCE}\nkill -ABRT $$"), READ, &["6"]);
    assert_eq!(other["start_races"], 0);
}

/// The reason is found even if other roles have printed more, and only the last lines are shown.
#[test]
fn log_tail_of_a_dead_role_is_shown() {
    let last_words = "echo 'aaa-bbb' >&2";
    let own = Scripts::new()
        .add(
            TARGET,
            &format!(
                "{OURS}\n{PROGRAM} target \"$@\" & sleep 2; {last_words}; kill $!; kill -ABRT $$"
            ),
        )
        .add(INITIATOR, &format!("{OURS}\nseq 1000 >&2; sleep 3; exit 1"));
    let mix = "own,rust,own";
    let output = mixed(&own, &["--only", mix, "--only", READ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("aaa-bbb"), "{text}");
}

#[test]
fn leftover_resources_are_a_failure() {
    let script = format!("{OURS}\ntouch $SOFTDOCA_RUNTIME_DIR/left\nexec {PROGRAM} target \"$@\"");
    let case = fails(TARGET, &script, READ, &[]);
    assert!(
        case["reason"]
            .as_str()
            .is_some_and(|it| it.contains("/left")),
        "{case:#}"
    );
}

#[test]
fn differing_operation_counts_are_a_failure() {
    let script = format!("{OURS}\n{PROGRAM} target \"$@\" | sed 's/count: 300/count: 299/'");
    fails(TARGET, &script, READ, &["targets", "300", "299"]);
    let script = format!("{OURS}\n{PROGRAM} initiator \"$@\" > /dev/null");
    fails(INITIATOR, &script, READ, &["initiator", "count"]);
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
        &["service", "150", "recoveries"],
    );
}

#[test]
fn exit_status_is_checked() {
    let script = format!("{OURS}\n{PROGRAM} target \"$@\"\nexit 4");
    fails(TARGET, &script, READ, &["target", "own", "4"]);
}

#[test]
fn initiator_that_misses_an_error_is_a_failure() {
    let script = format!("{OURS}\n{PROGRAM} initiator \"$@\"\nexit 0");
    for check in ["failing_io", "io_past_end", "corrupt_block"] {
        let expected = ["expected", "initiator", "fail"];
        fails(INITIATOR, &script, check, &expected);
    }
}

#[test]
fn failed_initiator_must_report_a_reason() {
    fails(
        INITIATOR,
        &format!("{OURS}\nexit 1"),
        "corrupt_block",
        &["initiator", "mismatch", "13"],
    );
}

#[test]
fn session_without_an_end_is_a_failure() {
    fails_within(
        "2",
        INITIATOR,
        &format!("{OURS}\nexec sleep 1000"),
        READ,
        &["initiator", "2"],
    );
}
