//! One target that a check plays.

use std::net::TcpListener;
use std::time::Duration;

use wire::control::{Message, Payload};

use crate::role::{ControlPeer as _, Polled, TcpPeer, Wrong};
use crate::target::{Script, Session};

/// What a target does about a request.
#[derive(Debug)]
pub(super) enum Reply {
    /// What it should.
    Honest,
    /// What it should, after this time.
    Late(Duration),
    /// What it should, each byte a segment of its own.
    Bytewise,
    /// What it should, in two segments, the first of this many bytes.
    Split(usize),
    /// This instead.
    Say(Payload),
    /// These bytes instead.
    Bytes(Vec<u8>),
    /// Nothing.
    Silence,
    /// It ends the connection.
    Close,
    /// It resets the connection.
    Reset,
}

/// Time between two segments, so that each is read alone.
const GAP: Duration = Duration::from_micros(300);

/// Time between the halves of a frame.
pub(super) const SPLIT: Duration = Duration::from_millis(1);

/// Between what a service does when it ends.
const MOMENT: Duration = Duration::from_millis(300);

/// Its control connection, and what it holds.
pub(super) struct Target {
    /// None: it has left.
    pub(super) peer: Option<TcpPeer>,
    pub(super) session: Session,
    /// It leaves I/Os alone.
    pub(super) is_paused: bool,
}

impl Target {
    /// Waits for the service to connect.
    pub(super) fn accept(
        script: &Script,
        listener: &TcpListener,
        patience: Duration,
    ) -> Result<Self, Wrong> {
        Ok(Self {
            peer: Some(TcpPeer::accept(listener, patience)?),
            session: Session::new(script)?,
            is_paused: false,
        })
    }

    /// Looks for a request, and serves the I/Os that have come.
    pub(super) fn poll(&mut self) -> Result<Polled, Wrong> {
        if self.session.is_running() && !self.is_paused {
            self.session.progress()?;
        }
        match &mut self.peer {
            Some(peer) => peer.poll(),
            None => Ok(Polled::Nothing),
        }
    }

    /// Replies to a request.
    pub(super) fn reply(&mut self, request: &Message, reply: Reply) -> Result<(), Wrong> {
        match reply {
            Reply::Honest => {
                let answer = match self.session.answer(&request.payload) {
                    Ok(answer) => answer,
                    // Another target made the service end, which took its memory along.
                    Err(_) if self.is_left() => return Ok(()),
                    Err(error) => return Err(error.into()),
                };
                self.say(&request.response(answer).encode_to_vec())
            }
            Reply::Late(time) => {
                std::thread::sleep(time);
                self.reply(request, Reply::Honest)
            }
            Reply::Bytewise => {
                let response = request.response(self.session.answer(&request.payload)?);
                for byte in response.encode_to_vec() {
                    self.say(&[byte])?;
                    std::thread::sleep(GAP);
                }
                Ok(())
            }
            Reply::Split(at) => {
                let response = request.response(self.session.answer(&request.payload)?);
                let bytes = response.encode_to_vec();
                let (first, second) = bytes.split_at(at.min(bytes.len() - 1));
                self.say(first)?;
                std::thread::sleep(SPLIT);
                self.say(second)
            }
            Reply::Say(payload) => self.say(&request.response(payload).encode_to_vec()),
            Reply::Bytes(bytes) => self.say(&bytes),
            Reply::Silence => Ok(()),
            Reply::Close => {
                self.peer = None;
                Ok(())
            }
            Reply::Reset => self.peer.take().map_or(Ok(()), TcpPeer::reset),
        }
    }

    /// Whether the service has gone, or goes in this moment.
    fn is_left(&mut self) -> bool {
        match &mut self.peer {
            Some(peer) => peer.wait_closed(MOMENT).is_ok(),
            None => true,
        }
    }

    /// Sends these bytes as one segment.
    pub(super) fn say(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        match &mut self.peer {
            Some(peer) => peer.send_bytes(bytes),
            None => Err(Wrong::new("the target has left")),
        }
    }
}
