//! The service's own memory, through which blocks pass: one chunk per transaction, that the targets
//! read and write too.

use std::sync::Arc;

use bytes::Bytes;
use doca::{Access, Device, ErrorCode, MemoryRegion, Mmap};
use role_common::Failure;
use role_common::stored_block::Geometry;

use crate::target::Target;

/// All chunks of all workers.
#[derive(Debug, Clone)]
pub(crate) struct LocalMemory {
    pub(crate) region: Arc<MemoryRegion>,
    pub(crate) mmap: Mmap,
}

impl LocalMemory {
    /// Allocates `chunks` chunks, and exports them for the targets.
    pub(crate) fn allocate(
        device: &Device,
        geometry: Geometry,
        chunks: u64,
    ) -> Result<(Self, Bytes), Failure> {
        let wanted = chunks.checked_mul(Chunk::size(geometry));
        let installed = installed_memory();
        let length = wanted
            .filter(|&length| length <= installed)
            .and_then(|length| usize::try_from(length).ok());
        let Some(length) = length else {
            return Err(Failure::new(
                ErrorCode::NO_MEMORY,
                format!(
                    "{chunks} transactions with blocks of {} bytes: expected to need at most the {installed} bytes of \
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
        Ok((Self { region, mmap }, Bytes::from(export)))
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

/// Where one transaction keeps what the targets read and write: the stored block, as two halves, and its
/// parity. With what its worker keeps to itself, that is two and a half stored blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    begin: u64,
    half: u64,
}

impl Chunk {
    /// Bytes of each chunk.
    pub(crate) fn size(geometry: Geometry) -> u64 {
        3 * u64::from(geometry.half_block_size())
    }

    /// The chunk of this number.
    pub(crate) fn of(geometry: Geometry, number: u64) -> Self {
        Self {
            begin: number * Self::size(geometry),
            half: geometry.half_block_size().into(),
        }
    }

    /// The stored block.
    pub(crate) fn stored(self) -> u64 {
        self.begin
    }

    /// What a target holds.
    pub(crate) fn half(self, target: Target) -> u64 {
        self.begin + self.half * target.number() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_three_halves_without_overlaps() {
        let geometry = Geometry::compatible(4096);
        assert_eq!(Chunk::size(geometry), 4096 * 3 / 2);
        let chunk = Chunk::of(geometry, 3);
        let begin = 3 * 6144;
        assert_eq!(chunk.stored(), begin);
        let halves = Target::ALL.map(|target| chunk.half(target));
        assert_eq!(halves, [begin, begin + 2048, begin + 4096]);
        assert_eq!(begin + 6144, Chunk::of(geometry, 4).stored());
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let device = Device::open("mlx5_0").expect("device");
        for chunks in [u64::MAX, installed_memory() / 2048] {
            let failure = LocalMemory::allocate(&device, Geometry::compatible(4096), chunks)
                .expect_err("too much");
            assert_eq!(failure.code, ErrorCode::NO_MEMORY);
            assert!(failure.message.contains("4096 bytes"), "{failure}");
        }
    }
}
