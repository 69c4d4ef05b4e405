//! Instances.

use doca_abi::{doca_compress, doca_ctx, doca_dev};

use super::super::doca_ctx::{destroy_ctx, give_ctx};
use super::super::task::put_limit;
use super::super::{check_out, doca_error_t, guard, put, share};
use crate::accelerator::MAX_TASKS;
use crate::compress::Compress;

/// Creates a compress instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `compress` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_compress_create(
    dev: *mut doca_dev,
    compress: *mut *mut doca_compress,
) -> doca_error_t {
    guard(|| {
        check_out(compress)?;
        // SAFETY: the caller's promise.
        unsafe { put(compress, give_ctx(Compress::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `compress` is NULL or a live instance; on success it is dead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_compress_destroy(compress: *mut doca_compress) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { destroy_ctx(compress) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_compress_as_ctx(compress: *mut doca_compress) -> *mut doca_ctx {
    compress.cast()
}

/// Tells how many tasks of all kinds an instance can have.
///
/// # Safety
/// `max_num_tasks` is NULL or writable; `compress` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_compress_cap_get_max_num_tasks(
    compress: *mut doca_compress,
    max_num_tasks: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(compress, max_num_tasks, MAX_TASKS) }
}
