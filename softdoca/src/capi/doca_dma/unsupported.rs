//! Data paths that softdoca does not have.

use doca_abi::{doca_dma, doca_gpu_dma};

use super::super::{check_out, doca_error_t, guard, not_null};
use crate::error::Error;

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// Safe for any pointers: they are not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_get_gpu_handle(
    dma: *mut doca_dma,
    gpu_dma: *mut *mut doca_gpu_dma,
) -> doca_error_t {
    guard(|| {
        not_null(dma)?;
        check_out(gpu_dma)?;
        Err(Error::NotSupported.because("softdoca has no GPU data path"))
    })
}
