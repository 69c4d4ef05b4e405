//! References and lists.

use doca_abi::doca_buf;

use super::super::{borrow, check_out, doca_error_t, guard, put};
use super::{handle, put_if_wanted};
use crate::error::Error;

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

/// As [`doca_buf_chain_list`](super::doca_buf_chain_list); the list's last buf must be the given one.
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
