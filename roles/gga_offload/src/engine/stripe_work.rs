//! Background work on stripes: rebuild, resync, repair and scrub.
//!
//! # Stripes that were never written
//!
//! Unwritten blocks of a block device read as zeros, but three chunks of zeros do not prove that a stripe was never written. So the first
//! scrub of a set, which gives all blocks a checksum, also stores blocks of zeros in unwritten stripes; until it has completed, a stripe
//! reads as zeros if all three chunks were read and are zero. Two chunks are not enough: one half of a block without checksum may be zero.
//! Afterwards every stripe has been written, and chunks of zeros are corruption like any other.
//!
//! An interrupted write may have stored only one chunk. The other two are zero, which is the previous content of the block, unless the
//! three chunks may be the remains of a block without checksum. Blocks without checksum whose content is zero are no exception: the content
//! is the same either way. So an interrupted scrub leaves no stripe unreadable.
//!
//! A checksum proves a block's location and integrity, not its age. A target that loses a write, and so keeps its stale chunk, is detected
//! by the next read or scrub, because the stale chunk is inconsistent with the new ones, as long as only one target is affected.

use super::read::Quality;
use super::request::{Operation, Request};
use super::set::{Outcome, Purpose, Work};
use super::{Action, Slot, Stage, Status, StripeEngine};
use crate::{Target, Targets};

impl StripeEngine {
    /// Starts work on stripes to rebuild, verify or repair, as long as there are stripes and idle slots.
    #[cold]
    pub(super) fn begin_works(&mut self) {
        while let Some(&slot) = self.idle_workers.last() {
            let Some(work) = self.setup.set.next_work(self.now) else {
                break;
            };
            self.idle_workers.pop();
            *self.slot(slot) = Slot {
                work: Some(work),
                request: Request {
                    operation: Operation::Write,
                    first_stripe: work.stripe,
                    blocks: 1,
                    ..Request::default()
                },
                ..Slot::new()
            };
            self.begin_block(slot);
        }
    }

    /// Reads the chunks of the stripe, which is locked.
    pub(super) fn begin_work(&mut self, slot: u32, work: Work) {
        let rebuilding = match work.purpose {
            Purpose::Rebuild(target) => Targets::only(target),
            Purpose::Resync | Purpose::Repair | Purpose::Scrub => Targets::NONE,
        };
        if self.view.rebuilding != rebuilding || !self.view.offline.is_empty() {
            return self.end_work(slot, Outcome::Retry);
        }
        let sources = if self.is_unverified(slot) {
            Targets::ALL
        } else {
            Targets::ALL.minus(rebuilding)
        };
        self.read_chunks(slot, sources, Stage::WorkChunks);
    }

    #[cold]
    pub(super) fn work_chunks_read(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        let (asked, failed) = (it.asked, it.failed);
        let rebuilding = match it.work.map(|work| work.purpose) {
            Some(Purpose::Rebuild(target)) => Some(target),
            _ => None,
        };
        let missing = Targets::ALL.minus(asked).union(failed);
        match (missing.iter().next(), rebuilding) {
            (None, _) => self.recover(slot, Target::Data1, Stage::Suspicion(Target::Data1)),
            (Some(target), Some(rebuilding)) if missing == Targets::only(rebuilding) => {
                self.remake(slot, target);
            }
            // The target's disk cannot read the chunk: it is rewritten.
            (Some(target), None) if missing.len() == 1 && !self.is_detached(target) => {
                self.remake(slot, target);
            }
            _ => self.end_work(slot, Outcome::Retry),
        }
    }

    /// Handles a stripe with consistent chunks. A block without a checksum that is bound to its location is given one.
    pub(super) fn chunks_fit(&mut self, slot: u32, quality: Quality) {
        let set = &self.setup.set;
        let stripe = self.slots[slot as usize].stripe();
        match quality {
            Quality::Bound => self.end_work(slot, Outcome::Fits),
            Quality::Unbound | Quality::Bare if set.is_to_convert() => {
                self.slot(slot).stage = Stage::Reseal;
                self.act(Action::Reseal { slot, stripe });
            }
            _ if quality.is_unwritten() && self.reads_unwritten() && set.is_to_convert() => {
                self.initialize(slot);
            }
            _ if self.is_trusted(quality) || quality.is_unwritten() => {
                self.end_work(slot, Outcome::Fits);
            }
            Quality::Bare if self.accepts_bare() => self.end_work(slot, Outcome::Fits),
            _ => self.end_work(slot, Outcome::Unreadable),
        }
    }

    #[cold]
    pub(super) fn resealed(&mut self, slot: u32) {
        self.create_parity(slot, Stage::ResealParity, false);
    }

    /// Recomputes the parity after a change of the trailer, which is in the chunk of data_2.
    pub(super) fn store_resealed(&mut self, slot: u32) {
        let targets = Targets::without(Target::Data1);
        self.write_chunks(slot, targets, Stage::ResealStore, false);
    }

    #[cold]
    pub(super) fn resealed_stored(&mut self, slot: u32) {
        let is_stored = self.slots[slot as usize].failed.is_empty();
        let outcome = if is_stored {
            Outcome::Converted
        } else {
            Outcome::Retry
        };
        self.end_work(slot, outcome);
    }

    /// Stores a block of zeros in the current stripe, which was never written.
    #[cold]
    pub(super) fn initialize(&mut self, slot: u32) {
        let it = self.slot(slot);
        it.stage = Stage::Initialization;
        let stripe = it.stripe();
        self.act(Action::EncodeZeros { slot, stripe });
    }

    /// Stores all chunks of a previously unwritten stripe.
    pub(super) fn store_initialized(&mut self, slot: u32) {
        self.write_chunks(slot, Targets::ALL, Stage::InitialStore, false);
    }

    /// Recovers the chunk of a target from the other two.
    #[cold]
    pub(super) fn remake(&mut self, slot: u32, target: Target) {
        let stage = Stage::Remake(target);
        match target {
            Target::DataP => self.create_parity(slot, stage, true),
            target => self.recover(slot, target, stage),
        }
    }

    /// Stores the recovered chunk on its target, after the block was verified with it.
    #[cold]
    pub(super) fn remade(&mut self, slot: u32, target: Target, quality: Quality) {
        let it = &self.slots[slot as usize];
        let is_rebuild = matches!(it.work.map(|work| work.purpose), Some(Purpose::Rebuild(_)));
        if is_rebuild && quality == Quality::Bare && self.may_be_mixed(slot) {
            return self.end_work(slot, Outcome::Undecided);
        }
        // Data that may not be a valid block must not overwrite a chunk that may be correct.
        if !is_rebuild && !self.is_good(slot, quality) && !quality.is_unwritten() {
            // After an unclean shutdown, the chunk that could not be read may be needed to decide.
            let is_resync = it.work.map(|work| work.purpose) == Some(Purpose::Resync);
            let outcome = if is_resync {
                Outcome::Retry
            } else {
                Outcome::Unreadable
            };
            return self.end_work(slot, outcome);
        }
        // Input of `remade_stored`.
        let is_to_convert = self.setup.set.is_to_convert();
        self.slot(slot).remade = match quality {
            Quality::Unbound | Quality::Bare if is_to_convert => Outcome::Unconverted(target),
            quality if self.is_good(slot, quality) => Outcome::Rewritten(target),
            _ => Outcome::Unverified(target),
        };
        let is_recovered = target != Target::DataP;
        let stage = Stage::RemakeStore(target);
        self.write_chunks(slot, Targets::only(target), stage, is_recovered);
    }

    fn is_good(&self, slot: u32, quality: Quality) -> bool {
        let is_bare = quality == Quality::Bare && self.accepts_bare();
        self.is_trusted(quality) || is_bare && !self.may_be_mixed(slot)
    }

    #[cold]
    pub(super) fn remade_stored(&mut self, slot: u32, target: Target) {
        let it = &self.slots[slot as usize];
        if it.failed.is_empty() {
            return self.end_work(slot, it.remade);
        }
        let status = it.error.unwrap_or(Status::IO_FAILED);
        if self.setup.is_degradable {
            let why = format_args!("it failed to write a chunk that was made again: {status}");
            self.setup.set.detach(target, why);
        }
        self.end_work(slot, Outcome::Retry);
    }

    /// Completes work on a stripe. If it has failed, it is retried later.
    #[cold]
    pub(super) fn end_work(&mut self, slot: u32, outcome: Outcome) {
        let Some(work) = self.slot(slot).work.take() else {
            return;
        };
        // Before the lock is released, so that its next owner can mark the stripe again.
        self.setup.set.finish_work(work, outcome, self.now);
        self.idle_workers.push(slot);
        self.unlock(slot);
        self.slot(slot).stage = Stage::Idle;
    }
}
