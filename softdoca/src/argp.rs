//! The argument parser of DOCA programs, without I/O but for the JSON file: definitions and arguments in, actions out.
//!
//! * [`Definitions`] holds what a program has created and registered: [`Param`]s and [`Command`]s.
//! * [`parse`] reads arguments, and the JSON file that they name, and answers an [`Outcome`]: help, version, or the
//!   [`Action`]s that are to be done in order, each a call of one of the program's callbacks.
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

/// What the arguments ask for.
#[derive(Debug)]
pub enum Outcome {
    /// The usage text of the program, or of the command that was named.
    Help(Scope),
    /// The version.
    Version,
    /// To run.
    Run(Run),
}

/// What a program does with its arguments before it runs.
#[derive(Debug, Default)]
pub struct Run {
    /// Log levels that the user set.
    pub levels: LogLevels,
    /// Callbacks to call, in order.
    pub actions: Vec<Action>,
    /// Arguments for DPDK, the first of them the program's name, if the program wants any.
    pub dpdk: Vec<std::ffi::CString>,
}

/// A callback to call.
#[derive(Debug)]
pub enum Action {
    /// A parameter has a value.
    Param(ParamId, Value),
    /// A command was named.
    Command(CommandId),
}

/// Why arguments are not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What `doca_argp_start` answers.
    pub error: Error,
    /// What the user is told.
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

/// Reads a program's arguments; the first is its own name. Flags for the version are passed over when it `is_shown` already.
///
/// Values come from the command line, and from the JSON file for parameters that the command line does not give.
///
/// # Errors
/// [`Error::NotSupported`] for flags that do not exist, [`Error::IoFailed`] for a JSON file that cannot be read or is no
/// JSON, [`Error::InvalidValue`] for everything else.
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

/// Checks what can be told only when everything is read.
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
