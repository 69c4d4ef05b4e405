//! Blocks that are not what was written.
//!
//! With all three halves at hand, one of data_1 and data_2 after the other is suspected: it is recovered
//! from the two others, beside the block. A stored block with the recovered half in the place of the
//! read one, whose checksum is right, is one that was written, and the target of that half is wrong.
//! Where the recovered half is equal to the read one, the three halves agree; that is all that can be
//! known of a block without a checksum.
//!
//! Of a block that was being written when a service died, some halves may be new and others old. The combination whose checksum is
//! right is one of the two. Where there is none, data_1 and data_2 are taken as they are if that is a block, and otherwise the first
//! of the other combinations that is. A target that is being rebuilt is believed only what a checksum confirms: its half may be the
//! one that an interrupted write of another half has left alone.
//!
//! A checksum says that a block was written, and not when: a target that loses a write whole, and keeps
//! what it had before, is noticed only where its old half does not fit the new other one.

use std::fmt;

use role_common::Failure;
use role_common::stored_block::{Verdict, decodes, inspect};
use wire::io_message::IoMessageType;
use wire::stored_block::Header;

use super::GgaDataPath;
use super::transaction::Stage;
use crate::cli::ChecksumPolicy;
use crate::redundancy::Made;
use crate::target::{Target, Targets};

impl GgaDataPath {
    /// Reads the half that was not read, to its place.
    #[cold]
    pub(super) fn fetch_last_half(&mut self, index: usize) -> Result<(), Failure> {
        let last = self.transactions[index].lost.unwrap_or(Target::DataP);
        if !self.is_source(index, last) && self.stale_candidate(index) != Some(last) {
            return self.judge_two_halves(index);
        }
        let targets = Targets::only(last);
        self.ask_targets(index, targets, IoMessageType::Read, Stage::LastHalf)
    }

    /// Recovers the half of a suspect, beside the block.
    #[cold]
    pub(super) fn suspect(&mut self, index: usize, suspect: Target) -> Result<(), Failure> {
        self.read_stored(index)?;
        if suspect == Target::Data1
            && let Ok((header, Verdict::Bound | Verdict::Unbound)) =
                inspect(&self.stored, self.setup.volume.geometry, self.place(index))
        {
            // It was the parity that made the half that was done without a wrong one.
            self.corrected(index, Target::DataP);
            return self.decompress(index, header);
        }
        self.recover(index, suspect, Stage::Suspicion(suspect))
    }

    /// A suspect's half was recovered beside the block.
    #[cold]
    pub(super) fn suspect_recovered(
        &mut self,
        index: usize,
        suspect: Target,
    ) -> Result<(), Failure> {
        let geometry = self.setup.volume.geometry;
        // The block as it was read, then with the recovered half.
        self.read_stored(index)?;
        let as_read = inspect(&self.stored, geometry, self.place(index));
        self.private.read(index, &mut self.recovered)?;
        let half = self.recovered.len();
        let place = suspect.number() * half..(suspect.number() + 1) * half;
        let rebuilds = self.transactions[index].rebuilds.is_some();
        if self.recovered[..] == self.stored[place.clone()] {
            return if rebuilds {
                self.end_rebuild(index, Made::Fits)
            } else {
                self.halves_agree(index, as_read)
            };
        }
        if rebuilds && matches!(as_read, Ok((_, Verdict::Bound | Verdict::Unbound))) {
            return self.make_anew(index, Target::DataP);
        }
        if suspect == Target::Data1 && self.is_unverified(index) && self.is_block(index) {
            self.transactions[index].odd = Some(Target::DataP);
        }
        self.stored[place].copy_from_slice(&self.recovered);
        match inspect(&self.stored, geometry, self.place(index)) {
            Ok((_, Verdict::Bound | Verdict::Unbound)) if rebuilds => {
                self.make_anew(index, suspect)
            }
            Ok((header, Verdict::Bound | Verdict::Unbound)) => {
                self.corrected(index, suspect);
                self.decompress(index, header)
            }
            _ => {
                let odd = self.transactions[index].odd;
                if odd.is_none() && self.is_unverified(index) && self.is_block(index) {
                    self.transactions[index].odd = Some(suspect);
                }
                if suspect == Target::Data1 {
                    self.suspect(index, Target::Data2)
                } else {
                    self.no_checksum_matches(index)
                }
            }
        }
    }

    /// No two of the three halves make up a block whose checksum is right.
    fn no_checksum_matches(&mut self, index: usize) -> Result<(), Failure> {
        let odd = self.stale_candidate(index).or(self.transactions[index].odd);
        match (self.transactions[index].rebuilds, odd) {
            (Some(_), None) => self.end_rebuild(index, Made::Unreadable),
            (Some(_), Some(odd)) => self.make_anew(index, odd),
            (None, None) => self.corrupt(
                index,
                format_args!("is not what was written, and no two of its three halves make it up"),
            ),
            (None, Some(Target::DataP)) => {
                self.read_stored(index)?;
                let as_read = inspect(&self.stored, self.setup.volume.geometry, self.place(index));
                self.halves_agree(index, as_read)
            }
            (None, Some(odd)) => self.recover(index, odd, Stage::Verdict(odd)),
        }
    }

    /// The half that is none of the block was made of the others, beside the block.
    #[cold]
    pub(super) fn odd_one_recovered(&mut self, index: usize, odd: Target) -> Result<(), Failure> {
        self.transactions[index].lost = Some(odd);
        self.judge_two_halves(index)
    }

    /// Whether the block at hand may be of two writes.
    fn is_unverified(&self, index: usize) -> bool {
        let stripe = self.transactions[index].stripe();
        (self.survival.as_ref()).is_some_and(|survival| survival.shared.unverified.contains(stripe))
    }

    /// A target that misses the block at hand, and whose half may be right all the same.
    fn stale_candidate(&self, index: usize) -> Option<Target> {
        let survival = self.survival.as_ref()?;
        let stripe = self.transactions[index].stripe();
        let stale = survival.view.rebuilding.iter().next()?;
        let may_be = survival.shared.missed.contains(stripe) && self.is_unverified(index);
        may_be.then_some(stale)
    }

    /// Whether what lies in `stored` is a block without a checksum, as far as can be told.
    fn is_block(&mut self, index: usize) -> bool {
        let geometry = self.setup.volume.geometry;
        matches!(
            inspect(&self.stored, geometry, self.place(index)),
            Ok((_, Verdict::Absent))
        ) && decodes(&self.stored, geometry, &mut self.content)
    }

    /// The third half of a block in doubt cannot be had.
    #[cold]
    pub(super) fn judge_two_halves(&mut self, index: usize) -> Result<(), Failure> {
        self.assemble_block(index)?;
        let as_read = inspect(&self.stored, self.setup.volume.geometry, self.place(index));
        self.halves_agree(index, as_read)
    }

    /// All halves that there are, are what was written, or equally wrong.
    fn halves_agree(
        &mut self,
        index: usize,
        as_read: Result<(Header, Verdict), impl fmt::Display>,
    ) -> Result<(), Failure> {
        match as_read {
            Ok((header, Verdict::Bound | Verdict::Unbound)) => self.decompress(index, header),
            Ok((header, Verdict::Absent)) if self.setup.checksum != ChecksumPolicy::Require => {
                self.decompress(index, header)
            }
            Ok((_, Verdict::Absent)) => self.corrupt(
                index,
                format_args!("has no checksum, which --checksum require asks for"),
            ),
            Ok((_, Verdict::Differs { stored, calculated })) => self.corrupt(
                index,
                format_args!(
                    "is not what was written: its checksum is {stored:#010x}, that of its bytes {calculated:#010x}"
                ),
            ),
            Err(defect) => self.corrupt(index, format_args!("cannot be read: {defect}")),
        }
    }

    /// A target had a wrong half, which the others made up for.
    #[cold]
    fn corrected(&mut self, index: usize, target: Target) {
        let corrected = &mut self.statistics.corruption.corrected[target.number()];
        if corrected.count() {
            let stripe = self.transactions[index].stripe();
            tracing::warn!(
                "block {stripe}: the half block of storage target {} is not what was written ({corrected} so far); the \
                 others made up for it",
                target.name()
            );
        }
    }
}
