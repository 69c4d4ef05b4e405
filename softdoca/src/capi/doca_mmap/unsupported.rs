//! Memory that softdoca does not reach.

use std::ffi::{c_int, c_void};

use doca_abi::{doca_dev, doca_dpa, doca_mmap};

use super::super::{borrow, doca_error_t, guard};
use crate::error::Error;

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca works on memory that the CPU reaches, and a DMA-BUF need not be such.
///
/// # Safety
/// `mmap` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_set_dmabuf_memrange(
    mmap: *mut doca_mmap,
    _dmabuf_fd: c_int,
    _addr: *mut c_void,
    _dmabuf_offset: usize,
    _len: usize,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(mmap) }?;
        Err(Error::NotSupported.because("softdoca does not map DMA-BUFs"))
    })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// `mmap` is NULL or live; the other pointers are not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_dev_get_dpa_handle(
    mmap: *mut doca_mmap,
    _dev: *const doca_dev,
    _dpa_mmap_handle: *mut u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(mmap) }?;
        Err(Error::NotSupported.because("softdoca has no DPA"))
    })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// `mmap` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_set_dpa_memrange(
    mmap: *mut doca_mmap,
    _dpa: *mut doca_dpa,
    _dpa_addr: u64,
    _len: usize,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(mmap) }?;
        Err(Error::NotSupported.because("softdoca has no DPA"))
    })
}
