//! Taking turns on a stripe.

use std::collections::VecDeque;

use doca::ErrorCode;
use role_common::Failure;

use super::GgaDataPath;
use super::request::Operation;
use super::transaction::Stage;
use crate::stripe_order::StripeOrder;

/// Transactions that wait for their stripes, in the order of their arrival. It allocates only when it is
/// made.
#[derive(Debug)]
pub(super) struct WaitingForStripe {
    queue: VecDeque<Waiting>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    transaction: usize,
    slot: usize,
}

impl WaitingForStripe {
    /// Room for this many transactions.
    pub(super) fn with_capacity(transactions: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(transactions),
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether one of the first `length` waits for this slot.
    fn contains(&self, length: usize, slot: usize) -> bool {
        let mut first = self.queue.iter().take(length);
        first.any(|waiting| waiting.slot == slot)
    }
}

impl GgaDataPath {
    /// Begins with the block at hand, now or when its stripe is free.
    #[inline]
    pub(super) fn begin_block(&mut self, index: usize) -> Result<(), Failure> {
        let transaction = &mut self.transactions[index];
        transaction.stage = Stage::Stripe;
        let slot = StripeOrder::slot(transaction.stripe());
        // Who waits already comes first.
        let first = self.waiting.is_empty() || !self.waiting.contains(usize::MAX, slot);
        if first && self.try_take(index, slot) {
            return self.stripe_taken(index);
        }
        let transaction = index;
        self.waiting.queue.push_back(Waiting { transaction, slot });
        Ok(())
    }

    fn try_take(&mut self, index: usize, slot: usize) -> bool {
        let transaction = &mut self.transactions[index];
        let access = transaction.access();
        let taken = self.setup.stripe_order.try_take(slot, access);
        if taken {
            transaction.taken = Some(access);
        }
        taken
    }

    fn stripe_taken(&mut self, index: usize) -> Result<(), Failure> {
        let begun = match self.transactions[index].request.operation {
            Operation::Read => self.begin_read(index)?,
            Operation::Write => self.begin_write(index)?,
        };
        begun.or_else(|code: ErrorCode| self.fail(index, code))
    }

    /// Gives back the stripe of the block at hand, if it is taken.
    #[inline]
    pub(super) fn release_stripe(&mut self, index: usize) {
        let transaction = &mut self.transactions[index];
        if let Some(access) = transaction.taken.take() {
            let slot = StripeOrder::slot(transaction.stripe());
            self.setup.stripe_order.release(slot, access);
        }
    }

    /// Begins with the blocks whose turn has come.
    #[inline]
    pub(super) fn retry_stripes(&mut self) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.retry_waiting()
    }

    #[cold]
    fn retry_waiting(&mut self) -> Result<(), Failure> {
        let mut at = 0;
        while let Some(&Waiting { transaction, slot }) = self.waiting.queue.get(at) {
            if !self.waiting.contains(at, slot) && self.try_take(transaction, slot) {
                self.waiting.queue.remove(at);
                self.stripe_taken(transaction)?;
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}
