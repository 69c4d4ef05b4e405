//! `doca-storage`: NVIDIA's DOCA storage reference in Rust, on software DOCA, from one command.
//!
//! Without arguments it runs the demo. Each role is a subcommand, so that the demo needs no other binary.
#![forbid(unsafe_code)]
// `print!` and `eprint!` panic if the stream is closed or full: see role_common::console.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod conformance;
mod generate;
mod monitor;
mod sdk;
mod set;
mod up;

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use deployment::implementation::{self, Implementation};
use role_common::console::EXIT_USAGE;
use role_common::errln;

const NAME: &str = "doca-storage";

const EXAMPLES: &str = "\
Examples:
  doca-storage                       the demo, with content of its own
  doca-storage demo --content photo.raw --workers 2
  doca-storage up --size 1G          a redundant disk at an NBD socket
  doca-storage demo --block-size 1048576 --blocks-per-io 4
  doca-storage target --help         a role, with the flags of the reference";

/// The DOCA storage reference in Rust, without a BlueField.
#[derive(Debug, Parser)]
#[command(name = "doca-storage", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a deployment, read and write a file through it, validate, measure: PASS or FAIL
    Demo(demo::Options),
    /// Serve a redundant disk on this machine: targets, service and front end, supervised
    Up(up::Options),
    /// Measure deployments, and the limits of the machine
    Bench(bench::Options),
    /// Test an implementation of the protocol as a black box
    Conformance(conformance::Options),
    /// softdoca for C and C++: install its library, headers and pkg-config files
    Sdk(sdk::Options),
    /// Sets of targets, from their backing files: which are current, and whether all blocks are intact
    Set(set::Options),
    /// Show counters and state of roles with --metrics: a table or JSON
    Status(monitor::StatusOptions),
    /// Show counters and state of roles continuously, with rates
    Top(monitor::TopOptions),
    /// Write man pages and completions for packages
    #[command(hide = true)]
    Generate(generate::Options),
    /// A process of a baseline measurement of `bench`
    #[command(hide = true)]
    Yardstick(bench::YardstickOptions),
    /// The initiator of `bench` for measurements after pauses
    #[command(hide = true)]
    FirstIos(bench::FirstIosOptions),
}

fn main() -> ExitCode {
    role_programs::main(Cli::command(), |matches| {
        let command = Cli::from_arg_matches(matches)?.command;
        Ok(command.unwrap_or_default().run())
    })
}

impl Command {
    fn run(&self) -> ExitCode {
        match self {
            Self::Demo(options) => demo::run(options),
            Self::Up(options) => up::run(options),
            Self::Bench(options) => bench::run(options),
            Self::Conformance(options) => conformance::run(options),
            Self::Sdk(options) => sdk::run(options),
            Self::Set(options) => set::run(options),
            Self::Status(options) => monitor::status(options),
            Self::Top(options) => monitor::top(options),
            Self::Generate(options) => generate::run(options),
            Self::Yardstick(options) => bench::run_yardstick(options),
            Self::FirstIos(options) => bench::run_first_ios(options),
        }
    }
}

impl Default for Command {
    fn default() -> Self {
        Self::Demo(demo::Options::default())
    }
}

// Errors of commands, and their exit status: 1 for failures, 2 for wrong usage.

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Invalid or inconsistent flags; the text contains the expected value.
#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UsageError {}

/// Creates a usage error.
fn usage(message: impl Into<String>) -> Box<dyn Error> {
    Box::new(UsageError(message.into()))
}

/// Exit status of a command that has run: 0, or 1 for a failure that it has reported.
fn exit_code(is_success: bool) -> ExitCode {
    if is_success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Finds the implementation given by a flag's `NAME=DIR`.
fn implementation(text: &str) -> Result<Implementation> {
    Implementation::parse(text).map_err(|error| match error {
        implementation::Error::Syntax(_) => usage(error.to_string()),
        _ => error.into(),
    })
}

/// Reports the error of `doca-storage <command>`, and returns its exit status.
fn conclude(command: &str, error: &(dyn Error + 'static)) -> ExitCode {
    errln!("doca-storage {command}: error: {error}");
    if error.is::<UsageError>() {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::FAILURE
    }
}
