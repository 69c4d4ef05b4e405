//! Comch: control messages between host and DPU, and the fast path of consumers and producers over the same connection.

mod builder;
mod client;
mod connection;
mod consumer;
mod endpoint;
mod producer;
mod received;
mod send;
mod server;

pub use builder::{ComchClientBuilder, ComchServerBuilder};
pub use client::ComchClient;
pub use connection::Connection;
pub use consumer::Consumer;
pub use producer::Producer;
pub use received::{PostRecvTask, ReceivedMessage};
pub use server::ComchServer;

use crate::ErrorCode;

/// What happened on a control path.
#[derive(Debug)]
pub enum ComchEvent {
    /// A client connected to the server, or the client is connected.
    Connected(Connection),
    /// The connection is gone: its peer disconnected or died, or the client was stopped.
    Disconnected(Connection),
    /// A control message arrived.
    Message {
        /// Where it came from.
        connection: Connection,
        /// The message, whole: messages are neither split nor joined.
        bytes: Vec<u8>,
    },
    /// The peer started a consumer: a [`Producer`] on this connection can send to it.
    ConsumerAdded {
        /// The connection.
        connection: Connection,
        /// Id of the consumer.
        id: u32,
    },
    /// A consumer of the peer is gone.
    ConsumerExpired {
        /// The connection.
        connection: Connection,
        /// Id of the consumer.
        id: u32,
    },
    /// A control message that `send` accepted could not be delivered.
    SendFailed {
        /// Where it should have gone.
        connection: Connection,
        /// Why it did not.
        code: ErrorCode,
    },
}
