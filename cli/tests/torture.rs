//! `doca-storage conformance torture`: no promise to users of the storage is violated by a short selection of its attacks.

use std::process::Command;

use crate::support::{PROGRAM, json};

#[test]
fn short_selection_of_attacks_violates_no_promise() {
    let output = Command::new(PROGRAM)
        .args(["conformance", "torture", "--short", "--json"])
        .output()
        .expect("started");
    // The error contains the seed, with which a failure can be reproduced.
    let stderr = String::from_utf8_lossy(&output.stderr);
    let totals = json(&output);
    assert!(output.status.success(), "{stderr}{totals:#}");
    assert_eq!(totals["promises_without_attack"], serde_json::json!([]));
    let rows = totals["rows"].as_array().expect("rows");
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row["violations"], serde_json::json!([]), "{row:#}");
        let is_run = row["runs"] == 1 && row["verified"].as_u64() > Some(0);
        assert!(is_run || row["not_run"].is_string(), "{row:#}");
    }
}

#[test]
fn unknown_attack_is_wrong_usage() {
    let output = Command::new(PROGRAM)
        .args(["conformance", "torture", "--only", "S99"])
        .output()
        .expect("started");
    assert_eq!(output.status.code(), Some(2));
}
