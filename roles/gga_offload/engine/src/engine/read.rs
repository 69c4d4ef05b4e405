//! Reads of blocks that are stored as chunks.
//!
//! A read uses both data chunks. If one is missing (its target is detached, or has missed the block), and for every
//! n-th read, the other data chunk and the parity chunk are read, and the missing chunk is recovered. Only two valid
//! chunks with equal stamps are used; otherwise the block is [settled](super::settle) and read again.

use super::{Action, Delivery, Judged, ReadStage, Stage, Status, StripeEngine};
use crate::membership::View;
use crate::{Target, Targets};

impl StripeEngine {
    /// Reads the data chunks or, for every n-th read, one of them and the parity chunk.
    #[inline]
    pub(super) fn begin_read(&mut self, slot: u32) {
        self.follow_view();
        let sources = self.sources(slot);
        let without = match View::missing_chunk(sources) {
            None => return self.too_few_targets(slot),
            Some(None) if sources.contains(Target::DataP) => self.next_recovery(),
            Some(None) => None,
            Some(Some(missing)) => {
                self.degraded_counts().reads += 1;
                Some(missing)
            }
        };
        self.slot(slot).missing = without;
        let targets = without.map_or(Targets::DATA, Targets::without);
        self.read_chunks(slot, targets, Stage::Read(ReadStage::Chunks));
    }

    /// Targets that the current block can be read from.
    #[inline]
    pub(super) fn sources(&self, slot: u32) -> Targets {
        if self.view.is_healthy() {
            return Targets::ALL;
        }
        let is_missed = self
            .setup
            .set
            .missed
            .contains(self.slots[slot as usize].stripe());
        self.view.sources(is_missed)
    }

    /// The chunk that the next read recovers instead of reading it: for every n-th read, alternately that of data_2 and data_1.
    #[inline]
    pub(super) fn next_recovery(&mut self) -> Option<Target> {
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
        let (asked, failed) = (it.asked, it.failed);
        if failed.is_empty() {
            return self.judge(slot, asked, Stage::Read(ReadStage::Judgement));
        }
        if failed.intersection(self.detached).is_empty() {
            self.count_failed_reads(slot, failed);
            return self.settle_first(slot);
        }
        // With the remaining targets.
        self.begin_read(slot);
    }

    /// Counts chunks that targets failed to read.
    #[cold]
    pub(super) fn count_failed_reads(&mut self, slot: u32, failed: Targets) {
        let it = &self.slots[slot as usize];
        let (stripe, status) = (it.stripe(), it.error.unwrap_or(Status::IO_FAILED));
        for target in failed.minus(self.detached).iter() {
            let count = &mut self.degraded_counts().failed_reads[target.number()];
            if count.count() {
                let (count, name) = (*count, target.name());
                tracing::warn!(
                    "storage target {name} failed to read its chunk of block {stripe} ({status}, {count} so far)"
                );
            }
        }
    }

    #[inline]
    pub(super) fn judge(&mut self, slot: u32, targets: Targets, stage: Stage) {
        let it = self.slot(slot);
        it.stage = stage;
        let stripe = it.stripe();
        self.act(Action::Judge {
            slot,
            stripe,
            targets,
        });
    }

    #[inline]
    pub(super) fn chunks_judged(&mut self, slot: u32, judged: &Judged) {
        let it = &self.slots[slot as usize];
        let missing = it.missing;
        let other = missing.map_or(Target::Data2, |_| Target::DataP);
        let data = match missing {
            Some(Target::Data1) => Target::Data2,
            _ => Target::Data1,
        };
        match (judged[data.number()], judged[other.number()]) {
            (Some(Ok(one)), Some(Ok(another))) if one == another => match missing {
                None => self.deliver(slot),
                Some(missing) => {
                    self.recover(slot, missing, Stage::Read(ReadStage::Recovery(missing)));
                }
            },
            _ => self.settle_first(slot),
        }
    }

    /// Settles the current block before it is read again; fails the read if that was done already.
    #[cold]
    pub(super) fn settle_first(&mut self, slot: u32) {
        let it = self.slot(slot);
        if it.settling.is_done {
            return self.fail(slot, Status::IO_FAILED);
        }
        self.unlock(slot);
        self.slot(slot).settling.is_wanted = true;
        self.lock_block(slot);
    }

    /// Recovers a data chunk from the other two chunks, in private memory.
    #[inline]
    pub(super) fn recover(&mut self, slot: u32, target: Target, stage: Stage) {
        self.slot(slot).stage = stage;
        self.act(Action::Recover { slot, target });
    }

    /// Copies the block to the initiator's memory.
    #[inline]
    pub(super) fn deliver(&mut self, slot: u32) {
        let it = self.slot(slot);
        it.stage = Stage::Read(ReadStage::Delivery);
        let block = it.block;
        self.act(Action::Deliver { slot, block });
    }

    #[inline]
    pub(super) fn delivered(&mut self, slot: u32, delivery: Delivery) {
        match delivery {
            Delivery::Done => self.block_done(slot),
            Delivery::Corrupt => self.uncorrectable(slot, "cannot be decompressed to a block"),
            Delivery::Failed(status) => self.fail(slot, status),
        }
    }

    /// Counts and logs a corrupt chunk that is rewritten from the others.
    #[cold]
    pub(super) fn found_corrupt(
        &mut self,
        slot: u32,
        target: Target,
        what: impl std::fmt::Display,
    ) {
        let stripe = self.slots[slot as usize].stripe();
        let corrected = &mut self.statistics.corruption.corrected[target.number()];
        if corrected.count() {
            tracing::warn!(
                "block {stripe}: the chunk of storage target {} {what} ({corrected} so far); it is made again from the others",
                target.name()
            );
        }
    }

    /// Fails a read of a block of which no two chunks belong to the same write.
    #[cold]
    pub(super) fn corrupt(&mut self, slot: u32, judged: &Judged) {
        let found = Found(judged);
        self.uncorrectable(
            slot,
            format_args!("is lost: no two of its chunks belong to the same write: {found}"),
        );
    }
}

/// Formats the chunks found of a stripe.
struct Found<'a>(&'a Judged);

impl std::fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (target, judgement) in Target::ALL.into_iter().zip(self.0) {
            let separator = if target == Target::Data1 { "" } else { ", " };
            write!(f, "{separator}that of {} ", target.name())?;
            match judgement {
                None => f.write_str("was not read")?,
                Some(Ok(stamp)) => write!(f, "has stamp {stamp}")?,
                Some(Err(flaw)) => write!(f, "{flaw}")?,
            }
        }
        Ok(())
    }
}
