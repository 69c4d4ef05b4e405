//! What goes into a session and what comes out of it.

use role_common::Failure;
use role_common::control::ChannelEvent;
use wire::control::{InitStorage, Message, StorageDetails};

/// Something that happened to a session.
#[derive(Debug)]
pub enum Event {
    /// The control channel to the service is established.
    Connected,
    /// The control channel is gone.
    Disconnected,
    /// A control message arrived.
    Message(Message),
    /// The service has a consumer with this id.
    ConsumerAdded(u32),
    /// The service's consumer with this id is gone.
    ConsumerExpired(u32),
    /// [`Action::OpenStorage`] is done.
    Opened(InitStorage),
    /// [`Action::CreateWorkers`] is done: all local contexts run.
    WorkersReady,
    /// [`Action::PrepareWorkers`] is done.
    WorkersPrepared,
    /// The data path has come to rest: all operations done, halted, or failed. How it went is the driver's to report.
    WorkersFinished,
    /// [`Action::DestroyWorkers`] is done.
    WorkersDestroyed,
    /// Something failed on this side, or on the control channel.
    Failed(Failure),
    /// The user asked the program to end.
    Interrupted,
    /// The time of [`Session::poll_timeout`](super::Session::poll_timeout) may have come.
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

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to the service.
    Send(Message),
    /// Allocate and export memory for this storage; answer with [`Event::Opened`].
    OpenStorage(StorageDetails),
    /// Create the workers with their contexts; answer with [`Event::WorkersReady`].
    CreateWorkers,
    /// Prepare the tasks of each worker for the consumer with the same index; answer with [`Event::WorkersPrepared`].
    PrepareWorkers(Vec<u32>),
    /// Start the data path; [`Event::WorkersFinished`] follows some time.
    StartDataPath,
    /// Make the data path come to rest; [`Event::WorkersFinished`] must follow.
    HaltDataPath {
        /// `true` if operations in flight may still be answered, and are waited for.
        drain: bool,
    },
    /// Destroy the workers' contexts; answer with [`Event::WorkersDestroyed`].
    DestroyWorkers,
    /// Nothing more to do; [`Session::result`](super::Session::result) is final.
    Finish,
}
