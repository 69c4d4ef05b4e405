//! Addresses and capabilities.

use std::ffi::c_char;
use std::sync::Arc;

use doca_abi::{
    DOCA_DEVINFO_IFACE_NAME_SIZE, doca_dev_rep, doca_devinfo, doca_devinfo_rep, doca_pci_func_type,
};

use super::super::task::put_limit;
use super::super::{borrow, check_out, doca_error_t, guard, guard_with, put};
use super::put_name;
use crate::error::{Error, Result};

/// What is known of an open representor; lives as long as that is open. NULL for NULL.
///
/// # Safety
/// `dev_rep` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dev_rep_as_devinfo(
    dev_rep: *mut doca_dev_rep,
) -> *mut doca_devinfo_rep {
    guard_with(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let representor = unsafe { borrow(dev_rep) };
        representor.map_or(std::ptr::null_mut(), |representor| {
            Arc::as_ptr(representor.info()).cast_mut().cast()
        })
    })
}

/// Writes an address; the caller must have room for exactly that much, or more.
///
/// # Safety
/// `out` is NULL or has room for `size` bytes.
unsafe fn put_bytes(out: *mut u8, size: u32, bytes: &[u8]) -> Result<()> {
    check_out(out)?;
    if (size as usize) < bytes.len() {
        return Err(Error::InvalidValue.because(format_args!(
            "the address has {} bytes, the caller has room for {size}",
            bytes.len()
        )));
    }
    // SAFETY: there is room for them, by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, bytes.len()) };
    Ok(())
}

/// Writes the IPv4 address of the interface, in network order.
///
/// # Safety
/// `devinfo` is NULL or live; `ipv4_addr` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_ipv4_addr(
    devinfo: *const doca_devinfo,
    ipv4_addr: *mut u8,
    size: u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put_bytes(ipv4_addr, size, &borrow(devinfo)?.model().ipv4.octets()) })
}

/// Writes the hardware address of the interface.
///
/// # Safety
/// `devinfo` is NULL or live; `mac_addr` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_mac_addr(
    devinfo: *const doca_devinfo,
    mac_addr: *mut u8,
    size: u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put_bytes(mac_addr, size, &borrow(devinfo)?.model().mac) })
}

/// No device can.
///
/// # Safety
/// `devinfo` is not followed; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_cap_is_hotplug_manager_supported(
    devinfo: *const doca_devinfo,
    is_hotplug_manager: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, is_hotplug_manager, 0) }
}

/// No device can.
///
/// # Safety
/// `devinfo` is not followed; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_cap_is_notification_moderation_supported(
    devinfo: *const doca_devinfo,
    is_notification_moderation_supported: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, is_notification_moderation_supported, 0) }
}

/// Tells whether the device has representors.
///
/// # Safety
/// `devinfo` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_cap_is_filter_all_supported(
    devinfo: *const doca_devinfo,
    filter_all_supported: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(filter_all_supported, has_representors(devinfo)?) })
}

/// Tells whether the device has representors.
///
/// # Safety
/// `devinfo` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_cap_is_filter_emulated_supported(
    devinfo: *const doca_devinfo,
    filter_emulated_supported: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(filter_emulated_supported, has_representors(devinfo)?) })
}

/// # Safety
/// `devinfo` is NULL or live.
unsafe fn has_representors(devinfo: *const doca_devinfo) -> Result<u8> {
    // SAFETY: the caller's promise.
    let device = unsafe { borrow(devinfo) }?;
    Ok((!device.model().representors.is_empty()).into())
}

/// Tells the kind of the represented function.
///
/// # Safety
/// `devinfo_rep` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_pci_func_type(
    devinfo_rep: *const doca_devinfo_rep,
    pci_func_type: *mut doca_pci_func_type,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(
            pci_func_type,
            borrow(devinfo_rep)?.model().function as doca_pci_func_type,
        )
    })
}

/// Writes the name of the representor's interface.
///
/// # Safety
/// `devinfo_rep` is NULL or live; `iface_name` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_iface_name(
    devinfo_rep: *const doca_devinfo_rep,
    iface_name: *mut c_char,
    size: u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put_name(
            iface_name,
            size,
            DOCA_DEVINFO_IFACE_NAME_SIZE,
            &borrow(devinfo_rep)?.model().iface,
        )
    })
}

/// No function is plugged.
///
/// # Safety
/// `devinfo_rep` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_is_hotplug(
    devinfo_rep: *const doca_devinfo_rep,
    is_hotplug: *mut u8,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            borrow(devinfo_rep)?;
            put(is_hotplug, 0)
        }
    })
}

/// Rate that devices tell: that of one port of a BlueField-3. Copies between processes have none of it.
const ACTIVE_RATE: u64 = 200_000_000_000;

/// Writes the link-local IPv6 address of the interface, in network order.
///
/// # Safety
/// `devinfo` is NULL or live; `ipv6_addr` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_ipv6_addr(
    devinfo: *const doca_devinfo,
    ipv6_addr: *mut u8,
    size: u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put_bytes(
            ipv6_addr,
            size,
            &borrow(devinfo)?.model().link_local().octets(),
        )
    })
}

/// Writes the rate of the port in bits per second: the same for all devices, and not that of copies between processes.
///
/// # Safety
/// `devinfo` is not followed; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_active_rate(
    devinfo: *const doca_devinfo,
    active_rate: *mut u64,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, active_rate, ACTIVE_RATE) }
}

/// Writes the number of the function behind the device.
///
/// # Safety
/// `devinfo` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_vhca_id(
    devinfo: *const doca_devinfo,
    vhca_id: *mut u16,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(vhca_id, borrow(devinfo)?.model().vhca_id()) })
}

/// Writes the number of the represented function: that of the host's device.
///
/// # Safety
/// `devinfo_rep` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_vhca_id(
    devinfo_rep: *const doca_devinfo_rep,
    vhca_id: *mut u16,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(vhca_id, borrow(devinfo_rep)?.model().vhca_id()) })
}

/// No device keeps resources.
///
/// # Safety
/// `devinfo` is not followed; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_cap_is_accelerate_resource_reclaim_supported(
    devinfo: *const doca_devinfo,
    is_accelerate_resource_reclaim: *mut u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(devinfo, is_accelerate_resource_reclaim, 0) }
}
