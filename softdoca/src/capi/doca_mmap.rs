//! `doca_mmap.h`: memory maps.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use doca_abi::{
    doca_data, doca_dev, doca_devinfo, doca_dpa, doca_mmap, doca_mmap_memrange_free_cb_t,
};

use super::{
    Handle, Keeper, borrow, bytes, check_out, doca_error_t, give, guard, put, put_limit, reclaim,
    share,
};
use crate::check::{self, Object};
use crate::error::{Error, Result};
use crate::memory::{ExportKind, FreeCallback, Mmap, Permissions};

// SAFETY: given out by `give`.
unsafe impl Handle for doca_mmap {
    type Engine = Mmap;

    const KEEPER: Keeper = Keeper::Arc;
}

/// Creates a memory map.
///
/// # Safety
/// `mmap` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_create(mmap: *mut *mut doca_mmap) -> doca_error_t {
    guard(|| {
        check_out(mmap)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(mmap, give(Arc::new(Mmap::new()))) }?;
        check::created(Object::Mmap);
        Ok(())
    })
}

/// Creates a memory map of another process's memory.
///
/// # Safety
/// `user_data` is NULL or readable, `export_desc` NULL or readable for `export_desc_len` bytes, `dev` NULL or live, `mmap` NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_create_from_export(
    user_data: *const doca_data,
    export_desc: *const c_void,
    export_desc_len: usize,
    dev: *mut doca_dev,
    mmap: *mut *mut doca_mmap,
) -> doca_error_t {
    guard(|| {
        check_out(mmap)?;
        // SAFETY: guaranteed by the caller.
        let (descriptor, device) =
            unsafe { (bytes(export_desc.cast(), export_desc_len)?, share(dev)?) };
        let imported = Mmap::import(descriptor, &device)?;
        if !user_data.is_null() {
            // SAFETY: guaranteed by the caller; both views of the union are plain data.
            imported.set_user_data(unsafe { (*user_data).u64 })?;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { put(mmap, give(Arc::new(imported))) }?;
        check::created(Object::Mmap);
        Ok(())
    })
}

/// Destroys a memory map; `DOCA_ERROR_NOT_PERMITTED` while bufs of it exist, unless it is thread safe. Then calls the
/// callback of [`doca_mmap_set_free_cb`].
///
/// # Safety
/// `mmap` is NULL or live, and invalid after success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_destroy(mmap: *mut doca_mmap) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(mmap) }?.check_no_bufs()?;
        // SAFETY: guaranteed by the caller.
        let mmap = unsafe { reclaim(mmap) }?;
        // Bufs of a thread-safe map may keep it alive, but must no longer use it.
        mmap.withdraw();
        mmap.release_devices();
        check::destroyed(Object::Mmap);
        if let (Some(free), Ok((addr, len))) = (mmap.take_free_callback(), mmap.memrange()) {
            // SAFETY: the program set the callback and its last argument for this call. The map is destroyed, and no
            // lock is held: the callback may free the range and use the API.
            unsafe {
                (free.function)(
                    std::ptr::with_exposed_provenance_mut(addr as usize),
                    len as usize,
                    std::ptr::with_exposed_provenance_mut(free.opaque),
                );
            }
        }
        Ok(())
    })
}

/// Starts the map, whose range can then be used.
///
/// # Safety
/// `mmap` is NULL or live, and no thread writes to the range during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_start(mmap: *mut doca_mmap) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(mmap) }?.start())
}

/// Stops the map: its range can no longer be used, and its exports become invalid.
///
/// # Safety
/// `mmap` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_stop(mmap: *mut doca_mmap) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(mmap) }?.stop())
}

/// Adds a device.
///
/// # Safety
/// The handles are NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_add_dev(
    mmap: *mut doca_mmap,
    dev: *mut doca_dev,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(mmap)?.add_device(&share(dev)?) })
}

/// Sets the range, once.
///
/// # Safety
/// `mmap` is NULL or live; the range stays valid while the map is started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_set_memrange(
    mmap: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(mmap) }?.set_memrange(addr.expose_provenance() as u64, len as u64))
}

/// Gets the range; that of the exporter for an imported map.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameters are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_memrange(
    mmap: *const doca_mmap,
    addr: *mut *mut c_void,
    len: *mut usize,
) -> doca_error_t {
    guard(|| {
        check_out(addr)?;
        check_out(len)?;
        // SAFETY: guaranteed by the caller. Addresses and lengths originate from pointers and sizes on this machine.
        unsafe {
            let (first, size) = borrow(mmap)?.memrange()?;
            put(addr, std::ptr::with_exposed_provenance_mut(first as usize))?;
            put(len, size as usize)
        }
    })
}

/// Sets the permissions.
///
/// # Safety
/// `mmap` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_set_permissions(
    mmap: *mut doca_mmap,
    access_mask: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(mmap) }?.set_permissions(Permissions::from_mask(access_mask)?))
}

/// Allows several threads to use the map while bufs of it exist.
///
/// # Safety
/// `mmap` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_enable_thread_safety(mmap: *mut doca_mmap) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(mmap) }?.enable_thread_safety())
}

/// # Safety
/// The handles are NULL or live; the out-parameters are NULL or writable.
unsafe fn export(
    kind: ExportKind,
    mmap: *mut doca_mmap,
    dev: *const doca_dev,
    export_desc: *mut *const c_void,
    export_desc_len: *mut usize,
) -> Result<()> {
    check_out(export_desc)?;
    check_out(export_desc_len)?;
    // SAFETY: guaranteed by the caller. The map keeps the descriptor until it is stopped, as DOCA specifies.
    unsafe {
        let descriptor = borrow(mmap)?.export(kind, &share(dev)?)?;
        put(export_desc, descriptor.as_ptr().cast())?;
        put(export_desc_len, descriptor.len())
    }
}

/// Export descriptor for a device across PCIe, valid until the map is stopped.
///
/// # Safety
/// The handles are NULL or live; the out-parameters are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_export_pci(
    mmap: *mut doca_mmap,
    dev: *const doca_dev,
    export_desc: *mut *const c_void,
    export_desc_len: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { export(ExportKind::Pci, mmap, dev, export_desc, export_desc_len) })
}

/// Export descriptor for RDMA peers, valid until the map is stopped.
///
/// # Safety
/// The handles are NULL or live; the out-parameters are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_export_rdma(
    mmap: *mut doca_mmap,
    dev: *const doca_dev,
    export_desc: *mut *const c_void,
    export_desc_len: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { export(ExportKind::Rdma, mmap, dev, export_desc, export_desc_len) })
}

/// Sets the user data.
///
/// # Safety
/// `mmap` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_set_user_data(
    mmap: *mut doca_mmap,
    user_data: doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller; both views of the union are plain data.
    guard(|| unsafe { borrow(mmap)?.set_user_data(user_data.u64) })
}

/// Gets the user data.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_user_data(
    mmap: *const doca_mmap,
    user_data: *mut doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let data = borrow(mmap)?.user_data();
            put(user_data, doca_data { u64: data })
        }
    })
}

/// Gets the number of bufs of the map; 0 if thread safety is enabled.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_num_bufs(
    mmap: *const doca_mmap,
    num_bufs: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(num_bufs, borrow(mmap)?.buf_count()) })
}

/// Checks if the map was exported.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_exported(
    mmap: *const doca_mmap,
    exported: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(exported, borrow(mmap)?.is_exported().into()) })
}

/// Checks if the map was imported.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_from_export(
    mmap: *const doca_mmap,
    from_export: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(from_export, borrow(mmap)?.is_imported().into()) })
}

/// `DOCA_SUCCESS` for every device.
///
/// # Safety
/// `devinfo` is not dereferenced; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_cap_is_export_pci_supported(
    devinfo: *const doca_devinfo,
    mmap_export: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, mmap_export, 1) }
}

/// `DOCA_SUCCESS` for every device.
///
/// # Safety
/// `devinfo` is not dereferenced; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_cap_is_create_from_export_pci_supported(
    devinfo: *const doca_devinfo,
    from_export: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, from_export, 1) }
}

/// Removes a device from a stopped map; `DOCA_ERROR_NOT_FOUND` if it was not added.
///
/// # Safety
/// The handles are NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_rm_dev(
    mmap: *mut doca_mmap,
    dev: *mut doca_dev,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(mmap)?.remove_device(&share(dev)?) })
}

/// Sets the maximum number of devices of a stopped map.
///
/// # Safety
/// `mmap` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_set_max_num_devices(
    mmap: *mut doca_mmap,
    max_num_devices: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(mmap) }?.set_max_devices(max_num_devices))
}

/// Gets the maximum number of devices.
///
/// # Safety
/// `mmap` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_get_max_num_devices(
    mmap: *const doca_mmap,
    max_num_devices: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(max_num_devices, borrow(mmap)?.max_devices()) })
}

/// Sets the callback for the range when the map is destroyed, called only if the map was started; NULL removes it.
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
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(mmap) }?.set_free_callback(callback))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca needs memory that the CPU can access, which a DMA-BUF need not be.
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
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(mmap) }?;
        Err(Error::NotSupported.because("softdoca does not map DMA-BUFs"))
    })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// `mmap` is NULL or live; the other pointers are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_dev_get_dpa_handle(
    mmap: *mut doca_mmap,
    _dev: *const doca_dev,
    _dpa_mmap_handle: *mut u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(mmap) }?;
        Err(Error::NotSupported.because("softdoca has no DPA"))
    })
}

doca_abi::check_definitions!(doca_mmap_functions, crate::capi::doca_mmap);

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut};

    use doca_abi::{
        DOCA_ACCESS_FLAG_PCI_READ_ONLY, DOCA_ACCESS_FLAG_PCI_READ_WRITE,
        DOCA_ACCESS_FLAG_RDMA_READ, DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_NOT_FOUND,
        DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS,
    };

    use super::*;
    use crate::device::Device;

    /// An open device, closed on drop.
    struct Dev(*mut doca_dev);

    impl Dev {
        fn open() -> Dev {
            Dev(give(Device::open_by_name("mlx5_0").unwrap()))
        }
    }

    impl Drop for Dev {
        fn drop(&mut self) {
            // SAFETY: ours, and not used afterwards.
            drop(unsafe { reclaim(self.0) });
        }
    }

    #[test]
    fn a_map_is_exported_and_imported() {
        let (dev, mut memory) = (Dev::open(), vec![5_u8; 8192]);
        let (mut mmap, mut imported, mut again) = (null_mut(), null_mut(), null_mut());
        let (mut desc, mut same, mut len, mut size) = (null(), null(), 0, 0);
        let mut addr = null_mut();
        let flags = DOCA_ACCESS_FLAG_PCI_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ;
        // SAFETY: live handles and out-pointers; the memory outlives the map.
        unsafe {
            assert_eq!(doca_mmap_create(&mut mmap), DOCA_SUCCESS);
            assert_eq!(doca_mmap_add_dev(mmap, dev.0), DOCA_SUCCESS);
            assert_eq!(
                doca_mmap_set_memrange(mmap, memory.as_mut_ptr().cast(), 8192),
                DOCA_SUCCESS
            );
            assert_eq!(
                doca_mmap_set_permissions(mmap, flags | 0x100),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                doca_mmap_set_permissions(mmap, flags | DOCA_ACCESS_FLAG_PCI_READ_ONLY),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(doca_mmap_set_permissions(mmap, flags), DOCA_SUCCESS);
            assert_eq!(doca_mmap_enable_thread_safety(mmap), DOCA_SUCCESS);
            assert_eq!(
                doca_mmap_export_pci(mmap, dev.0, &mut desc, &mut len),
                DOCA_ERROR_NOT_PERMITTED
            );
            assert_eq!(doca_mmap_start(mmap), DOCA_SUCCESS);
            assert_eq!(
                doca_mmap_export_pci(mmap, dev.0, &mut desc, &mut len),
                DOCA_SUCCESS
            );
            assert_eq!(
                doca_mmap_export_pci(mmap, dev.0, &mut same, &mut size),
                DOCA_SUCCESS
            );
            assert_eq!((desc, len), (same, size));
            assert!(len <= 512);

            let user_data = doca_data { u64: 77 };
            assert_eq!(
                doca_mmap_create_from_export(&user_data, desc, len, dev.0, &mut imported),
                DOCA_SUCCESS
            );
            assert_eq!(borrow(imported).unwrap().user_data(), 77);
            assert_eq!(doca_mmap_enable_thread_safety(imported), DOCA_SUCCESS);
            assert_eq!(
                doca_mmap_get_memrange(imported, &mut addr, &mut size),
                DOCA_SUCCESS
            );
            assert_eq!((addr.cast(), size), (memory.as_mut_ptr(), 8192));
            let mut byte = 0;
            borrow(imported)
                .unwrap()
                .read_into(addr as u64, &mut byte, 1)
                .unwrap();
            assert_eq!(byte, 5);
            assert_eq!(
                doca_mmap_export_rdma(imported, dev.0, &mut same, &mut size),
                DOCA_SUCCESS
            );
            assert_eq!(
                doca_mmap_create_from_export(null(), same, size, dev.0, &mut again),
                DOCA_SUCCESS
            );
            assert_eq!(
                doca_mmap_export_rdma(again, dev.0, &mut same, &mut size),
                DOCA_ERROR_NOT_PERMITTED
            );
            assert_eq!(doca_mmap_start(imported), DOCA_ERROR_NOT_PERMITTED);
            for map in [again, imported, mmap] {
                assert_eq!(doca_mmap_stop(map), DOCA_SUCCESS);
                assert_eq!(doca_mmap_destroy(map), DOCA_SUCCESS);
            }
        }
    }

    #[test]
    fn bad_descriptors_and_pointers_are_refused() {
        let (dev, mut mmap, mut len) = (Dev::open(), null_mut(), 0);
        let garbage = [0_u8; 96];
        // SAFETY: NULL, or live handles and readable bytes.
        unsafe {
            let import = |desc: *const u8, len, dev, out| {
                doca_mmap_create_from_export(null(), desc.cast(), len, dev, out)
            };
            for (desc, len) in [
                (garbage.as_ptr(), 96),
                (garbage.as_ptr(), 0),
                (null(), 96),
                (garbage.as_ptr(), 7),
            ] {
                assert_eq!(
                    import(desc, len, dev.0, &mut mmap),
                    DOCA_ERROR_INVALID_VALUE
                );
            }
            assert_eq!(
                import(garbage.as_ptr(), 96, null_mut(), &mut mmap),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                import(garbage.as_ptr(), 96, dev.0, null_mut()),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(doca_mmap_create(null_mut()), DOCA_ERROR_INVALID_VALUE);
            assert_eq!(doca_mmap_destroy(null_mut()), DOCA_ERROR_INVALID_VALUE);
            assert_eq!(doca_mmap_create(&mut mmap), DOCA_SUCCESS);
            assert_eq!(
                doca_mmap_set_memrange(mmap, null_mut(), 8),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                doca_mmap_get_memrange(mmap, null_mut(), &mut len),
                DOCA_ERROR_INVALID_VALUE
            );
            let mut byte = 0_u8;
            assert_eq!(
                doca_mmap_set_memrange(mmap, (&raw mut byte).cast(), 1),
                DOCA_SUCCESS
            );
            assert_eq!(
                doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_PCI_READ_WRITE),
                DOCA_SUCCESS
            );
            assert_eq!(doca_mmap_start(mmap), DOCA_SUCCESS);
            assert_eq!(
                doca_mmap_export_pci(mmap, dev.0, &mut null(), &mut len),
                DOCA_ERROR_NOT_FOUND
            );
            assert_eq!(doca_mmap_destroy(mmap), DOCA_SUCCESS, "stops by itself");
        }
    }
}
