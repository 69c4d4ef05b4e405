//! Errors and version. One macro per header; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_error_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_error.h";

            /// Name of an error code, e.g. `"DOCA_ERROR_AGAIN"`; a static string, never null.
            fn doca_error_get_name(error: doca_error_t) -> *const c_char;

            /// One line that explains an error code; a static string, never null.
            fn doca_error_get_descr(error: doca_error_t) -> *const c_char;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_version_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_version.h";

            /// Version that the headers were made for, e.g. `"3.3.0"`; a static string. Inline in the headers of NVIDIA's SDK.
            fn doca_version() -> *const c_char;

            /// Version of the library that is loaded; a static string.
            fn doca_version_runtime() -> *const c_char;
        }
    };
}
