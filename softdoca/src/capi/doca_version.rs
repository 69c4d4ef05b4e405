//! `doca_version.h`: version strings.

use std::ffi::c_char;

use super::guard_with;
use crate::api::Api;

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

doca_abi::check_definitions!(doca_version_functions, crate::capi::doca_version);
