//! Requests to the targets, and their results.

use doca::ErrorCode;
use role_common::Failure;
use wire::io_message::{self, IoMessage, IoMessageType, Repr};

use super::GgaDataPath;
use super::token::Kind;
use super::transaction::Stage;
use crate::target::{Target, Targets};

impl GgaDataPath {
    /// Asks targets to read or write their halves of the block at hand, and goes on in `stage` when all
    /// have answered.
    pub(super) fn ask_targets(
        &mut self,
        index: usize,
        targets: Targets,
        message_type: IoMessageType,
        stage: Stage,
    ) -> Result<(), Failure> {
        let half = self.setup.volume.geometry.half_block_size();
        let transaction = &mut self.transactions[index];
        transaction.stage = stage;
        transaction.awaited = targets;
        transaction.sending = targets;
        if let Some(survival) = &self.survival {
            transaction.asked = targets;
            transaction.without = Targets::NONE;
            transaction.error = None;
            transaction.asked_in = survival.period();
        }
        let storage_offset = transaction.stripe() * u64::from(half);
        for target in targets.iter() {
            let tasks = self.tasks.of(index);
            let request = Repr {
                message_type,
                user_data: index as u64,
                result: 0,
                size: half,
                requester_offset: tasks.chunk.half(target),
                storage_offset,
            };
            let place = tasks.requests[target.number()].place;
            self.messages.put(place, &request.to_bytes())?;
            if let Err(code) = self.submit(index, Kind::Send(target)) {
                self.target_failed(target, Kind::Send(target), code)?;
            }
        }
        Ok(())
    }

    /// A request has left.
    #[inline]
    pub(super) fn request_sent(&mut self, index: usize, target: Target) -> Result<(), Failure> {
        let transaction = &mut self.transactions[index];
        transaction.sending.remove(target);
        if transaction.is_quiet() {
            self.targets_answered(index)?;
        }
        Ok(())
    }

    /// A target answered, whichever transaction.
    #[inline]
    pub(super) fn result_received(&mut self, lane: usize, target: Target) -> Result<(), Failure> {
        let message = self.tasks.result(target, lane);
        let mut bytes = [0; io_message::SIZE];
        let length = self
            .messages
            .received(message.place, &message.buf, &mut bytes)?;
        message.buf.reset_data()?;
        if let Err(code) = self.submit(lane, Kind::ReceiveResult(target)) {
            self.target_failed(target, Kind::ReceiveResult(target), code)?;
        }

        let message = IoMessage::new_unchecked_len(&bytes);
        let kind = message.message_type();
        if length != io_message::SIZE || kind != Ok(IoMessageType::Result) {
            self.unasked(target, format_args!("{length} bytes that are no result"));
            return Ok(());
        }
        let half = u64::from(self.setup.volume.geometry.half_block_size());
        let number = message.user_data();
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let transaction = self.transactions.get_mut(index).filter(|transaction| {
            // A result repeats its request: one that comes twice is not taken for that of the next block.
            transaction.awaited.contains(target)
                && transaction.stripe() * half == message.storage_offset()
        });
        let Some(transaction) = transaction else {
            self.unasked(target, format_args!("a result for transaction {number}"));
            return Ok(());
        };
        transaction.awaited.remove(target);
        if message.result() != ErrorCode::SUCCESS.0 {
            transaction.error.get_or_insert(ErrorCode(message.result()));
            transaction.without.insert(target);
        }
        if transaction.is_quiet() {
            self.targets_answered(index)?;
        }
        Ok(())
    }

    /// A target sent what nobody waits for. Whoever waits for something else goes on waiting.
    #[cold]
    fn unasked(&mut self, target: Target, what: std::fmt::Arguments<'_>) {
        if self.statistics.unasked.count() {
            let (name, count) = (target.name(), self.statistics.unasked);
            tracing::warn!("storage target {name} sent {what}, unasked ({count} so far)");
        }
    }

    /// All targets that were asked have answered.
    pub(super) fn targets_answered(&mut self, index: usize) -> Result<(), Failure> {
        if self.survival.is_some() {
            return self.those_left_answered(index);
        }
        let transaction = &self.transactions[index];
        if let Some(code) = transaction.error {
            return self.fail(index, code);
        }
        match transaction.stage {
            Stage::Halves => self.halves_read(index),
            Stage::LastHalf => self.suspect(index, Target::Data1),
            Stage::Store => self.block_done(index),
            stage => Err(Failure::unexpected(format!(
                "targets answered a transaction that waits for {stage:?}"
            ))),
        }
    }
}
