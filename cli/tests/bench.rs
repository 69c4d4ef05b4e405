//! `doca-storage bench`, with runs that are too short for meaningful results.

use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{PROGRAM, mentions};

fn bench(args: &[&str]) -> Output {
    Command::new(PROGRAM)
        .arg("bench")
        .args(["--rounds", "1", "--seconds", "0.02"])
        .args(args)
        .output()
        .expect("started")
}

/// A limit of the machine, because it takes the least time to measure.
const MEMCPY: &str = "memcpy: zero copy read 4 KiB x64";
const RING: &str = "bare ring: zero copy read 4 KiB x64";
const ZERO_COPY: &str = "rust: zero copy read 4 KiB x64";
const GGA_WRITES: &str = "rust: gga write";

#[test]
fn deployments_and_limits_are_measured() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("bench.html");
    let output = bench(&[
        "--only",
        RING,
        "--only",
        ZERO_COPY,
        "--only",
        MEMCPY,
        "--only",
        GGA_WRITES,
        "--json",
        "--report",
        page.to_str().expect("text"),
    ]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let measurements = document["measurements"].as_array().expect("a list");
    let names: Vec<_> = measurements
        .iter()
        .map(|one| one["series"]["name"].as_str().expect("a name"))
        .collect();
    let gga = format!("{GGA_WRITES} 4 KiB x64");
    for name in [RING, ZERO_COPY, MEMCPY, &gga] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for one in measurements {
        assert_eq!(one["failure"], Value::Null, "{one}");
        let run = &one["series"]["runs"][0];
        assert!(run["rate"].as_f64() > Some(0.0), "{one}");
        if one["subject"]["kind"] == "deployment" {
            let quantiles =
                ["p50_ns", "p99_ns", "p99_9_ns"].map(|name| run["latency"][name].as_f64());
            assert!(quantiles[0] > Some(0.0) && quantiles.is_sorted(), "{one}");
            assert!(run["cpu_ns"]["service"].as_f64() > Some(0.0), "{one}");
        }
    }
    let thresholds = thresholds_with(&document, "x64: of the bare ring");
    assert!(
        thresholds[0]["value"].as_f64() > Some(0.0),
        "{thresholds:?}"
    );
    assert_eq!(document["rounds_completed"], 1);
    let page = std::fs::read_to_string(page).expect("a page");
    let arguments = format!("--only '{GGA_WRITES}'");
    for text in [&gga, "histogram", &arguments] {
        assert!(page.contains(text), "{text}");
    }
}

/// The thresholds whose names contain `part`, with the reasons of skipped measurements.
fn thresholds_with(document: &Value, part: &str) -> Vec<Value> {
    let thresholds = document["thresholds"].as_array().expect("a list");
    let has = |threshold: &&Value| {
        threshold["name"]
            .as_str()
            .is_some_and(|name| name.contains(part))
    };
    thresholds.iter().filter(has).cloned().collect()
}

#[test]
fn first_ios_after_a_pause_are_compared_with_later_ones() {
    let output = bench(&["--only", "after a pause", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let measurements = document["measurements"].as_array().expect("a list");
    let of_kind = |kind| {
        let mut all = measurements.iter();
        all.find(|one| one["subject"]["kind"] == kind)
            .expect("measured")
    };
    let wake = &of_kind("wake_up")["series"]["runs"][0]["wake_up_ns"];
    assert!(wake.as_f64() > Some(0.0), "{measurements:?}");
    let one = of_kind("first_ios");
    assert_eq!(one["failure"], Value::Null, "{one}");
    let paused = &one["series"]["runs"][0]["after_pause"];
    for name in ["first_rate", "steady_rate", "first_ns", "steady_ns"] {
        assert!(paused[name].as_f64() > Some(0.0), "{name}: {one}");
    }
    assert!(paused["pause_seconds"].as_f64() >= Some(1.0), "{one}");
    let thresholds = thresholds_with(&document, "the first 1000 I/Os");
    assert!(
        thresholds[0]["value"].as_f64() > Some(0.0),
        "{thresholds:?}"
    );
}

/// The tracepoint that perf counts.
const TRACEPOINT: &str = "raw_syscalls:sys_enter";

#[test]
fn system_calls_are_counted_or_reported_as_unavailable() {
    let only = [
        ["--only", MEMCPY],
        ["--only", "system calls: zero copy read 4 KiB x64"],
    ]
    .concat();
    let output = bench(&[&only[..], &["--json"]].concat());
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let thresholds = thresholds_with(&document, "system calls per I/O");
    let left_out = document["left_out"].to_string();
    // perf may be missing, or not permitted to count.
    match thresholds.as_slice() {
        [] => assert!(left_out.contains(TRACEPOINT), "{left_out}"),
        thresholds => {
            assert!(thresholds[0]["value"].as_f64().is_some(), "{thresholds:?}");
            let measurements = document["measurements"].as_array().expect("a list");
            let counted = measurements
                .iter()
                .find(|one| one["subject"]["kind"] == "system_calls")
                .expect("counted");
            let calls = &counted["series"]["runs"][0]["system_calls"];
            let calls = ["initiator", "service", "targets", "yields"]
                .map(|name| calls[name].as_f64().expect("a number"));
            // Processes that share CPUs sometimes yield or sleep. In a run as short as this one, these calls outnumber
            // the calls that depend on the number of I/Os, and the difference may be negative.
            assert!(calls.iter().any(|calls| *calls != 0.0), "{counted}");
        }
    }

    // Without perf the threshold is missing, and the run does not pass.
    let output = Command::new(PROGRAM)
        .args(["bench", "--rounds", "1", "--seconds", "0.02"])
        .args(only)
        .arg("--json")
        .env("PATH", "")
        .output()
        .expect("started");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(
        thresholds_with(&document, "system calls").is_empty(),
        "{document}"
    );
    let left_out = document["left_out"].to_string();
    assert!(left_out.contains(TRACEPOINT), "{left_out}");
}

#[test]
fn statically_linked_roles_are_not_compared_with_twins() {
    let program = std::path::Path::new(PROGRAM);
    let ours = program.parent().expect("a directory").display();
    let output = bench(&[
        "--compare",
        &format!("cpp={ours}"),
        "--only",
        MEMCPY,
        "--json",
    ]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let left_out = document["left_out"].to_string();
    mentions(&left_out, &["--impl", "--library-path"]);
    // A deployment with exchanged roles is not measured.
    let output = bench(&[
        "--compare",
        &format!("cpp={ours}"),
        "--only",
        "no such thing",
    ]);
    let names = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(names.contains(&ZERO_COPY.replace("rust", "cpp")), "{names}");
    assert!(
        !names.contains("cpp + rust") && !names.contains("rust + cpp"),
        "{names}"
    );
}

/// A directory of programs that only print a usage, like that of the reference's initiators before 3.2.
fn reference_with_usage(usage: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    for role in [
        "initiator_comch",
        "comch_to_rdma_zero_copy",
        "comch_to_rdma_gga_offload",
        "target_rdma",
        "gga_offload_sbc_generator",
    ] {
        let path = directory.path().join(format!("doca_storage_{role}"));
        std::fs::write(&path, format!("#!/bin/sh\necho ' {usage}'\n")).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("set");
    }
    directory
}

#[test]
fn reference_of_an_earlier_release_needs_its_protocol_and_writes_no_gga() {
    for (usage, release) in [
        ("--task-count N --batch-size N", "3.0"),
        ("--task-count N", "3.1"),
    ] {
        let reference = reference_with_usage(usage);
        let compare = format!("cpp={}", reference.path().display());
        for protocol in ["3.0", "3.1", "3.2"] {
            let output = bench(&[
                "--compare",
                &compare,
                "--protocol",
                protocol,
                "--only",
                "none",
            ]);
            assert_eq!(output.status.code(), Some(2));
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let refused = format!("--protocol {protocol}: expected {release}");
            assert_eq!(text.contains(&refused), protocol != release, "{text}");
        }
        // The error lists the subjects.
        let output = bench(&["--compare", &compare, "--only", "none"]);
        let names = String::from_utf8_lossy(&output.stderr).into_owned();
        let cpp = GGA_WRITES.replace("rust", "cpp");
        for (name, is_there) in [
            (&*ZERO_COPY.replace("rust", "cpp"), true),
            (&cpp.replace("write", "read"), true),
            (&cpp, false),
            (GGA_WRITES, true),
        ] {
            assert_eq!(names.contains(name), is_there, "{name}: {names}");
        }
        let only = ["--only", MEMCPY, "--json"];
        let output = bench(&[&["--compare", &compare][..], &only].concat());
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // The releases that do not write.
        mentions(&document["left_out"].to_string(), &["gga", "3.0", "3.1"]);
    }
}

#[test]
fn interruption_keeps_completed_measurements() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("bench.html");
    let bench = Command::new(PROGRAM)
        .args(["bench", "--rounds", "1000", "--seconds", "0.02", "--json"])
        .args(["--only", MEMCPY, "--report"])
        .arg(&page)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    // The page exists after the first round, before the end of the run.
    while !page.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_raw(bench.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::INT).expect("it runs");
    let output = bench.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let runs = &document["measurements"][0]["series"]["runs"];
    assert!(
        runs.as_array().is_some_and(|runs| !runs.is_empty()),
        "{document}"
    );
    assert_eq!(document["interrupted"], true);
    assert_eq!(document["verdict"], "incomplete");
    let completed = document["rounds_completed"].as_u64().expect("a number");
    assert!((1..1000).contains(&completed), "{completed}");
    let page = std::fs::read_to_string(page).expect("a page");
    let banner = format!("<strong>INTERRUPTED</strong> after {completed} of 1000 rounds");
    assert!(page.contains(&banner), "{page}");
}

#[test]
fn invalid_comparison_is_an_error() {
    let output = bench(&["--compare", "cpp=/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("doca_storage_initiator_comch"), "{text}");
    let output = bench(&["--only", "no such thing"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains(MEMCPY), "{text}");
}

#[test]
fn files_are_checked_before_anything_is_measured() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("no.json"), "{}").expect("written");
    for (flag, file) in [
        ("--report", path("missing/page.html")),
        ("--report", path("")),
        ("--baseline", path("missing.json")),
        ("--baseline", path("no.json")),
    ] {
        // The full measurement would take hours.
        let output = Command::new(PROGRAM)
            .args(["bench", "--seconds", "3600", flag, &file])
            .output()
            .expect("started");
        assert_eq!(output.status.code(), Some(1), "{flag} {file}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(flag), "{text}");
    }
}

#[test]
fn earlier_run_is_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let before = directory.path().join("before.json");
    let only = ["--only", MEMCPY, "--json"];
    std::fs::write(&before, bench(&only).stdout).expect("written");
    let baseline = ["--baseline", before.to_str().expect("text")];
    let output = bench(&[only.as_slice(), baseline.as_slice()].concat());
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let change = &document["comparison"]["changes"][0];
    assert_eq!(change["name"], MEMCPY);
    let number = |name: &str| change[name].as_f64().expect("a number");
    assert!((number("now") / number("then") - 1.0 - number("change")).abs() < 1e-9);
    // With one round on each side there is no spread.
    assert_eq!(
        (&change["spread"], &change["trend"]),
        (&Value::Null, &"unknown".into())
    );
}
