//! Common start-up and exit of every program: flags, banner, logs, signals, exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::console::{self, Console};
use crate::errln;
use crate::failure::Failure;
use crate::flags::{self, FlagsError, RoleFlags};
use crate::logging;
use crate::metrics::{Metrics, MetricsAddress};
use crate::notify;
use crate::shutdown::Shutdown;

/// Resources of a program besides its flags.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Console for the program's output.
    pub console: Console,
    /// Shutdown request, set by signals.
    pub shutdown: Shutdown,
    /// Metrics served with `--metrics`.
    pub metrics: Metrics,
}

impl Environment {
    /// Announces on the console, and to a service manager, that the program is ready for its peers.
    pub fn announce_ready(&self, line: impl std::fmt::Display) {
        self.console.announce(line);
        notify::ready();
    }
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
    let output = *flags.output();
    let console = Console::new(output.output);
    console.announce(banner);
    logging::start(flags.general(), output.log_format);
    let result = check_variables()
        .and_then(|()| environment(name, console, output.metrics))
        .and_then(|environment| body(flags, environment));
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            errln!("{name}: error: {failure}");
            ExitCode::FAILURE
        }
    };
    console::conclude_role(name, code)
}

/// Levels of `SOFTDOCA_LOG`. softdoca itself, in programs of others, only warns about an unknown one.
const SOFTDOCA_LEVELS: [&str; 7] = [
    "critical", "error", "warning", "warn", "info", "debug", "trace",
];

fn check_variables() -> Result<(), Failure> {
    match std::env::var_os("SOFTDOCA_LOG") {
        Some(level) if !SOFTDOCA_LEVELS.iter().any(|it| level == *it) => {
            Err(Failure::invalid(format!(
                "SOFTDOCA_LOG: expected critical, error, warning, info, debug or trace, got {:?}",
                level.display().to_string()
            )))
        }
        _ => Ok(()),
    }
}

fn environment(
    name: &'static str,
    console: Console,
    address: Option<MetricsAddress>,
) -> Result<Environment, Failure> {
    let shutdown = Shutdown::on_signals().map_err(|error| {
        Failure::new(
            doca::ErrorCode::INITIALIZATION,
            format!("signal handlers: {error}"),
        )
    })?;
    let mut metrics = Metrics::default();
    if let Some(address) = address {
        let local;
        (metrics, local) = Metrics::serve(name, address)?;
        console.announce(format_args!("metrics at http://{local}/metrics"));
    }
    Ok(Environment {
        console,
        shutdown,
        metrics,
    })
}
