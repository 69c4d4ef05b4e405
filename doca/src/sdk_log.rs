//! The SDK's log: its level, and the reasons that it logs for failures of calls, which return only a code.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::FileExt as _;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use doca_sys as sys;
use rustix::fs::{MemfdFlags, OFlags};

use crate::Result;
use crate::error::call;

/// DOCA's levels "disable", "error" and "debug".
const DISABLED: u32 = 10;
const ERROR: u32 = 30;
const DEBUG: u32 = 60;

/// A back end of the SDK's log, as an address, because raw pointers are not `Send`. It is never destroyed.
#[derive(Debug, Clone, Copy)]
struct Backend(usize);

impl Backend {
    /// The descriptor must stay open for the lifetime of the process.
    fn create(descriptor: RawFd) -> Result<Self> {
        let mut pointer = ptr::null_mut();
        // SAFETY: the out-parameter is valid, and the caller guarantees the descriptor, without which messages are lost.
        unsafe {
            call!(doca_log_backend_create_with_fd_sdk(
                descriptor,
                &mut pointer
            ))
        }?;
        Ok(Self(pointer.expose_provenance()))
    }

    fn set_level(self, level: u32) -> Result<()> {
        let pointer = ptr::with_exposed_provenance_mut::<sys::doca_log_backend>(self.0);
        // SAFETY: the back end exists as long as the process.
        unsafe { call!(doca_log_backend_set_sdk_level(pointer, level)) }
    }
}

/// The back end that writes to standard error.
static STANDARD_ERROR: Mutex<Option<Backend>> = Mutex::new(None);

/// Level that the program has set; 0 before.
static LEVEL: AtomicU32 = AtomicU32::new(0);

/// Makes the SDK log messages of at least the severity `level` to standard error.
///
/// DOCA's levels: 10 disable, 20 critical, 30 error, 40 warning, 50 info, 60 debug, 70 trace. Further calls change the
/// level. It applies only to the messages of the DOCA libraries, not to those of this crate, which uses `tracing`.
///
/// ```no_run
/// doca::set_sdk_log_level(40)?;
/// # doca::Result::Ok(())
/// ```
pub fn set_sdk_log_level(level: u32) -> Result<()> {
    LEVEL.store(level, Ordering::Relaxed);
    set_standard_error_level(level)
}

fn set_standard_error_level(level: u32) -> Result<()> {
    const STDERR: RawFd = 2;
    let mut known = STANDARD_ERROR
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let backend = match *known {
        Some(backend) => backend,
        None => *known.insert(Backend::create(STDERR)?),
    };
    backend.set_level(level)
}

/// Runs `call` with the SDK's log messages disabled, unless the program has enabled debug messages: for attempts that
/// are expected to fail and are repeated, each of which would be logged as an error. Messages that other threads log in
/// the meantime are lost.
pub fn without_sdk_messages<R>(call: impl FnOnce() -> R) -> R {
    let level = LEVEL.load(Ordering::Relaxed);
    if !(DISABLED + 1..DEBUG).contains(&level) {
        return call();
    }
    // Best effort: at worst, the messages are logged.
    let _ = set_standard_error_level(DISABLED);
    let result = call();
    let _ = set_standard_error_level(level);
    result
}

/// An in-memory file to which the SDK logs errors during a call.
struct Capture {
    file: File,
    backend: Backend,
}

impl Capture {
    fn new() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("doca-sdk-log", MemfdFlags::CLOEXEC)?;
        // Each message is appended, so it is at the beginning after `take` has truncated the file.
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
        let file = File::from(file);
        let backend = Backend::create(file.as_raw_fd()).map_err(io::Error::other)?;
        backend.set_level(DISABLED).map_err(io::Error::other)?;
        Ok(Self { file, backend })
    }

    /// Removes all messages, and returns the last one.
    fn take(&self) -> io::Result<Option<String>> {
        let length = self.file.metadata()?.len();
        if length == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; length.try_into().unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, 0)?;
        self.file.set_len(0)?;
        Ok(last_reason(&String::from_utf8_lossy(&bytes)).map(str::to_owned))
    }
}

/// Text of the last message in lines of the SDK's log, without the preceding fields in brackets and the error code.
fn last_reason(lines: &str) -> Option<&str> {
    let line = lines.lines().rfind(|line| !line.trim().is_empty())?;
    let mut text = line;
    while let Some((_, rest)) = text
        .strip_prefix('[')
        .and_then(|field| field.split_once(']'))
    {
        text = rest.trim_start();
    }
    let text = match text.split_once(": ") {
        Some((code, rest)) if code.starts_with("DOCA_ERROR_") => rest,
        _ => text,
    };
    // softdoca limits the messages of a source line.
    let text = match text.rsplit_once(" (") {
        Some((rest, count)) if count.ends_with(" similar messages suppressed)") => rest,
        _ => text,
    };
    (!text.is_empty()).then_some(text)
}

/// `None` before the first use; `Some(None)` if errors cannot be captured.
static CAPTURE: Mutex<Option<Option<Capture>>> = Mutex::new(None);

thread_local! {
    /// `true` while this thread captures errors.
    static CAPTURES: Cell<bool> = const { Cell::new(false) };
}

/// Ends the capture of this thread, also if the call panics.
struct Capturing;

impl Drop for Capturing {
    fn drop(&mut self) {
        CAPTURES.set(false);
    }
}

/// Returns the result of `call`, and the last error that the SDK has logged during it: the reason of a failure, for
/// which DOCA's functions return only a code. In a nested call of this function there is no reason.
///
/// For infrequent calls, because they are serialised between threads. If another thread makes a DOCA call that fails in
/// the meantime, its error may be returned as the reason.
pub fn with_sdk_reason<R>(call: impl FnOnce() -> R) -> (R, Option<String>) {
    if CAPTURES.replace(true) {
        return (call(), None);
    }
    let _capturing = Capturing;
    let mut capture = CAPTURE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(capture) = capture.get_or_insert_with(|| Capture::new().ok()) else {
        return (call(), None);
    };
    // Best effort: if the level cannot be set, there is no reason.
    let _ = capture.backend.set_level(ERROR);
    let result = call();
    let _ = capture.backend.set_level(DISABLED);
    (result, capture.take().ok().flatten())
}

/// Adds to an error of `call` the reason that the SDK has logged.
pub(crate) fn explained<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    let (result, reason) = with_sdk_reason(call);
    result.map_err(|mut error| {
        if error.detail.is_none() {
            error.detail = reason.map(Into::into);
        }
        error
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_the_text_of_the_last_line() {
        let softdoca = "[08:01:02:000003][77][SOFTDOCA][ERR][runtime.rs:7] DOCA_ERROR_NOT_FOUND: no server [x]\n";
        assert_eq!(last_reason(softdoca), Some("no server [x]"));
        let suppressed = softdoca.replace("[x]", "(x) (7 similar messages suppressed)");
        assert_eq!(last_reason(&suppressed), Some("no server (x)"));
        let other = format!("{softdoca}[08:01:02:000003][1][DOCA][ERR][a.c:7][f] failed: 22\n\n");
        assert_eq!(last_reason(&other), Some("failed: 22"));
        for empty in ["", "\n", "[08:01:02:000003][1][DOCA][ERR]\n"] {
            assert_eq!(last_reason(empty), None, "{empty:?}");
        }
    }

    #[test]
    fn reason_of_a_failed_call_is_returned_and_calls_nest() {
        let device = crate::Device::open("3b:00.0").expect("the host's device");
        let pe = crate::Pe::new().expect("a progress engine");
        let name = "x".repeat(1000);
        let start = || crate::ComchClient::start(&pe, &device, &name);
        let (result, reason) = with_sdk_reason(|| start().map(drop));
        assert!(result.is_err());
        // Tests of other modules may log at the same time, so the text may be of their messages.
        assert!(reason.is_some_and(|reason| !reason.starts_with('[')));
        let (inner, _) = with_sdk_reason(|| with_sdk_reason(|| 7));
        assert_eq!(inner, (7, None));
    }
}
