//! `doca_erasure_coding.h`: matrices, and tasks that apply them.

use std::slice;
use std::sync::Arc;

use doca_abi::{
    DOCA_EC_MATRIX_TYPE_CAUCHY, DOCA_EC_MATRIX_TYPE_VANDERMONDE, doca_buf, doca_data, doca_devinfo,
    doca_ec, doca_ec_matrix, doca_ec_matrix_type, doca_ec_task_create, doca_ec_task_galois_mul,
    doca_ec_task_recover, doca_ec_task_update,
};

use super::instance::{instance_functions, limit_functions, task_handles};
use super::{
    Handle, Keeper, borrow, buf, bytes, check_out, doca_error_t, give, guard, guard_with, not_null,
    put, put_task, reclaim, share, task_functions, with_driver,
};
use crate::accelerator::{
    CodingMatrix, ErasureCoding, MAX_BUF_LIST_LEN, MAX_BUF_SIZE, Offload, Pools, Work,
};
use crate::engines::ORDER;
use crate::engines::matrix::{Matrix, MatrixType};
use crate::error::{Error, Result};

// SAFETY: matrices are given out by `give`.
unsafe impl Handle for doca_ec_matrix {
    type Engine = CodingMatrix;

    const KEEPER: Keeper = Keeper::Arc;
}

task_handles! {
    Work:
    doca_ec_task_galois_mul,
    doca_ec_task_create,
    doca_ec_task_update,
    doca_ec_task_recover
}

instance_functions! {
    doca_ec over ErasureCoding;
    doca_ec_create, doca_ec_as_ctx, doca_ec_destroy(Error::BadState)
}

limit_functions! {
    /// Gets the maximum block size in bytes.
    doca_ec_cap_get_max_block_size(*const doca_devinfo) = MAX_BUF_SIZE, u64;
    /// Gets the maximum number of bufs in a list.
    doca_ec_cap_get_max_buf_list_len(*const doca_devinfo) = MAX_BUF_LIST_LEN, u32;
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

/// Creates a coding matrix from the program's factors: the factor of data block `i` for redundancy block `j` is at `i *
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

/// Creates the matrix that recovers the blocks `missing_indices` (ascending): data blocks are given by their numbers,
/// redundancy blocks by their numbers plus the number of data blocks. `DOCA_ERROR_INVALID_VALUE` also if the loss
/// cannot be recovered.
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

/// Destroys a matrix. Tasks that were allocated with it, and matrices that were derived from it, remain valid.
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

/// Defines a kind of task: its allocation and its matrix here, its other functions with [`task_functions!`].
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

        /// Sets the task's matrix; not allowed while the task is in flight.
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

#[cfg(test)]
mod tests {
    //! Erasure coding through the C functions.

    use std::ptr::{null, null_mut};

    use doca_abi::DOCA_CTX_STATE_RUNNING;

    use super::super::doca_pe::*;
    use super::super::testing::*;
    use super::*;
    use crate::buffer::Buf;
    use crate::memory::{ExportKind, Permissions};

    const TYPES: [doca_ec_matrix_type; 2] =
        [DOCA_EC_MATRIX_TYPE_CAUCHY, DOCA_EC_MATRIX_TYPE_VANDERMONDE];
    const NONE: doca_data = doca_data { u64: 0 };

    fn start() -> Instance<doca_ec> {
        Instance::start(doca_ec_create, doca_ec_destroy, |ec| {
            macro_rules! configure {
            ($($set_conf:ident: $task:ty),*) => { $(
                ok($set_conf(ec, Some(done::<$task>), Some(done::<$task>), 8));
            )* };
        }
            // SAFETY: a live instance.
            unsafe {
                configure!(
                    doca_ec_task_galois_mul_set_conf: doca_ec_task_galois_mul,
                    doca_ec_task_create_set_conf: doca_ec_task_create,
                    doca_ec_task_update_set_conf: doca_ec_task_update,
                    doca_ec_task_recover_set_conf: doca_ec_task_recover
                );
            }
        })
    }

    /// A matrix that is destroyed on drop.
    struct Owned(*mut doca_ec_matrix);

    impl Drop for Owned {
        fn drop(&mut self) {
            // SAFETY: live, for the last time.
            ok(unsafe { doca_ec_matrix_destroy(self.0) });
        }
    }

    type Result = std::result::Result<Owned, u32>;

    fn matrix(make: impl FnOnce(*mut *mut doca_ec_matrix) -> u32) -> Result {
        let mut matrix = null_mut();
        match make(&mut matrix) {
            0 => Ok(Owned(matrix)),
            error => Err(error),
        }
    }

    fn coding(
        ec: &Instance<doca_ec>,
        matrix_type: doca_ec_matrix_type,
        data: usize,
        redundancy: usize,
    ) -> Result {
        // SAFETY: a live instance and a valid out-parameter.
        matrix(|out| unsafe {
            doca_ec_matrix_create(ec.handle, matrix_type, data, redundancy, out)
        })
    }

    fn recovery(ec: &Instance<doca_ec>, coding: &Owned, missing: &mut [u32]) -> Result {
        let (indices, count) = (missing.as_mut_ptr(), missing.len());
        // SAFETY: live handles, the slice, and a valid out-parameter.
        matrix(|out| unsafe {
            doca_ec_matrix_create_recover(ec.handle, coding.0, indices, count, out)
        })
    }

    fn updating(ec: &Instance<doca_ec>, coding: &Owned, changed: &mut [u32]) -> Result {
        let (indices, count) = (changed.as_mut_ptr(), changed.len());
        // SAFETY: as above.
        matrix(|out| unsafe {
            doca_ec_matrix_create_update(ec.handle, coding.0, indices, count, out)
        })
    }

    macro_rules! allocate {
        ($name:ident, $allocate_init:ident, $task:ty) => {
            fn $name(ec: &Instance<doca_ec>, matrix: &Owned, from: &Buf, to: &Buf) -> *mut $task {
                // SAFETY: live handles and a valid out-parameter.
                ec.task(|task| unsafe {
                    $allocate_init(ec.handle, matrix.0, c(from), c(to), NONE, task)
                })
            }
        };
    }
    allocate!(
        create,
        doca_ec_task_create_allocate_init,
        doca_ec_task_create
    );
    allocate!(
        recover,
        doca_ec_task_recover_allocate_init,
        doca_ec_task_recover
    );
    allocate!(
        update,
        doca_ec_task_update_allocate_init,
        doca_ec_task_update
    );
    allocate!(
        galois_mul,
        doca_ec_task_galois_mul_allocate_init,
        doca_ec_task_galois_mul
    );

    /// Product in the field of 0x11d by shifting and adding.
    fn multiply(a: u8, b: u8) -> u8 {
        (0..8).rev().fold(0, |product: u8, bit| {
            let carry = if product & 0x80 != 0 { 0x1d } else { 0 };
            (product << 1) ^ carry ^ if b >> bit & 1 == 1 { a } else { 0 }
        })
    }

    /// The published factors, computed by exhaustive search.
    fn factor(matrix_type: doca_ec_matrix_type, data: usize, i: usize, j: usize) -> u8 {
        if matrix_type == DOCA_EC_MATRIX_TYPE_CAUCHY {
            let sum = (i ^ (j + data)) as u8;
            (1..=255)
                .find(|candidate| multiply(*candidate, sum) == 1)
                .expect("sums are not 0")
        } else {
            (0..j).fold(1, |power, _| multiply(power, (i + 1) as u8))
        }
    }

    fn redundancy(
        matrix_type: doca_ec_matrix_type,
        data: &[u8],
        block: usize,
        count: usize,
    ) -> Vec<u8> {
        let blocks = data.len() / block;
        let byte = |j: usize, at: usize| {
            let product =
                |i: usize| multiply(factor(matrix_type, blocks, i, j), data[i * block + at]);
            (0..blocks).map(product).fold(0, |a, b| a ^ b)
        };
        (0..count)
            .flat_map(|j| (0..block).map(move |at| (j, at)))
            .map(|(j, at)| byte(j, at))
            .collect()
    }

    #[test]
    fn invalid_tasks_fail_and_the_context_keeps_running() {
        let (ec, memory, bufs) = (
            start(),
            Memory::new(
                65_536,
                Permissions::LOCAL_READ_WRITE | Permissions::RDMA_READ,
                Placement::Pages,
            ),
            Bufs::new(),
        );
        let read_only = Memory::new(4096, Permissions::empty(), Placement::Pages);
        let rdma = memory.import(ExportKind::Rdma);
        let coding = coding(&ec, DOCA_EC_MATRIX_TYPE_CAUCHY, 2, 1).expect("a matrix");
        let data = |len| bufs.data(&memory.mmap, 0, len);
        let room = |len| bufs.room(&memory.mmap, 8192, len);
        for (from, to, error) in [
            (data(0), room(64), Error::InvalidValue),
            (data(64), room(64), Error::InvalidValue),
            (data(127), room(64), Error::InvalidValue),
            (data(192), room(96), Error::InvalidValue),
            (data(128), room(63), Error::TooBig),
            (
                data(128),
                bufs.room(&read_only.mmap, 0, 64),
                Error::NotPermitted,
            ),
            (bufs.data(&rdma, 0, 128), room(64), Error::NotPermitted),
        ] {
            let task = create(&ec, &coding, from, to);
            // SAFETY: a live task.
            let tried = unsafe { doca_task_try_submit(task.cast()) };
            assert_eq!((tried, ec.run(task)), (error.code(), error.code()));
            assert_eq!(to.data_len(), 0);
            ec.free_tasks();
        }
        let task = create(&ec, &coding, data(128), room(64));
        // SAFETY: a live task.
        unsafe { doca_ec_task_create_set_rdnc_blocks(task, null_mut()) };
        assert_eq!(ec.run(task), Error::InvalidValue.code());
        assert_eq!(ec.state(), DOCA_CTX_STATE_RUNNING);
        assert_eq!(ec.run(create(&ec, &coding, data(128), room(64))), 0);
    }

    #[test]
    fn bad_matrices_are_refused() {
        let ec = start();
        let invalid = Error::InvalidValue.code();
        for (matrix_type, data, redundancy) in [
            (0, 2, 1),
            (3, 2, 1),
            (1, 0, 1),
            (1, 1, 0),
            (2, 255, 2),
            (1, usize::MAX, 2),
        ] {
            assert_eq!(
                coding(&ec, matrix_type, data, redundancy).err(),
                Some(invalid)
            );
        }
        let vandermonde = coding(&ec, DOCA_EC_MATRIX_TYPE_VANDERMONDE, 10, 4).expect("a matrix");
        // Some losses of four blocks are unrecoverable.
        let fatal = (0..1u32 << 14)
            .filter(|set| set.count_ones() == 4)
            .find(|set| {
                let mut missing: Vec<u32> = (0..14).filter(|block| set >> block & 1 == 1).collect();
                recovery(&ec, &vandermonde, &mut missing).is_err()
            });
        assert!(fatal.is_some());
        for missing in [&mut [][..], &mut [14], &mut [1, 0], &mut [0, 1, 2, 3, 4]] {
            assert_eq!(
                recovery(&ec, &vandermonde, missing).err(),
                Some(invalid),
                "{missing:?}"
            );
        }
        assert_eq!(updating(&ec, &vandermonde, &mut [10]).err(), Some(invalid));
        let recovery_matrix = recovery(&ec, &vandermonde, &mut [0]).expect("a matrix");
        assert_eq!(
            recovery(&ec, &recovery_matrix, &mut [0]).err(),
            Some(invalid),
            "no coding matrix"
        );
        // SAFETY: NULL, live handles, or valid out-parameters.
        unsafe {
            let mut out = null_mut();
            assert_eq!(
                doca_ec_matrix_create(null_mut(), 1, 2, 1, &mut out),
                invalid
            );
            assert_eq!(
                doca_ec_matrix_create(ec.handle, 1, 2, 1, null_mut()),
                invalid
            );
            assert_eq!(
                doca_ec_matrix_create_from_raw(ec.handle, null_mut(), 2, 1, &mut out),
                invalid
            );
            assert_eq!(
                doca_ec_matrix_create_from_raw(ec.handle, null_mut(), usize::MAX, 2, &mut out),
                invalid
            );
            assert_eq!(
                doca_ec_matrix_create_recover(ec.handle, null(), &mut 0, 1, &mut out),
                invalid
            );
            assert_eq!(
                doca_ec_matrix_create_recover(ec.handle, vandermonde.0, null_mut(), 1, &mut out),
                invalid
            );
            assert_eq!(
                doca_ec_matrix_create_recover(
                    ec.handle,
                    vandermonde.0,
                    &mut 0,
                    usize::MAX,
                    &mut out
                ),
                invalid
            );
            assert_eq!(
                doca_ec_matrix_create_update(ec.handle, null(), &mut 0, 1, &mut out),
                invalid
            );
            assert_eq!(doca_ec_matrix_destroy(null_mut()), invalid);
        }
    }

    #[test]
    fn task_properties_can_be_read_back() {
        let (ec, memory, bufs) = (start(), Memory::local(8192), Bufs::new());
        let (first, second) = (
            bufs.data(&memory.mmap, 0, 128),
            bufs.room(&memory.mmap, 1024, 128),
        );
        let one = coding(&ec, DOCA_EC_MATRIX_TYPE_CAUCHY, 2, 1).expect("a matrix");
        let two = coding(&ec, DOCA_EC_MATRIX_TYPE_VANDERMONDE, 2, 1).expect("a matrix");
        macro_rules! check {
            ($new:ident: $as_task:ident, $set_matrix:ident, $get_matrix:ident, $set_from:ident, $get_from:ident, $set_to:ident, $get_to:ident) => {
                let task = $new(&ec, &one, first, second);
                // SAFETY: a live task, and NULL.
                unsafe {
                    assert_eq!($as_task(task).cast(), task);
                    assert_eq!($get_matrix(task), one.0.cast_const());
                    assert_eq!(
                        ($get_from(task).cast_mut(), $get_to(task)),
                        (c(first), c(second))
                    );
                    $set_matrix(task, two.0);
                    $set_from(task, c(second));
                    $set_to(task, c(first));
                    assert_eq!($get_matrix(task), two.0.cast_const());
                    assert_eq!(
                        ($get_from(task).cast_mut(), $get_to(task)),
                        (c(second), c(first))
                    );
                    $set_matrix(task, null());
                    assert_eq!($get_matrix(task), two.0.cast_const(), "a task has a matrix");
                    $set_from(null_mut(), null());
                    $set_to(null_mut(), null_mut());
                    assert!(
                        $get_matrix(null()).is_null()
                            && $get_from(null()).is_null()
                            && $get_to(null()).is_null()
                    );
                }
            };
        }
        check!(create: doca_ec_task_create_as_task, doca_ec_task_create_set_coding_matrix, doca_ec_task_create_get_coding_matrix,
        doca_ec_task_create_set_original_data_blocks, doca_ec_task_create_get_original_data_blocks,
        doca_ec_task_create_set_rdnc_blocks, doca_ec_task_create_get_rdnc_blocks);
        check!(update: doca_ec_task_update_as_task, doca_ec_task_update_set_update_matrix, doca_ec_task_update_get_update_matrix,
        doca_ec_task_update_set_original_updated_and_rdnc_blocks, doca_ec_task_update_get_original_updated_and_rdnc_blocks,
        doca_ec_task_update_set_updated_rdnc_blocks, doca_ec_task_update_get_updated_rdnc_blocks);
        check!(recover: doca_ec_task_recover_as_task, doca_ec_task_recover_set_recover_matrix, doca_ec_task_recover_get_recover_matrix,
        doca_ec_task_recover_set_available_blocks, doca_ec_task_recover_get_available_blocks,
        doca_ec_task_recover_set_recovered_data_blocks, doca_ec_task_recover_get_recovered_data);
        check!(galois_mul: doca_ec_task_galois_mul_as_task, doca_ec_task_galois_mul_set_coding_matrix, doca_ec_task_galois_mul_get_coding_matrix,
        doca_ec_task_galois_mul_set_src_buf, doca_ec_task_galois_mul_get_src_buf,
        doca_ec_task_galois_mul_set_dst_buf, doca_ec_task_galois_mul_get_dst_buf);
    }

    #[test]
    fn limits_are_reported_and_nulls_refused() {
        let invalid = Error::InvalidValue.code();
        let (mut len, mut size) = (0, 0);
        let ec = start();
        // SAFETY: NULL, a live handle, or a valid out-parameter.
        unsafe {
            for is_supported in [
                doca_ec_cap_task_galois_mul_is_supported,
                doca_ec_cap_task_create_is_supported,
                doca_ec_cap_task_update_is_supported,
                doca_ec_cap_task_recover_is_supported,
            ] {
                assert_eq!(
                    (is_supported(any_devinfo()), is_supported(null())),
                    (0, invalid)
                );
            }
            ok(doca_ec_cap_get_max_buf_list_len(any_devinfo(), &mut len));
            ok(doca_ec_cap_get_max_block_size(any_devinfo(), &mut size));
            assert!(len >= 32 && size >= 1 << 20, "{len} {size}");
            assert_eq!(doca_ec_cap_get_max_buf_list_len(null(), &mut len), invalid);
            assert_eq!(doca_ec_cap_get_max_block_size(null(), &mut size), invalid);
            assert_eq!(doca_ec_create(null_mut(), null_mut()), invalid);
            assert_eq!(doca_ec_destroy(null_mut()), invalid);
            assert_eq!(doca_ec_as_ctx(ec.handle), ec.ctx());
            let mut task = null_mut();
            let code = doca_ec_task_create_allocate_init(
                ec.handle,
                null(),
                null(),
                null_mut(),
                NONE,
                &mut task,
            );
            assert_eq!(code, invalid, "a task needs a matrix");
            assert_eq!(doca_ec_destroy(ec.handle), Error::BadState.code());
            let done = Some(done::<doca_ec_task_create> as _);
            assert_eq!(
                doca_ec_task_create_set_conf(ec.handle, done, done, 1),
                Error::BadState.code()
            );
            let mut state = 0;
            ok(doca_ctx_get_state(ec.ctx(), &mut state));
            assert_eq!(state, DOCA_CTX_STATE_RUNNING);
        }
    }

    #[test]
    fn lost_blocks_are_recovered() {
        const BLOCK: usize = 192;
        let (ec, memory, bufs) = (start(), Memory::local(64 * BLOCK), Bufs::new());
        for matrix_type in TYPES {
            for (data, parity) in [(1usize, 1usize), (2, 1), (3, 2), (10, 4)] {
                let content = pattern(data as u8, data * BLOCK);
                memory.write(0, &content);
                let coding = coding(&ec, matrix_type, data, parity).expect("a matrix");
                let from = bufs.data(&memory.mmap, 0, data * BLOCK);
                let to = bufs.room(&memory.mmap, data * BLOCK, parity * BLOCK);
                assert_eq!(ec.run(create(&ec, &coding, from, to)), 0);
                assert_eq!(to.data_len(), parity * BLOCK);
                let code = memory.read(0, (data + parity) * BLOCK);
                assert!(code[data * BLOCK..] == redundancy(matrix_type, &content, BLOCK, parity));

                // The first data block and the last redundancy block are lost.
                let mut missing = vec![0, (data + parity - 1) as u32];
                missing.truncate(parity);
                let recovery = recovery(&ec, &coding, &mut missing).expect("not singular");
                let from = bufs.data(&memory.mmap, BLOCK, data * BLOCK);
                let to = bufs.room(&memory.mmap, 32 * BLOCK, missing.len() * BLOCK);
                assert_eq!(ec.run(recover(&ec, &recovery, from, to)), 0);
                for (at, block) in missing.iter().enumerate() {
                    let expected = &code[*block as usize * BLOCK..][..BLOCK];
                    assert!(
                        memory.read((32 + at) * BLOCK, BLOCK) == expected,
                        "{data}+{parity}, block {block}"
                    );
                }
                ec.free_tasks();
            }
        }
    }

    #[test]
    fn lists_and_memory_of_another_process_are_sources_and_destinations() {
        const BLOCK: usize = 4096;
        for placement in PLACEMENTS {
            let (ec, bufs) = (start(), Bufs::new());
            let ((theirs, import), local) = (
                Memory::shared(4 * BLOCK, placement),
                Memory::local(4 * BLOCK),
            );
            let content = pattern(5, 2 * BLOCK);
            theirs.write(64, &content);
            let coding = coding(&ec, DOCA_EC_MATRIX_TYPE_CAUCHY, 2, 2).expect("a matrix");
            let expected = redundancy(DOCA_EC_MATRIX_TYPE_CAUCHY, &content, BLOCK, 2);

            let from = bufs.data_list(&import, 64, &[1000, BLOCK, 2 * BLOCK - 1000 - BLOCK]);
            let to = bufs.room_list(&local.mmap, 0, &[BLOCK + 7, 1, BLOCK]);
            assert_eq!(ec.run(create(&ec, &coding, from, to)), 0, "{placement:?}");
            assert_eq!(to.list_data_len(), 2 * BLOCK);
            assert!(local.read(0, 2 * BLOCK) == expected);
            assert_eq!(local.read(2 * BLOCK, 8), [0; 8], "no more than two blocks");

            local.write(2 * BLOCK, &content);
            let from = bufs.data(&local.mmap, 2 * BLOCK, 2 * BLOCK);
            let to = bufs.room_list(&import, BLOCK, &[100, 3 * BLOCK - 100]);
            to.set_data_len(10).expect("inside the buf");
            assert_eq!(ec.run(create(&ec, &coding, from, to)), 0, "{placement:?}");
            assert_eq!(to.list_data_len(), 10 + 2 * BLOCK);
            assert!(theirs.read(BLOCK + 10, 2 * BLOCK) == expected);
        }
    }

    #[test]
    fn updated_redundancy_equals_newly_created_redundancy() {
        const BLOCK: usize = 128;
        let (ec, memory, bufs) = (start(), Memory::local(64 * BLOCK), Bufs::new());
        for matrix_type in TYPES {
            let coding = coding(&ec, matrix_type, 4, 2).expect("a matrix");
            let (old, new) = (pattern(1, 4 * BLOCK), pattern(2, 4 * BLOCK));
            let mut data = old.clone();
            let mut source = Vec::new();
            for block in [1, 3] {
                let range = block * BLOCK..(block + 1) * BLOCK;
                data[range.clone()].copy_from_slice(&new[range.clone()]);
                source.extend_from_slice(&old[range.clone()]);
                source.extend_from_slice(&new[range]);
            }
            source.extend(redundancy(matrix_type, &old, BLOCK, 2));
            memory.write(0, &source);
            let updating = updating(&ec, &coding, &mut [1, 3]).expect("a matrix");
            let from = bufs.data(&memory.mmap, 0, source.len());
            let to = bufs.room(&memory.mmap, 20 * BLOCK, 2 * BLOCK);
            assert_eq!(ec.run(update(&ec, &updating, from, to)), 0);
            assert!(memory.read(20 * BLOCK, 2 * BLOCK) == redundancy(matrix_type, &data, BLOCK, 2));
        }
    }

    #[test]
    fn every_kind_of_task_applies_any_matrix() {
        const BLOCK: usize = 64;
        let (ec, memory, bufs) = (start(), Memory::local(64 * BLOCK), Bufs::new());
        let content = pattern(3, 2 * BLOCK);
        for matrix_type in TYPES {
            let parity = redundancy(matrix_type, &content, BLOCK, 1);
            // The second data block is lost; recovery with the encode matrix uses the other two blocks.
            memory.write(0, &[&content[..BLOCK], &parity].concat());
            let coding = coding(&ec, matrix_type, 2, 1).expect("a matrix");
            let to = bufs.room(&memory.mmap, 10 * BLOCK, BLOCK);
            assert_eq!(
                ec.run(recover(
                    &ec,
                    &coding,
                    bufs.data(&memory.mmap, 0, 2 * BLOCK),
                    to
                )),
                0
            );
            let recovered = memory.read(10 * BLOCK, BLOCK) == content[BLOCK..];
            assert_eq!(recovered, matrix_type == DOCA_EC_MATRIX_TYPE_VANDERMONDE);
        }
        // Two sums of two blocks: the first block itself, and twice the second.
        let mut factors = [1, 0, 0, 2];
        // SAFETY: live handles, 4 bytes, and a valid out-parameter.
        let raw = matrix(|out| unsafe {
            doca_ec_matrix_create_from_raw(ec.handle, factors.as_mut_ptr(), 2, 2, out)
        });
        memory.write(0, &content);
        let (from, to) = (
            bufs.data(&memory.mmap, 0, 2 * BLOCK),
            bufs.room(&memory.mmap, 20 * BLOCK, 2 * BLOCK),
        );
        assert_eq!(
            ec.run(galois_mul(&ec, &raw.expect("a matrix"), from, to)),
            0
        );
        let twice = content[BLOCK..].iter().map(|byte| multiply(*byte, 2));
        let expected: Vec<u8> = content[..BLOCK].iter().copied().chain(twice).collect();
        assert!(memory.read(20 * BLOCK, 2 * BLOCK) == expected);
    }

    #[test]
    fn a_matrix_may_be_destroyed_before_its_tasks() {
        const BLOCK: usize = 64;
        let (ec, memory, bufs) = (start(), Memory::local(64 * BLOCK), Bufs::new());
        let (content, vandermonde) = (pattern(4, 2 * BLOCK), DOCA_EC_MATRIX_TYPE_VANDERMONDE);
        memory.write(0, &content);
        let coding = coding(&ec, vandermonde, 2, 1).expect("a matrix");
        let recovery = recovery(&ec, &coding, &mut [1]).expect("a matrix");
        let (from, to) = (
            bufs.data(&memory.mmap, 0, 2 * BLOCK),
            bufs.room(&memory.mmap, 2 * BLOCK, BLOCK),
        );
        let task = create(&ec, &coding, from, to);
        ec.submit(task);
        drop(coding);
        assert_eq!(ec.wait(1), [(0, 0)]);
        assert!(memory.read(2 * BLOCK, BLOCK) == redundancy(vandermonde, &content, BLOCK, 1));
        memory.write(BLOCK, &memory.read(2 * BLOCK, BLOCK));
        let task = recover(
            &ec,
            &recovery,
            from,
            bufs.room(&memory.mmap, 4 * BLOCK, BLOCK),
        );
        drop(recovery);
        assert_eq!(ec.run(task), 0);
        assert!(memory.read(4 * BLOCK, BLOCK) == content[BLOCK..]);
    }
}
