//! Errors, version and clocks. One macro per header; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_error_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_error.h";

            /// Name of an error code, e.g. `"DOCA_ERROR_AGAIN"`; a static string, never null.
            fn doca_error_get_name(error: doca_error_t) -> *const c_char;

            /// One-line explanation of an error code; a static string, never null.
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

#[doc(hidden)]
#[macro_export]
macro_rules! doca_clock_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_clock.h";

            /// `DOCA_SUCCESS` if the device has a free-running clock.
            fn doca_clock_cap_nic_free_running_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device has a real-time clock.
            fn doca_clock_cap_nic_real_time_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device has a DPA with a timer.
            fn doca_clock_cap_nic_dpa_timer_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Creates a clock reader for the clocks of a device and of the host.
            fn doca_clock_create(dev: *const doca_dev, clock: *mut *mut doca_clock) -> doca_error_t;

            /// Destroys a clock reader.
            fn doca_clock_destroy(clock: *mut doca_clock) -> doca_error_t;

            /// Reads a clock, one of `DOCA_CLOCK_*`.
            fn doca_clock_get_timestamp(
                clock: *const doca_clock,
                clock_type: u64,
                clock_ts: *mut doca_clock_timespec_t
            ) -> doca_error_t;

            /// Reads any clock and a device clock at the same moment, with the maximum error.
            fn doca_clock_get_crosstimestamp(
                clock: *const doca_clock,
                primary_clock_type: u64,
                nic_clock_type: u64,
                primary_clock_ts: *mut doca_clock_timespec_t,
                nic_clock_ts: *mut doca_clock_timespec_t,
                error_margin_nsecs: *mut u64
            ) -> doca_error_t;
        }
    };
}
