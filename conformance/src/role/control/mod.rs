//! The control channels from the peer's side: messages and raw bytes, at the peer's own pace.

mod comch;
mod tcp;

use std::time::{Duration, Instant};

use wire::control::{Message, Payload};

use super::Wrong;

pub use comch::{ComchPeer, Listening};
pub use tcp::TcpPeer;

/// How long a peer sleeps when nothing has come.
pub(crate) const PAUSE: Duration = Duration::from_micros(500);
/// How long the role may leave what was sent unread before the peer gives up.
const SEND: Duration = Duration::from_secs(10);

/// What one look at a channel found.
#[derive(Debug, Clone, PartialEq)]
pub enum Polled {
    /// The role sent this.
    Message(Message),
    /// Nothing yet.
    Nothing,
    /// The role has closed the channel, or has gone.
    Closed,
}

/// The peer's end of a control channel with the role under test.
pub trait ControlPeer {
    /// Sends these bytes as one piece: a segment, or a Comch message. They need be no frame.
    ///
    /// # Errors
    ///
    /// The channel is gone.
    fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Wrong>;

    /// Looks for a message, without waiting.
    ///
    /// # Errors
    ///
    /// What came is no frame, or the channel has failed.
    fn poll(&mut self) -> Result<Polled, Wrong>;

    /// Sends a message as one piece.
    ///
    /// # Errors
    ///
    /// The channel is gone.
    fn send(&mut self, message: &Message) -> Result<(), Wrong> {
        self.send_bytes(&message.encode_to_vec())
    }

    /// Waits for something other than nothing; [`Polled::Nothing`] when `patience` is over.
    ///
    /// # Errors
    ///
    /// As [`ControlPeer::poll`].
    fn next(&mut self, patience: Duration) -> Result<Polled, Wrong> {
        let deadline = Instant::now() + patience;
        loop {
            match self.poll()? {
                Polled::Nothing if Instant::now() < deadline => std::thread::sleep(PAUSE),
                polled => return Ok(polled),
            }
        }
    }

    /// Waits for a message. `what` says for which, in the error.
    ///
    /// # Errors
    ///
    /// There is none within `patience`, or the channel is closed.
    fn receive(&mut self, what: &str, patience: Duration) -> Result<Message, Wrong> {
        match self.next(patience)? {
            Polled::Message(message) => Ok(message),
            Polled::Nothing => Err(Wrong::expected(what, format!("nothing in {patience:?}"))),
            Polled::Closed => Err(Wrong::expected(what, "the end of the channel")),
        }
    }

    /// Sends a request and waits for its answer, which must repeat both its ids.
    ///
    /// # Errors
    ///
    /// There is no answer, or another.
    fn ask(&mut self, request: &Message, patience: Duration) -> Result<Payload, Wrong> {
        self.send(request)?;
        self.answer_to(request, patience)
    }

    /// Waits for the answer to a request that was sent, which must repeat both its ids.
    ///
    /// # Errors
    ///
    /// There is no answer, or another.
    fn answer_to(&mut self, request: &Message, patience: Duration) -> Result<Payload, Wrong> {
        let what = format!("an answer to {}", request.payload.message_type());
        let answer = self.receive(&what, patience)?;
        let ids = |message: &Message| {
            format!(
                "message id {:#x} and correlation id {:#x}",
                message.message_id, message.correlation_id
            )
        };
        Wrong::unless(ids(&answer) == ids(request), ids(request), ids(&answer))?;
        Ok(answer.payload)
    }

    /// Waits until the role has closed the channel; messages on the way there are passed over.
    ///
    /// # Errors
    ///
    /// It has not within `patience`.
    fn wait_closed(&mut self, patience: Duration) -> Result<(), Wrong> {
        let deadline = Instant::now() + patience;
        loop {
            match self.next(deadline.saturating_duration_since(Instant::now()))? {
                Polled::Closed => return Ok(()),
                Polled::Message(_) => {}
                Polled::Nothing => {
                    return Err(Wrong::expected(
                        "the role to close the channel",
                        format!("nothing in {patience:?}"),
                    ));
                }
            }
        }
    }
}
