//! Reads and writes of the initiator's blocks.

use std::collections::VecDeque;
use std::ops::Range;

use super::examination::Quality;
use super::redundancy::View;
use super::{Action, Decompression, Stage, Status, StripeEngine};
use crate::target::{Target, Targets};

impl StripeEngine {
    // Reads.

    /// Asks for the data chunks, once in a while for one of them and the parity chunk.
    #[inline]
    pub(super) fn begin_read(&mut self, slot: u32) {
        self.follow_view();
        let sources = self.sources(slot);
        let without = match View::missing_chunk(sources) {
            None => return self.too_few_targets(slot),
            Some(None) if sources.contains(Target::DataP) => self.next_recovery(),
            Some(None) => None,
            Some(Some(missing)) => {
                self.degraded().reads += 1;
                Some(missing)
            }
        };
        self.slot(slot).recovered = without;
        let targets = without.map_or(Targets::DATA, Targets::without);
        self.read_chunks(slot, targets, Stage::Chunks);
    }

    /// Targets that the block at hand can be read from.
    #[inline]
    pub(super) fn sources(&self, slot: u32) -> Targets {
        let it = &self.slots[slot as usize];
        if self.view.is_healthy() {
            return Targets::ALL.minus(it.avoided);
        }
        let is_missed = self.setup.set.missed.contains(it.stripe());
        self.view.sources(is_missed).minus(it.avoided)
    }

    /// The chunk that the next read does without: every Nth one, first data_2's, then data_1's, and so on.
    #[inline]
    fn next_recovery(&mut self) -> Option<Target> {
        if self.until_recovery == 0 {
            return None;
        }
        self.until_recovery -= 1;
        if self.until_recovery != 0 {
            return None;
        }
        self.until_recovery = self.setup.recover_every;
        self.statistics.recovery_count += 1;
        let first = self.statistics.recovery_count % 2 == 1;
        Some(if first { Target::Data2 } else { Target::Data1 })
    }

    #[inline]
    pub(super) fn chunks_read(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        if !it.failed.is_empty() {
            return self.chunks_not_read(slot);
        }
        match it.recovered {
            None => self.verify(slot, None, Stage::Verification),
            Some(without) => self.recover(slot, without, Stage::Recovery(without)),
        }
    }

    /// A chunk was not read: the block is read without it.
    #[cold]
    fn chunks_not_read(&mut self, slot: u32) {
        let it = &mut self.slots[slot as usize];
        let (failed, stripe) = (it.failed, it.stripe());
        let status = it.error.unwrap_or(Status::IO_FAILED);
        if !self.setup.is_degradable {
            return self.fail(slot, status);
        }
        it.avoided = it.avoided.union(failed);
        let unreadable = failed.minus(self.detached);
        if !unreadable.is_empty() {
            // A chunk that is rewritten can often be read again; a target that cannot rewrite it is detached.
            self.setup.set.request_repair(stripe);
        }
        for target in unreadable.iter() {
            let count = &mut self.degraded().failed_reads[target.number()];
            if count.count() {
                let (count, name) = (*count, target.name());
                tracing::warn!(
                    "storage target {name} failed to read its chunk of block {stripe} ({status}, {count} so far); it is recovered \
                     from the others"
                );
            }
        }
        self.begin_read(slot);
    }

    /// Recomputes a data chunk from the two others, in private memory.
    #[inline]
    pub(super) fn recover(&mut self, slot: u32, target: Target, stage: Stage) {
        self.slot(slot).stage = stage;
        self.act(Action::Recover { slot, target });
    }

    /// Has the block judged, with the recovered chunk in the place of `recovered`.
    #[inline]
    pub(super) fn verify(&mut self, slot: u32, recovered: Option<Target>, stage: Stage) {
        let it = self.slot(slot);
        it.stage = stage;
        it.recovered = recovered;
        let stripe = it.stripe();
        self.act(Action::Verify {
            slot,
            stripe,
            recovered,
        });
    }

    #[inline]
    pub(super) fn recovered(&mut self, slot: u32, status: Status) {
        if !status.is_success() {
            return self.fail(slot, status);
        }
        let it = self.slot(slot);
        let stripe = it.stripe();
        match it.stage {
            Stage::Recovery(target) => self.verify(slot, Some(target), Stage::Verification),
            Stage::Replacement(target) => {
                self.verify(slot, Some(target), Stage::FinalVerification);
            }
            Stage::Remake(target) => {
                self.verify(slot, Some(target), Stage::RemakeVerification(target));
            }
            Stage::Suspicion(target) => {
                it.stage = Stage::Comparison(target);
                self.act(Action::Compare {
                    slot,
                    stripe,
                    recovered: target,
                });
            }
            _ => {}
        }
    }

    #[inline]
    pub(super) fn verified(&mut self, slot: u32, quality: Quality) {
        match self.slots[slot as usize].stage {
            Stage::Verification if self.is_trusted(quality) => self.decompress(slot),
            Stage::Verification => self.fetch_third_chunk(slot, quality),
            Stage::FinalVerification => self.conclude_read(slot, quality),
            Stage::RemakeVerification(target) => self.remade(slot, target, quality),
            _ => {}
        }
    }

    #[inline]
    pub(super) fn decompress(&mut self, slot: u32) {
        let it = self.slot(slot);
        it.stage = Stage::Decompression;
        let block = it.block;
        self.act(Action::Decompress { slot, block });
    }

    #[inline]
    pub(super) fn decompressed(&mut self, slot: u32, outcome: Decompression) {
        match outcome {
            Decompression::Done => self.block_done(slot),
            // Its checksum or its parity was right: it was written so.
            Decompression::Corrupt => self.corrupt(slot, "cannot be decompressed to a block"),
            Decompression::Failed(status) => self.fail(slot, status),
        }
    }

    /// The block at hand cannot be read or written with the targets that are left.
    #[cold]
    pub(super) fn too_few_targets(&mut self, slot: u32) {
        let stripe = self.slot(slot).stripe();
        let impossible = &mut self.degraded().impossible;
        if impossible.count() {
            let count = *impossible;
            tracing::error!("too few storage targets are left for block {stripe} ({count} so far)");
        }
        let status = self.slot(slot).error;
        self.fail(slot, status.unwrap_or(Status::IO_FAILED));
    }

    // Writes.

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

    /// Has the chunks of the block at hand stored, on all targets that are online.
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

    /// Before the stripe changes anywhere, it is known that a target misses it.
    #[cold]
    fn store_degraded(&mut self, slot: u32) {
        let stripe = self.slot(slot).stripe();
        self.setup.set.missed.insert(stripe);
        self.degraded().writes += 1;
    }

    /// Every target has stored its chunk, or has failed to, or is detached.
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
        // A target whose rebuild has just completed counts, though the write was begun before.
        self.follow_view();
        let it = &self.slots[slot as usize];
        let (stripe, asked, failed) = (it.stripe(), it.asked, it.failed);
        let status = it.error.unwrap_or(Status::IO_FAILED);
        if !self.setup.is_degradable && !failed.is_empty() {
            return self.fail(slot, status);
        }
        // The chunk of a target that has missed the stripe before does not count.
        let was_missed = self.setup.set.missed.contains(stripe);
        let holders = self.view.holders(asked, failed, was_missed);
        // With a second target offline, two targets may hold the chunks, but a read cannot tell.
        if holders.len() < 2 || self.setup.set.view().has_failed() {
            return self.too_few_targets(slot);
        }
        if !failed.is_empty() {
            self.degraded().writes += 1;
        }
        let on_all = asked == Targets::ALL && failed.is_empty();
        if on_all || self.setup.set.is_committed() {
            return self.block_done(slot);
        }
        self.slot(slot).stage = Stage::Commit;
        self.uncommitted.push(slot);
    }

    // Flushes.

    /// Has all targets that are online make durable what they have stored.
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

    /// Every target has flushed, or has failed to, or is detached.
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

    /// Goes on with degraded writes and flushes when the epoch without the target that missed them is committed.
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

// Transactions that wait for a request.

/// Transactions that rest while others can be used. One that completed just now is not used at once: with 16 transactions, reads are a
/// twentieth slower then (measured).
const RESTING: usize = 12;

/// Hands out transactions, as few different ones as possible, so that what they use stays in the core's caches. The initiator is given
/// twice as many as it announces, as in the reference, and would use all of them in turn. It allocates only when it is created.
#[derive(Debug)]
pub(super) struct IdleTransactions {
    /// In the order in which they ended.
    ended: VecDeque<usize>,
    /// Transactions that were never used.
    unused: Range<usize>,
}

impl IdleTransactions {
    /// A queue with this many idle transactions.
    pub(super) fn new(count: usize) -> Self {
        Self {
            ended: VecDeque::with_capacity(count),
            unused: 0..count,
        }
    }

    /// Takes a transaction, if one is idle.
    #[inline]
    pub(super) fn take(&mut self) -> Option<usize> {
        if self.ended.len() > RESTING {
            return self.ended.pop_front();
        }
        self.unused.next().or_else(|| self.ended.pop_front())
    }

    /// A transaction that was taken has ended.
    #[inline]
    pub(super) fn give_back(&mut self, transaction: usize) {
        self.ended.push_back(transaction);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_transaction_is_handed_out_once() {
        for count in [0, 1, RESTING, 100] {
            let mut idle = IdleTransactions::new(count);
            for _ in 0..3 {
                let taken: HashSet<_> = std::iter::from_fn(|| idle.take()).collect();
                assert_eq!(taken, (0..count).collect());
                taken.into_iter().for_each(|index| idle.give_back(index));
            }
        }
    }

    #[test]
    fn few_transactions_are_used_longest_rested_first() {
        let mut idle = IdleTransactions::new(128);
        let mut in_flight: VecDeque<_> = (0..16).filter_map(|_| idle.take()).collect();
        let mut used: HashSet<_> = in_flight.iter().copied().collect();
        for _ in 0..1000 {
            let ended = in_flight.pop_front().expect("16 are in flight");
            idle.give_back(ended);
            let next = idle.take().expect("one has just ended");
            assert_ne!(next, ended, "it is to rest");
            used.insert(next);
            in_flight.push_back(next);
        }
        assert_eq!(used.len(), 16 + RESTING);
    }
}
