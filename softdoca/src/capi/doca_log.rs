//! `doca_log.h`: log back ends, levels and sources.

#[cfg(test)]
pub(super) mod tests;

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Once, PoisonError};

use doca_abi::{DOCA_LOGGER_NAME_SIZE, FILE, doca_log_backend, doca_logger, log_flush_callback};

use super::Stream;
use super::{
    Handle, borrow, check_out, doca_error_t, give, guard, guard_with, put, put_list, put_text,
    take_list, text,
};
use crate::error::{Error, Result};
use crate::log::sources::{self, Logger};
use crate::log::{self, Backend, Level, Line, Origin, Record, Sink, Syslog};

// SAFETY: back ends are given out by `give` and never taken back.
unsafe impl Handle for doca_log_backend {
    type Engine = Backend;
}

fn level(value: u32) -> Result<Level> {
    Level::from_value(value).ok_or_else(|| {
        Error::InvalidValue.because(format_args!(
            "{value} is not a log level; expected 10, 20, 30, 40, 50, 60 or 70"
        ))
    })
}

/// Registers the sink returned by `make`, and writes the back end's handle.
///
/// # Safety
/// `backend` is NULL or writable.
unsafe fn create<S: Sink + 'static>(
    origin: Origin,
    backend: *mut *mut doca_log_backend,
    make: impl FnOnce() -> Result<S>,
) -> doca_error_t {
    guard(|| {
        log::read_environment();
        check_out(backend)?;
        let added = log::add_backend(origin, Box::new(make()?));
        // SAFETY: guaranteed by the caller.
        unsafe { put(backend, give(added)) }
    })
}

/// # Safety
/// `fptr` is NULL or a stream that stays open.
unsafe fn stream(fptr: *mut FILE) -> Result<Stream> {
    check_out(fptr)?;
    // SAFETY: the calling C function's caller guarantees that the stream stays open.
    Ok(unsafe { Stream::new(fptr) })
}

fn descriptor(fd: c_int) -> Result<Descriptor> {
    if fd < 0 {
        return Err(Error::InvalidValue.because(format_args!("{fd} is not a file descriptor")));
    }
    Ok(Descriptor(fd))
}

fn buffer(buf: *mut c_char, capacity: usize, handler: log_flush_callback) -> Result<Buffer> {
    check_out(buf)?;
    let handler = handler.ok_or_else(|| {
        Error::InvalidValue.because("expected a handler for full buffers, got NULL")
    })?;
    if capacity == 0 {
        return Err(Error::InvalidValue.because("expected a buffer of at least 1 byte, got 0"));
    }
    Ok(Buffer::new(buf, capacity, handler))
}

/// Defines the functions that create back ends, which exist for both origins.
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
            // SAFETY: guaranteed by the caller.
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
            // SAFETY: guaranteed by the caller.
            unsafe { create($origin, backend, || descriptor(fd)) }
        }

        #[doc = concat!("Writes each of ", $whose, " messages to the start of a buffer, cut to fit and with a NUL, and calls the handler.")]
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
            // SAFETY: guaranteed by the caller.
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
            // SAFETY: guaranteed by the caller.
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

/// Writes the program's messages to standard output up to level info, and to standard error from level warning. A
/// second call has no effect.
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_create_standard() -> doca_error_t {
    static CREATED: Once = Once::new();
    guard(|| {
        log::read_environment();
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
    // Global limits that are set later must not widen this beyond warnings either.
    errors.set_lower(Origin::Program, Level::Warning)?;
    errors.fix_lower(Origin::Program)?;
    errors.set_lower(Origin::Program, global)
}

/// Sets the least severe level of the program's messages that a back end accepts.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_level_lower_limit(
    backend: *mut doca_log_backend,
    value: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(backend) }?.set_lower(Origin::Program, level(value)?))
}

/// Sets the most severe level of the program's messages that a back end accepts.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_level_upper_limit(
    backend: *mut doca_log_backend,
    upper_limit: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(backend) }?.set_upper(Origin::Program, level(upper_limit)?))
}

/// Prevents the lower limit from moving to less severe levels.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_level_lower_limit_strict(
    backend: *mut doca_log_backend,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(backend) }?.fix_lower(Origin::Program))
}

/// Prevents the upper limit from moving to more severe levels.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_level_upper_limit_strict(
    backend: *mut doca_log_backend,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(backend) }?.fix_upper(Origin::Program))
}

/// Sets the least severe level of softdoca's messages that a back end accepts.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_sdk_level(
    backend: *mut doca_log_backend,
    value: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(backend) }?.set_lower(Origin::Sdk, level(value)?))
}

/// Defines the setter and getter of a limit of all back ends.
macro_rules! global_limits {
    ($($set:ident, $get:ident: $origin:expr, $store:ident, $load:ident, $what:literal;)*) => {$(
        #[doc = concat!("Sets ", $what, ", for all present and future back ends.")]
        ///
        /// # Safety
        /// None needed: no pointers are passed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(value: u32) -> doca_error_t {
            guard(|| {
                log::$store($origin, level(value)?);
                Ok(())
            })
        }

        #[doc = concat!("Tells ", $what, " of new back ends.")]
        ///
        /// # Safety
        /// None needed: no pointers are passed.
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
        log::read_environment();
        check_out(source)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(source, log::sources::register(text(source_name)?)?) }
    })
}

/// Removes a source.
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_unregister_source(source: c_int) -> doca_error_t {
    guard(|| log::sources::unregister(source))
}

/// Implementation of `doca_log` for a formatted message. `doca_log` itself is variadic and therefore not a Rust
/// function: the shared library defines it as a call of this one.
///
/// Messages of unregistered sources are accepted. A NULL `file` or `function` is left out.
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
            // SAFETY: guaranteed by the caller.
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

/// Finds a logger by its address. Loggers are never freed, and the address is only compared, so any pointer is allowed.
fn find(logger: *const doca_logger) -> Result<Arc<Logger>> {
    sources::at(logger.cast())
}

/// As [`find`]; NULL is the root of all loggers.
fn find_root(logger: *const doca_logger) -> Result<Option<Arc<Logger>>> {
    (!logger.is_null()).then(|| find(logger)).transpose()
}

/// Maximum number of back ends: limited by memory only.
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_get_max_num_backends_sdk() -> u32 {
    u32::MAX
}

/// Lists loggers.
///
/// # Safety
/// The out-parameters are NULL or writable; `logger` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_create_list(
    logger: *const doca_logger,
    depth: u8,
    logger_list: *mut *mut *mut doca_logger,
    nb_loggers: *mut u32,
) -> doca_error_t {
    guard(|| {
        let loggers = sources::below(find_root(logger)?.as_deref(), depth);
        let handles = loggers
            .iter()
            .map(|logger| Arc::as_ptr(logger).cast_mut().cast());
        // SAFETY: guaranteed by the caller.
        unsafe { put_list(handles, logger_list, nb_loggers) }
    })
}

/// Frees a list.
///
/// # Safety
/// `logger_list` is NULL or from [`doca_logger_create_list`], and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_destroy_list(
    logger_list: *mut *mut doca_logger,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { take_list(logger_list) }.map(drop))
}

/// Sets a level.
///
/// # Safety
/// Safe for any pointer: it is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_set_level(
    logger: *mut doca_logger,
    level_value: c_int,
    propagate: u8,
) -> doca_error_t {
    guard(|| {
        let level = level(u32::try_from(level_value).unwrap_or(u32::MAX))?;
        sources::set_level(find_root(logger)?.as_deref(), level, propagate != 0)
    })
}

/// Gets a level.
///
/// # Safety
/// `out` is NULL or writable; `logger` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_get_level(
    logger: *const doca_logger,
    out: *mut c_int,
) -> doca_error_t {
    guard(|| {
        super::not_null(logger)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(out, find(logger)?.level() as c_int) }
    })
}

/// Writes a name.
///
/// # Safety
/// `name` is NULL or has room for [`DOCA_LOGGER_NAME_SIZE`] bytes; `logger` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_get_name(
    logger: *const doca_logger,
    name: *mut c_char,
) -> doca_error_t {
    guard(|| {
        super::not_null(logger)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put_text(name, DOCA_LOGGER_NAME_SIZE, find(logger)?.name()) }
    })
}

/// Finds a logger in a list; NULL if there is none of this name.
///
/// # Safety
/// `logger_list` is NULL or a live list; `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_find_by_name(
    logger_list: *mut *mut doca_logger,
    name: *const c_char,
) -> *mut doca_logger {
    let find = || -> Result<*mut doca_logger> {
        check_out(logger_list)?;
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text(name) }?;
        for index in 0.. {
            // SAFETY: the loop stops at the NULL that terminates the list.
            let handle = unsafe { logger_list.add(index).read() };
            if handle.is_null() {
                break;
            }
            if sources::at(handle.cast_const().cast())?.name() == name {
                return Ok(handle);
            }
        }
        Err(Error::NotFound)
    };
    guard_with(std::ptr::null_mut(), || {
        find().unwrap_or(std::ptr::null_mut())
    })
}

impl Sink for Stream {
    fn accept(&self, record: &Record<'_>) {
        self.write(&Line(record).to_string());
    }
}

/// A file descriptor of the program.
struct Descriptor(c_int);

impl Sink for Descriptor {
    fn accept(&self, record: &Record<'_>) {
        let line = Line(record).to_string();
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            // SAFETY: the program keeps it open, as DOCA requires; a write to a closed one fails.
            let fd = unsafe { BorrowedFd::borrow_raw(self.0) };
            match rustix::io::write(fd, rest) {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                // Ignored: the failure cannot be reported.
                Err(_) => return,
            }
        }
    }
}

/// A buffer of the program that is emptied by a handler.
struct Buffer {
    start: Mutex<Start>,
    capacity: usize,
    handler: unsafe extern "C" fn(*mut c_char),
}

struct Start(*mut c_char);

// SAFETY: only used under the mutex; the program must not access the buffer, as DOCA requires.
unsafe impl Send for Start {}

thread_local! {
    /// `true` while this thread runs a handler: a message of the handler would overwrite the one it reads.
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

impl Buffer {
    /// A sink over `capacity` bytes at `start`; at least one, for the NUL.
    fn new(
        start: *mut c_char,
        capacity: usize,
        handler: unsafe extern "C" fn(*mut c_char),
    ) -> Buffer {
        Buffer {
            start: Mutex::new(Start(start)),
            capacity,
            handler,
        }
    }
}

impl Sink for Buffer {
    fn accept(&self, record: &Record<'_>) {
        if IN_HANDLER.get() {
            return;
        }
        let line = Line(record).to_string();
        let len = line.floor_char_boundary(self.capacity - 1);
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        IN_HANDLER.set(true);
        // SAFETY: the program guarantees `capacity` bytes, and a handler for such a buffer, which the line does not
        // overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(line.as_ptr(), start.0.cast::<u8>(), len);
            start.0.add(len).write(0);
            (self.handler)(start.0);
        }
        IN_HANDLER.set(false);
    }
}

doca_abi::check_definitions!(doca_log_functions, crate::capi::doca_log);
