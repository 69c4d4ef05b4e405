//! A frame that is waited for, and then held.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::control::{Message, MessageType};

use crate::transcript::{Action, End, Frame};

/// How often a wait looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(10);

/// Which frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Before which target, from 0.
    pub channel: u32,
    /// Of this type. Requests come from the service, responses from the target.
    pub message: MessageType,
    /// How many of this type pass before it.
    pub after: u32,
}

/// Waits for its frame. Dropped, it lets the frame pass.
#[derive(Debug)]
pub struct Trap {
    caught: Receiver<Held>,
}

impl Trap {
    /// The frame, which nobody has seen yet but who has sent it. `None` when it has not come at `deadline`, or `given_up` says that nobody
    /// waits any more.
    pub fn wait(&self, deadline: Instant, mut given_up: impl FnMut() -> bool) -> Option<Held> {
        loop {
            match self.caught.recv_timeout(TICK) {
                Ok(held) => return Some(held),
                // The line has ended.
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline || given_up() => {
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// A frame that stands still, and with it all that comes behind it in its direction. Dropped, it goes on.
#[derive(Debug)]
pub struct Held {
    frame: Frame,
    verdict: Sender<Action>,
}

impl Held {
    /// What it says.
    pub fn message(&self) -> &Message {
        &self.frame.message
    }

    /// It goes on as it is.
    pub fn pass(self) {
        self.end(Action::Pass);
    }

    /// These bytes go on in its place; with none, it has never been there.
    pub fn replace(self, bytes: impl Into<Bytes>) {
        self.end(Action::Replace(bytes.into()));
    }

    /// So many of its first bytes go on, and then the connections with both sides end.
    pub fn cut(self, bytes: usize, end: End) {
        let mut frame = self.frame.to_bytes();
        frame.truncate(bytes);
        self.end(Action::Cut(frame, end));
    }

    fn end(&self, action: Action) {
        // The line has ended, and with it the connection.
        let _ = self.verdict.send(action);
    }
}

/// The line's side of a trap.
#[derive(Debug)]
pub(super) struct Armed {
    moment: Moment,
    left: u32,
    trap: Sender<Held>,
}

impl Armed {
    pub(super) fn new(moment: Moment) -> (Self, Trap) {
        let (sender, caught) = channel();
        let armed = Self {
            moment,
            left: moment.after,
            trap: sender,
        };
        (armed, Trap { caught })
    }

    /// Whether it is this frame that it waits for.
    pub(super) fn meets(&mut self, channel: u32, frame: &Frame) -> bool {
        let Moment {
            channel: expected,
            message,
            ..
        } = self.moment;
        if expected != channel || message != frame.message.payload.message_type() {
            return false;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                false
            }
            None => true,
        }
    }

    /// Holds the frame until somebody has said what becomes of it, or the line ends.
    pub(super) fn hold(self, frame: &Frame, ends: impl Fn() -> bool) -> Action {
        let (verdict, decided) = channel();
        let held = Held {
            frame: frame.clone(),
            verdict,
        };
        if self.trap.send(held).is_err() {
            return Action::Pass;
        }
        loop {
            match decided.recv_timeout(TICK) {
                Ok(action) => return action,
                Err(RecvTimeoutError::Timeout) if !ends() => {}
                Err(_) => return Action::Pass,
            }
        }
    }
}
