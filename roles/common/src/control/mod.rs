//! Control channels: the same messages over TCP and over Comch, behind one small interface.
//!
//! Channels never block. The main thread polls each for its [`ChannelEvent`]s, and when there are none it sleeps in
//! [`Waiter::wait`] until a channel, a signal or a worker thread needs it.

mod comch;
mod engine;
mod stream;
mod tcp;
mod wait;

pub use comch::{ComchClientChannel, ComchServerChannel};
pub use tcp::{TcpClientChannel, TcpServerChannel};
pub use wait::{Interest, Waiter};

use std::time::Duration;

use wire::control::{Message, Payload};

use crate::failure::Failure;

/// Returns `true` for a request that begins a session.
pub type Opens = fn(&Payload) -> bool;

/// An event of a control channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelEvent {
    /// The channel's peer is connected: for a server, the first client that has sent a request which begins a session.
    Connected,
    /// The peer sent a message.
    Message(Message),
    /// The peer of a Comch channel created a consumer with this id.
    ConsumerAdded(u32),
    /// A consumer of the peer was destroyed.
    ConsumerExpired(u32),
    /// The peer has disconnected. No event follows.
    Closed,
}

/// A control channel with one peer.
pub trait ControlChannel {
    /// Description of the peer, for messages to people.
    fn peer(&self) -> &str;

    /// Sends a message. A peer that has disconnected is not an error but reported by a later [`ChannelEvent::Closed`],
    /// so that its last messages can still be read.
    ///
    /// # Errors
    ///
    /// There is no peer yet, or the channel is broken.
    fn send(&mut self, message: &Message) -> Result<(), Failure>;

    /// Returns the next event, if there is one.
    ///
    /// # Errors
    ///
    /// The peer violated the protocol, or the channel is broken. It cannot be used afterwards.
    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure>;

    /// Registers the descriptors or times to wait for.
    fn interest<'a>(&'a self, interest: &mut Interest<'a>);

    /// Waits, at most `within`, until sent messages have left this process.
    fn flush(&mut self, within: Duration);
}
