//! The two kinds of tasks: those that act on a connection, and those that wait for a message.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use super::connection::Connection;
use crate::buffer::BufHandle;
use crate::error::{Error, Result};
use crate::sync_event::RemoteEvent;

/// A buf of the program, which is looked at only while the task is in flight.
pub(crate) type BufSlot = Cell<Option<BufHandle>>;

/// What a [`Work`] task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A message takes a receive of the peer.
    Send,
    /// The same, with an immediate value.
    SendImmediate,
    /// Remote memory comes to the tail of a local buf's data.
    Read,
    /// A local buf's data goes to the tail of a remote buf's data.
    Write,
    /// The same, and then an immediate value takes a receive of the peer.
    WriteImmediate,
    /// Eight bytes of remote memory are replaced if they have a given value.
    CompareSwap,
    /// Eight bytes of remote memory are added to.
    FetchAdd,
    /// A remote event's value comes to the tail of a local buf's data.
    EventGet,
    /// A remote event gets the value in a local buf's data.
    EventSet,
    /// A remote event is added to.
    EventAdd,
}

impl Operation {
    /// How many there are.
    pub(super) const COUNT: usize = Operation::EventAdd as usize + 1;

    /// Returns `true` if it moves blocks of data between two memories.
    pub(super) fn copies(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// What the program gives to a [`Work`] task. Each operation looks at its own.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) source: Option<BufHandle>,
    pub(crate) destination: Option<BufHandle>,
    pub(crate) result: Option<BufHandle>,
    pub(crate) immediate: u32,
    pub(crate) compare: u64,
    pub(crate) operand: u64,
    pub(crate) event: Option<Arc<RemoteEvent>>,
}

/// Body of a task that acts on a connection. What most operations use comes first.
#[repr(C)]
pub(crate) struct Work {
    /// There is one, except while it is looked at.
    connection: Cell<Option<Rc<Connection>>>,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    /// See [`Work::progress`].
    progress: Cell<u32>,
    pub(super) operation: Operation,
    pub(super) stage: Cell<Stage>,
    /// As the program gave it: its bytes are in network order.
    pub(crate) immediate: Cell<u32>,
    /// Gets the old value of an atomic operation.
    pub(crate) result: BufSlot,
    /// What an atomic operation compares with.
    pub(crate) compare: Cell<u64>,
    /// What an atomic operation adds or swaps in.
    pub(crate) operand: Cell<u64>,
    pub(crate) event: RefCell<Option<Arc<RemoteEvent>>>,
}

fn check_list(slot: &BufSlot, limit: u32) -> Result<()> {
    let Some(head) = slot.get() else {
        return Ok(());
    };
    if head.next_in_list().is_none() && limit > 0 {
        return Ok(());
    }
    let len = head.list().take(limit as usize + 1).count();
    if len > limit as usize {
        return Err(Error::InvalidValue.because(format_args!(
            "the list has more than the {limit} bufs that the RDMA instance was set up for"
        )));
    }
    Ok(())
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
        arguments: Arguments,
    ) -> Self {
        Self {
            operation,
            connection: Cell::new(Some(connection)),
            source: Cell::new(arguments.source),
            destination: Cell::new(arguments.destination),
            result: Cell::new(arguments.result),
            immediate: Cell::new(arguments.immediate),
            compare: Cell::new(arguments.compare),
            operand: Cell::new(arguments.operand),
            event: RefCell::new(arguments.event),
            progress: Cell::new(0),
            stage: Cell::new(Stage::Waiting),
        }
    }

    /// The connection that the task acts on.
    #[inline]
    pub(crate) fn connection(&self) -> Option<Rc<Connection>> {
        let connection = self.connection.take();
        self.connection.set(connection.clone());
        connection
    }

    /// Calls `action` with the connection that the task acts on, without a reference of its own. `action` does not look
    /// at the task's connection.
    #[inline(always)]
    pub(super) fn with_connection<R>(&self, action: impl FnOnce(&Connection) -> R) -> Option<R> {
        let connection = self.connection.take()?;
        let result = action(&connection);
        self.connection.set(Some(connection));
        Some(result)
    }

    /// Bytes that are done: of the message while it goes in fragments, of a read when it has completed.
    #[inline]
    pub(super) fn progress(&self) -> usize {
        self.progress.get() as usize
    }

    /// Notes how many bytes are done; at most [`MESSAGE_SIZE`](super::config::limits::MESSAGE_SIZE).
    #[inline]
    pub(super) fn set_progress(&self, bytes: usize) {
        self.progress.set(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Acts on another connection, of the same instance, from the next submission on.
    pub(crate) fn set_connection(&self, connection: Rc<Connection>) {
        self.connection.set(Some(connection));
    }

    /// Refuses local lists that are longer than the instance was set up for.
    pub(super) fn check_lists(&self, limit: u32) -> Result<()> {
        let local = match self.operation {
            Operation::Read | Operation::EventGet => &self.destination,
            _ => &self.source,
        };
        check_list(local, limit)
    }

    /// Bytes that a successful read has read.
    pub(crate) fn result_len(&self) -> u32 {
        self.progress.get()
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
#[repr(C)]
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

    /// Refuses a list that is longer than the instance was set up for.
    pub(super) fn check_list(&self, limit: u32) -> Result<()> {
        check_list(&self.destination, limit)
    }

    /// The result; what it was before when the task has not completed.
    pub(crate) fn received(&self) -> Received {
        self.received.get()
    }
}
