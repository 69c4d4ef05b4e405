//! The emulated devices that every process sees: a built-in pair of a DPU and its host, or those of a file.

mod file;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// Environment variable that names a topology file.
pub const VARIABLE: &str = "SOFTDOCA_TOPOLOGY";

/// All devices of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In the order of device lists.
    pub devices: Vec<DeviceModel>,
}

impl Topology {
    /// The topology of this process: that of the file named by [`VARIABLE`], or the built-in one. Read once.
    ///
    /// # Errors
    /// [`Error::BadConfig`] if the file cannot be read or is invalid; the log says where.
    pub fn get() -> Result<&'static Topology> {
        static CURRENT: Mutex<Option<&'static Topology>> = Mutex::new(None);
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(topology) = *current {
            return Ok(topology);
        }
        let topology = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => Topology::load(Path::new(&path))?,
            None => Topology::built_in(),
        };
        // Leaked once per process, because devices refer to it.
        Ok(*current.insert(Box::leak(Box::new(topology))))
    }

    /// Returns `true` if the topology of this process is that of a file.
    pub fn is_from_file() -> bool {
        std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty())
    }

    /// A DPU at `0000:03:00.0` with one network representor, and the represented host device at `0000:3b:00.0`: the
    /// addresses in NVIDIA's storage guides.
    pub fn built_in() -> Topology {
        let (dpu, host) = (
            PciAddress::new(0, 0x03, 0, 0),
            PciAddress::new(0, 0x3b, 0, 0),
        );
        let mut representor = RepresentorModel::new(host);
        representor.iface = "pf0hpf".to_owned();
        let mut on_dpu = DeviceModel::new(dpu, "mlx5_0", "p0");
        on_dpu.representors.push(representor);
        Topology {
            devices: vec![on_dpu, DeviceModel::new(host, "mlx5_1", "enp59s0f0np0")],
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`Topology::get`].
    pub fn load(path: &Path) -> Result<Topology> {
        let refused = |reason: &dyn std::fmt::Display| {
            Error::BadConfig.because(format_args!("topology file {}: {reason}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| refused(&error))?;
        file::parse(&text).map_err(|reason| refused(&reason))
    }
}

// Model of devices and representors.

/// A PCI address, `domain:bus:device.function`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    domain: u16,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// Creates an address from its parts. `device` is below 32, `function` below 8.
    pub const fn new(domain: u16, bus: u8, device: u8, function: u8) -> PciAddress {
        PciAddress {
            domain,
            bus,
            device,
            function,
        }
    }

    /// Bus, device and function as PCI packs them into 16 bits.
    fn bus_device_function(self) -> u16 {
        u16::from_be_bytes([self.bus, self.device << 3 | self.function])
    }
}

/// DOCA's format: `0000:3b:00.0`.
impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl fmt::Debug for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAPciAddress(String);

impl fmt::Display for NotAPciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no PCI address; expected the form 0000:3b:00.0 or 3b:00.0",
            self.0
        )
    }
}

/// Parses `0000:3b:00.0`, or `3b:00.0` in domain 0; upper or lower case.
impl FromStr for PciAddress {
    type Err = NotAPciAddress;

    fn from_str(text: &str) -> std::result::Result<PciAddress, NotAPciAddress> {
        let parse = || {
            let hex = |digits: &str, width: usize, limit: u32| {
                let exact =
                    digits.len() == width && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                exact
                    .then(|| u32::from_str_radix(digits, 16).ok())
                    .flatten()
                    .filter(|value| *value < limit)
            };
            let (rest, function) = text.rsplit_once('.')?;
            let (rest, device) = rest.rsplit_once(':')?;
            let (domain, bus) = rest.split_once(':').unwrap_or(("0000", rest));
            Some(PciAddress {
                domain: u16::try_from(hex(domain, 4, 0x1_0000)?).ok()?,
                bus: u8::try_from(hex(bus, 2, 0x100)?).ok()?,
                device: u8::try_from(hex(device, 2, 0x20)?).ok()?,
                function: u8::try_from(hex(function, 1, 8)?).ok()?,
            })
        };
        parse().ok_or_else(|| NotAPciAddress(text.to_owned()))
    }
}

impl<'de> serde::Deserialize<'de> for PciAddress {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<PciAddress, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Kind of PCI function, with DOCA's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum FunctionType {
    /// Physical function.
    Pf = 0,
    /// Virtual function.
    Vf = 1,
    /// Scalable function.
    Sf = 2,
}

/// Kind of represented function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepresentorKind {
    /// A network function of the host.
    Net,
    /// A function that software on the DPU emulates.
    Emulated,
}

/// A local device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// Unique among devices.
    pub pci: PciAddress,
    /// RDMA device name, unique among devices.
    pub ibdev: String,
    /// Network interface name, unique among devices.
    pub iface: String,
    /// Kind of PCI function.
    pub function: FunctionType,
    /// Index of a scalable function.
    pub sf_index: Option<u32>,
    /// Address of the interface.
    pub ipv4: Ipv4Addr,
    /// Hardware address of the interface.
    pub mac: [u8; 6],
    /// The host's functions as seen by this device, if it is a DPU's.
    pub representors: Vec<RepresentorModel>,
}

impl DeviceModel {
    /// Creates a physical function with defaults for everything else.
    pub fn new(pci: PciAddress, ibdev: &str, iface: &str) -> DeviceModel {
        DeviceModel {
            pci,
            ibdev: ibdev.to_owned(),
            iface: iface.to_owned(),
            function: FunctionType::Pf,
            sf_index: None,
            ipv4: Ipv4Addr::LOCALHOST,
            // Locally administered, and derived from the PCI address to be unique.
            mac: [
                0x02,
                0x5d,
                pci.domain.to_be_bytes()[1],
                pci.bus,
                pci.device,
                pci.function,
            ],
            representors: Vec::new(),
        }
    }

    /// Vendor unique id: stable, and unique on this machine.
    pub fn vuid(&self) -> String {
        vuid(self.pci, self.function, self.sf_index)
    }

    /// Number of the device's function: bus, device and function in 16 bits, unique within a PCI domain.
    pub fn vhca_id(&self) -> u16 {
        self.pci.bus_device_function()
    }

    /// Link-local IPv6 address of the interface, derived from its hardware address.
    pub fn link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.mac;
        // The universal/local bit is inverted (RFC 4291, appendix A).
        Ipv6Addr::from([
            0xfe,
            0x80,
            0,
            0,
            0,
            0,
            0,
            0,
            a ^ 2,
            b,
            c,
            0xff,
            0xfe,
            d,
            e,
            f,
        ])
    }
}

/// A function of the host, as its DPU sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepresentorModel {
    /// Address of the represented device, on the host.
    pub pci: PciAddress,
    /// Name of the representor's interface on the DPU.
    pub iface: String,
    /// Kind of the function.
    pub kind: RepresentorKind,
    /// Kind of the represented function.
    pub function: FunctionType,
    /// Index of a represented scalable function.
    pub sf_index: Option<u32>,
}

impl RepresentorModel {
    /// Creates a physical network function.
    pub fn new(pci: PciAddress) -> RepresentorModel {
        RepresentorModel {
            pci,
            iface: String::new(),
            kind: RepresentorKind::Net,
            function: FunctionType::Pf,
            sf_index: None,
        }
    }

    /// Vendor unique id of the represented function; equals that of the host's device.
    pub fn vuid(&self) -> String {
        vuid(self.pci, self.function, self.sf_index)
    }

    /// Number of the represented function; equals that of the host's device.
    pub fn vhca_id(&self) -> u16 {
        self.pci.bus_device_function()
    }
}

fn vuid(pci: PciAddress, function: FunctionType, sf_index: Option<u32>) -> String {
    let PciAddress {
        domain,
        bus,
        device,
        function: number,
    } = pci;
    let mut text = format!(
        "SOFTDOCA{domain:04X}{bus:02X}{device:02X}D{number}F{}",
        function as u32
    );
    if let Some(index) = sf_index {
        text.push_str(&format!("S{index}"));
    }
    text
}

#[cfg(test)]
mod model_tests {
    use super::*;

    #[test]
    fn pci_addresses() {
        let address: PciAddress = "0000:3b:00.0".parse().unwrap();
        assert_eq!(address, PciAddress::new(0, 0x3b, 0, 0));
        assert_eq!("3B:00.0".parse(), Ok(address));
        assert_eq!(address.to_string(), "0000:3b:00.0");
        assert_eq!(
            "0001:3b:1f.7".parse(),
            Ok(PciAddress::new(1, 0x3b, 0x1f, 7))
        );
        for wrong in [
            "",
            "3b",
            "3b:00",
            "3b:00.",
            "3b:00.8",
            "3b:20.0",
            "3b:00.00",
            "b:00.0",
            "0:3b:00.0",
            "+b:00.0",
        ] {
            assert!(wrong.parse::<PciAddress>().is_err(), "{wrong}");
        }
        assert!("0000:0000:3b:00.0".parse::<PciAddress>().is_err());
    }
}
