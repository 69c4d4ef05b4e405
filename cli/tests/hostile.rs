//! `doca-storage conformance hostile`: attacks on our roles stay within their cost limits, and roles that exceed them fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_doca-storage");

fn hostile(role: &str, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "hostile", "--role", role])
        // Allows for other load on the machine.
        .args(["--time-scale", "10"])
        .args(arguments)
        .output()
        .expect("started")
}

#[test]
fn rings_agents_and_exports_of_an_attacker_cost_a_target_no_more_than_their_limits() {
    let output = hostile(
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
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}");
    // The name of one import contains an agent.
    assert!(
        table.contains("PASS: 21 passed, 0 failed, 0 not run"),
        "{table}"
    );
}

/// A peer with the key can access a service's exported memory, but nothing outside of it, and only as long as it is exported.
#[test]
fn peers_with_the_key_reach_exported_memory_alone() {
    let output = hostile(
        "zero-copy",
        &["--only", "peer-", "--only", "network-replay"],
    );
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}");
    assert!(
        table.contains("PASS: 4 passed, 0 failed, 0 not run"),
        "{table}"
    );
}

#[test]
fn target_that_exits_fails() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("doca_storage_target_rdma");
    // It serves for two seconds; the attack takes three.
    let script = format!("#!/bin/sh\nexec timeout -s KILL 2 {PROGRAM} target \"$@\"\n");
    fs::write(&program, script).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("a program");
    let path = directory.path().to_str().expect("a path of text");
    let output = hostile(
        "target",
        &["--bin", path, "--only", "control-silent-half-closed"],
    );
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{table}");
    assert!(table.contains("the end of the target"), "{table}");
}

/// Many connections that are opened and closed between two polls of the service: each leaves a handle that must not
/// be used any more.
#[test]
fn many_connections_at_once_do_not_end_a_service() {
    let output = hostile(
        "zero-copy",
        &[
            "--only",
            "comch-many-clients",
            "--only",
            "flood-connections",
        ],
    );
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}");
    assert!(
        table.contains("PASS: 4 passed, 0 failed, 0 not run"),
        "{table}"
    );
}

#[test]
fn hostile_services_cost_an_initiator_at_most_its_timeouts() {
    let output = hostile(
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
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}");
    assert!(
        table.contains("PASS: 18 passed, 0 failed, 0 not run"),
        "{table}"
    );
}

/// An initiator is started for each attack, so it has no consecutive sessions.
#[test]
fn initiator_is_not_attacked_for_a_time_or_a_number_of_sessions() {
    for limit in [["--duration", "10s"], ["--sessions", "10"]] {
        let output = hostile("initiator", &limit);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("started for each attack"), "{text}");
    }
}

#[test]
fn clients_are_served_despite_many_idle_connections() {
    for role in ["target", "zero-copy"] {
        let output = hostile(role, &["--only", "flood-silent"]);
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{role}: {table}");
        assert!(
            table.contains("PASS: 1 passed, 0 failed, 0 not run"),
            "{table}"
        );
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

/// Unauthenticated peers get no access over the network and lock out no peer with the key, and no attack exceeds its cost limit.
#[test]
fn attacks_over_the_network_get_no_access() {
    let unauthenticated = ["--only", "network-"];
    let all = [&unauthenticated[..], &["--only", "peer-"]].concat();
    for (role, only, passed) in [
        ("target", &all[..], 38),
        ("zero-copy", &unauthenticated, 16),
    ] {
        let output = hostile(role, only);
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{role}: {table}");
        let verdict = format!("PASS: {passed} passed, 0 failed, 0 not run");
        assert!(table.contains(&verdict), "{table}");
    }
}
