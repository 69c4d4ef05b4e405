//! The end of a block, and of a transaction.

use std::fmt;

use doca::ErrorCode;
use role_common::Failure;

use super::GgaDataPath;
use super::token::Kind;
use super::transaction::Stage;
use crate::redundancy::Made;

impl GgaDataPath {
    /// The block at hand is done: on to the next one, or to the answer.
    #[inline]
    pub(super) fn block_done(&mut self, index: usize) -> Result<(), Failure> {
        self.finish_turn(index);
        let transaction = &mut self.transactions[index];
        transaction.block += 1;
        if transaction.block < transaction.request.blocks {
            self.begin_block(index)
        } else {
            self.answer(index, ErrorCode::SUCCESS)
        }
    }

    /// The block at hand is not what was written, and cannot be made good for.
    #[cold]
    pub(super) fn corrupt(
        &mut self,
        index: usize,
        what: fmt::Arguments<'_>,
    ) -> Result<(), Failure> {
        let uncorrectable = &mut self.statistics.corruption.uncorrectable;
        if uncorrectable.count() {
            let stripe = self.transactions[index].stripe();
            tracing::error!("block {stripe} ({uncorrectable} so far) {what}");
        }
        self.fail(index, ErrorCode::IO_FAILED)
    }

    /// Ends a transaction with an error. Nothing of it is in flight any more.
    #[cold]
    pub(super) fn fail(&mut self, index: usize, code: ErrorCode) -> Result<(), Failure> {
        if self.transactions[index].rebuilds.is_some() {
            return self.end_rebuild(index, Made::Nothing);
        }
        self.finish_turn(index);
        self.statistics.failed_count += 1;
        self.answer(index, code)
    }

    #[inline]
    pub(super) fn answer(&mut self, index: usize, code: ErrorCode) -> Result<(), Failure> {
        let transaction = &mut self.transactions[index];
        transaction.stage = Stage::Answer;
        let answer = transaction.request.answer(code.0);
        self.messages
            .put(self.tasks.of(index).answer_message.place, &answer)?;
        self.must_submit(index, Kind::Answer)
    }

    /// The answer has left: the transaction waits for its next request.
    #[inline]
    pub(super) fn answered(&mut self, index: usize) -> Result<(), Failure> {
        self.in_flight -= 1;
        self.statistics.core.operation_count += 1;
        let transaction = &mut self.transactions[index];
        transaction.stage = Stage::Idle;
        let lane = transaction.lane;
        self.idle.give_back(index);
        self.must_submit(lane, Kind::ReceiveRequest)
    }
}
