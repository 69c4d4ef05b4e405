//! Volumes over real targets and services, each a process.
//!
//! The program starts itself as roles and, before that, as the tests, in a private runtime directory.

mod asynchronous;
mod deployment;
mod io;
mod reconnection;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};

/// Environment variable with the name of the role to run.
const ROLE: &str = "VOLUME_TEST_ROLE";
/// Environment variable that is set in the private runtime directory.
const INSIDE: &str = "VOLUME_TEST_INSIDE";

fn main() -> ExitCode {
    if let Some(role) = std::env::var_os(ROLE) {
        let run: fn(Vec<OsString>) -> ExitCode = match role.to_str() {
            Some("target") => role_target::run,
            Some("zero_copy") => role_zero_copy::run,
            _ => panic!("expected a role, got {role:?}"),
        };
        return run(std::env::args_os().collect());
    }
    if std::env::var_os(INSIDE).is_none() {
        return in_directory();
    }
    let arguments = Arguments::from_args();
    let trials = [io::TESTS, asynchronous::TESTS, reconnection::TESTS].concat();
    let trials = trials
        .into_iter()
        .map(|(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Starts the program again, in a private runtime directory.
fn in_directory() -> ExitCode {
    let directory = tempfile::Builder::new()
        .prefix("volume")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
        .expect("a directory");
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .env("SOFTDOCA_RUNTIME_DIR", directory.path())
        .status()
        .expect("the program starts");
    if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
