//! Functions of earlier releases, over the current ones: `doca_cc_*` of 2.5 and 2.6 over Comch. Which function calls
//! which, and with what arguments, is in `doca_abi::doca_earlier_functions!`; here are only those without an equivalent.

use doca_abi::*;

use super::doca_dev::ACTIVE_RATE;
use super::put_limit;
use crate::comch::MAX_TASKS;

/// 2.5 has numbers of tasks as logarithms.
const MAX_LOG_TASKS: u8 = MAX_TASKS.ilog2() as u8;

/// Functions that the table's entries call.
mod current {
    pub(super) use crate::capi::doca_comch::*;
}

macro_rules! define {
    ([] $(header $header:literal since $since:ident until $until:ident { $(
        fn $name:ident $(as $symbol:ident)? ($($param:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?
            $(= $target:ident $(($($argument:expr),* $(,)?))? $(as $cast:ty)?)?;
    )* })*) => {
        $($( define! { @function $name $(as $symbol)? ($($param: $ty),*) ($($ret)?)
            $(= $target ($($($argument),*)?) ($($cast)?))? } )*)*
    };
    // Renamed: the same arguments in the same order.
    (@function $name:ident ($($param:ident: $ty:ty),*) ($($ret:ty)?) = $target:ident () ($($cast:ty)?)) => {
        define! { @function $name ($($param: $ty),*) ($($ret)?) = $target ($($param),*) ($($cast)?) }
    };
    (@function $name:ident ($($param:ident: $ty:ty),*) ($($ret:ty)?)
        = $target:ident ($($argument:expr),+) ($($cast:ty)?)) => {
        #[doc = concat!("As `", stringify!($target), "` of the current release.")]
        ///
        /// # Safety
        /// As for that function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($param: $ty),*) $(-> $ret)? {
            // SAFETY: guaranteed by the caller: the arguments are its own, or constants that the function accepts.
            unsafe { current::$target($($argument),+) $(as $cast)? }
        }
    };
    // Defined below; this checks the type.
    (@function $name:ident ($($param:ident: $ty:ty),*) ($($ret:ty)?)) => {
        const _: unsafe extern "C" fn($($ty),*) $(-> $ret)? = $name;
    };
    (@function $name:ident as $symbol:ident ($($param:ident: $ty:ty),*) ($($ret:ty)?)) => {
        const _: unsafe extern "C" fn($($ty),*) $(-> $ret)? = $symbol;
    };
}

doca_abi::doca_earlier_functions!(define);

/// Gets the rate of the device's port in Gb/s: 2.x has it as a `double`.
///
/// # Safety
/// `devinfo` is NULL or live; `active_rate` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_active_rate_2_6(
    devinfo: *const doca_devinfo,
    active_rate: *mut f64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, active_rate, ACTIVE_RATE as f64 / 1e9) }
}

/// Gets the binary logarithm of the maximum number of receive tasks of one consumer.
///
/// # Safety
/// `devinfo` is NULL or live; `max_log_num_tasks` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_cc_consumer_cap_get_max_log_num_tasks(
    devinfo: *const doca_devinfo,
    max_log_num_tasks: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, max_log_num_tasks, MAX_LOG_TASKS) }
}

/// Gets the binary logarithm of the maximum number of send tasks of one producer.
///
/// # Safety
/// `devinfo` is NULL or live; `max_log_num_tasks` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_cc_producer_cap_get_max_log_num_tasks(
    devinfo: *const doca_devinfo,
    max_log_num_tasks: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, max_log_num_tasks, MAX_LOG_TASKS) }
}
