//! The two kinds of tasks: those that act on a connection, and those that wait for a message.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use super::connection::Connection;
use crate::buffer::BufHandle;

/// A buf of the program, which is looked at only while the task is in flight.
pub(crate) type BufSlot = Cell<Option<BufHandle>>;

/// What a [`Work`] task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A message takes a receive of the peer.
    Send,
    /// Remote memory comes to the tail of a local buf's data.
    Read,
    /// A local buf's data goes to the tail of a remote buf's data.
    Write,
}

/// Body of a task that acts on a connection.
pub(crate) struct Work {
    pub(super) operation: Operation,
    pub(super) connection: Rc<Connection>,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    /// As the program gave it: its bytes are in network order.
    pub(super) immediate: Option<u32>,
    /// Bytes that are done: of the message while it goes in fragments, of a read when it has completed.
    pub(super) progress: Cell<usize>,
    pub(super) stage: Cell<Stage>,
}

/// How far a task has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing has happened.
    Waiting,
    /// A write with immediate has written, and its immediate is still to be sent.
    Written,
    /// A message has taken a receive, and not all of its fragments are sent.
    Sending,
}

impl Work {
    pub(super) fn new(
        operation: Operation,
        connection: Rc<Connection>,
        source: Option<BufHandle>,
        destination: Option<BufHandle>,
        immediate: Option<u32>,
    ) -> Self {
        Self {
            operation,
            connection,
            source: Cell::new(source),
            destination: Cell::new(destination),
            immediate,
            progress: Cell::new(0),
            stage: Cell::new(Stage::Waiting),
        }
    }

    /// Bytes that a successful read has read.
    pub(crate) fn result_len(&self) -> u32 {
        u32::try_from(self.progress.get()).unwrap_or(u32::MAX)
    }
}

/// What a message was, with the values of `enum doca_rdma_opcode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Opcode {
    Send = 0,
    SendWithImmediate = 1,
    WriteWithImmediate = 2,
}

/// What a receive task got.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) opcode: Opcode,
    pub(crate) len: u32,
    /// As the sender gave it; 0 when it gave none.
    pub(crate) immediate: u32,
    pub(crate) connection: *const Connection,
}

/// Body of a task that waits for a message.
pub(crate) struct Receive {
    pub(crate) destination: BufSlot,
    pub(super) received: Cell<Received>,
}

impl Receive {
    pub(super) fn new(destination: Option<BufHandle>) -> Self {
        Self {
            destination: Cell::new(destination),
            received: Cell::new(Received {
                opcode: Opcode::Send,
                len: 0,
                immediate: 0,
                connection: ptr::null(),
            }),
        }
    }

    /// The result; what it was before when the task has not completed.
    pub(crate) fn received(&self) -> Received {
        self.received.get()
    }
}
