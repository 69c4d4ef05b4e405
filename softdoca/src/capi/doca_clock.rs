//! `doca_clock.h`: clocks of devices and of the host.

use doca_abi::{
    DOCA_CLOCK_NIC_DPA_TIMER, DOCA_CLOCK_NIC_FREE_RUNNING, DOCA_CLOCK_NIC_REAL_TIME, doca_clock,
    doca_clock_timespec_t, doca_dev, doca_devinfo, timespec,
};

use super::{Handle, borrow, check_out, doca_error_t, guard, not_null, put, share};
use crate::device::{Clock, Clocks, Reading};

// SAFETY: readers are given out as pointers from `Box::into_raw`.
unsafe impl Handle for doca_clock {
    type Engine = Clocks;
}

fn supports(devinfo: *const doca_devinfo, clock: u64) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        Clock::from_number(clock).map(drop)
    })
}

/// `DOCA_SUCCESS` for every device.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_clock_cap_nic_free_running_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supports(devinfo, DOCA_CLOCK_NIC_FREE_RUNNING)
}

/// `DOCA_SUCCESS` for every device.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_clock_cap_nic_real_time_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supports(devinfo, DOCA_CLOCK_NIC_REAL_TIME)
}

/// `DOCA_ERROR_NOT_SUPPORTED`: no device has a DPA.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_clock_cap_nic_dpa_timer_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supports(devinfo, DOCA_CLOCK_NIC_DPA_TIMER)
}

/// Creates a clock reader.
///
/// # Safety
/// `dev` is NULL or open; `clock` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_clock_create(
    dev: *const doca_dev,
    clock: *mut *mut doca_clock,
) -> doca_error_t {
    guard(|| {
        check_out(clock)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let clocks = Box::new(Clocks::new(share(dev)?));
            put(clock, Box::into_raw(clocks).cast())
        }
    })
}

/// Destroys a clock reader.
///
/// # Safety
/// `clock` is NULL or live, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_clock_destroy(clock: *mut doca_clock) -> doca_error_t {
    guard(|| {
        check_out(clock)?;
        // SAFETY: from `Box::into_raw` in `doca_clock_create`, and taken back once.
        drop(unsafe { Box::from_raw(clock.cast::<Clocks>()) });
        Ok(())
    })
}

/// Converts a reading to C.
fn reading(reading: Reading) -> doca_clock_timespec_t {
    match (reading, reading.timespec()) {
        (_, Some((tv_sec, tv_nsec))) => doca_clock_timespec_t {
            ts: timespec { tv_sec, tv_nsec },
        },
        (Reading::Cycles(counter), _) => doca_clock_timespec_t { counter },
        (Reading::Nanoseconds(_), None) => doca_clock_timespec_t { counter: 0 },
    }
}

/// Reads a clock.
///
/// # Safety
/// `clock` is NULL or live; `clock_ts` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_clock_get_timestamp(
    clock: *const doca_clock,
    clock_type: u64,
    clock_ts: *mut doca_clock_timespec_t,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(clock_ts, reading(borrow(clock)?.read(clock_type)?)) })
}

/// Reads two clocks at the same time.
///
/// # Safety
/// `clock` is NULL or live; the out-parameters are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_clock_get_crosstimestamp(
    clock: *const doca_clock,
    primary_clock_type: u64,
    nic_clock_type: u64,
    primary_clock_ts: *mut doca_clock_timespec_t,
    nic_clock_ts: *mut doca_clock_timespec_t,
    error_margin_nsecs: *mut u64,
) -> doca_error_t {
    guard(|| {
        check_out(primary_clock_ts)?;
        check_out(nic_clock_ts)?;
        check_out(error_margin_nsecs)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (primary, nic, error) =
                borrow(clock)?.read_both(primary_clock_type, nic_clock_type)?;
            put(primary_clock_ts, reading(primary))?;
            put(nic_clock_ts, reading(nic))?;
            put(error_margin_nsecs, error)
        }
    })
}

doca_abi::check_definitions!(doca_clock_functions, crate::capi::doca_clock);
