//! What a memory map tells of itself.

use std::ffi::c_void;

use doca_abi::{doca_data, doca_dev, doca_devinfo, doca_mmap, doca_mmap_memrange_free_cb_t};

use super::super::task::put_limit;
use super::super::{borrow, doca_error_t, guard, put, share};
use crate::memory::FreeCallback;

/// Sets the program's data.
///
/// # Safety
/// `mmap` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_set_user_data(
    mmap: *mut doca_mmap,
    user_data: doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise; both views of the union are plain data.
        unsafe { borrow(mmap)?.set_user_data(user_data.u64) };
        Ok(())
    })
}

/// Tells the program's data.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_user_data(
    mmap: *const doca_mmap,
    user_data: *mut doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let data = borrow(mmap)?.user_data();
            put(user_data, doca_data { u64: data })
        }
    })
}

/// Tells how many bufs point into the map; 0 when thread safety is enabled.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_num_bufs(
    mmap: *const doca_mmap,
    num_bufs: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(num_bufs, borrow(mmap)?.buf_count()) })
}

/// Tells whether the map was exported.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_exported(
    mmap: *const doca_mmap,
    exported: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(exported, borrow(mmap)?.is_exported().into()) })
}

/// Tells whether the map is of another process's memory.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_from_export(
    mmap: *const doca_mmap,
    from_export: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(from_export, borrow(mmap)?.is_imported().into()) })
}

/// Every device can.
///
/// # Safety
/// `devinfo` is not followed; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_cap_is_export_pci_supported(
    devinfo: *const doca_devinfo,
    mmap_export: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, mmap_export, 1) }
}

/// Every device can.
///
/// # Safety
/// `devinfo` is not followed; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_cap_is_create_from_export_pci_supported(
    devinfo: *const doca_devinfo,
    from_export: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, from_export, 1) }
}

/// Takes a device off an unstarted map; `DOCA_ERROR_NOT_FOUND` when it was not added.
///
/// # Safety
/// The handles are NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_rm_dev(
    mmap: *mut doca_mmap,
    dev: *mut doca_dev,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(mmap)?.remove_device(&share(dev)?) })
}

/// Sets how many devices can be added to an unstarted map.
///
/// # Safety
/// `mmap` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_set_max_num_devices(
    mmap: *mut doca_mmap,
    max_num_devices: u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(mmap) }?.set_max_devices(max_num_devices))
}

/// Tells how many devices can be added.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_max_num_devices(
    mmap: *const doca_mmap,
    max_num_devices: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(max_num_devices, borrow(mmap)?.max_devices()) })
}

/// Sets what is called with the range when the map is destroyed, if it was started in between; NULL takes it back.
///
/// # Safety
/// `mmap` is NULL or live; `free_cb` is NULL or may be called with the range and `opaque` when the map is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_set_free_cb(
    mmap: *mut doca_mmap,
    free_cb: doca_mmap_memrange_free_cb_t,
    opaque: *mut c_void,
) -> doca_error_t {
    let callback = free_cb.map(|function| FreeCallback {
        function,
        opaque: opaque.expose_provenance(),
    });
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(mmap) }?.set_free_callback(callback))
}
