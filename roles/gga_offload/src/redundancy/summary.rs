//! What became of the redundancy of a session.

use std::fmt;

use serde::Serialize;

use super::{Shared, State};
use crate::target::Target;

/// Stripes that were looked at because they might not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verified {
    /// All three halves fitted.
    pub(crate) fitting: u64,
    /// One was made anew of the others.
    pub(crate) repaired: u64,
    /// No two halves make up a block.
    pub(crate) unreadable: u64,
}

impl Shared {
    /// What is to be reported at the end.
    pub(crate) fn summary(&self) -> Summary {
        let inner = self.inner();
        Summary {
            state: match inner.redundancy.state() {
                State::Healthy => "healthy",
                State::Degraded(_) => "degraded",
                State::Rebuilding(_) => "rebuilding",
                State::Failed { .. } => "failed",
            },
            lost: inner.losses,
            missed_stripes: self.missed.len(),
            rebuilt_stripes: inner.rebuilt,
            verified_stripes: inner.verified,
        }
    }

    /// The session is over, and with it what is known of which stripes a target has missed.
    pub(crate) fn say_what_is_missing(&self) {
        let inner = self.inner();
        let target = match inner.redundancy.state() {
            State::Degraded(target) | State::Rebuilding(target) => target,
            State::Healthy | State::Failed { .. } => return,
        };
        let next = match inner.membership {
            Some(_) => "the next one rebuilds all of it",
            None => "have the next service rebuild all of it, with --rebuild",
        };
        tracing::warn!(
            "the session is over, and storage target {} has missed {} stripes that were not rebuilt: {next}",
            target.name(),
            self.missed.len()
        );
    }
}

/// What became of the redundancy of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// The state at the end.
    pub(crate) state: &'static str,
    /// How often data_1, data_2 and data_p were lost.
    pub(crate) lost: [u64; 3],
    /// Stripes that a target has missed, and that were not rebuilt.
    pub(crate) missed_stripes: u64,
    /// Stripes that were rebuilt.
    pub(crate) rebuilt_stripes: u64,
    /// Stripes that were looked at after a bad end.
    pub(crate) verified_stripes: Verified,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| Redundancy: {}", self.state)?;
        for target in Target::ALL {
            let count = self.lost[target.number()];
            writeln!(f, "| Losses of {}: {count}", target.name())?;
        }
        writeln!(f, "| Missed stripes: {}", self.missed_stripes)?;
        writeln!(f, "| Rebuilt stripes: {}", self.rebuilt_stripes)?;
        let Verified {
            fitting,
            repaired,
            unreadable,
        } = self.verified_stripes;
        writeln!(
            f,
            "| Verified stripes: {fitting} fitting, {repaired} repaired, {unreadable} unreadable"
        )
    }
}
