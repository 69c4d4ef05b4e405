//! Reads of the initiator's blocks: of a healthy set, of a degraded one, and of blocks with a corrupt chunk.
//!
//! A read uses both data chunks. If one is missing (its target is detached or has failed to read it), and for every n-th read, the other
//! one and the parity chunk are read, and the missing one is recovered. If the block is not valid, or its chunks may belong to two
//! different writes, the third chunk is read, too, to find the corrupt one.
//!
//! # Three chunks
//!
//! With all three chunks read, data_1 and data_2 are suspected in turn: the suspect's chunk is recovered from the other two and compared
//! with the one that was read. If they are equal, the three chunks are consistent, and for a block without checksum that is the only
//! possible check. Otherwise the combination with the correct checksum is the block that was written, and identifies the target whose
//! chunk is corrupt.
//!
//! After an unclean shutdown, some chunks of a block that was being written may belong to the new block and others to the old one. The
//! combination with the correct checksum is one of the two. For blocks without checksum, data_1 and data_2 are used as they are if they
//! form a valid block, otherwise the first other combination that does. The chunk of a target that is being rebuilt is trusted only if a
//! checksum confirms it: it may be the only one that an interrupted write did not replace.
//!
//! If blocks without checksum are overwritten by blocks with one, or given one by a scrub, two chunks that form a block without checksum
//! may also belong to two different writes: the checksum may be in the third one. Until the stripe was verified, such a block is read only
//! if all three chunks are consistent, and no chunk is recovered from the other two.

use std::fmt;

use role_common::stored_block::{Defect, Verdict};

use super::membership::View;
use super::set::Outcome;
use super::{Action, Decompression, Stage, Status, StripeEngine};
use crate::{Target, Targets};

impl StripeEngine {
    /// Reads the data chunks, or for every n-th read one of them and the parity chunk.
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
        self.read_chunks(slot, targets, Stage::Chunks);
    }

    /// Targets that the current block can be read from.
    #[inline]
    pub(super) fn sources(&self, slot: u32) -> Targets {
        let it = &self.slots[slot as usize];
        if self.view.is_healthy() {
            return Targets::ALL.minus(it.avoided);
        }
        let is_missed = self.setup.set.missed.contains(it.stripe());
        self.view.sources(is_missed).minus(it.avoided)
    }

    /// The chunk that the next read recovers instead of reading it: for every n-th read, alternately that of data_2 and data_1.
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
        match it.missing {
            None => self.verify(slot, None, Stage::Verification),
            Some(without) => self.recover(slot, without, Stage::Recovery(without)),
        }
    }

    /// Handles a chunk that could not be read: continues without it.
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
            // A rewritten chunk is often readable again; a target that cannot rewrite it is detached.
            self.setup.set.request_repair(stripe);
        }
        for target in unreadable.iter() {
            let count = &mut self.degraded_counts().failed_reads[target.number()];
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

    /// Recovers a data chunk from the other two chunks, in private memory.
    #[inline]
    pub(super) fn recover(&mut self, slot: u32, target: Target, stage: Stage) {
        self.slot(slot).stage = stage;
        self.act(Action::Recover { slot, target });
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

    /// Verifies the block, with the recovered chunk in place of `recovered`.
    #[inline]
    pub(super) fn verify(&mut self, slot: u32, recovered: Option<Target>, stage: Stage) {
        let it = self.slot(slot);
        it.stage = stage;
        it.missing = recovered;
        let stripe = it.stripe();
        self.act(Action::Verify {
            slot,
            stripe,
            recovered,
        });
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
            // Its checksum or its parity was correct: it was written like this.
            Decompression::Corrupt => self.corrupt(slot, "cannot be decompressed to a block"),
            Decompression::Failed(status) => self.fail(slot, status),
        }
    }

    /// Fails the current block, which cannot be read or written with the remaining targets.
    #[cold]
    pub(super) fn too_few_targets(&mut self, slot: u32) {
        let stripe = self.slot(slot).stripe();
        let impossible = &mut self.degraded_counts().impossible;
        if impossible.count() {
            let count = *impossible;
            tracing::error!("too few storage targets are left for block {stripe} ({count} so far)");
        }
        let status = self.slot(slot).error;
        self.fail(slot, status.unwrap_or(Status::IO_FAILED));
    }
}

/// Corrupt blocks.
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
    pub(super) fn accepts_bare(&self) -> bool {
        !self.setup.requires_checksums && !self.setup.set.has_checksums()
    }

    /// Returns `true` if two chunks that form a block without checksum may belong to two different writes, the later one with checksum.
    pub(super) fn may_be_mixed(&self, slot: u32) -> bool {
        self.is_unverified(slot) && self.setup.set.is_to_convert()
    }

    /// Returns `true` if the chunks of the current block may belong to two different writes.
    pub(super) fn is_unverified(&self, slot: u32) -> bool {
        let stripe = self.slots[slot as usize].stripe();
        self.setup.set.is_unverified(stripe)
    }

    /// The target that has missed the current block, but whose chunk may be correct nevertheless. It may have been detached after its
    /// chunk was read.
    fn stale_candidate(&self, slot: u32) -> Option<Target> {
        let incomplete = self.view.rebuilding.union(self.view.offline);
        let stale = incomplete.iter().next().filter(|_| incomplete.len() == 1)?;
        let stripe = self.slots[slot as usize].stripe();
        let may_be = self.setup.set.missed.contains(stripe) && self.is_unverified(slot);
        may_be.then_some(stale)
    }

    /// Reads the third chunk, because the block is corrupt or unverified.
    #[cold]
    pub(super) fn fetch_third_chunk(&mut self, slot: u32, quality: Quality) {
        let third = self.slots[slot as usize].missing.unwrap_or(Target::DataP);
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
        // The block cannot be recovered.
        let recovered = it.missing;
        self.verify(slot, recovered, Stage::FinalVerification);
    }

    /// Uses the block or fails the read: there is no further chunk to read.
    #[cold]
    pub(super) fn conclude_read(&mut self, slot: u32, quality: Quality) {
        match quality {
            _ if self.is_trusted(quality) => self.decompress(slot),
            Quality::Bare if self.accepts_bare() && !self.may_be_mixed(slot) => {
                self.decompress(slot);
            }
            Quality::Bare if self.accepts_bare() => self.corrupt(
                slot,
                "has no checksum and was perhaps being written when the service was interrupted: all three chunks are needed to decide",
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
                "is corrupt, and no two of its three chunks form a valid block",
            ),
        }
    }

    /// Continues without the corrupt chunk: a read uses the recovered block, background work rewrites the chunk.
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

    /// Counts a corrupt chunk that the others have corrected, and queues its repair.
    #[cold]
    fn corrected(&mut self, slot: u32, target: Target) {
        let stripe = self.slots[slot as usize].stripe();
        let corrected = &mut self.statistics.corruption.corrected[target.number()];
        if corrected.count() {
            tracing::warn!(
                "block {stripe}: the chunk of storage target {} is corrupt ({corrected} so far); it was recovered from \
                 the others",
                target.name()
            );
        }
        if self.setup.is_writable && !self.view.rebuilding.contains(target) {
            self.setup.set.request_repair(stripe);
        }
    }

    /// Returns `true` if there may be stripes that were never written and read as zeros.
    pub(super) fn reads_unwritten(&self) -> bool {
        self.setup.zeroes_unwritten && !self.setup.set.has_checksums()
    }

    /// Quality of the block for each pair of chunks, with the target whose chunk is not used.
    fn combinations(&self, slot: u32, with_data_2: Quality) -> Option<[(Target, Quality); 3]> {
        let first = self.slots[slot as usize].first_comparison?;
        Some([
            (Target::DataP, first.as_read),
            (Target::Data1, first.with_recovered),
            (Target::Data2, with_data_2),
        ])
    }

    /// The only chunk that an interrupted write has stored in a previously unwritten stripe.
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

    /// Returns `true` if two targets are not current, so that one of the chunks may belong to an earlier write.
    fn is_incomplete(&self, slot: u32) -> bool {
        let stripe = self.slots[slot as usize].stripe();
        !self.view.is_healthy() && self.setup.set.missed.contains(stripe)
    }

    /// The inconsistent chunk of a block without checksum whose chunks may belong to two different writes.
    fn odd_without_checksum(&self, slot: u32, with_data_2: Quality) -> Option<Target> {
        // If blocks are written with checksums, the new block has one. Otherwise, chunks of an old block without checksum and of a new
        // incompressible one would be mistaken for a valid block.
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

    /// Answers a read of a block that was never written.
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
}

/// Quality of a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// Its checksum is correct and bound to its location.
    Bound,
    /// Its checksum is correct, but of an earlier format that is not bound to a location.
    Unbound,
    /// It has no checksum, and may be valid nevertheless.
    Bare,
    Flawed(Flaw),
}

impl Quality {
    /// Converts the result of an inspection.
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

    /// Returns `true` if the block was never written, or its content is zero and it has no checksum.
    pub(super) fn is_unwritten(self) -> bool {
        self == Self::Flawed(Flaw::Unwritten)
    }
}

/// A block with a recovered data chunk, compared with the block as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// `true` if the two chunks are equal.
    pub is_equal: bool,
    /// Quality of the block as it was read; [`Quality::Bare`] only if it can be decompressed.
    pub as_read: Quality,
    /// Quality of the block with the recovered chunk; [`Quality::Bare`] only if it can be decompressed.
    pub with_recovered: Quality,
}

/// Defect of a block without a valid checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Its checksum belongs to other bytes or to another location.
    Checksum {
        /// Checksum in its trailer.
        stored: u32,
        /// Checksum of its bytes.
        calculated: u32,
    },
    /// Its sizes are invalid.
    Defect(Defect),
    /// All bytes are 0: it was never written. A header of zeros alone may be a lost sector.
    Unwritten,
    /// It has no checksum, and cannot be decompressed.
    Undecodable,
}

impl Flaw {
    /// Defect of a stored block with these bytes, which is invalid for this reason.
    #[cold]
    pub(crate) fn of_defect(defect: Defect, stored: &[u8]) -> Self {
        if stored.iter().all(|&byte| byte == 0) {
            Self::Unwritten
        } else {
            Self::Defect(defect)
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum { stored, calculated } => write!(
                f,
                "is corrupt: its checksum is {stored:#010x}, that of its bytes {calculated:#010x}"
            ),
            Self::Defect(defect) => write!(f, "cannot be read: {defect}"),
            Self::Unwritten => f.write_str("cannot be read: it was never written"),
            Self::Undecodable => {
                f.write_str("cannot be read: it has no checksum, and cannot be decompressed")
            }
        }
    }
}
