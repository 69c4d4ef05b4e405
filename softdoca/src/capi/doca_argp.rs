//! `doca_argp.h`: arguments of programs.
//!
//! Handles are numbers, not pointers: a stale handle is refused and never dereferenced.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{from_mut, null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use doca_abi::{
    DOCA_LOG_LEVEL_ERROR, doca_argp_cmd, doca_argp_cmd_cb_t, doca_argp_dev_open_cb_t,
    doca_argp_device_ctx, doca_argp_device_rep_ctx, doca_argp_dpdk_cb_t, doca_argp_logger_cb_t,
    doca_argp_param, doca_argp_param_cb_t, doca_argp_type, doca_argp_validation_cb_t, doca_dev,
    doca_devinfo,
};

use super::doca_dev::give_device;
use super::{Stream, check_out, doca_error_t, give, guard, not_null, put, text};
use crate::Api;
use crate::argp::{
    self, Action, Command, CommandId, Definitions, DeviceArgument, LogLevels, Outcome, Param,
    ParamId, Run, Scope, Value, ValueType, usage,
};
use crate::check::{self, Object};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::log::{self, Level, Origin};

/// Handles are multiples of this number, so that they resemble aligned pointers, and are never NULL.
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

/// Changes a parameter; errors are logged, because the C functions return nothing.
fn change_param(handle: *mut doca_argp_param, change: impl FnOnce(&mut Param) -> Result<()>) {
    let _ = guard(|| {
        with(|session| {
            let id = param(&session.definitions, handle)?;
            change(session.definitions.param_mut(id))
        })
    });
}

/// Changes a command; errors are logged.
fn change_command(handle: *mut doca_argp_cmd, change: impl FnOnce(&mut Command) -> Result<()>) {
    let _ = guard(|| {
        with(|session| {
            let id = command(&session.definitions, handle)?;
            change(session.definitions.command_mut(id))
        })
    });
}

fn with_session(action: impl FnOnce(&mut Session) -> Result<()>) -> doca_error_t {
    guard(|| with(action))
}

/// Starts the parser.
///
/// # Safety
/// `program_name` is NULL or a C string. `program_config` is handed to the callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_init(
    program_name: *const c_char,
    program_config: *mut c_void,
) -> doca_error_t {
    guard(|| {
        log::read_environment();
        let name = match program_name.is_null() {
            true => None,
            // SAFETY: guaranteed by the caller.
            false => Some(unsafe { text(program_name) }?.to_owned()),
        };
        begin(name, program_config)
    })
}

/// Stops the parser and frees every parameter and command.
///
/// # Safety
/// None needed: handles that are used later are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_destroy() -> doca_error_t {
    guard(end)
}

/// Parses the arguments and calls the callbacks. With a help flag, prints the usage text and exits the process.
///
/// # Safety
/// `argv` is NULL or has `argc` C strings; the callbacks that were set may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_start(argc: c_int, argv: *mut *mut c_char) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { start(argc, argv) })
}

/// Prints the usage text, of the command that the arguments named, if any.
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_usage() {
    let _ = guard(|| show_usage(None));
}

/// Registers a parameter of the program.
///
/// # Safety
/// None needed: an invalid handle is refused.
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
/// None needed: an invalid handle is refused.
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
/// None needed: an invalid handle is refused.
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

/// Registers a subcommand.
///
/// # Safety
/// None needed: an invalid handle is refused.
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

/// Sets the callback of the version flag.
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

/// Sets the callback that validates the configuration after all arguments.
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

/// Sets the callback that opens the devices named by the user.
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

/// Ignores keys of the JSON file without a parameter.
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_disable_pedantic_config_parsing() -> doca_error_t {
    with_session(|session| {
        session.definitions.ignores_unknown_keys = true;
        Ok(())
    })
}

/// Sets the callback for messages to the user; `DOCA_ERROR_ALREADY_EXIST` if it is already set.
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

/// Restores messages to the user on standard error; `DOCA_ERROR_BAD_STATE` without a callback.
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_disable_logger_callback() -> doca_error_t {
    with_session(|session| session.logger.take().map(drop).ok_or(Error::BadState))
}

/// Passes the arguments before a `--` to the program's DPDK callback.
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
        let id = with(|session| Ok(session.definitions.create_param()))?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(out, handle(id.number())) }
    })
}

/// Destroys a parameter that is not registered.
///
/// # Safety
/// None needed: an invalid handle is refused.
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
        let id = with(|session| Ok(session.definitions.create_command()))?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(out, handle(id.number())) }
    })
}

/// Destroys a command that is not registered.
///
/// # Safety
/// None needed: an invalid handle is refused.
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
                // SAFETY: guaranteed by the caller.
                object.$field = Some(unsafe { text(string) }?.to_owned());
                Ok(())
            });
        }
    )*};
}

set_texts! {
    doca_argp_param_set_short_name(doca_argp_param), change_param, short, "the name after one dash";
    doca_argp_param_set_long_name(doca_argp_param), change_param, long, "the name after two dashes";
    doca_argp_param_set_arguments(doca_argp_param), change_param, arguments, "the placeholder of the value in the usage text";
    doca_argp_param_set_description(doca_argp_param), change_param, description, "the help text of the parameter";
    doca_argp_cmd_set_name(doca_argp_cmd), change_command, name, "the name of a command";
    doca_argp_cmd_set_description(doca_argp_cmd), change_command, description, "the help text of the command";
}

/// Defines setters of flags.
macro_rules! set_marks {
    ($($function:ident($handle:ty), $change:ident, $field:ident, $what:literal;)*) => {$(
        #[doc = $what]
        ///
        /// # Safety
        /// None needed: an invalid handle is ignored.
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
    doca_argp_param_set_mandatory(doca_argp_param), change_param, mandatory, "Makes the parameter mandatory.";
    doca_argp_param_set_cli_only(doca_argp_param), change_param, command_line_only, "Refuses the parameter in the JSON file.";
    doca_argp_param_set_multiplicity(doca_argp_param), change_param, multiple, "Allows the parameter several times.";
    doca_argp_param_set_singular(doca_argp_param), change_param, singular, "Refuses the parameter together with others.";
    doca_argp_param_set_inherited(doca_argp_param), change_param, inherited, "Accepts the parameter after subcommands as well.";
    doca_argp_param_set_hidden(doca_argp_param), change_param, hidden, "Leaves the parameter out of the usage text.";
    doca_argp_cmd_set_hidden(doca_argp_cmd), change_command, hidden, "Leaves the command out of the usage text.";
}

/// Sets the callback for each value.
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
/// None needed: an invalid type is refused.
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
                "{arg_type} is not a parameter type of DOCA {}; expected 1 to {}",
                api.version().to_string_lossy(),
                if api <= Api::V3_0 { 4 } else { 6 }
            ))),
        }
    });
}

/// Sets the callback for the command.
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
        let given = with(|session| Ok(given(session))).ok().flatten();
        let level = given.unwrap_or_else(|| log::global_lower(origin));
        // SAFETY: guaranteed by the caller.
        unsafe { put(out, level as c_int) }
    })
}

/// Gets the log level of the program: from the arguments, or else the global level.
///
/// # Safety
/// `log_level` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_get_log_level(log_level: *mut c_int) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_level(log_level, Origin::Program, |session| session.levels.program) }
}

/// Gets the log level of the SDK: from the arguments, or else the global level.
///
/// # Safety
/// `log_level` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_argp_get_sdk_log_level(log_level: *mut c_int) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_level(log_level, Origin::Sdk, |session| session.levels.sdk) }
}

/// A pointer of the program that is only passed back.
#[repr(transparent)]
struct Opaque<T>(*mut T);

// Not derived, because that would require `T: Clone`.
impl<T> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Opaque<T> {}

// SAFETY: it is not dereferenced; the thread safety of the program's callbacks is up to the program.
unsafe impl<T> Send for Opaque<T> {}

/// The program's own `doca_dev_open` with its extra argument.
type DevOpen =
    unsafe extern "C" fn(*mut doca_devinfo, *mut c_void, *mut *mut doca_dev) -> doca_error_t;

/// State between `doca_argp_init` and `doca_argp_destroy`.
struct Session {
    definitions: Definitions,
    config: Opaque<c_void>,
    version: doca_argp_param_cb_t,
    validation: doca_argp_validation_cb_t,
    logger: doca_argp_logger_cb_t,
    /// Callback that opens devices, and its argument.
    dev_open: Option<(DevOpen, Opaque<c_void>)>,
    dpdk: doca_argp_dpdk_cb_t,
    /// Name that the program was called by.
    called: Option<String>,
    /// Path of commands named by the arguments.
    scope: Scope,
    levels: LogLevels,
    /// Strings to which the program may keep pointers.
    kept: Vec<CString>,
    /// Pointers to some of these strings, NULL-terminated.
    dpdk_arguments: Vec<Opaque<c_char>>,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

fn begin(program_name: Option<String>, config: *mut c_void) -> Result<()> {
    let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    if session.is_some() {
        return Err(Error::BadState.because("doca_argp_init was already called"));
    }
    let mut definitions = Definitions::default();
    definitions.program_name = program_name;
    *session = Some(Session {
        definitions,
        config: Opaque(config),
        version: None,
        validation: None,
        logger: None,
        dev_open: None,
        dpdk: None,
        called: None,
        scope: Scope::new(),
        levels: LogLevels::default(),
        kept: Vec::new(),
        dpdk_arguments: Vec::new(),
    });
    Ok(())
}

fn end() -> Result<()> {
    SESSION
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .map(drop)
        .ok_or_else(none)
}

/// Runs `action` on the session. `action` must not call the program, whose callbacks use the session themselves.
fn with<T>(action: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
    let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    action(session.as_mut().ok_or_else(none)?)
}

fn none() -> Error {
    Error::BadState.because("doca_argp_init was not called, or doca_argp_destroy was")
}

/// Converts the return value of a program's callback to an error.
fn answered(code: doca_error_t, what: &str) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::from_code(code)
            .unwrap_or(Error::Unknown)
            .because(format_args!("the program refused {what}"))),
    }
}

/// # Safety
/// `argv` is NULL or has `argc` C strings that live for `'a`.
unsafe fn arguments<'a>(argc: c_int, argv: *mut *mut c_char) -> Result<Vec<&'a CStr>> {
    not_null(argv)?;
    let count = usize::try_from(argc)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| {
            Error::InvalidValue.because(format_args!(
                "expected at least the program's name as an argument, got {argc} arguments"
            ))
        })?;
    (0..count)
        .map(|index| {
            // SAFETY: guaranteed by the caller.
            let argument = unsafe { argv.add(index).read() };
            not_null(argument)?;
            // SAFETY: guaranteed by the caller.
            Ok(unsafe { CStr::from_ptr(argument) })
        })
        .collect()
}

/// # Safety
/// As [`arguments`]; the callbacks may be called.
unsafe fn start(argc: c_int, argv: *mut *mut c_char) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let arguments = unsafe { arguments(argc, argv) }?;
    let parse = |is_shown| {
        with(|session| {
            let name = arguments[0].to_string_lossy();
            session.called = name.rsplit('/').next().map(str::to_owned);
            Ok(argp::parse(&session.definitions, &arguments, is_shown))
        })
    };
    let mut outcome = parse(false)?;
    if matches!(outcome, Ok(Outcome::Version)) {
        show_version()?;
        // The program's own callback may return and let it continue.
        outcome = parse(true)?;
    }
    match outcome {
        Ok(Outcome::Run(run)) => deliver(run),
        // The version is shown already and ignored.
        Ok(Outcome::Version) => Err(Error::Unexpected),
        Ok(Outcome::Help(scope)) => {
            show_usage(Some(&scope))?;
            // SAFETY: no lock is held that an exit handler could take.
            unsafe { libc::exit(libc::EXIT_SUCCESS) }
        }
        Err(refusal) => {
            complain(&refusal.text)?;
            Err(refusal.error)
        }
    }
}

fn show_version() -> Result<()> {
    let (callback, config) = with(|session| Ok((session.version, session.config)))?;
    if let Some(callback) = callback {
        // SAFETY: the program gave the function for this purpose.
        return answered(
            unsafe { callback(null_mut(), config.0) },
            "the version flag",
        );
    }
    let version = format!(
        "DOCA Version: {} (softdoca)\n",
        Api::current().version().to_string_lossy()
    );
    crate::capi::Stream::output().write(&version);
    // SAFETY: no lock is held that an exit handler could take.
    unsafe { libc::exit(libc::EXIT_SUCCESS) }
}

/// Calls the program's callbacks for all arguments.
fn deliver(run: Run) -> Result<()> {
    set_levels(run.levels);
    with(|session| {
        session.levels = run.levels;
        session.scope = run
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Command(id) => Some(*id),
                Action::Param(..) => None,
            })
            .collect();
        Ok(())
    })?;
    for action in run.actions {
        match action {
            Action::Command(id) => {
                let (callback, config, name) = with(|session| {
                    let command = session.definitions.command(id);
                    Ok((command.callback, session.config, command.name.clone()))
                })?;
                if let Some(callback) = callback {
                    // SAFETY: the program gave the function for this purpose.
                    let answer = unsafe { callback(config.0) };
                    answered(answer, &name.unwrap_or_default())?;
                }
            }
            Action::Param(id, value) => {
                let (callback, config, flag) = with(|session| {
                    let param = session.definitions.param(id);
                    Ok((param.callback, session.config, param.flag()))
                })?;
                // SAFETY: the program set the callback for a parameter with values of this type.
                let answer = unsafe { call(callback, value, config) }?;
                answered(answer, &format!("the value of {flag}"))?;
            }
        }
    }
    let (validation, config) = with(|session| Ok((session.validation, session.config)))?;
    if let Some(validation) = validation {
        // SAFETY: the program gave the function for this purpose.
        answered(unsafe { validation(config.0) }, "the arguments together")?;
    }
    hand_to_dpdk(run.dpdk)
}

fn set_levels(levels: LogLevels) {
    if let Some(level) = levels.program {
        log::set_global_lower(Origin::Program, level);
    }
    if let Some(level) = levels.sdk {
        log::set_global_lower(Origin::Sdk, level);
    }
}

/// # Safety
/// The callback takes a pointer to values of this type.
unsafe fn call(
    callback: doca_argp_param_cb_t,
    value: Value,
    config: Opaque<c_void>,
) -> Result<doca_error_t> {
    let callback = callback.ok_or(Error::Initialization)?;
    // SAFETY: guaranteed by the caller; the value lives during the call.
    let call = |value: *mut c_void| Ok(unsafe { callback(value, config.0) });
    match value {
        Value::Text(text) => call(text.as_ptr().cast_mut().cast()),
        Value::Int(mut number) => call(from_mut(&mut number).cast()),
        Value::Double(mut number) => call(from_mut(&mut number).cast()),
        Value::Bool(mut truth) => call(from_mut(&mut truth).cast()),
        Value::Device(argument) => call(from_mut(&mut device(argument)?).cast()),
        Value::Representor(argument) => {
            check::created(Object::Representor);
            let mut both = doca_argp_device_rep_ctx {
                dev_ctx: device(argument.device)?,
                dev_rep: give(argument.representor),
            };
            call(from_mut(&mut both).cast())
        }
    }
}

/// A device for C; the program owns it, except for the string.
fn device(argument: DeviceArgument) -> Result<doca_argp_device_ctx> {
    Ok(doca_argp_device_ctx {
        dev: open(argument.device)?,
        devargs: match argument.rest {
            Some(rest) => keep(rest)?,
            None => null(),
        },
    })
}

/// Opens a device for the program, with the program's callback if it has registered one.
fn open(device: Arc<Device>) -> Result<*mut doca_dev> {
    let Some((callback, argument)) = with(|session| Ok(session.dev_open))? else {
        return Ok(give_device(device));
    };
    let mut dev = null_mut();
    let devinfo = Arc::as_ptr(device.info()).cast_mut().cast();
    // SAFETY: the program set the callback for this purpose; the device information lives during the call.
    let answer = unsafe { callback(devinfo, argument.0, &raw mut dev) };
    answered(answer, &format!("to open device {}", device.model().pci))?;
    not_null(dev)?;
    Ok(dev)
}

/// Keeps a string until the session ends.
fn keep(text: CString) -> Result<*const c_char> {
    let pointer = text.as_ptr();
    with(|session| {
        session.kept.push(text);
        Ok(pointer)
    })
}

fn hand_to_dpdk(arguments: Vec<CString>) -> Result<()> {
    let (callback, count, pointers) = with(|session| {
        let pointers = arguments.iter().map(|text| text.as_ptr().cast_mut());
        session.dpdk_arguments = pointers.chain([null_mut()]).map(Opaque).collect();
        let count = arguments.len();
        session.kept.extend(arguments);
        Ok((session.dpdk, count, session.dpdk_arguments.as_mut_ptr()))
    })?;
    let Some(callback) = callback else {
        return Ok(());
    };
    let count = c_int::try_from(count).map_err(|_| Error::TooBig)?;
    // SAFETY: the program set the callback for this purpose; `Opaque` is transparent, and the array lives until the
    // session ends.
    answered(
        unsafe { callback(count, pointers.cast()) },
        "the DPDK flags",
    )
}

/// Prints the usage text of the program or of one of its commands.
fn show_usage(scope: Option<&Scope>) -> Result<()> {
    let text = with(|session| {
        let scope = scope.unwrap_or(&session.scope);
        Ok(usage(
            &session.definitions,
            session.called.as_deref(),
            scope,
        ))
    })?;
    Stream::output().write(&text);
    Ok(())
}

/// Informs the user why the arguments are refused.
fn complain(text: &str) -> Result<()> {
    let (logger, name) = with(|session| {
        let name = session.definitions.program_name.as_ref();
        let name = name.or(session.called.as_ref()).cloned();
        Ok((session.logger, name.unwrap_or_default()))
    })?;
    let text = format!("{name}: {text}; -h shows the usage");
    let Some(logger) = logger else {
        Stream::errors().write(&format!("{text}\n"));
        return Ok(());
    };
    // The text is passed as the format, without arguments.
    let format = CString::new(text.replace('%', "%%")).map_err(|_| Error::InvalidValue)?;
    let mut arguments = NoArguments::new();
    // SAFETY: the program set the callback for this purpose; a format without conversions uses no arguments.
    unsafe {
        logger(
            DOCA_LOG_LEVEL_ERROR,
            format.as_ptr(),
            std::ptr::from_mut(&mut arguments).cast::<c_void>(),
        );
    }
    Ok(())
}

/// An empty `va_list` in the layout of the platform's ABI.
#[repr(C)]
struct NoArguments(#[cfg_attr(not(test), allow(dead_code, reason = "read by C"))] [u64; 4]);

impl NoArguments {
    #[cfg(target_arch = "x86_64")]
    fn new() -> NoArguments {
        // u32 gp_offset, u32 fp_offset, overflow_arg_area, reg_save_area: all registers are consumed.
        NoArguments([48 | 176 << 32, 0, 0, 0])
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn new() -> NoArguments {
        // On AArch64: stack, gr_top, vr_top, i32 gr_offs, i32 vr_offs: offsets of 0 mean that all registers are
        // consumed.
        NoArguments([0; 4])
    }
}

doca_abi::check_definitions!(doca_argp_functions, crate::capi::doca_argp);

#[cfg(test)]
mod tests {
    //! Programs whose callbacks record their arguments.

    use std::cell::RefCell;
    use std::io::Write as _;
    use std::process::Output;
    use std::sync::MutexGuard;

    use doca_abi::{
        DOCA_ARGP_TYPE_BOOLEAN, DOCA_ARGP_TYPE_DEVICE, DOCA_ARGP_TYPE_DEVICE_REP,
        DOCA_ARGP_TYPE_INT, DOCA_ARGP_TYPE_STRING, DOCA_ERROR_ALREADY_EXIST, DOCA_ERROR_BAD_STATE,
        DOCA_ERROR_DRIVER, DOCA_ERROR_INITIALIZATION, DOCA_ERROR_INVALID_VALUE,
        DOCA_ERROR_NOT_SUPPORTED, DOCA_SUCCESS, va_list,
    };

    use super::super::doca_dev::{doca_dev_close, doca_dev_rep_close};
    use super::super::testing::{child, keep_devices_open};
    use super::*;

    /// A process has only one parser, so tests run sequentially.
    struct Parser(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

    impl Parser {
        fn new(program: &Program) -> Parser {
            static ONE: Mutex<()> = Mutex::new(());
            let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
            let config = std::ptr::from_ref(program).cast_mut().cast();
            keep_devices_open();
            // SAFETY: a C string.
            ok(unsafe { doca_argp_init(c"tester".as_ptr(), config) });
            Parser(one)
        }
    }

    impl Drop for Parser {
        fn drop(&mut self) {
            // SAFETY: no pointers are passed. A test may have destroyed the parser.
            unsafe { doca_argp_destroy() };
        }
    }

    /// The configuration: arguments of the callbacks.
    #[derive(Default)]
    struct Program {
        seen: RefCell<Vec<String>>,
    }

    impl Program {
        fn says(&self, text: String) -> u32 {
            self.seen.borrow_mut().push(text);
            DOCA_SUCCESS
        }
    }

    fn ok(code: u32) {
        assert_eq!(code, DOCA_SUCCESS);
    }

    unsafe fn program<'a>(config: *mut c_void) -> &'a Program {
        // SAFETY: the configuration of these tests.
        unsafe { &*config.cast::<Program>() }
    }

    unsafe extern "C" fn on_text(value: *mut c_void, config: *mut c_void) -> u32 {
        // SAFETY: called with a C string and the configuration.
        let (text, program) = unsafe { (CStr::from_ptr(value.cast()), program(config)) };
        match text.to_str().unwrap() {
            "refuse" => DOCA_ERROR_DRIVER,
            text => program.says(format!("text {text}")),
        }
    }

    unsafe extern "C" fn on_int(value: *mut c_void, config: *mut c_void) -> u32 {
        // SAFETY: called with an int and the configuration.
        unsafe { program(config).says(format!("int {}", *value.cast::<c_int>())) }
    }

    unsafe extern "C" fn on_bool(value: *mut c_void, config: *mut c_void) -> u32 {
        // SAFETY: called with a bool and the configuration.
        unsafe { program(config).says(format!("bool {}", *value.cast::<bool>())) }
    }

    unsafe extern "C" fn on_device(value: *mut c_void, config: *mut c_void) -> u32 {
        // SAFETY: called with a device and the configuration; the device is the program's.
        unsafe {
            let device = &*value.cast::<doca_argp_device_ctx>();
            assert!(device.devargs.is_null());
            ok(doca_dev_close(device.dev));
            program(config).says("device".to_owned())
        }
    }

    unsafe extern "C" fn on_representor(value: *mut c_void, config: *mut c_void) -> u32 {
        // SAFETY: as above.
        unsafe {
            let both = &*value.cast::<doca_argp_device_rep_ctx>();
            let rest = CStr::from_ptr(both.dev_ctx.devargs).to_str().unwrap();
            ok(doca_dev_rep_close(both.dev_rep));
            ok(doca_dev_close(both.dev_ctx.dev));
            program(config).says(format!("representor {rest}"))
        }
    }

    unsafe extern "C" fn on_command(config: *mut c_void) -> u32 {
        // SAFETY: called with the configuration.
        unsafe { program(config) }.says("command".to_owned())
    }

    unsafe extern "C" fn on_end(config: *mut c_void) -> u32 {
        // SAFETY: called with the configuration.
        unsafe { program(config) }.says("valid".to_owned())
    }

    unsafe extern "C" fn on_version(value: *mut c_void, config: *mut c_void) -> u32 {
        assert!(value.is_null());
        // SAFETY: called with the configuration.
        unsafe { program(config) }.says("version".to_owned())
    }

    type ParamCallback = unsafe extern "C" fn(*mut c_void, *mut c_void) -> u32;

    /// A parameter with all required properties.
    fn param(long: &CStr, arg_type: u32, callback: ParamCallback) -> *mut doca_argp_param {
        let mut param = null_mut();
        // SAFETY: live handles, C strings and out-pointers.
        unsafe {
            ok(doca_argp_param_create(&mut param));
            doca_argp_param_set_long_name(param, long.as_ptr());
            doca_argp_param_set_description(param, c"What it is for".as_ptr());
            doca_argp_param_set_callback(param, Some(callback));
            doca_argp_param_set_type(param, arg_type);
        }
        param
    }

    fn start(arguments: &[&str]) -> u32 {
        let arguments: Vec<CString> = std::iter::once("/bin/tester")
            .chain(arguments.iter().copied())
            .map(|argument| CString::new(argument).unwrap())
            .collect();
        let mut argv: Vec<*mut c_char> = arguments.iter().map(|a| a.as_ptr().cast_mut()).collect();
        argv.push(null_mut());
        // SAFETY: that many C strings.
        unsafe { doca_argp_start(arguments.len() as c_int, argv.as_mut_ptr()) }
    }

    /// Registers one parameter of every type.
    fn register_all() {
        // SAFETY: live handles and C strings.
        unsafe {
            let name = param(c"name", DOCA_ARGP_TYPE_STRING, on_text);
            doca_argp_param_set_short_name(name, c"nm".as_ptr());
            doca_argp_param_set_arguments(name, c"<name>".as_ptr());
            doca_argp_param_set_mandatory(name);
            ok(doca_argp_register_param(name));
            let count = param(c"count", DOCA_ARGP_TYPE_INT, on_int);
            doca_argp_param_set_multiplicity(count);
            ok(doca_argp_register_param(count));
            let quiet = param(c"quiet", DOCA_ARGP_TYPE_BOOLEAN, on_bool);
            doca_argp_param_set_hidden(quiet);
            doca_argp_param_set_cli_only(quiet);
            ok(doca_argp_register_param(quiet));
            let device = param(c"device", DOCA_ARGP_TYPE_DEVICE, on_device);
            ok(doca_argp_register_param(device));
            let rep = param(c"rep", DOCA_ARGP_TYPE_DEVICE_REP, on_representor);
            ok(doca_argp_register_param(rep));
            let alone = param(c"alone", DOCA_ARGP_TYPE_BOOLEAN, on_bool);
            doca_argp_param_set_singular(alone);
            ok(doca_argp_register_param(alone));
        }
    }

    #[test]
    fn log_levels_can_be_set_and_read() {
        let program = Program::default();
        let _parser = Parser::new(&program);
        let _alone = crate::capi::doca_log::tests::alone();
        let sdk = log::global_lower(Origin::Sdk);
        let (mut level, mut sdk_level) = (0, 0);
        ok(start(&["-l", "50", "--sdk-log-level", "40"]));
        // SAFETY: out-pointers.
        unsafe {
            ok(doca_argp_get_log_level(&mut level));
            ok(doca_argp_get_sdk_log_level(&mut sdk_level));
        }
        assert_eq!((level, sdk_level), (50, 40));
        assert_eq!(log::global_lower(Origin::Sdk), Level::Warning);
        log::set_global_lower(Origin::Sdk, sdk);
    }

    static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

    unsafe extern "C" fn complain(_: u32, format: *const c_char, args: va_list) -> u32 {
        unsafe extern "C" {
            fn vsnprintf(
                to: *mut c_char,
                size: usize,
                format: *const c_char,
                args: va_list,
            ) -> c_int;
        }
        let mut buffer = [0; 200];
        // SAFETY: a format with its arguments, and a buffer of the stated size.
        let text = unsafe {
            vsnprintf(buffer.as_mut_ptr(), buffer.len(), format, args);
            CStr::from_ptr(buffer.as_ptr())
        };
        COMPLAINTS
            .lock()
            .unwrap()
            .push(text.to_str().unwrap().to_owned());
        DOCA_SUCCESS
    }

    #[test]
    fn complaints_go_to_the_programs_logger() {
        let program = Program::default();
        let _parser = Parser::new(&program);
        // SAFETY: functions of these types.
        unsafe {
            assert_eq!(doca_argp_disable_logger_callback(), DOCA_ERROR_BAD_STATE);
            ok(doca_argp_register_logger_callback(Some(complain)));
            assert_eq!(
                doca_argp_register_logger_callback(Some(complain)),
                DOCA_ERROR_ALREADY_EXIST
            );
        }
        assert_eq!(start(&["--100%s"]), DOCA_ERROR_NOT_SUPPORTED);
        // SAFETY: no pointers are passed.
        ok(unsafe { doca_argp_disable_logger_callback() });
        assert_eq!(start(&["--again"]), DOCA_ERROR_NOT_SUPPORTED);
        let complaints = COMPLAINTS.lock().unwrap();
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        // The program's name and the flag, without formatting.
        assert!(
            complaints[0].starts_with("tester: --100%s "),
            "{complaints:?}"
        );
    }

    static DPDK: Mutex<Vec<String>> = Mutex::new(Vec::new());

    unsafe extern "C" fn on_dpdk(argc: c_int, argv: *mut *mut c_char) -> u32 {
        let mut seen = DPDK.lock().unwrap();
        for index in 0..argc as usize {
            // SAFETY: that many C strings.
            let text = unsafe { CStr::from_ptr(*argv.add(index)) };
            seen.push(text.to_str().unwrap().to_owned());
        }
        // SAFETY: the array is NULL-terminated.
        assert!(unsafe { *argv.add(argc as usize) }.is_null());
        DOCA_SUCCESS
    }

    #[test]
    fn dpdk_gets_its_arguments() {
        let program = Program::default();
        let _parser = Parser::new(&program);
        // SAFETY: functions of that type.
        unsafe {
            doca_argp_set_dpdk_program(None);
            doca_argp_set_dpdk_program(Some(on_dpdk));
        }
        ok(start(&["-a", "03:00.0", "--"]));
        assert_eq!(*DPDK.lock().unwrap(), ["/bin/tester", "-a", "03:00.0"]);
    }

    /// Run by the test below in a process that may exit.
    #[test]
    fn exiting_child() {
        let Ok(arguments) = std::env::var("SOFTDOCA_TEST_ARGP") else {
            return;
        };
        let program = Program::default();
        let _parser = Parser::new(&program);
        if crate::Api::current() > crate::Api::V3_0 {
            register_all();
        }
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        println!("doca_argp_start={}", start(&arguments));
    }

    fn with_environment(environment: &[(&str, &str)]) -> Output {
        child("capi::doca_argp::tests::exiting_child", environment)
    }

    fn with_arguments(arguments: &str) -> Output {
        with_environment(&[("SOFTDOCA_TEST_ARGP", arguments)])
    }

    #[test]
    fn help_and_version_are_printed_and_the_process_exits_with_success() {
        let help = with_arguments("--help");
        let text = String::from_utf8_lossy(&help.stdout);
        assert!(help.status.success(), "{help:?}");
        for part in ["Usage: tester ", "\n  -nm, --name <name>  "] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for absent in ["--quiet", "doca_argp_start="] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }

        for (api, expected) in [("", "3.3.0"), ("3.0", "3.0.0"), ("3.2", "3.2.0")] {
            let version = with_environment(&[("SOFTDOCA_TEST_ARGP", "-v"), ("SOFTDOCA_API", api)]);
            let text = String::from_utf8_lossy(&version.stdout);
            assert!(version.status.success(), "{version:?}");
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("doca_argp_start="), "{text}");
        }

        let wrong = with_arguments("--wrong");
        let text = String::from_utf8_lossy(&wrong.stderr);
        assert!(text.contains("tester: --wrong "), "{text}");
        let text = String::from_utf8_lossy(&wrong.stdout);
        assert!(
            text.contains(&format!("doca_argp_start={DOCA_ERROR_NOT_SUPPORTED}\n")),
            "{text}"
        );
    }

    #[test]
    fn handles_and_states_are_checked() {
        let program = Program::default();
        let parser = Parser::new(&program);
        let mut level = 0;
        // SAFETY: live, stale and NULL handles, none of them followed.
        unsafe {
            assert_eq!(doca_argp_init(null_mut(), null_mut()), DOCA_ERROR_BAD_STATE);
            let one = param(c"one", DOCA_ARGP_TYPE_INT, on_int);
            doca_argp_param_set_type(one, 99);
            assert_eq!(doca_argp_register_param(one), DOCA_ERROR_INITIALIZATION);
            ok(doca_argp_param_destroy(one));
            assert_eq!(doca_argp_param_destroy(one), DOCA_ERROR_INVALID_VALUE);
            assert_eq!(
                doca_argp_param_destroy(null_mut()),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                doca_argp_param_destroy(one.byte_add(1)),
                DOCA_ERROR_INVALID_VALUE
            );
            doca_argp_param_set_short_name(null_mut(), c"x".as_ptr());
            let two = param(c"two", DOCA_ARGP_TYPE_INT, on_int);
            doca_argp_param_set_short_name(two, null_mut());
            ok(doca_argp_register_param(two));
            assert_eq!(doca_argp_register_param(two), DOCA_ERROR_BAD_STATE);
            assert_eq!(doca_argp_param_destroy(two), DOCA_ERROR_BAD_STATE);
            assert_eq!(doca_argp_param_create(null_mut()), DOCA_ERROR_INVALID_VALUE);
            assert_eq!(doca_argp_cmd_create(null_mut()), DOCA_ERROR_INVALID_VALUE);
            for refused in [
                doca_argp_register_version_callback(None),
                doca_argp_register_validation_callback(None),
                doca_argp_register_logger_callback(None),
                doca_argp_get_log_level(null_mut()),
                doca_argp_get_sdk_log_level(null_mut()),
            ] {
                assert_eq!(refused, DOCA_ERROR_INVALID_VALUE);
            }
            ok(doca_argp_destroy());
            let mut handle = null_mut();
            for refused in [
                doca_argp_destroy(),
                doca_argp_param_create(&mut handle),
                doca_argp_register_param(two),
                doca_argp_register_version_callback(Some(on_version)),
                doca_argp_disable_logger_callback(),
                start(&[]),
            ] {
                assert_eq!(refused, DOCA_ERROR_BAD_STATE);
            }
            doca_argp_usage();
            ok(doca_argp_get_log_level(&mut level));
            assert_eq!(level as u32, log::global_lower(Origin::Program) as u32);
        }
        drop(parser);
    }

    #[test]
    fn callbacks_get_their_values_in_order() {
        let program = Program::default();
        let _parser = Parser::new(&program);
        register_all();
        // SAFETY: a function of that type.
        ok(unsafe { doca_argp_register_validation_callback(Some(on_end)) });
        ok(start(&[
            "--count",
            "-3",
            "-nm",
            "a b",
            "--quiet",
            "--device",
            "mlx5_0",
            "--rep",
            "mlx5_0,3b:00.0,x=1",
            "--count=4",
        ]));
        let expected = [
            "int -3",
            "text a b",
            "bool true",
            "device",
            "representor x=1",
            "int 4",
            "valid",
        ];
        assert_eq!(*program.seen.borrow(), expected);
        program.seen.borrow_mut().clear();
        ok(start(&["--alone"]));
        assert_eq!(*program.seen.borrow(), ["bool true", "valid"]);
    }

    #[test]
    fn json_files_set_parameters_unless_command_line_only() {
        let program = Program::default();
        let _parser = Parser::new(&program);
        register_all();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(br#"{"doca_program_flags": { "count": [1, 2], "name": "file" }} // end"#)
            .unwrap();
        let path = file.path().to_str().unwrap();
        ok(start(&["-j", path]));
        assert_eq!(*program.seen.borrow(), ["int 1", "int 2", "text file"]);
        program.seen.borrow_mut().clear();
        std::fs::write(path, r#"{"doca_program_flags": {"quiet": true}}"#).unwrap();
        assert_eq!(start(&["-j", path, "-nm", "x"]), DOCA_ERROR_NOT_SUPPORTED);
        assert_eq!(program.seen.borrow().len(), 0);
    }

    #[test]
    fn start_returns_errors_of_callbacks() {
        let program = Program::default();
        let _parser = Parser::new(&program);
        register_all();
        assert_eq!(start(&[]), DOCA_ERROR_INVALID_VALUE);
        assert_eq!(start(&["--none"]), DOCA_ERROR_NOT_SUPPORTED);
        assert_eq!(start(&["--alone", "-nm", "x"]), DOCA_ERROR_INVALID_VALUE);
        assert_eq!(
            program.seen.borrow().len(),
            0,
            "no callback before all is read"
        );
        assert_eq!(
            start(&["--count", "1", "-nm", "refuse", "--count", "2"]),
            DOCA_ERROR_DRIVER
        );
        assert_eq!(*program.seen.borrow(), ["int 1"], "the refusal ends it");
        // SAFETY: invalid arguments are refused, which this test checks.
        unsafe {
            assert_eq!(doca_argp_start(1, null_mut()), DOCA_ERROR_INVALID_VALUE);
            let mut argv = [null_mut(); 1];
            assert_eq!(
                doca_argp_start(0, argv.as_mut_ptr()),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                doca_argp_start(1, argv.as_mut_ptr()),
                DOCA_ERROR_INVALID_VALUE
            );
        }
    }

    #[test]
    fn commands_call_and_have_parameters() {
        let program = Program::default();
        let _parser = Parser::new(&program);
        let create = |name: &CStr| {
            let mut cmd = null_mut();
            // SAFETY: live handles, C strings and out-pointers.
            unsafe {
                ok(doca_argp_cmd_create(&mut cmd));
                doca_argp_cmd_set_name(cmd, name.as_ptr());
                doca_argp_cmd_set_description(cmd, c"Does it".as_ptr());
                doca_argp_cmd_set_callback(cmd, Some(on_command));
            }
            cmd
        };
        // SAFETY: live handles, or NULL, which is refused.
        unsafe {
            let all = param(c"all", DOCA_ARGP_TYPE_INT, on_int);
            doca_argp_param_set_inherited(all);
            ok(doca_argp_register_param(all));
            let (get, inner) = (create(c"get"), create(c"inner"));
            doca_argp_cmd_set_hidden(inner);
            let name = param(c"name", DOCA_ARGP_TYPE_STRING, on_text);
            ok(doca_argp_cmd_register_param(inner, name));
            assert_eq!(
                doca_argp_cmd_register_param(get, name),
                DOCA_ERROR_BAD_STATE
            );
            ok(doca_argp_cmd_register_cmd(get, inner));
            ok(doca_argp_register_cmd(get));
            assert_eq!(doca_argp_register_cmd(get), DOCA_ERROR_BAD_STATE);
            assert_eq!(doca_argp_register_cmd(null_mut()), DOCA_ERROR_INVALID_VALUE);
            assert_eq!(doca_argp_cmd_destroy(get), DOCA_ERROR_BAD_STATE);
            let other = create(c"other");
            ok(doca_argp_cmd_destroy(other));
            assert_eq!(doca_argp_cmd_destroy(other), DOCA_ERROR_INVALID_VALUE);
            let mut nameless = null_mut();
            ok(doca_argp_cmd_create(&mut nameless));
            assert_eq!(doca_argp_register_cmd(nameless), DOCA_ERROR_INITIALIZATION);
        }
        ok(start(&["get", "inner", "--name", "x", "--all", "1"]));
        assert_eq!(
            *program.seen.borrow(),
            ["command", "command", "text x", "int 1"]
        );
        assert_eq!(start(&["get", "--name", "x"]), DOCA_ERROR_NOT_SUPPORTED);
    }

    #[test]
    fn a_version_callback_may_let_the_program_continue() {
        let program = Program::default();
        let _parser = Parser::new(&program);
        register_all();
        // SAFETY: a function of that type.
        ok(unsafe { doca_argp_register_version_callback(Some(on_version)) });
        ok(start(&["-v", "-nm", "x"]));
        assert_eq!(*program.seen.borrow(), ["version", "text x"]);
    }
}
