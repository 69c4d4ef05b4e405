//! A program like the storage ones, and what its callbacks would get.

mod command_line;
mod definitions;
mod files;

use std::ffi::{CString, c_void};
use std::io::Write as _;

use super::*;

unsafe extern "C" fn nothing(_: *mut c_void, _: *mut c_void) -> u32 {
    0
}

/// Makes a parameter from `-s`, `--long` and marks.
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

/// A program like the storage ones.
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

/// What the callbacks would get: `device=03:00.0 cpu=1`.
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
