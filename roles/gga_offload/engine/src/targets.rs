//! The three targets of a set, and sets of them.

use clap::ValueEnum;
use serde::Serialize;

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

    /// Name of the target in flags and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Data1 => "data_1",
            Self::Data2 => "data_2",
            Self::DataP => "data_p",
        }
    }
}

/// A set of targets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Targets(u8);

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
    pub const fn from_bits(bits: u8) -> Self {
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
