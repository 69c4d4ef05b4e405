//! Connection details: the opaque bytes of `doca_rdma_export` that the program sends to its peer.
//!
//! ```text
//!    0  6 bytes magic, u16 version
//!    8  u16 transport
//!   10  u16 transport type (`doca_rdma_transport_type`) of the exporting instance
//!   12  u32 permissions (`doca_access_flag`) of the exporting instance
//!   16  address of the exporter's agent (boot id, key)
//!   48  key of the connection
//!   64  in version 2: offer to the network ([`NetworkOffer`])
//! ```
//!
//! Integers are big endian. No process id is included: knowledge of the key grants the connection.

use crate::agent::{AgentAddress, NetworkOffer, Route};
use crate::error::{Error, Result};
use crate::runtime::Key;

const MAGIC: [u8; 6] = *b"SDRDMA";
/// Sizes without and with a network offer.
const VERSIONS: [u16; 2] = [1, 2];
/// Transport: rings in shared memory, or equivalent frames over TCP.
const SHARED_MEMORY: u16 = 1;

/// Connection details of one connection of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionDetails {
    /// Transport type of the exporting instance; the peer's instance must have the same.
    pub transport_type: u16,
    /// Rights granted to the peer, `doca_access_flag` values.
    pub permissions: u32,
    /// Agent to ask for the transport.
    pub agent: AgentAddress,
    /// Key of the transport; can be used once.
    pub key: Key,
    /// Offer for a peer on another machine.
    pub network: Option<NetworkOffer>,
}

impl ConnectionDetails {
    /// Encoded size in bytes without a network offer.
    pub(super) const SIZE: usize = 16 + AgentAddress::SIZE + Key::SIZE;
    /// Largest encoded size in bytes. Programs have buffers of 512.
    pub(super) const LONGEST: usize = Self::SIZE + NetworkOffer::LONGEST;

    /// Route to the peer from this process.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for another machine without a network offer.
    pub(super) fn route(&self) -> Result<Route> {
        self.agent.route(self.network.as_ref())
    }

    pub(super) fn example() -> Result<Self> {
        Ok(Self {
            transport_type: 1,
            permissions: 7,
            agent: AgentAddress::local()?,
            key: Key::from_bytes([7; Key::SIZE]),
            network: None,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        bytes[0..6].copy_from_slice(&MAGIC);
        let version = VERSIONS[usize::from(self.network.is_some())];
        bytes[6..8].copy_from_slice(&version.to_be_bytes());
        bytes[8..10].copy_from_slice(&SHARED_MEMORY.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.transport_type.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.permissions.to_be_bytes());
        bytes[16..16 + AgentAddress::SIZE].copy_from_slice(&self.agent.encode());
        bytes[16 + AgentAddress::SIZE..].copy_from_slice(&self.key.to_bytes());
        if let Some(network) = &self.network {
            bytes.extend_from_slice(&network.encode());
        }
        bytes
    }

    /// Decodes untrusted details.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for malformed details, [`Error::UnsupportedVersion`] for another version,
    /// [`Error::NotSupported`] for another transport or another machine.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let Some((head, rest)) = bytes
            .split_first_chunk::<16>()
            .filter(|(head, _)| head[0..6] == MAGIC)
        else {
            return Err(Error::InvalidValue.because(format_args!(
                "expected RDMA connection details (from doca_rdma_export), got {} other bytes",
                bytes.len()
            )));
        };
        let version = u16::from_be_bytes([head[6], head[7]]);
        if !VERSIONS.contains(&version) {
            return Err(Error::UnsupportedVersion.because(format_args!(
                "the RDMA connection details are of version {version}, expected one of {VERSIONS:?}: run the same softdoca on both sides"
            )));
        }
        let transport = u16::from_be_bytes([head[8], head[9]]);
        if transport != SHARED_MEMORY {
            return Err(Error::NotSupported.because(format_args!(
                "the peer offers RDMA transport {transport}, expected {SHARED_MEMORY} (shared memory)"
            )));
        }
        let whole = |()| {
            Error::InvalidValue.because(format_args!(
                "expected RDMA connection details of {} bytes, and an offer to the network in version 2, got {} bytes",
                Self::SIZE,
                bytes.len()
            ))
        };
        let (rest, offer) = rest
            .split_at_checked(Self::SIZE - head.len())
            .unwrap_or((rest, &[]));
        let network = match version == VERSIONS[1] {
            true => Some(
                NetworkOffer::decode(offer)
                    .ok_or(())
                    .map_err(|()| whole(()))?,
            ),
            false if offer.is_empty() => None,
            false => return Err(whole(())),
        };
        let (agent, key) = rest
            .split_at_checked(AgentAddress::SIZE)
            .unwrap_or((rest, &[]));
        let agent = AgentAddress::decode(agent.try_into().map_err(|_| whole(()))?);
        let key = Key::from_bytes(key.try_into().map_err(|_| whole(()))?);
        agent.route(network.as_ref())?;
        Ok(Self {
            transport_type: u16::from_be_bytes([head[10], head[11]]),
            permissions: u32::from_be_bytes([head[12], head[13], head[14], head[15]]),
            agent,
            key,
            network,
        })
    }
}

/// Encoding of valid details.
pub(crate) fn again(bytes: &[u8]) -> Result<Vec<u8>> {
    ConnectionDetails::decode(bytes).map(|details| details.encode())
}

/// Valid details of a nonexistent connection.
pub(crate) fn examples() -> Result<Vec<Vec<u8>>> {
    let local = ConnectionDetails::example()?;
    let remote = ConnectionDetails {
        network: Some(NetworkOffer::example()),
        ..local
    };
    Ok(vec![local.encode(), remote.encode()])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn details() -> ConnectionDetails {
        ConnectionDetails {
            transport_type: 1,
            permissions: 0x0000_0007,
            agent: AgentAddress::local().expect("an address"),
            key: Key::from_bytes([7; Key::SIZE]),
            network: None,
        }
    }

    #[test]
    fn connection_details_round_trip_within_512_bytes() {
        let bytes = details().encode();
        assert_eq!(ConnectionDetails::decode(&bytes), Ok(details()));
        const { assert!(ConnectionDetails::LONGEST <= 512) };
        let remote = ConnectionDetails {
            network: Some(NetworkOffer::example()),
            ..details()
        };
        let mut bytes = remote.encode();
        assert_eq!(ConnectionDetails::decode(&bytes), Ok(remote));
        bytes[17] ^= 1;
        let elsewhere = ConnectionDetails::decode(&bytes).expect("it is reached over the network");
        assert!(matches!(elsewhere.route(), Ok(Route::Network(_))));
        bytes.pop();
        assert_eq!(ConnectionDetails::decode(&bytes), Err(Error::InvalidValue));
    }

    #[test]
    fn errors_distinguish_kinds_of_wrong_details() {
        let bytes = details().encode();
        let changed = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            ConnectionDetails::decode(&bytes)
        };
        assert_eq!(changed(0), Err(Error::InvalidValue));
        assert_eq!(changed(7), Err(Error::UnsupportedVersion));
        assert_eq!(changed(9), Err(Error::NotSupported));
        assert_eq!(
            changed(16),
            Err(Error::NotSupported),
            "another machine's boot id"
        );
        for len in 0..bytes.len() {
            assert_eq!(
                ConnectionDetails::decode(&bytes[..len]),
                Err(Error::InvalidValue),
                "{len} bytes"
            );
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert_eq!(ConnectionDetails::decode(&longer), Err(Error::InvalidValue));
    }

    proptest! {
        #[test]
        fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ConnectionDetails::decode(&bytes).is_err());
        }
    }
}
