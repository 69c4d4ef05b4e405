//! Tests that need a process of their own.

use std::process::{Command, Output};

/// Runs one test function of this program in a process of its own, with more in its environment, and answers what became
/// of it. `test` is the function's path, as the harness knows it.
pub(crate) fn child(test: &str, environment: &[(&str, &str)]) -> Output {
    let this = std::env::current_exe().expect("a test program");
    Command::new(this)
        .args(["--exact", "--nocapture", test])
        .envs(environment.iter().copied())
        .output()
        .expect("a process")
}
