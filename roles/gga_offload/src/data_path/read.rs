//! Reads: two halves from the targets, decompressed into the initiator's memory.

use doca::ErrorCode;
use role_common::Failure;
use role_common::stored_block::{Verdict, inspect};
use wire::io_message::IoMessageType;
use wire::stored_block::Header;

use super::GgaDataPath;
use super::tasks::refused;
use super::token::Kind;
use super::transaction::Stage;
use crate::target::{Target, Targets};

impl GgaDataPath {
    /// Asks for the halves, once in a while for one of them and the parity.
    pub(super) fn begin_read(&mut self, index: usize) -> Result<Result<(), ErrorCode>, Failure> {
        let lost = self.next_lost();
        self.transactions[index].lost = lost;
        let targets = lost.map_or(Targets::DATA, Targets::without);
        self.ask_targets(index, targets, IoMessageType::Read, Stage::Halves)
    }

    /// Which half the next read does without: every Nth one, first data_2, then data_1, and so on.
    #[inline]
    fn next_lost(&mut self) -> Option<Target> {
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

    /// Two halves have come.
    pub(super) fn halves_read(&mut self, index: usize) -> Result<(), Failure> {
        match self.transactions[index].lost {
            None => self.check_block(index),
            Some(lost) => {
                let place = self.tasks.of(index).chunk.half(lost);
                self.recover(index, lost, place, Stage::Recovery(lost))
            }
        }
    }

    /// Recovers a half from the two others, to `place`, and goes on in `stage`.
    pub(super) fn recover(
        &mut self,
        index: usize,
        lost: Target,
        place: u64,
        stage: Stage,
    ) -> Result<(), Failure> {
        self.transactions[index].stage = stage;
        let half = self.setup.volume.geometry.half_block_size() as usize;
        let recovered = &self.tasks.of(index).recovered[lost.number()];
        let aimed = recovered.set_range(place, half).map_err(refused);
        self.begin_step(index, Kind::Recover(lost), aimed)
    }

    /// The stored block is complete: decompresses it when it is what was written.
    pub(super) fn check_block(&mut self, index: usize) -> Result<(), Failure> {
        let chunk = self.tasks.of(index).chunk;
        // A private copy, so that what was checked is what is used.
        self.setup
            .local
            .region
            .read(chunk.stored() as usize, &mut self.stored)?;
        match inspect(&self.stored, self.setup.volume.geometry) {
            Ok((header, Verdict::Matches)) => self.decompress(index, header),
            Ok((_, Verdict::Absent | Verdict::Differs { .. })) | Err(_) => {
                self.fetch_last_half(index)
            }
        }
    }

    /// Decompresses the block at hand into the initiator's memory.
    pub(super) fn decompress(&mut self, index: usize, header: Header) -> Result<(), Failure> {
        let logical = self.setup.volume.geometry.logical_block_size;
        let transaction = &mut self.transactions[index];
        transaction.stage = Stage::Decompression;
        let to = transaction.requester_offset(logical);
        let tasks = self.tasks.of(index);
        let from = tasks.chunk.stored() + Header::SIZE as u64;
        let aimed = tasks
            .compressed
            .set_data(from, header.compressed_size as usize)
            .and_then(|()| tasks.decompressed.set_range(to, logical as usize))
            .map_err(refused);
        self.begin_step(index, Kind::Decompress, aimed)
    }

    /// The block at hand is in the initiator's memory, if it has the length that its header promised.
    pub(super) fn decompressed(&mut self, index: usize) -> Result<(), Failure> {
        let produced = self.tasks.of(index).decompressed.data_len()?;
        let expected = self.setup.volume.geometry.logical_block_size as usize;
        if produced == expected {
            self.block_done(index)
        } else {
            self.corrupt(
                index,
                format_args!("decompresses to {produced} bytes, expected {expected}"),
            )
        }
    }
}
