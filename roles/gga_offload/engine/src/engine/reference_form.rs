//! Blocks in the reference's form: chunks do not identify their write, so it is not possible to choose between chunks.
//! A target that fails ends the session.

use super::{Action, ReadStage, Stage, Status, StripeEngine, WriteStage};
use crate::{Target, Targets};

impl StripeEngine {
    /// Reads the data chunks or, for every n-th read, one of them and the parity chunk.
    #[inline]
    pub(super) fn begin_reference_read(&mut self, slot: u32) {
        let without = self.next_recovery();
        self.slot(slot).missing = without;
        let targets = without.map_or(Targets::DATA, Targets::without);
        self.read_chunks(slot, targets, Stage::Read(ReadStage::Chunks));
    }

    #[inline]
    pub(super) fn reference_chunks_read(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        if !it.failed.is_empty() {
            let status = it.error.unwrap_or(Status::IO_FAILED);
            return self.fail(slot, status);
        }
        match it.missing {
            None => self.examine(slot, None),
            Some(missing) => self.recover(slot, missing, Stage::Read(ReadStage::Recovery(missing))),
        }
    }

    #[inline]
    pub(super) fn examine(&mut self, slot: u32, recovered: Option<Target>) {
        self.slot(slot).stage = Stage::Read(ReadStage::Examination);
        self.act(Action::Examine { slot, recovered });
    }

    #[inline]
    pub(super) fn examined(&mut self, slot: u32, is_possible: bool) {
        if is_possible {
            self.deliver(slot);
        } else {
            self.uncorrectable(
                slot,
                "has impossible sizes: it was never written, or is corrupt",
            );
        }
    }

    #[inline]
    pub(super) fn encode(&mut self, slot: u32) {
        let it = self.slot(slot);
        it.stage = Stage::Write(WriteStage::Encoding);
        let stripe = it.stripe();
        self.act(Action::Encode { slot, stripe });
    }

    #[inline]
    pub(super) fn encoded(&mut self, slot: u32, fits: bool) {
        if fits {
            self.create_parity(slot, Stage::Write(WriteStage::Parity));
        } else {
            self.fail(slot, Status::IO_FAILED);
        }
    }

    /// Stores the chunks of the current block on all targets.
    #[inline]
    pub(super) fn store_reference(&mut self, slot: u32) {
        self.write_chunks(slot, Targets::ALL, Stage::Write(WriteStage::Store), None);
    }

    #[inline]
    pub(super) fn reference_stored(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        if it.failed.is_empty() {
            return self.block_done(slot);
        }
        let status = it.error.unwrap_or(Status::IO_FAILED);
        self.fail(slot, status);
    }
}
