//! Global identifiers of devices.

use crate::topology::DeviceModel;

/// GID table of a device: the link-local GID derived from its hardware address, and that of its IPv4 address.
pub(crate) fn gids(device: &DeviceModel) -> [[u8; 16]; 2] {
    [
        device.link_local().octets(),
        device.ipv4.to_ipv6_mapped().octets(),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use crate::topology::Topology;

    #[test]
    fn first_gid_identifies_the_device() {
        let topology = Topology::built_in();
        let [a, b] = [0, 1].map(|index| gids(&topology.devices[index]));
        assert_ne!(a[0], b[0]);
        assert!(Ipv6Addr::from(a[0]).is_unicast_link_local());
        assert_eq!(Ipv6Addr::from(a[1]).to_string(), "::ffff:127.0.0.1");
    }
}
