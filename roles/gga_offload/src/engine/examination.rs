//! Blocks that are not what was written, and work on stripes: which chunk is wrong, and what is done about it.
//!
//! With all three chunks at hand, data_1 and data_2 are suspected in turn: the suspect's chunk is recovered from the two others, beside
//! the one that was read. If it is the same, the three chunks fit each other, and that is all that can be known of a block without
//! checksum. Otherwise the combination whose checksum is right is what was written, and names the target whose chunk is wrong.
//!
//! After an unclean shutdown, some chunks of a block that was being written may be of the new block and others of the old one. The
//! combination whose checksum is right is one of the two. Of blocks without checksum, data_1 and data_2 are taken as they are if they
//! make up a block, otherwise the first of the other combinations that does. A target that is being rebuilt is believed only what a
//! checksum confirms: its chunk may be the one that an interrupted write has left alone.
//!
//! Where blocks without checksum are written again with one, or given one by a scrub, two chunks that make up a block without checksum
//! may be of two writes, too: the checksum may be in the third one. Until the stripe was verified, such a block is read only when all
//! three chunks fit each other, and no chunk is made of two.
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

use role_common::stored_block::Verdict;

use super::request::{Operation, Request};
use super::set::{Outcome, Purpose, Work};
use super::{Action, Flaw, Slot, Stage, Status, StripeEngine};
use crate::target::{Target, Targets};

/// Quality of a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// Its checksum is right, and is bound to its place.
    Bound,
    /// Its checksum is right, and of an earlier form that is bound to no place.
    Unbound,
    /// It has no checksum, and may be valid nevertheless.
    Bare,
    /// It is not valid.
    Flawed(Flaw),
}

impl Quality {
    /// Of what an inspection found.
    #[must_use]
    pub fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Bound => Self::Bound,
            Verdict::Unbound => Self::Unbound,

            Verdict::Absent => Self::Bare,
            Verdict::Differs { stored, calculated } => {
                Self::Flawed(Flaw::Checksum { stored, calculated })
            }
        }
    }

    /// Returns `true` if nothing was ever written there, or the content is zero and there is no checksum.
    fn is_unwritten(self) -> bool {
        self == Self::Flawed(Flaw::Unwritten)
    }
}

/// A block with a recovered data chunk, compared with the block as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// `true` if the two are equal.
    pub is_equal: bool,
    /// The block as it was read. [`Quality::Bare`] where it can be decompressed only.
    pub as_read: Quality,
    /// The block with the recovered chunk, likewise.
    pub with_recovered: Quality,
}

impl StripeEngine {
    /// Returns `true` if a block may be used, as far as its checksum tells.
    #[inline]
    pub(super) fn is_trusted(&self, quality: Quality) -> bool {
        match quality {
            Quality::Bound => true,
            Quality::Unbound => !self.setup.set.has_checksums(),
            Quality::Bare | Quality::Flawed(_) => false,
        }
    }

    /// Returns `true` if there may be blocks without checksum.
    fn accepts_bare(&self) -> bool {
        !self.setup.requires_checksums && !self.setup.set.has_checksums()
    }

    /// Returns `true` if two chunks that make up a block without checksum may be of two writes, of which the later one has a checksum.
    fn may_be_mixed(&self, slot: u32) -> bool {
        self.is_unverified(slot) && self.setup.set.is_to_convert()
    }

    /// Returns `true` if the chunks of the block at hand may be of two writes.
    fn is_unverified(&self, slot: u32) -> bool {
        let stripe = self.slots[slot as usize].stripe();
        self.setup.set.is_unverified(stripe)
    }

    /// The target that misses the block at hand, and whose chunk may be right all the same. It may have been detached since its chunk
    /// was read.
    fn stale_candidate(&self, slot: u32) -> Option<Target> {
        let incomplete = self.view.rebuilding.union(self.view.offline);
        let stale = incomplete.iter().next().filter(|_| incomplete.len() == 1)?;
        let stripe = self.slots[slot as usize].stripe();
        let may_be = self.setup.set.missed.contains(stripe) && self.is_unverified(slot);
        may_be.then_some(stale)
    }

    // Reads.

    /// The block is wrong or unverified: reads the third chunk.
    #[cold]
    pub(super) fn fetch_third_chunk(&mut self, slot: u32, quality: Quality) {
        let third = self.slots[slot as usize].recovered.unwrap_or(Target::DataP);
        let is_there = self.sources(slot).contains(third);
        if !is_there && self.stale_candidate(slot) != Some(third) {
            return self.conclude_read(slot, quality);
        }
        self.read_chunks(slot, Targets::only(third), Stage::ThirdChunk);
    }

    #[cold]
    pub(super) fn third_chunk_read(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        if it.failed.is_empty() {
            return self.recover(slot, Target::Data1, Stage::Suspicion(Target::Data1));
        }
        // It cannot be recovered.
        let recovered = it.recovered;
        self.verify(slot, recovered, Stage::FinalVerification);
    }

    /// There is no further chunk to read: the block is used, or the read fails.
    #[cold]
    pub(super) fn conclude_read(&mut self, slot: u32, quality: Quality) {
        match quality {
            _ if self.is_trusted(quality) => self.decompress(slot),
            Quality::Bare if self.accepts_bare() && !self.may_be_mixed(slot) => {
                self.decompress(slot);
            }
            Quality::Bare if self.accepts_bare() => self.corrupt(
                slot,
                "has no checksum and was perhaps being written when the service was interrupted: all three chunks are needed to tell",
            ),
            Quality::Bare if self.setup.requires_checksums => {
                self.corrupt(slot, "has no checksum, which --checksum require asks for")
            }
            Quality::Bare => self.corrupt(
                slot,
                "has no checksum, though all blocks of its set have one",
            ),
            Quality::Flawed(flaw) => self.corrupt(slot, flaw),
            Quality::Bound | Quality::Unbound => self.corrupt(
                slot,
                "has a checksum that is not bound to its place, though all blocks of its set have one that is",
            ),
        }
    }

    /// A target had a wrong chunk, which the others corrected: it has to be rewritten.
    #[cold]
    fn corrected(&mut self, slot: u32, target: Target) {
        let stripe = self.slots[slot as usize].stripe();
        let corrected = &mut self.statistics.corruption.corrected[target.number()];
        if corrected.count() {
            tracing::warn!(
                "block {stripe}: the chunk of storage target {} is not what was written ({corrected} so far); it was recovered from \
                 the others",
                target.name()
            );
        }
        if self.setup.is_writable && !self.view.rebuilding.contains(target) {
            self.setup.set.request_repair(stripe);
        }
    }

    // Verdict over three chunks.

    #[cold]
    pub(super) fn compared(&mut self, slot: u32, comparison: Comparison) {
        let it = &mut self.slots[slot as usize];
        let Stage::Comparison(suspect) = it.stage else {
            return;
        };
        let is_work = it.work.is_some();
        if suspect == Target::Data1 {
            it.first_comparison = Some(comparison);
        }
        let Comparison {
            is_equal,
            as_read,
            with_recovered,
        } = comparison;
        if is_equal {
            return match as_read {
                _ if is_work => self.chunks_fit(slot, as_read),
                _ if as_read.is_unwritten() && self.reads_unwritten() => self.read_zeros(slot),
                Quality::Bare if self.accepts_bare() => self.decompress(slot),
                _ => self.conclude_read(slot, as_read),
            };
        }
        if self.is_trusted(as_read) {
            return self.replace(slot, Target::DataP, true);
        }
        if self.is_trusted(with_recovered) {
            return self.replace(slot, suspect, true);
        }
        if suspect == Target::Data1 {
            return self.recover(slot, Target::Data2, Stage::Suspicion(Target::Data2));
        }
        if let Some(odd) = self.odd_beside_zeros(slot, with_recovered) {
            return match is_work {
                false => self.read_zeros(slot),
                true if self.setup.set.is_to_convert() => self.initialize(slot),
                true => self.remake(slot, odd),
            };
        }
        let stale = self.stale_candidate(slot);
        match stale.or_else(|| self.odd_without_checksum(slot, with_recovered)) {
            Some(odd) => self.replace(slot, odd, false),
            None if is_work => self.end_work(slot, Outcome::Unreadable),
            None => self.corrupt(
                slot,
                "is not what was written, and no two of its three chunks make it up",
            ),
        }
    }

    /// Returns `true` if there may be stripes that were never written, and they read as zeros.
    fn reads_unwritten(&self) -> bool {
        self.setup.zeroes_unwritten && !self.setup.set.has_checksums()
    }

    /// The blocks that two of the three chunks make up, each with the target that it does without.
    fn combinations(&self, slot: u32, with_data_2: Quality) -> Option<[(Target, Quality); 3]> {
        let first = self.slots[slot as usize].first_comparison?;
        Some([
            (Target::DataP, first.as_read),
            (Target::Data1, first.with_recovered),
            (Target::Data2, with_data_2),
        ])
    }

    /// The only chunk that an interrupted write has stored in a stripe that was unwritten before.
    fn odd_beside_zeros(&self, slot: u32, with_data_2: Quality) -> Option<Target> {
        if !self.reads_unwritten() || !self.is_unverified(slot) || self.is_incomplete(slot) {
            return None;
        }
        let combinations = self.combinations(slot, with_data_2)?;
        if combinations
            .iter()
            .any(|(_, quality)| *quality == Quality::Bare)
        {
            return None;
        }
        combinations
            .into_iter()
            .find(|(_, quality)| quality.is_unwritten())
            .map(|(odd, _)| odd)
    }

    /// Returns `true` if two targets are not current, and one of the chunks may be that of an earlier write.
    fn is_incomplete(&self, slot: u32) -> bool {
        let stripe = self.slots[slot as usize].stripe();
        !self.view.is_healthy() && self.setup.set.missed.contains(stripe)
    }

    /// The block at hand was never written.
    #[cold]
    fn read_zeros(&mut self, slot: u32) {
        let it = self.slot(slot);
        it.stage = Stage::Decompression;
        let (stripe, block) = (it.stripe(), it.block);
        self.act(Action::DecompressZeros {
            slot,
            stripe,
            block,
        });
    }

    /// Stores a block of zeros in the stripe at hand, which was never written.
    #[cold]
    fn initialize(&mut self, slot: u32) {
        let it = self.slot(slot);
        it.stage = Stage::Initialization;
        let stripe = it.stripe();
        self.act(Action::EncodeZeros { slot, stripe });
    }

    /// Has all chunks of an unwritten stripe stored.
    pub(super) fn store_initialized(&mut self, slot: u32) {
        self.write_chunks(slot, Targets::ALL, Stage::InitialStore, false);
    }

    /// The inconsistent chunk of a block that may be of two writes and has no checksum.
    fn odd_without_checksum(&self, slot: u32, with_data_2: Quality) -> Option<Target> {
        // Where blocks are written with checksums, the new block has one. Otherwise chunks of an old block without checksum and of a new
        // one that did not compress would be taken for a block.
        if !self.is_unverified(slot) || !self.accepts_bare() || self.setup.set.is_to_convert() {
            return None;
        }
        if self.is_incomplete(slot) {
            return None;
        }
        self.combinations(slot, with_data_2)?
            .into_iter()
            .find(|(_, quality)| *quality == Quality::Bare)
            .map(|(odd, _)| odd)
    }

    /// Continues without the wrong chunk: a read with the block of the others, work with a new chunk.
    #[cold]
    fn replace(&mut self, slot: u32, odd: Target, is_certain: bool) {
        if self.slots[slot as usize].work.is_some() {
            return self.remake(slot, odd);
        }
        if is_certain {
            self.corrected(slot, odd);
        }
        match odd {
            Target::DataP => self.verify(slot, None, Stage::FinalVerification),
            odd => self.recover(slot, odd, Stage::Replacement(odd)),
        }
    }

    // Work on stripes.

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
    fn chunks_fit(&mut self, slot: u32, quality: Quality) {
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

    /// Recomputes the chunk of a target from the two others.
    #[cold]
    fn remake(&mut self, slot: u32, target: Target) {
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
