//! The argument parser of DOCA programs, without I/O except for reading the JSON file: definitions and arguments in,
//! actions out.
//!
//! * [`Definitions`] holds the [`Param`]s and [`Command`]s that a program has created and registered.
//! * [`parse`] reads arguments, and the JSON file they name, and returns an [`Outcome`]: help, version, or the
//!   [`Action`]s to perform in order, each a call of one of the program's callbacks.
//! * [`usage`] writes the usage text.

mod command_line;
mod definitions;
mod dpdk;
mod general;
mod json;

use std::ffi::CStr;
use std::fmt;

pub use command_line::usage;
pub use definitions::{
    Command, CommandId, Definitions, DeviceArgument, Param, ParamId, RepresentorArgument, Scope,
    Value, ValueType,
};
pub use general::LogLevels;

use crate::error::Error;

#[cfg(test)]
mod tests;

/// Result of parsing the arguments.
#[derive(Debug)]
pub enum Outcome {
    /// Print the usage text of the program, or of the named command.
    Help(Scope),
    /// Print the version.
    Version,
    /// Run the program.
    Run(Run),
}

/// Actions before the program runs.
#[derive(Debug, Default)]
pub struct Run {
    /// Log levels set by the user.
    pub levels: LogLevels,
    /// Callbacks to call, in order.
    pub actions: Vec<Action>,
    /// Arguments for DPDK, starting with the program's name; empty if the program does not use DPDK.
    pub dpdk: Vec<std::ffi::CString>,
}

/// A callback to call.
#[derive(Debug)]
pub enum Action {
    /// A parameter was given a value.
    Param(ParamId, Value),
    /// A command was named.
    Command(CommandId),
}

/// Reason why arguments were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Return value of `doca_argp_start`.
    pub error: Error,
    /// Message for the user.
    pub text: String,
}

impl Refusal {
    fn new(error: Error, text: impl fmt::Display) -> Refusal {
        Refusal {
            error,
            text: text.to_string(),
        }
    }

    fn invalid(text: impl fmt::Display) -> Refusal {
        Refusal::new(Error::InvalidValue, text)
    }
}

/// Parses a program's arguments; the first one is its own name. Version flags are ignored if the version `is_shown`
/// already.
///
/// Values come from the command line, and from the JSON file for parameters that the command line does not set.
///
/// # Errors
/// [`Error::NotSupported`] for unknown flags, [`Error::IoFailed`] if the JSON file cannot be read or is not JSON,
/// [`Error::InvalidValue`] otherwise.
pub fn parse(
    definitions: &Definitions,
    arguments: &[&CStr],
    is_shown: bool,
) -> Result<Outcome, Refusal> {
    let (dpdk, arguments) = dpdk::split(definitions, arguments);
    let line = match command_line::read(definitions, arguments, is_shown)? {
        command_line::Read::Help(scope) => return Ok(Outcome::Help(scope)),
        command_line::Read::Version => return Ok(Outcome::Version),
        command_line::Read::Line(line) => line,
    };
    let mut run = Run {
        levels: line.levels,
        actions: Vec::new(),
        dpdk,
    };
    if let Some(path) = &line.json {
        let file = json::read(definitions, &line, path)?;
        run.levels = file.levels.overridden_by(line.levels);
        run.actions.extend(file.actions);
        run.dpdk.extend(file.dpdk);
    }
    run.actions.extend(line.actions);
    check(definitions, &line.scope, &run.actions)?;
    Ok(Outcome::Run(run))
}

/// Performs the checks that need all arguments.
fn check(definitions: &Definitions, scope: &Scope, actions: &[Action]) -> Result<(), Refusal> {
    let mut given: Vec<ParamId> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Param(id, _) => Some(*id),
            Action::Command(_) => None,
        })
        .collect();
    given.dedup();
    let singular = given.iter().find(|id| definitions.param(**id).singular);
    if let Some(singular) = singular {
        return match given.iter().find(|id| *id != singular) {
            Some(other) => Err(Refusal::invalid(format_args!(
                "{} cannot be used together with {}",
                definitions.param(*singular).flag(),
                definitions.param(*other).flag()
            ))),
            None => Ok(()),
        };
    }
    let missing: Vec<String> = definitions
        .chain(scope)
        .flat_map(|command| &command.params)
        .filter(|id| definitions.param(**id).mandatory && !given.contains(id))
        .map(|id| definitions.param(*id).flag())
        .collect();
    match &missing[..] {
        [] => Ok(()),
        [one] => Err(Refusal::invalid(format_args!("{one} is mandatory"))),
        several => Err(Refusal::invalid(format_args!(
            "{} are mandatory",
            several.join(", ")
        ))),
    }
}
