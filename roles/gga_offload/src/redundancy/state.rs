//! The state machine.

use super::view::View;
use crate::target::{Target, Targets};

/// How many of the three targets hold all that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// All three.
    Healthy,
    /// Two: this one is gone, and misses what is written.
    Degraded(Target),
    /// Two: this one is back and takes writes, but has missed stripes.
    Rebuilding(Target),
    /// Less. Nothing is written any more, and read only what two are left for. It is so to the end of the session.
    Failed {
        /// They are gone.
        lost: Targets,
        /// It was being rebuilt when another one went.
        incomplete: Option<Target>,
    },
}

/// What becomes of the redundancy of a session, event by event.
#[derive(Debug)]
pub(crate) struct Redundancy {
    state: State,
    generation: u32,
}

impl Redundancy {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Healthy,
            generation: 0,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn view(&self) -> View {
        let (lost, rebuilding) = match self.state {
            State::Healthy => (Targets::NONE, Targets::NONE),
            State::Degraded(lost) => (Targets::only(lost), Targets::NONE),
            State::Rebuilding(target) => (Targets::NONE, Targets::only(target)),
            State::Failed { lost, incomplete } => {
                (lost, incomplete.map_or(Targets::NONE, Targets::only))
            }
        };
        View {
            lost,
            rebuilding,
            generation: self.generation,
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation = (self.generation + 1) % (1 << 26);
    }

    /// A target is gone. False when that was known.
    pub(crate) fn lose(&mut self, target: Target) -> bool {
        let next = match self.state {
            State::Healthy => State::Degraded(target),
            State::Rebuilding(incomplete) if incomplete == target => State::Degraded(target),
            State::Rebuilding(incomplete) => State::Failed {
                lost: Targets::only(target),
                incomplete: Some(incomplete),
            },
            State::Degraded(lost) if lost == target => return false,
            State::Degraded(lost) => State::Failed {
                lost: Targets::only(lost).union(Targets::only(target)),
                incomplete: None,
            },
            State::Failed { lost, .. } if lost.contains(target) => return false,
            State::Failed { lost, incomplete } => State::Failed {
                lost: lost.union(Targets::only(target)),
                incomplete: incomplete.filter(|&incomplete| incomplete != target),
            },
        };
        self.enter(next);
        true
    }

    /// A lost target is back, and takes writes. False when it is not the one that can come back.
    pub(crate) fn come_back(&mut self, target: Target) -> bool {
        let expected = self.state == State::Degraded(target);
        if expected {
            self.enter(State::Rebuilding(target));
        }
        expected
    }

    /// The target that is being rebuilt misses nothing any more.
    pub(crate) fn rebuilt(&mut self) {
        if let State::Rebuilding(_) = self.state {
            self.enter(State::Healthy);
        }
    }
}

#[cfg(test)]
mod tests;
