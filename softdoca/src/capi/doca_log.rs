//! `doca_log.h`: log back ends, levels and sources.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Once, PoisonError};

use doca_abi::{DOCA_LOGGER_NAME_SIZE, FILE, doca_log_backend, doca_logger, log_flush_callback};

use super::{
    Handle, Stream, borrow, check_out, doca_error_t, give, guard, guard_with, put, put_list,
    put_text, take_list, text,
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
/// Messages of unregistered sources are accepted. A NULL `file` or `function` is omitted.
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

/// Finds a logger by its address. Loggers are never freed, and the address is only compared, so any pointer is valid.
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

/// Gets the level of a logger.
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

/// Finds a logger in a list; NULL if there is no logger of this name.
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
            // SAFETY: the program keeps the descriptor open, as DOCA requires; a write to a closed descriptor fails.
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
    /// `true` while this thread runs a handler, because a message of the handler would overwrite the message that it is
    /// reading.
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

impl Buffer {
    /// A sink over `capacity` bytes at `start`; at least one byte, for the NUL.
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

#[cfg(test)]
pub(super) mod tests {
    use std::ffi::CString;
    use std::fs::File;
    use std::io::{Read as _, Seek as _};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::ptr::null_mut;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use doca_abi::{
        DOCA_ERROR_INVALID_VALUE, DOCA_LOG_LEVEL_CRIT, DOCA_LOG_LEVEL_DEBUG,
        DOCA_LOG_LEVEL_DISABLE, DOCA_LOG_LEVEL_ERROR, DOCA_LOG_LEVEL_INFO, DOCA_LOG_LEVEL_TRACE,
        DOCA_LOG_LEVEL_WARNING, DOCA_SUCCESS,
    };

    use super::super::doca_argp::doca_argp_init;
    use super::super::doca_dev::doca_devinfo_create_list;
    use super::super::testing::child;
    use super::*;

    /// Back ends and global limits belong to the process, so tests run sequentially.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(level: u32, text: &str) -> u32 {
        let text = CString::new(text).unwrap();
        // SAFETY: C strings.
        unsafe {
            softdoca_log_formatted(
                level,
                0,
                c"dir/file.c".as_ptr(),
                7,
                c"main".as_ptr(),
                text.as_ptr(),
            )
        }
    }

    /// Makes a back end drop all messages of the program, regardless of the global limits.
    unsafe fn silence(backend: *mut doca_log_backend) {
        // SAFETY: a live handle.
        unsafe {
            assert_eq!(
                doca_log_backend_set_level_lower_limit(backend, DOCA_LOG_LEVEL_DISABLE),
                DOCA_SUCCESS
            );
            assert_eq!(
                doca_log_backend_set_level_lower_limit_strict(backend),
                DOCA_SUCCESS
            );
        }
    }

    /// A file that remains open, as required for a back end.
    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        std::mem::forget(file.try_clone().unwrap());
        file
    }

    /// The lines in the file that contain `mark`, each starting at its level.
    fn lines(file: &mut File, mark: &str) -> Vec<String> {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text.lines()
            .filter(|line| line.contains(mark))
            .map(|line| line.splitn(4, ']').last().unwrap().to_owned())
            .collect()
    }

    static BUFFERED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    unsafe extern "C" fn keep(buf: *mut c_char) {
        // SAFETY: a back end's buffer holds a C string.
        let text = unsafe { CStr::from_ptr(buf) }.to_str().unwrap().to_owned();
        BUFFERED.lock().unwrap().push(text);
        // A handler's own messages must not be written to its buffer.
        say(DOCA_LOG_LEVEL_ERROR, "from the handler");
    }

    #[test]
    fn buffers_get_one_message_at_a_time() {
        let _alone = alone();
        // Never freed, because a back end exists until the process exits.
        let buffer: &mut [c_char] = Box::leak(vec![1; 64].into_boxed_slice());
        let capacity = buffer.len() - 1;
        let mut backends = [null_mut(); 2];
        // SAFETY: live handles, out-pointers and a buffer that lives until the back ends are silenced.
        unsafe {
            let start = buffer.as_mut_ptr();
            for (capacity, handler) in
                [(0, Some(keep as unsafe extern "C" fn(_))), (capacity, None)]
            {
                assert_eq!(
                    doca_log_backend_create_with_buf(start, capacity, handler, &mut backends[0]),
                    DOCA_ERROR_INVALID_VALUE
                );
            }
            assert_eq!(
                doca_log_backend_create_with_buf(start, capacity, Some(keep), &mut backends[0]),
                DOCA_SUCCESS
            );
            say(DOCA_LOG_LEVEL_INFO, "a");
            say(DOCA_LOG_LEVEL_INFO, &"long".repeat(100));
            silence(backends[0]);
            assert_eq!(
                doca_log_backend_create_with_buf_sdk(start, capacity, Some(keep), &mut backends[1]),
                DOCA_SUCCESS
            );
            let _ = Error::Full.because("b");
            assert_eq!(
                doca_log_backend_set_sdk_level(backends[1], 10),
                DOCA_SUCCESS
            );
        }
        assert_eq!(buffer[capacity], 1, "nothing is written beyond the buffer");
        // Other tests cause messages of softdoca at the same time.
        let seen = BUFFERED.lock().unwrap();
        let (sdk, program): (Vec<_>, Vec<_>) =
            seen.iter().partition(|line| line.contains("SOFTDOCA"));
        assert_eq!(program.len(), 2, "{seen:?}");
        assert!(program[0].ends_with("[file.c:7][main] a\n"), "{seen:?}");
        assert_eq!(program[1].len(), capacity - 1, "cut, with room for the NUL");
        assert!(!sdk.is_empty(), "{seen:?}");
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let mut backend = null_mut();
        let mut source = 0;
        let null = std::ptr::null();
        // SAFETY: NULL and invalid values are refused, which this test checks.
        unsafe {
            let refused = [
                doca_log_backend_create_with_file(null_mut(), &mut backend),
                doca_log_backend_create_with_file_sdk(null_mut(), &mut backend),
                doca_log_backend_create_with_fd(-1, &mut backend),
                doca_log_backend_create_with_fd_sdk(-1, &mut backend),
                doca_log_backend_create_with_fd(1, null_mut()),
                doca_log_backend_create_with_syslog(null, &mut backend),
                doca_log_backend_create_with_syslog_sdk(null, &mut backend),
                doca_log_backend_create_with_buf(null_mut(), 9, Some(keep), &mut backend),
                doca_log_backend_create_with_buf_sdk(null_mut(), 9, Some(keep), &mut backend),
                doca_log_backend_set_level_upper_limit(null_mut(), 30),
                doca_log_backend_set_level_lower_limit_strict(null_mut()),
                doca_log_backend_set_level_upper_limit_strict(null_mut()),
                doca_log_register_source(null, &mut source),
                doca_log_register_source(c"A".as_ptr(), null_mut()),
                doca_log_unregister_source(0),
                doca_log_level_set_global_sdk_limit(0),
                softdoca_log_formatted(30, 0, null, 0, null, null),
                say(DOCA_LOG_LEVEL_DISABLE, "no level"),
                say(35, "no level"),
            ];
            assert_eq!(refused, [DOCA_ERROR_INVALID_VALUE; 19]);
            assert!(backend.is_null());
            assert_eq!(
                doca_log_register_source(c"A::B".as_ptr(), &mut source),
                DOCA_SUCCESS
            );
            assert!(source > 0);
            assert_eq!(doca_log_unregister_source(source), DOCA_SUCCESS);
            assert_eq!(doca_log_unregister_source(source), DOCA_ERROR_INVALID_VALUE);
        }
    }

    #[test]
    fn syslog_back_ends_take_levels() {
        let _alone = alone();
        let (mut program, mut sdk) = (null_mut(), null_mut());
        // SAFETY: live handles and out-pointers.
        unsafe {
            let name = c"softdoca-test".as_ptr();
            assert_eq!(
                doca_log_backend_create_with_syslog(name, &mut program),
                DOCA_SUCCESS
            );
            assert_eq!(
                doca_log_backend_create_with_syslog_sdk(name, &mut sdk),
                DOCA_SUCCESS
            );
            silence(program);
            assert_eq!(doca_log_backend_set_sdk_level(sdk, 10), DOCA_SUCCESS);
        }
    }

    #[test]
    fn softdocas_messages_reach_descriptors_and_streams() {
        let _alone = alone();
        let kept = file();
        let mut file = kept.try_clone().unwrap();
        let mut backend = null_mut();
        // SAFETY: live handles and out-pointers; the stream is left open.
        unsafe {
            assert_eq!(
                doca_log_backend_create_with_fd_sdk(kept.as_raw_fd(), &mut backend),
                DOCA_SUCCESS
            );
            assert_eq!(doca_log_backend_set_sdk_level(backend, 30), DOCA_SUCCESS);
            for (backend, level) in [(backend, 31), (null_mut(), 30)] {
                assert_eq!(
                    doca_log_backend_set_sdk_level(backend, level),
                    DOCA_ERROR_INVALID_VALUE
                );
            }
            assert_eq!(
                doca_log_backend_set_level_lower_limit(backend, 30),
                DOCA_ERROR_INVALID_VALUE,
                "it is not for the program's messages"
            );
            let _ = Error::Full.because("capi-log-1");
            log::info!("capi-log-2");
            assert_eq!(say(DOCA_LOG_LEVEL_ERROR, "capi-log-program"), DOCA_SUCCESS);
            assert_eq!(doca_log_backend_set_sdk_level(backend, 10), DOCA_SUCCESS);
            let stream = libc::fdopen(libc::dup(kept.as_raw_fd()), c"a".as_ptr());
            assert_eq!(
                doca_log_backend_create_with_file_sdk(stream.cast(), &mut backend),
                DOCA_SUCCESS
            );
            let _ = Error::Full.because("capi-log-3");
            assert_eq!(doca_log_backend_set_sdk_level(backend, 10), DOCA_SUCCESS);
        }
        let seen = lines(&mut file, "capi-log");
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(seen[0].ends_with("DOCA_ERROR_FULL: capi-log-1"), "{seen:?}");
        assert!(seen[1].ends_with("capi-log-3"), "{seen:?}");
    }

    #[test]
    fn the_programs_messages_reach_descriptors_and_streams_within_limits() {
        let _alone = alone();
        let kept = file();
        let mut file = kept.try_clone().unwrap();
        let (mut backend, mut on_stream) = (null_mut(), null_mut());
        let all = |mark: &str| {
            for level in (20..=70).step_by(10) {
                assert_eq!(say(level, mark), DOCA_SUCCESS);
            }
        };
        let levels = |file: &mut File, mark: &str| -> String {
            let tag = |line: &String| line.split(['[', ']']).nth(1).unwrap_or_default().to_owned();
            lines(file, mark)
                .iter()
                .map(tag)
                .collect::<Vec<_>>()
                .join(" ")
        };
        // SAFETY: live handles and out-pointers; the stream is left open.
        unsafe {
            assert_eq!(
                doca_log_backend_create_with_fd(kept.as_raw_fd(), &mut backend),
                DOCA_SUCCESS
            );
            all("by-default");
            assert_eq!(
                levels(&mut file, "by-default"),
                "CRT ERR WRN INF",
                "information is where a back end begins"
            );
            let lower = |level| doca_log_backend_set_level_lower_limit(backend, level);
            let upper = |level| doca_log_backend_set_level_upper_limit(backend, level);
            assert_eq!(lower(DOCA_LOG_LEVEL_TRACE), DOCA_SUCCESS);
            assert_eq!(upper(DOCA_LOG_LEVEL_WARNING), DOCA_SUCCESS);
            all("both-set");
            assert_eq!(levels(&mut file, "both-set"), "WRN INF DBG TRC");
            assert_eq!(
                (lower(0), upper(71)),
                (DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_INVALID_VALUE)
            );
            assert_eq!(lower(DOCA_LOG_LEVEL_DEBUG), DOCA_SUCCESS);
            assert_eq!(
                doca_log_backend_set_level_lower_limit_strict(backend),
                DOCA_SUCCESS
            );
            assert_eq!(
                doca_log_backend_set_level_upper_limit_strict(backend),
                DOCA_SUCCESS
            );
            assert_eq!(lower(DOCA_LOG_LEVEL_TRACE), DOCA_SUCCESS);
            assert_eq!(upper(DOCA_LOG_LEVEL_CRIT), DOCA_SUCCESS);
            all("strict");
            assert_eq!(levels(&mut file, "strict"), "WRN INF DBG");
            silence(backend);

            let stream = libc::fdopen(libc::dup(kept.as_raw_fd()), c"a".as_ptr());
            assert_eq!(
                doca_log_backend_create_with_file(stream.cast(), &mut on_stream),
                DOCA_SUCCESS
            );
            all("on-stream");
            assert_eq!(
                lines(&mut file, "on-stream")[0],
                "[CRT][file.c:7][main] on-stream"
            );
            silence(on_stream);
            assert_eq!(
                doca_log_backend_set_sdk_level(on_stream, 30),
                DOCA_ERROR_INVALID_VALUE,
                "it is not for softdoca's messages"
            );
        }
    }

    #[test]
    fn global_limits_reach_all_back_ends_and_new_ones() {
        let _alone = alone();
        let kept = file();
        let mut file = kept.try_clone().unwrap();
        let mut before = null_mut();
        let mut after = null_mut();
        // SAFETY: live handles and out-pointers.
        unsafe {
            let fd = kept.as_raw_fd();
            assert_eq!(doca_log_level_get_global_lower_limit(), DOCA_LOG_LEVEL_INFO);
            assert_eq!(doca_log_level_get_global_upper_limit(), DOCA_LOG_LEVEL_CRIT);
            assert_eq!(doca_log_level_get_global_sdk_limit(), DOCA_LOG_LEVEL_INFO);
            assert_eq!(
                doca_log_backend_create_with_fd(fd, &mut before),
                DOCA_SUCCESS
            );
            assert_eq!(doca_log_level_set_global_lower_limit(60), DOCA_SUCCESS);
            assert_eq!(doca_log_level_set_global_upper_limit(60), DOCA_SUCCESS);
            assert_eq!(doca_log_level_get_global_lower_limit(), 60);
            assert_eq!(doca_log_level_get_global_upper_limit(), 60);
            assert_eq!(
                doca_log_backend_create_with_fd(fd, &mut after),
                DOCA_SUCCESS
            );
            for level in [50, 60, 70] {
                assert_eq!(say(level, &format!("global-{level}")), DOCA_SUCCESS);
            }
            assert_eq!(doca_log_level_set_global_lower_limit(50), DOCA_SUCCESS);
            assert_eq!(doca_log_level_set_global_upper_limit(20), DOCA_SUCCESS);
            silence(before);
            silence(after);
            assert_eq!(
                doca_log_level_set_global_lower_limit(55),
                DOCA_ERROR_INVALID_VALUE
            );

            let mut sdk = null_mut();
            assert_eq!(
                doca_log_backend_create_with_fd_sdk(fd, &mut sdk),
                DOCA_SUCCESS
            );
            assert_eq!(doca_log_level_set_global_sdk_limit(60), DOCA_SUCCESS);
            assert_eq!(doca_log_level_get_global_sdk_limit(), 60);
            log::debug!("global-sdk");
            assert_eq!(doca_log_level_set_global_sdk_limit(50), DOCA_SUCCESS);
            log::debug!("global-sdk-too-chatty");
            assert_eq!(doca_log_backend_set_sdk_level(sdk, 10), DOCA_SUCCESS);
        }
        let texts: Vec<String> = lines(&mut file, "global-")
            .iter()
            .map(|line| line.rsplit(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(texts, ["global-60", "global-60", "global-sdk"]);
    }

    #[test]
    fn a_closed_descriptor_loses_messages_and_nothing_else() {
        let _alone = alone();
        let kept = file();
        let mut backend = null_mut();
        // SAFETY: a descriptor of its own, closed below; under the lock, no other test opens a descriptor that could be
        // affected.
        unsafe {
            let copy = libc::dup(kept.as_raw_fd());
            assert_eq!(
                doca_log_backend_create_with_fd(copy, &mut backend),
                DOCA_SUCCESS
            );
            drop(OwnedFd::from_raw_fd(copy));
        }
        assert_eq!(say(DOCA_LOG_LEVEL_CRIT, "discarded"), DOCA_SUCCESS);
        // SAFETY: a live handle.
        unsafe { silence(backend) };
    }

    const FIRST_CALL: &str = "SOFTDOCA_TEST_FIRST_CALL";

    /// Run by [`an_unknown_level_in_the_environment_is_reported_once`].
    #[test]
    fn first_call_child() {
        let Ok(call) = std::env::var(FIRST_CALL) else {
            return;
        };
        let (mut source, mut devices, mut count) = (0, null_mut(), 0);
        for _ in 0..2 {
            // SAFETY: valid out-parameters and C strings.
            let code = unsafe {
                match call.as_str() {
                    "log" => doca_log_register_source(c"SOURCE".as_ptr(), &mut source),
                    "back end" => doca_log_backend_create_standard(),
                    "devices" => doca_devinfo_create_list(&mut devices, &mut count),
                    "arguments" => doca_argp_init(c"program".as_ptr(), null_mut()),
                    other => panic!("no call {other}"),
                }
            };
            assert!(code == DOCA_SUCCESS || call == "arguments", "{code}");
        }
    }

    /// The function that nearly every program calls first reports the error, although softdoca has no message to log at
    /// that time.
    #[test]
    fn an_unknown_level_in_the_environment_is_reported_once() {
        let reports = |call, level| {
            let environment = [(FIRST_CALL, call), (log::VARIABLE, level)];
            let output = child("capi::doca_log::tests::first_call_child", &environment);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{call}: {text}");
            let of_variable = |line: &&str| line.contains(log::VARIABLE);
            let lines: Vec<String> = text
                .lines()
                .filter(of_variable)
                .map(str::to_owned)
                .collect();
            lines
        };
        for call in ["log", "back end", "devices", "arguments"] {
            let [report] = &reports(call, "verbose")[..] else {
                panic!("{call}: expected one report");
            };
            let words = [
                "critical",
                "error",
                "warning",
                "info",
                "debug",
                "trace",
                "\"verbose\"",
            ];
            assert!(words.iter().all(|word| report.contains(word)), "{report}");
            assert_eq!(reports(call, "warning"), [""; 0], "{call}");
        }
    }

    /// Run by [`the_standard_back_end_splits_by_severity`] in a process whose streams are captured.
    #[test]
    fn standard_child() {
        if std::env::var_os("SOFTDOCA_TEST_STANDARD").is_none() {
            return;
        }
        // SAFETY: no pointers are passed.
        unsafe {
            assert_eq!(doca_log_backend_create_standard(), DOCA_SUCCESS);
            assert_eq!(doca_log_backend_create_standard(), DOCA_SUCCESS);
            for level in [30, 50, 60] {
                say(level, &format!("standard-a-{level}"));
            }
            doca_log_level_set_global_lower_limit(60);
            for level in [40, 60] {
                say(level, &format!("standard-b-{level}"));
            }
            doca_log_level_set_global_lower_limit(30);
            for level in [30, 40, 50] {
                say(level, &format!("standard-c-{level}"));
            }
        }
    }

    #[test]
    fn the_standard_back_end_splits_by_severity() {
        let test = "capi::doca_log::tests::standard_child";
        let output = child(test, &[("SOFTDOCA_TEST_STANDARD", "1")]);
        let marks = |text: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(text).into_owned();
            let of_line = |line: &str| line.split(' ').next_back().unwrap_or_default().to_owned();
            text.lines()
                .map(of_line)
                .filter(|mark| mark.starts_with("standard-"))
                .collect()
        };
        assert_eq!(marks(&output.stdout), ["standard-a-50", "standard-b-60"]);
        assert_eq!(
            marks(&output.stderr),
            ["standard-a-30", "standard-b-40", "standard-c-30"]
        );
    }
}
