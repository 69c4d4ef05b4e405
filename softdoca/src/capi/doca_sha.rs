//! `doca_sha.h`: digests.

#[cfg(test)]
mod tests;

use doca_abi::{
    doca_buf, doca_ctx, doca_data, doca_dev, doca_devinfo, doca_sha, doca_sha_algorithm,
    doca_sha_task_hash, doca_sha_task_hash_completion_cb_t, doca_sha_task_partial_hash,
    doca_sha_task_partial_hash_completion_cb_t, doca_task,
};

use super::doca_pe::{destroy_ctx, give_ctx};
use super::task::{as_task, buf, buf_handle, generic, get, put_limit, put_task, with_driver};
use super::{Handle, borrow, check_out, doca_error_t, guard, not_null, put, share};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE, MAX_TASKS, Offload};
use crate::error::{Error, Result};
use crate::progress::{Ctx, TaskOf, TaskPool};
use crate::sha::{Algorithm, Hash, PartialHash, Sha};

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
        // SAFETY: guaranteed by the caller.
        unsafe { put(sha, give_ctx(Sha::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `sha` is NULL or a live instance; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_destroy(sha: *mut doca_sha) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { destroy_ctx(sha) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
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
/// Safe for any pointer: it is not dereferenced.
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
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_task_partial_hash_get_supported(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
) -> doca_error_t {
    supports(devinfo, algorithm)
}

/// Gets the maximum number of bufs in a list.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_max_list_buf_num_elem(
    devinfo: *const doca_devinfo,
    max_list_buf_num_elem: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, max_list_buf_num_elem, MAX_BUF_LIST_LEN as u32) }
}

/// Gets the maximum number of bytes that a task can hash.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_max_src_buf_size(
    devinfo: *const doca_devinfo,
    max_src_buf_size: *mut u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, max_src_buf_size, MAX_BUF_SIZE as u64) }
}

/// Writes a length of an algorithm.
///
/// # Safety
/// `out` is NULL or writable; `devinfo` is not dereferenced.
unsafe fn put_len(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
    len: fn(Algorithm) -> usize,
    out: *mut u32,
) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(out, len(Algorithm::from_number(algorithm)?) as u32) }
    })
}

/// Gets the length of a digest in bytes.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_min_dst_buf_size(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
    min_dst_buf_size: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_len(devinfo, algorithm, Algorithm::digest_len, min_dst_buf_size) }
}

/// Gets the block length of an algorithm in bytes.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_partial_hash_block_size(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
    partial_block_size: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_len(devinfo, algorithm, Algorithm::block_len, partial_block_size) }
}

/// Gets the maximum number of tasks of an instance, both kinds together.
///
/// # Safety
/// The out-parameter is NULL or writable; `sha` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_max_num_tasks(
    sha: *mut doca_sha,
    max_num_tasks: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(sha, max_num_tasks, MAX_TASKS) }
}

/// Number of tasks for its binary logarithm.
fn count(log_num_tasks: u8) -> Result<u32> {
    1_u32.checked_shl(log_num_tasks.into()).ok_or_else(|| {
        Error::InvalidValue.because(format_args!(
            "expected the binary logarithm of a number of tasks, got {log_num_tasks}"
        ))
    })
}

/// Defines the functions of both kinds of tasks. `$whole` maps a body to its hash, `$changeable` checks that it may be
/// changed.
macro_rules! hash_task {
    (
        $task:ident($body:ty), pool $pool:ident, $make:expr, $whole:expr, $changeable:expr;
        $set_conf:ident($callback:ident), $alloc_init:ident, $as_task:ident,
        $set_src:ident, $get_src:ident, $set_dst:ident, $get_dst:ident, $set_algorithm:ident, $get_algorithm:ident
    ) => {
        /// Sets the callbacks and the binary logarithm of the number of tasks; before the start.
        ///
        /// # Safety
        /// `sha` is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_conf(
            sha: *mut doca_sha,
            task_completion_cb: $callback,
            task_error_cb: $callback,
            log_num_tasks: u8,
        ) -> doca_error_t {
            let (success, failure) = (generic(task_completion_cb), generic(task_error_cb));
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe {
                with_driver(sha, |ctx, driver: &Offload<Sha>| {
                    let pool: &TaskPool = &driver.accelerator().$pool;
                    pool.configure(ctx, success, failure, count(log_num_tasks)?)
                })
            })
        }

        /// Allocates a task.
        ///
        /// # Safety
        /// `sha` is NULL or live, and not used by another thread during the call; the bufs are NULL or stay valid while
        /// the task is in flight; `task` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alloc_init(
            sha: *mut doca_sha,
            algorithm: doca_sha_algorithm,
            src_buf: *const doca_buf,
            dst_buf: *mut doca_buf,
            user_data: doca_data,
            task: *mut *mut $task,
        ) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe {
                put_task(task, || {
                    with_driver(sha, |ctx, driver: &Offload<Sha>| {
                        Algorithm::from_number(algorithm)?;
                        let body: $body = $make(Hash::new(algorithm, buf(src_buf), buf(dst_buf)));
                        driver.accelerator().$pool.allocate(ctx, body, user_data)
                    })
                })
            })
        }

        /// The generic task.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $as_task(task: *mut $task) -> *mut doca_task {
            as_task(task)
        }

        /// Sets the task's source; not while it is in flight.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call; the buf is NULL or stays valid
        /// while the task is in flight.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_src(
            task: *mut $task,
            src_buf: *const doca_buf,
        ) -> doca_error_t {
            guard(|| {
                // SAFETY: guaranteed by the caller.
                let (task, source) = unsafe { (borrow(task)?, buf(src_buf)) };
                $whole(&task.body)
                    .source
                    .set(Some(source.ok_or(Error::InvalidValue)?));
                Ok(())
            })
        }

        /// The source; NULL for a NULL task.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_src(task: *const $task) -> *const doca_buf {
            // SAFETY: guaranteed by the caller.
            unsafe {
                get(task, |body| {
                    buf_handle($whole(body).source.get()).cast_const()
                })
            }
        }

        /// Sets the task's destination; not while it is in flight.
        ///
        /// # Safety
        #[doc = concat!("As [`", stringify!($set_src), "`].")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_dst(
            task: *mut $task,
            dst_buf: *mut doca_buf,
        ) -> doca_error_t {
            guard(|| {
                // SAFETY: guaranteed by the caller.
                let (task, destination) = unsafe { (borrow(task)?, buf(dst_buf)) };
                $changeable(&task.body)?;
                $whole(&task.body)
                    .destination
                    .set(Some(destination.ok_or(Error::InvalidValue)?));
                Ok(())
            })
        }

        /// The destination; NULL for a NULL task.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_dst(task: *const $task) -> *const doca_buf {
            // SAFETY: guaranteed by the caller.
            unsafe {
                get(task, |body| {
                    buf_handle($whole(body).destination.get()).cast_const()
                })
            }
        }

        /// Sets the algorithm; not while the task is in flight.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_algorithm(
            task: *mut $task,
            algorithm: doca_sha_algorithm,
        ) -> doca_error_t {
            guard(|| {
                // SAFETY: guaranteed by the caller.
                let task = unsafe { borrow(task) }?;
                Algorithm::from_number(algorithm)?;
                $changeable(&task.body)?;
                $whole(&task.body).algorithm.set(algorithm);
                Ok(())
            })
        }

        /// The algorithm; 0 for a NULL task.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_algorithm(task: *const $task) -> doca_sha_algorithm {
            // SAFETY: guaranteed by the caller.
            unsafe { get(task, |body| $whole(body).algorithm.get()) }
        }
    };
}

fn itself(hash: &Hash) -> &Hash {
    hash
}

fn always(_: &Hash) -> Result<()> {
    Ok(())
}

fn whole(partial: &PartialHash) -> &Hash {
    &partial.whole
}

hash_task! {
    doca_sha_task_hash(Hash), pool hashes, std::convert::identity, itself, always;
    doca_sha_task_hash_set_conf(doca_sha_task_hash_completion_cb_t), doca_sha_task_hash_alloc_init,
    doca_sha_task_hash_as_task, doca_sha_task_hash_set_src, doca_sha_task_hash_get_src,
    doca_sha_task_hash_set_dst, doca_sha_task_hash_get_dst,
    doca_sha_task_hash_set_algorithm, doca_sha_task_hash_get_algorithm
}

hash_task! {
    doca_sha_task_partial_hash(PartialHash), pool partial_hashes, PartialHash::new, whole,
        PartialHash::expect_fresh;
    doca_sha_task_partial_hash_set_conf(doca_sha_task_partial_hash_completion_cb_t),
    doca_sha_task_partial_hash_alloc_init, doca_sha_task_partial_hash_as_task,
    doca_sha_task_partial_hash_set_src, doca_sha_task_partial_hash_get_src,
    doca_sha_task_partial_hash_set_dst, doca_sha_task_partial_hash_get_dst,
    doca_sha_task_partial_hash_set_algorithm, doca_sha_task_partial_hash_get_algorithm
}

/// Resets the task for another message; not while it is in flight.
///
/// # Safety
/// The task is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_task_partial_hash_reset(
    task: *mut doca_sha_task_partial_hash,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(task) }?.body.reset();
        Ok(())
    })
}

/// Marks the source as the last part of the message.
///
/// # Safety
/// The task is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_task_partial_hash_set_is_final_buf(
    task: *mut doca_sha_task_partial_hash,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(task) }?.body.is_final.set(true);
        Ok(())
    })
}

/// 1 if the source is the last part of the message, otherwise 0; 0 for a NULL task.
///
/// # Safety
/// The task is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_task_partial_hash_get_is_final(
    task: *const doca_sha_task_partial_hash,
) -> u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { get(task, |body| u8::from(body.is_final.get())) }
}

/// 1 if the digest was appended to the destination, otherwise 0; 0 for a NULL task.
///
/// # Safety
/// The task is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_task_partial_hash_get_has_result(
    task: *const doca_sha_task_partial_hash,
) -> u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { get(task, |body: &PartialHash| u8::from(body.has_result())) }
}

doca_abi::check_definitions!(doca_sha_functions, crate::capi::doca_sha);
