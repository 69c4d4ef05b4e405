//! Addresses: GIDs of devices, addresses of peers, and the sockets of the instances that listen there.

use std::ffi::{CStr, CString};
use std::net::{Ipv4Addr, Ipv6Addr};

use doca_abi::{
    DOCA_RDMA_ADDR_TYPE_GID, DOCA_RDMA_ADDR_TYPE_IPv4, DOCA_RDMA_ADDR_TYPE_IPv6,
    doca_rdma_addr_type,
};

use crate::error::{Error, Result};
use crate::runtime::named_socket;
use crate::topology::{DeviceModel, Topology};

/// An address as given by the program.
#[derive(Debug)]
pub(crate) struct Address {
    kind: doca_rdma_addr_type,
    text: CString,
    port: u16,
    /// IPv4 as its mapped address.
    host: Ipv6Addr,
    /// `true` for the address of a connection's peer, which is owned by the connection: the program must not destroy
    /// it.
    is_peer: bool,
}

/// Address of a peer, without a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Host {
    kind: doca_rdma_addr_type,
    /// IPv4 as its mapped address.
    ip: Ipv6Addr,
}

impl Host {
    /// Encoded size in bytes.
    const SIZE: usize = 17;

    /// This device's address of the same kind as `called`.
    pub(super) fn of(device: &DeviceModel, called: &Address) -> Host {
        let [local, mapped] = gids(device).map(Ipv6Addr::from);
        let is_mapped = called.host.to_ipv4_mapped().is_some();
        Host {
            kind: called.kind,
            ip: if is_mapped { mapped } else { local },
        }
    }

    pub(super) fn example() -> Host {
        Host {
            kind: DOCA_RDMA_ADDR_TYPE_IPv4,
            ip: Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped(),
        }
    }

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        // The three types are below 256.
        bytes[0] = self.kind as u8;
        bytes[1..].copy_from_slice(&self.ip.octets());
        bytes
    }

    /// # Errors
    /// [`Error::InvalidValue`] for another length, an unknown type, or an invalid IPv4 address.
    pub(super) fn decode(bytes: &[u8]) -> Result<Host> {
        let Some((&[kind], ip)) = bytes.split_first_chunk() else {
            return Err(Error::InvalidValue);
        };
        let ip = <[u8; 16]>::try_from(ip).map_err(|_| Error::InvalidValue)?;
        let host = Host {
            kind: kind.into(),
            ip: ip.into(),
        };
        host.text().map(|_| host)
    }

    /// In the format of a program.
    #[allow(non_upper_case_globals, reason = "names of the C API")]
    fn text(&self) -> Result<String> {
        match self.kind {
            DOCA_RDMA_ADDR_TYPE_IPv4 => {
                let ip = self.ip.to_ipv4_mapped().ok_or(Error::InvalidValue)?;
                Ok(ip.to_string())
            }
            DOCA_RDMA_ADDR_TYPE_IPv6 => Ok(self.ip.to_string()),
            // Never abbreviated.
            DOCA_RDMA_ADDR_TYPE_GID => Ok(self
                .ip
                .segments()
                .map(|segment| format!("{segment:04x}"))
                .join(":")),
            _ => Err(Error::InvalidValue),
        }
    }
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for an unknown kind, text that does not match its kind, or port 0.
    #[allow(non_upper_case_globals, reason = "names of the C API")]
    pub(crate) fn new(kind: doca_rdma_addr_type, text: &CStr, port: u16) -> Result<Address> {
        let utf8 = text.to_str().unwrap_or_default();
        let (expected, host) = match kind {
            DOCA_RDMA_ADDR_TYPE_IPv4 => (
                "an IPv4 address such as 127.0.0.1",
                utf8.parse().ok().map(|ip: Ipv4Addr| ip.to_ipv6_mapped()),
            ),
            DOCA_RDMA_ADDR_TYPE_IPv6 => ("an IPv6 address such as ::1", utf8.parse().ok()),
            DOCA_RDMA_ADDR_TYPE_GID => (
                "a GID such as fe80:0000:0000:0000:005d:03ff:fe00:0000",
                utf8.parse().ok(),
            ),
            other => {
                return Err(Error::InvalidValue.because(format_args!(
                    "expected an address type between {DOCA_RDMA_ADDR_TYPE_IPv4} and {DOCA_RDMA_ADDR_TYPE_GID}, got {other}"
                )));
            }
        };
        let host = host.ok_or_else(|| {
            Error::InvalidValue.because(format_args!("expected {expected}, got {text:?}"))
        })?;
        check_port(port)?;
        Ok(Address {
            kind,
            text: text.to_owned(),
            port,
            host,
            is_peer: false,
        })
    }

    /// Address of a peer that has connected to a port of this side.
    pub(super) fn of_peer(from: Host, port: u16) -> Result<Address> {
        let text = CString::new(from.text()?).map_err(|_| Error::Unexpected)?;
        let address = Address::new(from.kind, &text, port)?;
        Ok(Address {
            is_peer: true,
            ..address
        })
    }

    /// Returns `true` if the address is owned by a connection.
    pub(crate) fn is_peer(&self) -> bool {
        self.is_peer
    }

    pub(crate) fn kind(&self) -> doca_rdma_addr_type {
        self.kind
    }

    pub(crate) fn text(&self) -> &CStr {
        &self.text
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sockets of possible listeners, most likely first: devices with this address, or else all devices. Every address
    /// is treated as local, because programs are also given the machine's own addresses.
    pub(super) fn sockets(&self) -> Result<Vec<String>> {
        let devices = &Topology::get()?.devices;
        let mut found: Vec<&DeviceModel> = devices
            .iter()
            .filter(|device| has_address(device, self.host))
            .collect();
        if found.is_empty() {
            found.extend(devices);
        }
        Ok(found
            .into_iter()
            .map(|device| socket_name(device, self.port))
            .collect())
    }
}

fn has_address(device: &DeviceModel, host: Ipv6Addr) -> bool {
    gids(device).contains(&host.octets())
}

pub(super) fn check_port(port: u16) -> Result<()> {
    if port == 0 {
        return Err(Error::InvalidValue.because("expected a port between 1 and 65535, got 0"));
    }
    Ok(())
}

/// Name of the socket on which an instance on the device accepts requests for the port.
pub(super) fn socket_name(device: &DeviceModel, port: u16) -> String {
    named_socket("rdma", &[&device.pci.to_string(), &port.to_string()])
}

/// GID table of a device: the link-local GID derived from its hardware address, and that of its IPv4 address.
pub(crate) fn gids(device: &DeviceModel) -> [[u8; 16]; 2] {
    [
        device.link_local().octets(),
        device.ipv4.to_ipv6_mapped().octets(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_kind_must_match() {
        let (v4, v6, gid) = (
            DOCA_RDMA_ADDR_TYPE_IPv4,
            DOCA_RDMA_ADDR_TYPE_IPv6,
            DOCA_RDMA_ADDR_TYPE_GID,
        );
        for (kind, text, good) in [
            (v4, c"127.0.0.1", true),
            (v4, c"::1", false),
            (v4, c"127.0.0.1:5", false),
            (v4, c"localhost", false),
            (v4, c"", false),
            (v4, c"\xff", false),
            (v6, c"::1", true),
            (v6, c"127.0.0.1", false),
            (gid, c"0000:0000:0000:0000:0000:ffff:7f00:0001", true),
            (gid, c"mlx5_0", false),
            (3, c"127.0.0.1", false),
        ] {
            let address = Address::new(kind, text, 5);
            assert_eq!(address.is_ok(), good, "{kind} {text:?}");
            if let Ok(address) = address {
                assert_eq!(
                    (address.kind(), address.text(), address.port()),
                    (kind, text, 5)
                );
            }
        }
        assert!(Address::new(v4, c"127.0.0.1", 0).is_err());
    }

    #[test]
    fn address_selects_its_device() {
        let devices = Topology::built_in().devices;
        let address = |kind, text: &CStr| {
            let address = Address::new(kind, text, 7).expect("an address");
            address.sockets().expect("a topology")
        };
        let all: Vec<_> = devices
            .iter()
            .map(|device| socket_name(device, 7))
            .collect();
        assert_eq!(address(DOCA_RDMA_ADDR_TYPE_IPv4, c"127.0.0.1"), all);
        assert_eq!(address(DOCA_RDMA_ADDR_TYPE_IPv4, c"192.168.7.7"), all);
        assert_eq!(address(DOCA_RDMA_ADDR_TYPE_IPv6, c"::ffff:127.0.0.1"), all);
        let own = Ipv6Addr::from(gids(&devices[1])[0]).to_string();
        let own = CString::new(own).expect("no zero");
        assert_eq!(address(DOCA_RDMA_ADDR_TYPE_GID, &own), all[1..]);
        assert_ne!(socket_name(&devices[0], 7), socket_name(&devices[0], 8));
    }

    #[test]
    fn first_gid_identifies_the_device() {
        let topology = Topology::built_in();
        let [a, b] = [0, 1].map(|index| gids(&topology.devices[index]));
        assert_ne!(a[0], b[0]);
        assert!(Ipv6Addr::from(a[0]).is_unicast_link_local());
        assert_eq!(Ipv6Addr::from(a[1]).to_string(), "::ffff:127.0.0.1");
    }
}
