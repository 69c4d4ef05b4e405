//! `doca_rdma_bridge.h`: the bridge to rdma-core, which supports only real devices.

use doca_abi::{doca_buf, doca_dev, doca_mmap, ibv_pd};

use super::{check_out, doca_error_t, guard, not_null};
use crate::error::{Error, Result};

fn unsupported<O, T>(object: *const O, out: *mut T) -> Result<()> {
    not_null(object)?;
    check_out(out)?;
    Err(Error::NotSupported.because("softdoca's devices and memory do not exist in rdma-core"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_get_dev_pd(
    dev: *const doca_dev,
    pd: *mut *mut ibv_pd,
) -> doca_error_t {
    guard(|| unsupported(dev, pd))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_open_dev_from_pd(
    pd: *mut ibv_pd,
    dev: *mut *mut doca_dev,
) -> doca_error_t {
    guard(|| unsupported(pd, dev))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_get_buf_mkey(
    buf: *const doca_buf,
    _dev: *mut doca_dev,
    mkey: *mut u32,
) -> doca_error_t {
    guard(|| unsupported(buf, mkey))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_get_mmap_mkey_from_pd(
    mmap: *const doca_mmap,
    _pd: *mut ibv_pd,
    mkey: *mut u32,
) -> doca_error_t {
    guard(|| unsupported(mmap, mkey))
}

doca_abi::check_definitions!(doca_rdma_bridge_functions, crate::capi::doca_rdma_bridge);
