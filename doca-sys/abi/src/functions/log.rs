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

            /// Sets the least severe level (a [`doca_log_level`] value) of the program's messages that a back end accepts.
            fn doca_log_backend_set_level_lower_limit(
                backend: *mut doca_log_backend,
                level: u32
            ) -> doca_error_t;

            /// Sets the most severe level of the program's messages that a back end accepts.
            fn doca_log_backend_set_level_upper_limit(
                backend: *mut doca_log_backend,
                upper_limit: u32
            ) -> doca_error_t;

            /// Prevents the lower limit from being widened by later calls.
            fn doca_log_backend_set_level_lower_limit_strict(
                backend: *mut doca_log_backend
            ) -> doca_error_t;

            /// Prevents the upper limit from being widened by later calls.
            fn doca_log_backend_set_level_upper_limit_strict(
                backend: *mut doca_log_backend
            ) -> doca_error_t;

            /// Sets the lower limit of all back ends for the program's messages, including future ones.
            fn doca_log_level_set_global_lower_limit(level: u32) -> doca_error_t;

            /// Sets the upper limit of all back ends for the program's messages, including future ones.
            fn doca_log_level_set_global_upper_limit(upper_limit: u32) -> doca_error_t;

            /// Lower limit of new back ends for the program's messages; `DOCA_LOG_LEVEL_INFO` by default.
            fn doca_log_level_get_global_lower_limit() -> u32;

            /// Upper limit of new back ends for the program's messages; `DOCA_LOG_LEVEL_CRIT` by default.
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

            /// Creates a back end that writes each of the program's messages to the start of a buffer and calls `handler`.
            fn doca_log_backend_create_with_buf(
                buf: *mut c_char,
                capacity: usize,
                handler: log_flush_callback,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that sends the program's messages to syslog.
            fn doca_log_backend_create_with_syslog(
                name: *const c_char,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Sets the least severe level of the SDK's messages that a back end accepts.
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

            /// Creates a back end that writes each of the SDK's own messages to the start of a buffer and calls `handler`.
            fn doca_log_backend_create_with_buf_sdk(
                buf: *mut c_char,
                capacity: usize,
                handler: log_flush_callback,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that sends the SDK's own messages to syslog.
            fn doca_log_backend_create_with_syslog_sdk(
                name: *const c_char,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Sets the level of all back ends for the SDK's messages, including future ones.
            fn doca_log_level_set_global_sdk_limit(level: u32) -> doca_error_t;

            /// Level of new back ends for the SDK's messages; `DOCA_LOG_LEVEL_INFO` by default.
            fn doca_log_level_get_global_sdk_limit() -> u32;

            /// Writes the program's messages to standard output up to level info, and to standard error from level warning.
            fn doca_log_backend_create_standard() -> doca_error_t;

            /// Gets the maximum number of back ends for the SDK's messages.
            fn doca_log_get_max_num_backends_sdk() -> u32;

            /// Lists the descendants of a logger, or all loggers, at most `depth` levels deep, 0 for no limit. The list is NULL-terminated.
            fn doca_logger_create_list(
                logger: *const doca_logger,
                depth: u8,
                logger_list: *mut *mut *mut doca_logger,
                nb_loggers: *mut u32
            ) -> doca_error_t;

            /// Frees a list of loggers; the loggers stay.
            fn doca_logger_destroy_list(logger_list: *mut *mut doca_logger) -> doca_error_t;

            /// Sets the least severe level of a logger's messages, and with `propagate` of its descendants.
            fn doca_logger_set_level(
                logger: *mut doca_logger,
                level: c_int,
                propagate: u8
            ) -> doca_error_t;

            /// The least severe level of a logger's messages.
            fn doca_logger_get_level(logger: *const doca_logger, level: *mut c_int) -> doca_error_t;

            /// Writes the name of a logger, at most [`DOCA_LOGGER_NAME_SIZE`] bytes.
            fn doca_logger_get_name(logger: *const doca_logger, name: *mut c_char) -> doca_error_t;

            /// The logger with this name in a list; NULL if there is none.
            fn doca_logger_find_by_name(
                logger_list: *mut *mut doca_logger,
                name: *const c_char
            ) -> *mut doca_logger;
        }
    };
}
