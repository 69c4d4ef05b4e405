//! The transmission phase: converts requests to device I/Os, and their completions to replies, as a state machine without I/O.
//!
//! A request is split into parts of at most [`Limits::segment`] bytes, each an I/O of the device with a buffer of its
//! own, so that no request needs much memory at once. The driver calls [`Transmission::next`] and executes the
//! returned step: it passes a request, fills a part with payload, issues a part, or skips the payload of a refused
//! write. It reports completions, and sends the resulting replies.
//!
//! The reply to a structured read has a chunk for each part. A simple reply cannot report an error after its header,
//! so the parts of a simple read are first copied into one buffer ([`Body::Whole`]).

use std::sync::Arc;

use slab::Slab;

use crate::device::{Failed, Operation};
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
    /// Maximum number of bytes that simple reads of several parts may occupy together, in addition to one read that
    /// is always admitted.
    pub staged: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            segment: crate::MAX_SEGMENT,
            in_flight: 128,
            staged: 2 * MAX_PAYLOAD as usize,
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
    /// Wait for completions of parts.
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
}

#[derive(Debug)]
struct Pending {
    cookie: u64,
    /// Number of bytes of the request that were not issued yet.
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
    /// Parts are copied into one buffer.
    StagedRead { offset: u64, data: Vec<u8> },
    /// Other requests. `then_flush`: a flush follows, to make it durable.
    Other { then_flush: bool },
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
    /// The remaining bytes of this request are to be issued, with or without payload.
    Issue {
        request: usize,
        operation: Operation,
        offset: u64,
        remaining: u32,
    },
    Skip(u32),
    End,
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
    /// Bytes of staged reads in progress.
    staged: usize,
    is_ending: bool,
}

impl Transmission {
    /// Begins the phase. `native_fua`: the device can make single writes durable; otherwise a flush follows a write with FUA.
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
            staged: 0,
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

    /// Drops the request whose payload is being received, once its parts have completed: the rest of the payload will not arrive.
    pub fn abort(&mut self) {
        self.is_ending = true;
        if let Stage::Issue { request, .. } = self.stage
            && self.requests[request].outstanding == 0
        {
            self.remove(request);
        }
        self.stage = Stage::End;
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

    /// Next step of the receiving side.
    #[must_use]
    pub fn next(&self) -> Next {
        match self.stage {
            Stage::Request if self.requests.len() >= self.limits.in_flight => Next::Wait,
            Stage::Request if self.staged > self.limits.staged => Next::Wait,
            Stage::Request => Next::Request,
            Stage::Skip(remaining) => Next::Skip(remaining),
            Stage::End => Next::End,
            Stage::Issue {
                operation,
                offset,
                remaining,
                ..
            } => {
                let part = Part {
                    operation,
                    offset,
                    len: self.part_len(operation, offset, remaining),
                };
                match operation {
                    Operation::Write { .. } => Next::Fill(part),
                    _ => Next::Issue(part),
                }
            }
        }
    }

    /// Length of the next part. Parts end at multiples of the preferred block size, so that at most the first and the last need a
    /// read-modify-write.
    fn part_len(&self, operation: Operation, offset: u64, remaining: u32) -> u32 {
        let has_memory = matches!(operation, Operation::Read | Operation::Write { .. });
        if !has_memory || remaining <= self.limits.segment {
            return remaining;
        }
        let block = self.export.preferred_block.min(self.limits.segment);
        let over = (offset % u64::from(block)) as u32;
        self.limits.segment - over
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
            Err(error) => self.refuse(&request, error, out),
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

    fn refuse(&self, request: &Request, error: Errno, out: &mut Vec<u8>) {
        if self.agreed.structured {
            protocol::emit_chunk(request.cookie, Chunk::Error(error), true, out);
        } else {
            protocol::emit_simple(request.cookie, Some(error), out);
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
            Command::Flush => (Operation::Flush, Kind::Other { then_flush: false }),
            _ if len == 0 => return self.succeed(cookie, command == Command::Read, out),
            Command::Read if self.agreed.structured => (Operation::Read, Kind::ChunkedRead),
            Command::Read if len <= self.limits.segment => (Operation::Read, Kind::SimpleRead),
            Command::Read => {
                let data = vec![0; len as usize];
                self.staged += data.len();
                (Operation::Read, Kind::StagedRead { offset, data })
            }
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
                Kind::Other {
                    then_flush: fua && !self.native_fua,
                },
            ),
            // A device may implement a discard by writing.
            Command::Trim => (Operation::Discard, Kind::Other { then_flush: fua }),
            // Handled above.
            Command::Disconnect | Command::Unknown(_) => return,
        };
        let request = self.requests.insert(Pending {
            cookie,
            unissued: len,
            outstanding: 0,
            error: None,
            kind,
        });
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
    /// If there was no such part.
    pub fn issue(&mut self) -> u32 {
        let Stage::Issue {
            request,
            operation,
            offset,
            remaining,
        } = self.stage
        else {
            panic!("a part is issued only when one is next");
        };
        let len = self.part_len(operation, offset, remaining);
        let pending = &mut self.requests[request];
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

    fn add_part(&mut self, request: usize, part: Part) -> u32 {
        let part = Issued {
            request,
            offset: part.offset,
            len: part.len,
            is_flush: part.operation == Operation::Flush,
        };
        // The number of requests is limited, and that of a request's parts by its length: far below 2^32.
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

    /// Handles the completion of a part; `data` is its buffer, for a successful read. Appends the header of the
    /// reply, if there is one.
    ///
    /// # Panics
    ///
    /// If no such part is outstanding.
    pub fn complete(
        &mut self,
        part: u32,
        result: Result<(), Failed>,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Outcome {
        let Issued {
            request,
            offset,
            len,
            ..
        } = self.parts.remove(part as usize);
        let pending = &mut self.requests[request];
        pending.outstanding -= 1;
        if result.is_err() {
            pending.error.get_or_insert(Errno::Io);
        }
        let is_last = pending.outstanding == 0 && pending.unissued == 0;
        let cookie = pending.cookie;
        match &mut pending.kind {
            Kind::ChunkedRead => {
                let (chunk, body) = match result {
                    Ok(()) => (Chunk::Data { offset, len }, Body::Part),
                    Err(Failed) => {
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
            Kind::StagedRead {
                offset: first,
                data: whole,
            } => {
                let at = (offset - *first) as usize;
                if result.is_ok() {
                    whole[at..at + len as usize].copy_from_slice(&data[..len as usize]);
                }
            }
            Kind::SimpleRead | Kind::Other { .. } => {}
        }
        if !is_last {
            if self.is_dropped(request) {
                self.remove(request);
            }
            return Outcome::Pending;
        }
        let pending = &mut self.requests[request];
        if let Kind::Other { then_flush } = &mut pending.kind
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
        match (pending.error, pending.kind) {
            (Some(error), _) => {
                if self.agreed.structured {
                    protocol::emit_chunk(cookie, Chunk::Error(error), true, out);
                } else {
                    protocol::emit_simple(cookie, Some(error), out);
                }
                Outcome::Reply(Body::None)
            }
            (None, kind) => {
                protocol::emit_simple(cookie, None, out);
                Outcome::Reply(match kind {
                    Kind::SimpleRead => Body::Part,
                    Kind::StagedRead { data, .. } => Body::Whole(data),
                    Kind::ChunkedRead | Kind::Other { .. } => Body::None,
                })
            }
        }
    }

    /// Returns `true` for a request whose issued parts have completed and whose others will never be issued, because
    /// the connection was lost.
    fn is_dropped(&self, request: usize) -> bool {
        let is_issuing = matches!(self.stage, Stage::Issue { request: it, .. } if it == request);
        self.requests[request].outstanding == 0 && !is_issuing
    }

    fn remove(&mut self, request: usize) -> Pending {
        let pending = self.requests.remove(request);
        if let Kind::StagedRead { data, .. } = &pending.kind {
            self.staged -= data.len();
        }
        pending
    }
}
