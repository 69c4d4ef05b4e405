//! Sessions that go on without a target.

use std::time::Instant;

use bytes::Bytes;
use wire::control::{MessageType, Payload};

use super::progress::{Doing, Phase, Step};
use super::{Layout, Place, Session};

/// What a target that is gone is taken to have answered. `None` for what only a target that is there can answer.
pub(super) fn answer_of_nobody(expected: MessageType) -> Option<Payload> {
    match expected {
        MessageType::StopStorageResponse => Some(Payload::StopStorageResponse),
        MessageType::ShutdownResponse => Some(Payload::ShutdownResponse),
        _ => None,
    }
}

impl<L: Layout> Session<L> {
    /// Whether it is possible to go on when this target leaves now: while I/Os are served, and to the end from there, unless it may leave
    /// anyway.
    ///
    /// # Panics
    ///
    /// There is no such target.
    #[must_use]
    pub fn may_lose(&self, target: usize) -> bool {
        let serves = match self.phase {
            Phase::Query | Phase::Init | Phase::Start => false,
            Phase::Stop | Phase::Shutdown => self.step != Step::Ended,
        };
        let has_left = self.phase == Phase::Shutdown
            && self.step != Step::Request
            && self.step != Step::Expiry
            && self.step != Step::Job(Doing::CloseRecords)
            && !self.inquiry.is_pending(target);
        serves && !self.without[target] && !has_left
    }

    /// Whether the session goes on without this target.
    ///
    /// # Panics
    ///
    /// There is no such target.
    #[must_use]
    pub fn is_without(&self, target: usize) -> bool {
        self.without[target]
    }

    /// The place of a lost target, while it may come back: as long as I/Os are served.
    ///
    /// # Panics
    ///
    /// There is no such target.
    #[must_use]
    pub fn place(&self, target: usize) -> Option<Place> {
        let serves = self.phase == Phase::Stop && self.step == Step::Request;
        if !serves || !self.without[target] {
            return None;
        }
        Some(Place {
            target,
            name: L::TARGETS[target],
            storage: self.targets.get(target)?.storage.clone(),
            identity: self.targets.get(target)?.identity.clone(),
            query: self.query(),
            init: self.init.clone()?,
        })
    }

    /// A lost target has come back to its [place](Self::place), as this storage: it is asked again what all are asked.
    ///
    /// # Panics
    ///
    /// There is no such target.
    pub fn regain(&mut self, target: usize, identity: Option<Bytes>) {
        self.without[target] = false;
        self.targets[target].identity = identity;
    }

    /// Goes on without a target, when it [may](Self::may_lose): it is asked nothing more, and owes nothing.
    ///
    /// # Panics
    ///
    /// There is no such target.
    pub fn lose(&mut self, now: Instant, target: usize) {
        if !self.may_lose(target) {
            return;
        }
        self.without[target] = true;
        self.inquiry.forgive(target, answer_of_nobody);
        if self.step == Step::Storage {
            self.storage_answered(now);
        }
    }
}
