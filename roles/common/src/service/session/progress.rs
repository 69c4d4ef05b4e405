//! Where a session is: which request is due, and what the one at hand waits for.

use wire::control::MessageType;

/// How far the session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Query,
    Init,
    Start,
    Stop,
    Shutdown,
}

impl Phase {
    /// The request that is due.
    pub(super) fn request(self) -> MessageType {
        match self {
            Self::Query => MessageType::QueryStorageRequest,
            Self::Init => MessageType::InitStorageRequest,
            Self::Start => MessageType::StartStorageRequest,
            Self::Stop => MessageType::StopStorageRequest,
            Self::Shutdown => MessageType::ShutdownRequest,
        }
    }
}

/// What the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The connections to the targets.
    Connection,
    /// The initiator's next request.
    Request,
    /// The targets' answers to the service's requests.
    Storage,
    /// As many consumers of the initiator as there are workers.
    Consumers,
    /// The end of the initiator's consumers.
    Expiry,
    /// The outcome of a job.
    Job(Doing),
    /// Nothing more.
    Ended,
}

/// A job that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    PrepareMemory,
    CreateWorker,
    Export,
    Connect,
    OpenSuperblocks,
    StartWorkers,
    Quiesce,
    StopWorkers,
    CloseSuperblocks,
    DestroyWorkers,
}
