//! Placement of chunks in the storage of their targets.

use clap::ValueEnum;
use serde::Serialize;

use crate::Target;

/// Placement of stored blocks on the targets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// A target's blocks are half as large as stored blocks, and hold one chunk each, as in DOCA 3.2 and 3.3
    #[default]
    HalfBlocks,
    /// A target's blocks are as large as stored blocks, and hold the chunk at its offset in the stored block; parity is stored twice. As in
    /// DOCA 3.0 and 3.1: read-only, and not with --degraded on
    WholeBlocks,
}

impl Placement {
    /// `true` if blocks can be written: the reference does not write with the other placement.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self == Self::HalfBlocks
    }

    /// Size in bytes of a stored block, for blocks of this size on each target; `None` if it does not fit in 32 bits.
    #[must_use]
    pub fn stored_block_size(self, target_block_size: u32) -> Option<u32> {
        match self {
            Self::HalfBlocks => target_block_size.checked_mul(2),
            Self::WholeBlocks => Some(target_block_size),
        }
    }

    /// Offset of a stripe's chunk of `chunk` bytes in the storage of a target.
    #[inline]
    #[must_use]
    pub fn offset(self, target: Target, stripe: u64, chunk: u32) -> u64 {
        let chunk = u64::from(chunk);
        match (self, target) {
            (Self::HalfBlocks, _) => stripe * chunk,
            (Self::WholeBlocks, Target::Data1 | Target::DataP) => stripe * 2 * chunk,
            (Self::WholeBlocks, Target::Data2) => stripe * 2 * chunk + chunk,
        }
    }

    /// The stripe whose chunk starts at an offset in the storage of a target; `None` if no chunk starts there.
    #[inline]
    #[must_use]
    pub fn stripe(self, target: Target, offset: u64, chunk: u32) -> Option<u64> {
        let distance = match self {
            Self::HalfBlocks => u64::from(chunk),
            Self::WholeBlocks => 2 * u64::from(chunk),
        };
        let stripe = offset / distance;
        (self.offset(target, stripe, chunk) == offset).then_some(stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_whole_blocks_are_where_the_stored_block_has_them() {
        let of = |placement: Placement| Target::ALL.map(|it| placement.offset(it, 3, 2048));
        assert_eq!(of(Placement::WholeBlocks), [12288, 12288 + 2048, 12288]);
        assert_eq!(of(Placement::HalfBlocks), [6144; 3]);
        assert_eq!(Placement::WholeBlocks.stored_block_size(4096), Some(4096));
        assert_eq!(Placement::HalfBlocks.stored_block_size(1 << 31), None);
    }

    #[test]
    fn offset_of_an_answer_names_its_stripe_or_none() {
        for placement in [Placement::HalfBlocks, Placement::WholeBlocks] {
            for (target, stripe) in Target::ALL.into_iter().flat_map(|it| [(it, 0), (it, 7)]) {
                let offset = placement.offset(target, stripe, 64);
                assert_eq!(placement.stripe(target, offset, 64), Some(stripe));
                assert_eq!(placement.stripe(target, offset + 1, 64), None);
            }
        }
        let whole = Placement::WholeBlocks;
        assert_eq!(whole.stripe(Target::Data1, 64, 64), None);
        assert_eq!(whole.stripe(Target::Data2, 0, 64), None);
    }
}
