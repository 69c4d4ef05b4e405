//! The initiator's memory, as the DPU reaches it: across PCIe, by DMA.

use std::time::{Duration, Instant};

use doca::{Access, Buf, BufInventory, Device, Dma, Event, MemoryRegion, Mmap, Pe, Task};

use crate::role::Wrong;

/// Bytes that are copied at a time.
const PIECE: usize = 64 * 1024;

/// Time that one copy may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A memory map that an initiator has exported.
#[derive(Debug)]
pub(super) struct HostMemory {
    // Dropped in this order: tasks before their context, that before its engine.
    from_host: Task,
    to_host: Task,
    host: Buf,
    local: Buf,
    len: u64,
    base_address: u64,
    _dma: Dma,
    pe: Pe,
}

impl HostMemory {
    /// The memory behind an export blob.
    ///
    /// # Errors
    ///
    /// The blob is none.
    pub(super) fn import(device: &Device, blob: &[u8]) -> Result<Self, Wrong> {
        let pe = Pe::new()?;
        let memory = Mmap::import(device, blob)?;
        let region = MemoryRegion::new(PIECE)?;
        let pieces = Mmap::register(device, region, Access::LOCAL_READ_WRITE)?;
        let inventory = BufInventory::new(2)?;
        // Each copy aims them anew.
        let host = inventory.buf(&memory, 0, 1)?;
        let local = inventory.buf(&pieces, 0, PIECE)?;
        let dma = Dma::start(&pe, device, 2)?;
        Ok(Self {
            from_host: dma.copy_task(&host, &local, 0)?,
            to_host: dma.copy_task(&local, &host, 0)?,
            host,
            local,
            len: memory.len(),
            base_address: memory.base_address(),
            _dma: dma,
            pe,
        })
    }

    /// The address at which it begins, in the initiator's address space.
    pub(super) fn base_address(&self) -> u64 {
        self.base_address
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Copies bytes at `offset` out of it.
    ///
    /// # Errors
    ///
    /// They are not inside of it, or the copy fails.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Wrong> {
        let mut offset = offset;
        for piece in into.chunks_mut(PIECE) {
            self.host.set_data(offset, piece.len())?;
            self.local.set_range(0, piece.len())?;
            self.copy(&self.from_host)?;
            self.local.read_data(piece)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes into it.
    ///
    /// # Errors
    ///
    /// As [`HostMemory::read`].
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Wrong> {
        let mut offset = offset;
        for piece in bytes.chunks(PIECE) {
            self.local.set_range(0, piece.len())?;
            self.local.write_data(piece)?;
            self.host.set_range(offset, piece.len())?;
            self.copy(&self.to_host)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    fn copy(&self, task: &Task) -> Result<(), Wrong> {
        let deadline = Instant::now() + PATIENCE;
        task.submit()?;
        while task.is_in_flight() {
            if let Some(Event::Task(completion)) = self.pe.poll() {
                completion
                    .result
                    .map_err(|code| Wrong::expected("DMA to copy the initiator's memory", code))?;
            } else if Instant::now() > deadline {
                return Err(Wrong::expected(
                    "DMA to copy the initiator's memory",
                    format!("nothing in {PATIENCE:?}"),
                ));
            }
        }
        Ok(())
    }
}
