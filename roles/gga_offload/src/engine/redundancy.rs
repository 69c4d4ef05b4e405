//! The redundancy of a set as a state machine, and the part of it that workers see.

use crate::target::{Target, Targets};

/// The redundancy of a set while it is in use.
///
/// ```text
///            detach X                  rejoin X
///  Healthy ------------> Degraded(X) -----------> Rebuilding(X) ---> Healthy
///                            |  ^                    |      |  all stripes rebuilt
///                            |  +------ detach X ----+      |
///                   detach Y |                              | detach Y
///                            +-----------> Failed <---------+
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All three.
    Healthy,
    /// Two: this one is offline, and misses what is written.
    Degraded(Target),
    /// Two: this one is online again and takes writes, but has missed stripes.
    Rebuilding(Target),
    /// Fewer than two targets are current. Writes fail, and so do reads without two targets, until the session ends.
    Failed {
        /// They are offline.
        offline: Targets,
        /// It was being rebuilt when another one was detached.
        incomplete: Option<Target>,
    },
}

/// The state machine.
#[derive(Debug)]
pub struct Redundancy {
    state: State,
    generation: u32,
}

impl Redundancy {
    pub(super) fn new() -> Self {
        Self {
            state: State::Healthy,
            generation: 0,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn view(&self) -> View {
        let (offline, rebuilding) = match self.state {
            State::Healthy => (Targets::NONE, Targets::NONE),
            State::Degraded(target) => (Targets::only(target), Targets::NONE),
            State::Rebuilding(target) => (Targets::NONE, Targets::only(target)),
            State::Failed {
                offline,
                incomplete,
            } => (offline, incomplete.map_or(Targets::NONE, Targets::only)),
        };
        View {
            offline,
            rebuilding,
            generation: self.generation,
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation = (self.generation + 1) % (1 << 26);
    }

    /// A target is offline. Returns false when that was known.
    pub(super) fn detach(&mut self, target: Target) -> bool {
        let next = match self.state {
            State::Healthy => State::Degraded(target),
            State::Rebuilding(incomplete) if incomplete == target => State::Degraded(target),
            State::Rebuilding(incomplete) => State::Failed {
                offline: Targets::only(target),
                incomplete: Some(incomplete),
            },
            State::Degraded(offline) if offline == target => return false,
            State::Degraded(offline) => State::Failed {
                offline: Targets::only(offline).union(Targets::only(target)),
                incomplete: None,
            },
            State::Failed { offline, .. } if offline.contains(target) => return false,
            State::Failed {
                offline,
                incomplete,
            } => State::Failed {
                offline: offline.union(Targets::only(target)),
                incomplete: incomplete.filter(|&incomplete| incomplete != target),
            },
        };
        self.enter(next);
        true
    }

    /// A detached target is online again, and takes writes. Returns `false` for a target that cannot rejoin.
    pub(super) fn rejoin(&mut self, target: Target) -> bool {
        let expected = self.state == State::Degraded(target);
        if expected {
            self.enter(State::Rebuilding(target));
        }
        expected
    }

    /// The target that is being rebuilt misses nothing any more.
    pub(super) fn rebuilt(&mut self) {
        if let State::Rebuilding(_) = self.state {
            self.enter(State::Healthy);
        }
    }
}

/// The targets as workers see them: one word, which changes seldom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Targets that get no requests.
    pub offline: Targets,
    /// They take writes, but their chunks of stripes that they have missed are old.
    pub rebuilding: Targets,
    /// Number of changes of the view, modulo 2^26.
    pub generation: u32,
}

/// Bits of a word beside the generation.
const TARGETS: u32 = 6;

impl View {
    /// The view of three targets that are current.
    pub(super) const HEALTHY: Self = Self {
        offline: Targets::NONE,
        rebuilding: Targets::NONE,
        generation: 0,
    };

    pub(super) fn to_word(self) -> u32 {
        self.generation << TARGETS
            | u32::from(self.rebuilding.bits()) << 3
            | u32::from(self.offline.bits())
    }

    pub(super) fn from_word(word: u32) -> Self {
        Self {
            offline: Targets::from_bits(word as u8 & 7),
            rebuilding: Targets::from_bits((word >> 3) as u8 & 7),
            generation: word >> TARGETS,
        }
    }

    /// Returns `true` if all three targets hold all that was written.
    #[inline]
    pub(super) fn is_healthy(self) -> bool {
        self.offline.union(self.rebuilding).is_empty()
    }

    /// Returns `true` if fewer than two targets hold all that was written.
    pub(super) fn has_failed(self) -> bool {
        self.offline.union(self.rebuilding).len() > 1
    }

    /// Targets whose chunk of a stripe is current; `is_missed` is `true` if a target has missed the stripe.
    pub(super) fn sources(self, is_missed: bool) -> Targets {
        let stale = if is_missed {
            self.rebuilding
        } else {
            Targets::NONE
        };
        Targets::ALL.minus(self.offline).minus(stale)
    }

    /// Targets of a write; `None` once writes fail.
    pub(super) fn sinks(self) -> Option<Targets> {
        (!self.has_failed()).then(|| Targets::ALL.minus(self.offline))
    }

    /// Of the targets of a write, those that have stored it and are sources of the stripe. `was_missed` is `true` if a target had missed
    /// the stripe before.
    pub(super) fn holders(self, asked: Targets, failed: Targets, was_missed: bool) -> Targets {
        asked.minus(failed).intersection(self.sources(was_missed))
    }

    /// The chunk that a read from these sources does without: `Some(None)` for none, `None` when the sources are too few.
    pub(super) fn missing_chunk(sources: Targets) -> Option<Option<Target>> {
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

    fn all_views() -> impl Iterator<Item = View> {
        all_sets().flat_map(|offline| {
            all_sets().map(move |rebuilding| View {
                offline,
                rebuilding,
                generation: 0,
            })
        })
    }

    #[test]
    fn view_round_trips_through_a_word() {
        for view in all_views() {
            for generation in [0, 1, (1 << 26) - 1] {
                let view = View { generation, ..view };
                assert_eq!(View::from_word(view.to_word()), view);
            }
        }
        assert_eq!(View::HEALTHY.to_word(), 0);
    }

    #[test]
    fn a_read_takes_two_current_chunks_or_none() {
        for sources in all_sets() {
            match View::missing_chunk(sources) {
                Some(missing) => {
                    let used = missing.map_or(Targets::DATA, Targets::without);
                    assert!(used.len() == 2 && used.minus(sources).is_empty());
                    // The parity chunk is read only where a data chunk cannot be.
                    assert!(missing.is_none() || !Targets::DATA.minus(sources).is_empty());
                }
                None => assert!(sources.len() < 2, "{sources:?} were enough"),
            }
        }
    }

    #[test]
    fn offline_and_stale_targets_are_no_sources() {
        for view in all_views() {
            assert!(view.sources(false).intersection(view.offline).is_empty());
            assert!(view.sources(true).intersection(view.rebuilding).is_empty());
            match view.sinks() {
                Some(sinks) => {
                    assert!(sinks.minus(view.rebuilding).len() >= 2);
                    assert!(sinks.intersection(view.offline).is_empty());
                }
                None => assert!(view.sources(true).len() < 2),
            }
        }
    }

    #[test]
    fn every_detachment_and_rejoin_changes_the_view() {
        let mut set = Redundancy::new();
        assert!(set.detach(Target::Data2) && !set.detach(Target::Data2));
        assert!(!set.rejoin(Target::Data1) && set.rejoin(Target::Data2));
        assert_eq!(set.state(), State::Rebuilding(Target::Data2));
        set.rebuilt();
        assert_eq!((set.state(), set.view().generation), (State::Healthy, 3));
        assert!(set.detach(Target::Data1) && set.rejoin(Target::Data1));
        assert!(set.detach(Target::DataP));
        let failed = State::Failed {
            offline: Targets::only(Target::DataP),
            incomplete: Some(Target::Data1),
        };
        assert_eq!(set.state(), failed);
        assert!(set.view().has_failed() && !set.rejoin(Target::DataP));
        assert!(set.detach(Target::Data1) && !set.detach(Target::Data1));
    }
}
