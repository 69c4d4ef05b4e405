//! The emulated devices that every process sees: a built-in pair of a DPU and its host, or the devices of a topology
//! file in TOML (`README.md` documents its keys, `examples/topology.toml` is an example).
//!
//! Host devices are separate devices: a Comch client opens the device with the address of the server's representor.

use std::collections::HashSet;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

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
    /// The topology of this process: from the file named by [`VARIABLE`], or the built-in one. Read once.
    ///
    /// # Errors
    /// [`Error::BadConfig`] if the file cannot be read or is invalid; the log contains the position of the error.
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
        parse(&text).map_err(|reason| refused(&reason))
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

    /// Bus, device and function, as encoded by PCI in 16 bits.
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

/// Text that is not a PCI address.
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
    Pf = 0,
    Vf = 1,
    Sf = 2,
}

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
    /// Creates a physical function with defaults for all other properties.
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

/// A function of the host, as seen by its DPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepresentorModel {
    /// Address of the represented device, on the host.
    pub pci: PciAddress,
    /// Name of the representor's interface on the DPU.
    pub iface: String,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default)]
    device: Vec<DeviceEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DeviceEntry {
    pci: PciAddress,
    ibdev: String,
    iface: Option<String>,
    function: Option<FunctionType>,
    sf_index: Option<u32>,
    ipv4: Option<Ipv4Addr>,
    #[serde(default)]
    representor: Vec<RepresentorEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RepresentorEntry {
    pci: PciAddress,
    iface: Option<String>,
    kind: Option<RepresentorKind>,
    function: Option<FunctionType>,
    sf_index: Option<u32>,
}

/// Maximum length of names that `doca_devinfo_get_*` can return, without the NUL.
const MAX_IBDEV: usize = 63;
const MAX_IFACE: usize = 255;

/// Reason why the text of a file is not a valid topology.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Invalid {
    /// Invalid TOML, or a key or value that does not exist.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    #[error("version is {0}, expected 1")]
    Version(u32),
    #[error("there is no [[device]]")]
    NoDevice,
    #[error("two entries have the {key} {value}")]
    Duplicate { key: &'static str, value: String },
    #[error("{0}: function = \"sf\" needs an sf-index")]
    MissingIndex(Place),
    #[error("{0}: sf-index is only for function = \"sf\"")]
    NeedlessIndex(Place),
    #[error("{place}: {key} has {len} bytes, expected 1 to {limit} without a NUL")]
    Name {
        place: Place,
        key: &'static str,
        /// Length in bytes.
        len: usize,
        limit: usize,
    },
}

/// An entry of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Device(PciAddress),
    Representor(PciAddress),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Device(pci) => write!(f, "device {pci}"),
            Place::Representor(pci) => write!(f, "representor {pci}"),
        }
    }
}

/// Parses the text of a file.
fn parse(text: &str) -> std::result::Result<Topology, Invalid> {
    let file: File = toml::from_str(text)?;
    if file.version != 1 {
        return Err(Invalid::Version(file.version));
    }
    if file.device.is_empty() {
        return Err(Invalid::NoDevice);
    }
    let devices = file
        .device
        .into_iter()
        .map(device)
        .collect::<std::result::Result<Vec<_>, _>>()?;
    unique("pci", devices.iter().map(|device| device.pci.to_string()))?;
    unique("ibdev", devices.iter().map(|device| device.ibdev.clone()))?;
    unique("iface", devices.iter().map(|device| device.iface.clone()))?;
    unique(
        "representor's pci",
        devices.iter().flat_map(|device| {
            device
                .representors
                .iter()
                .map(|representor| representor.pci.to_string())
        }),
    )?;
    Ok(Topology { devices })
}

fn device(entry: DeviceEntry) -> std::result::Result<DeviceModel, Invalid> {
    let iface = entry.iface.unwrap_or_else(|| entry.ibdev.clone());
    let place = Place::Device(entry.pci);
    name(place, "ibdev", &entry.ibdev, MAX_IBDEV)?;
    name(place, "iface", &iface, MAX_IFACE)?;
    let mut model = DeviceModel::new(entry.pci, &entry.ibdev, &iface);
    (model.function, model.sf_index) = function(place, entry.function, entry.sf_index)?;
    model.ipv4 = entry.ipv4.unwrap_or(model.ipv4);
    model.representors = entry
        .representor
        .into_iter()
        .map(representor)
        .collect::<std::result::Result<_, _>>()?;
    Ok(model)
}

fn representor(entry: RepresentorEntry) -> std::result::Result<RepresentorModel, Invalid> {
    let mut model = RepresentorModel::new(entry.pci);
    let place = Place::Representor(entry.pci);
    if let Some(iface) = entry.iface {
        name(place, "iface", &iface, MAX_IFACE)?;
        model.iface = iface;
    }
    model.kind = entry.kind.unwrap_or(model.kind);
    (model.function, model.sf_index) = function(place, entry.function, entry.sf_index)?;
    Ok(model)
}

fn function(
    place: Place,
    function: Option<FunctionType>,
    sf_index: Option<u32>,
) -> std::result::Result<(FunctionType, Option<u32>), Invalid> {
    let function = function.unwrap_or(FunctionType::Pf);
    match (function, sf_index) {
        (FunctionType::Sf, None) => Err(Invalid::MissingIndex(place)),
        (FunctionType::Pf | FunctionType::Vf, Some(_)) => Err(Invalid::NeedlessIndex(place)),
        _ => Ok((function, sf_index)),
    }
}

fn name(
    place: Place,
    key: &'static str,
    value: &str,
    limit: usize,
) -> std::result::Result<(), Invalid> {
    if value.is_empty() || value.len() > limit || value.contains('\0') {
        return Err(Invalid::Name {
            place,
            key,
            len: value.len(),
            limit,
        });
    }
    Ok(())
}

fn unique(
    key: &'static str,
    values: impl Iterator<Item = String>,
) -> std::result::Result<(), Invalid> {
    let mut seen = HashSet::new();
    for value in values {
        if seen.contains(&value) {
            return Err(Invalid::Duplicate { key, value });
        }
        seen.insert(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"
version = 1
[[device]]
pci = "03:00.0"
ibdev = "mlx5_0"
iface = "p0"
[[device.representor]]
pci = "0000:3b:00.0"
iface = "pf0hpf"
[[device]]
pci = "0000:3b:00.0"
ibdev = "mlx5_1"
iface = "enp59s0f0np0"
"#;

    /// A second representor of the same function.
    const REPRESENTOR: &str = "[[device.representor]]\npci = \"3b:00.0\"\n[[device.representor]]";

    #[test]
    fn built_in_topology_can_be_expressed_as_a_file() {
        assert_eq!(parse(FULL), Ok(Topology::built_in()));
    }

    #[test]
    fn documented_example_is_parsed() {
        let topology = parse(include_str!("../examples/topology.toml")).unwrap();
        let [first, second, host, virtual_function] = &topology.devices[..] else {
            panic!("expected four devices: {topology:?}");
        };
        assert_eq!(first.pci, PciAddress::new(0, 0xb1, 0, 0));
        assert_eq!(first.ipv4, Ipv4Addr::new(192, 168, 100, 2));
        // Both represented functions of the host exist.
        let represented: Vec<_> = first.representors.iter().map(|rep| rep.pci).collect();
        assert_eq!(represented, [host.pci, virtual_function.pci]);
        assert_eq!(first.representors[1].function, FunctionType::Vf);
        assert_eq!(second.representors[0].kind, RepresentorKind::Emulated);
    }

    #[test]
    fn every_property_can_be_set() {
        let topology = parse(
            r#"
version = 1
[[device]]
pci = "0001:03:00.1"
ibdev = "rocep3"
function = "sf"
sf-index = 4
ipv4 = "10.0.0.7"
[[device.representor]]
pci = "3b:00.2"
kind = "emulated"
function = "vf"
"#,
        )
        .unwrap();
        let device = &topology.devices[0];
        assert_eq!(
            (&*device.iface, device.function, device.sf_index),
            ("rocep3", FunctionType::Sf, Some(4))
        );
        assert_eq!(device.ipv4, Ipv4Addr::new(10, 0, 0, 7));
        assert_eq!(device.representors[0].kind, RepresentorKind::Emulated);
        assert_eq!(device.representors[0].function, FunctionType::Vf);
    }

    #[test]
    fn errors_name_the_mistake() {
        let replaced = |from: &str, to: &str| parse(&FULL.replace(from, to)).unwrap_err();
        let duplicate = |key, value: &str| Invalid::Duplicate {
            key,
            value: value.to_owned(),
        };
        let first = Place::Device(PciAddress::new(0, 3, 0, 0));
        assert_eq!(replaced("version = 1", "version = 2"), Invalid::Version(2));
        // Errors of the parser: position, and the names that the message contains.
        for (from, to, named) in [
            ("iface = \"p0\"", "ifaec = \"p0\"", "ifaec"),
            ("iface = \"pf0hpf\"", "ifaec = \"x\"", "ifaec"),
            ("\"03:00.0\"", "\"3:00.0\"", "\"3:00.0\""),
        ] {
            let text = FULL.replace(from, to);
            let error = match parse(&text).unwrap_err() {
                Invalid::Toml(error) => error,
                other => panic!("{to}: {other}"),
            };
            assert!(error.message().contains(named), "{error}");
            assert_eq!(&text[error.span().unwrap()], named, "{error}");
        }
        assert_eq!(replaced("mlx5_1", "mlx5_0"), duplicate("ibdev", "mlx5_0"));
        assert_eq!(
            replaced("\"0000:3b:00.0\"\nibdev", "\"03:00.0\"\nibdev"),
            duplicate("pci", "0000:03:00.0")
        );
        assert_eq!(
            replaced("[[device.representor]]", REPRESENTOR),
            duplicate("representor's pci", "0000:3b:00.0")
        );
        assert_eq!(
            replaced("iface = \"p0\"", "function = \"sf\""),
            Invalid::MissingIndex(first)
        );
        assert_eq!(
            replaced("iface = \"p0\"", "sf-index = 1"),
            Invalid::NeedlessIndex(first)
        );
        assert_eq!(
            replaced("\"p0\"", "\"\""),
            Invalid::Name {
                place: first,
                key: "iface",
                len: 0,
                limit: MAX_IFACE,
            }
        );
        assert_eq!(parse("version = 1"), Err(Invalid::NoDevice));
    }

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
