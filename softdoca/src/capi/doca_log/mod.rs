//! `doca_log.h`: where messages go, those of the program and softdoca's own.

mod loggers;
mod sinks;
#[cfg(test)]
pub(super) mod tests;

use std::ffi::{CStr, c_char, c_int};
use std::sync::Once;

use doca_abi::{FILE, doca_log_backend, log_flush_callback};

use super::stdio::Stream;
use super::{Handle, borrow, check_out, doca_error_t, give, guard, put, text};
use crate::error::{Error, Result};
use crate::log::{self, Backend, Level, Origin, Record, Sink, Syslog};

use sinks::{Buffer, Descriptor};

// SAFETY: back ends are given out by `give` and never taken back.
unsafe impl Handle for doca_log_backend {
    type Engine = Backend;
}

fn level(value: u32) -> Result<Level> {
    Level::from_value(value).ok_or_else(|| {
        Error::InvalidValue.because(format_args!(
            "{value} is no log level; expected 10, 20, 30, 40, 50, 60 or 70"
        ))
    })
}

/// Registers the sink that `make` makes, and writes the back end's handle.
///
/// # Safety
/// `backend` is NULL or writable.
unsafe fn create<S: Sink + 'static>(
    origin: Origin,
    backend: *mut *mut doca_log_backend,
    make: impl FnOnce() -> Result<S>,
) -> doca_error_t {
    guard(|| {
        check_out(backend)?;
        let added = log::add_backend(origin, Box::new(make()?));
        // SAFETY: the caller's promise.
        unsafe { put(backend, give(added)) }
    })
}

/// # Safety
/// `fptr` is NULL or a stream that stays open.
unsafe fn stream(fptr: *mut FILE) -> Result<Stream> {
    check_out(fptr)?;
    // SAFETY: the caller's promise to the function that this is part of.
    Ok(unsafe { Stream::new(fptr) })
}

fn descriptor(fd: c_int) -> Result<Descriptor> {
    if fd < 0 {
        return Err(Error::InvalidValue.because(format_args!("{fd} is no file descriptor")));
    }
    Ok(Descriptor(fd))
}

fn buffer(buf: *mut c_char, capacity: usize, handler: log_flush_callback) -> Result<Buffer> {
    check_out(buf)?;
    let handler = handler.ok_or_else(|| {
        Error::InvalidValue.because("expected a handler for full buffers, got NULL")
    })?;
    if capacity == 0 {
        return Err(Error::InvalidValue.because("expected room for at least one character, got 0"));
    }
    Ok(Buffer::new(buf, capacity, handler))
}

/// Defines the creators of back ends, which exist for both origins.
macro_rules! creators {
    ($origin:expr, $whose:literal; $file:ident, $fd:ident, $buf:ident, $syslog:ident) => {
        #[doc = concat!("Writes ", $whose, " messages to a stream, which stays open as long as the process may log.")]
        ///
        /// # Safety
        /// `fptr` is NULL or an open `FILE *`; `backend` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $file(
            fptr: *mut FILE,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t {
            // SAFETY: the caller's promise.
            unsafe { create($origin, backend, || stream(fptr)) }
        }

        #[doc = concat!("Writes ", $whose, " messages to a descriptor, which stays open as long as the process may log.")]
        ///
        /// # Safety
        /// `backend` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fd(
            fd: c_int,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t {
            // SAFETY: the caller's promise.
            unsafe { create($origin, backend, || descriptor(fd)) }
        }

        #[doc = concat!("Writes each of ", $whose, " messages to the begin of a buffer, cut to fit and with a NUL, and calls the handler.")]
        ///
        /// # Safety
        /// `buf` is NULL or has `capacity` bytes as long as the process may log; `handler` is NULL or a function of that type;
        /// `backend` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $buf(
            buf: *mut c_char,
            capacity: usize,
            handler: log_flush_callback,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t {
            // SAFETY: the caller's promise.
            unsafe { create($origin, backend, || buffer(buf, capacity, handler)) }
        }

        #[doc = concat!("Hands ", $whose, " messages to syslog.")]
        ///
        /// # Safety
        /// `name` is NULL or a C string; `backend` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $syslog(
            name: *const c_char,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t {
            // SAFETY: the caller's promise.
            unsafe { create($origin, backend, || Syslog::new(text(name)?)) }
        }
    };
}

creators! {
    Origin::Program, "the program's";
    doca_log_backend_create_with_file, doca_log_backend_create_with_fd,
    doca_log_backend_create_with_buf, doca_log_backend_create_with_syslog
}
creators! {
    Origin::Sdk, "softdoca's own";
    doca_log_backend_create_with_file_sdk, doca_log_backend_create_with_fd_sdk,
    doca_log_backend_create_with_buf_sdk, doca_log_backend_create_with_syslog_sdk
}

/// Writes the program's messages to standard output up to information, and to standard error from warnings on. A second
/// call changes nothing.
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_create_standard() -> doca_error_t {
    static CREATED: Once = Once::new();
    guard(|| {
        let mut result = Ok(());
        CREATED.call_once(|| result = create_standard());
        result
    })
}

fn create_standard() -> Result<()> {
    let output = log::add_backend(Origin::Program, Box::new(Stream::output()));
    output.set_upper(Origin::Program, Level::Info)?;
    output.fix_upper(Origin::Program)?;
    let errors = log::add_backend(Origin::Program, Box::new(Stream::errors()));
    let global = log::global_lower(Origin::Program);
    // What global limits set later goes no further than warnings either.
    errors.set_lower(Origin::Program, Level::Warning)?;
    errors.fix_lower(Origin::Program)?;
    errors.set_lower(Origin::Program, global)
}

/// Sets the least severe level of the program's messages that a back end writes.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_level_lower_limit(
    backend: *mut doca_log_backend,
    value: u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(backend) }?.set_lower(Origin::Program, level(value)?))
}

/// Sets the most severe level of the program's messages that a back end writes.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_level_upper_limit(
    backend: *mut doca_log_backend,
    upper_limit: u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(backend) }?.set_upper(Origin::Program, level(upper_limit)?))
}

/// Keeps the lower limit from moving to less severe levels.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_level_lower_limit_strict(
    backend: *mut doca_log_backend,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(backend) }?.fix_lower(Origin::Program))
}

/// Keeps the upper limit from moving to more severe levels.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_level_upper_limit_strict(
    backend: *mut doca_log_backend,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(backend) }?.fix_upper(Origin::Program))
}

/// Sets the least severe level of softdoca's messages that a back end writes.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_sdk_level(
    backend: *mut doca_log_backend,
    value: u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(backend) }?.set_lower(Origin::Sdk, level(value)?))
}

/// Defines a setter and a getter of a limit of all back ends.
macro_rules! global_limits {
    ($($set:ident, $get:ident: $origin:expr, $store:ident, $load:ident, $what:literal;)*) => {$(
        #[doc = concat!("Sets ", $what, ", for all back ends and for those to come.")]
        ///
        /// # Safety
        /// None needed: there is nothing to get wrong.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(value: u32) -> doca_error_t {
            guard(|| {
                log::$store($origin, level(value)?);
                Ok(())
            })
        }

        #[doc = concat!("Tells ", $what, " that new back ends begin with.")]
        ///
        /// # Safety
        /// None needed: there is nothing to get wrong.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get() -> u32 {
            log::$load($origin) as u32
        }
    )*};
}

global_limits! {
    doca_log_level_set_global_lower_limit, doca_log_level_get_global_lower_limit:
        Origin::Program, set_global_lower, global_lower, "the least severe level of the program's messages";
    doca_log_level_set_global_upper_limit, doca_log_level_get_global_upper_limit:
        Origin::Program, set_global_upper, global_upper, "the most severe level of the program's messages";
    doca_log_level_set_global_sdk_limit, doca_log_level_get_global_sdk_limit:
        Origin::Sdk, set_global_lower, global_lower, "the least severe level of softdoca's messages";
}

/// Registers a source of the program's messages.
///
/// # Safety
/// `source_name` is NULL or a C string; `source` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_register_source(
    source_name: *const c_char,
    source: *mut c_int,
) -> doca_error_t {
    guard(|| {
        check_out(source)?;
        // SAFETY: the caller's promise.
        unsafe { put(source, log::sources::register(text(source_name)?)?) }
    })
}

/// Removes a source.
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_unregister_source(source: c_int) -> doca_error_t {
    guard(|| log::sources::unregister(source))
}

/// What `doca_log` does with a message that is formatted already. `doca_log` itself is variadic, which a Rust function
/// cannot be: the shared library defines it over this one.
///
/// A source that is none is no error: a message is worth more than its register entry. A NULL `file` or `function` is left out.
///
/// # Safety
/// The strings are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softdoca_log_formatted(
    level_value: u32,
    source: c_int,
    file: *const c_char,
    line: c_int,
    function: *const c_char,
    message: *const c_char,
) -> doca_error_t {
    guard(|| {
        let level = level(level_value)?;
        if level == Level::Disable {
            return Err(Error::InvalidValue.because("a message cannot have the level 10"));
        }
        super::not_null(message)?;
        if !log::sources::passes(source, level) {
            return Ok(());
        }
        let lossy = |text: *const c_char| {
            // SAFETY: the caller's promise.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        let (file, function) = (lossy(file), lossy(function));
        log::write_record(&Record {
            origin: Origin::Program,
            level,
            file: file.as_deref().unwrap_or("?"),
            line: line.try_into().unwrap_or(0),
            function: function.as_deref(),
            text: &lossy(message).unwrap_or_default(),
        });
        Ok(())
    })
}

pub use loggers::*;

doca_abi::check_definitions!(doca_log_functions, crate::capi::doca_log);
