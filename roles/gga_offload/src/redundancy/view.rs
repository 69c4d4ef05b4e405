//! What the workers need to know of the state, in one word.

use crate::target::{Target, Targets};

/// The targets as workers see them. It changes seldom: one look at a word says whether it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// Nothing is asked of them.
    pub(crate) lost: Targets,
    /// They are back: they take writes, but what they hold of stripes that they have missed is old.
    pub(crate) rebuilding: Targets,
    /// How often the view has changed, modulo 2^26.
    pub(crate) generation: u32,
}

/// Bits of a word beside the generation.
const TARGETS: u32 = 6;

impl View {
    /// The view of three targets that are whole.
    pub(crate) const WHOLE: Self = Self {
        lost: Targets::NONE,
        rebuilding: Targets::NONE,
        generation: 0,
    };

    /// The view as a word.
    pub(crate) fn to_word(self) -> u32 {
        self.generation << TARGETS
            | u32::from(self.rebuilding.bits()) << 3
            | u32::from(self.lost.bits())
    }

    /// The view that this word is.
    pub(crate) fn from_word(word: u32) -> Self {
        Self {
            lost: Targets::from_bits(word as u8 & 7),
            rebuilding: Targets::from_bits((word >> 3) as u8 & 7),
            generation: word >> TARGETS,
        }
    }

    /// Whether less than two targets are left that hold all that was written.
    pub(crate) fn has_failed(self) -> bool {
        self.lost.union(self.rebuilding).len() > 1
    }

    /// Targets whose half of a stripe is what was written; `missed` says whether the stripe was missed.
    pub(crate) fn sources(self, missed: bool) -> Targets {
        let stale = if missed {
            self.rebuilding
        } else {
            Targets::NONE
        };
        Targets::ALL.minus(self.lost).minus(stale)
    }

    /// Targets that a write goes to; `None` when nothing is written any more.
    pub(crate) fn sinks(self) -> Option<Targets> {
        (!self.has_failed()).then(|| Targets::ALL.minus(self.lost))
    }

    /// Targets that hold what a write gave to those that were `asked`, and that count when the stripe is read. `missed` says whether the
    /// stripe was missed before.
    pub(crate) fn holders(self, asked: Targets, without: Targets, missed: bool) -> Targets {
        asked.minus(without).intersection(self.sources(missed))
    }

    /// Where a read of a stripe gets its halves from, if it can: the half that it does without, if any.
    pub(crate) fn missing_half(sources: Targets) -> Option<Option<Target>> {
        let missing = Targets::DATA.minus(sources);
        match missing.len() {
            0 => Some(None),
            1 if sources.contains(Target::DataP) => Some(missing.iter().next()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_sets() -> impl Iterator<Item = Targets> {
        (0..8).map(Targets::from_bits)
    }

    #[test]
    fn a_word_is_a_view() {
        for lost in all_sets() {
            for rebuilding in all_sets() {
                for generation in [0, 1, (1 << 26) - 1] {
                    let view = View {
                        lost,
                        rebuilding,
                        generation,
                    };
                    assert_eq!(View::from_word(view.to_word()), view);
                }
            }
        }
        assert_eq!(View::WHOLE.to_word(), 0);
    }

    #[test]
    fn a_read_takes_two_halves_of_those_that_are_right_or_none() {
        for sources in all_sets() {
            match View::missing_half(sources) {
                Some(missing) => {
                    let used = missing.map_or(Targets::DATA, Targets::without);
                    assert_eq!(used.len(), 2);
                    assert!(used.minus(sources).is_empty(), "{used:?} of {sources:?}");
                    // The parity is for need only.
                    assert!(missing.is_none() || !Targets::DATA.minus(sources).is_empty());
                }
                None => assert!(sources.len() < 2, "{sources:?} were enough"),
            }
        }
    }

    #[test]
    fn what_is_lost_or_old_is_never_a_source() {
        for lost in all_sets() {
            for rebuilding in all_sets() {
                let view = View {
                    lost,
                    rebuilding,
                    generation: 0,
                };
                assert!(view.sources(false).minus(lost) == view.sources(false));
                assert!(view.sources(true).minus(rebuilding) == view.sources(true));
                match view.sinks() {
                    Some(sinks) => {
                        assert!(sinks.minus(rebuilding).len() >= 2 && sinks.minus(lost) == sinks)
                    }
                    None => assert!(view.sources(true).len() < 2),
                }
            }
        }
    }
}
