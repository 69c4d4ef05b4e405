//! `doca-storage conformance layout`.

use std::fs;
use std::process::{Command, Output};

fn layout(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_doca-storage"))
        .args(["conformance", "layout"])
        .args(args)
        .output()
        .expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn all_vectors_pass_and_are_counted() {
    let output = layout(&[]);
    assert!(output.status.success(), "{output:?}");
    let text = text(&output.stdout);
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
    let text = text(&output.stdout);
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
    let text = text(&output.stdout);
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
    assert!(
        text(&none.stderr).contains("expected vector files"),
        "{none:?}"
    );
    fs::write(directory.path().join("x.toml"), "name = 1").expect("written");
    let broken = layout(&["--vectors", path]);
    assert!(
        !broken.status.success() && text(&broken.stderr).contains("x.toml"),
        "{broken:?}"
    );
    let unknown = layout(&["--only", "nothing"]);
    assert!(
        text(&unknown.stderr).contains("io_message_read"),
        "{unknown:?}"
    );
}
