//! `doca-storage-demo`: the demo and the roles that it runs, without the other commands of `doca-storage`, which take much
//! longer to build.
#![forbid(unsafe_code)]
// `print!` and `eprint!` panic if the stream is closed or full: see role_common::console.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

const HELP: &str = "\
All other commands are those of doca-storage: cargo run --release -p doca-storage

Examples:
  doca-storage-demo                       the demo, with content of its own
  doca-storage-demo demo --layout gga     one of its deployments
  doca-storage-demo target --help         a role and its flags";

/// The demo of the DOCA storage reference in Rust, and its roles.
#[derive(Debug, Parser)]
#[command(name = "doca-storage-demo", version, after_help = HELP)]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a deployment, read and write a file through it, validate, measure: PASS or FAIL
    Demo(demo::Options),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

fn main() -> ExitCode {
    role_programs::main(Program::command(), |matches| {
        let options = match Program::from_arg_matches(matches)?.command {
            Some(Command::Demo(options)) => options,
            Some(Command::Other(arguments)) => {
                let name = arguments.first().cloned().unwrap_or_default();
                return Err(clap::Error::raw(
                    ErrorKind::InvalidSubcommand,
                    format!(
                        "expected demo or a role, got {name:?}; if it is a command of doca-storage: \
                         cargo run --release -p doca-storage -- {}",
                        name.display()
                    ),
                ));
            }
            None => demo::Options::default(),
        };
        Ok(demo::run(&options))
    })
}
