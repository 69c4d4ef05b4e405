//! A virtqueue: takes requests, splits them into I/Os of the storage, and completes them.
//!
//! Its only I/O is access to guest memory: the caller gets the [next part](Ring::next_part), executes it, and
//! [reports](Ring::complete) the result.
//!
//! Discards and write-zeroes have no data, and up to 256 MiB. They are executed in pieces, of which only a few are in
//! flight, while further requests are taken.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use thiserror::Error;
use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress};
use volume::Operation;

use crate::device::{Device, MAX_QUEUE_SIZE};
use crate::inflight::InflightQueue;
use crate::request::{ChainError, Kind, Memory, Range, Request, Status, Table, Verdict};

/// Maximum number of pieces of discards and write-zeroes in flight.
pub const MAX_PIECES: usize = 4;

/// Size of the available ring's header in bytes.
const AVAIL_HEADER: u64 = 4;

/// Configuration of a virtqueue by the front end.
#[derive(Debug)]
pub struct Setup {
    pub memory: Memory,
    /// Number of descriptors.
    pub size: u16,
    /// Address of the descriptor table.
    pub descriptors: GuestAddress,
    /// Address of the available ring.
    pub available: GuestAddress,
    /// Address of the used ring.
    pub used: GuestAddress,
    /// First index of the available ring, unless the inflight region determines it.
    pub next_available: u16,
    /// `true` if the driver has accepted EVENT_IDX.
    pub event_idx: bool,
    /// `true` if the driver has not accepted FLUSH: its writes must be durable when they complete.
    pub write_through: bool,
    /// The virtqueue's part of the inflight region, if the front end has one.
    pub inflight: Option<InflightQueue>,
    pub device: Device,
    /// Maximum size of a part of a read or a write in bytes.
    pub max_transfer: u32,
    /// Maximum size of a piece of a discard or of write-zeroes in bytes.
    pub max_piece: u32,
}

/// Error of a virtqueue, after which it cannot be used.
#[derive(Debug, Error)]
pub enum RingError {
    /// The size is not a power of two, or too large.
    #[error("virtqueue size: expected a power of two up to {MAX_QUEUE_SIZE}, got {0}")]
    Size(u16),
    /// The rings are outside guest memory, or not aligned.
    #[error("expected aligned rings in guest memory: {0}")]
    Rings(virtio_queue::Error),
    /// The driver has made more chains available than the ring has entries.
    #[error("available ring: expected an index at most {size} after {next}, got {index}")]
    AvailableIndex {
        /// Index read from the ring.
        index: u16,
        /// Index of the next chain.
        next: u16,
        /// Number of entries of the ring.
        size: u16,
    },
    /// A chain that is in flight is available again.
    #[error("available ring: descriptor {0} is in flight")]
    InFlight(u16),
    /// A chain that cannot be completed.
    #[error("descriptor chain at {head}: {error}")]
    Chain {
        /// Index of the chain's first descriptor.
        head: u16,
        error: ChainError,
    },
}

/// An I/O of the storage for a request or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Identifies the part in [`Ring::complete`].
    pub tag: u64,
    /// Operation; reads and writes need a buffer.
    pub operation: Operation,
    /// Offset on the device in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// Result of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Success, with the data of a read.
    Done(&'a [u8]),
    Failed,
    /// Not executed because the storage was closed: the request stays in flight for the next back end.
    Abandoned,
}

/// A request in flight. There is one slot per descriptor, by the head of the chain.
#[derive(Debug, Default)]
struct Slot {
    request: Request,
    kind: Option<Kind>,
    /// Number of bytes that were handed out; 1 for a flush.
    handed_out: u64,
    outstanding: u32,
    has_failed: bool,
    is_abandoned: bool,
}

impl Slot {
    /// Value of `handed_out` after the last part.
    fn extent(&self) -> u64 {
        match self.kind {
            Some(Kind::Read | Kind::Write) => self.request.len,
            Some(Kind::Discard | Kind::WriteZeroes) => {
                let ranges = &self.request.ranges;
                ranges.iter().map(|range| u64::from(range.len)).sum()
            }
            Some(Kind::Flush) => 1,
            None => 0,
        }
    }
}

/// A running virtqueue.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
    memory: Memory,
    device: Device,
    inflight: Option<InflightQueue>,
    write_through: bool,
    max_transfer: u32,
    max_piece: u32,
    slots: Vec<Slot>,
    /// Last index read from the available ring.
    available: u16,
    /// Chains that an earlier back end has taken but not completed, newest first.
    unfinished: Vec<u16>,
    /// Request whose parts are being handed out; not one of `ranges`.
    current: Option<u16>,
    /// Discards and write-zeroes whose pieces are being handed out, oldest first.
    ranges: VecDeque<u16>,
    /// Number of these pieces in flight.
    pieces: usize,
    outstanding: usize,
    must_notify: bool,
    is_draining: bool,
}

impl Ring {
    /// Starts a virtqueue.
    ///
    /// # Errors
    /// The values of the front end are invalid.
    pub fn new(setup: Setup) -> Result<Self, RingError> {
        let Setup {
            memory,
            size,
            device,
            mut inflight,
            write_through,
            max_transfer,
            max_piece,
            ..
        } = setup;
        let mut queue = Queue::new(MAX_QUEUE_SIZE).map_err(RingError::Rings)?;
        queue
            .try_set_size(size)
            .map_err(|_| RingError::Size(size))?;
        queue
            .try_set_desc_table_address(setup.descriptors)
            .map_err(RingError::Rings)?;
        queue
            .try_set_avail_ring_address(setup.available)
            .map_err(RingError::Rings)?;
        queue
            .try_set_used_ring_address(setup.used)
            .map_err(RingError::Rings)?;
        queue.set_event_idx(setup.event_idx);
        queue.set_ready(true);
        if !queue.is_valid(&memory) {
            return Err(RingError::Rings(virtio_queue::Error::QueueNotReady));
        }
        let used = queue
            .used_idx(&memory, Ordering::Acquire)
            .map_err(RingError::Rings)?
            .0;
        queue.set_next_used(used);
        let mut unfinished = Vec::new();
        let mut next = setup.next_available;
        if let Some(inflight) = &mut inflight {
            unfinished = inflight.recover(used);
            if !unfinished.is_empty() {
                // A front end that has not detected the end of the previous back end knows only the used index.
                next = used.wrapping_add(unfinished.len() as u16);
            }
            unfinished.reverse();
        }
        queue.set_next_avail(next);
        // The driver need not notify until the first sleep.
        queue
            .disable_notification(&memory)
            .map_err(RingError::Rings)?;
        let mut slots = Vec::new();
        slots.resize_with(usize::from(size), Slot::default);
        Ok(Self {
            queue,
            memory,
            device,
            inflight,
            write_through: write_through && device.flush,
            max_transfer,
            max_piece,
            slots,
            available: next,
            unfinished,
            current: None,
            ranges: VecDeque::new(),
            pieces: 0,
            outstanding: 0,
            must_notify: false,
            is_draining: false,
        })
    }

    /// Returns the next part to execute; it returns the same part until [`handed_out`](Self::handed_out) or
    /// [`fail_part`](Self::fail_part) is called. `None` if the driver has no further request, and the maximum number of
    /// pieces is in flight.
    ///
    /// # Errors
    /// The driver violates the protocol. Parts handed out earlier may still complete; no further parts are returned.
    pub fn next_part(&mut self) -> Result<Option<Part>, RingError> {
        loop {
            if let Some(head) = self.current.or_else(|| self.next_range()) {
                return Ok(Some(self.part(head)));
            }
            let Some(head) = self.take()? else {
                return Ok(None);
            };
            self.begin(head)?;
        }
    }

    /// Request of the next piece, if another piece may be in flight.
    fn next_range(&self) -> Option<u16> {
        let head = self.ranges.front().copied();
        head.filter(|_| self.pieces < MAX_PIECES)
    }

    /// Records that the part was submitted to the storage.
    pub fn handed_out(&mut self, part: &Part) {
        let head = part.tag as u16;
        let Some(slot) = self.slots.get_mut(usize::from(head)) else {
            return;
        };
        self.outstanding += 1;
        slot.outstanding += 1;
        slot.handed_out += match slot.kind {
            Some(Kind::Flush) | None => 1,
            Some(_) => u64::from(part.len),
        };
        let is_whole = slot.handed_out >= slot.extent();
        if self.current == Some(head) {
            if is_whole {
                self.current = None;
            }
        } else {
            debug_assert_eq!(self.ranges.front(), Some(&head));
            self.pieces += 1;
            if is_whole {
                self.ranges.pop_front();
            }
        }
    }

    /// Copies the data of a write from guest memory to `buffer`.
    ///
    /// # Errors
    /// The data is no longer in guest memory: call [`fail_part`](Self::fail_part).
    pub fn copy_from_guest(&self, part: &Part, buffer: &mut [u8]) -> Result<(), Status> {
        let slot = &self.slots[usize::from(part.tag as u16)];
        slot.request
            .each_part(part.tag >> 16, buffer.len(), |address, range| {
                self.memory
                    .read_slice(&mut buffer[range], address)
                    .map_err(|_| Status::IoError)
            })
    }

    /// Fails the request of the part that [`next_part`](Self::next_part) has returned.
    pub fn fail_part(&mut self) {
        let Some(head) = self.current.take() else {
            return;
        };
        let slot = &mut self.slots[usize::from(head)];
        slot.has_failed = true;
        if slot.outstanding == 0 {
            self.finish(head);
        }
    }

    /// Handles the completion of a part.
    pub fn complete(&mut self, tag: u64, outcome: Outcome<'_>) {
        let head = tag as u16;
        let Some(slot) = self
            .slots
            .get_mut(usize::from(head))
            .filter(|slot| slot.outstanding != 0)
        else {
            debug_assert!(false, "a part that is not outstanding");
            return;
        };
        slot.outstanding -= 1;
        self.outstanding -= 1;
        let is_piece = matches!(slot.kind, Some(Kind::Discard | Kind::WriteZeroes));
        match outcome {
            Outcome::Done(data) if slot.kind == Some(Kind::Read) => {
                let copied = slot
                    .request
                    .each_part(tag >> 16, data.len(), |address, range| {
                        self.memory
                            .write_slice(&data[range], address)
                            .map_err(|_| Status::IoError)
                    });
                slot.has_failed |= copied.is_err();
            }
            Outcome::Done(_) => {}
            Outcome::Failed => slot.has_failed = true,
            Outcome::Abandoned => slot.is_abandoned = true,
        }
        if is_piece {
            self.pieces -= 1;
            if slot.has_failed || slot.is_abandoned {
                // The rest is not executed.
                self.ranges.retain(|it| *it != head);
            }
        }
        if slot.outstanding == 0 && self.current != Some(head) && !self.ranges.contains(&head) {
            self.finish(head);
        }
    }

    /// Stops taking requests. Further parts of those that were taken are still handed out.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Returns `true` if all requests that were taken have completed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.current.is_none() && self.ranges.is_empty() && self.outstanding == 0
    }

    /// Stops taking requests and handing out parts: unfinished requests stay in flight for the next back end.
    pub fn abandon(&mut self) {
        self.is_draining = true;
        let ranges = std::mem::take(&mut self.ranges);
        for head in self.current.take().into_iter().chain(ranges) {
            let slot = &mut self.slots[usize::from(head)];
            slot.is_abandoned = true;
            if slot.outstanding == 0 {
                self.finish(head);
            }
        }
    }

    /// Number of parts that were handed out and have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Returns `true`, once, if requests were completed and the driver must be notified.
    pub fn take_notification(&mut self) -> bool {
        if !std::mem::take(&mut self.must_notify) {
            return false;
        }
        if !self.queue.event_idx_enabled() {
            // Orders the store of the used index before the load of the flag.
            std::sync::atomic::fence(Ordering::SeqCst);
            let flags = self
                .memory
                .load::<u16>(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
            let is_unwanted = flags.is_ok_and(|flags| {
                u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT != 0
            });
            return !is_unwanted;
        }
        self.queue.needs_notification(&self.memory).unwrap_or(true)
    }

    /// Returns `true` if a part that [`next_part`](Self::next_part) has returned was not handed out; progress then does
    /// not depend on the driver.
    #[must_use]
    pub fn has_part(&self) -> bool {
        self.current.is_some() || self.next_range().is_some()
    }

    /// Enables notifications of the driver. Returns `false` if a request is available already.
    pub fn arm(&mut self) -> bool {
        if self.is_draining {
            return true;
        }
        if !self.unfinished.is_empty() || self.has_part() {
            return false;
        }
        // An unreadable index is reported as an error of the next part.
        !self.queue.enable_notification(&self.memory).unwrap_or(true)
    }

    /// Disables notifications of the driver.
    pub fn disarm(&mut self) {
        let _ = self.queue.disable_notification(&self.memory);
    }

    /// Next index of the available ring to take.
    #[must_use]
    pub fn next_available(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Takes the next chain from the available ring.
    fn take(&mut self) -> Result<Option<u16>, RingError> {
        if self.is_draining {
            return Ok(None);
        }
        if let Some(head) = self.unfinished.pop() {
            return self.check(head).map(Some);
        }
        let next = self.queue.next_avail();
        if self.available == next {
            let index = self
                .queue
                .avail_idx(&self.memory, Ordering::Acquire)
                .map_err(RingError::Rings)?
                .0;
            if index == next {
                return Ok(None);
            }
            let size = self.queue.size();
            if index.wrapping_sub(next) > size {
                return Err(RingError::AvailableIndex { index, next, size });
            }
            self.available = index;
        }
        let entry = u64::from(next % self.queue.size()) * 2;
        let address = GuestAddress(self.queue.avail_ring() + AVAIL_HEADER + entry);
        let head: u16 = self
            .memory
            .load(address, Ordering::Relaxed)
            .map(u16::from_le)
            .map_err(|error| RingError::Rings(virtio_queue::Error::GuestMemory(error)))?;
        let head = self.check(head)?;
        self.queue.set_next_avail(next.wrapping_add(1));
        if let Some(inflight) = &mut self.inflight {
            inflight.take(head);
        }
        Ok(Some(head))
    }

    fn check(&self, head: u16) -> Result<u16, RingError> {
        match self.slots.get(usize::from(head)) {
            Some(slot) if slot.kind.is_some() => Err(RingError::InFlight(head)),
            Some(_) => Ok(head),
            None => {
                let size = self.queue.size();
                let error = ChainError::Index { index: head, size };
                Err(RingError::Chain { head, error })
            }
        }
    }

    /// Parses a request, and completes it immediately if it does not need the storage.
    fn begin(&mut self, head: u16) -> Result<(), RingError> {
        let table = Table {
            address: GuestAddress(self.queue.desc_table()),
            size: self.queue.size(),
        };
        let slot = &mut self.slots[usize::from(head)];
        let verdict = slot
            .request
            .parse(&self.memory, table, head, &self.device)
            .map_err(|error| RingError::Chain { head, error })?;
        slot.handed_out = 0;
        slot.has_failed = false;
        slot.is_abandoned = false;
        match verdict {
            Verdict::Execute(kind) => {
                slot.kind = Some(kind);
                if matches!(kind, Kind::Discard | Kind::WriteZeroes) {
                    self.ranges.push_back(head);
                } else {
                    self.current = Some(head);
                }
            }
            Verdict::Answer(status) => self.answer(head, status, 0),
            Verdict::Identify => {
                let id = self.device.id;
                let len = slot.request.len.min(id.len() as u64) as usize;
                let copied = slot.request.each_part(0, len, |address, range| {
                    self.memory
                        .write_slice(&id[range], address)
                        .map_err(|_| Status::IoError)
                });
                match copied {
                    Ok(()) => self.answer(head, Status::Ok, len as u32),
                    Err(status) => self.answer(head, status, 0),
                }
            }
        }
        Ok(())
    }

    fn part(&self, head: u16) -> Part {
        let slot = &self.slots[usize::from(head)];
        let fua = self.write_through;
        let at = slot.handed_out;
        let (operation, offset, len) = match slot.kind {
            Some(kind @ (Kind::Read | Kind::Write)) => {
                let len = (slot.request.len - at).min(u64::from(self.max_transfer)) as u32;
                let operation = if kind == Kind::Read {
                    Operation::Read
                } else {
                    Operation::Write { fua }
                };
                (operation, slot.request.offset + at, len)
            }
            Some(kind @ (Kind::Discard | Kind::WriteZeroes)) => {
                let (offset, len) = piece(&slot.request.ranges, at, self.max_piece);
                let operation = if kind == Kind::Discard {
                    Operation::Discard
                } else {
                    Operation::WriteZeroes { fua }
                };
                (operation, offset, len)
            }
            Some(Kind::Flush) | None => (Operation::Flush, 0, 0),
        };
        Part {
            tag: u64::from(head) | at << 16,
            operation,
            offset,
            len,
        }
    }

    /// Completes a request after its last part.
    fn finish(&mut self, head: u16) {
        let slot = &mut self.slots[usize::from(head)];
        let kind = slot.kind.take();
        if slot.is_abandoned {
            return;
        }
        if slot.has_failed {
            return self.answer(head, Status::IoError, 0);
        }
        // The length field cannot express 4 GiB.
        let written = if kind == Some(Kind::Read) {
            slot.request.len
        } else {
            0
        };
        self.answer(
            head,
            Status::Ok,
            u32::try_from(written).unwrap_or(u32::MAX - 1),
        );
    }

    /// Completes a request with this status.
    fn answer(&mut self, head: u16, status: Status, written: u32) {
        let slot = &self.slots[usize::from(head)];
        // The address was checked when the request was parsed. If the memory is missing nevertheless, the guest has exited.
        let _ = self.memory.write_obj(status as u8, slot.request.status);
        if let Some(inflight) = &self.inflight {
            inflight.completing(head);
        }
        if self.queue.add_used(&self.memory, head, written + 1).is_ok()
            && let Some(inflight) = &self.inflight
        {
            inflight.completed(head, self.queue.next_used());
        }
        self.must_notify = true;
    }
}

/// Offset and length of the piece that begins `at` bytes after the start of these ranges; empty after their end.
fn piece(ranges: &[Range], mut at: u64, most: u32) -> (u64, u32) {
    for range in ranges {
        if let Some(rest) = u64::from(range.len).checked_sub(at)
            && rest != 0
        {
            return (range.offset + at, rest.min(u64::from(most)) as u32);
        }
        at -= u64::from(range.len);
    }
    (0, 0)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::guest::*;
    use crate::inflight::{Inflight, create};

    /// Executes all parts of the ring on a disk.
    fn serve(ring: &mut Ring, disk: &mut [u8]) -> Result<usize, RingError> {
        let mut count = 0;
        while let Some(part) = ring.next_part()? {
            count += 1;
            let range = part.offset as usize..part.offset as usize + part.len as usize;
            match part.operation {
                Operation::Read => {
                    ring.handed_out(&part);
                    ring.complete(part.tag, Outcome::Done(&disk[range]));
                }
                Operation::Write { .. } => {
                    ring.copy_from_guest(&part, &mut disk[range])
                        .expect("the memory is there");
                    ring.handed_out(&part);
                    ring.complete(part.tag, Outcome::Done(&[]));
                }
                Operation::WriteZeroes { .. } | Operation::Discard => {
                    disk[range].fill(0);
                    ring.handed_out(&part);
                    ring.complete(part.tag, Outcome::Done(&[]));
                }
                Operation::Flush => {
                    ring.handed_out(&part);
                    ring.complete(part.tag, Outcome::Done(&[]));
                }
            }
        }
        Ok(count)
    }

    #[test]
    fn large_requests_are_divided_and_complete_once() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        let content: Vec<u8> = (0..20480_u32).map(|at| (at / 7) as u8).collect();
        guest.write(DATA, &content);
        guest.offer_request(0, OUT, 3, 20480);
        let mut disk = vec![0xff; DEVICE.size as usize];
        assert_eq!(serve(&mut ring, &mut disk).expect("served"), 3);
        assert_eq!(disk[3 * 512..3 * 512 + 20480], content);
        assert!(
            disk[..3 * 512]
                .iter()
                .chain(&disk[3 * 512 + 20480..])
                .all(|&byte| byte == 0xff)
        );
        assert_eq!(
            (guest.status(0), guest.used(), guest.used_element(0)),
            (0, 1, (0, 1))
        );
        assert!(ring.take_notification());
        assert!(!ring.take_notification());

        guest.write(DATA, &[0; 20480]);
        guest.offer_request(4, IN, 3, 20480);
        assert_eq!(serve(&mut ring, &mut disk).expect("served"), 3);
        assert_eq!(guest.read(DATA, 20480), content);
        assert_eq!(
            (guest.status(4), guest.used(), guest.used_element(1)),
            (0, 2, (4, 20481))
        );
    }

    /// Offers write-zeroes of these ranges (sector, number of sectors), whose segments are at `address`.
    fn offer_zeroes(guest: &mut Guest, head: u16, address: u64, ranges: &[(u64, u32)]) {
        for (at, (sector, sectors)) in (address..).step_by(16).zip(ranges) {
            guest.write(at, &sector.to_le_bytes());
            guest.write(at + 8, &sectors.to_le_bytes());
            guest.write(at + 12, &[0; 4]);
        }
        let status = STATUS_AT + u64::from(head);
        let header = HEADER_AT + 16 * u64::from(head);
        guest.header(header, ZEROES, 0);
        let len = 16 * ranges.len() as u32;
        guest.chain(
            head,
            &[(header, 16, 0), (address, len, 0), (status, 1, WRITE)],
        );
        guest.offer(head);
    }

    /// Hands out all parts that may be in flight.
    fn hand_out(ring: &mut Ring, parts: &mut VecDeque<Part>) {
        while let Some(part) = ring.next_part().expect("no error") {
            ring.handed_out(&part);
            parts.push_back(part);
        }
    }

    #[test]
    fn requests_are_served_between_the_pieces_of_long_ones() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        // 28 pieces, the last one of each range shorter.
        let ranges = [(3, 200), (256, 33)];
        offer_zeroes(&mut guest, 0, DATA, &ranges);
        offer_zeroes(&mut guest, 3, DATA + 64, &ranges);
        guest.offer_request(6, IN, 0, 512);
        let mut parts = VecDeque::new();
        hand_out(&mut ring, &mut parts);
        assert_eq!(parts.len(), MAX_PIECES + 1);
        assert!(ring.arm(), "further requests of the driver are awaited");
        let read = parts.pop_back().expect("the read");
        assert_eq!((read.operation, read.tag), (Operation::Read, 6));
        ring.complete(read.tag, Outcome::Done(&[0; 512]));
        assert_eq!((guest.used(), guest.used_element(0).0), (1, 6));
        let mut zeroed = Vec::new();
        while let Some(part) = parts.pop_front() {
            assert!(parts.len() < MAX_PIECES && part.len <= MAX_PIECE);
            ring.complete(part.tag, Outcome::Done(&[]));
            zeroed.extend(part.offset / 512..(part.offset + u64::from(part.len)) / 512);
            hand_out(&mut ring, &mut parts);
        }
        let expected: Vec<u64> = (3..203).chain(256..289).collect();
        assert_eq!(zeroed, [&expected[..], &expected].concat());
        assert_eq!([0, 3].map(|head| guest.status(head)), [0; 2]);
        assert_eq!(guest.used(), 3);
        assert!(ring.is_drained());
    }

    #[test]
    fn failed_piece_drops_the_rest_of_its_request() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        offer_zeroes(&mut guest, 0, DATA, &[(0, 200)]);
        let mut parts = VecDeque::new();
        hand_out(&mut ring, &mut parts);
        ring.complete(parts[1].tag, Outcome::Failed);
        assert_eq!(ring.next_part().expect("no error"), None);
        for index in [0, 2, 3] {
            assert_eq!(guest.used(), 0, "pieces are outstanding");
            ring.complete(parts[index].tag, Outcome::Done(&[]));
        }
        assert_eq!((guest.used(), guest.status(0)), (1, 1));
        assert!(ring.is_drained());
    }

    #[test]
    fn abandoned_pieces_leave_their_request_to_the_next_back_end() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        offer_zeroes(&mut guest, 0, DATA, &[(0, 200)]);
        offer_zeroes(&mut guest, 3, DATA + 64, &[(0, 200)]);
        let mut parts = VecDeque::new();
        hand_out(&mut ring, &mut parts);
        ring.abandon();
        for part in parts {
            ring.complete(part.tag, Outcome::Done(&[]));
        }
        assert!(ring.is_drained());
        assert_eq!(guest.used(), 0);
    }

    #[test]
    fn parts_complete_in_any_order() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        guest.offer_request(0, IN, 0, 16384);
        guest.offer_request(4, IN, 0, 512);
        let mut parts = Vec::new();
        while let Some(part) = ring.next_part().expect("no error") {
            ring.handed_out(&part);
            parts.push(part);
        }
        assert_eq!(parts.len(), 3);
        ring.complete(parts[1].tag, Outcome::Done(&[2; 8192]));
        assert_eq!(guest.used(), 0);
        ring.complete(parts[2].tag, Outcome::Done(&[3; 512]));
        assert_eq!((guest.used(), guest.used_element(0).0), (1, 4));
        assert!(!ring.is_drained());
        ring.complete(parts[0].tag, Outcome::Done(&[1; 8192]));
        assert_eq!((guest.used(), guest.used_element(1).0), (2, 0));
        assert_eq!(
            [
                guest.byte(DATA + 512),
                guest.byte(DATA + 8191),
                guest.byte(DATA + 8192)
            ],
            [1, 1, 2]
        );
        assert!(ring.is_drained());
    }

    #[test]
    fn failed_part_fails_only_its_request() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        guest.offer_request(0, IN, 0, 16384);
        guest.offer_request(4, FLUSH, 0, 0);
        for outcome in [
            Outcome::Failed,
            Outcome::Done(&[0; 8192]),
            Outcome::Done(&[]),
        ] {
            let part = ring.next_part().expect("no error").expect("a part");
            ring.handed_out(&part);
            ring.complete(part.tag, outcome);
        }
        assert_eq!([guest.status(0), guest.status(4)], [1, 0]);
        assert_eq!(guest.used(), 2);
    }

    #[test]
    fn part_without_guest_memory_fails_its_request() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        guest.offer_request(0, OUT, 0, 16384);
        let part = ring.next_part().expect("no error").expect("a part");
        ring.handed_out(&part);
        assert!(ring.next_part().expect("no error").is_some());
        ring.fail_part();
        assert_eq!(guest.used(), 0, "a part is outstanding");
        ring.complete(part.tag, Outcome::Done(&[]));
        assert_eq!((guest.used(), guest.status(0)), (1, 1));
        assert_eq!(ring.next_part().expect("no error"), None);
    }

    #[test]
    fn drivers_without_flush_get_durable_writes() {
        for (write_through, has_flush, fua) in [
            (false, true, false),
            (true, true, true),
            (true, false, false),
        ] {
            let mut guest = Guest::new();
            let device = Device {
                flush: has_flush,
                ..DEVICE
            };
            let mut ring = Ring::new(Setup {
                write_through,
                device,
                ..guest.setup()
            })
            .expect("a ring");
            guest.offer_request(0, OUT, 0, 512);
            let part = ring.next_part().expect("no error").expect("a part");
            assert_eq!(part.operation, Operation::Write { fua });
        }
    }

    #[test]
    fn identifier_is_truncated_to_the_buffer() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        guest.write(DATA, &[0xee; 32]);
        guest.offer_request(0, ID, 0, 20);
        assert_eq!(ring.next_part().expect("no error"), None);
        assert_eq!(guest.read(DATA, 21), [&DEVICE.id[..], &[0xee]].concat());
        assert_eq!((guest.status(0), guest.used_element(0)), (0, (0, 21)));
        guest.write(DATA, &[0xee; 32]);
        guest.offer_request(0, ID, 0, 4);
        assert_eq!(ring.next_part().expect("no error"), None);
        assert_eq!(guest.read(DATA, 5), b"iden\xee");
    }

    #[test]
    fn a_descriptor_that_is_in_flight_cannot_be_available() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        guest.offer_request(0, IN, 0, 512);
        guest.offer(0);
        let part = ring.next_part().expect("no error").expect("a part");
        ring.handed_out(&part);
        assert!(matches!(ring.next_part(), Err(RingError::InFlight(0))));
        ring.complete(part.tag, Outcome::Done(&[0; 512]));
        assert_eq!(guest.used(), 1);
    }

    #[test]
    fn an_impossible_available_index_stops_the_queue() {
        let guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        guest.write(AVAILABLE + 2, &(SIZE + 1).to_le_bytes());
        assert!(matches!(
            ring.next_part(),
            Err(RingError::AvailableIndex {
                index: 17,
                next: 0,
                size: SIZE
            })
        ));
    }

    #[test]
    fn rings_outside_of_memory_are_refused() {
        let guest = Guest::new();
        let new = |change: fn(&mut Setup)| {
            let mut setup = guest.setup();
            change(&mut setup);
            Ring::new(setup).map(drop)
        };
        assert!(new(|_| ()).is_ok());
        assert!(matches!(new(|it| it.size = 0), Err(RingError::Size(0))));
        assert!(matches!(new(|it| it.size = 24), Err(RingError::Size(24))));
        assert!(matches!(
            new(|it| it.size = 2048),
            Err(RingError::Size(2048))
        ));
        for change in [
            (|it| it.used = GuestAddress(MEMORY - 4)) as fn(&mut Setup),
            |it| it.descriptors = GuestAddress(u64::MAX - 15),
            |it| it.available = GuestAddress(AVAILABLE + 1),
            |it| it.descriptors = GuestAddress(DESCRIPTORS + 8),
        ] {
            assert!(matches!(new(change), Err(RingError::Rings(_))));
        }
    }

    #[test]
    fn drained_ring_completes_taken_requests_only() {
        let mut guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        guest.offer_request(0, IN, 0, 16384);
        guest.offer_request(4, FLUSH, 0, 0);
        let part = ring.next_part().expect("no error").expect("a part");
        ring.handed_out(&part);
        ring.drain();
        ring.complete(part.tag, Outcome::Done(&[0; 8192]));
        assert!(!ring.is_drained());
        assert_eq!(
            serve(&mut ring, &mut vec![0; DEVICE.size as usize]).expect("served"),
            1
        );
        assert!(ring.is_drained());
        assert_eq!((guest.used(), ring.next_available()), (1, 1));
        // Another ring continues at the same index.
        let mut next = Ring::new(Setup {
            next_available: 1,
            ..guest.setup()
        })
        .expect("a ring");
        assert_eq!(serve(&mut next, &mut []).expect("served"), 1);
        assert_eq!((guest.used(), guest.used_element(1).0), (2, 4));
    }

    #[test]
    fn incomplete_requests_are_served_by_the_next_back_end() {
        let mut guest = Guest::new();
        let (file, bytes) = create(1, SIZE).expect("memory");
        let inflight = Inflight::map(file, 0, bytes as u64, 1, SIZE).expect("mapped");
        let setup = |guest: &Guest, next_available| Setup {
            inflight: inflight.queue(0, SIZE),
            next_available,
            ..guest.setup()
        };
        let mut ring = Ring::new(setup(&guest, 0)).expect("a ring");
        for (head, sector) in [(0, 5), (3, 6), (6, 7)] {
            guest.offer_request(head, IN, sector, 512);
        }
        let mut parts = Vec::new();
        while let Some(part) = ring.next_part().expect("no error") {
            ring.handed_out(&part);
            parts.push(part);
        }
        ring.complete(parts[1].tag, Outcome::Done(&[0; 512]));
        ring.complete(parts[2].tag, Outcome::Abandoned);
        assert_eq!(guest.used(), 1);
        drop(ring);
        guest.offer_request(9, IN, 8, 512);
        // The front end knows only the index of the used ring.
        let mut next = Ring::new(setup(&guest, 1)).expect("a ring");
        assert!(!next.arm(), "there is work");
        let mut offsets = Vec::new();
        while let Some(part) = next.next_part().expect("no error") {
            next.handed_out(&part);
            offsets.push(part.offset / 512);
            next.complete(part.tag, Outcome::Done(&[0; 512]));
        }
        assert_eq!(offsets, [5, 7, 8]);
        assert_eq!((guest.used(), next.next_available()), (4, 4));
        assert_eq!([0, 3, 6, 9].map(|head| guest.status(head)), [0; 4]);
    }

    #[test]
    fn notifications_are_sent_if_the_driver_wants_them() {
        for event_idx in [false, true] {
            let mut guest = Guest::new();
            let mut ring = Ring::new(Setup {
                event_idx,
                ..guest.setup()
            })
            .expect("a ring");
            let unwanted = |guest: &Guest, is_unwanted: bool| {
                guest.write(AVAILABLE, &u16::from(is_unwanted).to_le_bytes());
                // The event index is far ahead, or is that of the next completion.
                let event = if is_unwanted {
                    guest.used() + 100
                } else {
                    guest.used()
                };
                guest.write(AVAILABLE + 4 + 2 * u64::from(SIZE), &event.to_le_bytes());
            };
            for is_unwanted in [true, false, true] {
                unwanted(&guest, is_unwanted);
                guest.offer_request(0, FLUSH, 0, 0);
                assert!(!ring.arm(), "a request is available");
                assert_eq!(serve(&mut ring, &mut []).expect("served"), 1);
                assert_eq!(ring.take_notification(), !is_unwanted, "{event_idx}");
                assert!(ring.arm());
            }
        }
    }

    proptest! {
        /// Arbitrary bytes in rings and descriptors, changed while requests are in flight: no panic, and every part is
        /// within the device.
        #[test]
        fn arbitrary_guest_memory_never_panics(
            rounds in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 256), prop::collection::vec(any::<u8>(), 40), any::<u64>(), any::<bool>()), 1..4),
            lengths in prop::collection::vec(prop_oneof![Just(16_u32), Just(512), Just(1), any::<u32>()], 16),
            kinds in prop::collection::vec(0..15_u32, 4),
        ) {
            let guest = Guest::new();
            let mut ring = guest.ring().expect("a ring");
            let mut outstanding = Vec::new();
            for (descriptors, available, choice, is_plausible) in rounds {
                guest.write(DESCRIPTORS, &descriptors);
                guest.write(AVAILABLE, &available);
                for (index, kind) in kinds.iter().enumerate() {
                    guest.header(DATA + 16 * index as u64, *kind, choice % 600);
                }
                if is_plausible {
                    for (index, len) in lengths.iter().enumerate() {
                        let flags = if index % 3 == 2 { WRITE } else { NEXT | ((choice >> index) as u16 & WRITE) };
                        let address = DATA + 16 * (choice >> index & 3);
                        guest.descriptor_at(DESCRIPTORS, index as u16, address, *len, flags, (index as u16 + 1) % SIZE);
                    }
                    guest.write(AVAILABLE + 2, &ring.next_available().wrapping_add(1).to_le_bytes());
                    guest.write(AVAILABLE + 4, &[0; 32]);
                }
                for _ in 0..64 {
                    let Ok(Some(part)) = ring.next_part() else {
                        break;
                    };
                    prop_assert!(part.operation == Operation::Flush || part.offset + u64::from(part.len) <= DEVICE.size);
                    if let Operation::Write { .. } = part.operation {
                        let mut buffer = vec![0; part.len as usize];
                        if ring.copy_from_guest(&part, &mut buffer).is_err() {
                            ring.fail_part();
                            continue;
                        }
                    }
                    ring.handed_out(&part);
                    outstanding.push(part);
                }
                for part in outstanding.drain(..) {
                    let data = vec![0; if part.operation == Operation::Read { part.len as usize } else { 0 }];
                    ring.complete(part.tag, if choice & 1 == 0 { Outcome::Done(&data) } else { Outcome::Failed });
                }
                prop_assert_eq!(ring.outstanding(), 0);
            }
        }
    }
}
