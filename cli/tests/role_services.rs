//! `doca-storage conformance role` with our services.

use std::fs;
use std::process::{Command, Output};

/// Number of checks common to both services.
const COMMON: usize = 80;

fn role(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_doca-storage"))
        .args(["conformance", "role"])
        .args(args)
        .output()
        .expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn passes(name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let junit = directory.path().join("role.xml");
    let output = role(&[
        name,
        "--timeout",
        "60",
        "--junit",
        junit.to_str().expect("text"),
    ]);
    assert!(output.status.success(), "{}", text(&output.stdout));
    let xml = fs::read_to_string(junit).expect("a document");
    assert!(xml.contains("failures=\"0\""), "{xml}");
    let cases = xml.matches("<testcase ").count();
    assert!(cases > COMMON, "{cases} checks");
}

#[test]
fn the_zero_copy_service_passes() {
    passes("zero-copy");
}

#[test]
fn the_gga_offload_service_passes() {
    passes("gga-offload");
}

#[test]
fn program_that_is_not_a_service_fails() {
    for name in ["zero-copy", "gga-offload"] {
        let args = [
            name,
            "--bin",
            "/bin/true",
            "--timeout",
            "1",
            "--only",
            "ids",
        ];
        let output = role(&args);
        assert_eq!(output.status.code(), Some(1));
        let text = text(&output.stdout);
        assert!(text.contains("2 failed"), "ids and unusual-ids: {text}");
        assert!(text.contains("expected a service to connect"), "{text}");
    }
}
