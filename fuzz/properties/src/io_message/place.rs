//! Numbers that are near what matters.

use arbitrary::Arbitrary;

/// An offset.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Place {
    /// Any.
    Any(u64),
    /// Near the beginning.
    At(u16),
    /// So many blocks from the beginning.
    Block(u16),
    /// Up to 15 bytes less than what ends with the memory.
    BeforeEnd(u8),
    /// Up to 3 blocks less than that.
    BlocksBeforeEnd(u8),
    /// 1 to 16 bytes more than that.
    BehindEnd(u8),
    /// Where a sum is about to overflow.
    BeforeOverflow(u16),
}

impl Place {
    /// The offset of `size` bytes in a memory of `length` bytes with blocks of `block` bytes.
    #[must_use]
    pub fn resolve(self, size: u32, length: u64, block: u32) -> u64 {
        let last = length.wrapping_sub(size.into());
        match self {
            Self::Any(offset) => offset,
            Self::At(offset) => offset.into(),
            Self::Block(number) => u64::from(number).wrapping_mul(block.into()),
            Self::BeforeEnd(less) => last.wrapping_sub((less / 16).into()),
            Self::BlocksBeforeEnd(less) => {
                last.wrapping_sub(u64::from(less / 64).wrapping_mul(block.into()))
            }
            Self::BehindEnd(more) => last.wrapping_add(u64::from(more / 16) + 1),
            Self::BeforeOverflow(less) => u64::MAX - u64::from(less),
        }
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Amount {
    /// Any.
    Any(u32),
    /// A few.
    Few(u8),
    /// Whole blocks.
    Blocks(u8),
    /// Whole blocks, and a few bytes.
    BlocksAndMore(u8, u8),
    /// More blocks than one I/O may have, or as many.
    ManyBlocks(u8),
}

impl Amount {
    /// The number, for blocks of `block` bytes.
    #[must_use]
    pub fn resolve(self, block: u32) -> u32 {
        match self {
            Self::Any(size) => size,
            Self::Few(size) => size.into(),
            Self::Blocks(number) => u32::from(number).wrapping_mul(block),
            Self::BlocksAndMore(number, more) => u32::from(number)
                .wrapping_mul(block)
                .wrapping_add(more.into()),
            Self::ManyBlocks(more) => (200 + u32::from(more)).wrapping_mul(block),
        }
    }
}
