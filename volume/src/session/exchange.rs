//! Events and actions of a session.

use role_common::Failure;
use role_common::control::ChannelEvent;
use wire::control::{InitStorage, Message, StorageDetails};

/// Input of a session.
#[derive(Debug)]
pub enum Event {
    /// The control channel to the service is established.
    Connected,
    /// The control channel was closed.
    Disconnected,
    /// A control message was received.
    Message(Message),
    /// The service has created a consumer with this id.
    ConsumerAdded(u32),
    /// The service's consumer with this id has expired.
    ConsumerExpired(u32),
    /// [`Action::OpenStorage`] is done; this is the init request to send.
    Opened(InitStorage),
    /// [`Action::CreateWorkers`] is done: all local contexts are running.
    WorkersReady,
    /// [`Action::PrepareWorkers`] is done.
    WorkersPrepared,
    /// The data path has stopped: completed, halted or failed. The driver reports its result.
    WorkersFinished,
    /// [`Action::DestroyWorkers`] is done.
    WorkersDestroyed,
    /// A local operation or the control channel failed.
    Failed(Failure),
    /// Interrupted by the user.
    Interrupted,
    /// The time of [`Session::poll_timeout`](super::Session::poll_timeout) may have passed.
    Timeout,
}

impl From<ChannelEvent> for Event {
    fn from(event: ChannelEvent) -> Self {
        match event {
            ChannelEvent::Connected => Self::Connected,
            ChannelEvent::Message(message) => Self::Message(message),
            ChannelEvent::ConsumerAdded(id) => Self::ConsumerAdded(id),
            ChannelEvent::ConsumerExpired(id) => Self::ConsumerExpired(id),
            ChannelEvent::Closed => Self::Disconnected,
        }
    }
}

/// Output of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to the service.
    Send(Message),
    /// Allocate and export memory for this storage; report [`Event::Opened`].
    OpenStorage(StorageDetails),
    /// Create the workers with their contexts; report [`Event::WorkersReady`].
    CreateWorkers,
    /// Prepare the tasks of each worker for the consumer with the same index; report [`Event::WorkersPrepared`].
    PrepareWorkers(Vec<u32>),
    /// Start the data path; report [`Event::WorkersFinished`] when it has stopped.
    StartDataPath,
    /// Stop the data path; report [`Event::WorkersFinished`] when it has stopped.
    HaltDataPath {
        /// `true` if I/Os in flight may still be answered, and are waited for.
        drain: bool,
    },
    /// Destroy the workers' contexts; report [`Event::WorkersDestroyed`].
    DestroyWorkers,
    /// The session has ended; [`Session::result`](super::Session::result) is final.
    Finish,
}
