//! `doca_dev.h`: devices and representors.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use doca_abi::{
    DOCA_DEVINFO_IBDEV_NAME_SIZE, DOCA_DEVINFO_IFACE_NAME_SIZE, DOCA_DEVINFO_PCI_ADDR_SIZE,
    DOCA_DEVINFO_REP_FILTER_ALL, DOCA_DEVINFO_REP_FILTER_EMULATED, DOCA_DEVINFO_REP_FILTER_NET,
    DOCA_DEVINFO_REP_PCI_ADDR_SIZE, DOCA_DEVINFO_REP_VUID_SIZE, doca_dev, doca_dev_rep,
    doca_devinfo, doca_devinfo_rep, doca_pci_func_type,
};

use super::{
    Handle, Keeper, borrow, check_out, doca_error_t, give, guard, guard_with, not_null, put,
    put_limit, put_list, put_text, reclaim, share, take_list, text,
};
use crate::agent::check_network;
use crate::check::{self, Object};
use crate::device::{DevInfo, Device, Representor, RepresentorInfo};
use crate::error::{Error, Result};
use crate::log;
use crate::topology::{RepresentorKind, RepresentorModel};

// SAFETY: list elements are given out by `give`; `doca_dev_as_devinfo` points into a live device.
unsafe impl Handle for doca_devinfo {
    type Engine = DevInfo;

    const KEEPER: Keeper = Keeper::Arc;
}

// SAFETY: given out by `give`.
unsafe impl Handle for doca_dev {
    type Engine = Device;

    const KEEPER: Keeper = Keeper::Arc;
}

// SAFETY: given out by `give`.
unsafe impl Handle for doca_devinfo_rep {
    type Engine = RepresentorInfo;

    const KEEPER: Keeper = Keeper::Arc;
}

// SAFETY: given out by `give`.
unsafe impl Handle for doca_dev_rep {
    type Engine = Representor;

    const KEEPER: Keeper = Keeper::Arc;
}

/// Lists objects; `check` counts the list as one object.
///
/// # Safety
/// The out-parameters are NULL or writable.
unsafe fn give_list<H: Handle>(
    objects: Vec<Arc<H::Engine>>,
    list: *mut *mut *mut H,
    count: *mut u32,
) -> Result<()> {
    check_out(list)?;
    check_out(count)?;
    // SAFETY: guaranteed by the caller.
    unsafe { put_list(objects.into_iter().map(give::<H>), list, count) }?;
    check::created(Object::List);
    Ok(())
}

/// Frees a list created by [`give_list`].
///
/// # Safety
/// `list` is NULL or such an array, not used afterwards.
unsafe fn destroy_list<H: Handle>(list: *mut *mut H) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let handles = unsafe { take_list(list) }?;
    for handle in handles.iter().filter(|handle| !handle.is_null()) {
        // SAFETY: each handle of the list owns a reference.
        drop(unsafe { reclaim(*handle) }?);
    }
    check::destroyed(Object::List);
    Ok(())
}

/// Lists the devices.
///
/// # Safety
/// The out-parameters are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_create_list(
    dev_list: *mut *mut *mut doca_devinfo,
    nb_devs: *mut u32,
) -> doca_error_t {
    guard(|| {
        log::read_environment();
        // SAFETY: guaranteed by the caller.
        unsafe { give_list::<doca_devinfo>(DevInfo::list()?, dev_list, nb_devs) }
    })
}

/// Frees a list of devices.
///
/// # Safety
/// `dev_list` is NULL or from [`doca_devinfo_create_list`]; it and its elements are not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_destroy_list(
    dev_list: *mut *mut doca_devinfo,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { destroy_list(dev_list) })
}

/// Lists the representors of a device.
///
/// # Safety
/// `dev` is NULL or a live device; the out-parameters are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_create_list(
    dev: *mut doca_dev,
    filter: c_int,
    dev_list_rep: *mut *mut *mut doca_devinfo_rep,
    nb_devs_rep: *mut u32,
) -> doca_error_t {
    const BOTH: u32 = DOCA_DEVINFO_REP_FILTER_NET | DOCA_DEVINFO_REP_FILTER_EMULATED;
    guard(|| {
        let kind = match u32::try_from(filter) {
            Ok(DOCA_DEVINFO_REP_FILTER_ALL | BOTH) => None,
            Ok(DOCA_DEVINFO_REP_FILTER_NET) => Some(RepresentorKind::Net),
            Ok(DOCA_DEVINFO_REP_FILTER_EMULATED) => Some(RepresentorKind::Emulated),
            _ => {
                return Err(Error::InvalidValue.because(format_args!(
                    "{filter:#x} is no representor filter; expected DOCA_DEVINFO_REP_FILTER_*"
                )));
            }
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            give_list::<doca_devinfo_rep>(
                share(dev)?.representors(kind)?,
                dev_list_rep,
                nb_devs_rep,
            )
        }
    })
}

/// Frees a list of representors.
///
/// # Safety
/// `dev_list_rep` is NULL or from [`doca_devinfo_rep_create_list`]; it and its elements are not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_destroy_list(
    dev_list_rep: *mut *mut doca_devinfo_rep,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { destroy_list(dev_list_rep) })
}

/// Creates a handle of an open device for the program, which closes it.
pub(super) fn give_device(device: Arc<Device>) -> *mut doca_dev {
    device.handle_given();
    check::created(Object::Device);
    give(device)
}

/// Opens a device. Opening the same device again returns the same handle; each open needs a close.
///
/// # Safety
/// `devinfo` is NULL or live; `dev` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dev_open(
    devinfo: *mut doca_devinfo,
    dev: *mut *mut doca_dev,
) -> doca_error_t {
    guard(|| {
        check_out(dev)?;
        // SAFETY: guaranteed by the caller.
        let info = unsafe { borrow(devinfo) }?;
        check_network()?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(dev, give_device(Device::open(info))) }
    })
}

/// Closes a device: `DOCA_ERROR_IN_USE` if this is the last close and a running context or a started map uses it. Other
/// objects created from it stay valid.
///
/// NULL is accepted: no error is documented for it, and programs close handles that they have already closed and
/// cleared.
///
/// # Safety
/// `dev` is NULL or live; one open of it is undone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dev_close(dev: *mut doca_dev) -> doca_error_t {
    guard(|| {
        if dev.is_null() {
            return Ok(());
        }
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(dev) }?.handle_returned()?;
        // SAFETY: guaranteed by the caller.
        unsafe { reclaim(dev) }.map(drop)?;
        check::destroyed(Object::Device);
        Ok(())
    })
}

/// Opens a representor.
///
/// # Safety
/// `devinfo` is NULL or live; `dev_rep` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dev_rep_open(
    devinfo: *mut doca_devinfo_rep,
    dev_rep: *mut *mut doca_dev_rep,
) -> doca_error_t {
    guard(|| {
        check_out(dev_rep)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(dev_rep, give(Representor::open(&share(devinfo)?))) }?;
        check::created(Object::Representor);
        Ok(())
    })
}

/// Closes a representor: `DOCA_ERROR_IN_USE` while a server on it runs.
///
/// # Safety
/// `dev` is NULL or live, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dev_rep_close(dev: *mut doca_dev_rep) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(dev) }?.handle_returned()?;
        // SAFETY: guaranteed by the caller.
        unsafe { reclaim(dev) }.map(drop)?;
        check::destroyed(Object::Representor);
        Ok(())
    })
}

/// The device information of an open device; valid as long as the device is open. NULL for NULL.
///
/// # Safety
/// `dev` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dev_as_devinfo(dev: *const doca_dev) -> *mut doca_devinfo {
    guard_with(std::ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let device = unsafe { borrow(dev) };
        device.map_or(std::ptr::null_mut(), |device| {
            Arc::as_ptr(device.info()).cast_mut().cast()
        })
    })
}

/// Writes a string to an out-parameter whose minimum size DOCA specifies.
///
/// # Safety
/// `out` is NULL or is writable for `size` bytes.
unsafe fn put_name(out: *mut c_char, size: u32, minimum: usize, name: &str) -> Result<()> {
    let size = size as usize;
    if size < minimum {
        return Err(Error::InvalidValue.because(format_args!(
            "the buffer has {size} bytes, expected at least {minimum}"
        )));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { put_text(out, size, name) }
}

/// Writes the PCI address, 13 bytes with the NUL.
///
/// # Safety
/// `devinfo` is NULL or live; `pci_addr_str` is NULL or is writable for `DOCA_DEVINFO_PCI_ADDR_SIZE` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_pci_addr_str(
    devinfo: *const doca_devinfo,
    pci_addr_str: *mut c_char,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            put_text(
                pci_addr_str,
                DOCA_DEVINFO_PCI_ADDR_SIZE,
                &borrow(devinfo)?.model().pci.to_string(),
            )
        }
    })
}

/// Compares the PCI address with a string, with or without domain.
///
/// # Safety
/// `devinfo` is NULL or live, `pci_addr_str` NULL or a string, `is_equal` NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_is_equal_pci_addr(
    devinfo: *const doca_devinfo,
    pci_addr_str: *const c_char,
    is_equal: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put(
            is_equal,
            borrow(devinfo)?
                .has_pci_address(text(pci_addr_str)?)?
                .into(),
        )
    })
}

/// Writes the name of the network interface.
///
/// # Safety
/// `devinfo` is NULL or live; `iface_name` is NULL or is writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_iface_name(
    devinfo: *const doca_devinfo,
    iface_name: *mut c_char,
    size: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put_name(
            iface_name,
            size,
            DOCA_DEVINFO_IFACE_NAME_SIZE,
            &borrow(devinfo)?.model().iface,
        )
    })
}

/// Writes the name of the RDMA device.
///
/// # Safety
/// `devinfo` is NULL or live; `ibdev_name` is NULL or is writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_ibdev_name(
    devinfo: *const doca_devinfo,
    ibdev_name: *mut c_char,
    size: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put_name(
            ibdev_name,
            size,
            DOCA_DEVINFO_IBDEV_NAME_SIZE,
            &borrow(devinfo)?.model().ibdev,
        )
    })
}

/// Gets the type of the PCI function.
///
/// # Safety
/// `devinfo` is NULL or live; `pci_func_type` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_pci_func_type(
    devinfo: *const doca_devinfo,
    pci_func_type: *mut doca_pci_func_type,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put(
            pci_func_type,
            borrow(devinfo)?.model().function as doca_pci_func_type,
        )
    })
}

/// Gets the index of a scalable function; `DOCA_ERROR_NOT_SUPPORTED` for other functions.
///
/// # Safety
/// `devinfo` is NULL or live; `sf_index` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_sf_index(
    devinfo: *const doca_devinfo,
    sf_index: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put(
            sf_index,
            borrow(devinfo)?
                .model()
                .sf_index
                .ok_or(Error::NotSupported)?,
        )
    })
}

/// Checks if the device lists network representors.
///
/// # Safety
/// `devinfo` is NULL or live; `filter_net_supported` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_cap_is_filter_net_supported(
    devinfo: *const doca_devinfo,
    filter_net_supported: *mut u8,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let representors = unsafe { representors(devinfo) }?;
        let supported = representors
            .iter()
            .any(|representor| representor.kind == RepresentorKind::Net);
        // SAFETY: guaranteed by the caller.
        unsafe { put(filter_net_supported, supported.into()) }
    })
}

/// Writes the vendor unique id of the represented function.
///
/// # Safety
/// `devinfo_rep` is NULL or live; `rep_vuid` is NULL or is writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_vuid(
    devinfo_rep: *const doca_devinfo_rep,
    rep_vuid: *mut c_char,
    size: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put_name(
            rep_vuid,
            size,
            DOCA_DEVINFO_REP_VUID_SIZE,
            &borrow(devinfo_rep)?.model().vuid(),
        )
    })
}

/// Writes the PCI address of the represented function, 13 bytes with the NUL.
///
/// # Safety
/// `devinfo_rep` is NULL or live; `pci_addr_str` is NULL or is writable for `DOCA_DEVINFO_REP_PCI_ADDR_SIZE` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_pci_addr_str(
    devinfo_rep: *const doca_devinfo_rep,
    pci_addr_str: *mut c_char,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            put_text(
                pci_addr_str,
                DOCA_DEVINFO_REP_PCI_ADDR_SIZE,
                &borrow(devinfo_rep)?.model().pci.to_string(),
            )
        }
    })
}

/// Compares the PCI address of the represented function with a string, with or without domain.
///
/// # Safety
/// `devinfo_rep` is NULL or live, `pci_addr_str` NULL or a string, `is_equal` NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_is_equal_pci_addr(
    devinfo_rep: *const doca_devinfo_rep,
    pci_addr_str: *const c_char,
    is_equal: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put(
            is_equal,
            borrow(devinfo_rep)?
                .has_pci_address(text(pci_addr_str)?)?
                .into(),
        )
    })
}

/// The device information of an open representor; valid as long as it is open. NULL for NULL.
///
/// # Safety
/// `dev_rep` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dev_rep_as_devinfo(
    dev_rep: *mut doca_dev_rep,
) -> *mut doca_devinfo_rep {
    guard_with(std::ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let representor = unsafe { borrow(dev_rep) };
        representor.map_or(std::ptr::null_mut(), |representor| {
            Arc::as_ptr(representor.info()).cast_mut().cast()
        })
    })
}

/// Writes an address to a buffer; fails if the buffer is shorter than the address.
///
/// # Safety
/// `out` is NULL or is writable for `size` bytes.
unsafe fn put_bytes(out: *mut u8, size: u32, bytes: &[u8]) -> Result<()> {
    check_out(out)?;
    if (size as usize) < bytes.len() {
        return Err(Error::InvalidValue.because(format_args!(
            "the address has {} bytes, the caller has room for {size}",
            bytes.len()
        )));
    }
    // SAFETY: the caller guarantees that there is enough space.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, bytes.len()) };
    Ok(())
}

/// Writes the IPv4 address of the interface, in network order.
///
/// # Safety
/// `devinfo` is NULL or live; `ipv4_addr` is NULL or is writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_ipv4_addr(
    devinfo: *const doca_devinfo,
    ipv4_addr: *mut u8,
    size: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put_bytes(ipv4_addr, size, &borrow(devinfo)?.model().ipv4.octets()) })
}

/// Writes the hardware address of the interface.
///
/// # Safety
/// `devinfo` is NULL or live; `mac_addr` is NULL or is writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_mac_addr(
    devinfo: *const doca_devinfo,
    mac_addr: *mut u8,
    size: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put_bytes(mac_addr, size, &borrow(devinfo)?.model().mac) })
}

/// Always unsupported.
///
/// # Safety
/// `devinfo` is not dereferenced; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_cap_is_hotplug_manager_supported(
    devinfo: *const doca_devinfo,
    is_hotplug_manager: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, is_hotplug_manager, 0) }
}

/// Always unsupported.
///
/// # Safety
/// `devinfo` is not dereferenced; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_cap_is_notification_moderation_supported(
    devinfo: *const doca_devinfo,
    is_notification_moderation_supported: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, is_notification_moderation_supported, 0) }
}

/// Checks if the device has representors.
///
/// # Safety
/// `devinfo` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_cap_is_filter_all_supported(
    devinfo: *const doca_devinfo,
    filter_all_supported: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(filter_all_supported, representors(devinfo).map(|_| 1)?) })
}

/// Checks if the device has representors.
///
/// # Safety
/// `devinfo` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_cap_is_filter_emulated_supported(
    devinfo: *const doca_devinfo,
    filter_emulated_supported: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(filter_emulated_supported, representors(devinfo).map(|_| 1)?) })
}

/// The representors of a device. A device without representors is not logged as an error, because programs query every
/// device.
///
/// # Errors
/// [`Error::NotSupported`] if it has none.
///
/// # Safety
/// `devinfo` is NULL or live.
unsafe fn representors(devinfo: *const doca_devinfo) -> Result<&'static [RepresentorModel]> {
    // SAFETY: guaranteed by the caller.
    let representors = &unsafe { borrow(devinfo) }?.model().representors;
    match representors.is_empty() {
        true => Err(Error::NotSupported),
        false => Ok(representors),
    }
}

/// Gets the type of the represented PCI function.
///
/// # Safety
/// `devinfo_rep` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_pci_func_type(
    devinfo_rep: *const doca_devinfo_rep,
    pci_func_type: *mut doca_pci_func_type,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
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
/// `devinfo_rep` is NULL or live; `iface_name` is NULL or is writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_iface_name(
    devinfo_rep: *const doca_devinfo_rep,
    iface_name: *mut c_char,
    size: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put_name(
            iface_name,
            size,
            DOCA_DEVINFO_IFACE_NAME_SIZE,
            &borrow(devinfo_rep)?.model().iface,
        )
    })
}

/// Always 0, because hotplugged functions do not exist.
///
/// # Safety
/// `devinfo_rep` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_is_hotplug(
    devinfo_rep: *const doca_devinfo_rep,
    is_hotplug: *mut u8,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            borrow(devinfo_rep)?;
            put(is_hotplug, 0)
        }
    })
}

/// Reported rate in bits per second: that of one port of a BlueField-3. Unrelated to the rate of copies between
/// processes.
pub(super) const ACTIVE_RATE: u64 = 200_000_000_000;

/// Writes the link-local IPv6 address of the interface, in network order.
///
/// # Safety
/// `devinfo` is NULL or live; `ipv6_addr` is NULL or is writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_ipv6_addr(
    devinfo: *const doca_devinfo,
    ipv6_addr: *mut u8,
    size: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put_bytes(
            ipv6_addr,
            size,
            &borrow(devinfo)?.model().link_local().octets(),
        )
    })
}

/// Writes the rate of the port in bits per second: the same constant for all devices.
///
/// # Safety
/// `devinfo` is not dereferenced; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_active_rate(
    devinfo: *const doca_devinfo,
    active_rate: *mut u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, active_rate, ACTIVE_RATE) }
}

/// Writes the VHCA id of the device's function.
///
/// # Safety
/// `devinfo` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_vhca_id(
    devinfo: *const doca_devinfo,
    vhca_id: *mut u16,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(vhca_id, borrow(devinfo)?.model().vhca_id()) })
}

/// Writes the VHCA id of the represented function: that of the host's device.
///
/// # Safety
/// `devinfo_rep` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_rep_get_vhca_id(
    devinfo_rep: *const doca_devinfo_rep,
    vhca_id: *mut u16,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(vhca_id, borrow(devinfo_rep)?.model().vhca_id()) })
}

/// Always unsupported.
///
/// # Safety
/// `devinfo` is not dereferenced; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_cap_is_accelerate_resource_reclaim_supported(
    devinfo: *const doca_devinfo,
    is_accelerate_resource_reclaim: *mut u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, is_accelerate_resource_reclaim, 0) }
}

/// `DOCA_ERROR_NOT_SUPPORTED`: ports are Ethernet, and have no InfiniBand LID.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_lid(
    devinfo: *const doca_devinfo,
    lid: *mut u16,
) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        check_out(lid)?;
        Err(Error::NotSupported.because("the link layer of the port is Ethernet"))
    })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: devices do not support accelerated resource reclaim.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dev_accelerate_resource_reclaim(dev: *mut doca_dev) -> doca_error_t {
    guard(|| {
        not_null(dev)?;
        Err(Error::NotSupported.because("there are no resources whose reclaim takes time"))
    })
}

doca_abi::check_definitions!(doca_dev_functions, crate::capi::doca_dev);

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::null_mut;

    use super::*;

    #[test]
    fn a_program_finds_and_opens_its_devices() {
        let (mut list, mut count) = (null_mut(), 0);
        let (mut dev, mut same, mut reps, mut rep) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        let (mut equal, mut name) = (2, [1 as c_char; 256]);
        // SAFETY: live handles, out-pointers and buffers of the stated sizes.
        unsafe {
            assert_eq!(doca_devinfo_create_list(&mut list, &mut count), 0);
            assert_eq!(count, 2);
            let info = *list;
            assert_eq!(
                doca_devinfo_is_equal_pci_addr(info, c"03:00.0".as_ptr(), &mut equal),
                0
            );
            assert_eq!(equal, 1);
            assert_eq!(
                doca_devinfo_is_equal_pci_addr(info, c"3b:00.0".as_ptr(), &mut equal),
                0
            );
            assert_eq!(equal, 0);
            assert_eq!(
                doca_devinfo_is_equal_pci_addr(info, c"mlx5_0".as_ptr(), &mut equal),
                Error::InvalidValue.code()
            );
            assert_eq!(
                doca_devinfo_get_ibdev_name(info, name.as_mut_ptr(), 63),
                Error::InvalidValue.code()
            );
            assert_eq!(doca_devinfo_get_ibdev_name(info, name.as_mut_ptr(), 64), 0);
            assert_eq!(CStr::from_ptr(name.as_ptr()), c"mlx5_0");
            assert_eq!(doca_devinfo_get_iface_name(info, name.as_mut_ptr(), 256), 0);
            assert_eq!(CStr::from_ptr(name.as_ptr()), c"p0");
            assert_eq!(doca_devinfo_get_pci_addr_str(info, name.as_mut_ptr()), 0);
            assert_eq!(CStr::from_ptr(name.as_ptr()), c"0000:03:00.0");
            let mut value = 9;
            assert_eq!(doca_devinfo_get_pci_func_type(info, &mut value), 0);
            assert_eq!(value, doca_abi::DOCA_PCI_FUNC_TYPE_PF);
            assert_eq!(
                doca_devinfo_get_sf_index(info, &mut value),
                Error::NotSupported.code()
            );
            assert_eq!(
                doca_devinfo_rep_cap_is_filter_net_supported(info, &mut equal),
                0
            );
            assert_eq!(equal, 1);
            assert_eq!(
                doca_devinfo_rep_cap_is_filter_net_supported(*list.add(1), &mut equal),
                Error::NotSupported.code()
            );
            assert_eq!(doca_dev_open(info, &mut dev), 0);
            assert_eq!(doca_dev_open(info, &mut same), 0);
            assert_eq!(dev, same);
            assert_eq!(doca_dev_close(same), 0);
            assert_eq!(doca_devinfo_destroy_list(list), 0);
            assert_eq!(
                doca_devinfo_get_iface_name(doca_dev_as_devinfo(dev), name.as_mut_ptr(), 256),
                0
            );
            assert!(doca_dev_as_devinfo(null_mut()).is_null());
            let net = DOCA_DEVINFO_REP_FILTER_NET as c_int;
            assert_eq!(
                doca_devinfo_rep_create_list(dev, 1, &mut reps, &mut count),
                Error::InvalidValue.code()
            );
            assert_eq!(
                doca_devinfo_rep_create_list(dev, net, &mut reps, &mut count),
                0
            );
            assert_eq!(count, 1);
            assert_eq!(
                doca_devinfo_rep_is_equal_pci_addr(*reps, c"3b:00.0".as_ptr(), &mut equal),
                0
            );
            assert_eq!(equal, 1);
            assert_eq!(
                doca_devinfo_rep_get_pci_addr_str(*reps, name.as_mut_ptr()),
                0
            );
            assert_eq!(CStr::from_ptr(name.as_ptr()), c"0000:3b:00.0");
            assert_eq!(doca_devinfo_rep_get_vuid(*reps, name.as_mut_ptr(), 128), 0);
            assert!(CStr::from_ptr(name.as_ptr()).to_bytes().len() > 8);
            assert_eq!(doca_dev_rep_open(*reps, &mut rep), 0);
            assert_eq!(doca_devinfo_rep_destroy_list(reps), 0);
            assert_eq!(doca_dev_rep_close(rep), 0);
            assert_eq!(doca_dev_close(dev), 0);
        }
    }

    #[test]
    fn null_is_refused() {
        let invalid = Error::InvalidValue.code();
        let (mut dev, mut count) = (null_mut(), 0);
        // SAFETY: NULL is refused, which this test checks.
        unsafe {
            assert_eq!(doca_devinfo_create_list(null_mut(), &mut count), invalid);
            assert_eq!(doca_devinfo_destroy_list(null_mut()), invalid);
            assert_eq!(doca_dev_open(null_mut(), &mut dev), invalid);
            assert_eq!(doca_dev_close(null_mut()), 0);
            assert_eq!(doca_dev_rep_close(null_mut()), invalid);
            assert_eq!(
                doca_devinfo_rep_create_list(null_mut(), 0, null_mut(), &mut count),
                invalid
            );
        }
    }
}
