//! `doca-storage conformance faults`: real roles, with one killed, stopped or asked to exit in a phase of a session.
//!
//! All faults take minutes. Here, each role in each phase gets one fault, alternating, so that each role and
//! each phase gets every kind; servers of several sessions and degraded services get all faults during I/O.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_doca-storage");

fn faults(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "faults", "--json", "--jobs", "8"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    })
}

/// Checks that all selected faults are survived, and that there are `count` of them.
fn survives(count: usize, arguments: &[&str]) {
    let output = faults(arguments);
    let document = document(&output);
    let failed: Vec<&Value> = (document["cases"].as_array().into_iter().flatten())
        .filter(|case| case["result"] != "passed")
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(document["injected"], count);
    assert_eq!(document["survived"], count);
    assert_eq!(document["lost_or_wrong"], 0);
    assert!(output.status.success());
}

#[test]
fn zero_copy_handles_a_fault_of_each_role_in_each_phase() {
    survives(47, &["--some", "--only", "faults.zero_copy: "]);
}

#[test]
fn gga_handles_a_fault_of_each_role_in_each_phase() {
    survives(79, &["--some", "--only", "faults.gga: "]);
}

/// A stopped role resumes during the next session.
#[test]
fn servers_with_several_sessions_continue_after_any_peer_dies_or_stops() {
    let only = |layout| format!("faults.{layout}.serving: ");
    let (zero_copy, gga) = (only("zero_copy"), only("gga"));
    let all = list(&["--only", &zero_copy, "--only", &gga]);
    let io: Vec<&str> = all.lines().filter(|name| name.contains(", io, ")).collect();
    let arguments: Vec<&str> = io.iter().flat_map(|name| ["--only", name]).collect();
    survives(16, &arguments);
}

#[test]
fn degraded_service_continues_without_a_target_until_it_rejoins() {
    let all = list(&["--only", "faults.gga.degraded: "]);
    let io: Vec<&str> = all.lines().filter(|name| name.contains(", io, ")).collect();
    let arguments: Vec<&str> = io.iter().flat_map(|name| ["--only", name]).collect();
    survives(12, &arguments);
}

fn list(arguments: &[&str]) -> String {
    let output = faults(&[&["--list"][..], arguments].concat());
    String::from_utf8(output.stdout).expect("names")
}

/// Our programs, except for one role, which is a script.
fn with_script(role: &str, script: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    symlink(PROGRAM, directory.path().join("doca-storage")).expect("a link");
    let path = directory.path().join(role);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    directory
}

/// Returns the reason why this fault was not survived, and the number of lost or wrong I/Os.
fn fails(programs: &TempDir, name: &str) -> (String, Value) {
    let directory = programs.path().to_str().expect("a plain path");
    let output = faults(&["--bin", directory, "--only", name, "--notice", "5"]);
    assert_eq!(output.status.code(), Some(1));
    let document = document(&output);
    let case = &document["cases"][0];
    assert_eq!(case["result"], "failed", "{document:#}");
    let reason = case["reason"].as_str().expect("a reason").to_owned();
    (reason, document["lost_or_wrong"].clone())
}

#[test]
fn target_that_loses_acknowledged_writes_is_detected() {
    let script = format!(
        r#"for word in "$@"; do case $word in */blocks-*) rm -f "$word";; esac; done
exec {PROGRAM} target "$@""#
    );
    let programs = with_script("doca_storage_target_rdma", &script);
    let (reason, lost) = fails(&programs, "faults.zero_copy: service, io, SIGKILL");
    assert!(reason.contains("1 I/Os were lost or wrong"), "{reason}");
    assert_eq!(lost, 1);
}

#[test]
fn service_that_reports_success_after_its_target_died_is_detected() {
    let script = format!("{PROGRAM} zero-copy \"$@\"\nexit 0");
    let programs = with_script("doca_storage_comch_to_rdma_zero_copy", &script);
    let (reason, _) = fails(&programs, "faults.zero_copy: target, io, SIGKILL");
    assert!(
        reason.contains("service exited with success, without noticing the fault"),
        "{reason}"
    );
}

/// A killed shell leaves its initiator running.
#[test]
fn leftover_process_is_detected() {
    let script = format!("{PROGRAM} initiator \"$@\"");
    let programs = with_script("doca_storage_initiator_comch", &script);
    let (reason, _) = fails(&programs, "faults.zero_copy: initiator, io, SIGKILL");
    // The service is still running, too, until the target is killed after the timeout.
    assert!(reason.contains("target still ran after 5 s"), "{reason}");
}
