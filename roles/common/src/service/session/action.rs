//! What a session wants done, and what it is told about it.

use bytes::Bytes;
use wire::control::{Message, RdmaConnectionDetails, RdmaConnectionRole};
use wire::release::Release;

use super::Described;
use crate::budget::InitLimits;
use crate::control::ChannelEvent;
use crate::failure::Failure;
use crate::jobs::Outcome;

/// Something that happened to a session.
#[derive(Debug)]
pub enum Event {
    /// On the channel to the initiator.
    Client(ChannelEvent),
    /// On the channel to a target.
    Storage {
        /// Number of the target.
        target: usize,
        /// What happened.
        event: ChannelEvent,
    },
    /// Nothing listens where a target is to be. The attempts to connect go on.
    Refused {
        /// Number of the target.
        target: usize,
    },
    /// The job at hand is done, or failed.
    JobDone(Result<Outcome, Failure>),
    /// The service goes on without a target. Ignored unless the session [may lose](super::Session::may_lose) it.
    Lost {
        /// Number of the target.
        target: usize,
    },
    /// A lost target has rejoined at its [place](super::Session::place): from now on it is asked what all are asked.
    Rejoined {
        /// Number of the target.
        target: usize,
        /// Its storage's identity, if it has one.
        identity: Option<Bytes>,
    },
    /// The time of [`poll_timeout`](super::Session::poll_timeout) may have come.
    Timeout,
    /// The session cannot go on: a worker, a channel or the user ended it. An initiator that waits for an answer is told why.
    Failed(Failure),
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Serve the initiator from now on, and say so: the targets are connected, or enough of them.
    Announce,
    /// Send this to the initiator.
    SendToClient(Message),
    /// Send this to a target.
    SendToStorage {
        /// Number of the target.
        target: usize,
        /// The request.
        message: Message,
    },
    /// Disconnect from a target, which the session goes on without.
    Leave {
        /// Number of the target.
        target: usize,
    },
    /// A target that the session may lose has not answered in time. It is waited for once more, unless it is [lost](Event::Lost).
    Stalled {
        /// Number of the target.
        target: usize,
        /// The answer that is missing, and since when.
        why: Failure,
    },
    /// Do this, and report [`Event::JobDone`].
    Do(Job),
    /// The session is over.
    End(Result<(), Failure>),
}

/// Something that takes more than the state machine.
#[derive(Debug, PartialEq, Eq)]
pub enum Job {
    /// Prepare the memory of the I/Os: [`Outcome::Exported`] is what the targets write to and read from.
    PrepareMemory(Memory),
    /// Create the next worker.
    CreateWorker {
        /// Number of the worker.
        index: u32,
        /// Transactions that it needs room for.
        transaction_count: u32,
    },
    /// Export an RDMA connection of a worker: [`Outcome::Exported`].
    Export {
        /// Number of the worker.
        index: u32,
        /// Number of the target that is to use it.
        target: usize,
        /// Which of the connections to this target.
        role: RdmaConnectionRole,
    },
    /// Connect an RDMA connection of a worker to a target's export.
    Connect {
        /// Number of the target.
        target: usize,
        /// Worker, role and export.
        details: RdmaConnectionDetails,
    },
    /// Wait until the targets' superblocks say that the set is in use.
    OpenSuperblocks,
    /// Wait for all contexts to be ready, and start the data paths; worker `n` answers to the
    /// initiator's consumer `n`.
    StartWorkers {
        /// Ids of the initiator's consumers.
        consumers: Vec<u32>,
    },
    /// Begin nothing more that the initiator has not asked for, and wait until none of that is in flight: the targets are going to stop.
    Quiesce,
    /// Stop the data paths, and destroy their consumers and producers.
    StopWorkers,
    /// Wait until the targets' superblocks say how the I/Os have ended.
    CloseSuperblocks,
    /// Destroy the workers.
    DestroyWorkers,
}

/// What the memory of the I/Os is prepared from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The initiator's memory map.
    pub mmap_export_blob: Bytes,
    /// Number of workers.
    pub core_count: u32,
    /// Transactions of each worker.
    pub transaction_count: u32,
    /// The release that the session speaks.
    pub release: Release,
    /// What each target said of itself, in their order; `None` for one that is missing.
    pub targets: Vec<Option<Described>>,
    /// What the session may take.
    pub limits: InitLimits,
}
