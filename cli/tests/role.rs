//! `doca-storage conformance role`, `hostile` and `layout`: our programs pass all checks and stay within the cost
//! limits of attacks; incorrect programs fail; the table of offsets.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{PROGRAM, json, lossy, mentions, script, text};

/// Runs checks of a role.
fn role(name: &str, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "role", name])
        .args(arguments)
        .output()
        .expect("started")
}

/// Checks that our own program passes all checks, and that at least `at_least` checks ran.
fn ours_passes(name: &str, at_least: usize, arguments: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("role.xml");
    let base = ["--timeout", "60", "--json", "--junit", text(&path)];
    let cases = passed(&role(name, &[&base, arguments].concat()));
    assert!(cases >= at_least, "{cases} checks");
    let xml = fs::read_to_string(path).expect("a document");
    assert_eq!(xml.matches("<testcase ").count(), cases);
    assert!(xml.contains("failures=\"0\""), "{xml}");
}

/// Results of the checks in a JSON document, by name.
fn results(output: &Output) -> Vec<(String, Value)> {
    let document = json(output);
    let cases = document["cases"].as_array().expect("cases");
    let result = |case: &Value| {
        let name = case["name"].as_str().expect("a name").to_owned();
        (name, case["result"].clone())
    };
    cases.iter().map(result).collect()
}

/// Checks that all checks of a JSON document were run and have passed; returns their number.
fn passed(output: &Output) -> usize {
    let results = results(output);
    let have_passed = results.iter().all(|(_, result)| result == "passed");
    assert!(have_passed && output.status.success(), "{output:?}");
    results.len()
}

/// Runs one check with a shell script as the role; returns the number of failures.
fn failures(name: &str, script: &str, check: &str) -> Option<i32> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = self::script(directory.path(), "role", script);
    let arguments = ["--bin", text(&path), "--only", check, "--timeout", "20"];
    let output = role(name, &arguments);
    let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(passed != (output.status.code() == Some(1)), "{output:?}");
    output.status.code()
}

#[test]
fn own_initiator_passes() {
    ours_passes("initiator", 100, &[]);
}

#[test]
fn own_initiator_passes_in_earlier_releases() {
    for release in ["3.0", "3.1"] {
        ours_passes("initiator", 100, &["--protocol", release]);
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
    ours_passes("target", 80, &[]);
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

#[test]
fn the_zero_copy_service_passes() {
    ours_passes("zero-copy", 81, &[]);
}

#[test]
fn the_gga_offload_service_passes() {
    ours_passes("gga-offload", 81, &[]);
}

#[test]
fn program_that_is_not_a_service_fails() {
    for name in ["zero-copy", "gga-offload"] {
        let output = role(
            name,
            &[
                "--bin",
                "/bin/true",
                "--timeout",
                "1",
                "--only",
                "ids",
                "--json",
            ],
        );
        assert_eq!(output.status.code(), Some(1));
        let results = results(&output);
        let have_failed = results.iter().all(|(_, result)| result == "failed");
        assert!(
            have_failed && results.len() == 2,
            "ids and unusual-ids: {results:?}"
        );
    }
}

fn hostile(role: &str, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "hostile", "--role", role])
        // Allows for other load on the machine.
        .args(["--time-scale", "10"])
        .args(arguments)
        .output()
        .expect("started")
}

/// Checks that the role stays within its limits for this number of attacks.
fn within_limits(count: usize, role: &str, arguments: &[&str]) {
    let output = hostile(role, &[arguments, &["--json"]].concat());
    assert_eq!(passed(&output), count);
}

#[test]
fn rings_agents_and_exports_of_an_attacker_cost_a_target_no_more_than_their_limits() {
    // The name of one import contains the name of an agent.
    within_limits(
        21,
        "target",
        &[
            "--only",
            "ring-",
            "--only",
            "agent-",
            "--only",
            "import-misaligned",
            "--only",
            "import-million-segments",
        ],
    );
}

/// A peer with the key can access a service's exported memory, but nothing outside of it, and only as long as it is exported.
#[test]
fn peers_with_the_key_reach_exported_memory_alone() {
    within_limits(
        4,
        "zero-copy",
        &["--only", "peer-", "--only", "network-replay"],
    );
}

#[test]
fn target_that_exits_fails() {
    const ATTACK: &str = "control-silent-half-closed";
    let directory = tempfile::tempdir().expect("a directory");
    // The target serves for two seconds; the attack takes three.
    let target = format!("exec timeout -s KILL 2 {PROGRAM} target \"$@\"");
    script(directory.path(), "doca_storage_target_rdma", &target);
    let path = directory.path().to_str().expect("a path of text");
    let output = hostile("target", &["--bin", path, "--only", ATTACK, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document = json(&output);
    let case = &document["cases"][0];
    assert_eq!(case["name"], ATTACK);
    assert_eq!(case["result"], "failed");
    // The reason names the role that has exited.
    mentions(case["reason"].as_str().expect("a reason"), &["target"]);
}

/// Many connections that are opened and closed between two polls of the service: each leaves a handle that must not be
/// used.
#[test]
fn many_connections_at_once_do_not_end_a_service() {
    within_limits(
        4,
        "zero-copy",
        &[
            "--only",
            "comch-many-clients",
            "--only",
            "flood-connections",
        ],
    );
}

#[test]
fn hostile_services_cost_an_initiator_at_most_its_timeouts() {
    within_limits(
        18,
        "initiator",
        &[
            "--only",
            "service-closes",
            "--only",
            "service-accepts",
            "--only",
            "storage-",
            "--only",
            "ring-result",
        ],
    );
}

/// An initiator is started for each attack, so it has no consecutive sessions.
#[test]
fn initiator_is_not_attacked_for_a_time_or_a_number_of_sessions() {
    for limit in [["--duration", "10s"], ["--sessions", "10"]] {
        let output = hostile("initiator", &limit);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        mentions(&text, &["--duration", "--sessions", "initiator"]);
    }
}

#[test]
fn clients_are_served_despite_many_idle_connections() {
    for role in ["target", "zero-copy"] {
        within_limits(1, role, &["--only", "flood-silent"]);
    }
}

#[test]
fn client_is_served_during_attacks() {
    for role in ["target", "zero-copy"] {
        let output = hostile(
            role,
            &[
                "--sessions",
                "60",
                "--only",
                "control-",
                "--only",
                "session-leaves",
            ],
        );
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{role}: {table}");
        assert!(table.contains("30 sessions, 30 attacks"), "{table}");
    }
}

/// Over the network, the attacks lock out no peer with the key, and none exceeds its cost limit.
#[test]
fn unauthenticated_peers_of_a_target_get_no_access() {
    within_limits(16, "target", &["--only", "network-"]);
}

#[test]
fn unauthenticated_peers_of_a_service_get_no_access() {
    within_limits(16, "zero-copy", &["--only", "network-"]);
}

#[test]
fn attacks_of_authenticated_peers_do_not_exceed_their_limits() {
    within_limits(22, "target", &["--only", "peer-"]);
}

fn layout(args: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "layout"])
        .args(args)
        .output()
        .expect("started")
}

#[test]
fn all_vectors_pass_and_are_counted() {
    let output = layout(&[]);
    assert!(output.status.success(), "{output:?}");
    let text = lossy(&output.stdout);
    assert!(text.contains("│ io_message_read"), "{text}");
    assert!(
        text.ends_with("vectors\n") && text.contains("PASS: "),
        "{text}"
    );
}

#[test]
fn every_vector_is_a_case_of_the_junit_document() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("layout.xml");
    let output = layout(&[
        "--only",
        "io_message_read",
        "--junit",
        path.to_str().expect("text"),
    ]);
    assert!(output.status.success(), "{output:?}");
    let xml = fs::read_to_string(path).expect("a document");
    assert!(
        xml.contains("tests=\"1\"") && xml.contains("failures=\"0\""),
        "{xml}"
    );
    assert!(
        xml.contains("name=\"io_message_read\" classname=\"layout\""),
        "{xml}"
    );
}

#[test]
fn bytes_are_shown_with_their_offsets() {
    let output = layout(&["--print", "--only", "query_storage_response"]);
    let text = lossy(&output.stdout);
    let row = "│ 0x0010 │ 8     │ 01 02 03 04 05 06 07 08 │ total_size     │ 72623859790382856 │";
    assert!(text.contains(row), "{text}");
}

#[test]
fn wrong_byte_in_a_file_is_counted_and_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../conformance/vectors/sbc_header.toml"
    );
    let right = fs::read_to_string(path).expect("a vector");
    fs::write(directory.path().join("right.toml"), &right).expect("written");
    let wrong = right.replace("00 00 02 00", "00 02 00 00");
    assert_ne!(right, wrong);
    fs::write(directory.path().join("wrong.toml"), wrong).expect("written");
    let directory = directory.path().to_str().expect("text");
    let output = layout(&["--vectors", directory]);
    assert_eq!(output.status.code(), Some(1), "one of them");
    let text = lossy(&output.stdout);
    assert!(
        text.contains("block_size: expected \"512\", found \"131072\""),
        "{text}"
    );

    let output = layout(&["--vectors", directory, "--json"]);
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let passed: Vec<_> = rows
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| &row["passed"])
        .collect();
    assert_eq!(passed, [true, false]);
    assert_eq!(rows[0]["fields"][1]["bytes"], "00 00 02 00");
}

#[test]
fn file_that_is_not_a_vector_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text");
    let none = layout(&["--vectors", path]);
    assert!(!none.status.success(), "{none:?}");
    mentions(&lossy(&none.stderr), &[path, "toml"]);
    fs::write(directory.path().join("x.toml"), "name = 1").expect("written");
    let broken = layout(&["--vectors", path]);
    assert!(
        !broken.status.success() && lossy(&broken.stderr).contains("x.toml"),
        "{broken:?}"
    );
    let unknown = layout(&["--only", "nothing"]);
    assert!(
        lossy(&unknown.stderr).contains("io_message_read"),
        "{unknown:?}"
    );
}
