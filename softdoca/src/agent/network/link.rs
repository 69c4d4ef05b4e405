//! Connections to processes on other machines.
//!
//! * A [`Link`] carries heartbeats as long as this process uses the other one. The kernel detects an unreachable
//!   machine; only a response shows that the process is not stopped.
//! * A [`Lane`] sends several requests to the memory of the other process over one connection; a [`NetworkRegion`]
//!   sends one at a time, for one thread after the other. Requests are sent and answered in order. Written data goes
//!   from the program's memory to the socket, and read data from the socket to the program's memory: both must remain
//!   unchanged until the reply.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::super::protocol::{Operation, ReplyHeader, RequestHeader, Rights};
use super::super::server::lock;
use super::super::{Deadline, Limits, within_scope};
use super::authentication::{Handshake, MAGIC, Purpose, Request, SERVER_ANSWER, SERVER_HELLO};
use super::listener::spawn;
use super::settings::{NetworkOffer, Settings, not_configured};
use super::stream::{MOST_PIECES, Piece, Stream, Unreached};
use super::tls;
use crate::error::{Error, Result};
use crate::log;
use crate::ring::EventFd;
use crate::runtime::Key;
use crate::verbs::RemoteKey;

/// Heartbeat interval.
const INTERVAL: Duration = Duration::from_millis(250);
/// Consecutive unanswered heartbeats after which the process is considered unreachable: 2.25 s, including the last one.
const MAX_UNANSWERED: u32 = 8;
/// Grace period after the end of a process, for data that it has sent over other connections to arrive.
const DELIVERY_GRACE: Duration = Duration::from_millis(100);
/// Time for a machine to answer a connection request before the attempt is repeated; the kernel would repeat it after
/// 1 s, and 2 s or 3 s.
const CONNECT: Duration = Duration::from_millis(500);
/// Time between attempts at all addresses.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for which a closed connection is kept, so that the peer can read the data sent last.
const LINGER: Duration = Duration::from_secs(2);

/// A process on another machine.
#[derive(Debug)]
pub(crate) struct Link {
    process: Key,
    gone: AtomicBool,
    /// Readable once the process has exited or is unreachable.
    bell: EventFd,
}

/// Links by process; links that are no longer used have ended.
static LINKS: Mutex<Option<HashMap<Key, Weak<Link>>>> = Mutex::new(None);

impl Link {
    /// Returns the link to the process of an offer; connects if it does not exist.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the process has ended, [`Error::TimeOut`] when its machine is unreachable,
    /// [`Error::Authentication`] when it has another key, [`Error::NotSupported`] when this process does not use the network.
    pub(crate) fn to(offer: &NetworkOffer) -> Result<Arc<Link>> {
        if let Some(link) = Link::known(offer.process) {
            return Ok(link);
        }
        let stream = open(offer, Purpose::Liveness)?;
        let link = Link::unwatched(offer.process)?;
        let watched = Arc::downgrade(&link);
        spawn("softdoca-link", move || watch(&stream, &watched))?;
        lock(&LINKS)
            .get_or_insert_default()
            .insert(offer.process, Arc::downgrade(&link));
        Ok(link)
    }

    /// A link that monitors no process.
    #[cfg(test)]
    pub(crate) fn example() -> Arc<Link> {
        Link::unwatched(Key::from_bytes([1; Key::SIZE])).expect("an eventfd")
    }

    pub(super) fn unwatched(process: Key) -> Result<Arc<Link>> {
        Ok(Arc::new(Link {
            process,
            gone: AtomicBool::new(false),
            bell: EventFd::new()?,
        }))
    }

    fn known(process: Key) -> Option<Arc<Link>> {
        let mut links = lock(&LINKS);
        let links = links.get_or_insert_default();
        links.retain(|_, link| link.strong_count() > 0);
        links
            .get(&process)
            .and_then(Weak::upgrade)
            .filter(|link| !link.is_gone())
    }

    pub(crate) fn process(&self) -> Key {
        self.process
    }

    /// Returns `true` if the process has ended, is stopped, or its machine is no longer reachable.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Returns a descriptor, owned by the caller, that is readable once the process has exited or is unreachable.
    pub(crate) fn bell(&self) -> Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.bell.as_fd(), 0)?)
    }
}

/// Sends heartbeats until the peer does not answer or the link is unused.
fn watch(stream: &Stream, link: &Weak<Link>) {
    let mut unanswered = 0;
    let ended = loop {
        let Some(link) = link.upgrade() else { return };
        drop(link);
        match heartbeat(stream) {
            Ok(true) => unanswered = 0,
            // Counted instead of timed, because this process itself may have been stopped.
            Ok(false) if unanswered < MAX_UNANSWERED => unanswered += 1,
            Ok(false) => break "does not answer",
            Err(_) => {
                // Data that it has sent before over other connections must arrive first.
                std::thread::sleep(DELIVERY_GRACE);
                break "has ended, or its machine is unreachable";
            }
        }
    };
    if let Some(link) = link.upgrade() {
        log::info!("a process on another machine {ended}");
        link.gone.store(true, Ordering::Release);
        link.bell.ring();
    }
}

/// Sends a heartbeat; returns `true` if the peer has sent anything within one interval.
fn heartbeat(stream: &Stream) -> Result<bool> {
    match stream.send_from(&[1]) {
        // The socket's buffers are full of heartbeats.
        Ok(_) | Err(Error::Again) => {}
        Err(error) => return Err(error),
    }
    let begin = Instant::now();
    let mut bytes = [0; 64];
    let mut answered = false;
    loop {
        match stream.receive_into(&mut bytes) {
            Ok(0) => return Err(Error::ConnectionReset),
            Ok(_) => answered = true,
            Err(Error::Again) => {
                let left = INTERVAL.saturating_sub(begin.elapsed());
                if left.is_zero() {
                    return Ok(answered);
                }
                match stream.wait_readable(Deadline::after(left)) {
                    Ok(()) | Err(Error::TimeOut) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Connects to the process of an offer at its first reachable address, and authenticates with the shared key.
///
/// # Errors
/// As [`Link::to`].
pub(super) fn open(offer: &NetworkOffer, purpose: Purpose) -> Result<Stream> {
    let settings = Settings::get()?.ok_or_else(not_configured)?;
    open_with(settings, Limits::get()?.request, offer, purpose)
}

/// As [`open`], within `limit`. Addresses of a machine that does not answer, or to which there is no route, are tried
/// again until then, so a shorter outage is not an error.
pub(super) fn open_with(
    settings: &Settings,
    limit: Duration,
    offer: &NetworkOffer,
    purpose: Purpose,
) -> Result<Stream> {
    let deadline = Deadline::after(limit);
    let request = Request {
        purpose,
        process: offer.process,
        key: offer.key,
    };
    let mut addresses: Vec<_> = offer.addresses().collect();
    loop {
        let mut round = Round::default();
        let mut others = addresses.len() as u32;
        for address in std::mem::take(&mut addresses) {
            settings.check(address.ip())?;
            let part = deadline.left() / others;
            others -= 1;
            let missed = match Stream::connect(address, Deadline::after(part.min(CONNECT))) {
                Ok(stream) => {
                    match set_up(stream, settings, address.ip(), offer, &request, part) {
                        // The port now belongs to another process, or the address to another machine.
                        Err(
                            error
                            @ (Error::NotFound | Error::NotConnected | Error::ConnectionReset),
                        ) => {
                            round.is_refused = true;
                            error
                        }
                        // The peer may have accepted the request, which must not be repeated.
                        Err(Error::TimeOut) => {
                            round.has_timed_out = true;
                            Error::TimeOut
                        }
                        done => return done,
                    }
                }
                Err(Unreached::Failed(error)) => return Err(error),
                Err(unreached) => {
                    match unreached {
                        Unreached::NoAnswer => round.is_lost = true,
                        Unreached::NoRoute => round.is_unreachable = true,
                        _ => round.is_refused = true,
                    }
                    addresses.push(address);
                    unreached.into()
                }
            };
            log::info!("a peer is unreachable at {address}: {missed:?}");
        }
        if !round.is_worth_another() || deadline.left() <= PAUSE {
            return Err(round.error());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Results of trying all addresses of a process once.
#[derive(Default)]
struct Round {
    /// A machine has answered that the process does not exist.
    is_refused: bool,
    /// A machine has not responded.
    is_lost: bool,
    /// A machine is unreachable because there is no route to it.
    is_unreachable: bool,
    /// A machine has accepted a connection, and then not responded in time.
    has_timed_out: bool,
}

impl Round {
    /// Addresses without a route are usual if a process offers several: an answer from another address that the process
    /// has ended is final.
    fn is_worth_another(&self) -> bool {
        self.is_lost || self.is_unreachable && !self.is_refused
    }

    fn error(&self) -> Error {
        if self.has_timed_out || self.is_worth_another() {
            Error::TimeOut
        } else {
            Error::NotFound
        }
    }
}

/// Encrypts a connection if configured, and authenticates this process.
fn set_up(
    stream: Stream,
    settings: &Settings,
    address: IpAddr,
    offer: &NetworkOffer,
    request: &Request,
    limit: Duration,
) -> Result<Stream> {
    if offer.tls && settings.tls.is_none() {
        return Err(needs_tls(&stream));
    }
    let deadline = Deadline::after(limit);
    let stream = encrypted(stream, settings, address, deadline)?;
    authenticate(&stream, settings, request, deadline)?;
    Ok(stream)
}

/// Adds TLS to a connection to a server at this address, if configured.
pub(super) fn encrypted(
    stream: Stream,
    settings: &Settings,
    address: IpAddr,
    deadline: Deadline,
) -> Result<Stream> {
    match &settings.tls {
        None => Ok(stream),
        Some(tls) => tls
            .connect(stream, address, deadline)
            .map_err(|refused| refused.explained()),
    }
}

/// Also informs the peer that only one side uses TLS.
fn needs_tls(stream: &Stream) -> Error {
    let _ = stream.send_from(&MAGIC);
    stream.shut_down_output();
    Error::Authentication.because(tls::not_configured())
}

pub(super) fn authenticate(
    stream: &Stream,
    settings: &Settings,
    request: &Request,
    deadline: Deadline,
) -> Result<()> {
    let mut hello = [0; SERVER_HELLO];
    stream.receive_all(&mut hello, deadline)?;
    let mut handshake = Handshake::new(settings.key.as_ref(), &hello)?;
    stream.send_all(&handshake.client_hello(request)?, deadline)?;
    let mut answer = [0; SERVER_ANSWER];
    let answered = stream.receive_all(&mut answer, deadline);
    let refused = || {
        Error::Authentication.because(
            "a peer on another machine does not have the key of this process: the file of SOFTDOCA_KEY_FILE has the same content on all \
             machines",
        )
    };
    match answered.and_then(|()| handshake.conclude(&answer)) {
        // Servers close the connections of unauthenticated peers without an answer.
        Err(Error::ConnectionReset | Error::Authentication) => Err(refused()),
        result => result,
    }
}

/// Closes a connection after delivery of the data sent last. If a socket with unread data were closed immediately, the
/// kernel would discard data that the peer has not received.
pub(crate) fn close_after_delivery(stream: Stream) {
    static LINGERING: OnceLock<std::sync::mpsc::Sender<(Instant, Stream)>> = OnceLock::new();
    stream.shut_down_output();
    let mut rest = [0; 4096];
    loop {
        match stream.receive_into(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(Error::Again) => break,
            Err(_) => return,
        }
    }
    let sender = LINGERING.get_or_init(|| {
        let (sender, receiver) = std::sync::mpsc::channel();
        // Without the thread, connections sent to it are closed immediately.
        let _ = spawn("softdoca-linger", move || linger(&receiver));
        sender
    });
    let _ = sender.send((Instant::now() + LINGER, stream));
}

fn linger(receiver: &std::sync::mpsc::Receiver<(Instant, Stream)>) {
    let mut streams: Vec<(Instant, Stream)> = Vec::new();
    let mut rest = [0; 4096];
    loop {
        let next = if streams.is_empty() {
            receiver.recv().ok()
        } else {
            receiver.recv_timeout(Duration::from_millis(10)).ok()
        };
        streams.extend(next);
        let now = Instant::now();
        streams.retain(|(until, stream)| {
            let ended = loop {
                match stream.receive_into(&mut rest) {
                    Ok(0) => break true,
                    Ok(_) => {}
                    Err(Error::Again) => break false,
                    Err(_) => break true,
                }
            };
            !ended && now < *until
        });
    }
}

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
    /// For each outstanding request, the number of pieces of memory for the payload of its reply.
    expected: VecDeque<u32>,
    /// Memory for the payloads of these replies: one entry per piece, in the order of the requests.
    places: VecDeque<Piece>,
    /// Received replies that have not been handled.
    input: Box<[u8; BATCH * ReplyHeader::SIZE]>,
    from: usize,
    to: usize,
    /// Number of missing bytes of the first reply's payload, once its header has been read.
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

    /// The process at the other end of the connection.
    pub(crate) fn process(&self) -> Key {
        self.link.process()
    }

    /// Queues a write of the pieces, in order, to `addr`.
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

    /// Queues a read of `len` bytes at `addr` into the pieces, whose total size must be `len`.
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

    /// Sends as much as fits; returns `true` if all output has been sent.
    ///
    /// # Errors
    /// [`Error::ConnectionReset`] if the process has exited, or the memory to send is unmapped.
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

    /// Records that the socket is readable or closed.
    pub(crate) fn set_readable(&mut self) {
        self.readable = true;
    }

    /// The next reply: the value of an atomic operation, or the error of the request.
    ///
    /// # Errors
    /// The outer error is [`Error::ConnectionReset`], if the process has exited or violates the protocol; outstanding
    /// requests fail.
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

    /// Receives the rest of a payload and the headers after it, but never the beginning of the next payload, which has
    /// a different destination.
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

    /// Performs an atomic operation and waits for its reply.
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

    /// A single read.
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

    /// Writes and waits for the reply.
    fn write_now(&mut self, key: Key, addr: u64, from: Piece, deadline: Deadline) -> Result<()> {
        // SAFETY: the caller waits here.
        unsafe { self.write(key, addr, std::iter::once(from)) };
        self.finish(deadline).map(|_| ())
    }

    /// Returns `true` if the process has exited or is unreachable.
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
    /// For accesses other than those through an RDMA connection's own lane; `None` once the lane has failed.
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
    /// [`Error::NotFound`] if the owner has exited or withdrawn the memory, [`Error::NotPermitted`],
    /// [`Error::TimeOut`].
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

    /// Copies `len` bytes at `from` to `addr`; they have been written when this returns.
    ///
    /// # Errors
    /// As [`NetworkRegion::read`].
    pub(crate) fn write(&self, addr: u64, from: *const u8, len: usize) -> Result<()> {
        self.alone(len, |lane, deadline| {
            let piece = mapped(from.cast_mut(), len);
            lane.write_now(self.offer.key, addr, piece, deadline)
        })
    }

    /// Adds `value` to the u64 at `addr`; returns the old value.
    ///
    /// # Errors
    /// As [`NetworkRegion::read`].
    pub(crate) fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        self.alone(8, |lane, deadline| {
            let operation = Operation::FetchAdd;
            lane.atomic(operation, self.offer.key, addr, [value, 0], deadline)
        })
    }

    /// Replaces the u64 at `addr` by `new` if it is `expected`; returns the old value.
    ///
    /// # Errors
    /// As [`NetworkRegion::read`].
    pub(crate) fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        self.alone(8, |lane, deadline| {
            let operation = Operation::CompareSwap;
            lane.atomic(operation, self.offer.key, addr, [expected, new], deadline)
        })
    }

    /// Returns `true` if the owner has exited or is unreachable.
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
                // A late reply would be mistaken for the reply to the next request, and written to memory that the
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
