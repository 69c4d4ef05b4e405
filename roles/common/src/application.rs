//! The frame of every program: flags, banner, logs, signals, exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::console::{self, Console};
use crate::errln;
use crate::failure::Failure;
use crate::flags::{self, FlagsError, RoleFlags};
use crate::logging;
use crate::shutdown::Shutdown;

/// What a program needs besides its flags.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Where it prints.
    pub console: Console,
    /// Whether it was asked to end.
    pub shutdown: Shutdown,
}

/// Runs the program called `name`: reads its flags from `args`, starts logs and signal handling,
/// and calls `body`. Exit codes are the reference's: 0 for success, help and version, else 1.
pub fn run<F: RoleFlags>(
    name: &'static str,
    args: impl IntoIterator<Item = OsString>,
    body: impl FnOnce(F, Environment) -> Result<(), Failure>,
) -> ExitCode {
    let banner = format!("{name}: v{}", env!("CARGO_PKG_VERSION"));
    let flags: F = match flags::read(name, args) {
        Ok(flags) => flags,
        Err(outcome) => {
            Console::default().announce(banner);
            let code = match outcome {
                FlagsError::Information(text) => {
                    if !text.is_empty() {
                        Console::default().announce(text.trim_end());
                    }
                    ExitCode::SUCCESS
                }
                FlagsError::Usage(text) => {
                    errln!("{}", text.trim_end());
                    ExitCode::FAILURE
                }
            };
            return console::conclude(name, code);
        }
    };
    let console = Console::new(flags.output());
    console.announce(banner);
    logging::start(flags.general());
    let result = Shutdown::on_signals()
        .map_err(|error| {
            Failure::new(
                doca::ErrorCode::INITIALIZATION,
                format!("signal handlers: {error}"),
            )
        })
        .and_then(|shutdown| body(flags, Environment { console, shutdown }));
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            errln!("{name}: error: {failure}");
            ExitCode::FAILURE
        }
    };
    console::conclude_role(name, code)
}
