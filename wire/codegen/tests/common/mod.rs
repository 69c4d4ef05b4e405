//! Small schemas, compiled with the real options file.
#![allow(dead_code, reason = "every test uses another part of this")]

use std::{fs, path::Path};

use wire_codegen::{Error, Problem, Schema};

/// The options file of this project.
pub const OPTIONS: &str = include_str!("../../../../proto/options/layout.proto");

/// Checks a schema of one file, with the usual file header.
pub fn check(declarations: &str) -> Result<Schema, Error> {
    check_file(&format!("{}{declarations}", head("BYTE_ORDER_BIG_ENDIAN")))
}

/// Start of a schema file.
pub fn head(byte_order: &str) -> String {
    format!(
        r#"
        syntax = "proto3";
        package test;
        import "google/protobuf/empty.proto";
        import "options/layout.proto";
        option (doca_storage.layout.file) = {{ module: "test" byte_order: {byte_order} }};
        "#
    )
}

/// Checks a schema of one file.
pub fn check_file(text: &str) -> Result<Schema, Error> {
    check_with_options(text, OPTIONS)
}

/// Checks a schema of one file that imports another options file.
pub fn check_with_options(text: &str, options: &str) -> Result<Schema, Error> {
    check_files(&[("test.proto", text)], options)
}

/// Checks a schema of several files.
pub fn check_files(files: &[(&str, &str)], options: &str) -> Result<Schema, Error> {
    let dir = tempfile::tempdir().expect("a directory for the schema");
    write(dir.path(), files, options);
    let names: Vec<_> = files.iter().map(|&(name, _)| name).collect();
    wire_codegen::check(&[dir.path()], &names)
}

/// Writes the files of a schema to a directory.
pub fn write(dir: &Path, files: &[(&str, &str)], options: &str) {
    fs::create_dir(dir.join("options")).expect("a directory for the options");
    fs::write(dir.join("options/layout.proto"), options).expect("the options can be written");
    for (name, text) in files {
        // Comments are mandatory; `#` stands for one in tests of other features.
        let text = text.replace('#', "\n// Documented.");
        fs::write(dir.join(name), text).expect("the schema can be written");
    }
}

/// Asserts that a schema is refused for one reason, and that the error names the location.
#[track_caller]
pub fn assert_refused(declarations: &str, place: &str, problem: Problem) {
    assert_error(check(declarations), place, problem);
}

/// Asserts that a check has failed with a particular error.
#[track_caller]
pub fn assert_error(result: Result<Schema, Error>, place: &str, problem: Problem) {
    let error = match result {
        Err(Error::Schema(error)) => error,
        Err(other) => panic!("expected {problem}, got another kind of error: {other}"),
        Ok(schema) => panic!("expected {problem}, the schema was accepted: {schema:#?}"),
    };
    assert_eq!(error.problem, problem);
    let expected = if place.is_empty() {
        String::new()
    } else {
        format!("{place}: ")
    };
    assert_eq!(
        error.to_string(),
        format!("test.proto: {expected}{problem}")
    );
}
