//! Parsing of the command line, and the usage text in DOCA's layout.

use std::ffi::{CStr, CString};
use std::fmt::Write as _;

use super::definitions::number;
use super::{Action, Definitions, General, LogLevels, ParamId, Refusal, Scope, Value, ValueType};
use crate::error::Error;

/// A parsed command line.
pub(super) enum Read {
    Help(Scope),
    Version,
    Line(Line),
}

#[derive(Default)]
pub(super) struct Line {
    pub(super) scope: Scope,
    pub(super) levels: LogLevels,
    pub(super) json: Option<CString>,
    pub(super) actions: Vec<Action>,
}

impl Line {
    pub(super) fn gives(&self, id: ParamId) -> bool {
        self.actions
            .iter()
            .any(|action| matches!(action, Action::Param(given, _) if *given == id))
    }
}

/// A flag of the program or a general one.
#[derive(Clone, Copy)]
enum Flag {
    General(General),
    Program(ParamId),
}

/// Reads arguments from left to right; stops at a help or version flag.
pub(super) fn read(
    definitions: &Definitions,
    arguments: &[&CStr],
    version_is_shown: bool,
) -> Result<Read, Refusal> {
    let mut line = Line::default();
    let mut rest = arguments.iter().copied().peekable();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        if !text.starts_with('-') || text == "-" {
            command(definitions, &mut line, &text)?;
            continue;
        }
        let Some((flag, written, inline)) = flag(definitions, &line.scope, argument) else {
            return Err(Refusal::new(
                Error::NotSupported,
                format_args!("{text} is not a flag of this program"),
            ));
        };
        let takes_value = match flag {
            Flag::General(flag) => flag.takes_value(),
            Flag::Program(id) => definitions
                .param(id)
                .value_type
                .is_none_or(ValueType::takes_value),
        };
        let value = match (takes_value, inline) {
            (true, Some(value)) => value,
            (true, None) => {
                // A flag where a value is expected means that the value is missing.
                let next = rest.next_if(|next| {
                    self::flag(definitions, &line.scope, next).is_none() && *next != c"--"
                });
                next.map(CStr::to_owned)
                    .ok_or_else(|| Refusal::invalid(format_args!("{written} expects a value")))?
            }
            (false, None) => CString::default(),
            (false, Some(_)) => {
                return Err(Refusal::invalid(format_args!("{written} takes no value")));
            }
        };
        match flag {
            Flag::General(General::Help) => return Ok(Read::Help(line.scope)),
            Flag::General(General::Version) if version_is_shown => {}
            Flag::General(General::Version) => return Ok(Read::Version),
            Flag::General(General::Json) => {
                if line.json.replace(value).is_some() {
                    return Err(twice(&written));
                }
            }
            Flag::General(flag) => {
                let text = value.to_string_lossy();
                let level = number(&text).ok_or_else(|| {
                    Refusal::invalid(format_args!("{written}: expected a number, got {text:?}"))
                })?;
                line.levels.set(flag, level)?;
            }
            Flag::Program(id) => {
                let param = definitions.param(id);
                if !param.multiple && line.gives(id) {
                    return Err(twice(&written));
                }
                let value_type = param.value_type.unwrap_or(ValueType::String);
                let value = Value::read(value_type, &written, &value)?;
                line.actions.push(Action::Param(id, value));
            }
        }
    }
    Ok(Read::Line(line))
}

fn twice(flag: &str) -> Refusal {
    Refusal::invalid(format_args!("{flag} can be given only once"))
}

fn command(definitions: &Definitions, line: &mut Line, name: &str) -> Result<(), Refusal> {
    let following = definitions.following(&line.scope);
    let named = following
        .iter()
        .find(|id| definitions.command(**id).name.as_deref() == Some(name));
    let Some(id) = named.copied() else {
        let known: Vec<&str> = following
            .iter()
            .filter(|id| !definitions.command(**id).hidden)
            .filter_map(|id| definitions.command(*id).name.as_deref())
            .collect();
        let text = match known.is_empty() {
            true => format!("unexpected argument {name:?}"),
            false => format!(
                "unknown command {name:?}; expected one of {}",
                known.join(", ")
            ),
        };
        return Err(Refusal::new(Error::NotSupported, text));
    };
    line.scope.push(id);
    line.actions.push(Action::Command(id));
    Ok(())
}

/// The flag that an argument names, as written, and the value after `=`.
fn flag(
    definitions: &Definitions,
    scope: &Scope,
    argument: &CStr,
) -> Option<(Flag, String, Option<CString>)> {
    let bytes = argument.to_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    let written = std::str::from_utf8(name).ok()?;
    let value = value.and_then(|value| CString::new(value).ok());
    let visible = definitions.visible(scope);
    let program = |same: &dyn Fn(&super::Param) -> bool| {
        visible
            .iter()
            .rev()
            .find(|id| same(definitions.param(**id)))
            .map(|id| Flag::Program(*id))
    };
    let flag = if let Some(long) = written.strip_prefix("--") {
        program(&|param| param.long.as_deref() == Some(long))
            .or_else(|| super::by_long(long).map(Flag::General))
    } else {
        let short = written.strip_prefix('-')?;
        program(&|param| param.short.as_deref() == Some(short))
            .or_else(|| super::by_short(short).map(Flag::General))
    }?;
    Some((flag, written.to_owned(), value))
}

/// Column where descriptions start.
const COLUMN: usize = 36;

/// The usage text of a program called as `called`, or of one of its commands.
pub fn usage(definitions: &Definitions, called: Option<&str>, scope: &Scope) -> String {
    let name = definitions
        .program_name
        .as_deref()
        .or(called)
        .unwrap_or("program");
    let mut text = format!("Usage: {name}");
    for id in scope {
        let _ = write!(
            text,
            " {}",
            definitions.command(*id).name.as_deref().unwrap_or_default()
        );
    }
    if definitions.with_dpdk {
        text.push_str(" [DPDK Flags] --");
    }
    text.push_str(" [DOCA Flags] [Program Flags]");
    let commands: Vec<_> = definitions
        .following(scope)
        .iter()
        .map(|id| definitions.command(*id))
        .filter(|command| !command.hidden)
        .collect();
    if !commands.is_empty() {
        text.push_str(" <command>");
    }
    text.push('\n');
    if let Some(id) = scope.last()
        && let Some(description) = &definitions.command(*id).description
    {
        let _ = write!(text, "\n{description}\n");
    }

    let params: Vec<_> = definitions
        .visible(scope)
        .into_iter()
        .map(|id| definitions.param(id))
        .collect();
    text.push_str("\nDOCA Flags:\n");
    for general in &super::FLAGS {
        // A program's own short flag hides a general one.
        let taken = |short: &&str| params.iter().any(|p| p.short.as_deref() == Some(short));
        let short = general.short.filter(|short| !taken(short));
        let left = flags(short, Some(general.long), general.argument);
        entry(&mut text, &left, general.text);
    }

    let params: Vec<_> = params.into_iter().filter(|param| !param.hidden).collect();
    if !params.is_empty() {
        text.push_str("\nProgram Flags:\n");
        for param in params {
            let left = flags(
                param.short.as_deref(),
                param.long.as_deref(),
                param.arguments.as_deref(),
            );
            entry(
                &mut text,
                &left,
                param.description.as_deref().unwrap_or_default(),
            );
        }
    }
    if !commands.is_empty() {
        text.push_str("\nCommands:\n");
        for command in commands {
            entry(
                &mut text,
                command.name.as_deref().unwrap_or_default(),
                command.description.as_deref().unwrap_or_default(),
            );
        }
    }
    text
}

fn flags(short: Option<&str>, long: Option<&str>, argument: Option<&str>) -> String {
    let names: Vec<String> = [
        short.map(|short| format!("-{short}")),
        long.map(|long| format!("--{long}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut text = names.join(", ");
    if let Some(argument) = argument {
        text.push(' ');
        text.push_str(argument);
    }
    text
}

fn entry(text: &mut String, left: &str, description: &str) {
    // Continuation lines are aligned; a left column that is too long gets its own line.
    let margin = " ".repeat(COLUMN);
    if left.len() + 4 > COLUMN {
        let _ = write!(text, "  {left}\n{margin}");
    } else {
        let _ = write!(text, "  {left:width$}", width = COLUMN - 2);
    }
    text.push_str(&description.replace('\n', &format!("\n{margin}")));
    text.push('\n');
}
