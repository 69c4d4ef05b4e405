//! Control channels: the same messages over TCP and over Comch, behind one small interface.
//!
//! Channels never block. The main thread asks each for its [`ChannelEvent`]s, and when none has any
//! it sleeps in [`Waiter::wait`] until a channel, a signal or a worker thread has something to say.

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

/// What happened on a control channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelEvent {
    /// The one peer of this channel is there: of a server, the first client that has sent a request which begins a session.
    Connected,
    /// The peer sent a message.
    Message(Message),
    /// The peer of a Comch channel created a consumer with this id.
    ConsumerAdded(u32),
    /// A consumer of the peer is gone.
    ConsumerExpired(u32),
    /// The peer is gone. Nothing comes after this.
    Closed,
}

/// One end of a control channel, with exactly one peer.
pub trait ControlChannel {
    /// The peer in words, for messages to people.
    fn peer(&self) -> &str;

    /// Sends a message. A peer that is gone is no error here but a [`ChannelEvent::Closed`] later,
    /// so that what it said last can still be read.
    ///
    /// # Errors
    ///
    /// There is no peer yet, or the channel is broken.
    fn send(&mut self, message: &Message) -> Result<(), Failure>;

    /// The next event, if there is any.
    ///
    /// # Errors
    ///
    /// The peer broke the protocol, or the channel is broken. It is of no further use then.
    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure>;

    /// Tells what the next event of this channel can be waited for with.
    fn interest<'a>(&'a self, interest: &mut Interest<'a>);

    /// Waits, at most `within`, until what was sent has left this process.
    fn flush(&mut self, within: Duration);
}
