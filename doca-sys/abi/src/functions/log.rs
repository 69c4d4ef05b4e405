//! Log messages of programs and of the SDK. See [`doca_functions!`](crate::doca_functions).
//!
//! `doca_log` is not in the table: it is variadic, which no other function is.

#[doc(hidden)]
#[macro_export]
macro_rules! doca_log_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_log.h";

            /// Sets the least severe level (a [`doca_log_level`] value) of the program's messages that a back end writes.
            fn doca_log_backend_set_level_lower_limit(
                backend: *mut doca_log_backend,
                level: u32
            ) -> doca_error_t;

            /// Sets the most severe level of the program's messages that a back end writes.
            fn doca_log_backend_set_level_upper_limit(
                backend: *mut doca_log_backend,
                upper_limit: u32
            ) -> doca_error_t;

            /// No later call makes the back end write less severe messages than it does now.
            fn doca_log_backend_set_level_lower_limit_strict(
                backend: *mut doca_log_backend
            ) -> doca_error_t;

            /// No later call makes the back end write more severe messages than it does now.
            fn doca_log_backend_set_level_upper_limit_strict(
                backend: *mut doca_log_backend
            ) -> doca_error_t;

            /// Sets the lower limit of all back ends for the program's messages, and of those still to be created.
            fn doca_log_level_set_global_lower_limit(level: u32) -> doca_error_t;

            /// Sets the upper limit of all back ends for the program's messages, and of those still to be created.
            fn doca_log_level_set_global_upper_limit(upper_limit: u32) -> doca_error_t;

            /// Lower limit of new back ends for the program's messages; `DOCA_LOG_LEVEL_INFO` at first.
            fn doca_log_level_get_global_lower_limit() -> u32;

            /// Upper limit of new back ends for the program's messages; `DOCA_LOG_LEVEL_CRIT` at first.
            fn doca_log_level_get_global_upper_limit() -> u32;

            /// Registers a named source of messages.
            fn doca_log_register_source(
                source_name: *const c_char,
                source: *mut c_int
            ) -> doca_error_t;

            /// Removes a source.
            fn doca_log_unregister_source(source: c_int) -> doca_error_t;

            /// Creates a back end that writes the program's messages to a `FILE *`.
            fn doca_log_backend_create_with_file(
                fptr: *mut FILE,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that writes the program's messages to a file descriptor.
            fn doca_log_backend_create_with_fd(
                fd: c_int,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that writes each of the program's messages to the begin of a buffer and calls `handler`.
            fn doca_log_backend_create_with_buf(
                buf: *mut c_char,
                capacity: usize,
                handler: log_flush_callback,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that hands the program's messages to syslog.
            fn doca_log_backend_create_with_syslog(
                name: *const c_char,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Sets the least severe level of the SDK's messages that a back end writes.
            fn doca_log_backend_set_sdk_level(
                backend: *mut doca_log_backend,
                level: u32
            ) -> doca_error_t;

            /// Creates a back end that writes the SDK's own messages to a `FILE *`.
            fn doca_log_backend_create_with_file_sdk(
                fptr: *mut FILE,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that writes the SDK's own messages to a file descriptor.
            fn doca_log_backend_create_with_fd_sdk(
                fd: c_int,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that writes each of the SDK's own messages to the begin of a buffer and calls `handler`.
            fn doca_log_backend_create_with_buf_sdk(
                buf: *mut c_char,
                capacity: usize,
                handler: log_flush_callback,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that hands the SDK's own messages to syslog.
            fn doca_log_backend_create_with_syslog_sdk(
                name: *const c_char,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Sets the level of all back ends for the SDK's messages, and of those still to be created.
            fn doca_log_level_set_global_sdk_limit(level: u32) -> doca_error_t;

            /// Level of new back ends for the SDK's messages; `DOCA_LOG_LEVEL_INFO` at first.
            fn doca_log_level_get_global_sdk_limit() -> u32;

            /// Writes the program's messages to standard output up to information, and to standard error from warnings on.
            fn doca_log_backend_create_standard() -> doca_error_t;
        }
    };
}
