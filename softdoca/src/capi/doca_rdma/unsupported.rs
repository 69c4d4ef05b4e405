//! Data paths that softdoca does not have, and the bridge to rdma-core, which needs a real device.

use std::ffi::c_void;

use doca_abi::{
    doca_dpa_completion, doca_gpu_dev_rdma, doca_rdma, doca_rdma_connection, rdma_cm_id,
};

use super::super::{doca_error_t, guard, not_null};
use crate::error::{Error, Result};

fn unsupported(rdma: *mut doca_rdma, what: &str) -> Result<()> {
    not_null(rdma)?;
    Err(Error::NotSupported.because(format_args!("softdoca has no {what}")))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// Safe for any pointers: they are not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_get_dpa_handle(
    rdma: *mut doca_rdma,
    _dpa_rdma: *mut u64,
) -> doca_error_t {
    guard(|| unsupported(rdma, "DPA"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_dpa_completion_attach(
    rdma: *mut doca_rdma,
    _dpa_comp: *mut doca_dpa_completion,
) -> doca_error_t {
    guard(|| unsupported(rdma, "DPA"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_get_gpu_handle(
    rdma: *mut doca_rdma,
    _gpu_rdma: *mut *mut doca_gpu_dev_rdma,
) -> doca_error_t {
    guard(|| unsupported(rdma, "GPU data path"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca's devices are none of rdma-core's.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_prepare_connection(
    rdma: *mut doca_rdma,
    _cm_id: *mut rdma_cm_id,
    _rdma_connection: *mut *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| unsupported(rdma, "bridge to rdma-core"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca's devices are none of rdma-core's.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_accept(
    rdma: *mut doca_rdma,
    _private_data: *mut c_void,
    _private_data_len: u8,
    _rdma_connection: *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| unsupported(rdma, "bridge to rdma-core"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca's devices are none of rdma-core's.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_established(
    rdma: *mut doca_rdma,
    _rdma_connection: *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| unsupported(rdma, "bridge to rdma-core"))
}
