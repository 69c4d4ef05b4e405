//! Where the data path of a context is: in this process.

use doca_abi::{doca_ctx, doca_devinfo, doca_dpa, doca_gpu};

use super::super::task::put_limit;
use super::super::{borrow, doca_error_t, guard};
use crate::error::{Error, Result};

/// Completion vectors of every device.
const VECTORS: u32 = 1;

/// # Safety
/// `ctx` is NULL or a live context, used by no other thread meanwhile.
unsafe fn unsupported(ctx: *mut doca_ctx, what: &str) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { borrow(ctx) }?.expect_idle("the data path is set")?;
    Err(Error::NotSupported.because(format_args!("softdoca has no {what}")))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// `ctx` is NULL or a live context, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_set_datapath_on_gpu(
    ctx: *mut doca_ctx,
    _gpu_dev: *mut doca_gpu,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { unsupported(ctx, "GPU data path") })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// As [`doca_ctx_set_datapath_on_gpu`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_set_datapath_on_dpa(
    ctx: *mut doca_ctx,
    _dpa_dev: *mut doca_dpa,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { unsupported(ctx, "DPA") })
}

/// Tells how many completion vectors a device has: one.
///
/// # Safety
/// `num_comp_vectors` is NULL or writable; `devinfo` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_cap_get_num_completion_vectors(
    devinfo: *const doca_devinfo,
    num_comp_vectors: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, num_comp_vectors, VECTORS) }
}

/// Sets the completion vector of an idle context; there is one to choose from.
///
/// # Safety
/// As [`doca_ctx_set_datapath_on_gpu`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_set_completion_vector(
    ctx: *mut doca_ctx,
    comp_vector: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(ctx) }?.expect_idle("the completion vector is set")?;
        if comp_vector >= VECTORS {
            return Err(Error::InvalidValue.because(format_args!(
                "expected a completion vector below {VECTORS}, got {comp_vector}"
            )));
        }
        Ok(())
    })
}
