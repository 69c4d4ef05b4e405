//! Errors: the C function that failed and the code it returned.

use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr::NonNull;

use doca_sys as sys;

/// Result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed call of the DOCA C API, or a call that this crate has refused to make.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct Error {
    /// The C function, e.g. `"doca_mmap_start"`. For a call refused by this crate, the corresponding C function.
    pub operation: &'static str,
    /// The returned code.
    pub code: ErrorCode,
    /// Expected and actual value, if this crate has more information than the code.
    pub detail: Option<Box<str>>,
}

impl Error {
    // Not inlined, to keep it out of the success path.
    #[cold]
    pub(crate) fn new(operation: &'static str, code: ErrorCode) -> Self {
        Self {
            operation,
            code,
            detail: None,
        }
    }

    #[cold]
    pub(crate) fn with_detail(
        operation: &'static str,
        code: ErrorCode,
        detail: impl Into<Box<str>>,
    ) -> Self {
        Self {
            operation,
            code,
            detail: Some(detail.into()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.code)?;
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

/// Error of stopping an object. While other objects use it, it is returned, to be stopped later.
///
/// With `?` it becomes an [`Error`]; the object is dropped then.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct StopError<T> {
    error: Error,
    object: Option<T>,
}

impl<T> StopError<T> {
    pub(crate) fn new(error: Error, object: Option<T>) -> Self {
        Self { error, object }
    }

    /// Reason of the failure.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The object, after [`ErrorCode::IN_USE`]; `None` after other errors, which leak it.
    pub fn into_object(self) -> Option<T> {
        self.object
    }
}

impl<T> From<StopError<T>> for Error {
    fn from(stopped: StopError<T>) -> Self {
        stopped.error
    }
}

impl<T> fmt::Debug for StopError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopError")
            .field("error", &self.error)
            .field("has_object", &self.object.is_some())
            .finish()
    }
}

/// A `doca_error_t`.
///
/// ```
/// # use doca::ErrorCode;
/// assert_eq!(ErrorCode::AGAIN.name(), "DOCA_ERROR_AGAIN");
/// assert_eq!(ErrorCode(5), ErrorCode::AGAIN);
/// assert_eq!(ErrorCode(4711).name(), "DOCA_ERROR_4711");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($name:ident = $value:ident;)+) => {
        impl ErrorCode {
            $(
                #[doc = concat!("`", stringify!($value), "`.")]
                pub const $name: Self = Self(sys::$value);
            )+
        }
    };
}

codes! {
    SUCCESS = DOCA_SUCCESS;
    UNKNOWN = DOCA_ERROR_UNKNOWN;
    NOT_PERMITTED = DOCA_ERROR_NOT_PERMITTED;
    IN_USE = DOCA_ERROR_IN_USE;
    NOT_SUPPORTED = DOCA_ERROR_NOT_SUPPORTED;
    AGAIN = DOCA_ERROR_AGAIN;
    INVALID_VALUE = DOCA_ERROR_INVALID_VALUE;
    NO_MEMORY = DOCA_ERROR_NO_MEMORY;
    INITIALIZATION = DOCA_ERROR_INITIALIZATION;
    TIME_OUT = DOCA_ERROR_TIME_OUT;
    SHUTDOWN = DOCA_ERROR_SHUTDOWN;
    CONNECTION_RESET = DOCA_ERROR_CONNECTION_RESET;
    CONNECTION_ABORTED = DOCA_ERROR_CONNECTION_ABORTED;
    CONNECTION_INPROGRESS = DOCA_ERROR_CONNECTION_INPROGRESS;
    NOT_CONNECTED = DOCA_ERROR_NOT_CONNECTED;
    NO_LOCK = DOCA_ERROR_NO_LOCK;
    NOT_FOUND = DOCA_ERROR_NOT_FOUND;
    IO_FAILED = DOCA_ERROR_IO_FAILED;
    BAD_STATE = DOCA_ERROR_BAD_STATE;
    UNSUPPORTED_VERSION = DOCA_ERROR_UNSUPPORTED_VERSION;
    OPERATING_SYSTEM = DOCA_ERROR_OPERATING_SYSTEM;
    DRIVER = DOCA_ERROR_DRIVER;
    UNEXPECTED = DOCA_ERROR_UNEXPECTED;
    ALREADY_EXIST = DOCA_ERROR_ALREADY_EXIST;
    FULL = DOCA_ERROR_FULL;
    EMPTY = DOCA_ERROR_EMPTY;
    IN_PROGRESS = DOCA_ERROR_IN_PROGRESS;
    TOO_BIG = DOCA_ERROR_TOO_BIG;
    AUTHENTICATION = DOCA_ERROR_AUTHENTICATION;
    BAD_CONFIG = DOCA_ERROR_BAD_CONFIG;
    SKIPPED = DOCA_ERROR_SKIPPED;
}

impl ErrorCode {
    /// Name of the code, e.g. `"DOCA_ERROR_AGAIN"`, or its number for a value that DOCA does not define.
    pub fn name(self) -> std::borrow::Cow<'static, str> {
        // From the table instead of the library: the result is the same, without a C call.
        match sys::error_name(self.0).map(CStr::to_str) {
            Some(Ok(name)) => name.into(),
            _ => format!("DOCA_ERROR_{}", self.0).into(),
        }
    }

    /// One-line explanation of the code.
    pub fn description(self) -> &'static str {
        match sys::error_description(self.0).map(CStr::to_str) {
            Some(Ok(description)) => description,
            _ => "undefined error code",
        }
    }

    /// `Ok` for [`SUCCESS`](Self::SUCCESS).
    #[inline]
    pub(crate) fn ok(self) -> std::result::Result<(), Self> {
        if self == Self::SUCCESS {
            Ok(())
        } else {
            Err(self)
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.description())
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl std::error::Error for ErrorCode {}

/// Converts the return value of the C function `operation`.
#[inline]
pub(crate) fn check(operation: &'static str, code: sys::doca_error_t) -> Result<()> {
    ErrorCode(code)
        .ok()
        .map_err(|code| Error::new(operation, code))
}

/// Calls a C function and turns its `doca_error_t` into a [`Result`] that names it.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::error::check(stringify!($function), doca_sys::$function($($argument),*))
    };
}
pub(crate) use call;

/// Checks the object returned by a successful C function.
pub(crate) fn non_null<T>(operation: &'static str, pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| {
        Error::with_detail(
            operation,
            ErrorCode::UNEXPECTED,
            "the call succeeded but returned no object",
        )
    })
}

pub(crate) fn c_string(operation: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| {
        Error::with_detail(
            operation,
            ErrorCode::INVALID_VALUE,
            format!("{text:?} contains a NUL character"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_function_code_and_detail() {
        let error = Error::with_detail("doca_dev_open", ErrorCode::NOT_FOUND, "no device \"x\"");
        assert_eq!(
            error.to_string(),
            "doca_dev_open: DOCA_ERROR_NOT_FOUND: What was asked for was not found (no device \"x\")"
        );
        let error = Error::new("doca_mmap_start", ErrorCode(99));
        assert_eq!(
            error.to_string(),
            "doca_mmap_start: DOCA_ERROR_99: undefined error code"
        );
    }

    #[test]
    fn only_success_is_ok() {
        assert_eq!(check("f", 0), Ok(()));
        assert_eq!(check("f", 5).unwrap_err().code, ErrorCode::AGAIN);
        assert_eq!(check("f", 5).unwrap_err().operation, "f");
    }
}
