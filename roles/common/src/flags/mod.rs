//! Command line flags: DOCA's general flags, the JSON file, and the parsing of a role's flags.
//!
//! A role describes its own flags as a [`clap::Parser`] struct that flattens [`GeneralFlags`] and [`OutputFlags`], and
//! passes its arguments to [`read`]. Values come from the command line, then from the JSON file that `-j` names, then
//! from defaults.

mod help;
mod json;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, Command, Parser, ValueEnum};

use crate::failure::Failure;
use crate::metrics::MetricsAddress;

pub use help::lay_out;
pub use values::{
    LogLevel, Patience, SessionLimit, channel_name, cpu, duration, listen_port, mebibytes,
    nonzero_u32, number_u32, patience, server_address, size, size_u32,
};

/// Heading of DOCA's general flags in the usage text.
pub const GENERAL_HEADING: &str = "DOCA Flags";
/// Heading of a role's own flags in the usage text; [`read`] gives it to all flags without one.
pub const PROGRAM_HEADING: &str = "Program Flags";

/// Flags common to all DOCA programs.
#[derive(Debug, Clone, Args)]
pub struct GeneralFlags {
    /// Print this help and exit
    #[arg(short = 'h', long = "help", action = ArgAction::Help, help_heading = GENERAL_HEADING)]
    help: Option<bool>,

    /// Print the version and exit
    #[arg(short = 'v', long = "version", action = ArgAction::Version, help_heading = GENERAL_HEADING)]
    version: Option<bool>,

    /// Log level of the program: 10 = disable, 20 = critical, 30 = error, 40 = warning, 50 = info, 60 = debug, 70 =
    /// trace
    #[arg(short = 'l', long, value_name = "LEVEL", default_value = "50", value_parser = LogLevel::parse, help_heading = GENERAL_HEADING)]
    pub log_level: LogLevel,

    /// Log level of the DOCA SDK, with the same numbers
    #[arg(long, value_name = "LEVEL", default_value = "40", value_parser = LogLevel::parse, help_heading = GENERAL_HEADING)]
    pub sdk_log_level: LogLevel,

    /// Read further flags from this JSON file
    #[arg(short = 'j', long, value_name = "FILE", help_heading = GENERAL_HEADING)]
    pub json: Option<PathBuf>,
}

/// Format of a program's standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The reference's text.
    #[default]
    Text,
    /// One JSON document at the end; everything else goes to standard error.
    Json,
}

/// Format of log messages.
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

/// Access to the common flags of a role, for [`crate::application::run`].
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

/// Result of parsing other than a configuration.
#[derive(Debug)]
pub enum FlagsError {
    /// `--help`, or with an empty text `--version`, which the banner has already printed: print the text on standard
    /// output, exit successfully.
    Information(String),
    /// Invalid usage: print the text on standard error, exit with failure.
    Usage(String),
}

/// The clap command of the program called `name`: for man pages and completions.
#[must_use]
pub fn command<F: Parser>(name: &'static str) -> clap::Command {
    with_layout(F::command(), name)
}

/// Parses the flags of the program called `name` from `args` (the first is the program's own name and is ignored) and
/// from the JSON file that they name.
///
/// # Errors
///
/// The text of a [`FlagsError::Usage`] names the flag, the file if it was given there, and the accepted values.
pub fn read<F: Parser>(
    name: &'static str,
    args: impl IntoIterator<Item = OsString>,
) -> Result<F, FlagsError> {
    let mut arguments: Vec<OsString> = args.into_iter().skip(1).collect();
    let command = command::<F>(name);

    // The first pass finds the file, which may supply mandatory flags, so none is mandatory in it.
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
        // The file's values are parsed separately first, so that the error message can name the file.
        relaxed
            .try_get_matches_from(with_name(name, &from_file, &[]))
            .map_err(|error| explain(first_paragraph(&error)))?;
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

// The layout of usage texts and messages, after DOCA's.

const TEMPLATE: &str = "\
{about-with-newline}
Usage: {name} [DOCA Flags] [Program Flags]

{all-args}{after-help}
";

/// Gives a role's command the name and the usage layout of the reference.
fn with_layout(command: Command, name: &'static str) -> Command {
    lay_out(command)
        .name(name)
        .bin_name(name)
        .version(env!("CARGO_PKG_VERSION"))
        // -h and -v are ordinary general flags here; clap's own -V would be one more.
        .disable_help_flag(true)
        .disable_version_flag(true)
        .help_template(TEMPLATE)
        .override_usage(format!("{name} [DOCA Flags] [Program Flags]"))
        // A repeated flag that takes one value is a mistake worth an error, negative numbers are
        // values out of range and not flags.
        .args_override_self(false)
        .mut_args(|arg| {
            let takes_value = arg.get_action().takes_values();
            let arg = help::marked(arg).allow_negative_numbers(takes_value);
            if arg.get_help_heading().is_none() {
                arg.help_heading(PROGRAM_HEADING)
            } else {
                arg
            }
        })
}

/// The message itself, without clap's label, usage reminder and hints about `--help`.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let body = text.strip_prefix("error: ").unwrap_or(&text);
    body.split("\n\n").next().unwrap_or(body).trim().to_owned()
}

#[cfg(test)]
mod tests;
