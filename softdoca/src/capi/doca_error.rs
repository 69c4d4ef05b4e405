//! `doca_error.h` and `doca_version.h`: names and descriptions of result codes, and version strings.

use std::ffi::c_char;

use doca_abi::doca_error_t;

use super::guard_with;
use crate::{Api, error};

/// Name of a result code; a static string, never NULL.
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_error_get_name(error: doca_error_t) -> *const c_char {
    error::c_name(error).as_ptr()
}

/// Description of a result code; a static string, never NULL.
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_error_get_descr(error: doca_error_t) -> *const c_char {
    error::c_description(error).as_ptr()
}

doca_abi::check_definitions!(doca_error_functions, crate::capi::doca_error);

/// The API version requested by the process.
fn version() -> *const c_char {
    guard_with(Api::V3_3.version().as_ptr(), || {
        Api::current().version().as_ptr()
    })
}

/// Version that the program was compiled for; in softdoca the same as [`doca_version_runtime`].
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_version() -> *const c_char {
    version()
}

/// Version of the library.
///
/// # Safety
/// None needed: no pointers are passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_version_runtime() -> *const c_char {
    version()
}

doca_abi::check_definitions!(doca_version_functions, crate::capi::doca_error);

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn texts_match_the_code() {
        // SAFETY: static strings.
        let (name, description, unknown) = unsafe {
            (
                CStr::from_ptr(doca_error_get_name(doca_abi::DOCA_ERROR_AGAIN)),
                CStr::from_ptr(doca_error_get_descr(doca_abi::DOCA_ERROR_AGAIN)),
                CStr::from_ptr(doca_error_get_name(99)),
            )
        };
        assert_eq!(name, c"DOCA_ERROR_AGAIN");
        assert!(description.to_bytes().len() > 5);
        assert_eq!(unknown, c"unrecognized error code");
    }
}
