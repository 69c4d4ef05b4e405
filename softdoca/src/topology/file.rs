//! The topology file, in TOML: `README.md` documents its keys, `examples/topology.toml` is an example.
//!
//! Host devices are separate devices: a Comch client opens the device with the address of the server's representor.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde::Deserialize;

use super::Topology;
use super::{DeviceModel, FunctionType, PciAddress, RepresentorKind, RepresentorModel};

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

/// Parses the text of a file; an error is a message with location and reason.
pub(super) fn parse(text: &str) -> Result<Topology, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    if file.version != 1 {
        return Err(format!("version is {}, expected 1", file.version));
    }
    if file.device.is_empty() {
        return Err("there is no [[device]]".to_owned());
    }
    let devices = file
        .device
        .into_iter()
        .map(device)
        .collect::<Result<Vec<_>, _>>()?;
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

fn device(entry: DeviceEntry) -> Result<DeviceModel, String> {
    let iface = entry.iface.unwrap_or_else(|| entry.ibdev.clone());
    let place = format!("device {}", entry.pci);
    name(&place, "ibdev", &entry.ibdev, MAX_IBDEV)?;
    name(&place, "iface", &iface, MAX_IFACE)?;
    let mut model = DeviceModel::new(entry.pci, &entry.ibdev, &iface);
    (model.function, model.sf_index) = function(&place, entry.function, entry.sf_index)?;
    model.ipv4 = entry.ipv4.unwrap_or(model.ipv4);
    model.representors = entry
        .representor
        .into_iter()
        .map(representor)
        .collect::<Result<_, _>>()?;
    Ok(model)
}

fn representor(entry: RepresentorEntry) -> Result<RepresentorModel, String> {
    let mut model = RepresentorModel::new(entry.pci);
    let place = format!("representor {}", entry.pci);
    if let Some(iface) = entry.iface {
        name(&place, "iface", &iface, MAX_IFACE)?;
        model.iface = iface;
    }
    model.kind = entry.kind.unwrap_or(model.kind);
    (model.function, model.sf_index) = function(&place, entry.function, entry.sf_index)?;
    Ok(model)
}

fn function(
    place: &str,
    function: Option<FunctionType>,
    sf_index: Option<u32>,
) -> Result<(FunctionType, Option<u32>), String> {
    let function = function.unwrap_or(FunctionType::Pf);
    match (function, sf_index) {
        (FunctionType::Sf, None) => Err(format!("{place}: function = \"sf\" needs an sf-index")),
        (FunctionType::Pf | FunctionType::Vf, Some(_)) => {
            Err(format!("{place}: sf-index is only for function = \"sf\""))
        }
        _ => Ok((function, sf_index)),
    }
}

fn name(place: &str, key: &str, value: &str, limit: usize) -> Result<(), String> {
    if value.is_empty() || value.len() > limit || value.contains('\0') {
        return Err(format!(
            "{place}: {key} has {} bytes, expected 1 to {limit} without a NUL",
            value.len()
        ));
    }
    Ok(())
}

fn unique(key: &str, values: impl Iterator<Item = String>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for value in values {
        if seen.contains(&value) {
            return Err(format!("two entries have the {key} {value}"));
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
        let topology = parse(include_str!("../../examples/topology.toml")).unwrap();
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
        assert!(replaced("version = 1", "version = 2").contains("expected 1"));
        assert!(replaced("iface = \"p0\"", "ifaec = \"p0\"").contains("ifaec"));
        assert!(
            replaced("iface = \"p0\"", "ifaec = \"p0\"").contains("line 6"),
            "says where"
        );
        assert!(replaced("iface = \"pf0hpf\"", "ifaec = \"x\"").contains("ifaec"));
        assert!(replaced("03:00.0", "3:00.0").contains("no PCI address"));
        assert!(replaced("mlx5_1", "mlx5_0").contains("two entries have the ibdev mlx5_0"));
        assert!(
            replaced("\"0000:3b:00.0\"\nibdev", "\"03:00.0\"\nibdev")
                .contains("two entries have the pci")
        );
        let twice = FULL.replace("[[device.representor]]", REPRESENTOR);
        assert!(
            parse(&twice)
                .unwrap_err()
                .contains("two entries have the representor's pci 0000:3b:00.0")
        );
        assert!(replaced("iface = \"p0\"", "function = \"sf\"").contains("sf-index"));
        assert!(replaced("iface = \"p0\"", "sf-index = 1").contains("sf-index"));
        assert!(replaced("\"p0\"", "\"\"").contains("iface has 0 bytes"));
        assert!(parse("version = 1").unwrap_err().contains("no [[device]]"));
    }
}
