//! `doca_buf_pool.h`: pools of bufs over equal parts of a memory map.

use doca_abi::{doca_buf, doca_buf_pool, doca_data, doca_mmap};

use super::doca_buf::handle;
use super::{Handle, borrow, check_out, doca_error_t, guard, put, share};
use crate::buffer::BufPool;
use crate::check::{self, Object};

// SAFETY: pools are given out as pointers from `Box::into_raw`.
unsafe impl Handle for doca_buf_pool {
    type Engine = BufPool;
}

/// Creates a pool.
///
/// # Safety
/// `mmap` is NULL or live; `buf_pool` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_create(
    num_elements: usize,
    element_size: usize,
    mmap: *const doca_mmap,
    buf_pool: *mut *mut doca_buf_pool,
) -> doca_error_t {
    guard(|| {
        check_out(buf_pool)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let pool = BufPool::new(num_elements, element_size, share(mmap)?)?;
            put(buf_pool, Box::into_raw(Box::new(pool)).cast())?;
        }
        check::created(Object::BufPool);
        Ok(())
    })
}

/// Destroys a pool; `DOCA_ERROR_IN_USE` while bufs are taken.
///
/// # Safety
/// `buf_pool` is NULL or live, and invalid after success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_destroy(buf_pool: *mut doca_buf_pool) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(buf_pool) }?.check_unused()?;
        // SAFETY: from `Box::into_raw` in `doca_buf_pool_create`, and taken back once.
        drop(unsafe { Box::from_raw(buf_pool.cast::<BufPool>()) });
        check::destroyed(Object::BufPool);
        Ok(())
    })
}

/// Starts a pool: bufs can be taken.
///
/// # Safety
/// `buf_pool` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_start(buf_pool: *mut doca_buf_pool) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf_pool) }?.start())
}

/// Stops a pool; `DOCA_ERROR_IN_USE` while bufs are taken.
///
/// # Safety
/// `buf_pool` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_stop(buf_pool: *mut doca_buf_pool) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf_pool) }?.stop())
}

/// Takes a buf without data.
///
/// # Safety
/// `buf_pool` is NULL or live, and not used by another thread during the call; `buf` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_buf_alloc(
    buf_pool: *mut doca_buf_pool,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    guard(|| {
        check_out(buf)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(buf, handle(borrow(buf_pool)?.take()?)) }
    })
}

/// Sets the user data.
///
/// # Safety
/// `buf_pool` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_set_user_data(
    buf_pool: *mut doca_buf_pool,
    user_data: doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller; both views of the union are plain data.
    guard(|| unsafe { borrow(buf_pool)?.set_user_data(user_data.u64) })
}

/// Gets the user data.
///
/// # Safety
/// `buf_pool` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_get_user_data(
    buf_pool: *const doca_buf_pool,
    user_data: *mut doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let data = borrow(buf_pool)?.user_data();
            put(user_data, doca_data { u64: data })
        }
    })
}

/// Sets the alignment of the bufs in bytes.
///
/// # Safety
/// `buf_pool` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_set_element_alignment(
    buf_pool: *mut doca_buf_pool,
    element_alignment: usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf_pool) }?.set_alignment(element_alignment))
}

/// Gets the alignment of the bufs in bytes.
///
/// # Safety
/// `buf_pool` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_get_element_alignment(
    buf_pool: *const doca_buf_pool,
    element_alignment: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(element_alignment, borrow(buf_pool)?.alignment()) })
}

/// Gets the total number of bufs.
///
/// # Safety
/// `buf_pool` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_get_num_elements(
    buf_pool: *const doca_buf_pool,
    num_of_elements: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller. The number of bufs fits into 32 bits.
    guard(|| unsafe { put(num_of_elements, borrow(buf_pool)?.count() as u32) })
}

/// Gets the number of free bufs.
///
/// # Safety
/// `buf_pool` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_get_num_free_elements(
    buf_pool: *const doca_buf_pool,
    num_of_free_elements: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller. The number of bufs fits into 32 bits.
    guard(|| unsafe { put(num_of_free_elements, borrow(buf_pool)?.free_count() as u32) })
}

doca_abi::check_definitions!(doca_buf_pool_functions, crate::capi::doca_buf_pool);
