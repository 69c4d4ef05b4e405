//! `doca-storage conformance hostile`: what attacks may cost our roles is what they cost, and attacks are no formality.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_doca-storage");

fn hostile(role: &str, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "hostile", "--role", role])
        // The machine may have other things to do.
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
    // One of the imports has an agent in its name.
    assert!(
        table.contains("PASS: 21 passed, 0 failed, 0 not run"),
        "{table}"
    );
}

/// Memory that a service exports to its targets is reached by a peer with the key where it lies, and as long as it is exported.
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
    // It serves for two seconds; the attack lasts three.
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

/// Connections that come and go in numbers, between two looks of the service: each costs a handle that must not be used any longer.
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

/// An initiator is started for each attack: it has no sessions one after the other.
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
fn clients_are_served_beside_silent_connections_that_keep_coming() {
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
fn a_client_is_served_beside_attacks() {
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

/// Unauthenticated peers get nothing over the network and keep no peer out that has the key, and no attack costs more than it may.
#[test]
fn attacks_over_the_network_get_nothing() {
    let unauthenticated = ["--only", "network-"];
    let all = [&unauthenticated[..], &["--only", "peer-"]].concat();
    for (role, only, passed) in [
        ("target", &all[..], 34),
        ("zero-copy", &unauthenticated, 16),
    ] {
        let output = hostile(role, only);
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{role}: {table}");
        let verdict = format!("PASS: {passed} passed, 0 failed, 0 not run");
        assert!(table.contains(&verdict), "{table}");
    }
}
