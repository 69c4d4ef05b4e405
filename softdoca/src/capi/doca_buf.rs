//! `doca_buf.h`: bufs.

use std::ffi::c_void;

use doca_abi::doca_buf;

use super::{Handle, borrow, check_out, doca_error_t, guard, put};
use crate::buffer::Buf;
use crate::error::Error;

// SAFETY: bufs are given out as pointers into their inventory, where they stay.
unsafe impl Handle for doca_buf {
    type Engine = Buf;
}

/// The C handle of a buf.
pub(super) fn handle(buf: &Buf) -> *mut doca_buf {
    std::ptr::from_ref(buf).cast_mut().cast()
}

/// An address for C. Addresses came from pointers of this machine's processes.
fn pointer(addr: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

/// Writes a number of references for whoever wants to know.
///
/// # Safety
/// `refcount` is NULL or writable.
unsafe fn put_if_wanted(refcount: *mut u16, count: u16) {
    if !refcount.is_null() {
        // SAFETY: not NULL, so writable.
        unsafe { refcount.write(count) };
    }
}

/// Removes a reference; the last one gives the buf, or list, back to its inventory. `refcount` (may be NULL) becomes how many there were.
///
/// # Safety
/// `buf` is NULL or live; `refcount` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_dec_refcount(
    buf: *mut doca_buf,
    refcount: *mut u16,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let before = unsafe { borrow(buf) }?.dec_refcount()?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(refcount, before) };
        Ok(())
    })
}

/// Tells how many bytes the buf covers.
///
/// # Safety
/// `buf` is NULL or live; `len` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_len(buf: *const doca_buf, len: *mut usize) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(len, borrow(buf)?.capacity()) })
}

/// Tells the first address.
///
/// # Safety
/// `buf` is NULL or live; `head` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_head(
    buf: *const doca_buf,
    head: *mut *mut c_void,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(head, pointer(borrow(buf)?.head())) })
}

/// Tells how many bytes of data the buf has.
///
/// # Safety
/// `buf` is NULL or live; `data_len` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_data_len(
    buf: *const doca_buf,
    data_len: *mut usize,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(data_len, borrow(buf)?.data_len()) })
}

/// Tells the first address of the data.
///
/// # Safety
/// `buf` is NULL or live; `data` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_data(
    buf: *const doca_buf,
    data: *mut *mut c_void,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(data, pointer(borrow(buf)?.data())) })
}

/// Moves the data inside the buf, or elsewhere in its map (undefined with DOCA); `DOCA_ERROR_INVALID_VALUE` when it would leave the map.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_set_data(
    buf: *mut doca_buf,
    data: *mut c_void,
    data_len: usize,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(buf) }?.set_data(data.addr() as u64, data_len))
}

/// Makes the data empty; it still begins at the same address.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_reset_data_len(buf: *mut doca_buf) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(buf) }?.reset_data_len();
        Ok(())
    })
}

/// Tells the next buf of the list, NULL after the last.
///
/// # Safety
/// `buf` is NULL or live; `next_buf` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_next_in_list(
    buf: *mut doca_buf,
    next_buf: *mut *mut doca_buf,
) -> doca_error_t {
    guard(|| {
        check_out(next_buf)?;
        // SAFETY: the caller's promise.
        unsafe {
            put(
                next_buf,
                borrow(buf)?
                    .next_in_list()
                    .map_or(std::ptr::null_mut(), handle),
            )
        }
    })
}

/// Appends one list to another.
///
/// # Safety
/// The handles are NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_chain_list(
    list1: *mut doca_buf,
    list2: *mut doca_buf,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(list1)?.chain(borrow(list2)?) })
}

/// Adds a reference. `refcount` (may be NULL) becomes how many there were.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inc_refcount(
    buf: *mut doca_buf,
    refcount: *mut u16,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let before = unsafe { borrow(buf) }?.inc_refcount()?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(refcount, before) };
        Ok(())
    })
}

/// Tells how many references there are.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_refcount(
    buf: *const doca_buf,
    refcount: *mut u16,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(refcount, borrow(buf)?.refcount()) })
}

/// Changes the length of the data; `DOCA_ERROR_INVALID_VALUE` when it would leave the buf's map.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_set_data_len(
    buf: *mut doca_buf,
    data_len: usize,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(buf)?.set_data_len(data_len) })
}

/// Tells the last buf of the list.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_last_in_list(
    buf: *mut doca_buf,
    last_buf: *mut *mut doca_buf,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(last_buf, handle(borrow(buf)?.last_in_list())) })
}

/// Tells whether no buf follows.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_is_last_in_list(
    buf: *const doca_buf,
    is_last: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(is_last, borrow(buf)?.next_in_list().is_none().into()) })
}

/// Tells whether no buf comes before.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_is_first_in_list(
    buf: *const doca_buf,
    is_first: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(is_first, borrow(buf)?.is_first_in_list().into()) })
}

/// Tells whether the buf is chained to others.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_is_in_list(
    buf: *const doca_buf,
    is_in_list: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(is_in_list, borrow(buf)?.is_in_list().into()) })
}

/// Tells how many bufs the list has; `DOCA_ERROR_NOT_PERMITTED` for a buf inside of a list.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_list_len(
    buf: *const doca_buf,
    num_elements: *mut u32,
) -> doca_error_t {
    guard(|| {
        check_out(num_elements)?;
        // SAFETY: the caller's promise.
        let buf = unsafe { borrow(buf) }?;
        if !buf.is_first_in_list() {
            return Err(Error::NotPermitted.because("expected the first buf of a list"));
        }
        let count = u32::try_from(buf.list().count()).map_err(|_| Error::TooBig)?;
        // SAFETY: the caller's promise.
        unsafe { put(num_elements, count) }
    })
}

/// As [`doca_buf_chain_list`](doca_buf_chain_list); the list's last buf must be the given one.
///
/// # Safety
/// The handles are NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_chain_list_tail(
    list1_head: *mut doca_buf,
    list1_tail: *mut doca_buf,
    list2: *mut doca_buf,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let (head, tail, other) =
            unsafe { (borrow(list1_head)?, borrow(list1_tail)?, borrow(list2)?) };
        if !std::ptr::eq(head.last_in_list(), tail) {
            return Err(
                Error::InvalidValue.because("expected the last buf of the list as its tail")
            );
        }
        head.chain(other)
    })
}

/// Takes a list off the end of another one.
///
/// # Safety
/// The handles are NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_unchain_list(
    list1: *mut doca_buf,
    list2: *mut doca_buf,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(list1)?.unchain(borrow(list2)?) })
}

doca_abi::check_definitions!(doca_buf_functions, crate::capi::doca_buf);
