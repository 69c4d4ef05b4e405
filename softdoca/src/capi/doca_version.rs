//! `doca_version.h`.

use std::ffi::c_char;

use super::guard_with;
use crate::api::Api;

/// The version of the API that the process asked for.
fn version() -> *const c_char {
    guard_with(Api::V3_3.version().as_ptr(), || {
        Api::current().version().as_ptr()
    })
}

/// Version that the program was compiled for; here, the same as [`doca_version_runtime`].
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_version() -> *const c_char {
    version()
}

/// Version of the library.
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_version_runtime() -> *const c_char {
    version()
}

doca_abi::check_definitions!(doca_version_functions, crate::capi::doca_version);
