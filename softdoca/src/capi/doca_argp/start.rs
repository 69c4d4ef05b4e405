//! Reading arguments and calling the program with them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{from_mut, null, null_mut};
use std::sync::Arc;

use doca_abi::{doca_argp_device_ctx, doca_argp_device_rep_ctx, doca_argp_param_cb_t, doca_dev};

use super::session::{self, Opaque};
use super::user;
use crate::api::Api;
use crate::argp::{self, Action, DeviceArgument, LogLevels, Outcome, Run, Value};
use crate::capi::{doca_error_t, give, not_null};
use crate::check::{self, Object};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::log::{self, Origin};

/// What the program's callbacks answered, as an error.
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
            // SAFETY: the caller's promise.
            let argument = unsafe { argv.add(index).read() };
            not_null(argument)?;
            // SAFETY: the caller's promise.
            Ok(unsafe { CStr::from_ptr(argument) })
        })
        .collect()
}

/// # Safety
/// As [`arguments`]; the callbacks may be called.
pub(super) unsafe fn start(argc: c_int, argv: *mut *mut c_char) -> Result<()> {
    // SAFETY: the caller's promise.
    let arguments = unsafe { arguments(argc, argv) }?;
    let parse = |is_shown| {
        session::with(|session| {
            let name = arguments[0].to_string_lossy();
            session.called = name.rsplit('/').next().map(str::to_owned);
            Ok(argp::parse(&session.definitions, &arguments, is_shown))
        })
    };
    let mut outcome = parse(false)?;
    if matches!(outcome, Ok(Outcome::Version)) {
        show_version()?;
        // The program's own callback may let it go on.
        outcome = parse(true)?;
    }
    match outcome {
        Ok(Outcome::Run(run)) => deliver(run),
        // The version is shown already, and passed over.
        Ok(Outcome::Version) => Err(Error::Unexpected),
        Ok(Outcome::Help(scope)) => {
            user::show_usage(Some(&scope))?;
            // SAFETY: no lock is held that its handlers could want.
            unsafe { libc::exit(libc::EXIT_SUCCESS) }
        }
        Err(refusal) => {
            user::complain(&refusal.text)?;
            Err(refusal.error)
        }
    }
}

fn show_version() -> Result<()> {
    let (callback, config) = session::with(|session| Ok((session.version, session.config)))?;
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
    crate::capi::stdio::Stream::output().write(&version);
    // SAFETY: no lock is held that its handlers could want.
    unsafe { libc::exit(libc::EXIT_SUCCESS) }
}

/// Calls the program with everything that the arguments say.
fn deliver(run: Run) -> Result<()> {
    set_levels(run.levels);
    session::with(|session| {
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
                let (callback, config, name) = session::with(|session| {
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
                let (callback, config, flag) = session::with(|session| {
                    let param = session.definitions.param(id);
                    Ok((param.callback, session.config, param.flag()))
                })?;
                // SAFETY: the program gave the function for a parameter with values of this type.
                let answer = unsafe { call(callback, value, config) }?;
                answered(answer, &format!("the value of {flag}"))?;
            }
        }
    }
    let (validation, config) = session::with(|session| Ok((session.validation, session.config)))?;
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
    // SAFETY: the caller's promise; the value lives during the call.
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

/// A device as C sees it; the program owns what it points to, but for the string.
fn device(argument: DeviceArgument) -> Result<doca_argp_device_ctx> {
    Ok(doca_argp_device_ctx {
        dev: open(argument.device)?,
        devargs: match argument.rest {
            Some(rest) => keep(rest)?,
            None => null(),
        },
    })
}

/// An open device for the program, which it has opened itself if it wants to.
fn open(device: Arc<Device>) -> Result<*mut doca_dev> {
    let Some((callback, argument)) = session::with(|session| Ok(session.dev_open))? else {
        check::created(Object::Device);
        return Ok(give(device));
    };
    let mut dev = null_mut();
    let devinfo = Arc::as_ptr(device.info()).cast_mut().cast();
    // SAFETY: the program gave the function for this purpose; what is known of the device lives during the call.
    let answer = unsafe { callback(devinfo, argument.0, &raw mut dev) };
    answered(answer, &format!("to open device {}", device.model().pci))?;
    not_null(dev)?;
    Ok(dev)
}

/// Keeps a string until the session ends.
fn keep(text: CString) -> Result<*const c_char> {
    let pointer = text.as_ptr();
    session::with(|session| {
        session.kept.push(text);
        Ok(pointer)
    })
}

fn hand_to_dpdk(arguments: Vec<CString>) -> Result<()> {
    let (callback, count, pointers) = session::with(|session| {
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
    // SAFETY: the program gave the function for this purpose; `Opaque` is transparent, and the array lives until the session ends.
    answered(
        unsafe { callback(count, pointers.cast()) },
        "the DPDK flags",
    )
}
