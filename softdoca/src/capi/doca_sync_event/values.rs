//! What a thread does with the value of a started event. Several threads may do so at the same time.

use doca_abi::doca_sync_event;

use super::super::{check_out, doca_error_t, put};
use super::on_event;
use crate::sync_event::Condition;

/// Tells the value.
///
/// # Safety
/// `event` is NULL or a live event; `value` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_get(
    event: *mut doca_sync_event,
    value: *mut u64,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe {
        on_event(event, |event| {
            check_out(value)?;
            put(value, event.get()?)
        })
    }
}

/// Sets the value.
///
/// # Safety
/// `event` is NULL or a live event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_update_set(
    event: *mut doca_sync_event,
    value: u64,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { on_event(event, |event| event.set(value)) }
}

/// Adds to the value in one step, and tells the old one.
///
/// # Safety
/// As [`doca_sync_event_get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_update_add(
    event: *mut doca_sync_event,
    value: u64,
    fetched: *mut u64,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe {
        on_event(event, |event| {
            check_out(fetched)?;
            put(fetched, event.add(value)?)
        })
    }
}

/// Defines the functions that wait.
macro_rules! waits {
    ($($wait:ident, $wait_yield:ident => $condition:ident, $what:literal;)+) => { $(
        #[doc = concat!("Blocks until the value, masked with `mask`, ", $what, " `value`.")]
        ///
        /// # Safety
        /// `event` is NULL or a live event that is not stopped meanwhile.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wait(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t {
            // SAFETY: the caller's promise.
            unsafe { on_event(event, |event| event.wait(Condition::$condition(value), mask)) }
        }

        #[doc = concat!("The same as [`", stringify!($wait), "`], which lets other threads run as well.")]
        ///
        /// # Safety
        #[doc = concat!("As [`", stringify!($wait), "`].")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wait_yield(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t {
            // SAFETY: the caller's promise.
            unsafe { $wait(event, value, mask) }
        }
    )+ };
}

waits! {
    doca_sync_event_wait_eq, doca_sync_event_wait_eq_yield => Equal, "equals";
    doca_sync_event_wait_neq, doca_sync_event_wait_neq_yield => Different, "differs from";
    doca_sync_event_wait_gt, doca_sync_event_wait_gt_yield => Greater, "is greater than";
}
