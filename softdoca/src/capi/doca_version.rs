//! `doca_version.h`.

use std::ffi::{CStr, c_char};

/// The version of the API that softdoca has.
const VERSION: &CStr = c"3.3.0";

/// Version that the program was compiled for; here, the same as [`doca_version_runtime`].
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Version of the library.
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_version_runtime() -> *const c_char {
    VERSION.as_ptr()
}

doca_abi::check_definitions!(doca_version_functions, crate::capi::doca_version);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_that_of_the_declarations() {
        use doca_abi::{DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH};
        let expected = format!("{DOCA_VERSION_MAJOR}.{DOCA_VERSION_MINOR}.{DOCA_VERSION_PATCH}");
        assert_eq!(VERSION.to_str(), Ok(&*expected));
    }
}
