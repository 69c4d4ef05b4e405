//! Command line flags: DOCA's general flags, the JSON file, and the parsing of a role's flags.
//!
//! A role describes its own flags as a [`clap::Parser`] struct that flattens [`GeneralFlags`] and [`OutputFlags`], and
//! passes its arguments to [`read`]. Values come from the command line, then from the JSON file that `-j` names, then
//! from defaults.

mod front_end;
mod tls;
mod values;

use std::any::TypeId;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Parser, ValueEnum};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use control::Failure;
use metrics::MetricsAddress;

pub use front_end::FrontEndFlags;
pub use tls::{ClientTlsFlags, ServerTlsFlags};
pub use values::{
    DEFAULT_CHANNEL, LogLevel, SessionLimit, Timeout, channel_name, cpu, duration, listen_port,
    logical_block_size, mebibytes, nonzero_u32, number_u32, server_address, size, size_u32,
    timeout,
};

/// Heading of DOCA's general flags in the usage text.
pub const GENERAL_HEADING: &str = "DOCA Flags";
/// Heading of a role's own flags in the usage text; [`read`] sets it for all flags without a heading.
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

    /// Checks the combination of flags, before anything is started.
    ///
    /// # Errors
    ///
    /// The flags contradict each other, or a required flag is missing.
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

/// Parses the flags of the program called `name` from `args` (the first argument is the program's own name and is
/// ignored) and from the JSON file that they name.
///
/// # Errors
///
/// The text of a [`FlagsError::Usage`] names the flag, the file that contained it, and the accepted values.
pub fn read<F: Parser>(
    name: &'static str,
    args: impl IntoIterator<Item = OsString>,
) -> Result<F, FlagsError> {
    let command = command::<F>(name);
    let mut arguments = with_negative_values(&command, args.into_iter().skip(1));

    // The first pass finds the file, which may supply mandatory flags, so none is mandatory in it.
    let mut relaxed = command.clone().mut_args(|arg| arg.required(false));
    let groups: Vec<_> = command.get_groups().map(|it| it.get_id().clone()).collect();
    for group in groups {
        relaxed = relaxed.mut_group(group, |group| group.required(false));
    }
    let first = relaxed
        .clone()
        .try_get_matches_from(with_name(name, &[], &arguments))
        .map_err(from_clap)?;
    let mut from_file = Vec::new();
    if let Some(path) = first.get_one::<PathBuf>("json") {
        let explain = |message: String| {
            FlagsError::Usage(format!("error: --json {}: {message}\n", path.display()))
        };
        from_file = json_arguments(path, &relaxed, &first).map_err(explain)?;
        // The file's values are parsed separately first, so that the error message can name the file.
        relaxed
            .try_get_matches_from(with_name(name, &from_file, &[]))
            .map_err(|error| explain(first_paragraph(&error)))?;
    }

    let all = with_name(name, &from_file, &std::mem::take(&mut arguments));
    let matches = command.try_get_matches_from(all).map_err(from_clap)?;
    F::from_arg_matches(&matches).map_err(from_clap)
}

/// Appends negative values with units, such as `-4M`, to the preceding flags: clap would interpret them as flags, and
/// its error would not name the flag that they belong to.
fn with_negative_values(command: &Command, args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let takes_value = |flag: &str| {
        let mut known = command.get_arguments();
        known
            .any(|arg| arg.get_long() == flag.strip_prefix("--") && arg.get_action().takes_values())
    };
    let is_negative = |text: &str| {
        text.strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let mut joined: Vec<OsString> = Vec::new();
    for arg in args {
        let flag = joined.last().and_then(|last| last.to_str());
        match (flag, arg.to_str()) {
            (Some(flag), Some(value))
                if flag.starts_with("--") && is_negative(value) && takes_value(flag) =>
            {
                let whole = format!("{flag}={value}");
                joined.pop();
                joined.push(whole.into());
            }
            _ => joined.push(arg),
        }
    }
    joined
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

/// Sets the name and the usage layout of a role's command to those of the reference.
fn with_layout(command: Command, name: &'static str) -> Command {
    lay_out(command)
        .name(name)
        .bin_name(name)
        .version(env!("CARGO_PKG_VERSION"))
        // -h and -v are ordinary general flags here; clap's own -V would be an additional one.
        .disable_help_flag(true)
        .disable_version_flag(true)
        .help_template(TEMPLATE)
        .override_usage(format!("{name} [DOCA Flags] [Program Flags]"))
        // A repeated flag that takes one value is an error. Negative numbers are values out of range, not flags.
        .args_override_self(false)
        .mut_args(|arg| {
            let takes_value = arg.get_action().takes_values();
            let arg = marked(arg).allow_negative_numbers(takes_value);
            if arg.get_help_heading().is_none() {
                arg.help_heading(PROGRAM_HEADING)
            } else {
                arg
            }
        })
}

/// The message without clap's label, usage reminder and hints about `--help`.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let body = text.strip_prefix("error: ").unwrap_or(&text);
    body.split("\n\n").next().unwrap_or(body).trim().to_owned()
}

/// Maximum width of an example's command in columns, which every terminal is assumed to have.
const COLUMNS: usize = 80;

/// Indentation of continuation lines of a command.
const CONTINUATION: &str = "    ";

/// Appended to the help of a mandatory flag.
const REQUIRED: &str = "[required]";

/// Lays out the texts after the flags of a command and of its subcommands.
///
/// Lines of a paragraph are joined, so that only clap wraps them. Commands of examples, which are indented, are
/// broken between flags, with a backslash.
#[must_use]
pub fn lay_out(command: Command) -> Command {
    let text = command.get_after_help().map(ToString::to_string);
    let names: Vec<String> = command
        .get_subcommands()
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect();
    let command = match text {
        Some(text) => command.after_help(laid_out(&text)),
        None => command,
    };
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, lay_out)
    })
}

/// Marks a mandatory flag in its help.
fn marked(arg: Arg) -> Arg {
    if !arg.is_required_set() {
        return arg;
    }
    let mark = |text: Option<&StyledStr>| text.map(|text| format!("{text} {REQUIRED}"));
    let (short, long) = (mark(arg.get_help()), mark(arg.get_long_help()));
    let arg = match short {
        Some(text) => arg.help(text),
        None => arg,
    };
    match long {
        Some(text) => arg.long_help(text),
        None => arg,
    }
}

fn laid_out(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    // The paragraph or the command of the last line continues.
    let mut goes_on = false;
    for line in text.lines() {
        let is_indented = line.starts_with(' ');
        let (content, continues) = match line.strip_suffix('\\') {
            Some(content) if is_indented => (content.trim_end(), true),
            _ => (
                line,
                !is_indented && !line.is_empty() && !line.ends_with(':'),
            ),
        };
        match lines.last_mut() {
            Some(last) if goes_on && !content.is_empty() => {
                last.push(' ');
                last.push_str(content.trim_start());
            }
            _ => lines.push(content.to_owned()),
        }
        goes_on = continues;
    }
    let lines: Vec<String> = lines.iter().map(|line| broken(line)).collect();
    lines.join("\n")
}

/// Breaks a command of an example that is longer than [`COLUMNS`]; other lines are unchanged.
fn broken(line: &str) -> String {
    let indentation = line.len() - line.trim_start().len();
    let is_command = indentation != 0 && !line.ends_with(':');
    if !is_command || line.chars().count() <= COLUMNS {
        return line.to_owned();
    }
    let indent = " ".repeat(indentation);
    // Width of a continued line before the space and the backslash.
    let room = COLUMNS - indentation - CONTINUATION.len() - 2;
    // A flag and its value stay on one line if they fit.
    let mut parts: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        match parts.last_mut() {
            Some(last)
                if !word.starts_with('-')
                    && last.chars().count() + 1 + word.chars().count() <= room =>
            {
                last.push(' ');
                last.push_str(word);
            }
            _ => parts.push(word.to_owned()),
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            // A space and a backslash follow.
            Some(last) if last.chars().count() + part.chars().count() + 3 <= COLUMNS => {
                last.push(' ');
                last.push_str(&part);
            }
            None => lines.push(format!("{indent}{part}")),
            Some(_) => lines.push(format!("{indent}{CONTINUATION}{part}")),
        }
    }
    lines.join(" \\\n")
}

const GENERAL_OBJECT: &str = "doca_general_flags";
const PROGRAM_OBJECT: &str = "doca_program_flags";

/// Flags that are not permitted in a file.
const COMMAND_LINE_ONLY: [&str; 3] = ["help", "version", "json"];

/// Maximum size of a file of flags in bytes; a larger file is not a file of flags.
const MAX_FILE: u64 = 1 << 20;

/// Arguments equivalent to the file, except flags given on `command_line`.
fn json_arguments(
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

/// JSON whose objects have no duplicate keys; parsers silently keep one value of a duplicate key.
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

/// Reads a JSON file of flags. It may be a pipe (`-j <(generate)`), whose size is unknown.
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

/// Returns `true` for a text that resembles a size or a time with a unit, which the flag may accept.
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

/// The JSON type of a flag follows from the Rust type of its values.
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
        TypeId::of::<Timeout>(),
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
    use std::io::Write as _;
    use std::time::Duration;

    use super::{NoDuplicates, without_comments, *};

    #[derive(Debug, Parser)]
    #[command(
        about = "A program for tests",
        after_help = "Example:\n  test -d 03:00.0 --cpu 0"
    )]
    struct TestFlags {
        #[command(flatten)]
        general: GeneralFlags,
        /// Device identifier
        #[arg(short, long)]
        device: String,
        #[arg(long, required = true, value_parser = cpu)]
        cpu: Vec<u32>,
        #[arg(long, default_value = "5", value_parser = duration)]
        control_timeout: Duration,
        #[arg(long, default_value = "30", value_parser = timeout)]
        io_timeout: Timeout,
        #[arg(long, default_value = "1")]
        sessions: SessionLimit,
        #[arg(long, default_value = "128", value_parser = nonzero_u32)]
        block_count: u32,
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        output: OutputFlags,
    }

    fn parse(args: &[&str]) -> Result<TestFlags, FlagsError> {
        read(
            "test_app",
            std::iter::once("ignored")
                .chain(args.iter().copied())
                .map(OsString::from),
        )
    }

    fn usage_error(args: &[&str]) -> String {
        match parse(args) {
            Err(FlagsError::Usage(text)) => text,
            other => panic!("expected a usage error, got {other:?}"),
        }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        file.write_all(text.as_bytes()).expect("written");
        file
    }

    fn path(file: &tempfile::NamedTempFile) -> &str {
        file.path().to_str().expect("UTF-8 path")
    }

    #[test]
    fn help_has_both_sections_and_the_examples() {
        let Err(FlagsError::Information(text)) = parse(&["-h"]) else {
            panic!("help is information")
        };
        for part in [
            "Usage: test_app [DOCA Flags] [Program Flags]",
            "DOCA Flags:",
            "Program Flags:",
            "--sdk-log-level",
            "--json",
            "Example:",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let (doca, program) = (text.find("DOCA Flags:\n"), text.find("Program Flags:\n"));
        assert!(doca < program, "{text}");
        assert!(
            text.find("--log-level") < program && text.find("--device") > program,
            "{text}"
        );
    }

    #[test]
    fn version_is_information() {
        assert!(matches!(parse(&["-v"]), Err(FlagsError::Information(text)) if text.is_empty()));
    }

    #[test]
    fn errors_name_missing_flags_and_wrong_values() {
        assert!(usage_error(&["--cpu", "0"]).contains("--device"));
        assert!(usage_error(&["-d", "x", "--cpu", "123456"]).contains("--cpu"));
        let text = usage_error(&["-d", "x", "--cpu", "0", "--block-count", "-1"]);
        assert!(
            text.contains("--block-count") && text.contains("4294967295"),
            "{text}"
        );
        assert!(usage_error(&["-d", "x", "-d", "y", "--cpu", "0"]).contains("--device"));
    }

    #[test]
    fn command_line_overrides_the_file() {
        let file = file(
            r#"{
            // general
            "doca_general_flags": { "log-level": 60, "sdk-log-level": 30 },
            "doca_program_flags": { "device": "03:00.0", "cpu": [0, 0], "control-timeout": 9, "quick": true, "output": "json" }
        }"#,
        );
        let flags = parse(&["--json", path(&file), "-d", "3b:00.0", "-l", "70"]).expect("flags");
        assert_eq!(flags.device, "3b:00.0");
        assert_eq!(flags.cpu, [0, 0]);
        assert_eq!(flags.general.log_level.number(), 70);
        assert_eq!(flags.general.sdk_log_level.number(), 30);
        assert_eq!(flags.control_timeout, Duration::from_secs(9));
        assert!(flags.quick);
        assert_eq!(flags.output.output, OutputFormat::Json);
        assert_eq!(flags.block_count, 128);

        let flags = parse(&["-j", path(&file), "--cpu", "0"]).expect("flags");
        assert_eq!(
            flags.cpu,
            [0],
            "a repeated flag on the command line replaces the file's"
        );
    }

    #[test]
    fn errors_in_the_file_name_file_and_flag() {
        let cases = [
            (
                r#"{"doca_program_flags": {"devise": "x"}}"#,
                &["\"devise\"", "device, cpu"][..],
            ),
            (
                r#"{"doca_program_flags": {"log-level": 50}}"#,
                &["\"log-level\""],
            ),
            (
                r#"{"doca_general_flags": {"json": "x"}}"#,
                &["\"json\"", "log-level, sdk-log-level"],
            ),
            (
                r#"{"doca_program_flags": {"device": 3}}"#,
                &["--device", "string", "3"],
            ),
            (
                r#"{"doca_program_flags": {"cpu": "0"}}"#,
                &["--cpu", "number"],
            ),
            (
                r#"{"doca_program_flags": {"device": ["x"]}}"#,
                &["--device", "array"],
            ),
            (
                r#"{"doca_program_flags": {"quick": 1}}"#,
                &["--quick", "true", "false"],
            ),
            (
                r#"{"doca_program_flags": {"block-count": 0}}"#,
                &["--block-count", "4294967295"],
            ),
            (
                r#"{"doca_program_flags": {"block-count": 1.5}}"#,
                &["--block-count", "4294967295"],
            ),
            (
                r#"{"doca_general_flags": {"log-level": 55}}"#,
                &["--log-level", "60"],
            ),
            (r#"{"flags": {}}"#, &["\"flags\"", "doca_general_flags"]),
            (r#"{"doca_program_flags": []}"#, &["object"]),
            (r#"[]"#, &["object"]),
            ("{\n  \"doca_program_flags\": }", &["JSON", "line 2"]),
        ];
        for (text, parts) in cases {
            let file = file(text);
            let message = usage_error(&["-d", "x", "--cpu", "0", "-j", path(&file)]);
            for part in parts.iter().chain(&[path(&file)]) {
                assert!(
                    message.contains(part),
                    "{part:?} is missing in {message:?} for {text}"
                );
            }
        }
        assert!(
            usage_error(&["-d", "x", "--cpu", "0", "-j", "/no/such/file"])
                .contains("/no/such/file")
        );
    }

    #[test]
    fn file_accepts_json_numbers_for_numeric_flags() {
        let read = |flags: &str| {
            let flags =
                format!(r#"{{ "doca_program_flags": {{ "device": "d", "cpu": 0, {flags} }} }}"#);
            parse(&["-j", path(&file(&flags))])
        };
        for (number, io_timeout, sessions) in [
            ("0", Timeout(None), None),
            (
                "7",
                Timeout(Some(Duration::from_secs(7))),
                Some(SessionLimit::Count(7)),
            ),
        ] {
            let flags = read(&format!(r#""io-timeout": {number}"#)).expect("a number");
            assert_eq!(flags.io_timeout, io_timeout);
            let flags = read(&format!(r#""sessions": {number}"#));
            assert_eq!(flags.ok().map(|flags| flags.sessions), sessions);
        }
        let flags = read(r#""sessions": "forever""#).expect("a word");
        assert_eq!(flags.sessions, SessionLimit::Forever);
        let flags = read(r#""io-timeout": "2m""#).expect("a time with a unit");
        assert_eq!(flags.io_timeout, Timeout(Some(Duration::from_secs(120))));
        let flags = read(r#""control-timeout": "2m""#).expect("a time with a unit");
        assert_eq!(flags.control_timeout, Duration::from_secs(120));
        let wrong = [
            r#""block-count": "2m""#,
            r#""control-timeout": "2q""#,
            r#""io-timeout": "7q""#,
            r#""io-timeout": true"#,
            r#""control-timeout": "7""#,
            r#""sessions": true"#,
            r#""sessions": 1, "sessions": 1"#,
        ];
        for wrong in wrong {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mandatory_flags_may_come_from_file_or_command_line() {
        let file = file(r#"{"doca_program_flags": {"device": "x"}}"#);
        assert!(parse(&["-j", path(&file), "--cpu", "0"]).is_ok());
        assert!(usage_error(&["-j", path(&file)]).contains("--cpu"));
    }

    #[test]
    fn file_size_is_limited_even_if_unknown() {
        let text = usage_error(&["-j", "/dev/zero"]);
        assert!(text.contains("--json /dev/zero"), "{text}");
        assert!(text.contains("1048576"), "{text}");
    }

    #[test]
    fn paragraphs_are_joined_and_commands_broken_between_flags() {
        let text = "\
First line of a paragraph,
and its second line.

Another paragraph.

Examples:
  program short            with a comment
  Words before a command, however long they are, are left to clap, which breaks lines between words:
    program --first 1111111111111111111111111 --second 2222222222222222222222222 \\
        --third 3 --fourth 44444444444444444444444444444
    program --flag 11111111111111111111111111111111111111111111111111111111111111111111
  program last";
        let expected = "\
First line of a paragraph, and its second line.

Another paragraph.

Examples:
  program short            with a comment
  Words before a command, however long they are, are left to clap, which breaks lines between words:
    program --first 1111111111111111111111111 \\
        --second 2222222222222222222222222 --third 3 \\
        --fourth 44444444444444444444444444444
    program --flag \\
        11111111111111111111111111111111111111111111111111111111111111111111
  program last";
        assert_eq!(laid_out(text), expected);
    }

    #[test]
    fn subcommands_are_laid_out_too() {
        let command = Command::new("program")
            .subcommand(Command::new("one").subcommand(Command::new("two").after_help("a\nb")));
        let mut command = lay_out(command);
        let one = command.find_subcommand_mut("one").expect("one");
        let two = one.find_subcommand("two").expect("two");
        let text = two.get_after_help().map(ToString::to_string);
        assert_eq!(text.as_deref(), Some("a b"));
    }

    #[test]
    fn mandatory_flags_are_marked() {
        let arg = Arg::new("one").help("First").required(true);
        let text = marked(arg).get_help().map(ToString::to_string);
        assert_eq!(text.as_deref(), Some("First [required]"));
        let text = marked(Arg::new("one").help("First"))
            .get_help()
            .map(ToString::to_string);
        assert_eq!(text.as_deref(), Some("First"));
    }

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
            let error = check(twice).expect_err(twice);
            // A custom error of the visitor, which names the key.
            assert!(error.is_data(), "{error}");
            assert!(error.to_string().contains("\"a\""), "{error}");
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
        for open in ["{} /* open", "{} /*/"] {
            let clean = without_comments(open);
            serde_json::from_str::<serde_json::Value>(&clean).expect_err(open);
        }
    }
}
