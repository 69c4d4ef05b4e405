//! The JSON file of flags, in DOCA's layout.
//!
//! ```text
//! {
//!     // comments like this one are allowed, and /* such ones */ too
//!     "doca_general_flags": { "log-level": 60 },
//!     "doca_program_flags": { "device": "03:00.0", "cpu": [0, 1] }
//! }
//! ```
//!
//! Keys are long flag names. The file is translated to arguments, so that a value goes through the
//! same checks as one from the command line, which wins where both give one.

use std::any::TypeId;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::metrics::MetricsAddress;

use super::{GENERAL_HEADING, LogLevel, Patience, SessionLimit};

const GENERAL_OBJECT: &str = "doca_general_flags";
const PROGRAM_OBJECT: &str = "doca_program_flags";

/// Flags that are not allowed in a file.
const COMMAND_LINE_ONLY: [&str; 3] = ["help", "version", "json"];

/// Maximum size of a file of flags; anything larger is the wrong file.
const MAX_FILE: u64 = 1 << 20;

/// Arguments that the file stands for, except flags given on `command_line`.
pub(super) fn arguments(
    path: &Path,
    command: &Command,
    command_line: &ArgMatches,
) -> Result<Vec<OsString>, String> {
    let text = text_of(path)?;
    let text = without_comments(&text);
    let root: Value = serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}"))?;
    serde_json::from_str::<NoDuplicates>(&text).map_err(|error| error.to_string())?;
    let Value::Object(root) = root else {
        return Err(format!(
            "expected an object with \"{GENERAL_OBJECT}\" and \"{PROGRAM_OBJECT}\", found {}",
            kind(&root)
        ));
    };

    let mut arguments = Vec::new();
    for (name, value) in &root {
        let general = match name.as_str() {
            GENERAL_OBJECT => true,
            PROGRAM_OBJECT => false,
            _ => {
                return Err(format!(
                    "unknown key \"{name}\", expected \"{GENERAL_OBJECT}\" or \"{PROGRAM_OBJECT}\""
                ));
            }
        };
        let Value::Object(flags) = value else {
            return Err(format!(
                "\"{name}\": expected an object of flags, found {}",
                kind(value)
            ));
        };
        section(
            name,
            flags,
            &accepted(command, general),
            command_line,
            &mut arguments,
        )?;
    }
    Ok(arguments)
}

/// JSON whose objects have no duplicate keys, of which parsers silently keep one.
struct NoDuplicates;

impl<'de> Deserialize<'de> for NoDuplicates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NoDuplicates)
    }
}

impl<'de> Visitor<'de> for NoDuplicates {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(serde::de::Error::custom(format_args!(
                    "expected each key once, found a second \"{key}\""
                )));
            }
            keys.insert(key);
            map.next_value::<Self>()?;
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self, A::Error> {
        while sequence.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}

/// Reads a file of flags. It may be a pipe (`-j <(generate)`), whose size is unknown.
fn text_of(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    let size = read.map_err(|error| error.to_string())? as u64;
    if size > MAX_FILE {
        return Err(format!(
            "too large for a file of flags, the limit is {MAX_FILE} bytes"
        ));
    }
    Ok(text)
}

fn accepted(command: &Command, general: bool) -> Vec<&Arg> {
    command
        .get_arguments()
        .filter(|arg| (arg.get_help_heading() == Some(GENERAL_HEADING)) == general)
        .filter(|arg| {
            arg.get_long()
                .is_some_and(|long| !COMMAND_LINE_ONLY.contains(&long))
        })
        .collect()
}

fn section(
    object: &str,
    flags: &Map<String, Value>,
    accepted: &[&Arg],
    command_line: &ArgMatches,
    arguments: &mut Vec<OsString>,
) -> Result<(), String> {
    for (key, value) in flags {
        let Some(arg) = accepted.iter().find(|arg| arg.get_long() == Some(key)) else {
            let names: Vec<&str> = accepted.iter().filter_map(|arg| arg.get_long()).collect();
            return Err(format!(
                "\"{object}\": unknown key \"{key}\", accepted are: {}",
                names.join(", ")
            ));
        };
        let texts =
            texts(arg, value).map_err(|message| format!("\"{object}\": --{key}: {message}"))?;
        if command_line.value_source(arg.get_id().as_str()) != Some(ValueSource::CommandLine) {
            arguments.extend(texts.into_iter().map(OsString::from));
        }
    }
    Ok(())
}

/// Arguments for one key: one per array element for a repeatable flag.
fn texts(arg: &Arg, value: &Value) -> Result<Vec<String>, String> {
    let long = arg.get_long().unwrap_or_default();
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, Value::Bool(true)) => Ok(vec![format!("--{long}")]),
        (ArgAction::SetTrue, Value::Bool(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, other) => {
            Err(format!("expected true or false, found {}", kind(other)))
        }
        (ArgAction::Append, Value::Array(elements)) => elements
            .iter()
            .map(|element| Ok(format!("--{long}={}", scalar(arg, element)?)))
            .collect(),
        (ArgAction::Append, other) => Ok(vec![format!("--{long}={}", scalar(arg, other)?)]),
        (_, Value::Array(_)) => Err(format!("expected one {}, found an array", expected(arg))),
        (_, other) => Ok(vec![format!("--{long}={}", scalar(arg, other)?)]),
    }
}

fn scalar(arg: &Arg, value: &Value) -> Result<String, String> {
    match value {
        Value::Number(number) if is_number(arg) || is_either(arg) => Ok(number.to_string()),
        Value::String(text) if !is_number(arg) || has_unit(text) => Ok(text.clone()),
        other => Err(format!(
            "expected a {}, found {}",
            expected(arg),
            kind(other)
        )),
    }
}

/// Returns `true` for what looks like a size or a time with a unit, which the flag may accept.
fn has_unit(text: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_digit())
        && text.ends_with(|it: char| it.is_ascii_alphabetic())
}

fn expected(arg: &Arg) -> &'static str {
    match (is_number(arg), is_either(arg)) {
        (true, _) => "number",
        (false, true) => "number or a string",
        (false, false) => "string",
    }
}

/// The JSON type of a flag follows from the Rust type that its values are parsed into.
fn is_number(arg: &Arg) -> bool {
    let numbers = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i32>(),
        TypeId::of::<i64>(),
        TypeId::of::<Duration>(),
        TypeId::of::<LogLevel>(),
    ];
    numbers
        .iter()
        .any(|number| arg.get_value_parser().type_id() == *number)
}

/// Returns `true` for a flag that takes a number or a word.
fn is_either(arg: &Arg) -> bool {
    let type_id = arg.get_value_parser().type_id();
    [
        TypeId::of::<SessionLimit>(),
        TypeId::of::<MetricsAddress>(),
        TypeId::of::<Patience>(),
    ]
    .iter()
    .any(|either| type_id == *either)
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the string {text:?}"),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Lexical context of a character of the file.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Json,
    String,
    LineComment,
    BlockComment,
}

/// Replaces comments, `//` to the end of the line and `/* */`, by spaces. Lines and columns are preserved for the messages of
/// the JSON parser, which reports an unterminated block comment.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    let mut place = Place::Json;
    while let Some(character) = rest.next() {
        let follows = |wanted| rest.as_str().starts_with(wanted);
        match (place, character) {
            (Place::LineComment, '\n') => place = Place::Json,
            (Place::BlockComment, '*') if follows('/') => {
                rest.next();
                out.push_str("  ");
                place = Place::Json;
                continue;
            }
            (Place::BlockComment, '\n') => {}
            (Place::LineComment | Place::BlockComment, _) => {
                out.push(' ');
                continue;
            }
            (Place::String, '\\') => {
                out.push(character);
                out.extend(rest.next());
                continue;
            }
            (Place::String, '"') => place = Place::Json,
            (Place::Json, '"') => place = Place::String,
            (Place::Json, '/') if follows('/') => {
                place = Place::LineComment;
                out.push(' ');
                continue;
            }
            (Place::Json, '/') if follows('*') && rest.as_str()[1..].contains("*/") => {
                rest.next();
                out.push_str("  ");
                place = Place::BlockComment;
                continue;
            }
            _ => {}
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{NoDuplicates, without_comments};

    #[test]
    fn comments_are_removed_and_strings_kept() {
        let text = "{ // one \"x\"\n \"a//b\": \"c\\\"//\" // end\n}";
        let clean = without_comments(text);
        assert_eq!(clean.lines().count(), 3);
        let value: serde_json::Value = serde_json::from_str(&clean).expect("clean JSON");
        assert_eq!(value["a//b"], "c\"//");
    }
    #[test]
    fn duplicate_keys_are_refused() {
        let check = |text| serde_json::from_str::<NoDuplicates>(text).map(|_| ());
        check(r#"{"a": {"x": [1, -1, 1.5, "s", true, null]}, "b": {"x": {}}}"#).expect("once each");
        for twice in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"o": {"a": 1, "b": 2, "a": [1]}}"#,
            r#"[{"a": 1, "\u0061": 2}]"#,
        ] {
            let error = check(twice).expect_err(twice).to_string();
            assert!(error.contains("found a second \"a\""), "{error}");
        }
    }

    #[test]
    fn block_comments_are_removed_and_lines_kept() {
        let text = "/* a \"\n */{/**/\"a\": /* // */ \"/* b */\", // c */\n\"d\": 1/***/}";
        let clean = without_comments(text);
        assert_eq!(clean.len(), text.len());
        assert_eq!(clean.lines().count(), text.lines().count());
        let value: serde_json::Value = serde_json::from_str(&clean).expect("clean JSON");
        assert_eq!(value, serde_json::json!({ "a": "/* b */", "d": 1 }));
        for open in ["{} /* never closed", "{} /*/"] {
            let clean = without_comments(open);
            serde_json::from_str::<serde_json::Value>(&clean).expect_err(open);
        }
    }
}
