//! What a session wants done, and what it is told about it.

use bytes::Bytes;
use wire::control::{Message, RdmaConnectionDetails, RdmaConnectionRole};

use super::Described;
use crate::budget::InitLimits;
use crate::failure::Failure;

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this to the initiator.
    SendToClient(Message),
    /// Send this to a target.
    SendToStorage {
        /// Number of the target.
        target: usize,
        /// The request.
        message: Message,
    },
    /// Do this, and tell [`Session::complete`](super::Session::complete) how it went.
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
    /// Have the targets keep that I/Os may be served from now on, and wait until they do.
    OpenRecords,
    /// Wait for all contexts to be ready, and start the data paths; worker `n` answers to the
    /// initiator's consumer `n`.
    StartWorkers {
        /// Ids of the initiator's consumers.
        consumers: Vec<u32>,
    },
    /// Stop the data paths, and destroy their consumers and producers.
    StopWorkers,
    /// Have the targets keep how the I/Os have ended, and wait until they do.
    CloseRecords,
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
    /// What each target said of itself, in their order.
    pub targets: Vec<Described>,
    /// What the session may take.
    pub limits: InitLimits,
}

/// How a job went.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to tell.
    Done,
    /// What was exported.
    Exported(Bytes),
}
