//! `doca_buf_array.h`: arrays of bufs for GPUs and the DPA, which softdoca does not emulate: an array can be created
//! and configured, but not started.

use std::cell::RefCell;
use std::sync::Arc;

use doca_abi::{doca_buf_arr, doca_dpa, doca_gpu, doca_gpu_buf_arr, doca_mmap};

use super::{Handle, borrow, check_out, doca_error_t, guard, not_null, put, share};
use crate::error::{Error, Result};
use crate::memory::Mmap;

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

/// `DOCA_ERROR_BAD_STATE`: an array is started for a GPU or the DPA, neither of which can be set.
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

/// Does nothing: an array cannot be started.
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

doca_abi::check_definitions!(doca_buf_array_functions, crate::capi::doca_buf_array);
