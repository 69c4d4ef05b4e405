//! Where arrays are for.

use doca_abi::{doca_buf_arr, doca_dpa, doca_gpu, doca_gpu_buf_arr};

use super::super::{doca_error_t, guard, not_null};
use crate::error::{Error, Result};

fn unsupported(buf_arr: *const doca_buf_arr, what: &str) -> Result<()> {
    not_null(buf_arr)?;
    Err(Error::NotSupported.because(format_args!("softdoca has no {what}")))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// Safe for any pointers: they are not followed.
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
/// Safe for any pointers: they are not followed.
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
/// Safe for any pointers: they are not followed.
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
/// Safe for any pointers: they are not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_arr_get_dpa_handle(
    buf_arr: *const doca_buf_arr,
    _dpa_buf_arr: *mut u64,
) -> doca_error_t {
    guard(|| unsupported(buf_arr, "DPA"))
}
