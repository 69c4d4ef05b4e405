//! Tasks and their pools. There are two kinds: [`Work`] acts on a connection (a message into the peer's ring, or a copy
//! from or to its memory); a [`Receive`] is consumed by a message from any peer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;

use doca_abi::{
    DOCA_ACCESS_FLAG_RDMA_ATOMIC, DOCA_ACCESS_FLAG_RDMA_READ, DOCA_ACCESS_FLAG_RDMA_WRITE,
};

use super::buffers::{self, RemoteAccess, RemoteChange};
use super::connection::{Connection, Done, Parts};
use super::limits;
use super::transport::{Fragment, Inbox, Outbox, SMALL};
use crate::buffer::BufHandle;
use crate::device::DeviceKey;
use crate::error::{Error, Result};
use crate::progress::{Task, TaskPool};
use crate::sync_event::RemoteEvent;
use crate::verbs;

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
    const COUNT: usize = Operation::EventAdd as usize + 1;

    /// Returns `true` if the operation moves data between two memories.
    pub(super) fn copies(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// Returns `true` for the operations whose failure stops the context.
    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd | Self::EventAdd)
    }

    /// Returns `true` if the operation consumes a receive of the peer.
    pub(super) fn needs_receive(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImmediate | Self::WriteImmediate
        )
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
    /// Empty only while it is being accessed.
    connection: Cell<Option<Rc<Connection>>>,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    /// See [`Work::progress`].
    progress: Cell<u32>,
    pub(super) operation: Operation,
    pub(super) stage: Cell<Stage>,
    /// As set by the program, in network byte order.
    pub(crate) immediate: Cell<u32>,
    /// Destination of an atomic operation's old value.
    pub(crate) result: BufSlot,
    /// Compare value of an atomic operation.
    pub(crate) compare: Cell<u64>,
    /// Add or swap value of an atomic operation.
    pub(crate) operand: Cell<u64>,
    pub(crate) event: RefCell<Option<Arc<RemoteEvent>>>,
    /// A get of an event replaces the data of its destination instead of appending to it.
    pub(super) replaces_value: bool,
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
    /// The data of a write with immediate has been written; the immediate value has not been sent yet.
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
            replaces_value: false,
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

    /// Calls `action` with the connection that the task acts on, without adding a reference. `action` must not access
    /// the task's connection.
    #[inline(always)]
    pub(super) fn with_connection<R>(&self, action: impl FnOnce(&Connection) -> R) -> Option<R> {
        let connection = self.connection.take()?;
        let result = action(&connection);
        self.connection.set(Some(connection));
        Some(result)
    }

    /// Number of bytes processed: of a message, the bytes sent as fragments so far; of a read, its length once it has
    /// completed.
    #[inline]
    pub(super) fn progress(&self) -> usize {
        self.progress.get() as usize
    }

    /// Sets the number of bytes done; at most [`MESSAGE_SIZE`](super::limits::MESSAGE_SIZE).
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

    /// Checks that the instance's device has keys for the memory of all bufs. The memory of a peer has a key if it was
    /// imported with the device.
    pub(super) fn check_device(&self, key: DeviceKey) -> Result<()> {
        for slot in [&self.source, &self.destination, &self.result] {
            if let Some(buf) = slot.get() {
                buf.check_device(key)?;
            }
        }
        Ok(())
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
    /// As set by the sender; 0 if the message has none.
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

    /// As [`Work::check_device`].
    pub(super) fn check_device(&self, key: DeviceKey) -> Result<()> {
        match self.destination.get() {
            Some(buf) => buf.check_device(key),
            None => Ok(()),
        }
    }

    /// The result; unchanged if the task has not completed.
    pub(crate) fn received(&self) -> Received {
        self.received.get()
    }
}

/// Task pools, one for each kind that the C API configures.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) receive: TaskPool,
    work: [TaskPool; Operation::COUNT],
}

impl Pools {
    /// The pool of tasks of this kind.
    pub(crate) fn of(&self, operation: Operation) -> &TaskPool {
        &self.work[operation as usize]
    }

    /// Maximum number of this side's tasks in flight.
    pub(super) fn work_limit(&self) -> usize {
        self.work.iter().map(|pool| pool.limit() as usize).sum()
    }
}

/// Runs a task as far as possible. `Again` means that the task must wait for the peer, and has to be run again.
#[inline(always)]
pub(super) fn run(work: &Work, outbox: &mut impl Outbox, peer_permissions: u32) -> Result<()> {
    match work.operation {
        Operation::Send => send(work, None, outbox),
        Operation::SendImmediate => send(work, Some(work.immediate.get()), outbox),
        Operation::Read => read(work, peer_permissions),
        Operation::Write => write(work, peer_permissions).map(|_| ()),
        Operation::WriteImmediate => write_immediate(work, outbox, peer_permissions),
        Operation::CompareSwap | Operation::FetchAdd => atomic(work, peer_permissions),
        Operation::EventGet | Operation::EventSet | Operation::EventAdd => {
            on_event(work, peer_permissions)
        }
    }
}

#[inline(always)]
fn send(work: &Work, immediate: Option<u32>, outbox: &mut impl Outbox) -> Result<()> {
    let source = work.source.get();
    let list = source.as_deref();
    if let (Some(buf), None, Stage::Waiting) = (list, immediate, work.stage.get())
        && let Some(run) = buffers::small_run(buf, SMALL)?
    {
        // SAFETY: `small_run` returns memory of the task's buf.
        return unsafe { outbox.send_small(run, buf.data_len()) };
    }
    send_in_fragments(work, immediate, outbox)
}

/// As [`send`], for every kind of message.
#[inline(never)]
fn send_in_fragments(work: &Work, immediate: Option<u32>, outbox: &mut impl Outbox) -> Result<()> {
    let source = work.source.get();
    let list = source.as_deref();
    let total = check_len(buffers::data_len(list))?;
    if work.stage.get() == Stage::Waiting {
        buffers::check_source(list)?;
        if !outbox.reserve_receive() {
            return Err(Error::Again);
        }
        work.set_progress(0);
    }
    let immediate = immediate.map(u32::to_ne_bytes);
    loop {
        let first = work.stage.get() == Stage::Waiting;
        let immediate = immediate.as_ref().filter(|_| first);
        let room = outbox.max_fragment() - immediate.map_or(0, |_| SEND_IMMEDIATE);
        let from = work.progress();
        let len = room.min(total.saturating_sub(from));
        let more = from + len < total;
        // SAFETY: `with_data` passes memory of the task's bufs.
        unsafe {
            outbox.push(
                immediate.map(<[u8; SEND_IMMEDIATE]>::as_slice),
                len,
                first,
                more,
                &mut |write| buffers::with_data(list, from, len, write),
            )
        }?;
        work.set_progress(from + len);
        work.stage.set(Stage::Sending);
        if !more {
            return Ok(());
        }
    }
}

fn read(work: &Work, peer_permissions: u32) -> Result<()> {
    let Some(source) = work.source.get() else {
        return Ok(());
    };
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_READ)?;
    check_len(source.data_len())?;
    let len = buffers::read_remote(&source, &destination)?;
    work.set_progress(len);
    Ok(())
}

/// Writes, and returns the number of bytes.
fn write(work: &Work, peer_permissions: u32) -> Result<usize> {
    let Some(source) = work.source.get() else {
        return Ok(0);
    };
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_WRITE)?;
    check_len(source.list_data_len())?;
    buffers::write_remote(&source, &destination)
}

#[inline(never)]
fn write_immediate(work: &Work, outbox: &mut impl Outbox, peer_permissions: u32) -> Result<()> {
    if work.stage.get() == Stage::Waiting {
        // As in hardware, no data is written before the peer can receive the immediate value.
        if !outbox.reserve_receive() {
            return Err(Error::Again);
        }
        work.set_progress(write(work, peer_permissions)?);
        work.stage.set(Stage::Written);
    }
    let written = u32::try_from(work.progress()).unwrap_or(u32::MAX);
    let mut immediate = [0; WRITE_IMMEDIATE];
    immediate[..4].copy_from_slice(&work.immediate.get().to_ne_bytes());
    immediate[4..].copy_from_slice(&written.to_ne_bytes());
    // SAFETY: the message contains no data.
    unsafe { outbox.push(Some(&immediate), 0, true, false, &mut |_| Ok(())) }
}

#[inline(never)]
fn atomic(work: &Work, peer_permissions: u32) -> Result<()> {
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    let result = work.result.get().ok_or(Error::InvalidValue)?;
    expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_ATOMIC)?;
    let (compare, operand) = (work.compare.get(), work.operand.get());
    buffers::atomic(&destination, &result, |remote, addr| match work.operation {
        Operation::CompareSwap => remote.compare_swap(addr, compare, operand),
        _ => remote.fetch_add(addr, operand),
    })
}

#[inline(never)]
fn on_event(work: &Work, peer_permissions: u32) -> Result<()> {
    let event = work.event.borrow().clone().ok_or(Error::InvalidValue)?;
    match work.operation {
        Operation::EventGet => {
            let destination = work.destination.get().ok_or(Error::InvalidValue)?;
            expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_READ)?;
            if work.replaces_value {
                destination.reset_data_len();
            }
            buffers::check_room(&destination)?;
            let value = event.get()?;
            work.set_progress(buffers::append_value(&destination, value)?);
            Ok(())
        }
        Operation::EventSet => {
            let source = work.source.get().ok_or(Error::InvalidValue)?;
            expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_WRITE)?;
            event.set(buffers::value(&source)?)
        }
        _ => {
            let result = work.result.get().ok_or(Error::InvalidValue)?;
            expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_ATOMIC)?;
            let room = buffers::result_room(&result)?;
            let old = event.add(work.operand.get())?;
            buffers::put_result(&result, room, old)
        }
    }
}

/// Builds the request for a read or write of memory on another machine; `None` for other tasks, and if local memory is
/// not mapped here.
pub(super) fn remote_access(work: &Work, peer_permissions: u32) -> Result<Option<RemoteAccess>> {
    let Some(source) = work.source.get() else {
        return Ok(None);
    };
    let is_read = match work.operation {
        Operation::Read => true,
        Operation::Write | Operation::WriteImmediate => false,
        _ => return Ok(None),
    };
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    if is_read {
        expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_READ)?;
        check_len(source.data_len())?;
        buffers::remote_read(source, destination)
    } else {
        expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_WRITE)?;
        check_len(source.list_data_len())?;
        buffers::remote_write(source, destination)
    }
}

/// Builds the request for an atomic on memory on another machine that is registered with its RDMA device; `None` for
/// other tasks and other memory.
pub(super) fn remote_change(work: &Work, peer_permissions: u32) -> Result<Option<RemoteChange>> {
    let (opcode, operands) = match work.operation {
        Operation::CompareSwap => (
            verbs::Opcode::CompareSwap,
            [work.compare.get(), work.operand.get()],
        ),
        Operation::FetchAdd => (verbs::Opcode::FetchAdd, [work.operand.get(), 0]),
        _ => return Ok(None),
    };
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    let result = work.result.get().ok_or(Error::InvalidValue)?;
    expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_ATOMIC)?;
    buffers::remote_change(&destination, &result, opcode, operands)
}

/// Handles the reply: sets the bufs' data length to `len` bytes, or stores the old value of a word.
pub(super) fn finish_access(work: &Work, len: usize, value: u64) -> Result<()> {
    if matches!(work.operation, Operation::CompareSwap | Operation::FetchAdd) {
        let result = work.result.get().ok_or(Error::Unexpected)?;
        return buffers::put_result(&result, buffers::result_room(&result)?, value);
    }
    let destination = work.destination.get().ok_or(Error::Unexpected)?;
    work.set_progress(len);
    match work.operation {
        Operation::Read => destination.append(len),
        _ => destination.set_data_len(destination.data_len() + len),
    }
}

/// Checks the length of a message, read or write against the device's limit.
fn check_len(len: usize) -> Result<usize> {
    if len > limits::MESSAGE_SIZE as usize {
        return Err(Error::TooBig);
    }
    Ok(len)
}

fn expect(granted: u32, wanted: u32) -> Result<()> {
    if granted & wanted == wanted {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

/// A message being received, with its receive task.
pub(super) struct Assembly {
    pub(super) task: NonNull<Task>,
    received: Received,
    /// Bytes of data received, including discarded ones.
    arrived: u64,
    /// First error. The rest of the message is discarded.
    result: Result<()>,
}

/// Immediate data as transmitted: for a message, the value as set by the sender (4 bytes); for a remote write, followed
/// by the number of bytes written (u32, in the machines' common byte order).
const SEND_IMMEDIATE: usize = 4;
pub(super) const WRITE_IMMEDIATE: usize = 8;

/// Maximum number of fragments per call of [`receive`]. A peer can send as fast as fragments are received; the limit
/// ensures that other contexts of the engine are polled.
const MOST_FRAGMENTS: usize = 64;

/// Handles received fragments until a message is complete. An error ends the connection: a receive that the message has
/// already consumed is in `parts.assembly`, and fails with the connection.
pub(super) fn receive(
    connection: &Connection,
    parts: &mut Parts,
    receives: &mut VecDeque<NonNull<Task>>,
) -> Result<Option<Done>> {
    let Some(inbox) = &mut parts.inbox else {
        return Ok(None);
    };
    for _ in 0..MOST_FRAGMENTS {
        // A message waits in the transport until a receive is posted.
        if parts.assembly.is_none() && receives.is_empty() {
            return Ok(None);
        }
        let Some(fragment) = inbox.peek()? else {
            return Ok(None);
        };
        if parts.assembly.is_none()
            && !fragment.more
            && fragment.immediate_len.is_none()
            && let Some(task) = receives.pop_front()
        {
            let result = take_whole(task, connection, fragment.len, &**inbox);
            inbox.advance();
            return Ok(Some((task, result)));
        }
        let assembly = match &mut parts.assembly {
            Some(assembly) => {
                if fragment.immediate_len.is_some() {
                    return Err(broken(format_args!(
                        "immediate data in the middle of a message"
                    )));
                }
                assembly
            }
            None => {
                // Checked before a receive is dequeued: a receive that is not in any list would never complete.
                let received = begin(connection, &fragment, &**inbox)?;
                let task = receives.pop_front().ok_or(Error::Unexpected)?;
                parts.assembly.insert(Assembly {
                    task,
                    received,
                    arrived: 0,
                    result: Ok(()),
                })
            }
        };
        assembly.count(&fragment)?;
        if assembly.result.is_ok() {
            assembly.result = append(assembly, &fragment, &**inbox);
        }
        inbox.advance();
        if !fragment.more
            && let Some(assembly) = parts.assembly.take()
        {
            return Ok(Some(finish(assembly)));
        }
    }
    Ok(None)
}

/// Creates the error for a violation of the protocol by the peer.
fn broken(what: std::fmt::Arguments<'_>) -> Error {
    Error::ConnectionAborted.because(format_args!("an RDMA peer broke the protocol: {what}"))
}

impl Assembly {
    /// Limits a message: each fragment but the last has data, and the total is at most the maximum message size.
    fn count(&mut self, fragment: &Fragment) -> Result<()> {
        if fragment.more && fragment.len == 0 {
            return Err(broken(format_args!(
                "expected data in a fragment that others follow, got none"
            )));
        }
        self.arrived = self.arrived.saturating_add(fragment.len as u64);
        if self.arrived > u64::from(limits::MESSAGE_SIZE) {
            return Err(broken(format_args!(
                "expected a message of at most {} bytes, got more",
                limits::MESSAGE_SIZE
            )));
        }
        Ok(())
    }
}

/// Handles a message with one fragment and no immediate data, the most frequent kind.
#[inline]
fn take_whole(
    task: NonNull<Task>,
    connection: &Connection,
    len: usize,
    inbox: &impl Inbox,
) -> Result<()> {
    // SAFETY: a posted receive is in flight, and tasks in flight are not freed.
    let task = unsafe { task.as_ref() };
    let receive = &task.downcast::<Receive>().ok_or(Error::Unexpected)?.body;
    let result = match receive.destination.get() {
        _ if len == 0 => Ok(()),
        // A task without a buf has no room for data.
        None => Err(Error::TooBig),
        Some(destination) => buffers::fill_tail(&destination, len, |from, to, len| {
            // SAFETY: `to` is valid for writing `len` bytes.
            unsafe { inbox.read(from, to, len) };
        }),
    };
    receive.received.set(Received {
        opcode: Opcode::Send,
        len: if result.is_ok() { len as u32 } else { 0 },
        immediate: 0,
        connection: std::ptr::from_ref(connection),
    });
    result
}

/// Handles the first fragment of a message.
fn begin(connection: &Connection, fragment: &Fragment, inbox: &impl Inbox) -> Result<Received> {
    let (opcode, immediate, len) = match fragment.immediate_len {
        None => (Opcode::Send, 0, 0),
        Some(len) => read_immediate(len, inbox)?,
    };
    Ok(Received {
        opcode,
        len,
        immediate,
        connection: std::ptr::from_ref(connection),
    })
}

/// Parses immediate data of `len` bytes: kind of the message, value, and number of bytes written.
fn read_immediate(len: usize, inbox: &impl Inbox) -> Result<(Opcode, u32, u32)> {
    let mut bytes = [0; WRITE_IMMEDIATE];
    inbox.read_immediate(&mut bytes);
    let [a, b, c, d, e, f, g, h] = bytes;
    let value = u32::from_ne_bytes([a, b, c, d]);
    let written = u32::from_ne_bytes([e, f, g, h]);
    match len {
        SEND_IMMEDIATE => Ok((Opcode::SendWithImmediate, value, 0)),
        WRITE_IMMEDIATE => Ok((Opcode::WriteWithImmediate, value, written)),
        other => Err(broken(format_args!(
            "expected {SEND_IMMEDIATE} or {WRITE_IMMEDIATE} bytes of immediate data, got {other}"
        ))),
    }
}

#[inline]
fn append(assembly: &mut Assembly, fragment: &Fragment, inbox: &impl Inbox) -> Result<()> {
    if fragment.len == 0 {
        return Ok(());
    }
    // SAFETY: a posted receive is in flight, and tasks in flight are not freed.
    let task = unsafe { assembly.task.as_ref() };
    let receive = &task.downcast::<Receive>().ok_or(Error::Unexpected)?.body;
    // A task without a buf has no room for data.
    let destination = receive.destination.get().ok_or(Error::TooBig)?;
    buffers::fill_tail(&destination, fragment.len, |from, to, len| {
        // SAFETY: `to` is valid for writing `len` bytes.
        unsafe { inbox.read(from, to, len) };
    })?;
    assembly.received.len = assembly.received.len.saturating_add(fragment.len as u32);
    Ok(())
}

fn finish(assembly: Assembly) -> Done {
    // SAFETY: as in `append`.
    if let Some(receive) = unsafe { assembly.task.as_ref() }.downcast::<Receive>() {
        receive.body.received.set(assembly.received);
    }
    (assembly.task, assembly.result)
}
