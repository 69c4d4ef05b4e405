//! The JSON file of arguments.
//!
//! ```text
//! {
//!     // line comments and /* block comments */ are allowed
//!     "doca_general_flags": { "log-level": 60 },
//!     "doca_program_flags": { "device": "03:00.0", "cpu": [0, 1] }
//! }
//! ```

use std::ffi::{CStr, CString};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt as _;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value as Json;

use super::command_line::Line;
use super::{Action, Definitions, General, LogLevels, Param, ParamId, Refusal, Value, ValueType};
use crate::argp;
use crate::error::Error;

const GENERAL_OBJECT: &str = "doca_general_flags";
const PROGRAM_OBJECT: &str = "doca_program_flags";
const DPDK_OBJECT: &str = "doca_dpdk_flags";

/// Largest accepted file in bytes; anything larger is the wrong file.
const MAX_FILE: u64 = 1 << 20;

/// Flags of a file that the command line does not override.
#[derive(Default)]
pub(super) struct Flags {
    pub(super) levels: LogLevels,
    pub(super) actions: Vec<Action>,
    pub(super) dpdk: Vec<CString>,
}

/// Reads the file named on the command line.
pub(super) fn read(definitions: &Definitions, line: &Line, path: &CStr) -> Result<Flags, Refusal> {
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

/// The file's text. It may be a pipe (`-j <(generate)`), so its reported size means nothing.
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
