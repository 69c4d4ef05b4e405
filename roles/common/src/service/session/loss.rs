//! Sessions that start or continue without a target.

use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::control::StorageDetails;

use super::progress::{Doing, Phase, Step};
use super::{Action, Described, Layout, Place, Session};

/// Maximum time for the last target to connect after all others.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

impl<L: Layout> Session<L> {
    /// Returns `true` if the session can continue when this target disconnects now: while I/Os are served and during
    /// the stop after that, unless the target is allowed to disconnect anyway.
    ///
    /// # Panics
    ///
    /// If there is no such target.
    #[must_use]
    pub fn may_lose(&self, target: usize) -> bool {
        let serves = match self.phase {
            Phase::Query | Phase::Init | Phase::Start => false,
            Phase::Stop | Phase::Shutdown => self.step != Step::Ended,
        };
        let has_left = self.phase == Phase::Shutdown
            && self.step != Step::Request
            && self.step != Step::Expiry
            && self.step != Step::Job(Doing::CloseSuperblocks)
            && !self.inquiry.is_pending(target);
        serves && !self.without[target] && !has_left
    }

    /// Returns `true` if the session continues without this target.
    ///
    /// # Panics
    ///
    /// If there is no such target.
    #[must_use]
    pub fn is_without(&self, target: usize) -> bool {
        self.without[target]
    }

    /// Place of a missing or lost target, while it may rejoin: as long as I/Os are served.
    ///
    /// # Panics
    ///
    /// If there is no such target.
    #[must_use]
    pub fn place(&self, target: usize) -> Option<Place> {
        let serves = self.phase == Phase::Stop && self.step == Step::Request;
        if !serves || !self.without[target] {
            return None;
        }
        Some(Place {
            target,
            name: L::TARGETS[target],
            storage: self.storage_of(target)?.clone(),
            query: self.query(),
            features: self.features,
            init: self.init.clone()?,
            core_count: self.core_count,
        })
    }

    /// Storage of a target. For one that was missing at the start, that of another one: they are alike.
    pub(super) fn storage_of(&self, target: usize) -> Option<&StorageDetails> {
        let own = self.targets.get(target)?.as_ref();
        let described = own.or_else(|| self.targets.iter().flatten().next())?;
        Some(&described.storage)
    }

    pub(super) fn rejoined(&mut self, target: usize, identity: Option<Bytes>) {
        let Some(storage) = self.storage_of(target).cloned() else {
            return;
        };
        self.without[target] = false;
        self.targets[target] = Some(Described {
            storage,
            identity,
            superblock: None,
            features: self.features,
        });
    }

    /// Continues without a target, if it [may be lost](Self::may_lose): no further requests are sent to it, and no
    /// responses expected.
    pub(super) fn lost(&mut self, now: Instant, target: usize) {
        if !self.may_lose(target) {
            return;
        }
        self.go_without(target);
        self.inquiry.forgive(target);
        if self.step == Step::Storage {
            self.storage_answered(now);
        }
    }

    fn go_without(&mut self, target: usize) {
        self.without[target] = true;
        self.actions.push_back(Action::Leave { target });
    }

    /// A target has connected.
    pub(super) fn connected(&mut self, now: Instant, target: usize) {
        self.connected[target] = true;
        if self.step != Step::Connection {
            return;
        }
        match self.missing() {
            0 => self.announce(),
            1 if self.maintains => {
                let grace = now + self.timeout.min(LONGEST_GRACE);
                self.deadline = Some(self.deadline.map_or(grace, |limit| limit.min(grace)));
            }
            _ => {}
        }
    }

    /// Number of targets that are not connected yet.
    pub(super) fn missing(&self) -> usize {
        self.connected.iter().filter(|&&it| !it).count()
    }

    /// Allows initiators to connect.
    pub(super) fn announce(&mut self) {
        self.step = Step::Request;
        self.deadline = None;
        self.actions.push_back(Action::Announce);
    }

    /// The initiator has sent its first request: targets that are not connected by now are missing.
    pub(super) fn begin_without_missing(&mut self) {
        for target in 0..self.connected.len() {
            if !self.connected[target] {
                tracing::warn!(
                    "{}: not connected; beginning without it",
                    L::TARGETS[target]
                );
                self.go_without(target);
            }
        }
    }
}
