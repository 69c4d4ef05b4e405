//! Addresses of agents.

use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::runtime::{BootId, Key};

/// Address of the agent of one process on this machine; embedded in export descriptors and RDMA connection details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentAddress {
    boot: BootId,
    key: Key,
}

impl AgentAddress {
    /// Encoded size in bytes: boot id, key.
    pub const SIZE: usize = BootId::SIZE + Key::SIZE;

    /// Address of this process; constant for its lifetime. The agent listens there while there are exports or
    /// services.
    ///
    /// # Errors
    /// The kernel has no boot id or random number.
    pub fn local() -> Result<AgentAddress> {
        static LOCAL: OnceLock<AgentAddress> = OnceLock::new();
        if let Some(address) = LOCAL.get() {
            return Ok(*address);
        }
        let address = AgentAddress {
            boot: BootId::current()?,
            key: Key::random()?,
        };
        Ok(*LOCAL.get_or_init(|| address))
    }

    /// Encodes the address.
    pub fn encode(&self) -> [u8; AgentAddress::SIZE] {
        let mut bytes = [0; AgentAddress::SIZE];
        bytes[..BootId::SIZE].copy_from_slice(&self.boot.to_bytes());
        bytes[BootId::SIZE..].copy_from_slice(&self.key.to_bytes());
        bytes
    }

    /// Decodes an embedded address. Every value is valid; [`AgentAddress::check`] tells if it belongs to this machine.
    pub fn decode(bytes: &[u8; AgentAddress::SIZE]) -> AgentAddress {
        let (mut boot, mut key) = ([0; BootId::SIZE], [0; Key::SIZE]);
        boot.copy_from_slice(&bytes[..BootId::SIZE]);
        key.copy_from_slice(&bytes[BootId::SIZE..]);
        AgentAddress {
            boot: BootId::from_bytes(boot),
            key: Key::from_bytes(key),
        }
    }

    /// Refuses the address of another machine, or of an earlier boot of this one.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn check(&self) -> Result<()> {
        if self.is_of_this_machine()? {
            return Ok(());
        }
        Err(Error::NotSupported.because(format_args!(
            "the descriptor was made on another machine or before a restart (boot id {:?}, here {:?}), and offers no connection \
             over the network: set SOFTDOCA_ADDRESS on both machines",
            self.boot,
            BootId::current()?
        )))
    }

    /// Returns `true` for a process of the current boot of this machine.
    pub(crate) fn is_of_this_machine(&self) -> Result<bool> {
        Ok(self.boot == BootId::current()?)
    }

    pub(super) fn socket_name(&self) -> String {
        format!("a-{}.sock", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_round_trips_and_is_validated() {
        let local = AgentAddress::local().unwrap();
        assert_eq!(AgentAddress::local(), Ok(local));
        let mut bytes = local.encode();
        assert_eq!(AgentAddress::decode(&bytes), local);
        assert_eq!(local.check(), Ok(()));
        bytes[3] ^= 1;
        assert_eq!(
            AgentAddress::decode(&bytes).check(),
            Err(Error::NotSupported)
        );
    }
}
