//! The steps of a session between initiator and service.

use wire::control::MessageType;

/// A request of the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Query,
    Init,
    Start,
    Stop,
    Shutdown,
}

impl Step {
    /// In their order.
    pub(super) const ALL: [Self; 5] = [
        Self::Query,
        Self::Init,
        Self::Start,
        Self::Stop,
        Self::Shutdown,
    ];

    /// What the initiator asks.
    pub(super) fn request(self) -> MessageType {
        match self {
            Self::Query => MessageType::QueryStorageRequest,
            Self::Init => MessageType::InitStorageRequest,
            Self::Start => MessageType::StartStorageRequest,
            Self::Stop => MessageType::StopStorageRequest,
            Self::Shutdown => MessageType::ShutdownRequest,
        }
    }

    /// What it is answered.
    pub(super) fn answer(self) -> MessageType {
        match self {
            Self::Query => MessageType::QueryStorageResponse,
            Self::Init => MessageType::InitStorageResponse,
            Self::Start => MessageType::StartStorageResponse,
            Self::Stop => MessageType::StopStorageResponse,
            Self::Shutdown => MessageType::ShutdownResponse,
        }
    }
}
