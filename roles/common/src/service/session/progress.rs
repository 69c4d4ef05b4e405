//! Progress of a session: the expected request, and what the current one waits for.

use wire::control::MessageType;

/// Phase of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Query,
    Init,
    Start,
    Stop,
    Shutdown,
}

impl Phase {
    /// The expected request.
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

/// Event that the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The connections to the targets.
    Connection,
    /// The initiator's next request.
    Request,
    /// The targets' responses to the service's requests.
    Storage,
    /// One consumer of the initiator per worker.
    Consumers,
    /// The expiry of the initiator's consumers.
    Expiry,
    /// The outcome of a job.
    Job(Doing),
    /// None: the session has ended.
    Ended,
}

/// A job in progress.
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
