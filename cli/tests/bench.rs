//! `doca-storage bench`, with runs that are too short to mean anything.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_doca-storage"))
        .arg("bench")
        .args(["--rounds", "1", "--seconds", "0.02"])
        .args(args)
        .output()
        .expect("started")
}

#[test]
fn deployments_and_limits_are_measured_side_by_side() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("bench.html");
    let output = bench(&[
        "--only",
        "zero copy read 4 KiB x64",
        "--only",
        "gga write",
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
    for name in [
        "bare ring: zero copy read 4 KiB x64",
        "rust: zero copy read 4 KiB x64",
        "memcpy: zero copy read 4 KiB x64",
        "rust: gga write 4 KiB x64",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for one in measurements {
        assert_eq!(one["failure"], Value::Null, "{one}");
        let run = &one["series"]["runs"][0];
        assert!(run["rate"].as_f64() > Some(0.0), "{one}");
        if one["subject"]["kind"] == "deployment" {
            assert!(run["latency"]["p50_ns"].as_f64() > Some(0.0), "{one}");
            assert!(run["cpu_ns"]["service"].as_f64() > Some(0.0), "{one}");
        }
    }
    let bars = document["bars"].as_array().expect("a list");
    let ring = bars
        .iter()
        .find(|bar| {
            bar["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("x64: of the bare ring"))
        })
        .expect("the first bar");
    assert!(ring["value"].as_f64() > Some(0.0), "{ring}");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("rust: gga write 4 KiB x64"));
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let output = bench(&["--compare", "cpp=/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("doca_storage_initiator_comch"), "{text}");
    let output = bench(&["--only", "no such thing"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("bare ring: zero copy read 4 KiB x1"),
        "{text}"
    );
}
