//! Writes of the initiator's blocks, and flushes, on all online targets.

use super::{Action, SettleStage, Stage, Status, StripeEngine, WriteStage};
use crate::Targets;
use crate::chunk::Stamp;
use crate::set::Outcome;
use crate::versions::Versions;

impl StripeEngine {
    #[inline]
    pub(super) fn begin_write(&mut self, slot: u32) {
        if self.setup.set.has_unsettled() {
            return self.wait_for_settling(slot);
        }
        let it = self.slot(slot);
        it.stage = Stage::Write(WriteStage::Content);
        let block = it.block;
        self.act(Action::Fetch { slot, block });
    }

    #[inline]
    pub(super) fn fetched(&mut self, slot: u32, status: Status) {
        if !status.is_success() {
            return self.fail(slot, status);
        }
        if self.setup.stores_chunks {
            self.create_parity(slot, Stage::Write(WriteStage::Parity));
        } else {
            self.encode(slot);
        }
    }

    #[inline]
    pub(super) fn create_parity(&mut self, slot: u32, stage: Stage) {
        self.slot(slot).stage = stage;
        self.act(Action::CreateParity { slot });
    }

    /// Takes a number for the current block, as soon as one is available, and creates the block's chunks.
    #[inline]
    pub(super) fn number_write(&mut self, slot: u32) {
        match self.begin_number(slot) {
            Some(stamp) => {
                let stage = Stage::Write(WriteStage::Seal);
                self.seal(slot, Targets::ALL, stamp, stage);
            }
            None if self.setup.set.has_unsettled() => self.wait_for_settling(slot),
            None => self.wait_for_number(slot, Stage::Write(WriteStage::Number)),
        }
    }

    #[inline]
    pub(super) fn seal(&mut self, slot: u32, targets: Targets, stamp: Stamp, stage: Stage) {
        let it = self.slot(slot);
        it.stage = stage;
        let stripe = it.stripe();
        self.act(Action::Seal {
            slot,
            stripe,
            targets,
            stamp,
        });
    }

    /// Stores the chunks of the current block on all online targets.
    #[inline]
    pub(super) fn store(&mut self, slot: u32) {
        self.follow_view();
        let Some(sinks) = self.view.sinks() else {
            self.end_number(slot);
            return self.too_few_targets(slot);
        };
        if sinks != Targets::ALL {
            self.store_degraded(slot);
        }
        let stamp = self.slot(slot).stamp;
        self.write_chunks(slot, sinks, Stage::Write(WriteStage::Store), stamp);
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
            self.end_number(slot);
            return self.block_done(slot);
        }
        self.stored_on_some(slot);
    }

    #[cold]
    fn stored_on_some(&mut self, slot: u32) {
        // A target whose rebuild has just completed is counted, although the write was started earlier.
        self.follow_view();
        let it = &self.slots[slot as usize];
        let (stripe, asked, failed) = (it.stripe(), it.asked, it.failed);
        // The chunk of a target that had missed a write of the stripe is not counted.
        let was_missed = self.setup.set.missed.contains(stripe);
        let holders = self.view.holders(asked, failed, was_missed);
        // With a second target offline, two targets may have the chunks, but a read cannot determine this.
        if holders.len() < 2 || self.setup.set.view().has_failed() {
            return self.store_interrupted(slot);
        }
        if !failed.is_empty() {
            self.degraded_counts().writes += 1;
        }
        let on_all = asked == Targets::ALL && failed.is_empty();
        if on_all || self.setup.set.is_committed() {
            self.end_number(slot);
            return self.block_done(slot);
        }
        self.wait_for_commit(slot);
    }

    /// Continues once the epoch without a detached target is committed: until then, the next session could consider
    /// that target current.
    #[cold]
    pub(super) fn wait_for_commit(&mut self, slot: u32) {
        self.slot(slot).stage = Stage::Commit;
        self.uncommitted.push(slot);
    }

    /// Too few targets have stored the block: before it is written again, it is settled, as soon as enough targets are
    /// current.
    fn store_interrupted(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        self.setup.set.unsettle(it.stripe(), it.stamp);
        self.end_number(slot);
        self.too_few_targets(slot);
    }

    /// Continues degraded stores and flushes once the epoch without the target that missed them has been committed.
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
            let it = &self.slots[slot as usize];
            let (is_flush, is_settling) = (it.stamp.is_none(), it.settling.is_wanted);
            match (has_failed, is_flush) {
                (true, true) => self.too_few_targets(slot),
                (true, false) => self.store_interrupted(slot),
                (false, true) => self.flushed(slot),
                (false, false) if is_settling => self.settled_stored(slot),
                (false, false) => {
                    self.end_number(slot);
                    self.block_done(slot);
                }
            }
        }
    }

    // Numbers of writes.

    /// Takes a number for the chunks that the slot is going to store. `None` while too many writes are not retired.
    #[inline]
    pub(super) fn begin_number(&mut self, slot: u32) -> Option<Stamp> {
        let set = &self.setup.set;
        let versions = set.versions()?;
        let is_settling = matches!(self.slots[slot as usize].stage, Stage::Settle(_));
        // Until all interrupted writes are settled, no write is retired: the available numbers are reserved for
        // settling.
        if !is_settling && !set.unsettled.is_empty() {
            return None;
        }
        let stripe = self.slots[slot as usize].stripe();
        let stamp = versions.begin(&mut self.numbers, stripe, is_settling)?;
        self.slot(slot).stamp = Some(stamp);
        Some(stamp)
    }

    /// Records that the slot's write has completed, or that its stripe is marked as unsettled.
    #[inline]
    pub(super) fn end_number(&mut self, slot: u32) {
        if let (Some(stamp), Some(versions)) = (
            self.slots[slot as usize].stamp.take(),
            self.setup.set.versions(),
        ) {
            versions.end(&mut self.numbers, stamp);
        }
    }

    /// Repeats the write once all interrupted writes are settled, because no write gets a number before that. Settling
    /// may need the stripe's lock.
    #[cold]
    fn wait_for_settling(&mut self, slot: u32) {
        self.unlock(slot);
        self.slot(slot).stage = Stage::Parked;
        self.parked.push_back(slot);
    }

    #[cold]
    pub(super) fn wait_for_number(&mut self, slot: u32, stage: Stage) {
        self.slot(slot).stage = stage;
        self.numberless.push_back(slot);
    }

    /// Retries the slots that wait for a number, in order.
    #[cold]
    pub(super) fn retry_numberless(&mut self) {
        for _ in 0..self.numberless.len() {
            let Some(slot) = self.numberless.pop_front() else {
                return;
            };
            match self.slots[slot as usize].stage {
                Stage::Write(_) if self.setup.set.view().has_failed() => {
                    self.too_few_targets(slot);
                }
                Stage::Write(_) => self.number_write(slot),
                Stage::Settle(SettleStage::Number) => self.number_settled(slot),
                _ => self.impossible("a slot without a stamp"),
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
        let set = &self.setup.set;
        // Determined before the unsettled stripes are examined: an interrupted write marks its stripe before it no longer counts as in flight.
        let retirable = set.versions().map(Versions::retirable);
        // Writes of earlier epochs are retired with the first writes of this epoch, and therefore not before all of
        // them are settled.
        let is_retiring = set.unsettled.is_empty();
        self.slot(slot).retirable = retirable.filter(|_| is_retiring).unwrap_or_default();
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
        let (asked, failed, retirable) = (it.asked, it.failed, it.retirable);
        let status = it.error.unwrap_or(Status::IO_FAILED);
        if !self.setup.stores_chunks {
            return if failed.is_empty() {
                self.answer(slot, Status::SUCCESS)
            } else {
                self.fail(slot, status)
            };
        }
        let view = self.setup.set.view();
        if view.has_failed() {
            return self.too_few_targets(slot);
        }
        // A target that was rebuilt in the meantime has unflushed blocks, and a flushed member may have failed.
        if !view.sources(true).minus(asked.minus(failed)).is_empty() {
            return self.begin_flush(slot);
        }
        if !self.setup.set.is_committed() {
            // The targets keep a log of the writes that the detached target has missed until they are retired.
            return self.wait_for_commit(slot);
        }
        if let Some(versions) = self.setup.set.versions() {
            versions.retire(retirable);
        }
        self.flush_done(slot);
    }

    fn flush_done(&mut self, slot: u32) {
        if self.slots[slot as usize].work.is_some() {
            self.end_work(slot, Outcome::Consistent);
        } else {
            self.answer(slot, Status::SUCCESS);
        }
    }
}
