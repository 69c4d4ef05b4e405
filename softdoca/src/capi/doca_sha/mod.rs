//! `doca_sha.h`: digests.

mod tasks;
#[cfg(test)]
mod tests;

use doca_abi::{
    doca_ctx, doca_dev, doca_devinfo, doca_sha, doca_sha_algorithm, doca_sha_task_hash,
    doca_sha_task_partial_hash,
};

use super::doca_ctx::{destroy_ctx, give_ctx};
use super::task::put_limit;
use super::{Handle, check_out, doca_error_t, guard, not_null, put, share};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE, MAX_TASKS};
use crate::progress::{Ctx, TaskOf};
use crate::sha::{Algorithm, Hash, PartialHash, Sha};

pub use tasks::*;

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_sha {
    type Engine = Ctx;
}

// SAFETY: tasks are given out as pointers to what `TaskPool::allocate` made of this body.
unsafe impl Handle for doca_sha_task_hash {
    type Engine = TaskOf<Hash>;
}

// SAFETY: as above.
unsafe impl Handle for doca_sha_task_partial_hash {
    type Engine = TaskOf<PartialHash>;
}

/// Creates a SHA instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `sha` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_create(
    dev: *mut doca_dev,
    sha: *mut *mut doca_sha,
) -> doca_error_t {
    guard(|| {
        check_out(sha)?;
        // SAFETY: the caller's promise.
        unsafe { put(sha, give_ctx(Sha::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `sha` is NULL or a live instance; on success it is dead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_destroy(sha: *mut doca_sha) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { destroy_ctx(sha) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_as_ctx(sha: *mut doca_sha) -> *mut doca_ctx {
    sha.cast()
}

fn supports(devinfo: *const doca_devinfo, algorithm: doca_sha_algorithm) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        Algorithm::from_number(algorithm).map(drop)
    })
}

/// `DOCA_SUCCESS` for every device and algorithm.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_task_hash_get_supported(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
) -> doca_error_t {
    supports(devinfo, algorithm)
}

/// `DOCA_SUCCESS` for every device and algorithm.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_task_partial_hash_get_supported(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
) -> doca_error_t {
    supports(devinfo, algorithm)
}

/// Tells how many bufs the lists of a task can have.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_max_list_buf_num_elem(
    devinfo: *const doca_devinfo,
    max_list_buf_num_elem: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, max_list_buf_num_elem, MAX_BUF_LIST_LEN as u32) }
}

/// Tells how many bytes a task can hash.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_max_src_buf_size(
    devinfo: *const doca_devinfo,
    max_src_buf_size: *mut u64,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, max_src_buf_size, MAX_BUF_SIZE as u64) }
}

/// Writes a length that an algorithm has.
///
/// # Safety
/// `out` is NULL or writable; `devinfo` is not followed.
unsafe fn put_len(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
    len: fn(Algorithm) -> usize,
    out: *mut u32,
) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        // SAFETY: the caller's promise.
        unsafe { put(out, len(Algorithm::from_number(algorithm)?) as u32) }
    })
}

/// Tells how many bytes a digest has.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_min_dst_buf_size(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
    min_dst_buf_size: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_len(devinfo, algorithm, Algorithm::digest_len, min_dst_buf_size) }
}

/// Tells how many bytes the algorithm works on at a time.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_partial_hash_block_size(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
    partial_block_size: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_len(devinfo, algorithm, Algorithm::block_len, partial_block_size) }
}

/// Tells how many tasks of both kinds an instance can have.
///
/// # Safety
/// The out-parameter is NULL or writable; `sha` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_max_num_tasks(
    sha: *mut doca_sha,
    max_num_tasks: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(sha, max_num_tasks, MAX_TASKS) }
}

doca_abi::check_definitions!(doca_sha_functions, crate::capi::doca_sha);
