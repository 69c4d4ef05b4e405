//! `doca_storage_comch_to_rdma_gga_offload`: a storage service that compresses and adds parity.
//!
//! It serves one initiator over Comch and keeps its blocks on three storage targets: the data chunks of a compressed block on data_1 and
//! data_2, their parity chunk on data_p. `session` presents the targets to the initiator as one storage, `engine` makes the decisions for
//! requests and failures of targets, `data_path` executes them on each worker thread, and `app` runs all of it with
//! [`role_common::service`].
//! [`request`] validates bytes from outside and is public, for tests with arbitrary input.
#![forbid(unsafe_code)]

mod app;
mod data_path;
mod engine;
pub mod layout;
pub mod offline;
pub mod simulation;
mod statistics;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;

pub use app::Flags;
pub use engine::request::{self, Volume};

/// Name of the program in messages, independent of the name of its file.
pub const NAME: &str = "doca_storage_comch_to_rdma_gga_offload";

/// Runs the program with these arguments, the first of which is ignored.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}

/// A target. Its number is its index among the session's targets, and the index of its chunk in erasure coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Stores the first halves of stored blocks
    #[value(name = "data_1")]
    Data1 = 0,
    /// Stores the second halves
    #[value(name = "data_2")]
    Data2 = 1,
    /// Stores their parity
    #[value(name = "data_p")]
    DataP = 2,
}

impl Target {
    /// All three, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Data1, Self::Data2, Self::DataP];

    #[must_use]
    pub fn number(self) -> usize {
        self as usize
    }

    /// Its name in flags and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Data1 => "data_1",
            Self::Data2 => "data_2",
            Self::DataP => "data_p",
        }
    }
}

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

    /// The stripe whose chunk starts at an offset in the storage of a target; `None` if no chunk does.
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

/// A set of targets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Targets(u8);

impl Targets {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(0b111);
    /// The targets of the two data chunks.
    pub const DATA: Self = Self(0b011);

    pub fn only(target: Target) -> Self {
        Self(1 << target.number())
    }

    /// The two targets other than `lost`.
    pub fn without(lost: Target) -> Self {
        Self(Self::ALL.0 & !Self::only(lost).0)
    }

    /// The set with these bits, one per target in the order of their numbers.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The targets that are not in `other`.
    #[inline]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[inline]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn insert(&mut self, target: Target) {
        self.0 |= Self::only(target).0;
    }

    #[inline]
    pub fn contains(self, target: Target) -> bool {
        self.0 & Self::only(target).0 != 0
    }

    #[inline]
    pub fn remove(&mut self, target: Target) {
        self.0 &= !Self::only(target).0;
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Target> {
        Target::ALL
            .into_iter()
            .filter(move |&target| self.contains(target))
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

    #[test]
    fn sets_of_targets() {
        let mut targets = Targets::without(Target::Data1);
        assert!(targets.iter().eq([Target::Data2, Target::DataP]));
        targets.remove(Target::Data2);
        assert_eq!(targets, Targets::only(Target::DataP));
        targets.remove(Target::DataP);
        assert!(targets.is_empty() && targets == Targets::NONE);
        assert!(Targets::DATA.iter().eq([Target::Data1, Target::Data2]));
        assert!(Targets::ALL.iter().eq(Target::ALL));
        assert_eq!(
            Targets::ALL.minus(Targets::DATA),
            Targets::only(Target::DataP)
        );
        assert_eq!(
            Targets::DATA.union(Targets::only(Target::DataP)),
            Targets::ALL
        );
        targets.insert(Target::Data2);
        assert_eq!((targets.len(), targets.bits()), (1, 2));
        assert_eq!(Targets::from_bits(0xff), Targets::ALL);
    }
}
