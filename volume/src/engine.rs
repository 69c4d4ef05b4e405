//! State machine of a queue's I/Os and their requests: no contexts, no memory, no clock.
//!
//! [`Engine::submit`] takes an I/O on any range of bytes. When its blocks are [locked](RangeLocks), it is split into
//! requests for whole blocks, which [`Engine::poll_request`] returns while there are free transactions. Whole blocks
//! are transferred directly to or from the I/O's buffer, in requests of at most [`Geometry::request_size`] bytes. A
//! first or last block that the I/O covers partially is transferred through an edge: a block of memory that belongs to
//! the I/O. A partial write reads the block into its edge, changes its bytes in the edge, and writes the block; the
//! lock excludes other I/Os in the meantime. When all requests are answered, the blocks are unlocked, and
//! [`Engine::poll_done`] returns the I/O.
//!
//! When a session is lost, its unanswered requests are lost. [`Engine::restart`] returns them again, for the next
//! session: each request is idempotent, because the I/O still holds the locks of its blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use doca::ErrorCode;
use thiserror::Error;
use wire::io_message::IoMessageType;

use crate::endpoint::Request;
use crate::range_lock::{Access, RangeLock, RangeLocks};
use crate::unflushed::{Tracker, UnflushedWrites};

/// An operation on a range of bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads into the I/O's buffer.
    Read,
    /// Writes the I/O's buffer.
    Write {
        /// Completes when the bytes are durable. Needs [`Capabilities::fua`](crate::Capabilities::fua).
        fua: bool,
    },
    /// Completes when all writes are durable that had completed, on any queue of the volume, before the flush was
    /// submitted. Offset and length are ignored. Requires [`Capabilities::flush`](crate::Capabilities::flush).
    Flush,
    /// Writes zeros; needs no buffer.
    WriteZeroes {
        /// As for [`Operation::Write`].
        fua: bool,
    },
    /// Declares the bytes unused. They read as zeros afterwards; needs no buffer.
    Discard,
}

impl Operation {
    /// Returns `true` for an operation that changes the volume's bytes.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::WriteZeroes { .. } | Self::Discard
        )
    }

    /// Returns `true` for an operation that is complete when its bytes are durable.
    const fn is_durable(self) -> bool {
        matches!(
            self,
            Self::Flush | Self::Write { fua: true } | Self::WriteZeroes { fua: true }
        )
    }

    /// Returns `true` for an operation that transfers data between the volume and the I/O's buffer.
    #[must_use]
    pub const fn has_buffer(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }
}

/// Error of an I/O.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoError {
    /// The range exceeds the volume.
    #[error("{len} bytes at offset {offset} are not inside a volume of {size} bytes")]
    OutOfRange {
        /// Offset of the I/O in bytes.
        offset: u64,
        /// Length of the I/O in bytes.
        len: u32,
        /// Size of the volume in bytes.
        size: u64,
    },
    /// A read or a write without a buffer of at least its length, or with a buffer of another queue.
    #[error("expected a buffer of this queue with at least {expected} bytes, got {actual}")]
    Buffer {
        /// Length of the I/O in bytes.
        expected: u32,
        /// Length of the buffer in bytes; 0 without one, or with one of another queue.
        actual: u32,
    },
    /// A write to a volume that was opened read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The storage cannot make writes durable: it has not announced flushes.
    #[error("the storage does not support flush: writes may not survive a power failure")]
    Unsupported,
    /// The storage completed a request with an error.
    #[error("the storage failed the I/O: {} ({})", ErrorCode(*.code).name(), .code)]
    Failed {
        /// `doca_error_t` of the result.
        code: u32,
    },
    /// There has been no session with the service for longer than
    /// [`Config::reconnect_timeout`](crate::Config::reconnect_timeout). Writes may have been performed, completely or
    /// partially.
    #[error("the storage service is gone, and did not return within the reconnect timeout")]
    Disconnected,
    /// The storage of the new session is smaller, has another block size, or lacks flush or an identity, unlike the
    /// first one.
    #[error("the storage service has returned with another storage")]
    Changed,
    /// The storage of the new session is not the storage with which the volume was opened.
    #[error(
        "the storage service has returned with another storage: expected {expected:016x}..., got {found:016x}..."
    )]
    Replaced {
        /// First half of the identity of the storage that the volume was opened with.
        expected: u64,
        /// First half of the identity of the other storage.
        found: u64,
    },
    /// The flush has made the storage's current data durable, but the storage has lost acknowledged writes that were
    /// not covered by a flush: its machine was restarted, or its disk failed. Each queue returns this error once.
    #[error(
        "the storage has lost writes that it had acknowledged and that were not flushed: its machine was restarted, or its disk failed"
    )]
    LostWrites,
    /// The volume was closed.
    #[error("the volume is closed")]
    Closed,
}

/// Sizes of a volume, and offsets in its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Size of the volume in bytes, a multiple of the block size.
    pub(crate) size: u64,
    /// Size of a block in bytes.
    pub(crate) block_size: u32,
    /// Maximum size of a request in bytes, a multiple of the block size.
    pub(crate) request_size: u32,
    /// `true` if the storage has announced flushes and durable writes.
    pub(crate) flush: bool,
    /// `true` if writes are refused.
    pub(crate) read_only: bool,
    /// Offset of the edges: two blocks per I/O.
    pub(crate) edges: u64,
    /// Offset of `request_size` zeros.
    pub(crate) zeros: u64,
}

/// An I/O whose buffer is a range of the volume's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submission {
    pub(crate) tag: u64,
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Offset of the buffer, and its length in bytes; 0 without a buffer.
    pub(crate) memory: u64,
    pub(crate) memory_len: u32,
}

/// A completed I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// The slot that [`Engine::submit`] returned. It is free again.
    pub(crate) slot: usize,
    pub(crate) tag: u64,
    pub(crate) result: Result<(), IoError>,
}

/// Access to the volume's memory.
pub(crate) trait Memory {
    /// Copies bytes between ranges that do not overlap.
    fn copy(&self, from: u64, to: u64, len: usize) -> Result<(), ErrorCode>;
    /// Sets bytes to zero.
    fn clear(&self, at: u64, len: usize) -> Result<(), ErrorCode>;
}

/// State of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No request: the I/O has no such edge, or the edge's requests have completed.
    #[default]
    Done,
    /// The block must be read.
    Read,
    Reading,
    /// The block must be written.
    Write,
    Writing,
}

/// A block that an I/O covers partially.
#[derive(Clone, Copy, Debug, Default)]
struct Edge {
    phase: Phase,
    /// Offset of the block in the storage in bytes.
    block: u64,
    /// Range of the I/O's bytes in the block.
    begin: u32,
    end: u32,
    /// Offset of the first of these bytes in the I/O.
    position: u32,
}

/// Part of an I/O that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    Edge(u8),
}

/// An I/O in progress.
#[derive(Debug)]
struct Slot {
    tag: u64,
    operation: Operation,
    offset: u64,
    memory: u64,
    edges: [Edge; 2],
    /// Whole blocks, and the first of them that has not been requested yet.
    begin: u64,
    next: u64,
    end: u64,
    /// Size of each request in bytes; the last request may be smaller.
    piece: u32,
    /// `true` if a flush has not been requested yet.
    flush: bool,
    /// Number of the flush that was requested.
    flush_number: u32,
    /// Number of outstanding requests.
    unanswered: u32,
    lock: RangeLock,
    is_active: bool,
    /// `true` if the slot is in the list of slots with requests to return.
    is_ready: bool,
    error: Option<IoError>,
}

/// A transaction of the session.
#[derive(Clone, Copy, Debug)]
struct Transaction {
    slot: u32,
    part: Part,
    request: Request,
    is_active: bool,
}

/// The I/Os of one queue. See the [module](self).
#[derive(Debug)]
pub(crate) struct Engine {
    geometry: Geometry,
    locks: Arc<RangeLocks>,
    unflushed: Tracker,
    slots: Box<[Slot]>,
    free_slots: Vec<u32>,
    transactions: Box<[Transaction]>,
    free_transactions: Vec<u32>,
    /// I/Os that wait for locks, oldest first.
    waiting: VecDeque<u32>,
    /// I/Os with requests to return.
    ready: VecDeque<u32>,
    /// Transactions whose requests were lost with a session.
    again: VecDeque<u32>,
    done: VecDeque<u32>,
    /// `true` if locks were released that sleeping queues may wait for.
    is_awaited: bool,
}

impl Engine {
    /// Creates an engine for `depth` I/Os and the same number of transactions. All memory is allocated here.
    pub(crate) fn new(
        geometry: Geometry,
        locks: Arc<RangeLocks>,
        unflushed: Arc<UnflushedWrites>,
        depth: u32,
    ) -> Self {
        let idle = |_| Slot {
            tag: 0,
            operation: Operation::Flush,
            offset: 0,
            memory: 0,
            edges: [Edge::default(); 2],
            begin: 0,
            next: 0,
            end: 0,
            piece: 0,
            flush: false,
            flush_number: 0,
            unanswered: 0,
            lock: locks.range(0..0, Access::Shared),
            is_active: false,
            is_ready: false,
            error: None,
        };
        let unused = Transaction {
            slot: 0,
            part: Part::Whole,
            request: Request {
                message_type: IoMessageType::Read,
                storage_offset: 0,
                memory_offset: 0,
                size: 0,
            },
            is_active: false,
        };
        let list = || VecDeque::with_capacity(depth as usize);
        Self {
            geometry,
            slots: (0..depth).map(idle).collect(),
            free_slots: (0..depth).rev().collect(),
            transactions: vec![unused; depth as usize].into(),
            free_transactions: (0..depth).rev().collect(),
            waiting: list(),
            ready: list(),
            again: list(),
            done: list(),
            is_awaited: false,
            locks,
            unflushed: Tracker::new(unflushed),
        }
    }

    /// Writes of all queues that are acknowledged and not flushed.
    pub(crate) fn unflushed(&self) -> &Arc<UnflushedWrites> {
        self.unflushed.shared()
    }

    /// Accepts an I/O, and returns its slot; `None` if all slots are in use.
    #[inline]
    pub(crate) fn submit(&mut self, io: &Submission) -> Option<usize> {
        let number = self.free_slots.pop()?;
        let geometry = self.geometry;
        let slot = &mut self.slots[number as usize];
        slot.tag = io.tag;
        slot.operation = io.operation;
        slot.offset = io.offset;
        slot.memory = io.memory;
        slot.edges = [Edge::default(); 2];
        (slot.begin, slot.next, slot.end) = (0, 0, 0);
        slot.flush = false;
        slot.unanswered = 0;
        slot.lock = self.locks.range(0..0, Access::Shared);
        slot.is_active = true;
        slot.error = geometry.check(io).err();
        if slot.error.is_none() {
            if io.operation == Operation::Flush {
                slot.flush = true;
            } else if io.len != 0 {
                slot.divide(&geometry, io, &self.locks);
            }
        }
        if self.locks.advance(&mut slot.lock) {
            self.locked(number);
        } else {
            self.waiting.push_back(number);
        }
        Some(number as usize)
    }

    /// Handles an I/O that holds all of its locks.
    #[inline]
    fn locked(&mut self, number: u32) {
        if self.slots[number as usize].has_requests() {
            self.make_ready(number);
        } else {
            self.finish_if_done(number);
        }
    }

    #[inline]
    fn make_ready(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if !slot.is_ready {
            slot.is_ready = true;
            self.ready.push_back(number);
        }
    }

    /// Returns `true` if I/Os wait for locks.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Retries the locks of waiting I/Os; returns `true` if an I/O has acquired all its locks.
    pub(crate) fn retry_locks(&mut self) -> bool {
        let before = self.waiting.len();
        for _ in 0..before {
            let Some(number) = self.waiting.pop_front() else {
                break;
            };
            if self.locks.advance(&mut self.slots[number as usize].lock) {
                self.locked(number);
            } else {
                self.waiting.push_back(number);
            }
        }
        self.waiting.len() < before
    }

    /// Returns the next request to send, and the number of its transaction.
    #[inline]
    pub(crate) fn poll_request(&mut self) -> Option<(u32, Request)> {
        if let Some(index) = self.again.pop_front() {
            let Transaction { slot, request, .. } = self.transactions[index as usize];
            if request.message_type == IoMessageType::Flush {
                self.slots[slot as usize].flush_number = self.unflushed.flush_sent();
            }
            return Some((index, request));
        }
        let transaction = *self.free_transactions.last()?;
        loop {
            let number = self.ready.pop_front()?;
            let slot = &mut self.slots[number as usize];
            slot.is_ready = false;
            let Some((part, request)) = slot.next_request(&self.geometry, number) else {
                // The I/O has failed in the meantime.
                continue;
            };
            if request.message_type == IoMessageType::Flush {
                slot.flush_number = self.unflushed.flush_sent();
            }
            slot.unanswered += 1;
            if slot.has_requests() {
                self.make_ready(number);
            }
            self.free_transactions.pop();
            self.transactions[transaction as usize] = Transaction {
                slot: number,
                part,
                request,
                is_active: true,
            };
            return Some((transaction, request));
        }
    }

    /// Handles the completion of transaction `index`; `result` is the `doca_error_t` of its answer.
    #[inline]
    pub(crate) fn completed(&mut self, index: u32, result: u32, memory: &impl Memory) {
        let transaction = self.transactions.get_mut(index as usize);
        let Some(transaction) = transaction.filter(|transaction| transaction.is_active) else {
            return;
        };
        transaction.is_active = false;
        self.free_transactions.push(index);
        let (number, part) = (transaction.slot, transaction.part);
        let message_type = transaction.request.message_type;
        let slot = &mut self.slots[number as usize];
        slot.unanswered -= 1;
        if result != ErrorCode::SUCCESS.0 {
            slot.fail(IoError::Failed { code: result });
        } else if message_type == IoMessageType::Flush {
            if self.unflushed.flush_completed(slot.flush_number) {
                slot.fail(IoError::LostWrites);
            }
        } else if let Part::Edge(edge) = part {
            let place = self.geometry.edge(number, edge);
            slot.edge_done(edge, place, memory);
            if slot.has_requests() {
                self.make_ready(number);
            }
        }
        self.finish_if_done(number);
    }

    #[inline]
    fn finish_if_done(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if slot.unanswered == 0 && !slot.has_requests() && slot.is_active {
            slot.is_active = false;
            if slot.error.is_none() && slot.operation.writes() && !slot.operation.is_durable() {
                self.unflushed.written();
            }
            self.is_awaited |= self.locks.release(&mut slot.lock);
            if std::mem::take(&mut slot.is_ready) {
                // The I/O failed before its last request. The slot's next I/O may have to wait for locks.
                self.ready.retain(|&ready| ready != number);
            }
            self.done.push_back(number);
        }
    }

    /// Returns a completed I/O. Its slot is free afterwards.
    #[inline]
    pub(crate) fn poll_done(&mut self) -> Option<Done> {
        let number = self.done.pop_front()?;
        let slot = &mut self.slots[number as usize];
        self.free_slots.push(number);
        Some(Done {
            slot: number as usize,
            tag: slot.tag,
            result: slot.error.take().map_or(Ok(()), Err),
        })
    }

    /// Returns `true`, once, if locks were released that sleeping queues may wait for.
    #[inline]
    pub(crate) fn take_is_awaited(&mut self) -> bool {
        std::mem::take(&mut self.is_awaited)
    }

    /// Moves the buffers of the I/Os in progress: `offset_of` returns the new offset of the buffer of the I/O in a slot, or
    /// `None` if it has none. No session may be using the former offsets.
    pub(crate) fn move_buffers(&mut self, mut offset_of: impl FnMut(usize) -> Option<u64>) {
        let mut distances = vec![0; self.slots.len()];
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.is_active
                && slot.operation.has_buffer()
                && let Some(offset) = offset_of(number)
            {
                distances[number] = offset.wrapping_sub(slot.memory);
                slot.memory = offset;
            }
        }
        for transaction in &mut self.transactions {
            if transaction.is_active && transaction.part == Part::Whole {
                let distance = distances[transaction.slot as usize];
                let offset = &mut transaction.request.memory_offset;
                *offset = offset.wrapping_add(distance);
            }
        }
    }

    /// Offsets of the edges of I/Os in progress.
    pub(crate) fn edges_in_use(&self) -> impl Iterator<Item = u64> {
        let geometry = self.geometry;
        let active = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_active);
        active.flat_map(move |(number, slot)| {
            let edges = (0..).zip(&slot.edges).filter(|(_, edge)| edge.end != 0);
            edges.map(move |(index, _)| geometry.edge(number, index))
        })
    }

    /// Size of a block in bytes.
    pub(crate) fn block_size(&self) -> usize {
        self.geometry.block_size as usize
    }

    /// Returns `true` if requests are outstanding, or must be sent again.
    #[inline]
    pub(crate) fn has_requests(&self) -> bool {
        self.free_transactions.len() < self.transactions.len()
    }

    /// Returns `true` if there are completed I/Os that have not been returned.
    #[inline]
    pub(crate) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Releases the locks of all I/Os, which will not complete.
    pub(crate) fn unlock_all(&mut self) {
        for slot in &mut self.slots {
            self.locks.release(&mut slot.lock);
        }
    }

    /// Returns `true` if all I/Os have been returned.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.free_slots.len() == self.slots.len()
    }

    /// Begins a session with this incarnation of the storage. All outstanding requests will be returned again: those
    /// already sent will not be answered, and the service has lost access to their memory.
    pub(crate) fn restart(&mut self, incarnation: u32) {
        if self.unflushed.attach(incarnation) {
            self.restart_writes();
        }
        self.again.clear();
        let active = self.transactions.iter().enumerate();
        self.again.extend(
            active
                .filter(|(_, transaction)| transaction.is_active)
                .map(|(index, _)| index as u32),
        );
    }

    /// Restarts writes in progress from their beginning: the storage has lost acknowledged parts of them, unless they
    /// are durable.
    fn restart_writes(&mut self) {
        for index in 0..self.transactions.len() {
            let Transaction {
                slot, is_active, ..
            } = self.transactions[index];
            let slot = &mut self.slots[slot as usize];
            if is_active && slot.is_volatile_write() {
                slot.unanswered -= 1;
                self.transactions[index].is_active = false;
                self.free_transactions.push(index as u32);
            }
        }
        for number in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[number as usize];
            if slot.is_volatile_write() && slot.is_started() {
                slot.start_again();
                self.make_ready(number);
            }
        }
    }

    /// Fails all I/Os. Outstanding requests will not be answered, and their memory is no longer exported.
    pub(crate) fn fail_all(&mut self, error: IoError) {
        self.again.clear();
        self.ready.clear();
        self.waiting.clear();
        self.free_transactions.clear();
        for (index, transaction) in self.transactions.iter_mut().enumerate() {
            transaction.is_active = false;
            self.free_transactions.push(index as u32);
        }
        for number in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[number as usize];
            slot.is_ready = false;
            if slot.is_active {
                slot.unanswered = 0;
                slot.fail(error);
                self.finish_if_done(number);
            }
        }
    }
}

impl Geometry {
    /// Offset in memory of an edge of the I/O in a slot.
    #[inline]
    fn edge(&self, slot: u32, edge: u8) -> u64 {
        self.edges + (u64::from(slot) * 2 + u64::from(edge)) * u64::from(self.block_size)
    }

    /// Checks an I/O against the volume's size and capabilities.
    #[inline]
    fn check(&self, io: &Submission) -> Result<(), IoError> {
        let is_durable = io.operation.is_durable();
        if self.read_only && io.operation.writes() {
            return Err(IoError::ReadOnly);
        }
        if is_durable && !self.flush {
            return Err(IoError::Unsupported);
        }
        if io.operation == Operation::Flush {
            return Ok(());
        }
        let end = io.offset.checked_add(u64::from(io.len));
        if end.is_none_or(|end| end > self.size) {
            return Err(IoError::OutOfRange {
                offset: io.offset,
                len: io.len,
                size: self.size,
            });
        }
        if io.operation.has_buffer() && io.memory_len < io.len {
            return Err(IoError::Buffer {
                expected: io.len,
                actual: io.memory_len,
            });
        }
        Ok(())
    }
}

impl Slot {
    /// Splits the I/O, which has at least one byte, into edges and whole blocks, and determines its locks.
    #[inline]
    fn divide(&mut self, geometry: &Geometry, io: &Submission, locks: &RangeLocks) {
        let size = u64::from(geometry.block_size);
        let (begin, end) = (io.offset, io.offset + u64::from(io.len));
        let access = if io.operation.writes() {
            Access::Exclusive
        } else {
            Access::Shared
        };
        if begin.is_multiple_of(size) && end.is_multiple_of(size) {
            (self.next, self.end) = (begin, end);
        } else {
            (self.next, self.end) = (begin.next_multiple_of(size), end - end % size);
            let edge = |from: u64, to: u64| Edge {
                phase: Phase::Read,
                block: from - from % size,
                begin: (from % size) as u32,
                end: ((to - 1) % size + 1) as u32,
                position: (from - begin) as u32,
            };
            if self.next > self.end {
                // The I/O is within one block.
                self.edges[0] = edge(begin, end);
                self.next = self.end;
            } else {
                if begin < self.next {
                    self.edges[0] = edge(begin, self.next);
                }
                if self.end < end {
                    self.edges[1] = edge(self.end, end);
                }
            }
        }
        self.begin = self.next;
        self.piece = {
            // Requests of approximately equal size.
            let blocks = (self.end - self.next) / size;
            let most = u64::from(geometry.request_size) / size;
            let requests = blocks.div_ceil(most).max(1);
            (blocks.div_ceil(requests) * size) as u32
        };
        self.lock = locks.range(begin / size..end.div_ceil(size), access);
    }

    #[inline]
    fn has_requests(&self) -> bool {
        self.error.is_none()
            && (self.next < self.end
                || self.flush
                || self
                    .edges
                    .iter()
                    .any(|edge| matches!(edge.phase, Phase::Read | Phase::Write)))
    }

    /// Returns `true` for a write in progress that need not be durable on completion.
    fn is_volatile_write(&self) -> bool {
        self.is_active
            && self.error.is_none()
            && self.operation.writes()
            && !self.operation.is_durable()
    }

    /// Returns `true` once a request was returned; the I/O then holds its locks.
    fn is_started(&self) -> bool {
        let has_advanced = |edge: &Edge| edge.end != 0 && edge.phase != Phase::Read;
        self.next != self.begin || self.edges.iter().any(has_advanced)
    }

    /// Returns all requests again, except reads that are complete: the blocks are locked since.
    fn start_again(&mut self) {
        self.next = self.begin;
        for edge in self.edges.iter_mut().filter(|edge| edge.end != 0) {
            edge.phase = match edge.phase {
                Phase::Read | Phase::Reading => Phase::Read,
                Phase::Write | Phase::Writing | Phase::Done => Phase::Write,
            };
        }
    }

    /// Returns the next request of the I/O in slot `number`.
    #[inline]
    fn next_request(&mut self, geometry: &Geometry, number: u32) -> Option<(Part, Request)> {
        if self.error.is_some() {
            return None;
        }
        let write = match self.operation {
            Operation::Read => IoMessageType::Read,
            Operation::Write { fua: true } | Operation::WriteZeroes { fua: true } => {
                IoMessageType::WriteFua
            }
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard => {
                IoMessageType::Write
            }
            Operation::Flush => IoMessageType::Flush,
        };
        for (index, edge) in self.edges.iter_mut().enumerate() {
            let message_type = match edge.phase {
                Phase::Read => {
                    edge.phase = Phase::Reading;
                    IoMessageType::Read
                }
                Phase::Write => {
                    edge.phase = Phase::Writing;
                    write
                }
                Phase::Done | Phase::Reading | Phase::Writing => continue,
            };
            let index = index as u8;
            let request = Request {
                message_type,
                storage_offset: edge.block,
                memory_offset: geometry.edge(number, index),
                size: geometry.block_size,
            };
            return Some((Part::Edge(index), request));
        }
        if self.next < self.end {
            let size = u64::from(self.piece).min(self.end - self.next);
            let request = Request {
                message_type: write,
                storage_offset: self.next,
                memory_offset: if self.operation.has_buffer() {
                    self.memory + (self.next - self.offset)
                } else {
                    geometry.zeros
                },
                size: size as u32,
            };
            self.next += size;
            return Some((Part::Whole, request));
        }
        if std::mem::take(&mut self.flush) {
            let request = Request {
                message_type: write,
                storage_offset: 0,
                memory_offset: 0,
                size: 0,
            };
            return Some((Part::Whole, request));
        }
        None
    }

    /// Handles a successful request for an edge, whose block is at offset `place` in memory.
    fn edge_done(&mut self, index: u8, place: u64, memory: &impl Memory) {
        let edge = &mut self.edges[usize::from(index)];
        let len = (edge.end - edge.begin) as usize;
        let in_block = place + u64::from(edge.begin);
        let in_buffer = self.memory + u64::from(edge.position);
        let copied = match (edge.phase, self.operation) {
            (Phase::Reading, Operation::Read) => {
                edge.phase = Phase::Done;
                memory.copy(in_block, in_buffer, len)
            }
            (Phase::Reading, Operation::Write { .. }) => {
                edge.phase = Phase::Write;
                memory.copy(in_buffer, in_block, len)
            }
            (Phase::Reading, _) => {
                edge.phase = Phase::Write;
                memory.clear(in_block, len)
            }
            _ => {
                edge.phase = Phase::Done;
                Ok(())
            }
        };
        if let Err(code) = copied {
            self.fail(IoError::Failed { code: code.0 });
        }
    }

    /// Stores the first error, and drops the requests that have not been returned yet.
    #[cold]
    fn fail(&mut self, error: IoError) {
        self.error.get_or_insert(error);
    }
}

#[cfg(test)]
mod tests {
    //! Engines that share a storage, with events in random order, compared with an array of bytes.

    use std::cell::RefCell;
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const DEPTH: u32 = 3;
    /// Size of a buffer in bytes; each I/O has one.
    const BUFFER: u64 = 200;

    /// Memory of a queue: buffers, edges, zeros.
    struct Bytes(RefCell<Vec<u8>>);

    impl Memory for Bytes {
        fn copy(&self, from: u64, to: u64, len: usize) -> Result<(), ErrorCode> {
            let from = from as usize;
            self.0
                .borrow_mut()
                .copy_within(from..from + len, to as usize);
            Ok(())
        }

        fn clear(&self, at: u64, len: usize) -> Result<(), ErrorCode> {
            self.0.borrow_mut()[at as usize..at as usize + len].fill(0);
            Ok(())
        }
    }

    /// An I/O to submit.
    #[derive(Clone, Debug)]
    struct Plan {
        queue: usize,
        operation: Operation,
        offset: u64,
        len: u32,
    }

    /// A request that the storage is processing.
    struct Work {
        queue: usize,
        number: u32,
        request: Request,
        /// Bytes transferred so far.
        done: u32,
    }

    struct Queue {
        engine: Engine,
        memory: Bytes,
        /// Offsets of free buffers.
        buffers: Vec<u64>,
        /// Buffers of I/Os, by slot.
        of_slot: HashMap<usize, u64>,
    }

    /// Expected result of an I/O, known from its first request on.
    #[derive(Debug)]
    enum Expected {
        Bytes(Vec<u8>),
        Nothing,
    }

    struct World {
        geometry: Geometry,
        locks: Arc<RangeLocks>,
        queues: Vec<Queue>,
        storage: Vec<u8>,

        /// Contents of the volume after all I/Os with a first request, applied sequentially.
        model: Vec<u8>,
        work: Vec<Work>,
        plans: Vec<Plan>,
        expected: HashMap<u64, Expected>,
        completed: usize,
        random: fastrand::Rng,
    }

    fn geometry(blocks: u64, block_size: u32, request_blocks: u32) -> Geometry {
        let edges = u64::from(DEPTH) * BUFFER;
        Geometry {
            size: blocks * u64::from(block_size),
            block_size,
            request_size: request_blocks * block_size,
            flush: true,
            read_only: false,
            edges,
            zeros: edges + u64::from(DEPTH * 2 * block_size),
        }
    }

    /// Byte that an I/O writes at this position; differs from that of every other I/O.
    fn byte(tag: u64, position: u64) -> u8 {
        (tag as u8).wrapping_mul(37).wrapping_add(position as u8) | 1
    }

    impl Queue {
        /// Moves the I/Os to new memory, in which their buffers are in another order.
        fn move_memory(&mut self, geometry: &Geometry, random: &mut fastrand::Rng) {
            let mut memory = vec![0x55; self.memory.0.borrow().len()];
            memory[geometry.zeros as usize..].fill(0);
            let former = self.memory.0.replace(memory);
            let mut memory = self.memory.0.borrow_mut();
            let mut copy = |from: u64, to: u64, len: u64| {
                let (from, to, len) = (from as usize, to as usize, len as usize);
                memory[to..to + len].copy_from_slice(&former[from..from + len]);
            };
            self.buffers = (0..u64::from(DEPTH)).map(|index| index * BUFFER).collect();
            random.shuffle(&mut self.buffers);
            for buffer in self.of_slot.values_mut() {
                let moved = self.buffers.pop().expect("as many as before");
                copy(std::mem::replace(buffer, moved), moved, BUFFER);
            }
            self.engine
                .move_buffers(|slot| self.of_slot.get(&slot).copied());
            for edge in self.engine.edges_in_use() {
                copy(edge, edge, geometry.block_size.into());
            }
        }
    }

    impl World {
        fn new(geometry: Geometry, queues: usize, plans: Vec<Plan>, seed: u64) -> Self {
            let locks = Arc::new(RangeLocks::new(1));
            let memory_len = (geometry.zeros + u64::from(geometry.request_size)) as usize;
            let queue = |_| Queue {
                engine: Engine::new(geometry, Arc::clone(&locks), Arc::default(), DEPTH),
                memory: Bytes(RefCell::new(vec![0; memory_len])),
                buffers: (0..u64::from(DEPTH)).map(|index| index * BUFFER).collect(),
                of_slot: HashMap::new(),
            };
            let storage = vec![0xee; geometry.size as usize];
            Self {
                queues: (0..queues).map(queue).collect(),
                model: storage.clone(),
                storage,
                geometry,
                locks,
                work: Vec::new(),
                plans,
                expected: HashMap::new(),
                completed: 0,
                random: fastrand::Rng::with_seed(seed),
            }
        }

        /// Returns `false` if the queue is full.
        fn submit(&mut self, tag: usize) -> bool {
            let plan = &self.plans[tag];
            let queue = &mut self.queues[plan.queue];
            let Some(memory) = queue.buffers.pop() else {
                return false;
            };
            if plan.operation.has_buffer() {
                let mut bytes = queue.memory.0.borrow_mut();
                for position in 0..BUFFER {
                    bytes[(memory + position) as usize] = byte(tag as u64, position);
                }
            }
            let submission = Submission {
                tag: tag as u64,
                operation: plan.operation,
                offset: plan.offset,
                len: plan.len,
                memory,
                memory_len: BUFFER as u32,
            };
            let Some(slot) = queue.engine.submit(&submission) else {
                queue.buffers.push(memory);
                return false;
            };
            queue.of_slot.insert(slot, memory);
            true
        }

        /// Submits I/O number `next`, if it exists and its queue is not full. Returns the number of the next I/O.
        fn submit_next(&mut self, next: usize) -> usize {
            if next == self.plans.len() || !self.submit(next) {
                return next;
            }
            self.reap();
            next + 1
        }

        /// Takes a request from a queue. The model applies an I/O at its first request.
        fn request(&mut self, index: usize) -> bool {
            let queue = &mut self.queues[index];
            let Some((number, request)) = queue.engine.poll_request() else {
                return false;
            };
            let slot = queue.engine.transactions[number as usize].slot as usize;
            let tag = queue.engine.slots[slot].tag;
            let plan = &self.plans[tag as usize];
            let range = plan.offset as usize..plan.offset as usize + plan.len as usize;
            if !self.expected.contains_key(&tag) {
                let expected = match plan.operation {
                    Operation::Read => Expected::Bytes(self.model[range].to_vec()),
                    Operation::Write { .. } => {
                        for (position, at) in range.enumerate() {
                            self.model[at] = byte(tag, position as u64);
                        }
                        Expected::Nothing
                    }
                    Operation::WriteZeroes { .. } | Operation::Discard => {
                        self.model[range].fill(0);
                        Expected::Nothing
                    }
                    Operation::Flush => Expected::Nothing,
                };
                self.expected.insert(tag, expected);
            }
            let is_durable = matches!(
                plan.operation,
                Operation::Write { fua: true } | Operation::WriteZeroes { fua: true }
            );
            match request.message_type {
                IoMessageType::Write => assert!(plan.operation.writes() && !is_durable),
                IoMessageType::WriteFua => assert!(is_durable),
                IoMessageType::Flush => assert_eq!(plan.operation, Operation::Flush),
                _ => assert!(plan.operation != Operation::Flush),
            }
            if request.message_type != IoMessageType::Flush {
                let block = u64::from(self.geometry.block_size);
                assert!(request.storage_offset.is_multiple_of(block), "{request:?}");
                assert!(u64::from(request.size).is_multiple_of(block), "{request:?}");
                assert!(request.size > 0 && request.size <= self.geometry.request_size);
            }
            self.work.push(Work {
                queue: index,
                number,
                request,
                done: 0,
            });
            true
        }

        /// Transfers a few bytes of a request, and answers it after the last ones.
        fn transfer(&mut self, index: usize) {
            let Work {
                queue,
                number,
                request,
                done,
            } = self.work[index];
            let queue = &mut self.queues[queue];
            let count = (request.size - done).min(self.random.u32(1..=request.size.max(1)));
            let at = (request.storage_offset + u64::from(done)) as usize;
            let local = (request.memory_offset + u64::from(done)) as usize;
            let count = count as usize;
            {
                let mut memory = queue.memory.0.borrow_mut();
                match request.message_type {
                    IoMessageType::Read => {
                        memory[local..local + count].copy_from_slice(&self.storage[at..at + count]);
                    }
                    IoMessageType::Write | IoMessageType::WriteFua => {
                        self.storage[at..at + count].copy_from_slice(&memory[local..local + count]);
                    }
                    _ => {}
                }
            }
            self.work[index].done += count as u32;
            if self.work[index].done < request.size {
                return;
            }
            self.work.swap_remove(index);
            queue.engine.completed(number, 0, &queue.memory);
            self.reap();
        }

        fn reap(&mut self) {
            for queue in &mut self.queues {
                while let Some(done) = queue.engine.poll_done() {
                    assert_eq!(done.result, Ok(()));
                    let memory = queue.of_slot.remove(&done.slot).expect("submitted");
                    let len = self.plans[done.tag as usize].len as usize;
                    if let Some(Expected::Bytes(bytes)) = self.expected.get(&done.tag) {
                        let memory = memory as usize;
                        let buffer = &queue.memory.0.borrow()[memory..memory + BUFFER as usize];
                        assert_eq!(&buffer[..len], bytes, "I/O {}", done.tag);
                        for (position, &rest) in buffer.iter().enumerate().skip(len) {
                            assert_eq!(rest, byte(done.tag, position as u64), "after the I/O");
                        }
                    }
                    queue.buffers.push(memory);
                    self.completed += 1;
                }
            }
        }

        /// Loses the session: requests in progress remain partially executed and are never answered.
        fn lose_session(&mut self) {
            self.work.clear();
            for queue in &mut self.queues {
                queue.move_memory(&self.geometry, &mut self.random);
                queue.engine.restart(0);
            }
        }

        fn run(mut self, losses: bool) {
            let (mut next, mut steps) = (0, 0);
            while self.completed < self.plans.len() {
                steps += 1;
                assert!(steps < 200_000, "{} of {next} I/Os", self.completed);
                let queue = self.random.usize(..self.queues.len());
                match self.random.u32(..if losses { 101 } else { 100 }) {
                    0..20 => next = self.submit_next(next),
                    20..50 => {
                        self.request(queue);
                    }
                    50..80 if !self.work.is_empty() => {
                        let index = self.random.usize(..self.work.len());
                        self.transfer(index);
                    }
                    80..100 => {
                        self.queues[queue].engine.retry_locks();
                        self.reap();
                    }
                    100 => self.lose_session(),
                    _ => {}
                }
            }
            assert_eq!(self.storage, self.model);
            assert!(self.locks.is_free());
            for queue in &mut self.queues {
                assert!(queue.engine.is_idle());
                assert!(!queue.engine.has_requests());
                let zeros = self.geometry.zeros as usize;
                assert!(
                    queue.memory.0.borrow()[zeros..]
                        .iter()
                        .all(|&byte| byte == 0)
                );
            }
        }
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            4 => Just(Operation::Read),
            4 => any::<bool>().prop_map(|fua| Operation::Write { fua }),
            1 => Just(Operation::Flush),
            1 => any::<bool>().prop_map(|fua| Operation::WriteZeroes { fua }),
            1 => Just(Operation::Discard),
        ]
    }

    fn plan(queues: usize, size: u64) -> impl Strategy<Value = Plan> {
        (0..queues, operation(), 0..=size, 0..=BUFFER as u32).prop_map(
            move |(queue, operation, offset, len)| Plan {
                queue,
                operation,
                offset,
                len: u64::from(len).min(size - offset) as u32,
            },
        )
    }

    fn scenario() -> impl Strategy<Value = (Geometry, usize, Vec<Plan>, u64)> {
        let sizes = (
            2..40_u64,
            prop_oneof![Just(1_u32), Just(3), Just(8), Just(16)],
            1..6_u32,
        );
        (sizes, 1..4_usize).prop_flat_map(|((blocks, block_size, request), queues)| {
            let geometry = geometry(blocks, block_size, request);
            let plans = proptest::collection::vec(plan(queues, geometry.size), 1..30);
            (Just(geometry), Just(queues), plans, any::<u64>())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn volume_is_an_array_of_bytes((geometry, queues, plans, seed) in scenario()) {
            World::new(geometry, queues, plans, seed).run(false);
        }

        #[test]
        fn volume_is_an_array_of_bytes_across_sessions((geometry, queues, plans, seed) in scenario()) {
            World::new(geometry, queues, plans, seed).run(true);
        }
    }

    fn single(read_only: bool, flush: bool) -> Engine {
        let geometry = Geometry {
            read_only,
            flush,
            ..geometry(8, 16, 4)
        };
        Engine::new(geometry, Arc::new(RangeLocks::new(1)), Arc::default(), 2)
    }

    fn submission(operation: Operation, offset: u64, len: u32) -> Submission {
        Submission {
            tag: 7,
            operation,
            offset,
            len,
            memory: 0,
            memory_len: 100,
        }
    }

    #[test]
    fn impossible_ios_complete_with_their_error() {
        let out = |offset, len| IoError::OutOfRange {
            offset,
            len,
            size: 128,
        };
        let write = Operation::Write { fua: false };
        let durable = Operation::Write { fua: true };
        let zeroes = Operation::WriteZeroes { fua: true };
        for (read_only, flush, operation, offset, len, expected) in [
            (false, true, Operation::Read, 128, 1, out(128, 1)),
            (false, true, write, u64::MAX, 1, out(u64::MAX, 1)),
            (
                false,
                true,
                Operation::Discard,
                0,
                u32::MAX,
                out(0, u32::MAX),
            ),
            (
                false,
                true,
                Operation::Read,
                0,
                101,
                IoError::Buffer {
                    expected: 101,
                    actual: 100,
                },
            ),
            (true, true, write, 0, 1, IoError::ReadOnly),
            (true, true, Operation::Discard, 0, 1, IoError::ReadOnly),
            (false, false, Operation::Flush, 0, 0, IoError::Unsupported),
            (false, false, durable, 0, 1, IoError::Unsupported),
            (false, false, zeroes, 0, 1, IoError::Unsupported),
        ] {
            let mut engine = single(read_only, flush);
            let slot = engine
                .submit(&submission(operation, offset, len))
                .expect("room");
            assert_eq!(engine.poll_request(), None);
            let done = Done {
                slot,
                tag: 7,
                result: Err(expected),
            };
            assert_eq!(engine.poll_done(), Some(done));
            assert!(engine.is_idle());
        }
    }

    #[test]
    fn submissions_beyond_the_depth_are_refused() {
        let mut engine = single(false, true);
        for _ in 0..2 {
            assert!(engine.submit(&submission(Operation::Read, 0, 1)).is_some());
        }
        assert!(engine.submit(&submission(Operation::Read, 0, 1)).is_none());
    }

    #[test]
    fn io_with_a_failed_request_fails_after_its_other_requests() {
        let mut engine = single(false, true);
        let memory = Bytes(RefCell::new(vec![0; 4096]));
        engine
            .submit(&submission(Operation::Write { fua: false }, 3, 80))
            .expect("room");
        let (first, _) = engine.poll_request().expect("the first edge");
        let (second, _) = engine.poll_request().expect("the last edge");
        let mut complete = |number: u32, result: u32| {
            engine.completed(number, result, &memory);
            (engine.poll_request(), engine.poll_done())
        };
        assert_eq!(complete(first, 17), (None, None));
        let (request, done) = complete(second, 0);
        assert_eq!(request, None, "it has failed");
        assert_eq!(
            done.expect("done").result,
            Err(IoError::Failed { code: 17 })
        );
        assert!(engine.locks.is_free());
    }

    #[test]
    fn completions_without_a_request_are_ignored() {
        let mut engine = single(false, true);
        let memory = Bytes(RefCell::new(vec![0; 4096]));
        engine
            .submit(&submission(Operation::Read, 0, 16))
            .expect("room");
        let (number, _) = engine.poll_request().expect("a request");
        for other in [number + 1, 2, u32::MAX] {
            engine.completed(other, 0, &memory);
        }
        assert_eq!(engine.poll_done(), None);
        engine.completed(number, 0, &memory);
        engine.completed(number, 0, &memory);
        assert_eq!(engine.poll_done().expect("done").result, Ok(()));
        assert!(engine.is_idle() && !engine.has_requests());
    }

    #[test]
    fn fail_all_fails_ios_in_every_state() {
        let mut engine = single(false, true);
        for offset in [0, 1] {
            let write = Operation::Write { fua: false };
            engine.submit(&submission(write, offset, 40)).expect("room");
        }
        engine.poll_request().expect("of the first");
        assert!(engine.has_waiting());
        engine.fail_all(IoError::Disconnected);
        for _ in 0..2 {
            let done = engine.poll_done().expect("done");
            assert_eq!(done.result, Err(IoError::Disconnected));
        }
        assert!(engine.is_idle() && !engine.has_requests());
        assert_eq!(engine.poll_request(), None);
        assert!(engine.locks.is_free());
        engine
            .submit(&submission(Operation::Read, 0, 16))
            .expect("room");
        assert!(engine.poll_request().is_some());
    }

    // Losses of writes that are not durable.

    /// Bytes of the volume for each I/O of a [`Losses`]: some whole blocks and two edges.
    const PLACE: u64 = 96;
    /// Block size of its storage.
    const BLOCK: u32 = 16;

    /// Queues over a storage that repeatedly loses its volatile contents. Each write has a separate range.
    struct Losses {
        unflushed: Arc<UnflushedWrites>,
        queues: Vec<LossyQueue>,
        /// Content that reads return.
        volatile: Vec<u8>,
        /// Content that survives a power failure.
        durable: Vec<u8>,
        incarnation: u32,
        operations: Vec<Operation>,
        is_written: Vec<bool>,
        /// `true` for a write that a flush has made durable, or whose loss was reported.
        is_settled: Vec<bool>,
        completed: usize,
        random: fastrand::Rng,
    }

    struct LossyQueue {
        engine: Engine,
        memory: Bytes,
        /// Incarnation of the queue's session.
        incarnation: u32,
        /// Requests, answered by the incarnation but not handled by the queue if `true`.
        work: Vec<(u32, Request, bool)>,
        /// By tag of a flush in flight: the writes that it has to cover.
        covers: HashMap<u64, Vec<usize>>,
        /// Number of losses that the queue has reported.
        told: u64,
    }

    impl Losses {
        fn new(queues: usize, operations: Vec<Operation>, seed: u64) -> Self {
            let unflushed = Arc::<UnflushedWrites>::default();
            let blocks = operations.len() as u64 * PLACE / u64::from(BLOCK);
            let geometry = geometry(blocks, BLOCK, 1);
            let locks = Arc::new(RangeLocks::new(1));
            let queue = |_| LossyQueue {
                engine: Engine::new(geometry, Arc::clone(&locks), Arc::clone(&unflushed), DEPTH),
                memory: Bytes(RefCell::new(vec![7; geometry.zeros as usize + 16])),
                incarnation: 0,
                work: Vec::new(),
                covers: HashMap::new(),
                told: 0,
            };
            Self {
                queues: (0..queues).map(queue).collect(),
                unflushed,
                volatile: vec![1; geometry.size as usize],
                durable: vec![1; geometry.size as usize],
                incarnation: 0,
                is_written: vec![false; operations.len()],
                is_settled: vec![false; operations.len()],
                operations,
                completed: 0,
                random: fastrand::Rng::with_seed(seed),
            }
        }

        /// Range of the write with this number, which begins and ends within blocks.
        fn range(number: usize) -> std::ops::Range<usize> {
            let place = number * PLACE as usize;
            place + 5..place + PLACE as usize - 3
        }

        /// Returns `true` if a write is on the medium.
        fn is_durable(&self, number: usize) -> bool {
            self.durable[Self::range(number)]
                .iter()
                .all(|&byte| byte == 7)
        }

        fn submit(&mut self, number: usize, queue: usize) -> bool {
            let operation = self.operations[number];
            let range = Self::range(number);
            let submission = Submission {
                tag: number as u64,
                operation,
                offset: range.start as u64,
                len: range.len() as u32,
                memory: 0,
                memory_len: BUFFER as u32,
            };
            let queue = &mut self.queues[queue];
            let is_accepted = queue.engine.submit(&submission).is_some();
            if is_accepted && operation == Operation::Flush {
                let written = (0..self.is_written.len()).filter(|&it| self.is_written[it]);
                queue.covers.insert(number as u64, written.collect());
            }
            is_accepted
        }

        /// The storage executes a request of a queue in its incarnation.
        fn execute(&mut self, queue: usize) {
            let queue = &mut self.queues[queue];
            if queue.incarnation != self.incarnation {
                return;
            }
            let waiting = queue.work.iter_mut().filter(|(.., is_done)| !is_done);
            let waiting: Vec<_> = waiting.collect();
            if waiting.is_empty() {
                return;
            }
            let index = self.random.usize(..waiting.len());
            let (_, request, is_done) = &mut *waiting.into_iter().nth(index).expect("inside");
            *is_done = true;
            let range = request.storage_offset as usize
                ..request.storage_offset as usize + request.size as usize;
            let local = request.memory_offset as usize;
            let mut memory = queue.memory.0.borrow_mut();
            let memory = &mut memory[local..local + range.len()];
            match request.message_type {
                IoMessageType::Read => memory.copy_from_slice(&self.volatile[range]),
                IoMessageType::Write => self.volatile[range].copy_from_slice(memory),
                IoMessageType::WriteFua => {
                    self.volatile[range.clone()].copy_from_slice(memory);
                    self.durable[range].copy_from_slice(memory);
                }
                _ => self.durable.copy_from_slice(&self.volatile),
            }
        }

        /// A queue handles a response, possibly one of an earlier incarnation that it received earlier.
        fn answer(&mut self, index: usize) {
            let queue = &mut self.queues[index];
            let answered = queue.work.iter().position(|(.., is_done)| *is_done);
            let Some(position) = answered else {
                return;
            };
            let (number, ..) = queue.work.swap_remove(position);
            let losses = self.unflushed.count();
            queue.engine.completed(number, 0, &queue.memory);
            while let Some(done) = self.queues[index].engine.poll_done() {
                self.completed += 1;
                self.done(index, done, losses);
            }
        }

        /// `before`: number of losses before the answer.
        fn done(&mut self, index: usize, done: Done, before: u64) {
            let tag = done.tag;
            let losses = self.unflushed.count();
            if self.operations[tag as usize] != Operation::Flush {
                assert_eq!(done.result, Ok(()));
                self.is_written[tag as usize] = true;
                if self.operations[tag as usize].is_durable() {
                    self.is_settled[tag as usize] = true;
                }
                let is_late = !self.is_stored(tag as usize);
                assert!(!is_late || before < losses, "write {tag} is lost already");
                return;
            }
            let covers = self.queues[index].covers.remove(&tag).expect("submitted");
            let told = &mut self.queues[index].told;
            match done.result {
                Ok(()) => {
                    assert_eq!(*told, losses, "each queue is told of each loss");
                    for number in covers {
                        self.is_settled[number] = true;
                        // If the write was lost, its loss was reported to the client of this queue.
                        assert!(
                            self.is_durable(number) || !self.is_stored(number),
                            "write {number} is covered by flush {tag}"
                        );
                    }
                }
                Err(IoError::LostWrites) => {
                    assert!(*told < losses, "flush {tag}");
                    *told = losses;
                }
                other => panic!("{other:?}"),
            }
        }

        /// Returns `true` if a completed write was not lost.
        fn is_stored(&self, number: usize) -> bool {
            self.volatile[Self::range(number)]
                .iter()
                .all(|&byte| byte == 7)
        }

        /// The storage loses some of its writes that are not durable.
        fn lose(&mut self) {
            let mut written = (0..self.is_written.len()).filter(|&it| self.is_written[it]);
            let is_volatile = written.any(|it| self.is_stored(it) && !self.is_durable(it));
            for (volatile, durable) in (self.volatile.chunks_mut(8)).zip(self.durable.chunks(8)) {
                if self.random.bool() {
                    volatile.copy_from_slice(durable);
                }
            }
            self.durable.copy_from_slice(&self.volatile);
            self.incarnation += 1;
            let before = self.unflushed.count();
            let is_reported = self.unflushed.begin(self.incarnation);
            assert_eq!(self.unflushed.count() - before, u64::from(is_reported));
            assert!(is_reported || !is_volatile, "completed writes were lost");
            let mut unsettled = (0..self.is_written.len())
                .filter(|&it| self.is_written[it] && !self.is_settled[it]);
            let is_flushing = self.queues.iter().any(|queue| !queue.covers.is_empty());
            assert!(
                !is_reported || is_flushing || unsettled.next().is_some(),
                "all completed writes are flushed"
            );
            self.is_settled.copy_from_slice(&self.is_written);
        }

        /// A queue begins the next session, with the current incarnation.
        fn attach(&mut self, index: usize) {
            let queue = &mut self.queues[index];
            queue.work.clear();
            queue.incarnation = self.incarnation;
            queue.engine.restart(self.incarnation);
        }

        fn run(mut self) {
            let (mut next, mut steps) = (0, 0);
            while self.completed < self.operations.len() {
                steps += 1;
                assert!(steps < 200_000, "{} of {next} I/Os", self.completed);
                let index = self.random.usize(..self.queues.len());
                match self.random.u32(..103) {
                    0..20 if next < self.operations.len() => {
                        next += usize::from(self.submit(next, index));
                    }
                    20..45 => {
                        let queue = &mut self.queues[index];
                        if let Some((number, request)) = queue.engine.poll_request() {
                            queue.work.push((number, request, false));
                        }
                    }
                    45..70 => self.execute(index),
                    70..95 => self.answer(index),
                    95..100 => self.attach(index),
                    100 => self.lose(),
                    _ => {}
                }
            }
        }
    }

    fn lossy_operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            3 => Just(Operation::Write { fua: false }),
            1 => Just(Operation::Write { fua: true }),
            3 => Just(Operation::Flush),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Acknowledged writes are lost only if the next flush of each queue fails.
        #[test]
        fn flush_succeeds_only_if_writes_before_it_are_durable(
            queues in 1..4_usize,
            operations in proptest::collection::vec(lossy_operation(), 1..30),
            seed in any::<u64>(),
        ) {
            Losses::new(queues, operations, seed).run();
        }
    }

    #[test]
    fn large_ios_are_divided_evenly() {
        let mut engine = single(false, true);
        engine
            .submit(&submission(Operation::WriteZeroes { fua: false }, 0, 80))
            .expect("room");
        let (_, first) = engine.poll_request().expect("a request");
        let (_, second) = engine.poll_request().expect("a request");
        assert_eq!((first.size, second.size), (48, 32));
    }
}
