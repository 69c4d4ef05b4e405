//! Values of parameters.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use doca_abi::{
    DOCA_ARGP_TYPE_BOOLEAN, DOCA_ARGP_TYPE_DEVICE, DOCA_ARGP_TYPE_DEVICE_REP,
    DOCA_ARGP_TYPE_DOUBLE, DOCA_ARGP_TYPE_INT, DOCA_ARGP_TYPE_JSON_OBJ, DOCA_ARGP_TYPE_STRING,
};

use super::Refusal;
use crate::api::Api;
use crate::device::{Device, Representor};

/// Kinds of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// Text.
    String,
    /// A C `int`.
    Int,
    /// Given or not.
    Boolean,
    /// A device, opened.
    Device,
    /// A representor, opened.
    Representor,
    /// A C `double`.
    Double,
    /// A JSON object, only in the JSON file.
    JsonObject,
}

impl ValueType {
    /// The type with this number in `enum doca_argp_type` of a release.
    pub fn from_number(api: Api, number: u32) -> Option<ValueType> {
        match (number, api) {
            (DOCA_ARGP_TYPE_STRING, _) => Some(ValueType::String),
            (DOCA_ARGP_TYPE_INT, _) => Some(ValueType::Int),
            (DOCA_ARGP_TYPE_BOOLEAN, _) => Some(ValueType::Boolean),
            // Where devices are since, and the last one.
            (DOCA_ARGP_TYPE_DEVICE, Api::V3_0) => Some(ValueType::JsonObject),
            (DOCA_ARGP_TYPE_JSON_OBJ, _) => Some(ValueType::JsonObject),
            (_, Api::V3_0) => None,
            (DOCA_ARGP_TYPE_DEVICE, _) => Some(ValueType::Device),
            (DOCA_ARGP_TYPE_DEVICE_REP, _) => Some(ValueType::Representor),
            (DOCA_ARGP_TYPE_DOUBLE, _) => Some(ValueType::Double),
            _ => None,
        }
    }

    /// Whether a flag of this type is followed by a value on the command line.
    pub(super) fn takes_value(self) -> bool {
        self != ValueType::Boolean
    }
}

/// A value for a callback.
#[derive(Debug)]
pub enum Value {
    /// Text; also that of a JSON object.
    Text(CString),
    /// A number.
    Int(i32),
    /// A number with a fraction.
    Double(f64),
    /// A truth.
    Bool(bool),
    /// A device.
    Device(DeviceArgument),
    /// A representor.
    Representor(RepresentorArgument),
}

/// A device and what follows its name.
#[derive(Debug)]
pub struct DeviceArgument {
    /// Opened.
    pub device: Arc<Device>,
    /// Device arguments, behind the first comma.
    pub rest: Option<CString>,
}

/// A representor with its device, and what follows their names.
#[derive(Debug)]
pub struct RepresentorArgument {
    /// The device that sees it.
    pub device: DeviceArgument,
    /// Opened.
    pub representor: Arc<Representor>,
}

impl Value {
    /// Reads a value from the command line.
    pub(super) fn read(value_type: ValueType, flag: &str, text: &CStr) -> Result<Value, Refusal> {
        match value_type {
            ValueType::String => Ok(Value::Text(text.to_owned())),
            ValueType::Boolean => Ok(Value::Bool(true)),
            ValueType::Int => number(&text.to_string_lossy())
                .and_then(|number| i32::try_from(number).ok())
                .map(Value::Int)
                .ok_or_else(|| {
                    Refusal::invalid(format_args!(
                        "{flag}: expected a number from {} to {}, got {text:?}",
                        i32::MIN,
                        i32::MAX
                    ))
                }),
            ValueType::Double => double(&text.to_string_lossy())
                .map(Value::Double)
                .ok_or_else(|| {
                    Refusal::invalid(format_args!(
                        "{flag}: expected a number such as 12.5, got {text:?}"
                    ))
                }),
            ValueType::JsonObject => Err(Refusal::invalid(format_args!(
                "{flag} can be given only in a JSON file"
            ))),
            ValueType::Device => device(flag, &text.to_string_lossy()).map(Value::Device),
            ValueType::Representor => {
                representor(flag, &text.to_string_lossy()).map(Value::Representor)
            }
        }
    }
}

/// A decimal number with or without a fraction or exponent; infinities are none.
fn double(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A decimal number, or a hexadecimal one behind `0x`.
pub(super) fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    // `from_str_radix` takes a second sign.
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let hexadecimal = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let magnitude = match hexadecimal {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => {
            i64::from_str_radix(digits, 16)
        }
        _ => digits.parse(),
    }
    .ok()?;
    Some(if negative { -magnitude } else { magnitude })
}

/// Kinds of names that may stand before a device's name, as in `pci/0000:03:00.0`.
const PREFIXES: [&str; 4] = ["pci/", "ibdev/", "iface/", "netdev/"];

fn device(flag: &str, text: &str) -> Result<DeviceArgument, Refusal> {
    let (name, rest) = match text.split_once(',') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let bare = PREFIXES
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    let device = Device::open_by_name(bare)
        .map_err(|error| Refusal::new(error, format_args!("{flag}: no device {name:?}")))?;
    Ok(DeviceArgument {
        device,
        // It came out of a C string.
        rest: rest.and_then(|rest| CString::new(rest).ok()),
    })
}

/// `<device>,<representor>[,<device arguments>]`
fn representor(flag: &str, text: &str) -> Result<RepresentorArgument, Refusal> {
    let mut parts = text.splitn(3, ',');
    let (Some(name), Some(wanted)) = (parts.next(), parts.next()) else {
        return Err(Refusal::invalid(format_args!(
            "{flag}: expected <device>,<representor>, got {text:?}"
        )));
    };
    let mut argument = device(flag, name)?;
    argument.rest = parts.next().and_then(|rest| CString::new(rest).ok());
    let refuse = |error| {
        Refusal::new(
            error,
            format_args!("{flag}: device {name:?} has no representor {wanted:?}"),
        )
    };
    let infos = argument.device.representors(None).map_err(refuse)?;
    let info = infos
        .iter()
        .find(|info| {
            let model = info.model();
            info.has_pci_address(wanted) == Ok(true)
                || model.iface == wanted
                || model.vuid() == wanted
        })
        .ok_or_else(|| refuse(crate::error::Error::NotFound))?;
    Ok(RepresentorArgument {
        representor: Representor::open(info),
        device: argument,
    })
}
