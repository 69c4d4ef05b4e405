//! `doca-storage sdk devices`.

use std::net::{Ipv4Addr, Ipv6Addr};

use clap::Args;
use doca::{DeviceInfo, FunctionType, RepresentorInfo};
use role_common::outln;
use serde::Serialize;
use tabled::builder::Builder;

use crate::table::{self, Layout};

/// The SDK tells on standard error why it cannot list devices.
const ERRORS: u32 = 30;

#[derive(Debug, Args)]
pub struct Devices {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Device {
    pci: String,
    ibdev: Option<String>,
    iface: Option<String>,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    mac: Option<String>,
    representors: Vec<Representor>,
}

#[derive(Debug, Serialize)]
struct Representor {
    pci: String,
    iface: Option<String>,
    kind: &'static str,
    function: Option<&'static str>,
    vuid: Option<String>,
}

impl Devices {
    pub fn run(&self) -> super::Result<()> {
        doca::set_sdk_log_level(ERRORS)?;
        let devices: Vec<Device> = DeviceInfo::all()?.into_iter().map(Device::from).collect();
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&devices)?);
        } else {
            outln!("{}", table(&devices));
        }
        Ok(())
    }
}

impl From<DeviceInfo> for Device {
    fn from(device: DeviceInfo) -> Self {
        Self {
            pci: device.pci_address,
            ibdev: device.ibdev,
            iface: device.iface,
            ipv4: device.ipv4,
            ipv6: device.ipv6,
            mac: device
                .mac
                .map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":")),
            representors: device
                .representors
                .into_iter()
                .map(Representor::from)
                .collect(),
        }
    }
}

impl From<RepresentorInfo> for Representor {
    fn from(representor: RepresentorInfo) -> Self {
        Self {
            pci: representor.pci_address,
            iface: representor.iface,
            kind: if representor.emulated {
                "emulated"
            } else {
                "net"
            },
            function: representor.function.map(|function| match function {
                FunctionType::Physical => "pf",
                FunctionType::Virtual => "vf",
                FunctionType::Scalable => "sf",
            }),
            vuid: representor.vuid,
        }
    }
}

/// One line for a device, and below it one for each representor.
fn table(devices: &[Device]) -> String {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let mut table = Builder::default();
    table.push_record(["PCI address", "RDMA device", "interface", "IPv4", "MAC"]);
    for device in devices {
        table.push_record([
            device.pci.clone(),
            or_dash(&device.ibdev),
            or_dash(&device.iface),
            or_dash(&device.ipv4.map(|address| address.to_string())),
            or_dash(&device.mac),
        ]);
        for representor in &device.representors {
            table.push_record([
                format!("  {}", representor.pci),
                format!("representor, {}", representor.kind),
                or_dash(&representor.iface),
                "-".to_owned(),
                "-".to_owned(),
            ]);
        }
    }
    let layout = Layout {
        right: &[],
        optional: &[4, 3],
    };
    table::render(table, layout)
}
