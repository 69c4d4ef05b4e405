//! `doca_log.h`: where softdoca's own messages go.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use doca_abi::doca_log_backend;

use super::{Handle, borrow, check_out, doca_error_t, give, guard, put};
use crate::error::Error;
use crate::log::{self, Backend, Level, Record, Sink};

// SAFETY: back ends are given out by `give` and never taken back.
unsafe impl Handle for doca_log_backend {
    type Engine = Backend;
}

/// Level of a new back end.
const DEFAULT_LEVEL: Level = Level::Info;

/// A C stream.
struct Stream(*mut libc::FILE);

// SAFETY: stdio locks its streams; the program keeps it open, as DOCA asks.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Sink for Stream {
    fn accept(&self, record: &Record<'_>) {
        let line = Line(record).to_string();
        // SAFETY: an open stream, and a buffer of the stated size. There is nowhere to report a failure to.
        unsafe {
            libc::fwrite(line.as_ptr().cast(), 1, line.len(), self.0);
            libc::fflush(self.0);
        }
    }
}

/// A descriptor of the program's.
struct Descriptor(c_int);

impl Sink for Descriptor {
    fn accept(&self, record: &Record<'_>) {
        let line = Line(record).to_string();
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            // SAFETY: the program keeps it open, as DOCA asks; a closed one makes the write fail.
            let fd = unsafe { BorrowedFd::borrow_raw(self.0) };
            match rustix::io::write(fd, rest) {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                // Nowhere to report a failure to.
                Err(_) => return,
            }
        }
    }
}

/// A record as a line of text.
struct Line<'a>(&'a Record<'a>);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record {
            level,
            file,
            line,
            text,
        } = self.0;
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (seconds, micros) = (time.as_secs() % 86_400, time.subsec_micros());
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let (pid, tag) = (std::process::id(), level.tag());
        writeln!(
            f,
            "[{hours:02}:{minutes:02}:{seconds:02}.{micros:06}][{pid}][SOFTDOCA][{tag}][{file}:{line}] {text}"
        )
    }
}

/// Writes softdoca's own messages to a stream, which stays open as long as the process may log.
///
/// # Safety
/// `fptr` is NULL or an open `FILE *`; `backend` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_create_with_file_sdk(
    fptr: *mut c_void,
    backend: *mut *mut doca_log_backend,
) -> doca_error_t {
    guard(|| {
        check_out(fptr)?;
        check_out(backend)?;
        // SAFETY: the caller's promise.
        unsafe {
            put(
                backend,
                give(log::add_backend(
                    DEFAULT_LEVEL,
                    Box::new(Stream(fptr.cast())),
                )),
            )
        }
    })
}

/// Writes softdoca's own messages to a descriptor, which stays open as long as the process may log.
///
/// # Safety
/// `backend` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_create_with_fd_sdk(
    fd: c_int,
    backend: *mut *mut doca_log_backend,
) -> doca_error_t {
    guard(|| {
        check_out(backend)?;
        if fd < 0 {
            return Err(Error::InvalidValue);
        }
        // SAFETY: the caller's promise.
        unsafe {
            put(
                backend,
                give(log::add_backend(DEFAULT_LEVEL, Box::new(Descriptor(fd)))),
            )
        }
    })
}

/// Sets the least severe level that a back end writes.
///
/// # Safety
/// `backend` is NULL or a live back end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_backend_set_sdk_level(
    backend: *mut doca_log_backend,
    level: u32,
) -> doca_error_t {
    guard(|| {
        let level = Level::from_value(level).ok_or_else(|| {
            Error::InvalidValue.because(format_args!(
                "{level} is no log level; expected 10, 20, 30, 40, 50, 60 or 70"
            ))
        })?;
        // SAFETY: the caller's promise.
        unsafe { borrow(backend) }?.set_level(level);
        Ok(())
    })
}

doca_abi::check_definitions!(doca_log_functions, crate::capi::doca_log);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn messages_reach_descriptors_and_streams() {
        let mut file = tempfile::tempfile().unwrap();
        let mut backend = std::ptr::null_mut();
        // SAFETY: live handles and out-pointers; the stream is left open.
        unsafe {
            assert_eq!(
                doca_log_backend_create_with_fd_sdk(file.as_raw_fd(), &mut backend),
                0
            );
            assert_eq!(doca_log_backend_set_sdk_level(backend, 30), 0);
            assert_eq!(
                doca_log_backend_set_sdk_level(backend, 31),
                Error::InvalidValue.code()
            );
            assert_eq!(
                doca_log_backend_set_sdk_level(std::ptr::null_mut(), 30),
                Error::InvalidValue.code()
            );
            let _ = Error::Full.because("capi-log-1");
            log::info!("capi-log-2");
            assert_eq!(doca_log_backend_set_sdk_level(backend, 10), 0);
            let stream = libc::fdopen(libc::dup(file.as_raw_fd()), c"a".as_ptr());
            assert_eq!(
                doca_log_backend_create_with_file_sdk(stream.cast(), &mut backend),
                0
            );
            let _ = Error::Full.because("capi-log-3");
            assert_eq!(doca_log_backend_set_sdk_level(backend, 10), 0);
        }
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.contains("capi-log"))
            .collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines[0].contains("[ERR]") && lines[0].ends_with("DOCA_ERROR_FULL: capi-log-1"),
            "{text}"
        );
        assert!(lines[1].ends_with("capi-log-3"), "{text}");
    }
}
