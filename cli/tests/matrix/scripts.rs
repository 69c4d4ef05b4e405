//! Scripts as implementations, and helpers for the command's results.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_doca-storage");
pub const TARGET: &str = "doca_storage_target_rdma";
pub const INITIATOR: &str = "doca_storage_initiator_comch";
pub const GGA_OFFLOAD: &str = "doca_storage_comch_to_rdma_gga_offload";

pub fn matrix(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "matrix", "--operations", "300"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// Directory of our program, as an implementation.
pub fn ours() -> String {
    let directory = Path::new(PROGRAM).parent().expect("a directory");
    format!("rust={}", directory.display())
}

/// Scripts as programs of an implementation.
pub struct Scripts(TempDir);

impl Scripts {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub fn add(self, name: &str, script: &str) -> Self {
        let path = self.0.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        self
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn implementation(&self) -> String {
        format!("own={}", self.0.path().display())
    }
}

/// Cases of a document: mix and check, result, reason, cell, note.
pub fn cases(output: &Output) -> Vec<Value> {
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    document["cases"].as_array().expect("cases").clone()
}

pub fn case<'a>(cases: &'a [Value], name: &str) -> &'a Value {
    let found = cases.iter().find(|case| case["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {cases:#?}"))
}

pub fn reason<'a>(cases: &'a [Value], name: &str) -> &'a str {
    let case = case(cases, name);
    assert_eq!(case["result"], "failed", "{case:#}");
    case["reason"].as_str().expect("a reason")
}
