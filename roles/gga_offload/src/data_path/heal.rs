//! Blocks that are not what was written.
//!
//! With all three halves at hand, one of data_1 and data_2 after the other is suspected: it is recovered
//! from the two others, beside the block. A stored block with the recovered half in the place of the
//! read one, whose checksum is right, is one that was written, and the target of that half is wrong.
//! Where the recovered half is equal to the read one, the three halves agree; that is all that can be
//! known of a block without a checksum.
//!
//! A checksum says that a block was written, and not when: a target that loses a write whole, and keeps
//! what it had before, is noticed only where its old half does not fit the new other one.

use std::fmt;

use role_common::Failure;
use role_common::stored_block::{Verdict, inspect};
use wire::io_message::IoMessageType;
use wire::stored_block::Header;

use super::GgaDataPath;
use super::transaction::Stage;
use crate::cli::ChecksumPolicy;
use crate::target::{Target, Targets};

impl GgaDataPath {
    /// Reads the half that was not read, to its place.
    #[cold]
    pub(super) fn fetch_last_half(&mut self, index: usize) -> Result<(), Failure> {
        let last = self.transactions[index].lost.unwrap_or(Target::DataP);
        if !self.is_source(index, last) {
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
            && let Ok((header, Verdict::Matches)) =
                inspect(&self.stored, self.setup.volume.geometry)
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
        let as_read = inspect(&self.stored, geometry);
        self.private.read(index, &mut self.recovered)?;
        let half = self.recovered.len();
        let place = suspect.number() * half..(suspect.number() + 1) * half;
        if self.recovered[..] == self.stored[place.clone()] {
            return self.halves_agree(index, as_read);
        }
        self.stored[place].copy_from_slice(&self.recovered);
        match inspect(&self.stored, geometry) {
            Ok((header, Verdict::Matches)) => {
                self.corrected(index, suspect);
                self.decompress(index, header)
            }
            _ if suspect == Target::Data1 => self.suspect(index, Target::Data2),
            _ => self.corrupt(
                index,
                format_args!("is not what was written, and no two of its three halves make it up"),
            ),
        }
    }

    /// The third half of a block in doubt cannot be had.
    #[cold]
    pub(super) fn judge_two_halves(&mut self, index: usize) -> Result<(), Failure> {
        self.assemble_block(index)?;
        let as_read = inspect(&self.stored, self.setup.volume.geometry);
        self.halves_agree(index, as_read)
    }

    /// All halves that there are, are what was written, or equally wrong.
    fn halves_agree(
        &mut self,
        index: usize,
        as_read: Result<(Header, Verdict), impl fmt::Display>,
    ) -> Result<(), Failure> {
        match as_read {
            Ok((header, Verdict::Matches)) => self.decompress(index, header),
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
