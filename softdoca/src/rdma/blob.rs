//! Connection details: what `doca_rdma_export` gives the program to carry to its peer.
//!
//! ```text
//!    0  6 bytes magic, u16 version
//!    8  u16 transport
//!   10  u16 transport type (`doca_rdma_transport_type`) of the exporting instance
//!   12  u32 permissions (`doca_access_flag`) of the exporting instance
//!   16  address of the exporter's agent (boot id, key)
//!   48  key of the connection
//! ```
//!
//! Integers are big endian. There is no process id and no address in it: knowing the key is the permission to connect.

use crate::agent::AgentAddress;
use crate::error::{Error, Result};
use crate::runtime::Key;

const MAGIC: [u8; 6] = *b"SDRDMA";
/// Of this layout and of the protocol that connects; other versions refuse each other.
const VERSION: u16 = 1;
/// Shared memory between processes of one machine. Others will have other numbers.
const SHARED_MEMORY: u16 = 1;

/// Connection details of one connection of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionDetails {
    /// How the exporting instance is connected; its peer's instance is of the same type.
    pub transport_type: u16,
    /// What the exporting instance lets its peer do, `doca_access_flag` values.
    pub permissions: u32,
    /// Where the peer asks.
    pub agent: AgentAddress,
    /// What it asks for; given away once.
    pub key: Key,
}

impl ConnectionDetails {
    /// Encoded size in bytes. Programs have buffers of 512.
    pub(super) const SIZE: usize = 16 + AgentAddress::SIZE + Key::SIZE;

    pub(super) fn example() -> Result<Self> {
        Ok(Self {
            transport_type: 1,
            permissions: 7,
            agent: AgentAddress::local()?,
            key: Key::from_bytes([7; Key::SIZE]),
        })
    }

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..6].copy_from_slice(&MAGIC);
        bytes[6..8].copy_from_slice(&VERSION.to_be_bytes());
        bytes[8..10].copy_from_slice(&SHARED_MEMORY.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.transport_type.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.permissions.to_be_bytes());
        bytes[16..16 + AgentAddress::SIZE].copy_from_slice(&self.agent.encode());
        bytes[16 + AgentAddress::SIZE..].copy_from_slice(&self.key.to_bytes());
        bytes
    }

    /// Reads what a program says its peer exported.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for anything that is no connection details, [`Error::UnsupportedVersion`] for those of
    /// another version, [`Error::NotSupported`] for another transport or another machine.
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
        if version != VERSION {
            return Err(Error::UnsupportedVersion.because(format_args!(
                "the RDMA connection details are of version {version}, expected {VERSION}: run the same softdoca on both sides"
            )));
        }
        let transport = u16::from_be_bytes([head[8], head[9]]);
        if transport != SHARED_MEMORY {
            return Err(Error::NotSupported.because(format_args!(
                "the peer offers RDMA transport {transport}, expected {SHARED_MEMORY} (shared memory)"
            )));
        }
        let whole = |_| {
            Error::InvalidValue.because(format_args!(
                "expected RDMA connection details of {} bytes, got {}",
                Self::SIZE,
                bytes.len()
            ))
        };
        let (agent, key) = rest
            .split_at_checked(AgentAddress::SIZE)
            .unwrap_or((rest, &[]));
        let agent = AgentAddress::decode(agent.try_into().map_err(whole)?);
        let key = Key::from_bytes(key.try_into().map_err(whole)?);
        agent.check()?;
        Ok(Self {
            transport_type: u16::from_be_bytes([head[10], head[11]]),
            permissions: u32::from_be_bytes([head[12], head[13], head[14], head[15]]),
            agent,
            key,
        })
    }
}

/// What connection details that are accepted are written as.
pub(crate) fn again(bytes: &[u8]) -> Result<Vec<u8>> {
    ConnectionDetails::decode(bytes).map(|details| details.encode().to_vec())
}

/// Details of a connection that does not exist, which are accepted all the same.
pub(crate) fn examples() -> Result<Vec<Vec<u8>>> {
    Ok(vec![ConnectionDetails::example()?.encode().to_vec()])
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
        }
    }

    #[test]
    fn details_round_trip_and_fit_into_programs_buffers() {
        let bytes = details().encode();
        assert_eq!(ConnectionDetails::decode(&bytes), Ok(details()));
        const { assert!(ConnectionDetails::SIZE <= 512) };
    }

    #[test]
    fn wrong_details_are_told_apart() {
        let bytes = details().encode();
        let changed = |at: usize| {
            let mut bytes = bytes;
            bytes[at] ^= 1;
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
