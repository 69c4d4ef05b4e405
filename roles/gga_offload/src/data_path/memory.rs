//! The memory that blocks pass through: stripe buffers, which the targets read and write, and private memory, which they do not reach.
//!
//! Targets can write to the stripe buffers whenever they like, also after they have answered. So what is judged is copied to private
//! memory first, and used from there.

use std::sync::Arc;

use bytes::Bytes;
use doca::{Access, Device, ErrorCode, MemoryRegion, Mmap};
use role_common::Failure;
use role_common::stored_block::Geometry;

use crate::target::Target;

/// All stripe buffers of all workers.
#[derive(Debug, Clone)]
pub(crate) struct StripeMemory {
    pub(crate) region: Arc<MemoryRegion>,
    pub(crate) mmap: Mmap,
    /// Bytes before the first buffer, which are not used.
    pub(crate) first: u64,
}

impl StripeMemory {
    /// Allocates this many buffers behind `first` bytes, and exports them for the targets.
    pub(crate) fn allocate(
        device: &Device,
        geometry: Geometry,
        first: u64,
        buffers: u64,
    ) -> Result<(Self, Bytes), Failure> {
        let wanted = buffers
            .checked_mul(StripeBuffer::size(geometry))
            .and_then(|size| size.checked_add(first));
        let installed = installed_memory();
        let length = wanted
            .filter(|&length| length <= installed)
            .and_then(|length| usize::try_from(length).ok());
        let Some(length) = length else {
            return Err(Failure::new(
                ErrorCode::NO_MEMORY,
                format!(
                    "{buffers} transactions with blocks of {} bytes: expected to need at most the {installed} bytes of \
                     memory of this machine",
                    geometry.logical_block_size
                ),
            ));
        };
        let region = MemoryRegion::new(length)?;
        let access = Access::LOCAL_READ_WRITE
            | Access::PCI_READ_WRITE
            | Access::RDMA_READ
            | Access::RDMA_WRITE;
        let mmap = Mmap::register(device, region.clone(), access)?;
        let export = mmap.export_rdma(device)?;
        Ok((
            Self {
                region,
                mmap,
                first,
            },
            Bytes::from(export),
        ))
    }
}

fn installed_memory() -> u64 {
    let system = rustix::system::sysinfo();
    #[allow(
        clippy::useless_conversion,
        reason = "the field's width is the platform's"
    )]
    u64::from(system.totalram).saturating_mul(system.mem_unit.into())
}

/// The place of one slot in the stripe memory: the stored block, as two data chunks, and its parity chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StripeBuffer {
    begin: u64,
    chunk: u64,
}

impl StripeBuffer {
    /// Bytes of each buffer.
    pub(crate) fn size(geometry: Geometry) -> u64 {
        3 * u64::from(geometry.half_block_size())
    }

    /// The buffer of this number; buffer 0 is at offset `first`.
    pub(crate) fn of(geometry: Geometry, first: u64, number: u64) -> Self {
        Self {
            begin: first + number * Self::size(geometry),
            chunk: geometry.half_block_size().into(),
        }
    }

    /// Offset of the stored block.
    pub(crate) fn stored(self) -> u64 {
        self.begin
    }

    /// Offset of a target's chunk.
    pub(crate) fn chunk(self, target: Target) -> u64 {
        self.begin + self.chunk * target.number() as u64
    }
}

/// The private memory of a worker: room for one stored block per slot.
pub(super) struct PrivateMemory {
    region: Arc<MemoryRegion>,
    mmap: Mmap,
    /// Bytes of each slot.
    size: usize,
}

impl PrivateMemory {
    pub(super) fn allocate(
        device: &Device,
        geometry: Geometry,
        slots: usize,
    ) -> doca::Result<Self> {
        Self::with_access(device, geometry, slots, Access::LOCAL_READ_WRITE)
    }

    /// Memory that the device must not write, so that what it does there fails.
    #[cfg(test)]
    pub(super) fn read_only(device: &Device, geometry: Geometry, slots: usize) -> Self {
        Self::with_access(device, geometry, slots, Access::LOCAL_READ_ONLY).expect("memory")
    }

    fn with_access(
        device: &Device,
        geometry: Geometry,
        slots: usize,
        access: Access,
    ) -> doca::Result<Self> {
        let size = geometry.stored_block_size as usize;
        let region = MemoryRegion::new(slots * size)?;
        let mmap = Mmap::register(device, region.clone(), access)?;
        Ok(Self { region, mmap, size })
    }

    /// Offset of a slot's bytes.
    pub(super) fn offset(&self, slot: usize) -> u64 {
        (slot * self.size) as u64
    }

    /// All of it.
    pub(super) fn mmap(&self) -> &Mmap {
        &self.mmap
    }

    /// Copies the first bytes of a slot.
    pub(super) fn read(&self, slot: usize, into: &mut [u8]) -> doca::Result<()> {
        self.region.read(slot * self.size, into)
    }

    /// Replaces the first bytes of a slot.
    pub(super) fn write(&self, slot: usize, bytes: &[u8]) -> doca::Result<()> {
        self.region.write(slot * self.size, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_buffer_is_three_chunks_without_overlaps() {
        let geometry = Geometry::compatible(4096);
        assert_eq!(StripeBuffer::size(geometry), 4096 * 3 / 2);
        let buffer = StripeBuffer::of(geometry, 0, 3);
        let begin = 3 * 6144;
        assert_eq!(buffer.stored(), begin);
        let chunks = Target::ALL.map(|target| buffer.chunk(target));
        assert_eq!(chunks, [begin, begin + 2048, begin + 4096]);
        assert_eq!(begin + 6144, StripeBuffer::of(geometry, 0, 4).stored());
    }

    #[test]
    fn allocation_beyond_the_machine_is_refused() {
        let device = Device::open("mlx5_0").expect("device");
        for buffers in [u64::MAX, installed_memory() / 2048] {
            let failure = StripeMemory::allocate(&device, Geometry::compatible(4096), 0, buffers)
                .expect_err("too much");
            assert_eq!(failure.code, ErrorCode::NO_MEMORY);
        }
    }
}
