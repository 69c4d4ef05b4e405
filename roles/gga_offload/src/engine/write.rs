//! Writes of the initiator's blocks, and flushes, on all online targets.

use super::{Action, Stage, Status, StripeEngine};
use crate::Targets;

impl StripeEngine {
    #[inline]
    pub(super) fn begin_write(&mut self, slot: u32) {
        let it = self.slot(slot);
        it.stage = Stage::Content;
        let block = it.block;
        self.act(Action::Fetch { slot, block });
    }

    #[inline]
    pub(super) fn fetched(&mut self, slot: u32, status: Status) {
        if !status.is_success() {
            return self.fail(slot, status);
        }
        let it = self.slot(slot);
        it.stage = Stage::Encoding;
        let stripe = it.stripe();
        self.act(Action::Encode { slot, stripe });
    }

    #[inline]
    pub(super) fn encoded(&mut self, slot: u32, fits: bool) {
        if !fits {
            return self.fail(slot, Status::IO_FAILED);
        }
        let stage = match self.slot(slot).stage {
            Stage::Initialization => Stage::InitialParity,
            _ => Stage::Parity,
        };
        self.create_parity(slot, stage, false);
    }

    #[inline]
    pub(super) fn create_parity(&mut self, slot: u32, stage: Stage, were_read: bool) {
        self.slot(slot).stage = stage;
        self.act(Action::CreateParity { slot, were_read });
    }

    #[inline]
    pub(super) fn parity_created(&mut self, slot: u32, status: Status) {
        if !status.is_success() {
            return self.fail(slot, status);
        }
        match self.slot(slot).stage {
            Stage::Parity => self.store(slot),
            Stage::Remake(target) => self.verify(slot, None, Stage::RemakeVerification(target)),
            Stage::ResealParity => self.store_resealed(slot),
            Stage::InitialParity => self.store_initialized(slot),
            _ => {}
        }
    }

    /// Stores the chunks of the current block on all online targets.
    #[inline]
    fn store(&mut self, slot: u32) {
        self.follow_view();
        let Some(sinks) = self.view.sinks() else {
            return self.too_few_targets(slot);
        };
        if sinks != Targets::ALL {
            self.store_degraded(slot);
        }
        self.write_chunks(slot, sinks, Stage::Store, false);
    }

    /// Marks the stripe as missed by a target before any other target changes it.
    #[cold]
    fn store_degraded(&mut self, slot: u32) {
        let stripe = self.slot(slot).stripe();
        self.setup.set.missed.insert(stripe);
        self.degraded_counts().writes += 1;
    }

    /// Completes a store after every target has stored its chunk, failed or was detached.
    #[inline]
    pub(super) fn stored(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        if it.failed.is_empty() && it.asked == Targets::ALL && self.view.is_healthy() {
            return self.block_done(slot);
        }
        self.stored_on_some(slot);
    }

    #[cold]
    fn stored_on_some(&mut self, slot: u32) {
        // A target whose rebuild has just completed counts, although the write was started before.
        self.follow_view();
        let it = &self.slots[slot as usize];
        let (stripe, asked, failed) = (it.stripe(), it.asked, it.failed);
        let status = it.error.unwrap_or(Status::IO_FAILED);
        if !self.setup.is_degradable && !failed.is_empty() {
            return self.fail(slot, status);
        }
        // The chunk of a target that had missed the stripe does not count.
        let was_missed = self.setup.set.missed.contains(stripe);
        let holders = self.view.holders(asked, failed, was_missed);
        // With a second target offline, two targets may have the chunks, but a read cannot know that.
        if holders.len() < 2 || self.setup.set.view().has_failed() {
            return self.too_few_targets(slot);
        }
        if !failed.is_empty() {
            self.degraded_counts().writes += 1;
        }
        let on_all = asked == Targets::ALL && failed.is_empty();
        if on_all || self.setup.set.is_committed() {
            return self.block_done(slot);
        }
        self.slot(slot).stage = Stage::Commit;
        self.uncommitted.push(slot);
    }

    /// Continues degraded writes and flushes once the epoch without the target that missed them is committed.
    #[cold]
    pub(super) fn retry_uncommitted(&mut self) {
        loop {
            let has_failed = self.setup.set.view().has_failed();
            if !has_failed && !self.setup.set.is_committed() {
                break;
            }
            let Some(slot) = self.uncommitted.pop() else {
                break;
            };
            if has_failed {
                self.too_few_targets(slot);
            } else {
                self.block_done(slot);
            }
        }
    }
}

/// Flushes.
impl StripeEngine {
    /// Makes all acknowledged chunks durable on the online targets.
    #[cold]
    pub(super) fn begin_flush(&mut self, slot: u32) {
        self.follow_view();
        let Some(sinks) = self.view.sinks() else {
            return self.too_few_targets(slot);
        };
        let (targets, _) = self.ask(slot, sinks, Stage::Flush);
        if targets.is_empty() {
            return self.chunks_done(slot);
        }
        self.act(Action::Flush { slot, targets });
    }

    /// Completes a flush after every target has flushed, failed or was detached.
    #[cold]
    pub(super) fn flushed(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        let (asked, failed) = (it.asked, it.failed);
        let status = it.error.unwrap_or(Status::IO_FAILED);
        if !self.setup.is_degradable && !failed.is_empty() {
            return self.fail(slot, status);
        }
        let view = self.setup.set.view();
        if view.has_failed() {
            return self.too_few_targets(slot);
        }
        // A target that was rebuilt meanwhile has unflushed blocks, and a flushed member may have failed.
        if !view.sources(true).minus(asked.minus(failed)).is_empty() {
            return self.begin_flush(slot);
        }
        if self.setup.set.is_committed() {
            return self.answer(slot, Status::SUCCESS);
        }
        self.slot(slot).stage = Stage::Commit;
        self.uncommitted.push(slot);
    }
}
