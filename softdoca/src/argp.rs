//! The argument parser of DOCA programs, without I/O except for reading the JSON file: definitions and arguments in,
//! actions out.
//!
//! * [`Definitions`] holds the [`Param`]s and [`Command`]s that a program has created and registered.
//! * [`parse`] reads arguments, and the JSON file that they name, and returns an [`Outcome`]: help, version, or the
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

/// Result of parsing the arguments.
#[derive(Debug)]
pub enum Outcome {
    /// Print the usage text of the program, or of the named command.
    Help(Scope),
    Version,
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
    /// A value of a parameter.
    Param(ParamId, Value),
    /// A command was named.
    Command(CommandId),
}

/// Reason why arguments were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Return value of `doca_argp_start`.
    pub error: Error,
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

#[cfg(test)]
mod tests {
    //! A program similar to the storage applications, and the values that its callbacks would get.

    use std::ffi::c_void;
    use std::io::Write as _;

    use super::*;
    use crate::Api;

    unsafe extern "C" fn nothing(_: *mut c_void, _: *mut c_void) -> u32 {
        0
    }

    /// Creates a parameter from `-s`, `--long` and option letters.
    fn param(
        definitions: &mut Definitions,
        command: Option<CommandId>,
        names: (&str, &str),
        value_type: ValueType,
        change: impl FnOnce(&mut Param),
    ) -> ParamId {
        let id = definitions.create_param();
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let param = definitions.param_mut(id);
        param.short = name(names.0);
        param.long = name(names.1);
        param.description = Some(format!("About {}{}", names.0, names.1));
        param.value_type = Some(value_type);
        param.callback = Some(nothing);
        change(param);
        definitions.register_param(command, id).expect("complete");
        id
    }

    /// A program similar to the storage applications.
    fn program() -> Definitions {
        let mut definitions = Definitions::default();
        let d = &mut definitions;
        param(d, None, ("d", "device"), ValueType::String, |param| {
            param.mandatory = true;
            param.arguments = Some("<device>".to_owned());
        });
        param(d, None, ("", "cpu"), ValueType::Int, |param| {
            param.multiple = true
        });
        param(d, None, ("nd", "num-devices"), ValueType::Int, |_| ());
        param(d, None, ("n", "name"), ValueType::String, |_| ());
        param(d, None, ("q", "quiet"), ValueType::Boolean, |_| ());
        param(d, None, ("", "list"), ValueType::Boolean, |param| {
            param.singular = true
        });
        definitions
    }

    fn parse(definitions: &Definitions, line: &str) -> Result<Outcome, Refusal> {
        let arguments: Vec<CString> = std::iter::once("bin/program")
            .chain(line.split_whitespace())
            .map(|argument| CString::new(argument).unwrap())
            .collect();
        let arguments: Vec<&CStr> = arguments.iter().map(CString::as_c_str).collect();
        super::parse(definitions, &arguments, false)
    }

    /// The actions as text, such as `device=03:00.0 cpu=1`.
    fn said(definitions: &Definitions, run: &Run) -> String {
        let one = |action: &Action| match action {
            Action::Command(id) => definitions.command(*id).name.clone().unwrap(),
            Action::Param(id, value) => {
                let name = definitions.param(*id).flag();
                let value = match value {
                    Value::Text(text) => text.to_str().unwrap().to_owned(),
                    Value::Int(number) => number.to_string(),
                    Value::Double(number) => number.to_string(),
                    Value::Bool(truth) => truth.to_string(),
                    Value::Device(device) => format!(
                        "{}({})",
                        device.device.model().pci,
                        device
                            .rest
                            .as_ref()
                            .map_or("", |rest| rest.to_str().unwrap())
                    ),
                    Value::Representor(both) => format!(
                        "{}>{}({})",
                        both.device.device.model().pci,
                        both.representor.model().pci,
                        both.device
                            .rest
                            .as_ref()
                            .map_or("", |rest| rest.to_str().unwrap())
                    ),
                };
                format!("{}={value}", name.trim_start_matches('-'))
            }
        };
        run.actions.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn run(definitions: &Definitions, line: &str) -> Run {
        match parse(definitions, line) {
            Ok(Outcome::Run(run)) => run,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[track_caller]
    fn accepts(definitions: &Definitions, line: &str, expected: &str) {
        assert_eq!(
            said(definitions, &run(definitions, line)),
            expected,
            "{line}"
        );
    }

    #[track_caller]
    fn refuses(definitions: &Definitions, line: &str, error: Error, part: &str) {
        let refusal = parse(definitions, line).expect_err(line);
        assert_eq!(refusal.error, error, "{line}: {}", refusal.text);
        assert!(refusal.text.contains(part), "{line}: {}", refusal.text);
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn flags_are_read_in_order_and_in_every_spelling() {
        let d = program();
        accepts(&d, "-d 03:00.0", "device=03:00.0");
        accepts(&d, "--device=a=b -n=x", "device=a=b name=x");
        accepts(
            &d,
            "-q --cpu 1 -d x --cpu 0",
            "quiet=true cpu=1 device=x cpu=0",
        );
        accepts(&d, "-nd 2 -n d -d -", "num-devices=2 name=d device=-");
        accepts(
            &d,
            "-d x -nd -5 --cpu 0x1F",
            "device=x num-devices=-5 cpu=31",
        );
        accepts(&d, "--list", "list=true");
    }

    #[test]
    fn mistakes_are_refused_and_named() {
        let d = program();
        use Error::{InvalidValue, NotSupported};
        refuses(&d, "", InvalidValue, "--device");
        refuses(&d, "-d x --what", NotSupported, "--what");
        refuses(&d, "-d x -x", NotSupported, "-x");
        refuses(&d, "-d x y", NotSupported, "\"y\"");
        refuses(&d, "-d x --", NotSupported, "--");
        refuses(&d, "-d", InvalidValue, "-d ");
        refuses(&d, "-d --cpu 0", InvalidValue, "-d ");
        refuses(&d, "-d x -d y", InvalidValue, "-d ");
        refuses(&d, "-d x --quiet=1", InvalidValue, "--quiet ");
        for wrong in ["1x", "", "--1", "0x", "2147483648", "1.5"] {
            let line = format!("-d x --cpu={wrong}");
            // The accepted range, and the value.
            for part in ["--cpu", "-2147483648", "2147483647", &format!("{wrong:?}")] {
                refuses(&d, &line, InvalidValue, part);
            }
        }
        for flag in ["--list", "--device"] {
            refuses(&d, "--list -d x", InvalidValue, flag);
        }
        for part in ["--log-level", "10", "45"] {
            refuses(&d, "-d x -l 45", InvalidValue, part);
        }
        refuses(&d, "-d x -l info", InvalidValue, "\"info\"");
        refuses(
            &d,
            "-d x -j /nowhere/at-all",
            Error::IoFailed,
            "/nowhere/at-all",
        );
    }

    #[test]
    fn help_and_version_stop_the_parser() {
        let d = program();
        assert!(matches!(parse(&d, "-h --nonsense"), Ok(Outcome::Help(_))));
        assert!(matches!(parse(&d, "-q --help"), Ok(Outcome::Help(_))));
        assert!(matches!(parse(&d, "-v --nonsense"), Ok(Outcome::Version)));
        refuses(&d, "--nonsense -h", Error::NotSupported, "--nonsense");
        let arguments = [c"program", c"-v", c"-d", c"x"];
        let shown = crate::argp::parse(&d, &arguments, true);
        assert!(matches!(shown, Ok(Outcome::Run(run)) if said(&d, &run) == "device=x"));
    }

    #[test]
    fn log_levels_are_read_and_the_command_line_wins() {
        let d = program();
        let file = file(r#"{"doca_general_flags": {"log-level": 60, "sdk-log-level": 70}}"#);
        let path = file.path().display();
        let levels = run(&d, &format!("-d x -l 30 -j {path}")).levels;
        assert_eq!(levels.program.map(|level| level as u32), Some(30));
        assert_eq!(levels.sdk.map(|level| level as u32), Some(70));
        let levels = run(&d, "-d x --sdk-log-level=20").levels;
        assert_eq!(levels.program, None);
        assert_eq!(levels.sdk.map(|level| level as u32), Some(20));
    }

    #[test]
    fn dpdk_gets_the_arguments_before_two_dashes() {
        let mut d = program();
        d.with_dpdk = true;
        let dpdk = |line: &str| {
            let run = run(&d, line);
            let texts: Vec<&str> = run.dpdk.iter().map(|text| text.to_str().unwrap()).collect();
            texts.join(" ")
        };
        assert_eq!(dpdk("-l 0-3 -n 4 -- -d x"), "bin/program -l 0-3 -n 4");
        assert_eq!(dpdk("-d x"), "bin/program");
        let file = file(
            r#"{"doca_dpdk_flags": {"core-mask": "0xff", "devices": [{"device": "pf", "id": "03:00.0"}], "flags": " -n  4"}}"#,
        );
        let path = file.path().display();
        assert_eq!(
            dpdk(&format!("-d x -j {path}")),
            "bin/program -c 0xff -a 03:00.0 -n 4"
        );
    }

    #[test]
    fn a_program_may_override_a_short_general_flag() {
        let mut d = Definitions::default();
        param(&mut d, None, ("v", "vuid"), ValueType::String, |_| ());
        accepts(&d, "-v x", "vuid=x");
        assert!(matches!(parse(&d, "--version"), Ok(Outcome::Version)));
        assert!(usage(&d, None, &Scope::new()).contains("\n  --version "));
    }

    #[test]
    fn commands_have_flags_of_their_own() {
        let mut d = Definitions::default();
        param(&mut d, None, ("", "outer"), ValueType::Int, |_| ());
        param(&mut d, None, ("", "all"), ValueType::Int, |param| {
            param.inherited = true
        });
        let create = |d: &mut Definitions, name: &str| {
            let id = d.create_command();
            d.command_mut(id).name = Some(name.to_owned());
            d.command_mut(id).description = Some(format!("To {name}"));
            id
        };
        let get = create(&mut d, "get");
        let deep = create(&mut d, "deep");
        param(
            &mut d,
            Some(get),
            ("", "limit"),
            ValueType::Boolean,
            |param| param.mandatory = true,
        );
        param(&mut d, Some(deep), ("", "limit"), ValueType::Int, |_| ());
        assert_eq!(d.register_command(Some(get), deep), Ok(()));
        assert_eq!(d.register_command(None, get), Ok(()));
        assert_eq!(d.register_command(None, get), Err(Error::BadState));
        assert_eq!(d.destroy_command(get), Err(Error::BadState));

        accepts(
            &d,
            "--outer 1 get --limit --all 2",
            "outer=1 get limit=true all=2",
        );
        accepts(
            &d,
            "get --limit deep --limit 3",
            "get limit=true deep limit=3",
        );
        accepts(&d, "--outer 1", "outer=1");
        refuses(&d, "get", Error::InvalidValue, "--limit");
        refuses(&d, "get --outer 1", Error::NotSupported, "--outer");
        for command in ["\"put\"", "get"] {
            refuses(&d, "put", Error::NotSupported, command);
        }
        assert!(matches!(parse(&d, "get -h"), Ok(Outcome::Help(scope)) if scope == [get]));
        let file = file(r#"{"doca_program_flags": {"limit": true, "outer": 4}}"#);
        accepts(
            &d,
            &format!("get -j {}", file.path().display()),
            "limit=true outer=4 get",
        );

        let text = usage(&d, Some("program"), &vec![get]);
        let synopsis = text.lines().next().unwrap();
        assert!(
            synopsis.starts_with("Usage: program get ") && synopsis.ends_with(" <command>"),
            "{text}"
        );
        // The command's own description, and the command that may follow it.
        for part in ["\nTo get\n", "\n  deep "] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            text.contains("--all") && !text.contains("--outer"),
            "{text}"
        );
    }

    #[test]
    fn incomplete_and_duplicate_definitions_are_refused() {
        let mut d = program();
        let id = d.create_param();
        assert_eq!(d.register_param(None, id), Err(Error::Initialization));
        let complete = |d: &mut Definitions, long: &str| {
            let id = d.create_param();
            let param = d.param_mut(id);
            param.long = Some(long.to_owned());
            param.description = Some(String::new());
            param.callback = Some(nothing);
            param.value_type = Some(ValueType::Int);
            id
        };
        for long in ["device", "help", "sdk-log-level"] {
            let id = complete(&mut d, long);
            assert_eq!(
                d.register_param(None, id),
                Err(Error::InvalidValue),
                "{long}"
            );
        }
        let id = complete(&mut d, "new");
        assert_eq!(d.register_param(None, id), Ok(()));
        assert_eq!(d.register_param(None, id), Err(Error::BadState));
        assert_eq!(d.destroy_param(id), Err(Error::BadState));
        let id = complete(&mut d, "other");
        assert_eq!(d.destroy_param(id), Ok(()));
        assert_eq!(d.param_of(id.number()), Err(Error::InvalidValue));
        assert_eq!(d.param_of(0), Err(Error::InvalidValue));
    }

    #[test]
    fn the_usage_has_docas_layout() {
        let mut d = program();
        d.program_name = Some("storage".to_owned());
        param(&mut d, None, ("", "secret"), ValueType::Int, |param| {
            param.hidden = true
        });
        let text = usage(&d, Some("ignored"), &Scope::new());
        let expected = "\
Usage: storage [DOCA Flags] [Program Flags]

DOCA Flags:
  -h, --help                        Print a help synopsis
  -v, --version                     Print program version information
  -l, --log-level                   Set the (numeric) log level for the program <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>
  --sdk-log-level                   Set the SDK (numeric) log level for the program <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>
  -j, --json <path>                 Parse command line flags from an input json file

Program Flags:
  -d, --device <device>             About ddevice
  --cpu                             About cpu
  -nd, --num-devices                About ndnum-devices
  -n, --name                        About nname
  -q, --quiet                       About qquiet
  --list                            About list
";
        assert_eq!(text, expected);
    }

    #[test]
    fn files_supply_flags_missing_on_the_command_line() {
        let d = program();
        let file = file(
            r#"{
            // file order is kept
            "doca_program_flags": {
                "quiet": false, "device": "file:00.0", /* both */ "cpu": [2, 1], "num-devices": 7
            }
        }"#,
        );
        let path = file.path().display();
        accepts(
            &d,
            &format!("-j {path}"),
            "quiet=false device=file:00.0 cpu=2 cpu=1 num-devices=7",
        );
        accepts(
            &d,
            &format!("--cpu 0 --json={path} -d line"),
            "quiet=false num-devices=7 cpu=0 device=line",
        );
    }

    #[test]
    fn files_are_checked() {
        let mut d = program();
        param(&mut d, None, ("", "only-line"), ValueType::Int, |param| {
            param.command_line_only = true
        });
        param(&mut d, None, ("s", ""), ValueType::Int, |_| ());
        let program_flags = |flags: &str| format!("{{\"doca_program_flags\": {flags}}}");
        use Error::{InvalidValue, IoFailed, NotSupported};
        for (text, error, part) in [
            ("{".to_owned(), IoFailed, "--json"),
            ("[]".to_owned(), IoFailed, "--json"),
            (program_flags("1"), IoFailed, "`1`"),
            (
                program_flags(r#"{"cpu": 1, "cpu": 2}"#),
                IoFailed,
                "\"cpu\"",
            ),
            (
                r#"{"flags": {}}"#.to_owned(),
                NotSupported,
                "doca_program_flags",
            ),
            (
                r#"{"doca_dpdk_flags": {}}"#.to_owned(),
                NotSupported,
                "doca_program_flags",
            ),
            (
                program_flags(r#"{"only-line": 1}"#),
                NotSupported,
                "\"only-line\"",
            ),
            (program_flags(r#"{"s": 1}"#), NotSupported, "\"s\""),
            (
                program_flags(r#"{"log-level": 50}"#),
                NotSupported,
                "\"log-level\"",
            ),
            (program_flags(r#"{"cpu": "1"}"#), InvalidValue, "\"cpu\""),
            (program_flags(r#"{"cpu": 1.5}"#), InvalidValue, "1.5"),
            (
                program_flags(r#"{"num-devices": [1]}"#),
                InvalidValue,
                "\"num-devices\"",
            ),
            (
                program_flags(r#"{"quiet": "true"}"#),
                InvalidValue,
                "\"quiet\"",
            ),
            (
                program_flags(r#"{"device": 1}"#),
                InvalidValue,
                "\"device\"",
            ),
            (
                r#"{"doca_general_flags": {"log-level": "50"}}"#.to_owned(),
                InvalidValue,
                "\"log-level\"",
            ),
            (
                r#"{"doca_general_flags": {"log-level": 51}}"#.to_owned(),
                InvalidValue,
                "--log-level",
            ),
            (
                r#"{"doca_general_flags": {"json": "x"}}"#.to_owned(),
                NotSupported,
                "\"json\"",
            ),
        ] {
            let file = file(&text);
            // An invalid value in the file is reported even if the command line overrides it.
            let line = format!("-d x --cpu 1 -j {}", file.path().display());
            refuses(&d, &line, error, part);
        }
    }

    #[test]
    fn unknown_keys_are_ignored_if_the_program_allows_them() {
        let mut d = program();
        let text = r#"{"doca_general_flags": {"colour": 1, "log-level": 60}, "doca_program_flags": {"wheels": 4, "cpu": [3]}, "other": {"a": 1}}"#;
        let file = file(text);
        let line = format!("-d x -j {}", file.path().display());
        refuses(&d, &line, Error::NotSupported, "\"colour\"");
        d.ignores_unknown_keys = true;
        accepts(&d, &line, "cpu=3 device=x");
        assert!(run(&d, &line).levels.program.is_some());
        // Known keys must still have valid values.
        let wrong = self::file(r#"{"doca_program_flags": {"cpu": "three"}}"#);
        let line = format!("-d x -j {}", wrong.path().display());
        refuses(&d, &line, Error::InvalidValue, "\"three\"");
    }

    #[test]
    fn numbers_with_fractions_are_read() {
        let mut d = Definitions::default();
        param(&mut d, None, ("r", "ratio"), ValueType::Double, |_| ());
        for (text, value) in [
            ("12.5", "12.5"),
            ("-1e3", "-1000"),
            ("7", "7"),
            (".5", "0.5"),
        ] {
            accepts(&d, &format!("-r {text}"), &format!("ratio={value}"));
        }
        for text in ["many", "1,5", "inf", "NaN", "1e999", "12.5x"] {
            refuses(&d, &format!("-r {text}"), Error::InvalidValue, "12.5");
        }
        let file = file(r#"{"doca_program_flags": {"ratio": 0.25}}"#);
        accepts(&d, &format!("-j {}", file.path().display()), "ratio=0.25");
        let whole = self::file(r#"{"doca_program_flags": {"ratio": 3}}"#);
        accepts(&d, &format!("-j {}", whole.path().display()), "ratio=3");
        let text = self::file(r#"{"doca_program_flags": {"ratio": "3"}}"#);
        let line = format!("-j {}", text.path().display());
        refuses(&d, &line, Error::InvalidValue, "\"ratio\"");
    }

    #[test]
    fn types_have_the_numbers_of_the_release() {
        use ValueType::*;
        let types = |api| [1, 2, 3, 4, 5, 6, 256].map(|number| ValueType::from_number(api, number));
        let [one, two, three] = [Some(String), Some(Int), Some(Boolean)];
        let object = Some(JsonObject);
        for api in [Api::V2_5, Api::V2_6, Api::V2_9, Api::V3_0] {
            assert_eq!(types(api), [one, two, three, object, None, None, object]);
        }
        for api in [Api::V3_1, Api::V3_2, Api::V3_3] {
            assert_eq!(
                types(api),
                [
                    one,
                    two,
                    three,
                    Some(Device),
                    Some(Representor),
                    Some(Double),
                    object
                ]
            );
            assert_eq!(ValueType::from_number(api, 0), None);
            assert_eq!(ValueType::from_number(api, 7), None);
        }
    }

    #[test]
    fn objects_and_devices_are_read() {
        let mut d = Definitions::default();
        param(&mut d, None, ("", "rules"), ValueType::JsonObject, |_| ());
        param(&mut d, None, ("d", "device"), ValueType::Device, |_| ());
        param(&mut d, None, ("r", "rep"), ValueType::Representor, |_| ());
        let file = file(r#"{"doca_program_flags": {"rules": {"a": [1, 2]}, "device": "mlx5_0"}}"#);
        accepts(
            &d,
            &format!("-j {}", file.path().display()),
            r#"rules={"a":[1,2]} device=0000:03:00.0()"#,
        );
        accepts(
            &d,
            "-d pci/0000:03:00.0,dv_flow_en=2,x",
            "device=0000:03:00.0(dv_flow_en=2,x)",
        );
        accepts(
            &d,
            "-r pci/03:00.0,3b:00.0,args",
            "rep=0000:03:00.0>0000:3b:00.0(args)",
        );
        refuses(&d, "--rules {}", Error::InvalidValue, "--rules");
        refuses(&d, "-d mlx5_9", Error::NotFound, "\"mlx5_9\"");
        refuses(
            &d,
            "-r mlx5_0",
            Error::InvalidValue,
            "<device>,<representor>",
        );
        refuses(&d, "-r mlx5_0,pf9", Error::NotFound, "\"pf9\"");
    }
}
