//! What there is, without keeping anything open.

use std::net::{Ipv4Addr, Ipv6Addr};

use doca_sys as sys;

use super::{
    Device, DeviceInner, DeviceList, RepresentorList, describe_representor, ibdev_name, iface_name,
    pci_address, read_text,
};
use crate::Result;
use crate::capabilities::Capabilities;
use crate::error::call;

/// A device of this machine.
///
/// ```no_run
/// for device in doca::DeviceInfo::all()? {
///     println!("{} {:?}", device.pci_address, device.ibdev);
/// }
/// # doca::Result::Ok(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// PCI address with domain, e.g. `0000:03:00.0`.
    pub pci_address: String,
    /// RDMA device name, e.g. `mlx5_0`.
    pub ibdev: Option<String>,
    /// Network interface name.
    pub iface: Option<String>,
    /// Address of the network interface.
    pub ipv4: Option<Ipv4Addr>,
    /// Address of the network interface.
    pub ipv6: Option<Ipv6Addr>,
    /// Hardware address of the network interface.
    pub mac: Option<[u8; 6]>,
    /// Functions of the host, as the device of a DPU sees them; none for a host's device.
    pub representors: Vec<RepresentorInfo>,
    /// Libraries that it supports, and their limits.
    pub capabilities: Capabilities,
}

/// A function of the host, as a DPU's device sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepresentorInfo {
    /// PCI address of the function on the host, with domain.
    pub pci_address: String,
    /// Name of the representor's network interface on the DPU.
    pub iface: Option<String>,
    /// Vendor unique identifier of the function.
    pub vuid: Option<String>,
    /// Kind of the function.
    pub function: Option<FunctionType>,
    /// Whether software on the DPU emulates the function; a network function otherwise.
    pub emulated: bool,
}

/// Kinds of PCI functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionType {
    /// Physical function.
    Physical,
    /// Virtual function.
    Virtual,
    /// Scalable function.
    Scalable,
}

impl DeviceInfo {
    /// All devices. Properties that a device does not tell are `None`.
    ///
    /// # Errors
    ///
    /// Whatever the functions that list devices and representors return.
    pub fn all() -> Result<Vec<Self>> {
        let list = DeviceList::new()?;
        list.items().map(describe).collect()
    }
}

pub(super) fn describe(info: *mut sys::doca_devinfo) -> Result<DeviceInfo> {
    Ok(DeviceInfo {
        // SAFETY: `info` is an element of a live list, or of an open device.
        capabilities: unsafe { Capabilities::of(info) },
        pci_address: pci_address(info).unwrap_or_default(),
        ibdev: ibdev_name(info),
        iface: iface_name(info),
        ipv4: read_bytes(|bytes, size| {
            // SAFETY: `info` is an element of a live list, `bytes` has room for `size` bytes.
            unsafe { sys::doca_devinfo_get_ipv4_addr(info, bytes, size) }
        })
        .map(<Ipv4Addr as From<[u8; 4]>>::from),
        ipv6: read_bytes(|bytes, size| {
            // SAFETY: as above.
            unsafe { sys::doca_devinfo_get_ipv6_addr(info, bytes, size) }
        })
        .map(<Ipv6Addr as From<[u8; 16]>>::from),
        mac: read_bytes(|bytes, size| {
            // SAFETY: as above.
            unsafe { sys::doca_devinfo_get_mac_addr(info, bytes, size) }
        }),
        representors: representors(info)?,
    })
}

/// The address that `fill` writes; `None` when it fails.
fn read_bytes<const N: usize>(
    fill: impl FnOnce(*mut u8, u32) -> sys::doca_error_t,
) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let size = u32::try_from(N).ok()?;
    (fill(bytes.as_mut_ptr(), size) == sys::DOCA_SUCCESS).then_some(bytes)
}

fn representors(info: *mut sys::doca_devinfo) -> Result<Vec<RepresentorInfo>> {
    let mut all = Vec::new();
    let filters: [(sys::doca_devinfo_rep_filter, bool, Capability); 2] = [
        (
            sys::DOCA_DEVINFO_REP_FILTER_NET,
            false,
            sys::doca_devinfo_rep_cap_is_filter_net_supported,
        ),
        (
            sys::DOCA_DEVINFO_REP_FILTER_EMULATED,
            true,
            sys::doca_devinfo_rep_cap_is_filter_emulated_supported,
        ),
    ];
    for (filter, emulated, is_supported) in filters {
        let mut supported = 0;
        // SAFETY: `info` is an element of a live list, and the result has a place. A device that cannot tell has none.
        if unsafe { is_supported(info, &mut supported) } != sys::DOCA_SUCCESS || supported == 0 {
            continue;
        }
        let mut dev = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe { call!(doca_dev_open(info, &mut dev)) }?;
        let device = Device {
            inner: DeviceInner::owning(dev)?,
        };
        let list = RepresentorList::new(&device, filter)?;
        all.extend(list.items().map(|info| describe_rep(info, emulated)));
    }
    Ok(all)
}

type Capability = unsafe extern "C" fn(*const sys::doca_devinfo, *mut u8) -> sys::doca_error_t;

fn describe_rep(info: *mut sys::doca_devinfo_rep, emulated: bool) -> RepresentorInfo {
    let mut function = u32::MAX;
    // SAFETY: `info` is an element of a live list, and the result has a place.
    let told = unsafe { sys::doca_devinfo_rep_get_pci_func_type(info, &mut function) };
    RepresentorInfo {
        pci_address: describe_representor(info),
        iface: read_text::<{ sys::DOCA_DEVINFO_IFACE_NAME_SIZE }>(|text, size| {
            // SAFETY: as above; `text` has room for `size` bytes.
            unsafe { sys::doca_devinfo_rep_get_iface_name(info, text, size) }
        }),
        vuid: read_text::<{ sys::DOCA_DEVINFO_REP_VUID_SIZE }>(|text, size| {
            // SAFETY: as above.
            unsafe { sys::doca_devinfo_rep_get_vuid(info, text, size) }
        }),
        function: match function {
            _ if told != sys::DOCA_SUCCESS => None,
            sys::DOCA_PCI_FUNC_TYPE_PF => Some(FunctionType::Physical),
            sys::DOCA_PCI_FUNC_TYPE_VF => Some(FunctionType::Virtual),
            sys::DOCA_PCI_FUNC_TYPE_SF => Some(FunctionType::Scalable),
            _ => None,
        },
        emulated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn representors_are_those_of_the_dpu() {
        let devices = DeviceInfo::all().expect("a list");
        let dpu = devices
            .iter()
            .find(|device| !device.representors.is_empty())
            .expect("a device of a DPU");
        let represented = &dpu.representors[0];
        assert_eq!(represented.function, Some(FunctionType::Physical));
        assert!(!represented.emulated);
        let host = devices
            .iter()
            .find(|device| device.pci_address == represented.pci_address)
            .expect("the host's device");
        assert_ne!(host.mac, dpu.mac);
        assert!(host.ibdev.is_some() && host.ipv4.is_some() && host.ipv6.is_some());
        assert_eq!(host.representors, []);
    }
}
