//! Memory of a process on another machine: a [`Lane`] sends several requests over one connection; a [`NetworkRegion`]
//! sends one at a time, for one thread after the other.
//!
//! Requests are sent and answered in order. Written data goes from the program's memory to the socket, and read data
//! from the socket to the program's memory: both must stay as they are until the reply.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::export::Rights;
use super::super::limits::{Deadline, Limits, within_scope};
use super::super::protocol::{Operation, ReplyHeader, RequestHeader};
use super::authentication::Purpose;
use super::link::{Link, open};
use super::offer::NetworkOffer;
use super::stream::{MOST_PIECES, Piece, Stream};
use crate::error::{Error, Result};
use crate::runtime::Key;
use crate::verbs::RemoteKey;

/// Number of acknowledgements received at a time.
const BATCH: usize = 64;

/// A part of the queued output.
enum Output {
    Header([u8; RequestHeader::SIZE]),
    Memory(Piece),
}

impl Output {
    fn piece(&self) -> Piece {
        match self {
            Output::Header(bytes) => Piece::of(bytes),
            Output::Memory(piece) => *piece,
        }
    }
}

/// A connection to the memory of one process, used by one thread at a time.
pub(crate) struct Lane {
    stream: Stream,
    link: Arc<Link>,
    output: VecDeque<Output>,
    /// Bytes of the first of [`Self::output`] that have been sent.
    sent: usize,
    /// For each outstanding request, the number of pieces for the payload of its reply.
    expected: VecDeque<u32>,
    /// Their places, in order.
    places: VecDeque<Piece>,
    /// Received replies that have not been handled.
    input: Box<[u8; BATCH * ReplyHeader::SIZE]>,
    from: usize,
    to: usize,
    /// The header of the first reply was read; this many bytes of its payload are missing.
    payload: Option<usize>,
    /// The socket may be readable.
    readable: bool,
}

impl Lane {
    /// Connects to the memory of the process of an offer.
    ///
    /// # Errors
    /// As [`Link::to`].
    pub(crate) fn open(offer: &NetworkOffer) -> Result<Lane> {
        let link = Link::to(offer)?;
        Ok(Lane::over(open(offer, Purpose::Memory)?, link))
    }

    /// A lane over an authenticated connection for [`Purpose::Memory`](super::authentication::Purpose).
    pub(super) fn over(stream: Stream, link: Arc<Link>) -> Lane {
        Lane {
            stream,
            link,
            output: VecDeque::new(),
            sent: 0,
            expected: VecDeque::new(),
            places: VecDeque::new(),
            input: Box::new([0; BATCH * ReplyHeader::SIZE]),
            from: 0,
            to: 0,
            payload: None,
            readable: true,
        }
    }

    /// The process at the other end.
    pub(crate) fn process(&self) -> Key {
        self.link.process()
    }

    /// Queues a write of the pieces, one after the other, to `addr`.
    ///
    /// # Safety
    /// The pieces are mapped, and not used for anything else before the reply, or this is dropped before.
    pub(crate) unsafe fn write(
        &mut self,
        key: Key,
        addr: u64,
        pieces: impl Iterator<Item = Piece>,
    ) {
        let place = self.output.len();
        self.request(Operation::Write, key, addr, 0, [0; 2]);
        let mut len = 0;
        for piece in pieces {
            len += piece.len as u64;
            self.output.push_back(Output::Memory(piece));
        }
        if let Some(Output::Header(header)) = self.output.get_mut(place) {
            *header = request(Operation::Write, key, addr, len, [0; 2]);
        }
        self.expected.push_back(0);
    }

    /// Queues a read of `len` bytes at `addr` to the pieces, which have room for exactly these.
    ///
    /// # Safety
    /// As [`Lane::write`], and the pieces are writable.
    pub(crate) unsafe fn read(&mut self, key: Key, addr: u64, pieces: impl Iterator<Item = Piece>) {
        let (mut len, mut count) = (0, 0);
        for piece in pieces.filter(|piece| piece.len > 0) {
            len += piece.len as u64;
            count += 1;
            self.places.push_back(piece);
        }
        self.request(Operation::Read, key, addr, len, [0; 2]);
        self.expected.push_back(count);
    }

    fn on_word(&mut self, operation: Operation, key: Key, addr: u64, len: u64, operands: [u64; 2]) {
        self.request(operation, key, addr, len, operands);
        self.expected.push_back(0);
    }

    fn request(&mut self, operation: Operation, key: Key, addr: u64, len: u64, operands: [u64; 2]) {
        let header = request(operation, key, addr, len, operands);
        self.output.push_back(Output::Header(header));
    }

    /// Number of requests without a reply.
    pub(crate) fn outstanding(&self) -> usize {
        self.expected.len()
    }

    /// Number of parts of requests that have not been sent.
    pub(crate) fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Sends as much as fits; returns `true` if nothing is left.
    ///
    /// # Errors
    /// [`Error::ConnectionReset`] if the process is gone, or the memory to send is unmapped.
    pub(crate) fn flush(&mut self) -> Result<bool> {
        while !self.output.is_empty() {
            let (mut pieces, mut count) = ([Piece::NONE; MOST_PIECES], 0);
            for (slot, output) in pieces.iter_mut().zip(&self.output) {
                *slot = output.piece();
                count += 1;
            }
            pieces[0] = pieces[0].skip(self.sent);
            match self.stream.send(&pieces[..count]) {
                Ok(sent) => self.sent += sent,
                Err(Error::Again) => {
                    return Ok(false);
                }
                Err(_) => return Err(Error::ConnectionReset),
            }
            while let Some(output) = self.output.front()
                && self.sent >= output.piece().len
            {
                self.sent -= output.piece().len;
                self.output.pop_front();
            }
        }
        self.stream.flush()
    }

    /// The socket is readable or closed.
    pub(crate) fn set_readable(&mut self) {
        self.readable = true;
    }

    /// The next reply: the value of an atomic operation, or the error of the request.
    ///
    /// # Errors
    /// The outer one, [`Error::ConnectionReset`], when the process is gone or violates the protocol: outstanding requests fail.
    pub(crate) fn next_reply(&mut self) -> Result<Option<Result<u64>>> {
        loop {
            if let Some(left) = self.payload {
                if left == 0 {
                    self.payload = None;
                    self.expected.pop_front();
                    return Ok(Some(Ok(0)));
                }
            } else if self.to - self.from >= ReplyHeader::SIZE {
                let header = &self.input[self.from..self.from + ReplyHeader::SIZE];
                let header = ReplyHeader::decode(header).map_err(|_| Error::ConnectionReset)?;
                self.from += ReplyHeader::SIZE;
                let parts = *self.expected.front().ok_or(Error::ConnectionReset)? as usize;
                match header.result {
                    Ok(()) if parts > 0 => {
                        let lens = self.places.iter().take(parts).map(|place| place.len);
                        self.payload = Some(lens.sum());
                        continue;
                    }
                    result => {
                        self.places.drain(..parts);
                        self.expected.pop_front();
                        return Ok(Some(result.map(|()| header.value)));
                    }
                }
            }
            if !self.readable || self.expected.is_empty() {
                return Ok(None);
            }
            match self.receive() {
                Ok(()) => {}
                Err(Error::Again) => {
                    self.readable = false;
                    return Ok(None);
                }
                Err(_) => return Err(Error::ConnectionReset),
            }
        }
    }

    /// Receives the rest of a payload and the headers behind it, but never the beginning of the next payload, which
    /// belongs in memory of its own.
    fn receive(&mut self) -> Result<()> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.from > 0 {
            self.input.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        let payload = self.payload.unwrap_or(0);
        let current = usize::from(self.payload.is_some());
        // Up to and including the header of the first reply that has a payload.
        let headers = self
            .expected
            .iter()
            .skip(current)
            .position(|parts| *parts > 0)
            .map_or(self.expected.len() - current, |plain| plain + 1)
            .min(BATCH);
        let (mut pieces, mut count, mut promised) = ([Piece::NONE; MOST_PIECES], 0, 0);
        for place in &self.places {
            if promised == payload || count == MOST_PIECES - 1 {
                break;
            }
            pieces[count] = *place;
            promised += place.len;
            count += 1;
        }
        if promised == payload {
            let end = (headers * ReplyHeader::SIZE).max(self.to);
            pieces[count] = Piece::of_mut(&mut self.input[self.to..end]);
            count += 1;
        }
        // SAFETY: the places are writable, as promised for the reads; the last piece is a part of `input`.
        let received = unsafe { self.stream.receive(&pieces[..count]) }?;
        if received == 0 {
            return Err(Error::ConnectionReset);
        }
        let mut placed = received.min(payload);
        self.to += received - placed;
        if let Some(left) = &mut self.payload {
            *left -= placed;
        }
        while placed > 0
            && let Some(place) = self.places.front_mut()
        {
            if placed < place.len {
                *place = place.skip(placed);
                break;
            }
            placed -= place.len;
            self.places.pop_front();
        }
        Ok(())
    }

    /// Sends the queued output and waits for all replies; returns the last one.
    fn finish(&mut self, deadline: Deadline) -> Result<u64> {
        let mut last = Ok(0);
        loop {
            let is_sent = self.flush()?;
            self.readable = true;
            while let Some(reply) = self.next_reply()? {
                last = reply;
            }
            if self.expected.is_empty() {
                return last;
            }
            if self.link.is_gone() {
                return Err(Error::ConnectionReset);
            }
            if is_sent {
                self.stream.wait_readable(deadline)?;
            } else {
                self.stream.wait_writable(true, deadline)?;
            }
        }
    }

    /// Checks that memory is exported with these rights; returns its key for RDMA devices, or 0.
    pub(super) fn check(
        &mut self,
        key: Key,
        (addr, len): (u64, u64),
        rights: u64,
        deadline: Deadline,
    ) -> Result<u64> {
        self.on_word(Operation::Describe, key, addr, len, [rights, 0]);
        self.finish(deadline)
    }

    /// An atomic operation, alone.
    pub(super) fn atomic(
        &mut self,
        operation: Operation,
        key: Key,
        addr: u64,
        operands: [u64; 2],
        deadline: Deadline,
    ) -> Result<u64> {
        self.on_word(operation, key, addr, 8, operands);
        self.finish(deadline)
    }

    /// A read, alone.
    ///
    /// # Safety
    /// The piece is the caller's to write.
    unsafe fn read_now(
        &mut self,
        key: Key,
        addr: u64,
        to: Piece,
        deadline: Deadline,
    ) -> Result<()> {
        // SAFETY: the caller's promise; a lane that is left with outstanding requests is not used again.
        unsafe { self.read(key, addr, std::iter::once(to)) };
        self.finish(deadline).map(|_| ())
    }

    /// A write, alone.
    fn write_now(&mut self, key: Key, addr: u64, from: Piece, deadline: Deadline) -> Result<()> {
        // SAFETY: the caller waits here.
        unsafe { self.write(key, addr, std::iter::once(from)) };
        self.finish(deadline).map(|_| ())
    }

    /// Returns `true` if the process is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.link.is_gone() || self.stream.is_closed()
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

fn request(
    operation: Operation,
    key: Key,
    addr: u64,
    len: u64,
    operands: [u64; 2],
) -> [u8; RequestHeader::SIZE] {
    RequestHeader {
        operation,
        key,
        addr,
        len,
        operands,
    }
    .encode()
}

/// Memory behind an offer.
#[derive(Debug)]
pub(crate) struct NetworkRegion {
    offer: NetworkOffer,
    remote_key: Option<RemoteKey>,
    /// For accesses outside of an RDMA connection's own lane; `None` once it has failed.
    lane: Mutex<Option<Lane>>,
}

impl NetworkRegion {
    /// Connects to the owner, and checks that it exports the range with these rights.
    ///
    /// # Errors
    /// As [`Link::to`](super::Link::to); [`Error::NotFound`] when it has withdrawn the memory, [`Error::NotPermitted`],
    /// [`Error::InvalidValue`] for another range.
    pub(crate) fn open(offer: &NetworkOffer, range: (u64, u64), rights: Rights) -> Result<Self> {
        let deadline = Deadline::after(Limits::get()?.request);
        let mut lane = Lane::open(offer)?;
        let word = lane
            .check(offer.key, range, rights.bits(), deadline)
            .map_err(gone)?;
        Ok(Self {
            offer: *offer,
            remote_key: RemoteKey::from_word(word),
            lane: Mutex::new(Some(lane)),
        })
    }

    /// Network addresses of the memory's owner.
    pub(crate) fn offer(&self) -> &NetworkOffer {
        &self.offer
    }

    /// Key of the memory for RDMA devices, if it is registered with one.
    pub(crate) fn remote_key(&self) -> Option<RemoteKey> {
        self.remote_key
    }

    /// Copies `len` bytes at `addr` to `to`.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the owner is gone or has withdrawn the memory, [`Error::NotPermitted`], [`Error::TimeOut`].
    ///
    /// # Safety
    /// The `len` bytes at `to` are the caller's to write.
    pub(crate) unsafe fn read(&self, addr: u64, to: *mut u8, len: usize) -> Result<()> {
        self.alone(len, |lane, deadline| {
            let piece = mapped(to, len);
            // SAFETY: the caller's promise.
            unsafe { lane.read_now(self.offer.key, addr, piece, deadline) }
        })
    }

    /// Copies `len` bytes at `from` to `addr`; they are there when this returns.
    ///
    /// # Errors
    /// As [`NetworkRegion::read`].
    pub(crate) fn write(&self, addr: u64, from: *const u8, len: usize) -> Result<()> {
        self.alone(len, |lane, deadline| {
            let piece = mapped(from.cast_mut(), len);
            lane.write_now(self.offer.key, addr, piece, deadline)
        })
    }

    /// Adds `value` to the u64 at `addr`; the old value.
    ///
    /// # Errors
    /// As [`NetworkRegion::read`].
    pub(crate) fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        self.alone(8, |lane, deadline| {
            let operation = Operation::FetchAdd;
            lane.atomic(operation, self.offer.key, addr, [value, 0], deadline)
        })
    }

    /// Replaces the u64 at `addr` by `new` if it is `expected`; the old value.
    ///
    /// # Errors
    /// As [`NetworkRegion::read`].
    pub(crate) fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        self.alone(8, |lane, deadline| {
            let operation = Operation::CompareSwap;
            lane.atomic(operation, self.offer.key, addr, [expected, new], deadline)
        })
    }

    /// Returns `true` if the owner is gone.
    pub(crate) fn is_closed(&self) -> bool {
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        lane.as_ref().is_none_or(Lane::is_closed)
    }

    fn alone<T>(
        &self,
        len: usize,
        action: impl FnOnce(&mut Lane, Deadline) -> Result<T>,
    ) -> Result<T> {
        within_scope(len, |deadline| {
            let mut slot = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
            let lane = slot.as_mut().ok_or(Error::NotFound)?;
            let result = action(lane, deadline);
            if lane.outstanding() > 0 {
                // A late reply would be taken for the reply to the next request, and written to memory that the
                // program owns again.
                *slot = None;
            }
            result.map_err(gone)
        })
    }
}

fn mapped(start: *mut u8, len: usize) -> Piece {
    Piece {
        start,
        len,
        exported: false,
    }
}

fn gone(error: Error) -> Error {
    match error {
        Error::ConnectionReset => Error::NotFound,
        error => error,
    }
}
