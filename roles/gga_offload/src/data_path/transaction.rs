//! One I/O of the initiator, on its way.

use doca::ErrorCode;

use super::request::{Operation, Request};
use crate::redundancy::ToRebuild;
use crate::stripe_order::{Access, Ticket};
use crate::target::{Target, Targets};

/// What a transaction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// A request.
    Idle,
    /// Its turn on the stripe.
    Stripe,
    /// The halves that it reads.
    Halves,
    /// The recovery of the half that it did without.
    Recovery(Target),
    /// The half that it did not read, because the block is not what was written.
    LastHalf,
    /// A recovery of this half from the two others, to see whether its target is the one that is wrong.
    Suspicion(Target),
    /// A recovery of this half from the two others, which are taken for what was written.
    Verdict(Target),
    /// Decompression into the initiator's memory.
    Decompression,
    /// The content of the initiator's memory.
    Content,
    /// The parity.
    Parity,
    /// The targets' acknowledgement of what they were given to store.
    Store,
    /// Of a rebuild: the halves that were not missed.
    Survivors,
    /// That a loss is kept which the write at hand was done without.
    Seal,
    /// Of a rebuild: the half that was missed.
    MissedHalf,
    /// Of a rebuild: the target's acknowledgement of it.
    StoreMissed,
    /// The answer to be sent.
    Answer,
}

/// A place in the queue for a stripe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) slot: usize,
    pub(super) ticket: Ticket,
}

/// An I/O, from its request to its answer.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) stage: Stage,
    pub(super) request: Request,
    /// The receive that the request came with.
    pub(super) lane: usize,
    /// The stripe that it rebuilds, where it is no I/O of the initiator.
    pub(super) rebuilds: Option<ToRebuild>,
    /// Blocks that are done.
    pub(super) block: u8,
    /// Targets whose result has not come.
    pub(super) awaited: Targets,
    /// Targets to which a request is still being sent.
    pub(super) sending: Targets,
    /// The half that the read at hand does without, as long as it does.
    pub(super) lost: Option<Target>,
    /// With `--degraded on`, targets that were asked last.
    pub(super) asked: Targets,
    /// Those of them that did not answer, or with an error.
    pub(super) without: Targets,
    /// Targets that failed to read their half of the block at hand.
    pub(super) avoided: Targets,
    /// The half that does not fit the others, as far as can be told without a checksum.
    pub(super) odd: Option<Target>,
    /// When targets were asked, in periods of the worker.
    pub(super) asked_in: u32,
    /// What went wrong.
    pub(super) error: Option<ErrorCode>,
    /// Its place in the queue for the stripe of the block at hand, until it is done with that.
    pub(super) turn: Option<Turn>,
}

impl Transaction {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Idle,
            request: Request::default(),
            lane: 0,
            rebuilds: None,
            block: 0,
            awaited: Targets::NONE,
            sending: Targets::NONE,
            lost: None,
            asked: Targets::NONE,
            without: Targets::NONE,
            avoided: Targets::NONE,
            odd: None,
            asked_in: 0,
            error: None,
            turn: None,
        }
    }

    /// Begins with a request.
    pub(super) fn begin(&mut self, request: Request, lane: usize) {
        *self = Self {
            request,
            lane,
            ..Self::new()
        };
    }

    /// How it uses the stripes of its blocks.
    pub(super) fn access(&self) -> Access {
        match self.request.operation {
            Operation::Read => Access::Read,
            Operation::Write => Access::Write,
        }
    }

    /// The stripe of the block at hand.
    pub(super) fn stripe(&self) -> u64 {
        self.request.first_stripe + u64::from(self.block)
    }

    /// Where the block at hand, of `block_size` bytes, is in the initiator's memory.
    pub(super) fn requester_offset(&self, block_size: u32) -> u64 {
        self.request.requester_offset + u64::from(self.block) * u64::from(block_size)
    }

    /// Whether no target owes a result and no message buffer is in use.
    pub(super) fn is_quiet(&self) -> bool {
        self.awaited.is_empty() && self.sending.is_empty()
    }
}
