//! `doca_erasure_coding.h`: matrices, and tasks that apply them.

#[cfg(test)]
mod tests;

use std::slice;
use std::sync::Arc;

use doca_abi::{
    DOCA_EC_MATRIX_TYPE_CAUCHY, DOCA_EC_MATRIX_TYPE_VANDERMONDE, doca_buf, doca_ctx, doca_data,
    doca_dev, doca_devinfo, doca_ec, doca_ec_matrix, doca_ec_matrix_type, doca_ec_task_create,
    doca_ec_task_galois_mul, doca_ec_task_recover, doca_ec_task_update,
};

use super::doca_pe::{destroy_ctx, give_ctx};
use super::task::{buf, put_limit, put_task, task_functions, with_driver};
use super::{
    Handle, Keeper, borrow, bytes, check_out, doca_error_t, give, guard, guard_with, not_null, put,
    reclaim, share,
};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE, Offload};
use crate::engines::galois::ORDER;
use crate::engines::matrix::{Matrix, MatrixType};
use crate::erasure_coding::{CodingMatrix, ErasureCoding, Pools, Work};
use crate::error::{Error, Result};
use crate::progress::{Ctx, TaskOf};

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_ec {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: matrices are given out by `give`.
unsafe impl Handle for doca_ec_matrix {
    type Engine = CodingMatrix;

    const KEEPER: Keeper = Keeper::Arc;
}

macro_rules! task_handles {
    ($($task:ty),*) => {
        $(
            // SAFETY: tasks of this kind are given out as pointers to what `TaskPool::allocate` made of this body.
            unsafe impl Handle for $task {
                type Engine = TaskOf<Work>;
            }
        )*
    };
}

task_handles!(
    doca_ec_task_galois_mul,
    doca_ec_task_create,
    doca_ec_task_update,
    doca_ec_task_recover
);

/// Creates an erasure-coding instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `ec` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_create(dev: *mut doca_dev, ec: *mut *mut doca_ec) -> doca_error_t {
    guard(|| {
        check_out(ec)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(ec, give_ctx(ErasureCoding::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated. Its matrices stay valid.
///
/// # Safety
/// `ec` is NULL or a live instance; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_destroy(ec: *mut doca_ec) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { destroy_ctx(ec) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_as_ctx(ec: *mut doca_ec) -> *mut doca_ctx {
    ec.cast()
}

/// Gets the maximum block size in bytes.
///
/// # Safety
/// `max_block_size` is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_cap_get_max_block_size(
    devinfo: *const doca_devinfo,
    max_block_size: *mut u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, max_block_size, MAX_BUF_SIZE as u64) }
}

/// Gets the maximum number of bufs in a list.
///
/// # Safety
/// `max_buf_list_len` is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_cap_get_max_buf_list_len(
    devinfo: *const doca_devinfo,
    max_buf_list_len: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, max_buf_list_len, MAX_BUF_LIST_LEN as u32) }
}

/// Creates a matrix with `make` and writes its handle.
///
/// # Safety
/// `out` is NULL or writable; `ec` is not dereferenced.
unsafe fn put_matrix(
    ec: *const doca_ec,
    out: *mut *mut doca_ec_matrix,
    make: impl FnOnce() -> Result<Matrix>,
) -> doca_error_t {
    guard(|| {
        not_null(ec)?;
        check_out(out)?;
        let matrix = CodingMatrix::new(make()?);
        // SAFETY: guaranteed by the caller.
        unsafe { put(out, give(matrix)) }
    })
}

/// Borrows block numbers from C.
///
/// # Safety
/// `indices` is NULL or readable for `count` elements.
unsafe fn block_numbers<'a>(indices: *const u32, count: usize) -> Result<&'a [u32]> {
    not_null(indices)?;
    if count > ORDER {
        return Err(Error::InvalidValue.because(format_args!(
            "expected at most {ORDER} numbers of blocks, got {count}"
        )));
    }
    // SAFETY: guaranteed by the caller; not NULL, and not too long.
    Ok(unsafe { slice::from_raw_parts(indices, count) })
}

/// Creates a coding matrix of one of the two types.
///
/// # Safety
/// `matrix` is NULL or writable; `ec` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_matrix_create(
    ec: *mut doca_ec,
    matrix_type: doca_ec_matrix_type,
    data_block_count: usize,
    rdnc_block_count: usize,
    matrix: *mut *mut doca_ec_matrix,
) -> doca_error_t {
    let make = || {
        let matrix_type = match matrix_type {
            DOCA_EC_MATRIX_TYPE_CAUCHY => MatrixType::Cauchy,
            DOCA_EC_MATRIX_TYPE_VANDERMONDE => MatrixType::Vandermonde,
            other => {
                return Err(Error::InvalidValue.because(format_args!(
                    "expected a matrix type of {DOCA_EC_MATRIX_TYPE_CAUCHY} (Cauchy) or {DOCA_EC_MATRIX_TYPE_VANDERMONDE} (Vandermonde), got {other}"
                )));
            }
        };
        Matrix::coding(matrix_type, data_block_count, rdnc_block_count)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { put_matrix(ec, matrix, make) }
}

/// Creates a coding matrix from the program's factors: that of data block `i` for redundancy block `j` is at `i *
/// rdnc_block_count + j`.
///
/// # Safety
/// `data` is NULL or readable for `data_block_count * rdnc_block_count` bytes; `matrix` is NULL or writable; `ec` is
/// not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_matrix_create_from_raw(
    ec: *mut doca_ec,
    data: *mut u8,
    data_block_count: usize,
    rdnc_block_count: usize,
    matrix: *mut *mut doca_ec_matrix,
) -> doca_error_t {
    let make = || {
        let count = data_block_count
            .checked_mul(rdnc_block_count)
            .ok_or(Error::InvalidValue)?;
        not_null(data)?;
        // SAFETY: guaranteed by the caller.
        let factors = unsafe { bytes(data, count) }?.to_vec();
        Matrix::from_factors(factors, data_block_count, rdnc_block_count)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { put_matrix(ec, matrix, make) }
}

/// Creates the matrix that updates all redundancy blocks after the data blocks `update_indices` (ascending) have
/// changed.
///
/// # Safety
/// `coding_matrix` is NULL or live; `update_indices` is NULL or readable for `n_updates` elements; `matrix` is NULL or
/// writable; `ec` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_matrix_create_update(
    ec: *mut doca_ec,
    coding_matrix: *const doca_ec_matrix,
    update_indices: *mut u32,
    n_updates: usize,
    matrix: *mut *mut doca_ec_matrix,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        put_matrix(ec, matrix, || {
            let changed = block_numbers(update_indices, n_updates)?;
            borrow(coding_matrix)?.matrix().update(changed)
        })
    }
}

/// Creates the matrix that recovers the blocks `missing_indices` (ascending): data blocks by their numbers, redundancy
/// blocks by theirs plus the number of data blocks. `DOCA_ERROR_INVALID_VALUE` also if the loss cannot be recovered.
///
/// # Safety
/// `coding_matrix` is NULL or live; `missing_indices` is NULL or readable for `n_missing` elements; `matrix` is NULL or
/// writable; `ec` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_matrix_create_recover(
    ec: *mut doca_ec,
    coding_matrix: *const doca_ec_matrix,
    missing_indices: *mut u32,
    n_missing: usize,
    matrix: *mut *mut doca_ec_matrix,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        put_matrix(ec, matrix, || {
            let missing = block_numbers(missing_indices, n_missing)?;
            borrow(coding_matrix)?.matrix().recover(missing)
        })
    }
}

/// Destroys a matrix. Tasks that were allocated with it, and matrices that were derived from it, stay valid.
///
/// # Safety
/// `matrix` is NULL or live; it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_matrix_destroy(matrix: *mut doca_ec_matrix) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { reclaim(matrix) }.map(drop))
}

fn pools(driver: &Offload<ErasureCoding>) -> &Pools {
    &driver.accelerator().pools
}

/// Defines a kind of task: its allocation and its matrix here, the rest through [`task_functions!`].
macro_rules! coding_task {
    (
        $task:ident, pool $pool:ident: $allocate_init:ident, $set_matrix:ident, $get_matrix:ident;
        $($functions:tt)*
    ) => {
        /// Allocates a task that applies a matrix to the blocks in the source's data and appends the results to the
        /// destination's data.
        ///
        /// # Safety
        /// The instance is NULL or live, and not used by another thread during the call; the matrix is NULL or live;
        /// the bufs are NULL or stay valid while the task is in flight; `task` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $allocate_init(
            ec: *mut doca_ec,
            matrix: *const doca_ec_matrix,
            source: *const doca_buf,
            destination: *mut doca_buf,
            user_data: doca_data,
            task: *mut *mut $task,
        ) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe {
                put_task(task, || {
                    with_driver(ec, |ctx, driver| {
                        let work = Work::new(share(matrix)?, buf(source), buf(destination));
                        pools(driver).$pool.allocate(ctx, work, user_data)
                    })
                })
            })
        }

        /// Sets the task's matrix; not while it is in flight.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call; the matrix is NULL or live.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_matrix(task: *mut $task, matrix: *const doca_ec_matrix) {
            // SAFETY: guaranteed by the caller.
            let _ = guard(|| unsafe {
                let matrix = share(matrix)?;
                borrow(task)?.body.matrix.replace(matrix);
                Ok(())
            });
        }

        /// The task's matrix, which the program may have destroyed in the meantime; NULL for NULL.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_matrix(task: *const $task) -> *const doca_ec_matrix {
            guard_with(std::ptr::null(), || {
                // SAFETY: guaranteed by the caller.
                let task = unsafe { borrow(task) };
                task.map_or(std::ptr::null(), |task| Arc::as_ptr(&task.body.matrix.borrow()).cast())
            })
        }

        task_functions! {
            $task of doca_ec, pool |driver| &pools(driver).$pool;
            $($functions)*
        }
    };
}

coding_task! {
    doca_ec_task_galois_mul, pool galois_mul: doca_ec_task_galois_mul_allocate_init,
    doca_ec_task_galois_mul_set_coding_matrix, doca_ec_task_galois_mul_get_coding_matrix;
    doca_ec_cap_task_galois_mul_is_supported,
    doca_ec_task_galois_mul_set_conf(doca_ec_task_galois_mul_completion_cb_t),
    doca_ec_task_galois_mul_as_task,
    doca_ec_task_galois_mul_set_src_buf, doca_ec_task_galois_mul_get_src_buf,
    doca_ec_task_galois_mul_set_dst_buf, doca_ec_task_galois_mul_get_dst_buf
}

coding_task! {
    doca_ec_task_create, pool create: doca_ec_task_create_allocate_init,
    doca_ec_task_create_set_coding_matrix, doca_ec_task_create_get_coding_matrix;
    doca_ec_cap_task_create_is_supported,
    doca_ec_task_create_set_conf(doca_ec_task_create_completion_cb_t),
    doca_ec_task_create_as_task,
    doca_ec_task_create_set_original_data_blocks, doca_ec_task_create_get_original_data_blocks,
    doca_ec_task_create_set_rdnc_blocks, doca_ec_task_create_get_rdnc_blocks
}

coding_task! {
    doca_ec_task_update, pool update: doca_ec_task_update_allocate_init,
    doca_ec_task_update_set_update_matrix, doca_ec_task_update_get_update_matrix;
    doca_ec_cap_task_update_is_supported,
    doca_ec_task_update_set_conf(doca_ec_task_update_completion_cb_t),
    doca_ec_task_update_as_task,
    doca_ec_task_update_set_original_updated_and_rdnc_blocks,
    doca_ec_task_update_get_original_updated_and_rdnc_blocks,
    doca_ec_task_update_set_updated_rdnc_blocks, doca_ec_task_update_get_updated_rdnc_blocks
}

coding_task! {
    doca_ec_task_recover, pool recover: doca_ec_task_recover_allocate_init,
    doca_ec_task_recover_set_recover_matrix, doca_ec_task_recover_get_recover_matrix;
    doca_ec_cap_task_recover_is_supported,
    doca_ec_task_recover_set_conf(doca_ec_task_recover_completion_cb_t),
    doca_ec_task_recover_as_task,
    doca_ec_task_recover_set_available_blocks, doca_ec_task_recover_get_available_blocks,
    doca_ec_task_recover_set_recovered_data_blocks, doca_ec_task_recover_get_recovered_data
}

doca_abi::check_definitions!(
    doca_erasure_coding_functions,
    crate::capi::doca_erasure_coding
);
