//! The C tests and the examples under valgrind's memcheck: no invalid access, no use of uninitialised memory, and no
//! leak at exit.
//!
//! Without valgrind the tests are reported as ignored, never as passed: the binary has its own harness, because Rust's
//! cannot decide that at run time. CI has valgrind, and fails without it.

mod support;

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use softdoca_sdk::Release;
use support::{Language, PROGRAMS, PROGRAMS_OF_2_X, Sdk, compile, repository_source};

/// Exit code if valgrind reports an error (`--error-exitcode`); the programs themselves use 0 and 1.
const FINDING: i32 = 99;

/// Runs a pair of processes through a tool.
type Example = fn(&Sdk, &[OsString]);

/// Installed by the first test, and removed after the last one.
#[derive(Default)]
struct Installation(OnceLock<Sdk>);

impl Installation {
    fn sdk(&self) -> &Sdk {
        self.0.get_or_init(Sdk::install)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let installation = Arc::new(Installation::default());
    let mut trials: Vec<Trial> = PROGRAMS
        .iter()
        .map(|&name| {
            let installation = Arc::clone(&installation);
            Trial::test(format!("c_tests::{name}"), move || {
                each_test_of(installation.sdk(), name)
            })
        })
        .collect();
    trials.extend(PROGRAMS_OF_2_X.iter().map(|&name| {
        // One release suffices: the functions of the other releases call the same functions.
        Trial::test(format!("c_tests::{name}"), move || {
            each_test_of(&Sdk::install_for(Release::V2_5), name)
        })
    }));
    let mut examples: Vec<(&str, Example)> = vec![("comch_ping_pong", support::ping_pong)];
    if !Language::Cxx.compilers().is_empty() {
        examples.push(("rdma_write", support::write_to_a_peer));
    }
    trials.extend(examples.into_iter().map(|(name, example)| {
        let installation = Arc::clone(&installation);
        Trial::test(format!("examples::{name}"), move || {
            example(installation.sdk(), &memcheck());
            Ok(())
        })
    }));
    drop(installation);
    if !is_there() {
        let what = "valgrind is not installed (apt-get install valgrind)";
        if env::var_os("CI").is_some() {
            eprintln!("{what}");
            return ExitCode::FAILURE;
        }
        eprintln!("NOT RUN: {what}");
        // With --ignored, the tests were requested explicitly and must run.
        trials = trials
            .into_iter()
            .map(|trial| trial.with_ignored_flag(true))
            .collect();
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn is_there() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// valgrind with its flags.
fn memcheck() -> Vec<OsString> {
    let mut suppressions = OsString::from("--suppressions=");
    suppressions.push(repository_source("valgrind.supp"));
    let mut words: Vec<OsString> = [
        "valgrind",
        "--quiet",
        // Fair scheduling, because threads wait for each other.
        "--fair-sched=yes",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
    ]
    .map(OsString::from)
    .into();
    words.push(format!("--error-exitcode={FINDING}").into());
    words.push(suppressions);
    words
}

fn each_test_of(sdk: &Sdk, name: &str) -> Result<(), Failed> {
    let program = compile(sdk, name);
    let output = sdk
        .command_through(&memcheck(), &program, &format!("run-{name}"))
        .arg("--each")
        // Programs run some 50 times slower under valgrind, one thread at a time: 3 s are not enough on a machine with other load.
        .env("SOFTDOCA_AGENT_TIMEOUT_MS", "60000")
        .env("SOFTDOCA_COPY_TIMEOUT_MS", "60000")
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let found = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}\n{found}", output.status).into())
}
