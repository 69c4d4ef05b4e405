//! `doca_argp.h`: arguments of programs.
//!
//! Handles are numbers and no pointers: a stale one is refused and not followed.

mod session;
mod start;
#[cfg(test)]
mod tests;
mod user;

use std::ffi::{c_char, c_int, c_void};

use doca_abi::{
    doca_argp_cmd, doca_argp_cmd_cb_t, doca_argp_dev_open_cb_t, doca_argp_dpdk_cb_t,
    doca_argp_logger_cb_t, doca_argp_param, doca_argp_param_cb_t, doca_argp_type,
    doca_argp_validation_cb_t,
};

use super::{check_out, doca_error_t, guard, not_null, put, text};
use crate::api::Api;
use crate::argp::{Command, CommandId, Definitions, Param, ParamId, ValueType};
use crate::error::{Error, Result};
use crate::log::{self, Level, Origin};
use session::{Opaque, Session};

/// Handles are multiples of this: they look like pointers, and NULL is none.
const STEP: usize = 16;

fn handle<T>(number: usize) -> *mut T {
    std::ptr::without_provenance_mut(number * STEP)
}

fn number<T>(handle: *const T) -> Result<usize> {
    not_null(handle)?;
    match handle.addr() {
        addr if addr.is_multiple_of(STEP) => Ok(addr / STEP),
        _ => Err(Error::InvalidValue.because("expected a handle of doca_argp, got something else")),
    }
}

fn param(definitions: &Definitions, handle: *const doca_argp_param) -> Result<ParamId> {
    definitions.param_of(number(handle)?)
}

fn command(definitions: &Definitions, handle: *const doca_argp_cmd) -> Result<CommandId> {
    definitions.command_of(number(handle)?)
}

/// Changes a parameter; errors go to the log, for want of another place.
fn change_param(handle: *mut doca_argp_param, change: impl FnOnce(&mut Param) -> Result<()>) {
    let _ = guard(|| {
        session::with(|session| {
            let id = param(&session.definitions, handle)?;
            change(session.definitions.param_mut(id))
        })
    });
}

/// Changes a command; errors go to the log.
fn change_command(handle: *mut doca_argp_cmd, change: impl FnOnce(&mut Command) -> Result<()>) {
    let _ = guard(|| {
        session::with(|session| {
            let id = command(&session.definitions, handle)?;
            change(session.definitions.command_mut(id))
        })
    });
}

fn with_session(action: impl FnOnce(&mut Session) -> Result<()>) -> doca_error_t {
    guard(|| session::with(action))
}

/// Begins.
///
/// # Safety
/// `program_name` is NULL or a C string. `program_config` is handed to the callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_init(
    program_name: *const c_char,
    program_config: *mut c_void,
) -> doca_error_t {
    guard(|| {
        let name = match program_name.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(unsafe { text(program_name) }?.to_owned()),
        };
        session::begin(name, program_config)
    })
}

/// Ends, and frees every parameter and command.
///
/// # Safety
/// None needed: handles that are used later are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_destroy() -> doca_error_t {
    guard(session::end)
}

/// Reads the arguments and calls the callbacks. With a flag for help the process prints the usage and exits.
///
/// # Safety
/// `argv` is NULL or has `argc` C strings; the callbacks that were set may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_start(argc: c_int, argv: *mut *mut c_char) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { start::start(argc, argv) })
}

/// Prints the usage: that of the command that the arguments named, if any.
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_usage() {
    let _ = guard(|| user::show_usage(None));
}

/// Registers a parameter of the program.
///
/// # Safety
/// None needed: a handle that is none is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_register_param(
    input_param: *mut doca_argp_param,
) -> doca_error_t {
    with_session(|session| {
        let id = param(&session.definitions, input_param)?;
        session.definitions.register_param(None, id)
    })
}

/// Registers a command of the program.
///
/// # Safety
/// None needed: a handle that is none is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_register_cmd(input_cmd: *mut doca_argp_cmd) -> doca_error_t {
    with_session(|session| {
        let id = command(&session.definitions, input_cmd)?;
        session.definitions.register_command(None, id)
    })
}

/// Registers a parameter of a command.
///
/// # Safety
/// None needed: a handle that is none is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_cmd_register_param(
    cmd: *mut doca_argp_cmd,
    input_param: *mut doca_argp_param,
) -> doca_error_t {
    with_session(|session| {
        let outer = command(&session.definitions, cmd)?;
        let id = param(&session.definitions, input_param)?;
        session.definitions.register_param(Some(outer), id)
    })
}

/// Registers an inner command.
///
/// # Safety
/// None needed: a handle that is none is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_cmd_register_cmd(
    cmd: *mut doca_argp_cmd,
    input_cmd: *mut doca_argp_cmd,
) -> doca_error_t {
    with_session(|session| {
        let outer = command(&session.definitions, cmd)?;
        let id = command(&session.definitions, input_cmd)?;
        session.definitions.register_command(Some(outer), id)
    })
}

/// Sets what the flag for the version calls.
///
/// # Safety
/// `callback` is NULL or a function of that type, to be called with NULL and the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_register_version_callback(
    callback: doca_argp_param_cb_t,
) -> doca_error_t {
    with_session(|session| {
        session.version = Some(callback.ok_or(Error::InvalidValue)?);
        Ok(())
    })
}

/// Sets what is called with the configuration in the end.
///
/// # Safety
/// `callback` is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_register_validation_callback(
    callback: doca_argp_validation_cb_t,
) -> doca_error_t {
    with_session(|session| {
        session.validation = Some(callback.ok_or(Error::InvalidValue)?);
        Ok(())
    })
}

/// Sets what opens the devices that the user names.
///
/// # Safety
/// `callback` is NULL or a function of that type, to be called with `usr_ctx` until the parser is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_register_dev_open_callback(
    callback: doca_argp_dev_open_cb_t,
    usr_ctx: *mut c_void,
) -> doca_error_t {
    with_session(|session| {
        let callback = callback.ok_or(Error::InvalidValue)?;
        session.dev_open = Some((callback, Opaque(usr_ctx)));
        Ok(())
    })
}

/// Has keys of the JSON file that no parameter has ignored.
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_disable_pedantic_config_parsing() -> doca_error_t {
    with_session(|session| {
        session.definitions.ignores_unknown_keys = true;
        Ok(())
    })
}

/// Sets where messages for the user go; `DOCA_ERROR_ALREADY_EXIST` while there is another such function.
///
/// # Safety
/// `callback` is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_register_logger_callback(
    callback: doca_argp_logger_cb_t,
) -> doca_error_t {
    with_session(|session| {
        let callback = callback.ok_or(Error::InvalidValue)?;
        match session.logger {
            Some(_) => Err(Error::AlreadyExist),
            None => {
                session.logger = Some(callback);
                Ok(())
            }
        }
    })
}

/// Lets messages for the user go to standard error again; `DOCA_ERROR_BAD_STATE` when they do already.
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_disable_logger_callback() -> doca_error_t {
    with_session(|session| session.logger.take().map(drop).ok_or(Error::BadState))
}

/// Lets arguments before a `--` go to the program's DPDK.
///
/// # Safety
/// `callback` is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_set_dpdk_program(callback: doca_argp_dpdk_cb_t) {
    let _ = with_session(|session| {
        session.dpdk = Some(callback.ok_or(Error::InvalidValue)?);
        session.definitions.with_dpdk = true;
        Ok(())
    });
}

/// Creates a parameter.
///
/// # Safety
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_param_create(out: *mut *mut doca_argp_param) -> doca_error_t {
    guard(|| {
        check_out(out)?;
        let id = session::with(|session| Ok(session.definitions.create_param()))?;
        // SAFETY: the caller's promise.
        unsafe { put(out, handle(id.number())) }
    })
}

/// Destroys a parameter that is not registered.
///
/// # Safety
/// None needed: a handle that is none is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_param_destroy(handle: *mut doca_argp_param) -> doca_error_t {
    with_session(|session| {
        let id = param(&session.definitions, handle)?;
        session.definitions.destroy_param(id)
    })
}

/// Creates a command.
///
/// # Safety
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_cmd_create(out: *mut *mut doca_argp_cmd) -> doca_error_t {
    guard(|| {
        check_out(out)?;
        let id = session::with(|session| Ok(session.definitions.create_command()))?;
        // SAFETY: the caller's promise.
        unsafe { put(out, handle(id.number())) }
    })
}

/// Destroys a command that is not registered.
///
/// # Safety
/// None needed: a handle that is none is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_cmd_destroy(cmd: *mut doca_argp_cmd) -> doca_error_t {
    with_session(|session| {
        let id = command(&session.definitions, cmd)?;
        session.definitions.destroy_command(id)
    })
}

/// Defines setters of strings.
macro_rules! set_texts {
    ($($function:ident($handle:ty), $change:ident, $field:ident, $what:literal;)*) => {$(
        #[doc = concat!("Sets ", $what, "; the string is copied.")]
        ///
        /// # Safety
        /// The string is NULL or a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(object: *mut $handle, string: *const c_char) {
            $change(object, |object| {
                // SAFETY: the caller's promise.
                object.$field = Some(unsafe { text(string) }?.to_owned());
                Ok(())
            });
        }
    )*};
}

set_texts! {
    doca_argp_param_set_short_name(doca_argp_param), change_param, short, "the name behind one dash";
    doca_argp_param_set_long_name(doca_argp_param), change_param, long, "the name behind two dashes";
    doca_argp_param_set_arguments(doca_argp_param), change_param, arguments, "what the usage calls the argument";
    doca_argp_param_set_description(doca_argp_param), change_param, description, "what the usage says of the parameter";
    doca_argp_cmd_set_name(doca_argp_cmd), change_command, name, "the name of a command";
    doca_argp_cmd_set_description(doca_argp_cmd), change_command, description, "what the usage says of the command";
}

/// Defines setters of marks.
macro_rules! set_marks {
    ($($function:ident($handle:ty), $change:ident, $field:ident, $what:literal;)*) => {$(
        #[doc = $what]
        ///
        /// # Safety
        /// None needed: a handle that is none is ignored.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(object: *mut $handle) {
            $change(object, |object| {
                object.$field = true;
                Ok(())
            });
        }
    )*};
}

set_marks! {
    doca_argp_param_set_mandatory(doca_argp_param), change_param, mandatory, "The parameter must be given.";
    doca_argp_param_set_cli_only(doca_argp_param), change_param, command_line_only, "The JSON file does not know the parameter.";
    doca_argp_param_set_multiplicity(doca_argp_param), change_param, multiple, "The parameter may be given several times.";
    doca_argp_param_set_singular(doca_argp_param), change_param, singular, "The parameter stands alone.";
    doca_argp_param_set_inherited(doca_argp_param), change_param, inherited, "Inner commands know the parameter too.";
    doca_argp_param_set_hidden(doca_argp_param), change_param, hidden, "The usage leaves the parameter out.";
    doca_argp_cmd_set_hidden(doca_argp_cmd), change_command, hidden, "The usage leaves the command out.";
}

/// Sets what is called with each value.
///
/// # Safety
/// `callback` is NULL or a function that takes a pointer to a value of the parameter's type, and the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_param_set_callback(
    param: *mut doca_argp_param,
    callback: doca_argp_param_cb_t,
) {
    change_param(param, |param| {
        param.callback = callback;
        Ok(())
    });
}

/// Sets the type of the values.
///
/// # Safety
/// None needed: a type that is none is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_param_set_type(
    param: *mut doca_argp_param,
    arg_type: doca_argp_type,
) {
    change_param(param, |param| {
        let api = Api::current();
        param.value_type = ValueType::from_number(api, arg_type);
        match param.value_type {
            Some(_) => Ok(()),
            None => Err(Error::InvalidValue.because(format_args!(
                "{arg_type} is no type of parameters in DOCA {}; expected 1 to {}",
                api.version().to_string_lossy(),
                if api == Api::V3_0 { 4 } else { 6 }
            ))),
        }
    });
}

/// Sets what is called when the command is named.
///
/// # Safety
/// `callback` is NULL or a function that takes the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_cmd_set_callback(
    cmd: *mut doca_argp_cmd,
    callback: doca_argp_cmd_cb_t,
) {
    change_command(cmd, |command| {
        command.callback = callback;
        Ok(())
    });
}

/// # Safety
/// `out` is NULL or writable.
unsafe fn put_level(
    out: *mut c_int,
    origin: Origin,
    given: impl FnOnce(&Session) -> Option<Level>,
) -> doca_error_t {
    guard(|| {
        check_out(out)?;
        let given = session::with(|session| Ok(given(session))).ok().flatten();
        let level = given.unwrap_or_else(|| log::global_lower(origin));
        // SAFETY: the caller's promise.
        unsafe { put(out, level as c_int) }
    })
}

/// The log level of the program: that of the arguments, or the global one.
///
/// # Safety
/// `log_level` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_get_log_level(log_level: *mut c_int) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_level(log_level, Origin::Program, |session| session.levels.program) }
}

/// The log level of the SDK: that of the arguments, or the global one.
///
/// # Safety
/// `log_level` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_get_sdk_log_level(log_level: *mut c_int) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_level(log_level, Origin::Sdk, |session| session.levels.sdk) }
}

doca_abi::check_definitions!(doca_argp_functions, crate::capi::doca_argp);
