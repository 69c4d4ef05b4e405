//! `doca_buf.h`: bufs and their lists; and `doca_buf_array.h`: arrays of bufs for GPUs and the DPA, which softdoca does
//! not emulate: an array can be created and configured, but not started.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

use doca_abi::{doca_buf, doca_buf_arr, doca_dpa, doca_gpu, doca_gpu_buf_arr, doca_mmap};

use super::{Handle, borrow, check_out, doca_error_t, guard, not_null, put, share};
use crate::buffer::Buf;
use crate::error::{Error, Result};
use crate::memory::Mmap;

// SAFETY: bufs are given out as pointers into their inventory, where they do not move.
unsafe impl Handle for doca_buf {
    type Engine = Buf;
}

/// The C handle of a buf.
pub(super) fn handle(buf: &Buf) -> *mut doca_buf {
    std::ptr::from_ref(buf).cast_mut().cast()
}

/// An address as a pointer for C. Addresses originate from pointers of processes on this machine.
fn pointer(addr: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

/// Writes a reference count if `refcount` is not NULL.
///
/// # Safety
/// `refcount` is NULL or writable.
unsafe fn put_if_wanted(refcount: *mut u16, count: u16) {
    if !refcount.is_null() {
        // SAFETY: not NULL, so writable.
        unsafe { refcount.write(count) };
    }
}

/// Removes a reference; removing the last one returns the buf or list to its inventory. Writes the previous count to `refcount` (may be
/// NULL).
///
/// # Safety
/// `buf` is NULL or live; `refcount` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_dec_refcount(
    buf: *mut doca_buf,
    refcount: *mut u16,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let before = unsafe { borrow(buf) }?.dec_refcount()?;
        // SAFETY: guaranteed by the caller.
        unsafe { put_if_wanted(refcount, before) };
        Ok(())
    })
}

/// Gets the length of the buf's range in bytes.
///
/// # Safety
/// `buf` is NULL or live; `len` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_len(buf: *const doca_buf, len: *mut usize) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(len, borrow(buf)?.capacity()) })
}

/// Gets the buf's first address.
///
/// # Safety
/// `buf` is NULL or live; `head` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_head(
    buf: *const doca_buf,
    head: *mut *mut c_void,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(head, pointer(borrow(buf)?.head())) })
}

/// Gets the length of the data in bytes.
///
/// # Safety
/// `buf` is NULL or live; `data_len` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_data_len(
    buf: *const doca_buf,
    data_len: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(data_len, borrow(buf)?.data_len()) })
}

/// Gets the first address of the data.
///
/// # Safety
/// `buf` is NULL or live; `data` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_data(
    buf: *const doca_buf,
    data: *mut *mut c_void,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(data, pointer(borrow(buf)?.data())) })
}

/// Moves the data inside the buf, or elsewhere in its map (undefined in DOCA); `DOCA_ERROR_INVALID_VALUE` if it would
/// leave the map.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_set_data(
    buf: *mut doca_buf,
    data: *mut c_void,
    data_len: usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf) }?.set_data(data.addr() as u64, data_len))
}

/// Sets the length of the data to 0; its start does not change.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_reset_data_len(buf: *mut doca_buf) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(buf) }?.reset_data_len();
        Ok(())
    })
}

/// Gets the next buf of the list, NULL after the last buf.
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
        // SAFETY: guaranteed by the caller.
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
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(list1)?.chain(borrow(list2)?) })
}

/// Adds a reference. Writes the previous count to `refcount` (may be NULL).
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inc_refcount(
    buf: *mut doca_buf,
    refcount: *mut u16,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let before = unsafe { borrow(buf) }?.inc_refcount()?;
        // SAFETY: guaranteed by the caller.
        unsafe { put_if_wanted(refcount, before) };
        Ok(())
    })
}

/// Gets the reference count.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_refcount(
    buf: *const doca_buf,
    refcount: *mut u16,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(refcount, borrow(buf)?.refcount()) })
}

/// Sets the length of the data; `DOCA_ERROR_INVALID_VALUE` if it would leave the buf's map.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_set_data_len(
    buf: *mut doca_buf,
    data_len: usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf)?.set_data_len(data_len) })
}

/// Gets the last buf of the list.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_get_last_in_list(
    buf: *mut doca_buf,
    last_buf: *mut *mut doca_buf,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(last_buf, handle(borrow(buf)?.last_in_list())) })
}

/// Checks if the buf is the last one of its list.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_is_last_in_list(
    buf: *const doca_buf,
    is_last: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(is_last, borrow(buf)?.next_in_list().is_none().into()) })
}

/// Checks if the buf is the first one of its list.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_is_first_in_list(
    buf: *const doca_buf,
    is_first: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(is_first, borrow(buf)?.is_first_in_list().into()) })
}

/// Checks if the buf is chained to others.
///
/// # Safety
/// `buf` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_is_in_list(
    buf: *const doca_buf,
    is_in_list: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(is_in_list, borrow(buf)?.is_in_list().into()) })
}

/// Gets the number of bufs in the list; `DOCA_ERROR_NOT_PERMITTED` for a buf inside a list.
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
        // SAFETY: guaranteed by the caller.
        let buf = unsafe { borrow(buf) }?;
        if !buf.is_first_in_list() {
            return Err(Error::NotPermitted.because("expected the first buf of a list"));
        }
        let count = u32::try_from(buf.list().count()).map_err(|_| Error::TooBig)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(num_elements, count) }
    })
}

/// As [`doca_buf_chain_list`](doca_buf_chain_list), with the last buf of the list given.
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
        // SAFETY: guaranteed by the caller.
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

/// Splits a list before the given buf.
///
/// # Safety
/// The handles are NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_unchain_list(
    list1: *mut doca_buf,
    list2: *mut doca_buf,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(list1)?.unchain(borrow(list2)?) })
}

doca_abi::check_definitions!(doca_buf_functions, crate::capi::doca_buf);

/// Configuration of an array.
pub(crate) struct BufArray {
    count: usize,
    /// The map, the element size in bytes, and the offset of the first element.
    elements: RefCell<Option<(Arc<Mmap>, usize, u64)>>,
}

// SAFETY: arrays are given out as pointers from `Box::into_raw`.
unsafe impl Handle for doca_buf_arr {
    type Engine = BufArray;
}

impl BufArray {
    fn set_elements(&self, mmap: Arc<Mmap>, size: usize, offset: u64) -> Result<()> {
        let (_, len) = mmap
            .memrange()
            .map_err(|_| Error::InvalidValue.because("the mmap of a buf array has no range yet"))?;
        let bytes = (size as u64).checked_mul(self.count as u64);
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        if size == 0 || end.is_none_or(|end| end > len) {
            return Err(Error::InvalidValue.because(format_args!(
                "an mmap of {len} bytes has no {} elements of {size} bytes from {offset} on",
                self.count
            )));
        }
        *self.elements.borrow_mut() = Some((mmap, size, offset));
        Ok(())
    }
}

/// Creates an array.
///
/// # Safety
/// `buf_arr` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_create(
    num_elem: usize,
    buf_arr: *mut *mut doca_buf_arr,
) -> doca_error_t {
    guard(|| {
        check_out(buf_arr)?;
        if num_elem == 0 {
            return Err(Error::InvalidValue.because("expected at least 1 element, got 0"));
        }
        let array = BufArray {
            count: num_elem,
            elements: RefCell::default(),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { put(buf_arr, Box::into_raw(Box::new(array)).cast()) }
    })
}

/// Destroys an array.
///
/// # Safety
/// `buf_arr` is NULL or live, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_destroy(buf_arr: *mut doca_buf_arr) -> doca_error_t {
    guard(|| {
        check_out(buf_arr)?;
        // SAFETY: from `Box::into_raw` in `doca_buf_arr_create`, and taken back once.
        drop(unsafe { Box::from_raw(buf_arr.cast::<BufArray>()) });
        Ok(())
    })
}

/// Sets the memory of the elements.
///
/// # Safety
/// The handles are NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_set_params(
    buf_arr: *mut doca_buf_arr,
    mmap: *mut doca_mmap,
    elem_size: usize,
    start_offset: u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf_arr)?.set_elements(share(mmap)?, elem_size, start_offset) })
}

/// Returns `DOCA_ERROR_BAD_STATE`: an array can be started only for a GPU or the DPA, neither of which can be set.
///
/// # Safety
/// `buf_arr` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_start(buf_arr: *mut doca_buf_arr) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(buf_arr) }?;
        Err(Error::BadState.because("a buf array is for a GPU or the DPA, and softdoca has none"))
    })
}

/// Has no effect, because an array cannot be started.
///
/// # Safety
/// `buf_arr` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_stop(buf_arr: *mut doca_buf_arr) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf_arr) }.map(drop))
}

fn unsupported(buf_arr: *const doca_buf_arr, what: &str) -> Result<()> {
    not_null(buf_arr)?;
    Err(Error::NotSupported.because(format_args!("softdoca has no {what}")))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_set_target_gpu(
    buf_arr: *mut doca_buf_arr,
    _gpu_handler: *mut doca_gpu,
) -> doca_error_t {
    guard(|| unsupported(buf_arr, "GPU data path"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_set_target_dpa(
    buf_arr: *mut doca_buf_arr,
    _dpa_handler: *mut doca_dpa,
) -> doca_error_t {
    guard(|| unsupported(buf_arr, "DPA"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_get_gpu_handle(
    buf_arr: *const doca_buf_arr,
    _gpu_buf_arr: *mut *mut doca_gpu_buf_arr,
) -> doca_error_t {
    guard(|| unsupported(buf_arr, "GPU data path"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_get_dpa_handle(
    buf_arr: *const doca_buf_arr,
    _dpa_buf_arr: *mut u64,
) -> doca_error_t {
    guard(|| unsupported(buf_arr, "DPA"))
}

doca_abi::check_definitions!(doca_buf_array_functions, crate::capi::doca_buf);
