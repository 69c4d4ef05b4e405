//! The two kinds of tasks: those that act on a connection, and receives.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use super::connection::Connection;
use crate::buffer::BufHandle;
use crate::error::{Error, Result};
use crate::sync_event::RemoteEvent;

/// A buf of the program, accessed only while the task is in flight.
pub(crate) type BufSlot = Cell<Option<BufHandle>>;

/// Operation of a [`Work`] task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Send a message, which consumes a receive of the peer.
    Send,
    /// Send a message with an immediate value.
    SendImmediate,
    /// Append remote memory to a local buf's data.
    Read,
    /// Append a local buf's data to a remote buf's data.
    Write,
    /// Write, then send an immediate value, which consumes a receive of the peer.
    WriteImmediate,
    /// Compare and swap eight bytes of remote memory.
    CompareSwap,
    /// Add to eight bytes of remote memory.
    FetchAdd,
    /// Append a remote event's value to a local buf's data.
    EventGet,
    /// Set a remote event to the value in a local buf's data.
    EventSet,
    /// Add to a remote event.
    EventAdd,
}

impl Operation {
    /// Number of operations.
    pub(super) const COUNT: usize = Operation::EventAdd as usize + 1;

    /// Returns `true` if it moves data between two memories.
    pub(super) fn copies(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// Parameters of a [`Work`] task. Each operation uses its own.
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

/// Body of a task that acts on a connection. Fields used by most operations come first.
#[repr(C)]
pub(crate) struct Work {
    /// Taken only while it is being accessed.
    connection: Cell<Option<Rc<Connection>>>,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    /// See [`Work::progress`].
    progress: Cell<u32>,
    pub(super) operation: Operation,
    pub(super) stage: Cell<Stage>,
    /// As given by the program: its bytes are in network order.
    pub(crate) immediate: Cell<u32>,
    /// Destination of an atomic operation's old value.
    pub(crate) result: BufSlot,
    /// Compare value of an atomic operation.
    pub(crate) compare: Cell<u64>,
    /// Add or swap value of an atomic operation.
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

/// Progress of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not started.
    Waiting,
    /// A write with immediate has written; its immediate is still to be sent.
    Written,
    /// A message has consumed a receive, and not all of its fragments have been sent.
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

    /// Sets the number of bytes done; at most [`MESSAGE_SIZE`](super::config::limits::MESSAGE_SIZE).
    #[inline]
    pub(super) fn set_progress(&self, bytes: usize) {
        self.progress.set(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Sets another connection, of the same instance, for the next submission.
    pub(crate) fn set_connection(&self, connection: Rc<Connection>) {
        self.connection.set(Some(connection));
    }

    /// Refuses local lists longer than the instance's limit.
    pub(super) fn check_lists(&self, limit: u32) -> Result<()> {
        let local = match self.operation {
            Operation::Read | Operation::EventGet => &self.destination,
            _ => &self.source,
        };
        check_list(local, limit)
    }

    /// Number of bytes read by a successful read.
    pub(crate) fn result_len(&self) -> u32 {
        self.progress.get()
    }
}

/// Kind of a received message, with the values of `enum doca_rdma_opcode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Opcode {
    Send = 0,
    SendWithImmediate = 1,
    WriteWithImmediate = 2,
}

/// Result of a receive task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) opcode: Opcode,
    pub(crate) len: u32,
    /// As given by the sender; 0 if there was none.
    pub(crate) immediate: u32,
    pub(crate) connection: *const Connection,
}

/// Body of a receive task.
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

    /// Refuses a list longer than the instance's limit.
    pub(super) fn check_list(&self, limit: u32) -> Result<()> {
        check_list(&self.destination, limit)
    }

    /// The result; unchanged if the task has not completed.
    pub(crate) fn received(&self) -> Received {
        self.received.get()
    }
}
