//! Reading of arguments: the command line, and the JSON file that it names.

use std::ffi::{CStr, CString};
use std::fmt;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt as _;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value as Json;

use super::definitions::number;
use super::{
    Action, Definitions, General, LogLevels, Param, ParamId, Refusal, Scope, Value, ValueType,
};
use crate::argp;
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
    fn gives(&self, id: ParamId) -> bool {
        self.actions
            .iter()
            .any(|action| matches!(action, Action::Param(given, _) if *given == id))
    }
}

/// A flag of the program, or a general flag.
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

const GENERAL_OBJECT: &str = "doca_general_flags";
const PROGRAM_OBJECT: &str = "doca_program_flags";
const DPDK_OBJECT: &str = "doca_dpdk_flags";

/// Largest accepted file in bytes; a larger file is not a file of arguments.
const MAX_FILE: u64 = 1 << 20;

/// Flags of a file that the command line does not override.
#[derive(Default)]
pub(super) struct Flags {
    pub(super) levels: LogLevels,
    pub(super) actions: Vec<Action>,
    pub(super) dpdk: Vec<CString>,
}

/// Reads the file named on the command line.
pub(super) fn read_json(
    definitions: &Definitions,
    line: &Line,
    path: &CStr,
) -> Result<Flags, Refusal> {
    let shown = path.to_string_lossy();
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(Error::IoFailed, format_args!("--json {shown}: {error}"))
    };
    let text = text_of(path).map_err(|error| failed(&error))?;
    let root: Object<Object<Json>> =
        serde_json::from_str(&blanked(&text)).map_err(|error| failed(&error))?;
    let mut flags = Flags::default();
    for (name, object) in root.0 {
        let read = match name.as_str() {
            GENERAL_OBJECT => general_flags(definitions, object, &mut flags.levels),
            PROGRAM_OBJECT => program_flags(definitions, line, object, &mut flags.actions),
            DPDK_OBJECT if definitions.with_dpdk => {
                argp::from_json(object.0).map(|arguments| flags.dpdk = arguments)
            }
            _ if definitions.ignores_unknown_keys => Ok(()),
            _ => Err(Refusal::new(
                Error::NotSupported,
                format_args!("expected \"{GENERAL_OBJECT}\" or \"{PROGRAM_OBJECT}\""),
            )),
        };
        read.map_err(|refusal| {
            let text = format!("--json {shown}: \"{name}\": {}", refusal.text);
            Refusal { text, ..refusal }
        })?;
    }
    Ok(flags)
}

/// The file's text. It may be a pipe (`-j <(generate)`), so its reported size is not used.
fn text_of(path: &CStr) -> std::io::Result<String> {
    let mut text = String::new();
    let path = std::ffi::OsStr::from_bytes(path.to_bytes());
    let size = File::open(path)?
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)?;
    if size as u64 > MAX_FILE {
        return Err(std::io::Error::other(format!(
            "expected a file of at most {MAX_FILE} bytes, got a larger one"
        )));
    }
    Ok(text)
}

fn general_flags(
    definitions: &Definitions,
    object: Object<Json>,
    levels: &mut LogLevels,
) -> Result<(), Refusal> {
    for (key, value) in object.0 {
        match argp::by_long(&key) {
            Some(flag @ (General::LogLevel | General::SdkLogLevel)) => {
                let number = value.as_i64().ok_or_else(|| {
                    Refusal::invalid(format_args!(
                        "\"{key}\": expected a number, found {}",
                        kind(&value)
                    ))
                })?;
                levels.set(flag, number)?;
            }
            _ if definitions.ignores_unknown_keys => {}
            _ => return Err(unknown(&key, ["log-level", "sdk-log-level"].into_iter())),
        }
    }
    Ok(())
}

fn program_flags(
    definitions: &Definitions,
    line: &Line,
    object: Object<Json>,
    actions: &mut Vec<Action>,
) -> Result<(), Refusal> {
    // Parameters of all named commands, at any depth.
    let known: Vec<ParamId> = definitions
        .chain(&line.scope)
        .flat_map(|command| command.params.iter().copied())
        .filter(|id| !definitions.param(*id).command_line_only)
        .collect();
    for (key, value) in object.0 {
        let same = |id: &&ParamId| definitions.param(**id).long.as_deref() == Some(&key);
        let Some(id) = known.iter().rev().find(same) else {
            if definitions.ignores_unknown_keys {
                continue;
            }
            let names = known
                .iter()
                .filter(|id| !definitions.param(**id).hidden)
                .filter_map(|id| definitions.param(*id).long.as_deref());
            return Err(unknown(&key, names));
        };
        let values = values(definitions.param(*id), value).map_err(|refusal| {
            let text = format!("\"{key}\": {}", refusal.text);
            Refusal { text, ..refusal }
        })?;
        // The command line wins, but the file's value is still checked.
        if !line.gives(*id) {
            actions.extend(values.into_iter().map(|value| Action::Param(*id, value)));
        }
    }
    Ok(())
}

fn unknown<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Refusal {
    let known: Vec<&str> = known.collect();
    Refusal::new(
        Error::NotSupported,
        format_args!("unknown key \"{key}\", accepted are: {}", known.join(", ")),
    )
}

fn values(param: &Param, value: Json) -> Result<Vec<Value>, Refusal> {
    match value {
        Json::Array(elements) if param.multiple => elements
            .into_iter()
            .map(|element| scalar(param, element))
            .collect(),
        value => Ok(vec![scalar(param, value)?]),
    }
}

fn scalar(param: &Param, value: Json) -> Result<Value, Refusal> {
    let value_type = param.value_type.unwrap_or(ValueType::String);
    let wrong = |expected: &str| {
        Refusal::invalid(format_args!("expected {expected}, found {}", kind(&value)))
    };
    match (value_type, &value) {
        (ValueType::Boolean, Json::Bool(value)) => Ok(Value::Bool(*value)),
        (ValueType::Boolean, _) => Err(wrong("true or false")),
        (ValueType::Int, Json::Number(number)) => number
            .as_i64()
            .and_then(|number| i32::try_from(number).ok())
            .map(Value::Int)
            .ok_or_else(|| wrong("a 32-bit integer")),
        (ValueType::Int, _) => Err(wrong("a number")),
        (ValueType::Double, Json::Number(number)) => number
            .as_f64()
            .map(Value::Double)
            .ok_or_else(|| wrong("a number")),
        (ValueType::Double, _) => Err(wrong("a number")),
        (ValueType::JsonObject, Json::Object(_)) => text(&value.to_string()).map(Value::Text),
        (ValueType::JsonObject, _) => Err(wrong("an object")),
        (value_type, Json::String(content)) => {
            Value::read(value_type, &param.flag(), &text(content)?)
        }
        _ => Err(wrong("a string")),
    }
}

fn text(content: &str) -> Result<CString, Refusal> {
    CString::new(content).map_err(|_| Refusal::invalid("a string cannot contain NUL"))
}

pub(super) fn kind(value: &Json) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(value) => value.to_string(),
        Json::Number(number) => format!("the number {number}"),
        Json::String(text) => format!("the string {text:?}"),
        Json::Array(_) => "an array".to_owned(),
        Json::Object(_) => "an object".to_owned(),
    }
}

/// Replaces comments (`//` to the end of the line, and `/* */`) with spaces, which keeps the parser's line and column
/// numbers correct. An unterminated comment is left for the parser to refuse.
fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '/']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let len = if from.starts_with('"') {
            let len = string_len(from);
            out.push_str(&from[..len]);
            len
        } else {
            let len = comment_len(from);
            match len {
                None => out.push('/'),
                Some(len) => {
                    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
                    out.extend(from[..len].chars().map(blank));
                }
            }
            len.unwrap_or(1)
        };
        rest = &from[len..];
    }
    out.push_str(rest);
    out
}

/// Length in bytes of the string literal at the start of the text, quotes included; the length of the text if it is
/// unterminated.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length in bytes of the comment at the start of the text, or `None`.
fn comment_len(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        Some(text.find('\n').unwrap_or(text.len()))
    } else {
        let inside = text.strip_prefix("/*")?;
        Some(inside.find("*/")? + 4)
    }
}

/// Members of an object in file order, because callbacks are called in this order; duplicate keys are refused.
#[derive(Debug)]
struct Object<V>(Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Object<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Pairs<V> {
            type Value = Object<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of flags")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<V>, A::Error> {
                let mut pairs: Vec<(String, V)> = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if pairs.iter().any(|(known, _)| *known == key) {
                        return Err(A::Error::custom(format_args!(
                            "the key \"{key}\" is duplicated"
                        )));
                    }
                    pairs.push((key, map.next_value()?));
                }
                Ok(Object(pairs))
            }
        }
        deserializer.deserialize_map(Pairs(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::blanked;

    #[test]
    fn comments_are_blanked_without_moving_other_text() {
        let text = "/* a \"\n */{ // one \"x\"\n\"a//b\": \"c\\\"//\", /* // */ \"d\": \"/* e */\"/***/}// end";
        let clean = blanked(text);
        assert_eq!(clean.len(), text.len());
        assert_eq!(clean.lines().count(), text.lines().count());
        let value: serde_json::Value = serde_json::from_str(&clean).unwrap();
        assert_eq!(value, serde_json::json!({"a//b": "c\"//", "d": "/* e */"}));
    }

    #[test]
    fn unterminated_json_is_refused() {
        for open in ["{} /* never closed", "{} /*/", "{} /", "{\"a", "{\"a\\\""] {
            serde_json::from_str::<serde_json::Value>(&blanked(open)).expect_err(open);
        }
    }
}
