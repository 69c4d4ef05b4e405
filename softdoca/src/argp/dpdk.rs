//! Arguments that a program passes on to DPDK.

use std::ffi::{CStr, CString};

use serde_json::Value as Json;

use super::json::kind;
use super::{Definitions, Refusal};

/// Splits the arguments at `--` into DPDK's, preceded by the program's name, and DOCA's, without it. Without a `--`,
/// all are DOCA's.
pub(super) fn split<'a, 'b>(
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
pub(super) fn from_json(object: Vec<(String, Json)>) -> Result<Vec<CString>, Refusal> {
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
