//! Events and actions of a session.

use bytes::Bytes;
use wire::control::{Message, RdmaConnectionDetails, RdmaConnectionRole};
use wire::release::Release;

use super::Described;
use crate::budget::InitLimits;
use crate::control::ChannelEvent;
use crate::failure::Failure;
use crate::jobs::Outcome;

/// Input of a session.
#[derive(Debug)]
pub enum Event {
    /// An event of the channel to the initiator.
    Client(ChannelEvent),
    /// An event of the channel to a target.
    Storage {
        /// Number of the target.
        target: usize,
        /// The event.
        event: ChannelEvent,
    },
    /// Nothing listens at a target's address. Connecting is retried.
    Refused {
        /// Number of the target.
        target: usize,
    },
    /// The current job has succeeded or failed.
    JobDone(Result<Outcome, Failure>),
    /// The service continues without a target. Ignored unless the session [may lose](super::Session::may_lose) it.
    Lost {
        /// Number of the target.
        target: usize,
    },
    /// A lost target has rejoined its [place](super::Session::place): from now on it gets all requests.
    Rejoined {
        /// Number of the target.
        target: usize,
        /// Its storage's identity, if it has one.
        identity: Option<Bytes>,
    },
    /// The time of [`poll_timeout`](super::Session::poll_timeout) may have passed.
    Timeout,
    /// The session cannot continue: a worker or a channel failed, or shutdown was requested. The failure is sent to an
    /// initiator that waits for a response.
    Failed(Failure),
}

/// Output of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Start serving the initiator, and announce it: all targets are connected, or enough of them.
    Announce,
    /// Send this message to the initiator.
    SendToClient(Message),
    /// Send this message to a target.
    SendToStorage {
        /// Number of the target.
        target: usize,
        /// The request.
        message: Message,
    },
    /// Disconnect from a target that the session continues without.
    Leave {
        /// Number of the target.
        target: usize,
    },
    /// A target that the session may lose has not answered in time. The session waits again unless the target is
    /// reported [lost](Event::Lost).
    Stalled {
        /// Number of the target.
        target: usize,
        /// The missing answer and the time waited.
        why: Failure,
    },
    /// Start this job, and report [`Event::JobDone`].
    Do(Job),
    /// The session has ended.
    End(Result<(), Failure>),
}

/// Work that the state machine cannot do itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Job {
    /// Prepare the memory of the I/Os: [`Outcome::Exported`] is the memory for the targets.
    PrepareMemory(Memory),
    /// Create the next worker.
    CreateWorker {
        /// Number of the worker.
        index: u32,
        /// Maximum number of transactions.
        transaction_count: u32,
    },
    /// Export an RDMA connection of a worker: [`Outcome::Exported`].
    Export {
        /// Number of the worker.
        index: u32,
        /// Number of the target that will use it.
        target: usize,
        /// Role of the connection.
        role: RdmaConnectionRole,
    },
    /// Connect an RDMA connection of a worker to a target's export.
    Connect {
        /// Number of the target.
        target: usize,
        /// Worker, role and export.
        details: RdmaConnectionDetails,
    },
    /// Wait until the targets' superblocks record that the set is in use.
    OpenSuperblocks,
    /// Wait for all contexts to be ready, and start the data paths; worker `n` sends results to the initiator's
    /// consumer `n`.
    StartWorkers {
        /// Ids of the initiator's consumers.
        consumers: Vec<u32>,
    },
    /// Start no more background work, and wait until none is in flight: the targets are going to stop.
    Quiesce,
    /// Stop the data paths, and destroy their consumers and producers.
    StopWorkers,
    /// Wait until the targets' superblocks record the final state.
    CloseSuperblocks,
    /// Destroy the workers.
    DestroyWorkers,
}

/// Inputs for preparing the memory of the I/Os.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The initiator's memory map.
    pub mmap_export_blob: Bytes,
    /// Number of workers.
    pub core_count: u32,
    /// Transactions of each worker.
    pub transaction_count: u32,
    /// Release of the session.
    pub release: Release,
    /// Description of each target, in order; `None` for a missing one.
    pub targets: Vec<Option<Described>>,
    /// Limits of the session.
    pub limits: InitLimits,
}
