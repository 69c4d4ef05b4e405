//! Definitions of a program's parameters and commands, and their values.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use doca_abi::{
    DOCA_ARGP_TYPE_BOOLEAN, DOCA_ARGP_TYPE_DEVICE, DOCA_ARGP_TYPE_DEVICE_REP,
    DOCA_ARGP_TYPE_DOUBLE, DOCA_ARGP_TYPE_INT, DOCA_ARGP_TYPE_JSON_OBJ, DOCA_ARGP_TYPE_STRING,
    doca_argp_cmd_cb_t, doca_argp_param_cb_t,
};

use super::Refusal;
use crate::Api;
use crate::argp;
use crate::device::{Device, Representor};
use crate::error::{Error, Result};

#[derive(Debug, Default)]
pub struct Param {
    /// Name after one dash; may have several letters.
    pub short: Option<String>,
    /// Name after two dashes, and key in the JSON file.
    pub long: Option<String>,
    /// Placeholder of the value in the usage text.
    pub arguments: Option<String>,
    pub description: Option<String>,
    pub value_type: Option<ValueType>,
    /// Called with each value.
    pub callback: doca_argp_param_cb_t,
    pub mandatory: bool,
    /// The parameter may be given several times.
    pub multiple: bool,
    /// The parameter is not accepted in the JSON file.
    pub command_line_only: bool,
    /// Excludes all other parameters.
    pub singular: bool,
    /// Accepted after all subcommands of the command it is registered for.
    pub inherited: bool,
    /// The parameter is omitted from the usage text.
    pub hidden: bool,
    registered: bool,
}

impl Param {
    /// The flag as written by users.
    pub fn flag(&self) -> String {
        match (&self.long, &self.short) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => String::new(),
        }
    }

    fn check(&self) -> Result<()> {
        let missing = match self {
            Param {
                short: None,
                long: None,
                ..
            } => "a name",
            Param {
                description: None, ..
            } => "a description",
            Param { callback: None, .. } => "a callback",
            Param {
                value_type: None, ..
            } => "a type",
            _ => return Ok(()),
        };
        Err(Error::Initialization.because(format_args!(
            "the parameter {} lacks {missing}",
            self.flag()
        )))
    }
}

/// A command, or the program itself.
#[derive(Debug, Default)]
pub struct Command {
    /// Name as written by users.
    pub name: Option<String>,
    pub description: Option<String>,
    /// Called when the command is named.
    pub callback: doca_argp_cmd_cb_t,
    /// The parameter is omitted from the usage text.
    pub hidden: bool,
    /// Parameters in the order of registration.
    pub params: Vec<ParamId>,
    pub commands: Vec<CommandId>,
    registered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamId(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandId(usize);

/// The path of commands from the program to the named one, outermost first.
pub type Scope = Vec<CommandId>;

/// All definitions of a program.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Name in the usage text; defaults to the name of the program's file.
    pub program_name: Option<String>,
    /// `true` if arguments before a `--` are passed to DPDK.
    pub with_dpdk: bool,
    /// `true` to ignore JSON keys without a parameter.
    pub ignores_unknown_keys: bool,
    root: Command,
    // Entries are never removed, so that using a stale C handle is safe. Destroyed entries are `None`.
    params: Vec<Option<Param>>,
    commands: Vec<Option<Command>>,
}

impl ParamId {
    /// Handle of the parameter for C; at least 1.
    pub fn number(self) -> usize {
        self.0 + 1
    }
}

impl CommandId {
    /// Handle of the command for C; at least 1.
    pub fn number(self) -> usize {
        self.0 + 1
    }
}

impl Definitions {
    pub fn create_param(&mut self) -> ParamId {
        self.params.push(Some(Param::default()));
        ParamId(self.params.len() - 1)
    }

    pub fn create_command(&mut self) -> CommandId {
        self.commands.push(Some(Command::default()));
        CommandId(self.commands.len() - 1)
    }

    /// Looks up a parameter by its handle.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if it does not exist.
    pub fn param_of(&self, number: usize) -> Result<ParamId> {
        let index = number.wrapping_sub(1);
        match self.params.get(index) {
            Some(Some(_)) => Ok(ParamId(index)),
            _ => Err(Error::InvalidValue.because("expected a parameter, got something else")),
        }
    }

    /// Looks up a command by its handle.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if it does not exist.
    pub fn command_of(&self, number: usize) -> Result<CommandId> {
        let index = number.wrapping_sub(1);
        match self.commands.get(index) {
            Some(Some(_)) => Ok(CommandId(index)),
            _ => Err(Error::InvalidValue.because("expected a command, got something else")),
        }
    }

    /// The parameter, which must not have been destroyed.
    pub fn param(&self, id: ParamId) -> &Param {
        self.params[id.0]
            .as_ref()
            .expect("identifiers of destroyed parameters are not given out")
    }

    /// The command, which must not have been destroyed.
    pub fn command(&self, id: CommandId) -> &Command {
        self.commands[id.0]
            .as_ref()
            .expect("identifiers of destroyed commands are not given out")
    }

    /// The parameter, to change its properties.
    pub fn param_mut(&mut self, id: ParamId) -> &mut Param {
        self.params[id.0]
            .as_mut()
            .expect("identifiers of destroyed parameters are not given out")
    }

    /// The command, to change its properties.
    pub fn command_mut(&mut self, id: CommandId) -> &mut Command {
        self.commands[id.0]
            .as_mut()
            .expect("identifiers of destroyed commands are not given out")
    }

    /// The program and the commands of a scope.
    pub fn chain<'a>(&'a self, scope: &'a Scope) -> impl DoubleEndedIterator<Item = &'a Command> {
        std::iter::once(&self.root).chain(scope.iter().map(|id| self.command(*id)))
    }

    /// The parameters accepted after the last command of a scope.
    pub fn visible(&self, scope: &Scope) -> Vec<ParamId> {
        let depth = scope.len();
        self.chain(scope)
            .enumerate()
            .flat_map(|(level, command)| command.params.iter().map(move |id| (level, *id)))
            .filter(|(level, id)| *level == depth || self.param(*id).inherited)
            .map(|(_, id)| id)
            .collect()
    }

    /// The subcommands of the last command of a scope.
    pub fn following(&self, scope: &Scope) -> &[CommandId] {
        scope
            .last()
            .map_or(&self.root, |id| self.command(*id))
            .commands
            .as_slice()
    }

    /// Registers a parameter for a command, or for the program.
    ///
    /// # Errors
    /// [`Error::BadState`] if it or the command is already registered, [`Error::Initialization`] if a required property
    /// is missing, [`Error::InvalidValue`] if one of its names is already used.
    pub fn register_param(&mut self, command: Option<CommandId>, id: ParamId) -> Result<()> {
        let target = command.map_or(&self.root, |command| self.command(command));
        if self.param(id).registered || target.registered {
            return Err(Error::BadState.because("the parameter or command is already registered"));
        }
        let param = self.param(id);
        param.check()?;
        let taken = target.params.iter().any(|other| {
            let other = self.param(*other);
            let same = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
            same(&param.short, &other.short) || same(&param.long, &other.long)
        });
        // A program's own flag may hide a short general one, but not a long one, because long names are also JSON keys.
        if taken || argp::is_long(param.long.as_deref()) {
            return Err(Error::InvalidValue.because(format_args!(
                "another parameter already has a name of {}",
                param.flag()
            )));
        }
        let param = self.param_mut(id);
        param.registered = true;
        param.command_line_only |= param.long.is_none();
        match command {
            Some(command) => self.command_mut(command).params.push(id),
            None => self.root.params.push(id),
        }
        Ok(())
    }

    /// Registers a command as a subcommand of another one, or of the program.
    ///
    /// # Errors
    /// As [`register_param`](Self::register_param).
    pub fn register_command(&mut self, outer: Option<CommandId>, id: CommandId) -> Result<()> {
        let target = outer.map_or(&self.root, |outer| self.command(outer));
        let command = self.command(id);
        if command.registered || target.registered {
            return Err(Error::BadState.because("one of the commands is already registered"));
        }
        if outer == Some(id) {
            return Err(Error::InvalidValue.because("a command cannot be a subcommand of itself"));
        }
        if command.name.is_none() || command.description.is_none() {
            return Err(Error::Initialization.because(format_args!(
                "the command {} lacks a name or a description",
                command.name.as_deref().unwrap_or_default()
            )));
        }
        if target
            .commands
            .iter()
            .any(|other| self.command(*other).name == command.name)
        {
            return Err(Error::InvalidValue.because(format_args!(
                "there already is a command {}",
                command.name.as_deref().unwrap_or_default()
            )));
        }
        self.command_mut(id).registered = true;
        match outer {
            Some(outer) => self.command_mut(outer).commands.push(id),
            None => self.root.commands.push(id),
        }
        Ok(())
    }

    /// Destroys an unregistered parameter.
    ///
    /// # Errors
    /// [`Error::BadState`] if it is registered.
    pub fn destroy_param(&mut self, id: ParamId) -> Result<()> {
        if self.param(id).registered {
            return Err(Error::BadState.because("a registered parameter is owned by the parser"));
        }
        self.params[id.0] = None;
        Ok(())
    }

    /// Destroys an unregistered command.
    ///
    /// # Errors
    /// [`Error::BadState`] if it is registered.
    pub fn destroy_command(&mut self, id: CommandId) -> Result<()> {
        if self.command(id).registered {
            return Err(Error::BadState.because("a registered command is owned by the parser"));
        }
        self.commands[id.0] = None;
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    String,
    /// A C `int`.
    Int,
    /// A flag without a value on the command line; `true` or `false` in the JSON file.
    Boolean,
    /// A device, opened while parsing.
    Device,
    /// A representor, opened while parsing.
    Representor,
    /// A C `double`.
    Double,
    /// A JSON object; JSON file only.
    JsonObject,
}

impl ValueType {
    /// The type with this number in `enum doca_argp_type` of a release.
    pub fn from_number(api: Api, number: u32) -> Option<ValueType> {
        match number {
            DOCA_ARGP_TYPE_STRING => Some(ValueType::String),
            DOCA_ARGP_TYPE_INT => Some(ValueType::Int),
            DOCA_ARGP_TYPE_BOOLEAN => Some(ValueType::Boolean),
            // Releases up to 3.0 use this number for the JSON object, later ones for the device.
            DOCA_ARGP_TYPE_DEVICE if api <= Api::V3_0 => Some(ValueType::JsonObject),
            DOCA_ARGP_TYPE_JSON_OBJ => Some(ValueType::JsonObject),
            _ if api <= Api::V3_0 => None,
            DOCA_ARGP_TYPE_DEVICE => Some(ValueType::Device),
            DOCA_ARGP_TYPE_DEVICE_REP => Some(ValueType::Representor),
            DOCA_ARGP_TYPE_DOUBLE => Some(ValueType::Double),
            _ => None,
        }
    }

    /// `true` if a flag of this type is followed by a value on the command line.
    pub(super) fn takes_value(self) -> bool {
        self != ValueType::Boolean
    }
}

/// A value passed to a callback.
#[derive(Debug)]
pub enum Value {
    /// A string, or the text of a JSON object.
    Text(CString),
    Int(i32),
    Double(f64),
    Bool(bool),
    /// A device, opened while parsing.
    Device(DeviceArgument),
    /// A representor, opened while parsing.
    Representor(RepresentorArgument),
}

/// A device and the text after its name.
#[derive(Debug)]
pub struct DeviceArgument {
    pub device: Arc<Device>,
    /// Device arguments: the text after the first comma.
    pub rest: Option<CString>,
}

/// A representor with its device, and the text after their names.
#[derive(Debug)]
pub struct RepresentorArgument {
    /// The device that the representor belongs to.
    pub device: DeviceArgument,
    pub representor: Arc<Representor>,
}

impl Value {
    /// Parses a value of the command line.
    pub(super) fn read(
        value_type: ValueType,
        flag: &str,
        text: &CStr,
    ) -> std::result::Result<Value, Refusal> {
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

/// A decimal number, optionally with a fraction or exponent; infinities are refused.
fn double(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A decimal number, or a hexadecimal one after `0x`.
pub(super) fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    // `from_str_radix` would accept a second sign.
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

/// Prefixes that select the kind of a device's name, as in `pci/0000:03:00.0`.
const PREFIXES: [&str; 4] = ["pci/", "ibdev/", "iface/", "netdev/"];

fn device(flag: &str, text: &str) -> std::result::Result<DeviceArgument, Refusal> {
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
        // Cannot fail: the text is part of a C string.
        rest: rest.and_then(|rest| CString::new(rest).ok()),
    })
}

/// `<device>,<representor>[,<device arguments>]`
fn representor(flag: &str, text: &str) -> std::result::Result<RepresentorArgument, Refusal> {
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
