//! The argument parser of DOCA programs, without I/O except for reading the JSON file: definitions and arguments in,
//! actions out.
//!
//! * [`Definitions`] holds the [`Param`]s and [`Command`]s that a program has created and registered.
//! * [`parse`] reads arguments, and the JSON file they name, and returns an [`Outcome`]: help, version, or the
//!   [`Action`]s to perform in order, each a call of one of the program's callbacks.
//! * [`usage`] writes the usage text.

mod command_line;
mod definitions;

pub use command_line::usage;
pub use definitions::{
    Command, CommandId, Definitions, DeviceArgument, Param, ParamId, RepresentorArgument, Scope,
    Value, ValueType,
};

use std::ffi::{CStr, CString};
use std::fmt;

use serde_json::Value as Json;

use crate::error::Error;
use crate::log::Level;
use command_line::kind;

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
    let (dpdk, arguments) = split(definitions, arguments);
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
        let file = command_line::read_json(definitions, &line, path)?;
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

/// A general flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum General {
    Help,
    Version,
    LogLevel,
    SdkLogLevel,
    Json,
}

/// Names, value type and help text of a general flag.
struct Description {
    flag: General,
    short: Option<&'static str>,
    long: &'static str,
    argument: Option<&'static str>,
    text: &'static str,
}

const FLAGS: [Description; 5] = [
    Description {
        flag: General::Help,
        short: Some("h"),
        long: "help",
        argument: None,
        text: "Print a help synopsis",
    },
    Description {
        flag: General::Version,
        short: Some("v"),
        long: "version",
        argument: None,
        text: "Print program version information",
    },
    Description {
        flag: General::LogLevel,
        short: Some("l"),
        long: "log-level",
        argument: None,
        text: "Set the (numeric) log level for the program <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>",
    },
    Description {
        flag: General::SdkLogLevel,
        short: None,
        long: "sdk-log-level",
        argument: None,
        text: "Set the SDK (numeric) log level for the program <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>",
    },
    Description {
        flag: General::Json,
        short: Some("j"),
        long: "json",
        argument: Some("<path>"),
        text: "Parse command line flags from an input json file",
    },
];

fn by_short(name: &str) -> Option<General> {
    let known = FLAGS.iter().find(|known| known.short == Some(name));
    known.map(|known| known.flag)
}

fn by_long(name: &str) -> Option<General> {
    let known = FLAGS.iter().find(|known| known.long == name);
    known.map(|known| known.flag)
}

fn is_long(name: Option<&str>) -> bool {
    name.is_some_and(|name| by_long(name).is_some())
}

impl General {
    fn takes_value(self) -> bool {
        !matches!(self, General::Help | General::Version)
    }

    fn long(self) -> &'static str {
        let known = FLAGS.iter().find(|known| known.flag == self);
        known.map_or("", |known| known.long)
    }
}

/// Log levels set by the user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogLevels {
    /// Level of the program's messages.
    pub program: Option<Level>,
    /// Level of the SDK's messages.
    pub sdk: Option<Level>,
}

impl LogLevels {
    fn overridden_by(self, other: LogLevels) -> LogLevels {
        LogLevels {
            program: other.program.or(self.program),
            sdk: other.sdk.or(self.sdk),
        }
    }

    fn set(&mut self, flag: General, value: i64) -> Result<(), Refusal> {
        let level = u32::try_from(value).ok().and_then(Level::from_value);
        let Some(level) = level else {
            return Err(Refusal::invalid(format_args!(
                "--{}: expected 10, 20, 30, 40, 50, 60 or 70, got {value}",
                flag.long()
            )));
        };
        match flag {
            General::SdkLogLevel => self.sdk = Some(level),
            _ => self.program = Some(level),
        }
        Ok(())
    }
}

/// Splits the arguments at `--` into DPDK's, preceded by the program's name, and DOCA's, without it. Without a `--`,
/// all are DOCA's.
fn split<'a, 'b>(
    definitions: &Definitions,
    arguments: &'a [&'b CStr],
) -> (Vec<CString>, &'a [&'b CStr]) {
    let Some((program, rest)) = arguments.split_first() else {
        return (Vec::new(), &[]);
    };
    if !definitions.with_dpdk {
        return (Vec::new(), rest);
    }
    let mut for_dpdk = vec![CStr::to_owned(program)];
    match rest.iter().position(|argument| *argument == c"--") {
        Some(at) => {
            for_dpdk.extend(rest[..at].iter().map(|argument| CStr::to_owned(argument)));
            (for_dpdk, &rest[at + 1..])
        }
        None => (for_dpdk, rest),
    }
}

/// DPDK's arguments from the members `"core-mask"`, `"devices"` (each with an `"id"`) and `"flags"`.
fn from_json(object: Vec<(String, Json)>) -> Result<Vec<CString>, Refusal> {
    let mut arguments = Vec::new();
    let mut push = |text: &str| match CString::new(text) {
        Ok(argument) => {
            arguments.push(argument);
            Ok(())
        }
        Err(_) => Err(Refusal::invalid("a string cannot contain NUL")),
    };
    for (key, value) in &object {
        let wrong = |expected: &str| {
            Refusal::invalid(format_args!(
                "\"{key}\": expected {expected}, found {}",
                kind(value)
            ))
        };
        match (key.as_str(), value) {
            ("core-mask", Json::String(mask)) => {
                push("-c")?;
                push(mask)?;
            }
            ("flags", Json::String(flags)) => {
                flags.split_whitespace().try_for_each(&mut push)?;
            }
            ("core-mask" | "flags", _) => return Err(wrong("a string")),
            ("devices", Json::Array(devices)) => {
                for device in devices {
                    let id = device["id"].as_str();
                    push("-a")?;
                    push(id.ok_or_else(|| wrong("objects with an \"id\" each"))?)?;
                }
            }
            ("devices", _) => return Err(wrong("an array")),
            _ => {
                return Err(Refusal::new(
                    crate::error::Error::NotSupported,
                    format_args!("unknown key \"{key}\", accepted are: core-mask, devices, flags"),
                ));
            }
        }
    }
    Ok(arguments)
}
