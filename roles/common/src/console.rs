//! Output of a program: text for people, or one JSON document for programs.
//!
//! `println!` and `eprintln!` panic when the stream is closed or full. The functions here, and the macros
//! [`outln!`](crate::outln), [`out!`](crate::out) and [`errln!`](crate::errln), do not: the first failure of standard
//! output is stored and decides the exit status in [`conclude`]; failures of standard error are ignored, because they
//! cannot be reported.

use std::fmt;
use std::fmt::Write;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;

use crate::flags::OutputFormat;

/// Exit status of a program whose output went to a pipe that was closed, as shells report SIGPIPE.
const EXIT_CLOSED_PIPE: u8 = 141;

/// Exit code for wrong usage: flags that are unknown, missing, wrong, or do not fit together.
pub const EXIT_USAGE: u8 = 2;

/// Why standard output did not take everything.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints to standard output. Prefer [`out!`](crate::out).
pub fn print(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let result = out.write_fmt(text).and_then(|()| out.flush());
    printed(result);
}

/// Prints to standard error. Prefer [`errln!`](crate::errln).
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Stores the first failure to write to standard output for [`conclude`].
pub fn printed(result: io::Result<()>) {
    if let Err(error) = result {
        let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(error);
    }
}

/// Prints a line to standard output, and never panics.
#[macro_export]
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::console::print(::std::format_args!("{}\n", ::std::format_args!($($argument)*)))
    };
}

/// Prints to standard output, and never panics.
#[macro_export]
macro_rules! out {
    ($($argument:tt)*) => {
        $crate::console::print(::std::format_args!($($argument)*))
    };
}

/// Prints a line to standard error, and never panics.
#[macro_export]
macro_rules! errln {
    ($($argument:tt)*) => {
        $crate::console::print_error(::std::format_args!("{}\n", ::std::format_args!($($argument)*)))
    };
}

/// Returns the exit status of the program called `name`, which would exit with `code`: if its output is incomplete,
/// reports that and fails. A pipe closed by its reader (`| head -1`) is not reported: a program that only prints exits
/// quietly, as if by SIGPIPE.
#[must_use]
pub fn conclude(name: &str, code: ExitCode) -> ExitCode {
    match failure() {
        None => code,
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            if code == ExitCode::SUCCESS {
                ExitCode::from(EXIT_CLOSED_PIPE)
            } else {
                code
            }
        }
        Some(error) => incomplete(name, &error),
    }
}

/// As [`conclude`], for a program whose work is more than its output: a closed pipe does not change its exit status.
#[must_use]
pub(crate) fn conclude_role(name: &str, code: ExitCode) -> ExitCode {
    match failure() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => incomplete(name, &error),
        _ => code,
    }
}

fn failure() -> Option<io::Error> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn incomplete(name: &str, error: &io::Error) -> ExitCode {
    errln!("{name}: error: standard output: {error}; what was printed is incomplete");
    ExitCode::FAILURE
}

/// Output of a role. A failure to print does not end a storage session; [`conclude`] reports it at exit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Console {
    format: OutputFormat,
}

impl Console {
    /// Creates a console for the given format.
    #[must_use]
    pub fn new(format: OutputFormat) -> Self {
        Self { format }
    }

    /// Output format.
    #[must_use]
    pub fn format(&self) -> OutputFormat {
        self.format
    }

    /// Prints a line for people while the program runs: on standard output, or, if that is reserved for a JSON
    /// document, on standard error.
    pub fn announce(&self, line: impl fmt::Display) {
        match self.format {
            OutputFormat::Text => outln!("{line}"),
            OutputFormat::Json => errln!("{line}"),
        }
    }

    /// Prints the program's result, as text or as JSON.
    pub fn report<R: Serialize + fmt::Display>(&self, report: &R) {
        match self.format {
            OutputFormat::Text => out!("{report}"),
            OutputFormat::Json => {
                let mut out = io::stdout().lock();
                let result = serde_json::to_writer(&mut out, report)
                    .map_err(io::Error::from)
                    .and_then(|()| writeln!(out))
                    .and_then(|()| out.flush());
                printed(result);
            }
        }
    }
}

// Progress bar for long-running work on a terminal.

/// Creates a bar on standard error for `total` items called `unit`, with rate and remaining time.
#[must_use]
pub fn progress_bar(total: u64, unit: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{wide_bar} {human_pos}/{human_len} {msg}, {rate}, {eta} left",
    )
    .expect("a constant template")
    // indicatif's own rate has four decimals, too many to read while it changes.
    .with_key("rate", |state: &ProgressState, text: &mut dyn Write| {
        // A failure to format the rate has no consequence.
        let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
    });
    ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
        .with_style(style)
        .with_message(unit)
}
