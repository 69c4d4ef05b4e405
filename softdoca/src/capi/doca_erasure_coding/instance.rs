//! Instances and their limits.

use doca_abi::{doca_ctx, doca_dev, doca_devinfo, doca_ec};

use super::super::doca_ctx::{destroy_ctx, give_ctx};
use super::super::task::put_limit;
use super::super::{check_out, doca_error_t, guard, put, share};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE};
use crate::erasure_coding::ErasureCoding;

/// Creates an erasure-coding instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `ec` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_create(dev: *mut doca_dev, ec: *mut *mut doca_ec) -> doca_error_t {
    guard(|| {
        check_out(ec)?;
        // SAFETY: the caller's promise.
        unsafe { put(ec, give_ctx(ErasureCoding::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated. Its matrices live on.
///
/// # Safety
/// `ec` is NULL or a live instance; on success it is dead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_destroy(ec: *mut doca_ec) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { destroy_ctx(ec) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_as_ctx(ec: *mut doca_ec) -> *mut doca_ctx {
    ec.cast()
}

/// Tells how many bytes a block can have.
///
/// # Safety
/// `max_block_size` is NULL or writable; `devinfo` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_cap_get_max_block_size(
    devinfo: *const doca_devinfo,
    max_block_size: *mut u64,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, max_block_size, MAX_BUF_SIZE as u64) }
}

/// Tells how many bufs the lists of a task can have.
///
/// # Safety
/// `max_buf_list_len` is NULL or writable; `devinfo` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_cap_get_max_buf_list_len(
    devinfo: *const doca_devinfo,
    max_buf_list_len: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, max_buf_list_len, MAX_BUF_LIST_LEN as u32) }
}
