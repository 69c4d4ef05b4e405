//! `doca_buf_inventory.h`: pools of bufs.

use std::ffi::c_void;

use doca_abi::{doca_buf, doca_buf_inventory, doca_mmap};

use super::doca_buf::handle;
use super::{Handle, borrow, check_out, doca_error_t, guard, put, share};
use crate::buffer::BufInventory;

// SAFETY: inventories are given out as pointers from `Box::into_raw`.
unsafe impl Handle for doca_buf_inventory {
    type Engine = BufInventory;
}

/// Creates an inventory.
///
/// # Safety
/// `inventory` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_create(
    num_elements: usize,
    inventory: *mut *mut doca_buf_inventory,
) -> doca_error_t {
    guard(|| {
        check_out(inventory)?;
        let created = Box::new(BufInventory::new(num_elements)?);
        // SAFETY: the caller's promise.
        unsafe { put(inventory, Box::into_raw(created).cast()) }
    })
}

/// Destroys an inventory; `DOCA_ERROR_IN_USE` while bufs are out.
///
/// # Safety
/// `inventory` is NULL or live, and dead after success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_destroy(
    inventory: *mut doca_buf_inventory,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(inventory) }?.check_unused()?;
        // SAFETY: from `Box::into_raw` in `doca_buf_inventory_create`, and taken back once.
        drop(unsafe { Box::from_raw(inventory.cast::<BufInventory>()) });
        Ok(())
    })
}

/// Lets bufs be taken.
///
/// # Safety
/// `inventory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_start(
    inventory: *mut doca_buf_inventory,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(inventory) }.map(BufInventory::start))
}

/// Lets no more bufs be taken.
///
/// # Safety
/// `inventory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_stop(
    inventory: *mut doca_buf_inventory,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(inventory) }.map(BufInventory::stop))
}

/// Takes a buf with data.
///
/// # Safety
/// The handles are NULL or live, the inventory used by no other thread meanwhile; `buf` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_get_by_args(
    inventory: *mut doca_buf_inventory,
    mmap: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
    data: *mut c_void,
    data_len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    guard(|| {
        check_out(buf)?;
        // SAFETY: the caller's promise.
        unsafe {
            let (inventory, mmap) = (borrow(inventory)?, share(mmap)?);
            let taken = inventory.get_by_args(
                &mmap,
                addr.addr() as u64,
                len,
                data.addr() as u64,
                data_len,
            )?;
            put(buf, handle(taken))
        }
    })
}

/// Takes a buf without data.
///
/// # Safety
/// As [`doca_buf_inventory_buf_get_by_args`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_get_by_addr(
    inventory: *mut doca_buf_inventory,
    mmap: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { doca_buf_inventory_buf_get_by_args(inventory, mmap, addr, len, addr, 0, buf) }
}

/// Takes a buf of nothing but data.
///
/// # Safety
/// As [`doca_buf_inventory_buf_get_by_args`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_get_by_data(
    inventory: *mut doca_buf_inventory,
    mmap: *mut doca_mmap,
    data: *mut c_void,
    data_len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe {
        doca_buf_inventory_buf_get_by_args(inventory, mmap, data, data_len, data, data_len, buf)
    }
}

/// Aims a buf at other bytes of its memory map; its links to other bufs stay.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_reuse_by_args(
    buf: *mut doca_buf,
    addr: *mut c_void,
    len: usize,
    data: *mut c_void,
    data_len: usize,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let buf = unsafe { borrow(buf) }?;
        buf.reuse_by_args(addr.addr() as u64, len, data.addr() as u64, data_len)
    })
}

/// Aims a buf at other bytes, without data.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_reuse_by_addr(
    buf: *mut doca_buf,
    addr: *mut c_void,
    len: usize,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { doca_buf_inventory_buf_reuse_by_args(buf, addr, len, addr, 0) }
}

/// Aims a buf at other bytes, all of them data.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_reuse_by_data(
    buf: *mut doca_buf,
    data: *mut c_void,
    data_len: usize,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { doca_buf_inventory_buf_reuse_by_args(buf, data, data_len, data, data_len) }
}

doca_abi::check_definitions!(
    doca_buf_inventory_functions,
    crate::capi::doca_buf_inventory
);
