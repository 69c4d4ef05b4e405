//! Functions that NVIDIA's headers define inline, so that no library has their symbols ([`crate::INLINE_IN_SDK`]).

use doca_abi::*;

use crate::table;

/// Takes a buf over `len` bytes at `addr` without data.
///
/// # Safety
///
/// As for [`crate::doca_buf_inventory_buf_get_by_args`].
#[inline]
pub unsafe fn doca_buf_inventory_buf_get_by_addr(
    inventory: *mut doca_buf_inventory,
    mmap: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { table::doca_buf_inventory_buf_get_by_args(inventory, mmap, addr, len, addr, 0, buf) }
}

/// Takes a buf whose range and data section are `data_len` bytes at `data`.
///
/// # Safety
///
/// As for [`crate::doca_buf_inventory_buf_get_by_args`].
#[inline]
pub unsafe fn doca_buf_inventory_buf_get_by_data(
    inventory: *mut doca_buf_inventory,
    mmap: *mut doca_mmap,
    data: *mut c_void,
    data_len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        table::doca_buf_inventory_buf_get_by_args(
            inventory, mmap, data, data_len, data, data_len, buf,
        )
    }
}

/// Sets a buf's range to `len` bytes at `addr`, without data.
///
/// # Safety
///
/// As for [`crate::doca_buf_inventory_buf_reuse_by_args`].
#[inline]
pub unsafe fn doca_buf_inventory_buf_reuse_by_addr(
    buf: *mut doca_buf,
    addr: *mut c_void,
    len: usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { table::doca_buf_inventory_buf_reuse_by_args(buf, addr, len, addr, 0) }
}

/// Sets a buf's range and data section both to `data_len` bytes at `data`.
///
/// # Safety
///
/// As for [`crate::doca_buf_inventory_buf_reuse_by_args`].
#[inline]
pub unsafe fn doca_buf_inventory_buf_reuse_by_data(
    buf: *mut doca_buf,
    data: *mut c_void,
    data_len: usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { table::doca_buf_inventory_buf_reuse_by_args(buf, data, data_len, data, data_len) }
}

/// Version that these declarations follow, a static string.
#[inline]
pub fn doca_version() -> *const c_char {
    c"3.3.0".as_ptr()
}
