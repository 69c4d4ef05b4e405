//! What an inventory tells of itself, and copies of descriptions.

use doca_abi::{doca_buf, doca_buf_inventory, doca_data};

use super::super::{borrow, check_out, doca_error_t, guard, put};
use super::handle;
use crate::error::Error;

/// Takes a buf, or a list of them, that describes the same as `src_buf`.
///
/// # Safety
/// The handles are NULL or live, the inventory used by no other thread meanwhile; `dst_buf` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_dup(
    inventory: *mut doca_buf_inventory,
    src_buf: *const doca_buf,
    dst_buf: *mut *mut doca_buf,
) -> doca_error_t {
    guard(|| {
        check_out(dst_buf)?;
        // SAFETY: the caller's promise.
        unsafe {
            let taken = borrow(inventory)?.duplicate(borrow(src_buf)?)?;
            put(dst_buf, handle(taken))
        }
    })
}

/// Adds bufs; the inventory must be started.
///
/// # Safety
/// `inventory` is NULL or live, and used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_expand(
    inventory: *mut doca_buf_inventory,
    num_elements: u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(inventory)?.expand(num_elements as usize) })
}

/// Tells how many bufs there are.
///
/// # Safety
/// `inventory` is NULL or live, and used by no other thread meanwhile; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_get_num_elements(
    inventory: *const doca_buf_inventory,
    num_of_elements: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(num_of_elements, count(borrow(inventory)?.count())?) })
}

/// Tells how many bufs can be taken.
///
/// # Safety
/// `inventory` is NULL or live, and used by no other thread meanwhile; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_get_num_free_elements(
    inventory: *const doca_buf_inventory,
    num_of_free_elements: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(
            num_of_free_elements,
            count(borrow(inventory)?.free_count())?,
        )
    })
}

/// Sets the program's data.
///
/// # Safety
/// `inventory` is NULL or live, and used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_set_user_data(
    inventory: *mut doca_buf_inventory,
    user_data: doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise; both views of the union are plain data.
        unsafe { borrow(inventory)?.set_user_data(user_data.u64) };
        Ok(())
    })
}

/// Tells the program's data.
///
/// # Safety
/// `inventory` is NULL or live, and used by no other thread meanwhile; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_get_user_data(
    inventory: *const doca_buf_inventory,
    user_data: *mut doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let data = borrow(inventory)?.user_data();
            put(user_data, doca_data { u64: data })
        }
    })
}

fn count(bufs: usize) -> crate::error::Result<u32> {
    u32::try_from(bufs).map_err(|_| Error::TooBig)
}
