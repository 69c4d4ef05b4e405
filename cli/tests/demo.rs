//! The demo in all the shapes that it promises.

mod support;

use serde_json::Value;
use support::Bench;

/// Runs the demo with few throughput operations (the validation runs visit every block all the same).
fn demo(arguments: &[&str]) {
    let base = ["demo", "--json"];
    let output = Bench::new()
        .command(&[&base[..], arguments].concat())
        .output()
        .expect("the program starts");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let report: Value = serde_json::from_str(&stdout).expect("a JSON document");
    assert_eq!(report["verdict"], "PASS", "{report}");
    assert_eq!(
        report["sessions"].as_array().map(Vec::len),
        Some(5),
        "{report}"
    );
}

#[test]
fn with_its_defaults() {
    demo(&["--operations", "2000"]);
}

#[test]
fn with_two_workers_and_four_blocks_per_io() {
    demo(&[
        "--workers",
        "2",
        "--blocks-per-io",
        "4",
        "--operations",
        "2000",
    ]);
}

#[test]
fn with_a_local_region_smaller_than_the_storage() {
    demo(&[
        "--local-io-region-size",
        "65536",
        "--workers",
        "2",
        "--operations",
        "2000",
    ]);
}

#[test]
fn with_blocks_of_512_bytes() {
    demo(&["--block-size", "512", "--operations", "2000"]);
}

#[test]
fn with_blocks_of_one_mebibyte() {
    demo(&[
        "--block-size",
        "1048576",
        "--transactions",
        "8",
        "--operations",
        "100",
    ]);
}

#[test]
fn with_one_transaction() {
    demo(&["--transactions", "1", "--operations", "500"]);
}

#[test]
fn an_unusable_option_is_explained() {
    let output = Bench::new()
        .command(&["demo", "--local-io-region-size", "100", "--workers", "3"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("--local-io-region-size") && stderr.contains("12288"),
        "{stderr}"
    );
}
