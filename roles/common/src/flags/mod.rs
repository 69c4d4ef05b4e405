//! Command line flags: DOCA's general flags, the JSON file, and how a role's flags are read.
//!
//! A role describes its own flags as a [`clap::Parser`] struct that flattens [`GeneralFlags`] and
//! [`OutputFlags`], and hands its arguments to [`read`]. Values come from the command line, then
//! from the JSON file that `-j` names, then from defaults.

mod json;
mod usage;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, Parser, ValueEnum};

use crate::failure::Failure;
use crate::metrics::MetricsAddress;

pub use values::{
    LogLevel, Patience, SessionLimit, channel_name, cpu, duration, listen_port, mebibytes,
    nonzero_u32, number_u32, patience, server_address, size, size_u32,
};

/// Heading of DOCA's general flags in the usage text.
pub const GENERAL_HEADING: &str = "DOCA Flags";
/// Heading of a role's own flags in the usage text; [`read`] gives it to all flags without one.
pub const PROGRAM_HEADING: &str = "Program Flags";

/// The flags that every DOCA program has.
#[derive(Debug, Clone, Args)]
pub struct GeneralFlags {
    /// Print a help synopsis
    #[arg(short = 'h', long = "help", action = ArgAction::Help, help_heading = GENERAL_HEADING)]
    help: Option<bool>,

    /// Print program version information
    #[arg(short = 'v', long = "version", action = ArgAction::Version, help_heading = GENERAL_HEADING)]
    version: Option<bool>,

    /// Set the (numeric) log level for the program
    /// <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>
    #[arg(short = 'l', long, value_name = "LEVEL", default_value = "50", value_parser = LogLevel::parse, help_heading = GENERAL_HEADING)]
    pub log_level: LogLevel,

    /// Set the SDK (numeric) log level for the program
    /// <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>
    #[arg(long, value_name = "LEVEL", default_value = "40", value_parser = LogLevel::parse, help_heading = GENERAL_HEADING)]
    pub sdk_log_level: LogLevel,

    /// Parse command line flags from an input json file
    #[arg(short = 'j', long, value_name = "FILE", help_heading = GENERAL_HEADING)]
    pub json: Option<PathBuf>,
}

/// How a program prints what it has to say on standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The reference's text.
    #[default]
    Text,
    /// One JSON document at the end; everything else goes to standard error.
    Json,
}

/// How log messages are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// A JSON object in each line
    Json,
}

/// The output flags that all roles have in addition to the reference's.
#[derive(Debug, Clone, Args)]
pub struct OutputFlags {
    /// Format of the statistics at the end
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,

    /// Format of the log on standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// Serve metrics for Prometheus over HTTP, at /metrics: a port, for this machine only, or an address and a port; port 0 picks a free one and
    /// prints it
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    pub metrics: Option<MetricsAddress>,
}

/// What [`crate::application::run`] needs from the flags of every role.
pub trait RoleFlags: Parser {
    /// The general flags of this role.
    fn general(&self) -> &GeneralFlags;
    /// Flags of output, log and metrics.
    fn output(&self) -> &OutputFlags;

    /// The CPUs of the worker threads.
    fn cpu(&self) -> &[u32] {
        &[]
    }

    /// Checks flags against each other, before anything is started.
    ///
    /// # Errors
    ///
    /// Flags that do not fit together.
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Why the flags gave no configuration.
#[derive(Debug)]
pub enum FlagsError {
    /// `--help` (or, with an empty text, `--version`, which the banner of a program has told already):
    /// print the text on standard output, exit successfully.
    Information(String),
    /// Wrong usage: print the text on standard error, exit with failure.
    Usage(String),
}

/// The flags of a program called `name` as clap knows them: for man pages and completions.
#[must_use]
pub fn command<F: Parser>(name: &'static str) -> clap::Command {
    usage::with_layout(F::command(), name)
}

/// Reads the flags of a program called `name` from `args` (the first is the program's own name, and
/// is ignored) and from the JSON file that they name.
///
/// # Errors
///
/// The text of a [`FlagsError::Usage`] names the flag, where it was given when that was a file, and
/// what the flag accepts.
pub fn read<F: Parser>(
    name: &'static str,
    args: impl IntoIterator<Item = OsString>,
) -> Result<F, FlagsError> {
    let mut arguments: Vec<OsString> = args.into_iter().skip(1).collect();
    let command = command::<F>(name);

    // The file is known only after a first look at the command line, and may supply the mandatory
    // flags: in that look nothing is mandatory.
    let relaxed = command.clone().mut_args(|arg| arg.required(false));
    let first = relaxed
        .clone()
        .try_get_matches_from(with_name(name, &[], &arguments))
        .map_err(from_clap)?;
    let mut from_file = Vec::new();
    if let Some(path) = first.get_one::<PathBuf>("json") {
        let explain = |message: String| {
            FlagsError::Usage(format!("error: --json {}: {message}\n", path.display()))
        };
        from_file = json::arguments(path, &relaxed, &first).map_err(explain)?;
        // Values are checked on their own first, so that the message can name the file.
        relaxed
            .try_get_matches_from(with_name(name, &from_file, &[]))
            .map_err(|error| explain(usage::first_paragraph(&error)))?;
    }

    let all = with_name(name, &from_file, &std::mem::take(&mut arguments));
    let matches = command.try_get_matches_from(all).map_err(from_clap)?;
    F::from_arg_matches(&matches).map_err(from_clap)
}

fn with_name(name: &str, first: &[OsString], second: &[OsString]) -> Vec<OsString> {
    std::iter::once(OsString::from(name))
        .chain(first.iter().cloned())
        .chain(second.iter().cloned())
        .collect()
}

fn from_clap(error: clap::Error) -> FlagsError {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp => FlagsError::Information(text),
        ErrorKind::DisplayVersion => FlagsError::Information(String::new()),
        _ => FlagsError::Usage(text),
    }
}

#[cfg(test)]
mod tests;
