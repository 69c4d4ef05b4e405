//! Raw declarations of the DOCA C API.
//!
//! Types and functions come from the table in [`doca_abi`]. The implementation is chosen at compile time: softdoca,
//! linked as a crate, or with `RUSTFLAGS="--cfg doca_sdk"` the libraries that pkg-config finds. The declarations are
//! the same for both.
//!
//! These functions follow C's rules; use the `doca` crate for a safe interface.

#![allow(non_camel_case_types, reason = "names of the C API")]

// Linked only for its `doca_*` symbols.
#[cfg(not(doca_sdk))]
use softdoca as _;

pub use doca_abi::*;

#[allow(dead_code, reason = "five functions of the table are defined below")]
mod table {
    use doca_abi::*;

    macro_rules! declare {
        ([] header $header:literal; $($(#[doc = $doc:literal])* fn $name:ident($($param:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
            // SAFETY: the signatures are the signatures of the C API; softdoca is checked against the same table when it is compiled.
            unsafe extern "C" {
                $(
                    $(#[doc = $doc])*
                    ///
                    /// # Safety
                    ///
                    /// Pointers must be valid for the function's accesses; handles must be live, and used only by
                    /// threads that may use them.
                    pub fn $name($($param: $ty),*) $(-> $ret)?;
                )*
            }
        };
    }
    doca_abi::doca_functions!(declare);
}

pub use table::*;

// NVIDIA's headers define these functions inline, so that its libraries do not have their symbols ([`INLINE_IN_SDK`]).
// Definitions here take precedence over the glob import of the table.

/// Takes a buf over `len` bytes at `addr` without data.
///
/// # Safety
///
/// As for [`doca_buf_inventory_buf_get_by_args`].
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
/// As for [`doca_buf_inventory_buf_get_by_args`].
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
/// As for [`doca_buf_inventory_buf_reuse_by_args`].
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
/// As for [`doca_buf_inventory_buf_reuse_by_args`].
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
