//! Taking turns on a stripe.

use std::collections::VecDeque;

use role_common::Failure;

use super::GgaDataPath;
use super::request::Operation;
use super::transaction::{Stage, Turn};
use crate::target::Targets;

/// Transactions that wait for their turn. It allocates only when it is made.
#[derive(Debug)]
pub(super) struct WaitingForStripe {
    transactions: VecDeque<usize>,
}

impl WaitingForStripe {
    /// Room for this many transactions.
    pub(super) fn with_capacity(transactions: usize) -> Self {
        Self {
            transactions: VecDeque::with_capacity(transactions),
        }
    }
}

impl GgaDataPath {
    /// Begins with the block at hand, now or when it is its turn on the stripe.
    #[inline]
    pub(super) fn begin_block(&mut self, index: usize) -> Result<(), Failure> {
        let transaction = &mut self.transactions[index];
        transaction.stage = Stage::Stripe;
        transaction.avoided = Targets::NONE;
        transaction.odd = None;
        let order = &self.setup.stripe_order;
        let slot = order.slot(transaction.stripe());
        let ticket = order.queue(slot);
        transaction.turn = Some(Turn { slot, ticket });
        if self.try_take(index) {
            return self.stripe_taken(index);
        }
        self.waiting.transactions.push_back(index);
        Ok(())
    }

    #[inline]
    fn try_take(&self, index: usize) -> bool {
        let transaction = &self.transactions[index];
        let order = &self.setup.stripe_order;
        transaction
            .turn
            .is_some_and(|turn| order.try_take(turn.slot, turn.ticket, transaction.access()))
    }

    fn stripe_taken(&mut self, index: usize) -> Result<(), Failure> {
        if let Some(work) = self.transactions[index].rebuilds {
            return self.read_survivors(index, work);
        }
        match self.transactions[index].request.operation {
            Operation::Read => self.begin_read(index),
            Operation::Write => self.begin_write(index),
        }
    }

    /// Ends the turn on the stripe of the block at hand, if there is one.
    #[inline]
    pub(super) fn finish_turn(&mut self, index: usize) {
        let transaction = &mut self.transactions[index];
        if let Some(Turn { slot, ticket }) = transaction.turn.take() {
            let access = transaction.access();
            self.setup.stripe_order.finish(slot, ticket, access);
        }
    }

    /// Begins with the blocks whose turn has come.
    #[inline]
    pub(super) fn retry_stripes(&mut self) -> Result<(), Failure> {
        if self.waiting.transactions.is_empty() {
            return Ok(());
        }
        self.retry_waiting()
    }

    #[cold]
    fn retry_waiting(&mut self) -> Result<(), Failure> {
        // Those that are still not to begin go to the end, and keep their order among themselves.
        for _ in 0..self.waiting.transactions.len() {
            let Some(index) = self.waiting.transactions.pop_front() else {
                break;
            };
            if self.try_take(index) {
                self.stripe_taken(index)?;
            } else {
                self.waiting.transactions.push_back(index);
            }
        }
        Ok(())
    }
}
