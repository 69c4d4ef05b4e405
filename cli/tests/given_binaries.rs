//! Tests that need programs built elsewhere. If these are not given, the tests are reported as ignored
//! and not as passed: this binary has its own harness, because Rust's cannot decide that at run time.
//!
//! * `DOCA_REFERENCE_BIN`, the C++ reference's programs, and `DOCA_REFERENCE_LIB`, the DOCA libraries that they need: the matrix.
//! * `DOCA_SAMPLES_BIN`, DOCA's own samples, and `DOCA_SAMPLES_LIBRARY_PATH`: the samples.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_doca-storage");

/// Mixes with the reference in every role once. All mixes would take a quarter of an hour.
const MIXES: [&str; 6] = [
    "cpp,rust,cpp",
    "rust,cpp,rust",
    "cpp,cpp,cpp",
    "rust,cpp,rust,cpp,rust",
    "cpp,rust,cpp,rust,cpp",
    "cpp,cpp,rust,rust,cpp",
];
/// Number of checks per mix.
const CHECKS: usize = 7;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = vec![
        given(
            "ours_and_the_reference_work_together",
            "DOCA_REFERENCE_BIN",
            matrix,
        ),
        given("the_samples_come_to_their_end", "DOCA_SAMPLES_BIN", samples),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test that gets the directory named by this environment variable.
fn given(name: &str, variable: &'static str, test: fn(&Path) -> Result<(), Failed>) -> Trial {
    let directory = std::env::var_os(variable).filter(|path| !path.is_empty());
    let Some(directory) = directory else {
        eprintln!("NOT RUN: {name}: {variable} names no directory");
        // Fails if it is requested explicitly (--ignored).
        return Trial::test(name, move || {
            Err(format!("expected {variable} to name a directory").into())
        })
        .with_ignored_flag(true);
    };
    Trial::test(name, move || test(Path::new(&directory)))
}

/// Flags for the library directory named by an environment variable.
fn library_path(variable: &str) -> Vec<OsString> {
    match std::env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(directory) => vec!["--library-path".into(), directory],
        None => Vec::new(),
    }
}

fn matrix(reference: &Path) -> Result<(), Failed> {
    let ours = Path::new(PROGRAM).parent().ok_or("a directory")?;
    let mut command = Command::new(PROGRAM);
    command
        .args(["conformance", "matrix", "--operations", "300"])
        .args(["--jobs", "3", "--json"])
        .args(["--impl", &format!("rust={}", ours.display())])
        .args(["--impl", &format!("cpp={}", reference.display())])
        .args(library_path("DOCA_REFERENCE_LIB"));
    for mix in MIXES {
        command.args(["--only", mix]);
    }
    let output = command.output()?;
    let document: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let cases = document["cases"].as_array().ok_or("a list of cases")?;
    let failed: Vec<_> = cases
        .iter()
        .filter(|case| case["result"] != "passed")
        .collect();
    if !failed.is_empty() {
        return Err(format!("{failed:#?}").into());
    }
    if cases.len() != MIXES.len() * CHECKS {
        return Err(format!(
            "expected {} cases, got {}",
            MIXES.len() * CHECKS,
            cases.len()
        )
        .into());
    }
    Ok(())
}

fn samples(directory: &Path) -> Result<(), Failed> {
    let output = Command::new(PROGRAM)
        .args(["conformance", "samples", "--bin"])
        .arg(directory)
        .args(library_path("DOCA_SAMPLES_LIBRARY_PATH"))
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stdout).into_owned().into())
}
