//! Reads: two halves from the targets, decompressed into the initiator's memory.

use doca::ErrorCode;
use role_common::Failure;
use role_common::stored_block::{Place, Verdict, inspect};
use role_common::superblock::SetId;
use wire::io_message::IoMessageType;
use wire::stored_block::Header;

use super::GgaDataPath;
use super::tasks::refused;
use super::token::Kind;
use super::transaction::Stage;
use crate::target::{Target, Targets};

impl GgaDataPath {
    /// Asks for the halves, once in a while for one of them and the parity.
    pub(super) fn begin_read(&mut self, index: usize) -> Result<(), Failure> {
        let lost = if self.survival.is_none() {
            self.next_lost()
        } else {
            match self.half_to_do_without(index) {
                Some(lost) => lost,
                None => return self.too_few_targets(index),
            }
        };
        self.transactions[index].lost = lost;
        let targets = lost.map_or(Targets::DATA, Targets::without);
        self.ask_targets(index, targets, IoMessageType::Read, Stage::Halves)
    }

    /// Which half the next read does without: every Nth one, first data_2, then data_1, and so on.
    #[inline]
    pub(super) fn next_lost(&mut self) -> Option<Target> {
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

    /// The place of the block at hand.
    pub(super) fn place(&self, index: usize) -> Place {
        Place {
            set: SetId::NONE,
            stripe: self.transactions[index].stripe(),
        }
    }

    /// Two halves have come.
    pub(super) fn halves_read(&mut self, index: usize) -> Result<(), Failure> {
        match self.transactions[index].lost {
            None => self.check_block(index),
            Some(lost) => self.recover(index, lost, Stage::Recovery(lost)),
        }
    }

    /// Recovers a half from the two others, into private memory, and goes on in `stage`.
    pub(super) fn recover(
        &mut self,
        index: usize,
        lost: Target,
        stage: Stage,
    ) -> Result<(), Failure> {
        self.transactions[index].stage = stage;
        let recovered = &self.tasks.of(index).recovered[lost.number()];
        let aimed = recovered.reset_data().map_err(refused);
        self.begin_step(index, Kind::Recover(lost), aimed)
    }

    /// The stored block is complete: decompresses it when it is what was written.
    pub(super) fn check_block(&mut self, index: usize) -> Result<(), Failure> {
        self.assemble_block(index)?;
        match inspect(&self.stored, self.setup.volume.geometry, self.place(index)) {
            Ok((header, Verdict::Bound | Verdict::Unbound)) => self.decompress(index, header),
            Ok((_, Verdict::Absent | Verdict::Differs { .. })) | Err(_) => {
                self.fetch_last_half(index)
            }
        }
    }

    /// Copies the two halves that were read, one of which may have been recovered, to where they can be looked at.
    pub(super) fn assemble_block(&mut self, index: usize) -> Result<(), Failure> {
        let Some(lost) = self.transactions[index].lost else {
            return self.read_stored(index);
        };
        // The place of the lost half in the chunk holds what was there before, and is in no cache.
        let (data_1, data_2) = self.stored.split_at_mut(self.recovered.len());
        let (recovered, read, survivor) = match lost {
            Target::Data1 => (data_1, data_2, Target::Data2),
            _ => (data_2, data_1, Target::Data1),
        };
        let from = self.tasks.of(index).chunk.half(survivor);
        self.setup.local.region.read(from as usize, read)?;
        self.private.read(index, recovered)?;
        Ok(())
    }

    /// Copies the two halves that came from data_1 and data_2 to where they can be looked at.
    pub(super) fn read_stored(&mut self, index: usize) -> Result<(), Failure> {
        let chunk = self.tasks.of(index).chunk;
        let region = &self.setup.local.region;
        region.read(chunk.stored() as usize, &mut self.stored)?;
        Ok(())
    }

    /// Decompresses the stored block that was looked at, and found right, into the initiator's memory.
    pub(super) fn decompress(&mut self, index: usize, header: Header) -> Result<(), Failure> {
        let logical = self.setup.volume.geometry.logical_block_size;
        let transaction = &mut self.transactions[index];
        transaction.stage = Stage::Decompression;
        let to = transaction.requester_offset(logical);
        // What was checked is what is used, whatever the targets do to the chunk.
        let length = header.compressed_size as usize;
        let data = &self.stored[Header::SIZE..][..length];
        self.private.write(index, data)?;
        let tasks = self.tasks.of(index);
        let aimed = tasks
            .compressed
            .set_data(self.private.place(index), length)
            .and_then(|()| tasks.decompressed.set_range(to, logical as usize))
            .map_err(refused);
        self.begin_step(index, Kind::Decompress, aimed)
    }

    /// The device did not decompress a block.
    #[cold]
    pub(super) fn decompression_failed(
        &mut self,
        index: usize,
        code: ErrorCode,
    ) -> Result<(), Failure> {
        match code {
            // Its sizes and its checksum, or its parity, were right: it was written so.
            ErrorCode::INVALID_VALUE | ErrorCode::TOO_BIG | ErrorCode::IO_FAILED => {
                let description = code.description();
                self.corrupt(index, format_args!("cannot be decompressed: {description}"))
            }
            // The initiator's memory is to blame, or the device.
            _ => self.fail(index, code),
        }
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
