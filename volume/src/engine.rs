//! Decides what a queue asks the service for: no contexts, no memory, no clock.
//!
//! [`Engine::submit`] takes an I/O on any range of bytes. When it has [locked](RangeLocks) its blocks, it is divided into requests on whole
//! blocks, which [`Engine::poll_request`] returns while there are transactions for them: whole blocks in requests of at most
//! [`Geometry::request_size`] bytes straight from or to the I/O's buffer, and a first or last block of which the I/O covers a part through
//! an edge, a block of memory that belongs to the I/O. A write of a part of a block reads the block into its edge, changes its bytes there, and
//! writes it; the lock keeps others away meanwhile. When all its requests are answered the I/O unlocks its blocks, and is returned by
//! [`Engine::poll_done`].
//!
//! A session that is lost takes the unanswered requests with it. [`Engine::restart`] has them all sent again to the next one: each is idempotent, as
//! nothing else changes its blocks meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;

use doca::ErrorCode;
use wire::io_message::IoMessageType;

use crate::io::{IoError, Operation};
use crate::range_lock::{Access, RangeLock, RangeLocks};
use crate::requests::Request;

/// Sizes of a volume, and places in its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Bytes of the volume: a multiple of the block size.
    pub(crate) size: u64,
    /// Bytes of a block.
    pub(crate) block_size: u32,
    /// Most bytes of a request: a multiple of the block size.
    pub(crate) request_size: u32,
    /// `true` if flushes and durable writes were announced.
    pub(crate) flush: bool,
    /// `true` if writes are refused.
    pub(crate) read_only: bool,
    /// Where the edges are: two blocks for each I/O.
    pub(crate) edges: u64,
    /// Where `request_size` zeros are.
    pub(crate) zeros: u64,
}

/// An I/O, with its buffer as a range of the volume's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submission {
    pub(crate) tag: u64,
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Where the buffer begins, and its length in bytes; 0 without a buffer.
    pub(crate) memory: u64,
    pub(crate) memory_len: u32,
}

/// A completed I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// The slot that [`Engine::submit`] returned; free again.
    pub(crate) slot: usize,
    pub(crate) tag: u64,
    pub(crate) result: Result<(), IoError>,
}

/// The volume's memory.
pub(crate) trait Memory {
    /// Copies bytes between ranges that do not overlap.
    fn copy(&self, from: u64, to: u64, len: usize) -> Result<(), ErrorCode>;
    /// Sets bytes to zero.
    fn clear(&self, at: u64, len: usize) -> Result<(), ErrorCode>;
}

/// The state of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing to do: there is no such edge, or its part is done.
    #[default]
    Done,
    /// The block has to be read.
    Read,
    Reading,
    /// The block has to be written.
    Write,
    Writing,
}

/// A block of which an I/O covers a part.
#[derive(Clone, Copy, Debug, Default)]
struct Edge {
    phase: Phase,
    /// Where the block is in the storage.
    block: u64,
    /// The I/O's bytes in the block.
    begin: u32,
    end: u32,
    /// Where the first of these bytes is in the I/O.
    position: u32,
}

/// Purpose of a request in its I/O.
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
    /// Whole blocks that were not asked for yet.
    next: u64,
    end: u64,
    /// Size of each request in bytes; the last one may be smaller.
    piece: u32,
    /// A flush that was not asked for yet.
    flush: bool,
    /// Requests that are not complete.
    unanswered: u32,
    lock: RangeLock,
    is_active: bool,
    /// `true` if the slot is in the list of those with requests to make.
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
    slots: Box<[Slot]>,
    free_slots: Vec<u32>,
    transactions: Box<[Transaction]>,
    free_transactions: Vec<u32>,
    /// I/Os that wait for locks, oldest first.
    waiting: VecDeque<u32>,
    /// I/Os that have requests to make.
    ready: VecDeque<u32>,
    /// Transactions whose requests were lost with a session.
    again: VecDeque<u32>,
    done: VecDeque<u32>,
    /// Other queues sleep and may get locks now.
    is_awaited: bool,
}

impl Engine {
    /// For `depth` I/Os and as many transactions. All memory is allocated here.
    pub(crate) fn new(geometry: Geometry, locks: Arc<RangeLocks>, depth: u32) -> Self {
        let idle = |_| Slot {
            tag: 0,
            operation: Operation::Flush,
            offset: 0,
            memory: 0,
            edges: [Edge::default(); 2],
            next: 0,
            end: 0,
            piece: 0,
            flush: false,
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
        }
    }

    /// Takes an I/O, and returns its slot; `None` when there are as many as there may be.
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
        (slot.next, slot.end) = (0, 0);
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

    /// An I/O has all of its locks.
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

    /// Tries to lock for the I/Os that wait; returns `true` when one of them does not wait any more.
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

    /// The next request to send, and the number of its transaction.
    #[inline]
    pub(crate) fn poll_request(&mut self) -> Option<(u32, Request)> {
        if let Some(index) = self.again.pop_front() {
            return Some((index, self.transactions[index as usize].request));
        }
        let transaction = *self.free_transactions.last()?;
        loop {
            let number = self.ready.pop_front()?;
            let slot = &mut self.slots[number as usize];
            slot.is_ready = false;
            let Some((part, request)) = slot.next_request(&self.geometry, number) else {
                // It has failed meanwhile.
                continue;
            };
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

    /// Takes note that the request of transaction `index` is complete; `result` is the `doca_error_t` of its answer.
    #[inline]
    pub(crate) fn completed(&mut self, index: u32, result: u32, memory: &impl Memory) {
        let transaction = self.transactions.get_mut(index as usize);
        let Some(transaction) = transaction.filter(|transaction| transaction.is_active) else {
            return;
        };
        transaction.is_active = false;
        self.free_transactions.push(index);
        let (number, part) = (transaction.slot, transaction.part);
        let slot = &mut self.slots[number as usize];
        slot.unanswered -= 1;
        if result != ErrorCode::SUCCESS.0 {
            slot.fail(IoError::Failed { code: result });
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
            self.is_awaited |= self.locks.release(&mut slot.lock);
            if std::mem::take(&mut slot.is_ready) {
                // It has failed before its last request. Its slot's next I/O may have to wait for locks.
                self.ready.retain(|&ready| ready != number);
            }
            self.done.push_back(number);
        }
    }

    /// A completed I/O. Its slot is free afterwards.
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

    /// Returns `true`, once, when I/Os have completed whose locks sleeping queues may wait for.
    #[inline]
    pub(crate) fn take_is_awaited(&mut self) -> bool {
        std::mem::take(&mut self.is_awaited)
    }

    /// Returns `true` if requests were returned, or wait to be returned again, that are not complete.
    #[inline]
    pub(crate) fn has_requests(&self) -> bool {
        self.free_transactions.len() < self.transactions.len()
    }

    /// Returns `true` if I/Os have completed and were not returned.
    #[inline]
    pub(crate) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Gives up the locks of all I/Os, which are never finished.
    pub(crate) fn unlock_all(&mut self) {
        for slot in &mut self.slots {
            self.locks.release(&mut slot.lock);
        }
    }

    /// Returns `true` if there are I/Os that have not been returned.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.free_slots.len() == self.slots.len()
    }

    /// All requests that are not complete are to be sent again: those that were sent will not be answered, and the service has lost access to
    /// their memory.
    pub(crate) fn restart(&mut self) {
        self.again.clear();
        let active = self.transactions.iter().enumerate();
        self.again.extend(
            active
                .filter(|(_, transaction)| transaction.is_active)
                .map(|(index, _)| index as u32),
        );
    }

    /// Fails all I/Os. Nobody answers, or has the memory of, the requests that were sent.
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
    /// Where an edge of the I/O in a slot is in memory.
    #[inline]
    fn edge(&self, slot: u32, edge: u8) -> u64 {
        self.edges + (u64::from(slot) * 2 + u64::from(edge)) * u64::from(self.block_size)
    }

    /// Checks an I/O against the volume.
    #[inline]
    fn check(&self, io: &Submission) -> Result<(), IoError> {
        let is_durable = matches!(
            io.operation,
            Operation::Flush
                | Operation::Write { fua: true }
                | Operation::WriteZeroes { fua: true }
        );
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
    /// Divides the I/O, which has at least one byte, into edges and whole blocks, and says which locks it needs.
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
                // Inside of one block.
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
        self.piece = {
            // Requests of about the same size.
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

    /// The next request, of the I/O in slot `number`.
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

    /// A request for an edge, whose block is at `place` in memory, has succeeded.
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

    /// Keeps the first error. What was not asked for yet never is.
    #[cold]
    fn fail(&mut self, error: IoError) {
        self.error.get_or_insert(error);
    }
}

#[cfg(test)]
mod tests;
