//! Work on stripes that no request asks for: rebuild, resync, repair and scrub.
//!
//! # Stripes that were never written
//!
//! A block device reads zeros there, but three chunks of zeros do not prove that a stripe was never written. So the first scrub of a
//! set, which gives all blocks a checksum, also stores blocks of zeros in stripes that are unwritten; until it has completed, a stripe reads as
//! zeros if all three chunks were read and are zero. Two chunks are not enough: one half of a block without checksum may be zero. From then
//! on every stripe was written, and chunks of zeros are damage like any other.
//!
//! A write that was interrupted may have stored one chunk only. The two others are zero, which is the block as it was before, unless the
//! three chunks may be what is left of a block without checksum. Blocks without checksum whose content is zero are no exception: either way
//! the content is the same. So an interrupted scrub leaves no stripe unreadable.
//!
//! A checksum says where a block belongs and that it is whole, not when it was written. A target that loses a write and keeps the
//! chunk that it had before shows when its old chunk does not fit the new other one, that is, by the next read or scrub, as long as it
//! is the only one.

use super::read::Quality;
use super::request::{Operation, Request};
use super::set::{Outcome, Purpose, Work};
use super::{Action, Slot, Stage, Status, StripeEngine};
use crate::{Target, Targets};

impl StripeEngine {
    /// Begins with stripes to rebuild, verify or repair, as long as there are any and slots for them.
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

    /// Reads the chunks of the work's stripe, which is locked.
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
            // Its disk cannot read it: it is given the chunk again.
            (Some(target), None) if missing.len() == 1 && !self.is_detached(target) => {
                self.remake(slot, target);
            }
            _ => self.end_work(slot, Outcome::Retry),
        }
    }

    /// All chunks are consistent. A block without a checksum that is bound to its place is given one.
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

    /// The trailer is in the chunk of data_2, and so changes the parity.
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

    /// Stores a block of zeros in the stripe at hand, which was never written.
    #[cold]
    pub(super) fn initialize(&mut self, slot: u32) {
        let it = self.slot(slot);
        it.stage = Stage::Initialization;
        let stripe = it.stripe();
        self.act(Action::EncodeZeros { slot, stripe });
    }

    /// Has all chunks of an unwritten stripe stored.
    pub(super) fn store_initialized(&mut self, slot: u32) {
        self.write_chunks(slot, Targets::ALL, Stage::InitialStore, false);
    }

    /// Recomputes the chunk of a target from the two others.
    #[cold]
    pub(super) fn remake(&mut self, slot: u32, target: Target) {
        let stage = Stage::Remake(target);
        match target {
            Target::DataP => self.create_parity(slot, stage, true),
            target => self.recover(slot, target, stage),
        }
    }

    /// The chunk is recomputed, and the block with it judged: the target is sent the chunk.
    #[cold]
    pub(super) fn remade(&mut self, slot: u32, target: Target, quality: Quality) {
        let it = &self.slots[slot as usize];
        let is_rebuild = matches!(it.work.map(|work| work.purpose), Some(Purpose::Rebuild(_)));
        if is_rebuild && quality == Quality::Bare && self.may_be_mixed(slot) {
            return self.end_work(slot, Outcome::Undecided);
        }
        // Data that may not be a block must not overwrite a chunk that may be the right one.
        if !is_rebuild && !self.is_good(slot, quality) && !quality.is_unwritten() {
            // After an unclean shutdown, the chunk that could not be read may tell.
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

    /// Ends work on a stripe. Without success, it is tried again.
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
