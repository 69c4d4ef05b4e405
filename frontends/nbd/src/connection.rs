//! One client: its socket, its protocol state, and the memory of its I/Os.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::DerefMut;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use volume::{BlockQueue, Completion, Io, IoError, Operation};

use crate::negotiation::{self, Negotiation, Security, Violation};
use crate::protocol::{Export, OPTION_HEADER_SIZE, REQUEST_SIZE};
use crate::sockets::{Socket, Stream};
use crate::transmission::{Body, Limits, Next, Outcome, Part, Transmission};

/// Size of the receive buffer in bytes: more than the longest option.
const INPUT: usize = 2 * (negotiation::MAX_OPTION + OPTION_HEADER_SIZE);

/// Maximum number of one client's requests handled before those of the next client.
const FAIRNESS: u32 = 256;

/// State shared by all connections.
#[derive(Debug)]
pub struct Shared {
    pub export: Arc<Export>,
    /// `true` if single writes can be made durable.
    pub native_fua: bool,
    /// TLS configuration, if TLS is used.
    pub tls: Option<Arc<ServerConfig>>,
    /// Timeout from the connection to the transmission phase.
    pub handshake_timeout: Duration,
    /// Timeout without a byte sent or received, within a request or with unsent replies.
    pub client_timeout: Duration,
    pub limits: Limits,
}

/// Reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The client has disconnected as the protocol requires.
    #[error("disconnected")]
    Disconnected,
    /// The server is shutting down.
    #[error("the server shuts down")]
    Shutdown,
    /// The connection was lost.
    #[error("connection lost: {0}")]
    Lost(#[from] io::Error),
    /// The client violated the protocol in a way for which there is no reply.
    #[error("protocol error: {0}")]
    Violation(#[from] Violation),
    /// The transmission phase was not reached in time.
    #[error("no export was chosen within {0:?}")]
    HandshakeTimeout(Duration),
    /// The client made no progress in time.
    #[error("the client has not sent the rest of a request, or not read a reply, for {0:?}")]
    Stalled(Duration),
    /// A part of a simple read has failed after its header was sent; the client can only be informed by closing the
    /// connection.
    #[error("a simple read has failed after the beginning of its data was sent")]
    BrokenRead,
}

/// Events of the socket to wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wants {
    /// Wait until the socket is readable.
    pub read: bool,
    /// Wait until the socket is writable.
    pub write: bool,
}

#[derive(Debug)]
enum Phase {
    Negotiation(Negotiation, negotiation::Next),
    Transmission(Transmission),
}

/// A connection of one client.
#[derive(Debug)]
pub struct Connection<B> {
    /// Description of the client for the log.
    pub peer: String,
    /// Events that the socket is registered for.
    pub registered: Option<Wants>,
    /// `true` once the socket was hung up, and unregistered.
    pub is_hung_up: bool,
    /// `true` if [`step`](Self::step) must be called.
    pub is_dirty: bool,
    /// `true` if the connection waits for memory or for the queue.
    pub is_starved: bool,
    /// `None` once the connection has ended; its I/Os may be outstanding.
    stream: Option<Stream>,
    is_readable: bool,
    phase: Phase,
    input: Input,
    output: Output<B>,
    /// Memory that is being filled with payload, and the number of bytes in it.
    filling: Option<(B, usize)>,
    /// I/Os that were issued while the queue was full.
    waiting: VecDeque<Io<B>>,
    /// `true` if a reply cannot be completed.
    is_broken: bool,
    /// Number of losses of writes that were reported to the client.
    told: u64,
    began: Instant,
    /// Number of bytes sent and received.
    moved: u64,
    /// Value of `moved` at the last check for progress, and the time of that check.
    seen: (u64, Instant),
}

/// Received bytes that have not been consumed yet.
#[derive(Debug)]
struct Input {
    bytes: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl Input {
    fn filled(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    fn consume(&mut self, count: usize) {
        self.begin += count;
        if self.begin == self.end {
            self.begin = 0;
            self.end = 0;
        }
    }

    /// Space for more bytes; empty only if the input has the length of a client's longest message.
    fn space(&mut self) -> &mut [u8] {
        if self.begin > 0 && self.bytes.len() - self.end < INPUT / 2 {
            self.bytes.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
        &mut self.bytes[self.end..]
    }
}

impl<B: DerefMut<Target = [u8]>> Connection<B> {
    /// Creates a connection for a client that was accepted.
    pub fn new(
        socket: Socket,
        peer: String,
        security: Security,
        shared: &Shared,
        now: Instant,
    ) -> Self {
        let mut output = Output::default();
        let negotiation = Negotiation::new(shared.export.clone(), security, output.headers());
        Self {
            peer,
            registered: None,
            is_hung_up: false,
            is_dirty: false,
            is_starved: false,
            stream: Some(Stream::Plain(socket)),
            is_readable: false,
            phase: Phase::Negotiation(negotiation, negotiation::Next::Message),
            input: Input {
                bytes: vec![0; INPUT].into(),
                begin: 0,
                end: 0,
            },
            output,
            filling: None,
            waiting: VecDeque::new(),
            is_broken: false,
            told: 0,
            began: now,
            moved: 0,
            seen: (0, now),
        }
    }

    /// The socket; `None` once the connection has ended.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(Stream::descriptor)
    }

    /// Number of I/Os in the device.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        match &self.phase {
            Phase::Transmission(it) => it.outstanding() - self.waiting.len(),
            Phase::Negotiation(..) => 0,
        }
    }

    /// Number of bytes sent and received so far.
    #[must_use]
    pub const fn moved(&self) -> u64 {
        self.moved
    }

    /// Records that the socket is readable.
    pub fn readable(&mut self) {
        self.is_readable = true;
    }

    /// Handles the completion of I/O number `part`; [`step`](Self::step) sends the reply.
    pub fn complete(&mut self, index: usize, part: u32, completion: Completion<B>) {
        let Phase::Transmission(transmission) = &mut self.phase else {
            return;
        };
        let Completion {
            mut result,
            buffer,
            losses,
            ..
        } = completion;
        if result == Err(IoError::LostWrites) {
            // In the device, only the first client of the queue that flushes gets this error; here, each client is
            // informed.
            result = Ok(());
        }
        if losses != self.told && transmission.is_flush(part) {
            // The flush after a command with FUA fails that command, and does not take the place of the client's next flush.
            if transmission.is_flush_command(part) {
                tracing::error!(peer = self.peer, "a flush fails: {}", IoError::LostWrites);
                self.told = losses;
            }
            result = Err(IoError::LostWrites);
        }
        let data = buffer.as_deref().unwrap_or(&[]);
        let outcome = transmission.complete(part, result, data, self.output.headers());
        match outcome {
            Outcome::Submit(number, part) => {
                self.waiting.push_back(io(index, number, part, None));
            }
            Outcome::Reply(Body::Part) => {
                if let Some(buffer) = buffer {
                    self.output.push_memory(buffer);
                }
            }
            Outcome::Reply(Body::Whole(bytes)) => self.output.push_bytes(bytes),
            Outcome::Reply(Body::None) | Outcome::Pending => {}
            Outcome::Broken => self.is_broken = true,
        }
        if self.stream.is_none() {
            self.output.clear();
        }
    }

    /// Ends the connection. I/Os in the device still complete.
    pub fn close(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            stream.say_goodbye();
        }
        self.output.clear();
        self.filling = None;
        self.registered = None;
        self.is_starved = false;
        if let Phase::Transmission(transmission) = &mut self.phase {
            transmission.abort();
            for io in self.waiting.drain(..) {
                let part = io.tag as u32;
                let closed = Err(IoError::Closed);
                let _ = transmission.complete(part, closed, &[], &mut Vec::new());
            }
        }
    }

    /// Returns `true` once the connection has ended and all of its I/Os have completed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stream.is_none() && self.outstanding() == 0
    }

    /// Stops receiving requests, for the shutdown of the server.
    pub fn end(&mut self) {
        match &mut self.phase {
            Phase::Transmission(transmission) => transmission.end(),
            Phase::Negotiation(..) => self.close(),
        }
    }

    /// Makes progress without blocking: receives and submits requests, sends replies.
    ///
    /// # Errors
    ///
    /// The connection must be closed for this reason.
    pub fn step<Q: BlockQueue<Buffer = B>>(
        &mut self,
        index: usize,
        queue: &mut Q,
        shared: &Shared,
    ) -> Result<(), Ended> {
        if self.stream.is_none() {
            return Ok(());
        }
        if self.is_broken {
            return Err(Ended::BrokenRead);
        }
        self.is_starved = false;
        self.advance(index, queue, shared)?;
        let waits = self.next() == Some(Next::Wait);
        self.send()?;
        if waits && self.next() != Some(Next::Wait) {
            // The input may contain further requests, for which the socket reports no event.
            self.is_dirty = true;
        }
        if let Phase::Transmission(transmission) = &self.phase
            && self.next() == Some(Next::End)
            && transmission.is_idle()
            && self.output.is_empty()
        {
            return Err(Ended::Disconnected);
        }
        Ok(())
    }

    /// Next step of the transmission phase; `None` before.
    fn next(&self) -> Option<Next> {
        match &self.phase {
            Phase::Transmission(transmission) => Some(transmission.next(self.output.len())),
            Phase::Negotiation(..) => None,
        }
    }

    fn negotiates(&self) -> bool {
        matches!(self.phase, Phase::Negotiation(..))
    }

    /// Sends replies. Returns `true` if all were sent.
    fn send(&mut self) -> Result<bool, Ended> {
        match &mut self.stream {
            Some(stream) => Ok(self.output.send(stream, &mut self.moved)?),
            None => Ok(true),
        }
    }

    fn advance<Q: BlockQueue<Buffer = B>>(
        &mut self,
        index: usize,
        queue: &mut Q,
        shared: &Shared,
    ) -> Result<(), Ended> {
        while let Some(io) = self.waiting.pop_front() {
            if let Err(io) = queue.submit(io) {
                self.waiting.push_front(io);
                self.is_starved = true;
                return Ok(());
            }
        }
        let mut requests = 0;
        while requests < FAIRNESS {
            let goes_on = if self.negotiates() {
                self.negotiate(shared, queue.losses().reported)?
            } else {
                requests += 1;
                self.transmit(index, queue)?
            };
            if !goes_on {
                return Ok(());
            }
        }
        // The next step sends the rest.
        self.is_dirty = true;
        Ok(())
    }

    /// Handles one message of the handshake. Returns `false` if no further progress is possible now.
    fn negotiate(&mut self, shared: &Shared, reported: u64) -> Result<bool, Ended> {
        if !self.send()? {
            return Ok(false);
        }
        let Phase::Negotiation(negotiation, next) = &mut self.phase else {
            return Ok(true);
        };
        match std::mem::replace(next, negotiation::Next::Message) {
            negotiation::Next::Message => {}
            negotiation::Next::Close => return Err(Ended::Disconnected),
            negotiation::Next::StartTls => {
                let (Some(stream), Some(config)) = (self.stream.take(), shared.tls.clone()) else {
                    return Err(Ended::Disconnected);
                };
                let stream = stream.start_tls(config, self.input.filled())?;
                self.input.consume(self.input.filled().len());
                self.stream = Some(stream);
                negotiation.encrypted();
            }
            negotiation::Next::Transmission(agreed) => {
                tracing::info!(peer = self.peer, ?agreed, "transmission begins");
                self.told = reported;
                self.phase = Phase::Transmission(Transmission::new(
                    shared.export.clone(),
                    shared.native_fua,
                    agreed,
                    shared.limits,
                ));
                return Ok(true);
            }
        }
        let (consumed, then) = negotiation.advance(self.input.filled(), self.output.headers())?;
        *next = then;
        if consumed == 0 {
            return match self.receive()? {
                Received::Some => Ok(true),
                Received::Nothing => Ok(false),
                Received::End => Err(Ended::Disconnected),
            };
        }
        self.input.consume(consumed);
        Ok(true)
    }

    /// Performs one step of the transmission phase. Returns `false` if no further progress is possible now.
    fn transmit<Q: BlockQueue<Buffer = B>>(
        &mut self,
        index: usize,
        queue: &mut Q,
    ) -> Result<bool, Ended> {
        let Phase::Transmission(transmission) = &mut self.phase else {
            return Ok(true);
        };
        match transmission.next(self.output.len()) {
            Next::Request => {
                if let Some(bytes) = self.input.filled().first_chunk() {
                    transmission.request(bytes, self.output.headers())?;
                    self.input.consume(REQUEST_SIZE);
                    return Ok(true);
                }
                self.receive_more()
            }
            Next::Skip(count) => {
                let skipped = self.input.filled().len().min(count as usize);
                if skipped == 0 {
                    return self.receive_more();
                }
                transmission.skipped(skipped as u32);
                self.input.consume(skipped);
                Ok(true)
            }
            Next::Issue(part) => {
                let buffer = if part.operation == Operation::Read {
                    let Some(buffer) = queue.buffer(part.len as usize) else {
                        self.is_starved = true;
                        return Ok(false);
                    };
                    Some(buffer)
                } else {
                    None
                };
                Ok(self.submit(index, part, buffer, queue))
            }
            Next::Fill(part) => {
                if self.filling.is_none() {
                    let Some(buffer) = queue.buffer(part.len as usize) else {
                        self.is_starved = true;
                        return Ok(false);
                    };
                    self.filling = Some((buffer, 0));
                }
                if !self.fill(part.len as usize)? {
                    return Ok(false);
                }
                let buffer = self.filling.take().map(|(buffer, _)| buffer);
                Ok(self.submit(index, part, buffer, queue))
            }
            Next::Wait | Next::End => Ok(false),
        }
    }

    /// Issues the next part. Returns `false` if the queue is full.
    fn submit<Q: BlockQueue<Buffer = B>>(
        &mut self,
        index: usize,
        part: Part,
        buffer: Option<B>,
        queue: &mut Q,
    ) -> bool {
        let Phase::Transmission(transmission) = &mut self.phase else {
            return false;
        };
        let number = transmission.issue();
        match queue.submit(io(index, number, part, buffer)) {
            Ok(()) => true,
            Err(io) => {
                self.waiting.push_back(io);
                self.is_starved = true;
                false
            }
        }
    }

    /// Receives payload into the memory of a write. Returns `true` once it is complete.
    fn fill(&mut self, len: usize) -> Result<bool, Ended> {
        loop {
            let Some((buffer, filled)) = &mut self.filling else {
                return Ok(false);
            };
            let memory = &mut buffer[*filled..len];
            let there = self.input.filled();
            let count = there.len().min(memory.len());
            memory[..count].copy_from_slice(&there[..count]);
            *filled += count;
            self.input.consume(count);
            if *filled == len {
                return Ok(true);
            }
            match self.receive()? {
                Received::Some => {}
                Received::Nothing => return Ok(false),
                Received::End => return Err(lost()),
            }
        }
    }

    fn receive_more(&mut self) -> Result<bool, Ended> {
        match self.receive()? {
            Received::Some => Ok(true),
            Received::Nothing => Ok(false),
            Received::End => {
                if self.next() != Some(Next::Request) || !self.input.filled().is_empty() {
                    return Err(lost());
                }
                // The client may have closed only its sending side.
                self.end();
                Ok(true)
            }
        }
    }

    /// Receives into the memory of a write, and the rest into the input.
    fn receive(&mut self) -> Result<Received, Ended> {
        let Some(stream) = &mut self.stream else {
            return Ok(Received::Nothing);
        };
        if !self.is_readable {
            return Ok(Received::Nothing);
        }
        let memory = match &mut self.filling {
            // The input is empty in this case.
            Some((buffer, filled)) => &mut buffer[*filled..],
            None => &mut [],
        };
        let expected = memory.len();
        let space = self.input.space();
        let most = expected + space.len();
        let mut parts = [IoSliceMut::new(memory), IoSliceMut::new(space)];
        let parts = if expected == 0 {
            &mut parts[1..]
        } else {
            &mut parts[..]
        };
        let received = match stream.receive(parts) {
            Ok(0) => return Ok(Received::End),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable = false;
                return Ok(Received::Nothing);
            }
            Err(error) => return Err(error.into()),
        };
        if received < most && !stream.is_buffered() {
            self.is_readable = false;
        }
        self.moved += received as u64;
        let direct = received.min(expected);
        if let Some((_, filled)) = &mut self.filling {
            *filled += direct;
        }
        self.input.end += received - direct;
        Ok(Received::Some)
    }

    /// Returns the events of the socket to wait for.
    #[must_use]
    pub fn wants(&self) -> Wants {
        let write = !self.output.is_empty() || self.stream.as_ref().is_some_and(Stream::holds_back);
        let read = match self.next() {
            None => self.output.is_empty(),
            Some(Next::Request | Next::Skip(_)) => true,
            Some(Next::Fill(_)) => self.filling.is_some(),
            Some(Next::Issue(_) | Next::Wait | Next::End) => false,
        };
        Wants { read, write }
    }

    /// Checks the timeouts of the client. Returns `true` if buffers of the queue were freed: a client that has not read
    /// since the last check must not block them for others.
    ///
    /// # Errors
    ///
    /// A timeout was exceeded.
    pub fn check(&mut self, shared: &Shared, now: Instant) -> Result<bool, Ended> {
        if self.negotiates() {
            let limit = shared.handshake_timeout;
            if now.duration_since(self.began) >= limit {
                return Err(Ended::HandshakeTimeout(limit));
            }
            return Ok(false);
        }
        // The client must act next: a request is incomplete, or there are replies to read.
        let is_inside = !self.input.filled().is_empty()
            || self.filling.is_some()
            || matches!(self.next(), Some(Next::Skip(_)));
        let wants = self.wants();
        let is_due = wants.write || (wants.read && is_inside);
        if !is_due || self.seen.0 != self.moved {
            self.seen = (self.moved, now);
        } else if now.duration_since(self.seen.1) >= shared.client_timeout {
            return Err(Ended::Stalled(shared.client_timeout));
        } else {
            return Ok(self.output.free_buffers());
        }
        Ok(false)
    }
}

enum Received {
    Some,
    Nothing,
    End,
}

fn lost() -> Ended {
    Ended::Lost(io::ErrorKind::UnexpectedEof.into())
}

fn io<B>(index: usize, number: u32, part: Part, buffer: Option<B>) -> Io<B> {
    Io {
        tag: (index as u64) << 32 | u64::from(number),
        operation: part.operation,
        offset: part.offset,
        len: part.len,
        buffer,
    }
}

/// Maximum number of parts per system call.
const BATCH: usize = 64;

/// Number of sent header bytes above which they are removed from the buffer.
const COMPACT: usize = 64 * 1024;

/// A queue of replies.
#[derive(Debug)]
pub struct Output<B> {
    headers: Vec<u8>,
    /// Number of sent header bytes that are still in the buffer.
    headers_sent: usize,
    /// Number of header bytes in `items`.
    headers_queued: usize,
    items: VecDeque<Item<B>>,
    /// Number of bytes of the first item that were sent.
    sent: usize,
    /// Size of the data in the queue in bytes. The first item counts in full until all of it has been sent, because its
    /// memory is in use.
    data: usize,
}

#[derive(Debug)]
enum Item<B> {
    /// A number of header bytes.
    Header(usize),
    /// Buffer of an I/O.
    Memory(B),
    Bytes(Vec<u8>),
}

impl<B> Default for Output<B> {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            headers_sent: 0,
            headers_queued: 0,
            items: VecDeque::new(),
            sent: 0,
            data: 0,
        }
    }
}

impl<B: DerefMut<Target = [u8]>> Output<B> {
    /// Buffer to append headers to.
    pub fn headers(&mut self) -> &mut Vec<u8> {
        &mut self.headers
    }

    /// Queues a buffer after all headers appended so far.
    pub fn push_memory(&mut self, memory: B) {
        self.queue_headers();
        self.data += memory.len();
        self.items.push_back(Item::Memory(memory));
    }

    /// Queues bytes after all headers appended so far.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        self.queue_headers();
        self.data += bytes.len();
        self.items.push_back(Item::Bytes(bytes));
    }

    fn queue_headers(&mut self) {
        let new = self.headers.len() - self.headers_queued;
        self.headers_queued = self.headers.len();
        if new == 0 {
            return;
        }
        if let Some(Item::Header(len)) = self.items.back_mut() {
            *len += new;
        } else {
            self.items.push_back(Item::Header(new));
        }
    }

    /// Returns `true` if all data has been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.headers_queued == self.headers.len()
    }

    /// Number of bytes that unsent replies occupy. Headers count twice: their buffer doubles when it grows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data + 2 * (self.headers.len() - self.headers_sent)
    }

    /// Moves data to separately allocated memory, and frees the buffers. Returns `true` if there were any.
    #[cold]
    fn free_buffers(&mut self) -> bool {
        let mut has_freed = false;
        for item in &mut self.items {
            if let Item::Memory(memory) = item {
                *item = Item::Bytes(memory.to_vec());
                has_freed = true;
            }
        }
        has_freed
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sends until all data has been sent (`true`) or the socket accepts no more. Adds the number of bytes sent to
    /// `count`.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub fn send(&mut self, stream: &mut Stream, count: &mut u64) -> io::Result<bool> {
        self.queue_headers();
        while !self.items.is_empty() {
            let taken = self.send_batch(stream);
            match taken {
                Ok(taken) => {
                    *count += taken as u64;
                    self.consume(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.headers.clear();
        self.headers.shrink_to(COMPACT);
        self.headers_queued = 0;
        self.headers_sent = 0;
        stream.flush()
    }

    fn send_batch(&self, stream: &mut Stream) -> io::Result<usize> {
        let mut parts = [IoSlice::new(&[]); BATCH];
        let mut count = 0;
        let mut header = self.headers_sent;
        let mut skip = self.sent;
        for (item, part) in self.items.iter().zip(&mut parts) {
            let bytes = match item {
                Item::Header(len) => {
                    // The sent bytes of the first item are before `headers_sent`.
                    let len = len - skip;
                    skip = 0;
                    header += len;
                    &self.headers[header - len..header]
                }
                Item::Memory(memory) => memory,
                Item::Bytes(bytes) => bytes,
            };
            *part = IoSlice::new(&bytes[skip..]);
            skip = 0;
            count += 1;
        }
        stream.send(&parts[..count])
    }

    fn consume(&mut self, mut taken: usize) {
        while let Some(item) = self.items.front() {
            let (len, is_header) = match item {
                Item::Header(len) => (*len, true),
                Item::Memory(memory) => (memory.len(), false),
                Item::Bytes(bytes) => (bytes.len(), false),
            };
            let now = taken.min(len - self.sent);
            self.sent += now;
            taken -= now;
            if is_header {
                self.headers_sent += now;
            }
            if self.sent < len {
                break;
            }
            if !is_header {
                self.data -= len;
            }
            self.sent = 0;
            self.items.pop_front();
        }
        if self.headers_sent > COMPACT {
            self.headers.drain(..self.headers_sent);
            self.headers_queued -= self.headers_sent;
            self.headers_sent = 0;
        }
    }
}
