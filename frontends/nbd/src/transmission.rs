//! The transmission phase: converts requests to device I/Os, and their completions to replies, as a state machine without I/O.
//!
//! A request is split into parts of at most [`Limits::segment`] bytes, each an I/O of the device with its own buffer,
//! which limits the memory that a request needs at a time. The driver calls [`Transmission::next`] and executes the
//! returned step: it passes a request, fills a part with payload, issues a part, or skips the payload of a refused
//! write. It reports completions, and sends the resulting replies.
//!
//! The reply to a structured read has a chunk for each part. A simple reply cannot report an error after its header, so
//! the parts of a simple read are first copied into one buffer ([`Body::Whole`]). A read longer than [`Limits::unsent`]
//! is copied and sent in windows, and no other request is in progress during that time; an error in a later window ends
//! the connection.
//!
//! The memory of replies is limited: parts of reads wait while the reads in flight, together with the unsent replies,
//! would exceed [`Limits::unsent`]. Write-zeroes and trim have no payload, and any length. They are executed in pieces,
//! of which a connection has few in flight; further requests are accepted in the meantime.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use volume::{IoError, Operation};

use crate::negotiation::{ALLOCATION_ID, Agreement, Violation};
use crate::protocol::{self, Chunk, Command, CommandFlags, Errno, Export, REQUEST_SIZE, Request};

/// Maximum payload of a read or write in bytes, as advertised: the protocol's default.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// Limits of one connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum size of a part in bytes.
    pub segment: u32,
    /// Maximum number of requests in progress; further ones are left in the socket.
    pub in_flight: usize,
    /// Maximum number of bytes of unsent replies and of reads in flight. Further requests are left in the socket. At
    /// least twice the size of a part.
    pub unsent: usize,
    /// Maximum number of parts in flight at which another part of a request of several parts is issued. The queue is shared
    /// with other connections.
    pub parts: usize,
    /// Maximum size of a piece of a write-zeroes or trim request in bytes.
    pub piece: u32,
    /// Maximum number of these pieces in flight.
    pub pieces: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            segment: crate::MAX_SEGMENT,
            in_flight: 128,
            unsent: 4 << 20,
            parts: 32,
            piece: 1 << 20,
            pieces: 4,
        }
    }
}

/// Next step of the receiving side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Pass the next [`REQUEST_SIZE`] bytes to [`Transmission::request`].
    Request,
    /// Call [`Transmission::issue`] for this part, and submit it.
    Issue(Part),
    /// As `Issue`, once the part's buffer is filled with the next bytes received.
    Fill(Part),
    /// Drop this many bytes, and report them with [`Transmission::skipped`].
    Skip(u32),
    /// Wait for completions of parts, or until replies are sent.
    Wait,
    /// The client has disconnected: close the connection when [`Transmission::is_idle`] and all replies are sent.
    End,
}

/// A part of a request: an I/O of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub operation: Operation,
    /// Offset on the device in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// Body of a reply, after its header.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    None,
    /// Buffer of the part that has completed.
    Part,
    Whole(Vec<u8>),
}

/// Result of a completion.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No reply yet.
    Pending,
    /// The header of a reply was appended; this body follows.
    Reply(Body),
    /// The request needs this further part: submit it under this number.
    Submit(u32, Part),
    /// A simple read has failed after the beginning of its data was sent: close the connection.
    Broken,
}

#[derive(Debug)]
struct Pending {
    cookie: u64,
    /// Length in bytes.
    len: u32,
    /// Number of bytes of the request that have not been issued yet.
    unissued: u32,
    /// Number of parts that were issued and have not completed.
    outstanding: u32,
    error: Option<Errno>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Each part is a chunk of the reply.
    ChunkedRead,
    /// A single part is the data of the reply.
    SimpleRead,
    /// Parts are copied into a buffer.
    StagedRead(Staged),
    Flush,
    /// Write-zeroes and trim. `then_flush`: `true` if a flush follows, to make it durable.
    Range {
        then_flush: bool,
    },
    /// Other requests.
    Other {
        then_flush: bool,
    },
}

/// A simple read of several parts.
#[derive(Debug, Default)]
struct Staged {
    /// Offset of the window on the device in bytes.
    offset: u64,
    /// Data of the window; empty before its first part.
    window: Vec<u8>,
    /// Number of bytes of the window that have not been issued yet.
    unissued: u32,
    /// `true` once the header was sent: an error can no longer be reported.
    has_begun: bool,
}

#[derive(Debug, Clone, Copy)]
struct Issued {
    request: usize,
    offset: u64,
    len: u32,
    is_flush: bool,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Request,
    /// The remaining bytes of this read or write are to be issued, or this flush.
    Issue {
        request: usize,
        operation: Operation,
        offset: u64,
        remaining: u32,
    },
    Skip(u32),
    End,
}

/// A write-zeroes or trim request whose remaining bytes are to be issued.
#[derive(Debug, Clone, Copy)]
struct Range {
    request: usize,
    operation: Operation,
    offset: u64,
    remaining: u32,
}

/// The server's side of the transmission phase of one connection.
#[derive(Debug)]
pub struct Transmission {
    export: Arc<Export>,
    native_fua: bool,
    agreed: Agreement,
    limits: Limits,
    stage: Stage,
    requests: Slab<Pending>,
    parts: Slab<Issued>,
    /// Requests without payload that are executed in pieces, oldest first.
    ranges: VecDeque<Range>,
    /// Number of these pieces in flight.
    pieces: usize,
    /// Bytes of reads in flight, and of windows of staged reads.
    reading: usize,
    /// `true` while a read is sent in windows: no other reply may be sent.
    is_streaming: bool,
    is_ending: bool,
}

impl Transmission {
    /// Begins the phase. `native_fua`: `true` if the device can make single writes durable; otherwise, a write with FUA
    /// is followed by a flush.
    #[must_use]
    pub fn new(export: Arc<Export>, native_fua: bool, agreed: Agreement, limits: Limits) -> Self {
        Self {
            export,
            native_fua,
            agreed,
            limits,
            stage: Stage::Request,
            requests: Slab::new(),
            parts: Slab::new(),
            ranges: VecDeque::new(),
            pieces: 0,
            reading: 0,
            is_streaming: false,
            is_ending: false,
        }
    }

    /// Stops receiving requests. Those in progress are still replied to.
    pub fn end(&mut self) {
        self.is_ending = true;
        if matches!(self.stage, Stage::Request | Stage::Skip(_)) {
            self.stage = Stage::End;
        }
    }

    /// Drops the parts of requests that were not issued. Requests are dropped with their last part in flight.
    pub fn abort(&mut self) {
        self.is_ending = true;
        let ranges = std::mem::take(&mut self.ranges);
        let unfinished = ranges.into_iter().map(|range| range.request);
        let current = match self.stage {
            Stage::Issue { request, .. } => Some(request),
            _ => None,
        };
        self.stage = Stage::End;
        for request in unfinished.chain(current) {
            if self.requests[request].outstanding == 0 {
                self.remove(request);
            }
        }
    }

    /// Returns `true` if no request is in progress.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Number of parts that were issued and have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.parts.len()
    }

    /// Next step of the receiving side, while `unsent` bytes of replies are not sent.
    #[must_use]
    pub fn next(&self, unsent: usize) -> Next {
        if let Some(piece) = self.next_piece() {
            return Next::Issue(piece);
        }
        match self.stage {
            Stage::Request
                if self.is_streaming
                    || self.requests.len() >= self.limits.in_flight
                    || unsent >= self.limits.unsent =>
            {
                Next::Wait
            }
            Stage::Request => Next::Request,
            Stage::Skip(remaining) => Next::Skip(remaining),
            Stage::End => Next::End,
            Stage::Issue {
                request,
                operation,
                offset,
                remaining,
            } => {
                let part = Part {
                    operation,
                    offset,
                    len: self.part_len(request, operation, offset, remaining),
                };
                match operation {
                    _ if self.must_wait(request, &part, unsent) => Next::Wait,
                    Operation::Write { .. } => Next::Fill(part),
                    _ => Next::Issue(part),
                }
            }
        }
    }

    /// The next piece of a request without payload, if another piece may be in flight.
    fn next_piece(&self) -> Option<Part> {
        let range = self
            .ranges
            .front()
            .filter(|_| self.pieces < self.limits.pieces)?;
        Some(Part {
            operation: range.operation,
            offset: range.offset,
            len: self.within_blocks(range.offset, range.remaining, self.limits.piece),
        })
    }

    /// Returns `true` if a part has to wait for completions or for replies to be sent.
    fn must_wait(&self, request: usize, part: &Part, unsent: usize) -> bool {
        let pending = &self.requests[request];
        if pending.len > self.limits.segment && self.parts.len() >= self.limits.parts {
            return true;
        }
        if part.operation != Operation::Read {
            return false;
        }
        let needed = match &pending.kind {
            Kind::StagedRead(staged) if staged.unissued != 0 => return false,
            Kind::StagedRead(_) => {
                let is_alone = self.requests.len() == 1;
                if pending.outstanding != 0 || self.is_streamed(pending.len) && !is_alone {
                    return true;
                }
                self.window_len(pending)
            }
            _ => part.len,
        };
        let used = self.reading + unsent;
        used != 0 && used + needed as usize > self.limits.unsent
    }

    /// Returns `true` for a simple read that is sent in windows.
    const fn is_streamed(&self, len: u32) -> bool {
        len as usize > self.limits.unsent
    }

    /// Length of the next window of a staged read. While a window is being sent, the next one is read.
    fn window_len(&self, pending: &Pending) -> u32 {
        if self.is_streamed(pending.len) {
            pending.unissued.min((self.limits.unsent / 2) as u32)
        } else {
            pending.unissued
        }
    }

    /// Length of the next part of a read or a write; 0 for a flush.
    fn part_len(&self, request: usize, operation: Operation, offset: u64, remaining: u32) -> u32 {
        if !operation.has_buffer() {
            return remaining;
        }
        let pending = &self.requests[request];
        let remaining = match &pending.kind {
            Kind::StagedRead(staged) if staged.unissued != 0 => staged.unissued,
            Kind::StagedRead(_) => self.window_len(pending),
            _ => remaining,
        };
        self.within_blocks(offset, remaining, self.limits.segment)
    }

    /// Length of the first part of a range. Parts end at multiples of the preferred block size, so that at most the
    /// first and the last part need a read-modify-write.
    fn within_blocks(&self, offset: u64, remaining: u32, most: u32) -> u32 {
        if remaining <= most {
            return remaining;
        }
        let block = self.export.preferred_block.min(most);
        let over = (offset % u64::from(block)) as u32;
        most - over
    }

    /// Accepts a request, and appends the reply if it is not executed.
    ///
    /// # Errors
    ///
    /// The connection must be closed.
    pub fn request(
        &mut self,
        bytes: &[u8; REQUEST_SIZE],
        out: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let request = Request::parse(bytes).map_err(Violation::RequestMagic)?;
        if request.command == Command::Disconnect {
            self.end();
            return Ok(());
        }
        let verdict = self.check(&request);
        if request.command == Command::Write && (verdict.is_err() || request.len == 0) {
            self.stage = Stage::Skip(request.len);
            if request.len == 0 {
                self.stage = Stage::Request;
            }
        }
        match verdict {
            Err(error) => self.fail(request.cookie, error, out),
            Ok(()) => self.accept(&request, out),
        }
        Ok(())
    }

    /// Records that payload of a refused write was dropped.
    pub fn skipped(&mut self, count: u32) {
        if let Stage::Skip(remaining) = self.stage {
            let remaining = remaining.saturating_sub(count);
            self.stage = match remaining {
                0 => self.after_request(),
                _ => Stage::Skip(remaining),
            };
        }
    }

    fn after_request(&self) -> Stage {
        if self.is_ending {
            Stage::End
        } else {
            Stage::Request
        }
    }

    /// Validates a request, in the order of errors that are most useful to a client: flags, permission, range, length.
    fn check(&self, request: &Request) -> Result<(), Errno> {
        let export = &self.export;
        let flags = export.flags(self.agreed.structured);
        let mut allowed = CommandFlags::empty();
        allowed.set(
            CommandFlags::FUA,
            flags.contains(protocol::TransmissionFlags::SEND_FUA),
        );
        let is_in_range = request
            .offset
            .checked_add(request.len.into())
            .is_some_and(|end| end <= export.size);
        let modifies = matches!(
            request.command,
            Command::Write | Command::WriteZeroes | Command::Trim
        );
        match request.command {
            Command::Read => allowed.set(CommandFlags::DF, self.agreed.structured),
            Command::WriteZeroes => allowed |= CommandFlags::NO_HOLE,
            Command::BlockStatus => allowed |= CommandFlags::REQ_ONE,
            Command::Flush if !export.flush => return Err(Errno::Invalid),
            Command::Flush if request.offset != 0 || request.len != 0 => {
                return Err(Errno::Invalid);
            }
            Command::Unknown(_) => return Err(Errno::Invalid),
            _ => {}
        }
        if !allowed.contains(request.flags) {
            return Err(Errno::Invalid);
        }
        if modifies && export.read_only {
            return Err(Errno::Permission);
        }
        if !is_in_range {
            return Err(match request.command {
                Command::Write | Command::WriteZeroes => Errno::NoSpace,
                _ => Errno::Invalid,
            });
        }
        let unfragmented = request.flags.contains(CommandFlags::DF);
        match request.command {
            Command::Read if unfragmented && request.len > self.limits.segment => {
                Err(Errno::Overflow)
            }
            Command::Read if request.len > export.max_payload => Err(if self.agreed.structured {
                Errno::Overflow
            } else {
                Errno::Invalid
            }),
            Command::Write if request.len > export.max_payload => Err(Errno::Invalid),
            Command::BlockStatus if !self.agreed.allocation || request.len == 0 => {
                Err(Errno::Invalid)
            }
            _ => Ok(()),
        }
    }

    /// Appends the reply to a successful request without data.
    fn succeed(&self, cookie: u64, is_read: bool, out: &mut Vec<u8>) {
        if is_read && self.agreed.structured {
            protocol::emit_chunk(cookie, Chunk::None, true, out);
        } else {
            protocol::emit_simple(cookie, None, out);
        }
    }

    fn accept(&mut self, request: &Request, out: &mut Vec<u8>) {
        let &Request {
            flags,
            command,
            cookie,
            offset,
            len,
        } = request;
        let fua = flags.contains(CommandFlags::FUA);
        let (operation, kind) = match command {
            // A hint without effect: the server has no cache.
            Command::Cache => return self.succeed(cookie, false, out),
            Command::BlockStatus => {
                let chunk = Chunk::Allocated {
                    id: ALLOCATION_ID,
                    len,
                };
                return protocol::emit_chunk(cookie, chunk, true, out);
            }
            Command::Flush => (Operation::Flush, Kind::Flush),
            _ if len == 0 => return self.succeed(cookie, command == Command::Read, out),
            Command::Read if self.agreed.structured => (Operation::Read, Kind::ChunkedRead),
            Command::Read if len <= self.limits.segment => (Operation::Read, Kind::SimpleRead),
            Command::Read => (Operation::Read, Kind::StagedRead(Staged::default())),
            Command::Write => (
                Operation::Write {
                    fua: fua && self.native_fua,
                },
                Kind::Other {
                    then_flush: fua && !self.native_fua,
                },
            ),
            Command::WriteZeroes => (
                Operation::WriteZeroes {
                    fua: fua && self.native_fua,
                },
                Kind::Range {
                    then_flush: fua && !self.native_fua,
                },
            ),
            // A device may implement a discard by writing.
            Command::Trim => (Operation::Discard, Kind::Range { then_flush: fua }),
            // Handled above.
            Command::Disconnect | Command::Unknown(_) => return,
        };
        let is_range = matches!(kind, Kind::Range { .. });
        let is_staged = matches!(kind, Kind::StagedRead(_));
        let request = self.requests.insert(Pending {
            cookie,
            len,
            unissued: len,
            outstanding: 0,
            error: None,
            kind,
        });
        if is_range {
            self.ranges.push_back(Range {
                request,
                operation,
                offset,
                remaining: len,
            });
            return;
        }
        self.is_streaming = is_staged && self.is_streamed(len);
        self.stage = Stage::Issue {
            request,
            operation,
            offset,
            remaining: len,
        };
    }

    /// Issues the part that [`next`](Self::next) returned. Returns its number for [`complete`](Self::complete).
    ///
    /// # Panics
    ///
    /// If no part was returned.
    pub fn issue(&mut self) -> u32 {
        if let Some(piece) = self.next_piece() {
            return self.issue_piece(piece);
        }
        let Stage::Issue {
            request,
            operation,
            offset,
            remaining,
        } = self.stage
        else {
            panic!("a part is issued only when one is next");
        };
        let len = self.part_len(request, operation, offset, remaining);
        let window = self.window_len(&self.requests[request]);
        let pending = &mut self.requests[request];
        if let Kind::StagedRead(staged) = &mut pending.kind {
            if staged.unissued == 0 {
                staged.offset = offset;
                staged.window = vec![0; window as usize];
                staged.unissued = window;
                self.reading += staged.window.len();
            }
            staged.unissued -= len;
        } else if operation == Operation::Read {
            self.reading += len as usize;
        }
        pending.outstanding += 1;
        pending.unissued -= len;
        self.stage = if remaining == len {
            self.after_request()
        } else {
            Stage::Issue {
                request,
                operation,
                offset: offset + u64::from(len),
                remaining: remaining - len,
            }
        };
        let part = Part {
            operation,
            offset,
            len,
        };
        self.add_part(request, part)
    }

    fn issue_piece(&mut self, piece: Part) -> u32 {
        let len = piece.len;
        let range = &mut self.ranges[0];
        let request = range.request;
        range.offset += u64::from(len);
        range.remaining -= len;
        if range.remaining == 0 {
            self.ranges.pop_front();
        }
        let pending = &mut self.requests[request];
        pending.outstanding += 1;
        pending.unissued -= len;
        self.pieces += 1;
        self.add_part(request, piece)
    }

    fn add_part(&mut self, request: usize, part: Part) -> u32 {
        let part = Issued {
            request,
            offset: part.offset,
            len: part.len,
            is_flush: part.operation == Operation::Flush,
        };
        // The number of requests is limited, and their lengths limit the number of their parts: far below 2^32.
        self.parts.insert(part) as u32
    }

    /// Returns `true` for a part that makes completed writes durable.
    ///
    /// # Panics
    ///
    /// If no such part is outstanding.
    #[must_use]
    pub fn is_flush(&self, part: u32) -> bool {
        self.parts[part as usize].is_flush
    }

    /// Returns `true` for the flush of a flush command, but not for a flush that makes the bytes of another command
    /// durable.
    ///
    /// # Panics
    ///
    /// If no such part is outstanding.
    #[must_use]
    pub fn is_flush_command(&self, part: u32) -> bool {
        let request = self.parts[part as usize].request;
        matches!(self.requests[request].kind, Kind::Flush)
    }

    /// Handles the completion of a part; `data` is its buffer, for a successful read. Appends the header of the reply,
    /// if it is complete.
    ///
    /// # Panics
    ///
    /// If no such part is outstanding.
    pub fn complete(
        &mut self,
        part: u32,
        result: Result<(), IoError>,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Outcome {
        let part = self.parts.remove(part as usize);
        let Issued {
            request,
            offset,
            len,
            ..
        } = part;
        let pending = &mut self.requests[request];
        pending.outstanding -= 1;
        if result.is_err() {
            pending.error.get_or_insert(Errno::Io);
        }
        let cookie = pending.cookie;
        match &mut pending.kind {
            Kind::ChunkedRead => {
                self.reading -= len as usize;
                let is_last = pending.outstanding == 0 && pending.unissued == 0;
                let (chunk, body) = match result {
                    Ok(()) => (Chunk::Data { offset, len }, Body::Part),
                    Err(_) => {
                        let error = Errno::Io;
                        (Chunk::ErrorAt { error, offset }, Body::None)
                    }
                };
                protocol::emit_chunk(cookie, chunk, is_last, out);
                if is_last || self.is_dropped(request) {
                    self.remove(request);
                }
                return Outcome::Reply(body);
            }
            Kind::StagedRead(staged) => {
                if result.is_ok() {
                    let at = (offset - staged.offset) as usize;
                    staged.window[at..at + len as usize].copy_from_slice(&data[..len as usize]);
                }
                return self.complete_window(request, out);
            }
            Kind::SimpleRead => self.reading -= len as usize,
            // The flush that follows has no length.
            Kind::Range { .. } if len != 0 => {
                self.pieces -= 1;
                if result.is_err() && pending.unissued != 0 {
                    pending.unissued = 0;
                    self.ranges.retain(|range| range.request != request);
                }
            }
            Kind::Flush | Kind::Range { .. } | Kind::Other { .. } => {}
        }
        if pending.outstanding != 0 || pending.unissued != 0 {
            if self.is_dropped(request) {
                self.remove(request);
            }
            return Outcome::Pending;
        }
        if let Kind::Other { then_flush } | Kind::Range { then_flush } = &mut pending.kind
            && std::mem::take(then_flush)
            && pending.error.is_none()
        {
            pending.outstanding = 1;
            let part = Part {
                operation: Operation::Flush,
                offset: 0,
                len: 0,
            };
            return Outcome::Submit(self.add_part(request, part), part);
        }
        let pending = self.remove(request);
        if let Some(error) = pending.error {
            self.fail(cookie, error, out);
            return Outcome::Reply(Body::None);
        }
        protocol::emit_simple(cookie, None, out);
        Outcome::Reply(match pending.kind {
            Kind::SimpleRead => Body::Part,
            _ => Body::None,
        })
    }

    /// Sends the window of a staged read if all of its parts have completed.
    fn complete_window(&mut self, request: usize, out: &mut Vec<u8>) -> Outcome {
        let is_dropped = self.is_dropped(request);
        let pending = &mut self.requests[request];
        let Kind::StagedRead(staged) = &mut pending.kind else {
            return Outcome::Pending;
        };
        if pending.outstanding != 0 || staged.unissued != 0 {
            if is_dropped {
                self.remove(request);
            }
            return Outcome::Pending;
        }
        let cookie = pending.cookie;
        if let Some(error) = pending.error {
            let has_begun = staged.has_begun;
            // The rest is not read.
            if matches!(self.stage, Stage::Issue { request: it, .. } if it == request) {
                self.stage = self.after_request();
            }
            self.remove(request);
            if has_begun {
                return Outcome::Broken;
            }
            self.fail(cookie, error, out);
            return Outcome::Reply(Body::None);
        }
        if !std::mem::replace(&mut staged.has_begun, true) {
            protocol::emit_simple(cookie, None, out);
        }
        let window = std::mem::take(&mut staged.window);
        self.reading -= window.len();
        if pending.unissued == 0 || is_dropped {
            self.remove(request);
        }
        Outcome::Reply(Body::Whole(window))
    }

    fn fail(&self, cookie: u64, error: Errno, out: &mut Vec<u8>) {
        if self.agreed.structured {
            protocol::emit_chunk(cookie, Chunk::Error(error), true, out);
        } else {
            protocol::emit_simple(cookie, Some(error), out);
        }
    }

    /// Returns `true` for a request whose issued parts have completed, and whose other parts will not be issued because
    /// the connection was lost.
    fn is_dropped(&self, request: usize) -> bool {
        let is_issuing = || {
            matches!(self.stage, Stage::Issue { request: it, .. } if it == request)
                || self.ranges.iter().any(|range| range.request == request)
        };
        self.requests[request].outstanding == 0 && !is_issuing()
    }

    fn remove(&mut self, request: usize) -> Pending {
        let pending = self.requests.remove(request);
        if let Kind::StagedRead(staged) = &pending.kind {
            self.reading -= staged.window.len();
            self.is_streaming &= !self.is_streamed(pending.len);
        }
        pending
    }
}
