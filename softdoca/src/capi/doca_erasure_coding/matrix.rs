//! Matrices.

use std::slice;

use doca_abi::{
    DOCA_EC_MATRIX_TYPE_CAUCHY, DOCA_EC_MATRIX_TYPE_VANDERMONDE, doca_ec, doca_ec_matrix,
    doca_ec_matrix_type,
};

use super::super::{borrow, bytes, check_out, doca_error_t, give, guard, not_null, put, reclaim};
use crate::engines::galois::ORDER;
use crate::engines::matrix::{Matrix, MatrixType};
use crate::erasure_coding::CodingMatrix;
use crate::error::{Error, Result};

/// Makes a matrix with `make` and gives it out.
///
/// # Safety
/// `out` is NULL or writable; `ec` is not followed.
unsafe fn put_matrix(
    ec: *const doca_ec,
    out: *mut *mut doca_ec_matrix,
    make: impl FnOnce() -> Result<Matrix>,
) -> doca_error_t {
    guard(|| {
        not_null(ec)?;
        check_out(out)?;
        let matrix = CodingMatrix::new(make()?);
        // SAFETY: the caller's promise.
        unsafe { put(out, give(matrix)) }
    })
}

/// Numbers of blocks from C.
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
    // SAFETY: the caller's promise; not NULL, and not too long.
    Ok(unsafe { slice::from_raw_parts(indices, count) })
}

/// Makes a coding matrix of one of the two types.
///
/// # Safety
/// `matrix` is NULL or writable; `ec` is not followed.
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
    // SAFETY: the caller's promise.
    unsafe { put_matrix(ec, matrix, make) }
}

/// Makes a coding matrix of the program's factors: that of data block `i` for redundancy block `j` is at
/// `i * rdnc_block_count + j`.
///
/// # Safety
/// `data` is NULL or readable for `data_block_count * rdnc_block_count` bytes; `matrix` is NULL or writable; `ec` is not
/// followed.
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
        // SAFETY: the caller's promise.
        let factors = unsafe { bytes(data, count) }?.to_vec();
        Matrix::from_factors(factors, data_block_count, rdnc_block_count)
    };
    // SAFETY: the caller's promise.
    unsafe { put_matrix(ec, matrix, make) }
}

/// Makes the matrix that updates all redundancy blocks after the data blocks `update_indices`, ascending, have changed.
///
/// # Safety
/// `coding_matrix` is NULL or live; `update_indices` is NULL or readable for `n_updates` elements; `matrix` is NULL or
/// writable; `ec` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_matrix_create_update(
    ec: *mut doca_ec,
    coding_matrix: *const doca_ec_matrix,
    update_indices: *mut u32,
    n_updates: usize,
    matrix: *mut *mut doca_ec_matrix,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe {
        put_matrix(ec, matrix, || {
            let changed = block_numbers(update_indices, n_updates)?;
            borrow(coding_matrix)?.matrix().update(changed)
        })
    }
}

/// Makes the matrix that recovers the blocks `missing_indices`, ascending: data blocks by their numbers, redundancy blocks by
/// theirs plus the number of data blocks. `DOCA_ERROR_INVALID_VALUE` as well when the loss cannot be recovered.
///
/// # Safety
/// `coding_matrix` is NULL or live; `missing_indices` is NULL or readable for `n_missing` elements; `matrix` is NULL or
/// writable; `ec` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_matrix_create_recover(
    ec: *mut doca_ec,
    coding_matrix: *const doca_ec_matrix,
    missing_indices: *mut u32,
    n_missing: usize,
    matrix: *mut *mut doca_ec_matrix,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe {
        put_matrix(ec, matrix, || {
            let missing = block_numbers(missing_indices, n_missing)?;
            borrow(coding_matrix)?.matrix().recover(missing)
        })
    }
}

/// Destroys a matrix. Tasks that were allocated with it, and matrices that were made of it, go on without it.
///
/// # Safety
/// `matrix` is NULL or live; it is dead afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ec_matrix_destroy(matrix: *mut doca_ec_matrix) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { reclaim(matrix) }.map(drop))
}
