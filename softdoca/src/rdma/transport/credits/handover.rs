//! Creation of both sides, with descriptors passed between processes.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::memory::Mapping;
use super::{ReceivePool, SharedReceives, Slot};
use crate::error::{Error, Result};

impl ReceivePool {
    /// Creates a pool for at most `connections` concurrent senders.
    pub(in super::super) fn new(connections: u16) -> Result<ReceivePool> {
        Ok(Self::over(Mapping::create(connections)?))
    }

    pub(in super::super) fn memfd(&self) -> BorrowedFd<'_> {
        self.mapping().memfd()
    }
}

impl Slot {
    /// Encodes the information that the sender needs in addition to the memory.
    pub(in super::super) fn encode(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.number().to_le_bytes());
        bytes[4..].copy_from_slice(&self.generation().to_le_bytes());
        bytes
    }
}

impl SharedReceives {
    /// Opens a peer's pool from the bytes of [`Slot::encode`].
    pub(in super::super) fn open(memfd: OwnedFd, slot: &[u8]) -> Result<SharedReceives> {
        let invalid = || {
            Error::InvalidValue
                .because("an RDMA peer's agent gave something else than a pool of receives")
        };
        let (Some(number), Some(generation)) = (slot.first_chunk::<4>(), slot.last_chunk::<4>())
        else {
            return Err(invalid());
        };
        let number = u32::from_le_bytes(*number);
        let mapping = Mapping::open(memfd)?.ok_or_else(invalid)?;
        if u64::from(number) >= mapping.slots() {
            return Err(invalid());
        }
        Ok(Self::over(mapping, number, u32::from_le_bytes(*generation)))
    }
}
