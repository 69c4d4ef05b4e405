//! Sizes of stored blocks and of their data.

use wire::stored_block::DataBlock;

use crate::flags::size;

use super::{OVERHEAD, PIECE};

/// Alignment of half blocks in bytes, for erasure coding.
pub const HALF_ALIGNMENT: u32 = 64;

/// Alignment of stored blocks in bytes: two halves.
pub const STORED_ALIGNMENT: u32 = 2 * HALF_ALIGNMENT;

/// Sizes of a stored block and of its data, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Total of both halves, on data_1 and data_2.
    pub stored_block_size: u32,
    /// Data: a block of the initiator.
    pub logical_block_size: u32,
}

impl Geometry {
    /// The reference's geometry: data blocks are as large as stored blocks, so the data must compress.
    #[must_use]
    pub fn compatible(stored_block_size: u32) -> Self {
        Self {
            stored_block_size,
            logical_block_size: stored_block_size,
        }
    }

    /// The smallest stored blocks, a multiple of [`STORED_ALIGNMENT`], that hold any data of `logical_block_size`
    /// bytes. `None` if their size does not fit in 32 bits; [`logical_block_size`] refuses such sizes.
    #[must_use]
    pub fn for_logical(logical_block_size: u32) -> Option<Self> {
        let needed = worst_case(logical_block_size) + OVERHEAD as u64;
        let stored = needed.next_multiple_of(STORED_ALIGNMENT.into());
        Some(Self {
            stored_block_size: u32::try_from(stored).ok()?,
            logical_block_size,
        })
    }

    /// Returns `true` for stored blocks of the reference.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.stored_block_size == self.logical_block_size
    }

    /// Returns `true` if incompressible data fits in a stored block.
    #[must_use]
    pub fn holds_any_content(&self) -> bool {
        self.stored_block_size as usize >= OVERHEAD
            && self.room() as u64 >= worst_case(self.logical_block_size)
    }

    /// Space for LZ4 data blocks in a stored block, in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        (self.stored_block_size as usize).saturating_sub(OVERHEAD)
    }

    /// Bytes of a stored block on each target.
    #[must_use]
    pub fn half_block_size(&self) -> u32 {
        self.stored_block_size / 2
    }
}

/// Size of the LZ4 data blocks of incompressible data in bytes: each piece is stored raw.
fn worst_case(logical_block_size: u32) -> u64 {
    let content = u64::from(logical_block_size);
    content + content.div_ceil(PIECE as u64) * DataBlock::SIZE as u64
}

/// Parses the value of `--logical-block-size`: bytes, limited to sizes for which [`Geometry::for_logical`] returns
/// `Some`.
///
/// # Errors
///
/// Not a number, 0, or too large.
pub fn logical_block_size(text: &str) -> Result<u32, String> {
    match size(text).map(u32::try_from) {
        Ok(Ok(size @ 1..)) if Geometry::for_logical(size).is_some() => Ok(size),
        _ => {
            let largest = largest_logical();
            Err(format!(
                "expected bytes, or a size such as 4k, 1 to {largest}"
            ))
        }
    }
}

/// Largest data size whose stored block's size fits in 32 bits.
fn largest_logical() -> u32 {
    let stored = u32::MAX / STORED_ALIGNMENT * STORED_ALIGNMENT;
    // Each piece, including the last, is data plus its length field.
    let room = u64::from(stored) - OVERHEAD as u64;
    let pieces = room.div_ceil((PIECE + DataBlock::SIZE) as u64);
    let content = room - pieces * DataBlock::SIZE as u64;
    u32::try_from(content).expect("less than what holds it")
}
