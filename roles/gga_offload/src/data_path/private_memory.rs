//! Memory that only this worker and its device reach, one stored block per transaction.
//!
//! Targets can write to the chunks whenever they like, also after they have answered. So what is checked there is copied
//! first, and used from here: a stored block for the decompressor, recovered halves, and content on its way in.

use std::sync::Arc;

use doca::{Access, Buf, BufInventory, Device, MemoryRegion, Mmap, Result};
use role_common::stored_block::Geometry;

/// The private memory of a worker.
pub(super) struct PrivateMemory {
    region: Arc<MemoryRegion>,
    mmap: Mmap,
    /// Bytes of each transaction.
    size: usize,
}

impl PrivateMemory {
    pub(super) fn allocate(
        device: &Device,
        geometry: Geometry,
        transactions: usize,
    ) -> Result<Self> {
        let size = geometry.stored_block_size as usize;
        let region = MemoryRegion::new(transactions * size)?;
        let mmap = Mmap::register(device, region.clone(), Access::LOCAL_READ_WRITE)?;
        Ok(Self { region, mmap, size })
    }

    /// Memory that the device must not write, so that what it does there fails.
    #[cfg(test)]
    pub(super) fn read_only(device: &Device, geometry: Geometry, transactions: usize) -> Self {
        let size = geometry.stored_block_size as usize;
        let region = MemoryRegion::new(transactions * size).expect("memory");
        let mmap = Mmap::register(device, region.clone(), Access::LOCAL_READ_ONLY).expect("map");
        Self { region, mmap, size }
    }

    /// Where the bytes of a transaction begin.
    pub(super) fn place(&self, transaction: usize) -> u64 {
        (transaction * self.size) as u64
    }

    /// A destination of `length` bytes at the beginning of a transaction's.
    pub(super) fn destination(
        &self,
        inventory: &BufInventory,
        transaction: usize,
        length: usize,
    ) -> Result<Buf> {
        inventory.buf(&self.mmap, self.place(transaction), length)
    }

    /// A source of the first `length` bytes of a transaction.
    pub(super) fn source(
        &self,
        inventory: &BufInventory,
        transaction: usize,
        length: usize,
    ) -> Result<Buf> {
        inventory.buf_with_data(&self.mmap, self.place(transaction), length)
    }

    /// Copies the first bytes of a transaction.
    pub(super) fn read(&self, transaction: usize, into: &mut [u8]) -> Result<()> {
        self.region.read(transaction * self.size, into)
    }

    /// Replaces the first bytes of a transaction.
    pub(super) fn write(&self, transaction: usize, bytes: &[u8]) -> Result<()> {
        self.region.write(transaction * self.size, bytes)
    }
}
