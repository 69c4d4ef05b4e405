//! What a session wants done, and what it is told about it.

use bytes::Bytes;
use role_common::Failure;
use wire::control::{Message, RdmaConnectionDetails, RdmaConnectionRole};

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this to the initiator.
    SendToClient(Message),
    /// Send this to the target.
    SendToStorage(Message),
    /// Do this, and tell [`Session::complete`](super::Session::complete) how it went.
    Do(Job),
    /// The session is over.
    End(Result<(), Failure>),
}

/// Something that takes more than the state machine.
#[derive(Debug, PartialEq, Eq)]
pub enum Job {
    /// Import the initiator's memory map, and export it for RDMA: [`Outcome::Exported`].
    ImportMemory(Bytes),
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
        /// Which of its connections.
        role: RdmaConnectionRole,
    },
    /// Connect an RDMA connection of a worker to the target's export.
    Connect(RdmaConnectionDetails),
    /// Wait for all contexts to be ready, and start the data paths; worker `n` answers to the
    /// initiator's consumer `n`.
    StartWorkers {
        /// Ids of the initiator's consumers.
        consumers: Vec<u32>,
    },
    /// Stop the data paths, and destroy their consumers and producers.
    StopWorkers,
    /// Destroy the workers.
    DestroyWorkers,
}

/// How a job went.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to tell.
    Done,
    /// What was exported.
    Exported(Bytes),
}
