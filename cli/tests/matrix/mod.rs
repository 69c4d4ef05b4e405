//! `doca-storage conformance matrix` with implementations that interoperate, and with some that do not.
//! Mixes of ours with the C++ reference are in `given_binaries.rs`.

mod scripts;
mod verdicts;

use std::fs;

use self::scripts::{
    GGA_OFFLOAD, INITIATOR, PROGRAM, Scripts, TARGET, case, cases, matrix, ours, reason,
};

#[test]
fn own_roles_interoperate_in_both_deployments() {
    let junit = tempfile::tempdir().expect("a directory");
    let junit = junit.path().join("junit.xml");
    let output = matrix(&["--junit", junit.to_str().expect("a plain path")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("14 passed, 0 failed"), "{text}");
    assert!(
        text.contains("only one implementation (rust): no mixes"),
        "{text}"
    );
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("│ rust"))
        .map(|line| line.trim_matches('│').split('│').map(str::trim).collect())
        .collect();
    let pass = ["pass"; 4];
    assert_eq!(rows[0][3..10], [&pass[..], &["noticed"; 3]].concat());
    assert_eq!(
        rows[1][5..12],
        [&pass[..], &["noticed", "noticed", "repaired"]].concat()
    );
    let junit = fs::read_to_string(junit).expect("a document");
    assert!(
        junit.contains("matrix.gga") && junit.contains("rust,rust,rust: failing_io"),
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
        ]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{release}: {text}");
        assert!(text.contains("4 passed, 0 failed"), "{release}: {text}");
    }
}

#[test]
fn broken_role_fails_only_its_own_mixes() {
    let own = Scripts::new().add(TARGET, "echo 'no storage here' >&2; exit 3");
    let output = matrix(&[
        "--impl",
        &ours(),
        "--impl",
        &own.implementation(),
        "--layout",
        "zero-copy",
        "--json",
        "--strategy",
        "read_throughput_test",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let cases = cases(&output);
    assert_eq!(
        case(&cases, "rust,rust,rust: read_throughput_test")["result"],
        "passed"
    );
    let bad = "rust,rust,own: read_throughput_test";
    assert!(
        reason(&cases, bad).contains("target exited (exit status: 3) before it was ready"),
        "{cases:#?}"
    );
    let output = case(&cases, bad)["output"].as_str().expect("output");
    assert!(output.contains("no storage here"), "{output}");
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
    let output = matrix(&[
        "--impl",
        &ours(),
        "--impl",
        &own.implementation(),
        "--only",
        "rust,rust,own",
        "--layout",
        "zero-copy",
        "--json",
    ]);
    let cases = cases(&output);
    let read_back = reason(&cases, "rust,rust,own: read_write_data_validity_test");
    assert!(
        read_back.contains("initiator of rust failed (exit status: 1)"),
        "{read_back}"
    );
    // It answers, but prints no statistics.
    let counts = reason(&cases, "rust,rust,own: write_throughput_test");
    assert!(
        counts.contains("expected the targets to print its operation count"),
        "{counts}"
    );
    assert_eq!(
        case(&cases, "rust,rust,own: corrupt_block")["cell"],
        "noticed"
    );
}

/// Traits of the reference are checked in both directions: a program that is assumed to be of the reference and
/// behaves better fails, too.
#[test]
fn unexpected_implementation_fails() {
    // A usage without the flag that ours have.
    let disguise =
        |role: &str| format!("[ $1 = --help ] && exec echo usage\nexec {PROGRAM} {role} \"$@\"");
    let own = Scripts::new()
        .add(INITIATOR, &disguise("initiator"))
        .add(GGA_OFFLOAD, &disguise("gga-offload"));
    let output = matrix(&[
        "--impl",
        &ours(),
        "--impl",
        &own.implementation(),
        "--layout",
        "gga",
        "--json",
        "--only",
        "own,rust,rust,rust,rust",
        "--only",
        "rust,own,rust,rust,rust",
        "--only",
        "failing_io",
        "--only",
        "corrupt_block",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let cases = cases(&output);
    let better = reason(&cases, "own,rust,rust,rust,rust: failing_io");
    assert!(
        better.contains("expected that the initiator hides the failed I/O"),
        "{better}"
    );
    let better = reason(&cases, "rust,own,rust,rust,rust: corrupt_block");
    assert!(better.contains("it exited with success"), "{better}");
}

#[test]
fn invalid_arguments_are_refused() {
    for (arguments, expected) in [
        (&["--impl", "rust"][..], "expected NAME=DIR"),
        (
            &["--only", "rust,rust"],
            "of the mixes rust,rust,rust rust,rust,rust,rust,rust",
        ),
        (
            &["--strategy", "read"],
            "expected one of read_throughput_test",
        ),
        (
            &["--impl", &ours(), "--impl", &ours()],
            "two are called rust",
        ),
    ] {
        let output = matrix(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(expected),
            "{text}"
        );
    }
}

/// The scripted target uses the roles' release.
#[test]
fn failing_io_is_detected_in_earlier_releases() {
    for release in ["3.0", "3.1"] {
        let output = matrix(&["--only", "failing_io", "--protocol", release]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("2 passed, 0 failed"), "{text}");
        assert_eq!(text.matches("│ noticed").count(), 2, "{text}");
    }
}
