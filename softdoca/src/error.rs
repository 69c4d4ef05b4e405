//! The error type of the engine: DOCA's result codes.
//!
//! A C caller gets only the code, so the explanation (expected value, actual value, remedy) is logged where the error
//! is created: `return Err(Error::InvalidValue.because(format_args!("…")))`.

use std::fmt;

use crate::log;

/// Result of every engine function.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! errors {
    ($($variant:ident = $code:literal, $name:literal, $description:literal;)*) => {
        /// A DOCA error code other than `DOCA_SUCCESS`. `Copy`, so that a failure on the data path is cheap.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Error {
            $(#[doc = concat!("`", $name, "`: ", $description, ".")] $variant = $code,)*
        }

        impl Error {
            /// Every error code, in ascending order.
            pub const ALL: &'static [Error] = &[$(Error::$variant),*];

            /// The error of a `doca_error_t` value; `None` for success and for values that DOCA does not define.
            pub const fn from_code(code: u32) -> Option<Error> {
                match code {
                    $($code => Some(Error::$variant),)*
                    _ => None,
                }
            }

            /// Name of the C enumerator, for example `DOCA_ERROR_IN_USE`.
            pub const fn name(self) -> &'static str {
                match self { $(Error::$variant => $name,)* }
            }

            /// Short description of the code.
            pub const fn description(self) -> &'static str {
                match self { $(Error::$variant => $description,)* }
            }
        }

        /// NUL-terminated name of a `doca_error_t` value (0 included), for C callers.
        pub fn c_name(code: u32) -> &'static std::ffi::CStr {
            match code {
                0 => c"DOCA_SUCCESS",
                $($code => c_str(concat!($name, "\0")),)*
                _ => c"unrecognized error code",
            }
        }

        /// NUL-terminated description of a `doca_error_t` value (0 included), for C callers.
        pub fn c_description(code: u32) -> &'static std::ffi::CStr {
            match code {
                0 => c"The call succeeded",
                $($code => c_str(concat!($description, "\0")),)*
                _ => c"unrecognized error code",
            }
        }
    };
}

errors! {
    Unknown = 1, "DOCA_ERROR_UNKNOWN", "A failure of unknown cause";
    NotPermitted = 2, "DOCA_ERROR_NOT_PERMITTED", "The caller lacks the permission for this";
    InUse = 3, "DOCA_ERROR_IN_USE", "The object is in use";
    NotSupported = 4, "DOCA_ERROR_NOT_SUPPORTED", "This is not supported here";
    Again = 5, "DOCA_ERROR_AGAIN", "Not possible at the moment; try again";
    InvalidValue = 6, "DOCA_ERROR_INVALID_VALUE", "An argument has an invalid value";
    NoMemory = 7, "DOCA_ERROR_NO_MEMORY", "Not enough memory";
    Initialization = 8, "DOCA_ERROR_INITIALIZATION", "The object could not be set up";
    TimeOut = 9, "DOCA_ERROR_TIME_OUT", "The time limit passed first";
    Shutdown = 10, "DOCA_ERROR_SHUTDOWN", "Being shut down, or already shut down";
    ConnectionReset = 11, "DOCA_ERROR_CONNECTION_RESET", "The peer reset the connection";
    ConnectionAborted = 12, "DOCA_ERROR_CONNECTION_ABORTED", "The connection was aborted";
    ConnectionInProgress = 13, "DOCA_ERROR_CONNECTION_INPROGRESS", "The connection is still being made";
    NotConnected = 14, "DOCA_ERROR_NOT_CONNECTED", "There is no connection";
    NoLock = 15, "DOCA_ERROR_NO_LOCK", "A needed lock could not be taken";
    NotFound = 16, "DOCA_ERROR_NOT_FOUND", "There is no such object";
    IoFailed = 17, "DOCA_ERROR_IO_FAILED", "An input or output operation failed";
    BadState = 18, "DOCA_ERROR_BAD_STATE", "The object is in the wrong state for this call";
    UnsupportedVersion = 19, "DOCA_ERROR_UNSUPPORTED_VERSION", "The peer's or the data's version is not supported";
    OperatingSystem = 20, "DOCA_ERROR_OPERATING_SYSTEM", "A call of the operating system failed";
    Driver = 21, "DOCA_ERROR_DRIVER", "A call of the device driver failed";
    Unexpected = 22, "DOCA_ERROR_UNEXPECTED", "Something happened that should not be possible";
    AlreadyExist = 23, "DOCA_ERROR_ALREADY_EXIST", "Such an object exists already";
    Full = 24, "DOCA_ERROR_FULL", "There is no room left";
    Empty = 25, "DOCA_ERROR_EMPTY", "There is nothing to take";
    InProgress = 26, "DOCA_ERROR_IN_PROGRESS", "The operation has begun and is not finished";
    TooBig = 27, "DOCA_ERROR_TOO_BIG", "The request is larger than what can hold it";
    Authentication = 28, "DOCA_ERROR_AUTHENTICATION", "The peer could not be authenticated";
    BadConfig = 29, "DOCA_ERROR_BAD_CONFIG", "The configuration is not valid";
    Skipped = 30, "DOCA_ERROR_SKIPPED", "The result is valid, but earlier output was dropped";
}

const fn c_str(text: &'static str) -> &'static std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the table above ends every text with one NUL"),
    }
}

impl Error {
    /// The `doca_error_t` value.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Logs the reason to the SDK log (level error) and returns the error.
    ///
    /// Must not be used on the data path, or for [`Error::Again`], which is not a failure.
    #[must_use = "the error still has to be returned"]
    #[cold]
    #[track_caller]
    pub fn because(self, reason: impl fmt::Display) -> Error {
        let location = std::panic::Location::caller();
        log::write(
            log::Level::Error,
            location.file(),
            location.line(),
            format_args!("{}: {reason}", self.name()),
        );
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.description())
    }
}

impl std::error::Error for Error {}

/// Maps the errors of system calls to DOCA's.
impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Error {
        use rustix::io::Errno;
        match errno {
            // The pages of the functions that open descriptors name no other error for missing resources.
            Errno::NOMEM | Errno::NOBUFS | Errno::MFILE | Errno::NFILE => Error::NoMemory,
            Errno::AGAIN | Errno::INTR => Error::Again,
            Errno::ACCESS | Errno::PERM => Error::NotPermitted,
            Errno::NOENT => Error::NotFound,
            Errno::EXIST => Error::AlreadyExist,
            Errno::CONNREFUSED | Errno::NOTCONN => Error::NotConnected,
            Errno::CONNRESET | Errno::PIPE => Error::ConnectionReset,
            Errno::TIMEDOUT => Error::TimeOut,
            _ => Error::OperatingSystem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_round_trip() {
        for (index, &error) in Error::ALL.iter().enumerate() {
            assert_eq!(error.code() as usize, index + 1);
            assert_eq!(Error::from_code(error.code()), Some(error));
            assert_eq!(c_name(error.code()).to_str(), Ok(error.name()));
            assert_eq!(
                c_description(error.code()).to_str(),
                Ok(error.description())
            );
        }
        assert_eq!(Error::from_code(0), None);
        assert_eq!(Error::from_code(31), None);
    }

    #[test]
    fn unknown_codes_have_a_text() {
        assert_eq!(c_name(0), c"DOCA_SUCCESS");
        assert_eq!(c_name(u32::MAX), c"unrecognized error code");
        assert_eq!(c_description(31), c"unrecognized error code");
    }

    #[test]
    fn missing_resources_are_missing_memory() {
        use rustix::io::Errno;
        for errno in [Errno::NOMEM, Errno::NOBUFS, Errno::MFILE, Errno::NFILE] {
            assert_eq!(Error::from(errno), Error::NoMemory);
        }
    }

    #[test]
    fn well_known_values() {
        assert_eq!(Error::Again.code(), 5);
        assert_eq!(Error::InvalidValue.code(), 6);
        assert_eq!(Error::IoFailed.code(), 17);
        assert_eq!(Error::BadState.code(), 18);
    }
}
