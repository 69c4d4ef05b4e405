//! The agent: a thread of an exporting process that serves its peers while the program is busy.
//!
//! It provides the shared memory of exports, copies memory that cannot be shared, performs atomics on it, and passes
//! calls (RDMA connects) to published services. It runs while there are exports or services, on one socket in the
//! runtime directory, which it removes afterwards. Peers on other machines use TCP instead, if enabled by the
//! environment: `network`.
//!
//! This file contains the client of other processes' agents ([`AgentConnection`], [`RemoteRegion`]), and the `Limits`
//! of all agents. Memory that is not mapped in this process is copied by its exporter's agent while the thread that
//! executes the task waits. An agent may be slow, and that thread has other work: a `WaitScope` around a call of
//! progress, or around a submission outside such a call, bounds the total wait in it, for any number of tasks, segments
//! and agents.

mod network;
mod protocol;
mod server;

#[cfg(all(test, feature = "tls"))]
pub(crate) use network::Authority;
#[cfg(test)]
pub(crate) use network::stream_pair;
pub(crate) use network::{
    Deliver, Lane, Link, Memory, NetworkGuard, NetworkOffer, NetworkRegion, Piece, Route, Stream,
    call, check as check_network, close_after_delivery, expose, nic_for_connections, nic_of,
    receive_within, requires_verbs, send_within, serve, uses_network,
};
pub use protocol::{AgentAddress, Backing, Export, MAX_PAYLOAD, Rights, Segment, SharedWord};
pub(crate) use protocol::{again as request_again, examples as example_requests};
pub use server::{
    ConnectionId, ExportGuard, Handler, OnClose, PublishGuard, Reply, Request, export, publish,
};

use std::cell::Cell;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::runtime::{Key, MAX_MESSAGE, RuntimeDir, Socket};
use protocol::{Operation, ReplyHeader, RequestHeader, SegmentEntry};

/// Limits set by the environment. `SEMANTICS.md` has the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Timeout of an import of memory including all its requests, or of a call of a service.
    pub request: Duration,
    /// Total timeout of a task's copies by agents, plus a time per byte: see [`COPY_RATE`].
    pub copy: Duration,
    /// Maximum number of segments of an import, each of which may be a mapping.
    pub segments: u64,
    /// Maximum size of an import in bytes.
    pub import_bytes: u64,
    /// Maximum number of connections to this process's agent.
    pub connections: usize,
    /// Maximum number of connections to the agent from one process.
    pub connections_per_process: usize,
    /// Time after which a connection without a granted request is closed.
    pub idle: Duration,
}

/// Minimum copy rate of an agent in bytes per second, beyond each task's base timeout: a thousandth of the rate on an
/// idle machine.
const COPY_RATE: u64 = 64 << 20;

const REQUEST: &str = "SOFTDOCA_AGENT_TIMEOUT_MS";
const COPY: &str = "SOFTDOCA_COPY_TIMEOUT_MS";
const SEGMENTS: &str = "SOFTDOCA_IMPORT_SEGMENTS";
const IMPORT_MIB: &str = "SOFTDOCA_IMPORT_MIB";
const CONNECTIONS: &str = "SOFTDOCA_AGENT_CONNECTIONS";
const PER_PROCESS: &str = "SOFTDOCA_AGENT_CONNECTIONS_PER_PROCESS";
const IDLE: &str = "SOFTDOCA_AGENT_IDLE_MS";

impl Limits {
    /// Limits of this process: read once, on first use.
    ///
    /// # Errors
    /// [`Error::BadConfig`] if a variable is not a number in its range.
    pub(crate) fn get() -> Result<&'static Limits> {
        static LIMITS: OnceLock<Result<Limits>> = OnceLock::new();
        LIMITS
            .get_or_init(|| {
                // "Unlimited" exceeds any number of connections.
                let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile)
                    .current
                    .unwrap_or(u64::MAX);
                Limits::read(|name| std::env::var_os(name), descriptors)
            })
            .as_ref()
            .map_err(|error| *error)
    }

    /// `variable` looks up a variable; `descriptors` is the process's descriptor limit.
    fn read(variable: impl Fn(&str) -> Option<OsString>, descriptors: u64) -> Result<Limits> {
        let number = |name: &str, default: u64, least: u64, most: u64| {
            match variable(name) {
            None => Ok(default),
            Some(text) => text
                .to_str()
                .and_then(|text| text.parse().ok())
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| {
                    Error::BadConfig.because(format_args!(
                        "expected a number of {least} to {most} in the environment variable {name}, got {text:?}"
                    ))
                }),
        }
        };
        let milliseconds =
            |name, default| number(name, default, 10, 600_000).map(Duration::from_millis);
        let connections = number(CONNECTIONS, (descriptors / 2).clamp(4, 4096), 1, 65_536)?;
        let per_process = number(PER_PROCESS, (connections / 2).max(1), 1, 65_536)?;
        Ok(Limits {
            request: milliseconds(REQUEST, 3_000)?,
            copy: milliseconds(COPY, 2_000)?,
            segments: number(SEGMENTS, 1_024, 1, 32_768)?,
            import_bytes: number(IMPORT_MIB, 1 << 20, 1, 1 << 27)? << 20,
            connections: connections as usize,
            connections_per_process: per_process as usize,
            idle: milliseconds(IDLE, 5_000)?,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::agent) struct Deadline(Instant);

impl Deadline {
    fn after(time: Duration) -> Deadline {
        Deadline(Instant::now() + time)
    }

    /// Time left; 0 after the deadline.
    fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Total wait in a scope after which no further task is started in it.
const ENOUGH: Duration = Duration::from_millis(50);
/// Minimum time for a copy, even if another agent has used up the scope's.
const LEAST: Duration = Duration::from_millis(100);

/// Time that the copies of a scope have waited.
#[derive(Clone, Copy)]
struct Waited {
    deadline: Deadline,
    time: Duration,
}

/// A scope is open.
const OPEN: u8 = 1;
/// The copies of the scope have waited for at least [`ENOUGH`].
const HELD_UP: u8 = 2;
/// The scope belongs to a submission outside of a progress call.
const LONE: u8 = 4;

thread_local! {
    /// Checked for every event and submission: a byte, separate from the state that only copies need.
    static FLAGS: Cell<u8> = const { Cell::new(0) };
    /// State of the open scope, once one of its copies has used an agent.
    static WAITED: Cell<Option<Waited>> = const { Cell::new(None) };
    /// `true` if [`WAITED`] is set; checked by scopes, as it is small.
    static HAS_WAITED: Cell<bool> = const { Cell::new(false) };
}

/// Bounds the waits of this thread for agents until it is dropped.
#[must_use = "it ends when it is dropped"]
pub(crate) struct WaitScope {
    /// State to restore; `None` for a scope nested in another one, whose limit it shares.
    outer: Option<(u8, Option<Waited>)>,
}

impl WaitScope {
    /// Opens a scope for a call of progress. A call inside a callback has its own limit.
    #[inline]
    pub(crate) fn of_progress() -> WaitScope {
        WaitScope {
            outer: Some((FLAGS.replace(OPEN), take_waited())),
        }
    }

    /// Opens a scope for a submission: inside a call of progress it shares that call's limit.
    #[inline]
    pub(crate) fn of_submission() -> WaitScope {
        if FLAGS.get() & OPEN != 0 {
            return WaitScope { outer: None };
        }
        WaitScope {
            outer: Some((FLAGS.replace(OPEN | LONE), take_waited())),
        }
    }
}

impl Drop for WaitScope {
    #[inline]
    fn drop(&mut self) {
        if let Some((flags, waited)) = self.outer {
            FLAGS.set(flags);
            if waited.is_some() || HAS_WAITED.get() {
                set_waited(waited);
            }
        }
    }
}

#[inline]
fn take_waited() -> Option<Waited> {
    if !HAS_WAITED.get() {
        return None;
    }
    HAS_WAITED.set(false);
    WAITED.take()
}

#[cold]
fn set_waited(waited: Option<Waited>) {
    HAS_WAITED.set(waited.is_some());
    WAITED.set(waited);
}

/// Returns `true` if waits for agents have taken so long that the remaining work is deferred to the next call of
/// progress.
#[inline(always)]
pub(crate) fn is_held_up() -> bool {
    FLAGS.get() & HELD_UP != 0
}

/// Returns `true` if this thread is in a call of progress, which continues after the current operation.
#[inline]
pub(crate) fn is_in_progress() -> bool {
    FLAGS.get() & (OPEN | LONE) == OPEN
}

/// Waits for an agent until a copy of `len` bytes has completed or timed out; `action` gets the deadline.
fn within_scope<T>(len: usize, action: impl FnOnce(Deadline) -> Result<T>) -> Result<T> {
    let limits = Limits::get()?;
    let (begin, before) = (Instant::now(), WAITED.get());
    let Deadline(from) = before.map_or(Deadline(begin + limits.copy), |waited| waited.deadline);
    let by_size = Duration::from_micros(len as u64 * 1_000_000 / COPY_RATE);
    let deadline = Deadline((from + by_size).max(begin + LEAST));
    let result = action(deadline);
    if FLAGS.get() & OPEN != 0 {
        let time = before.map_or(Duration::ZERO, |waited| waited.time) + begin.elapsed();
        set_waited(Some(Waited { deadline, time }));
        if time >= ENOUGH {
            FLAGS.set(FLAGS.get() | HELD_UP);
        }
    }
    result
}

/// An open connection to an agent. It is closed when the peer exits or withdraws the export.
#[derive(Debug)]
pub struct AgentConnection {
    socket: Socket,
}

impl AgentConnection {
    fn open(address: &AgentAddress, deadline: Deadline) -> Result<AgentConnection> {
        address.check()?;
        let (directory, name) = (RuntimeDir::get()?, address.socket_name());
        loop {
            match Socket::connect(&directory, &name) {
                Ok(socket) => return Ok(AgentConnection { socket }),
                // The listener's backlog is full.
                Err(Error::Again) if !deadline.left().is_zero() => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(Error::Again) => return Err(gave_up("takes no connection")),
                Err(Error::NotFound) => {
                    return Err(Error::NotFound.because(format_args!(
                        "no process answers for this descriptor in {}: it has ended or withdrawn it, or it runs with another {}",
                        directory.path().display(),
                        RuntimeDir::VARIABLE
                    )));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns `true` if the peer has exited, or has withdrawn the export or service for which this connection was
    /// made.
    pub fn is_closed(&self) -> bool {
        self.socket.is_closed()
    }

    fn until(&self, deadline: Deadline) -> Exchange<'_> {
        Exchange {
            socket: &self.socket,
            deadline,
        }
    }
}

/// A timeout error that names the missing action of the agent.
fn gave_up(what: &str) -> Error {
    Error::TimeOut.because(format_args!(
        "the agent of another process {what} in time: the process is stopped, overloaded or hostile"
    ))
}

/// Requests and replies over one connection, with a shared deadline.
struct Exchange<'a> {
    socket: &'a Socket,
    deadline: Deadline,
}

impl Exchange<'_> {
    fn send(&self, header: &RequestHeader, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        let mut message = header.encode().to_vec();
        message.extend_from_slice(payload);
        match self.until_deadline(Socket::wait_writable, |socket| socket.send(&message, fds)) {
            // An agent at its connection limit reports that before it closes the connection.
            Err(Error::ConnectionReset) => self
                .receive(&mut Vec::new())
                .map_or_else(Err, |_| Err(Error::ConnectionReset)),
            sent => sent,
        }
    }

    /// Receives a reply; returns its value and payload.
    fn receive(&self, fds: &mut Vec<OwnedFd>) -> Result<(u64, Vec<u8>)> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let len = self
            .until_deadline(Socket::wait_readable, |socket| {
                match socket.receive(&mut buffer, fds) {
                    // Reported once if a peer exited with unread data; messages it sent earlier can still be received.
                    Err(Error::ConnectionReset) => socket.receive(&mut buffer, fds),
                    received => received,
                }
            })?
            .ok_or(Error::ConnectionReset)?;
        let header = ReplyHeader::decode(&buffer[..len])?;
        header.result?;
        buffer.truncate(len);
        buffer.drain(..ReplyHeader::SIZE);
        Ok((header.value, buffer))
    }

    fn until_deadline<T>(
        &self,
        wait: impl Fn(&Socket, Duration) -> Result<()>,
        mut action: impl FnMut(&Socket) -> Result<T>,
    ) -> Result<T> {
        loop {
            // Checked per message: a peer may send useless messages repeatedly.
            let left = self.deadline.left();
            match action(self.socket) {
                Err(Error::Again) if left.is_zero() => return Err(gave_up("does not answer")),
                Err(Error::Again) => match wait(self.socket, left) {
                    Err(Error::TimeOut) => return Err(gave_up("does not answer")),
                    waited => waited?,
                },
                other => return other,
            }
        }
    }
}

impl AsFd for AgentConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Calls the service `key` of another process (or this one, from any thread but the agent's own) and waits for its answer.
///
/// # Errors
/// [`Error::NotFound`] if the process or the service no longer exists, [`Error::NotSupported`] for another machine's
/// address, [`Error::TimeOut`], and the service's own errors.
pub fn request(
    address: &AgentAddress,
    key: Key,
    payload: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(AgentConnection, Vec<u8>, Vec<OwnedFd>)> {
    if payload.len() > MAX_PAYLOAD {
        return Err(Error::TooBig);
    }
    let deadline = Deadline::after(Limits::get()?.request);
    let connection = AgentConnection::open(address, deadline)?;
    let header = RequestHeader {
        operation: Operation::Call,
        key,
        addr: 0,
        len: payload.len() as u64,
        operands: [0; 2],
    };
    let exchange = connection.until(deadline);
    exchange.send(&header, payload, fds)?;
    let mut received = Vec::new();
    let (_, answer) = exchange.receive(&mut received)?;
    Ok((connection, answer, received))
}

/// A segment of an export as described by its exporter, unvalidated.
#[derive(Debug)]
pub struct RemoteSegment {
    /// First address in the exporter.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    pub backing: RemoteBacking,
}

/// Access method of a remote segment.
#[derive(Debug)]
pub enum RemoteBacking {
    /// By mapping this memfd from `offset`.
    Shared {
        /// The descriptor as received.
        memfd: OwnedFd,
        /// In bytes: expected and found.
        offset: u64,
    },
    /// Through [`RemoteRegion`].
    Private,
}

/// Memory of another process that is accessed through its agent.
#[derive(Debug)]
pub struct RemoteRegion {
    key: Key,
    connection: AgentConnection,
    /// `true` while a thread waits for a reply. Not a mutex around the connection, because waiting threads have the
    /// same deadline as the request.
    busy: Mutex<bool>,
    freed: Condvar,
}

impl RemoteRegion {
    /// Requests the segments of the export `key` with these rights and passes each to `take`. The deadline for the
    /// whole description is 3 s (`SOFTDOCA_AGENT_TIMEOUT_MS`).
    ///
    /// # Errors
    /// [`Error::NotFound`] if the process has exited or has withdrawn the export, [`Error::NotPermitted`] if it does
    /// not grant the rights, [`Error::TooBig`] for more than 1024 segments (`SOFTDOCA_IMPORT_SEGMENTS`),
    /// [`Error::TimeOut`], and the errors of `take`.
    pub fn open(
        address: &AgentAddress,
        key: Key,
        rights: Rights,
        mut take: impl FnMut(RemoteSegment) -> Result<()>,
    ) -> Result<RemoteRegion> {
        let limits = Limits::get()?;
        let deadline = Deadline::after(limits.request);
        let region = RemoteRegion {
            key,
            connection: AgentConnection::open(address, deadline)?,
            busy: Mutex::new(false),
            freed: Condvar::new(),
        };
        let mut taken = 0;
        loop {
            let (count, part) = region.exchange_until(deadline, |connection| {
                region.describe(connection, taken, rights)
            })?;
            taken += part.len() as u64;
            if count.max(taken) > limits.segments {
                return Err(Error::TooBig.because(format_args!(
                    "expected memory in at most {} segments, got {}: raise SOFTDOCA_IMPORT_SEGMENTS if the exporter is trusted",
                    limits.segments,
                    count.max(taken)
                )));
            }
            let is_last = part.is_empty();
            // Segments are handled before further ones are received: each may hold a descriptor.
            part.into_iter().try_for_each(&mut take)?;
            if taken >= count || is_last {
                return Ok(region);
            }
        }
    }

    /// Requests the number of segments, and some of them from index `from` on.
    fn describe(
        &self,
        connection: &Exchange<'_>,
        from: u64,
        rights: Rights,
    ) -> Result<(u64, Vec<RemoteSegment>)> {
        let header = self.header(Operation::Describe, from, 0, [rights.bits(), 0]);
        connection.send(&header, &[], &[])?;
        let mut fds = Vec::new();
        let (count, payload) = connection.receive(&mut fds)?;
        let entries = payload.chunks(SegmentEntry::SIZE);
        if entries.len() > SegmentEntry::PER_MESSAGE {
            return Err(Error::Unexpected.because(format_args!(
                "expected at most {} segments in one message of an agent, got {}",
                SegmentEntry::PER_MESSAGE,
                entries.len()
            )));
        }
        let segments = entries.map(|entry| segment(SegmentEntry::decode(entry)?, &fds));
        Ok((count, segments.collect::<Result<_>>()?))
    }

    /// Requests the export's validity word: a memfd, the offset in it, and the word's value while the export is valid.
    /// Unvalidated.
    ///
    /// # Errors
    /// As [`RemoteRegion::open`].
    pub fn validity(&self) -> Result<(OwnedFd, u32, u32)> {
        self.exchange(0, |connection| {
            let header = self.header(Operation::Validity, 0, 0, [0; 2]);
            connection.send(&header, &[], &[])?;
            let mut fds = Vec::new();
            let (place, _) = connection.receive(&mut fds)?;
            let memfd = fds.pop().ok_or(Error::Unexpected)?;
            Ok((memfd, (place >> 32) as u32, place as u32))
        })
    }

    /// Returns `true` if the exporter has exited or has no exports left.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Copies `len` bytes at the exporter's address `addr` to `to`.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the exporter has exited or withdrawn the export, [`Error::NotPermitted`],
    /// [`Error::InvalidValue`] outside the export or if the exporter has unmapped its memory, [`Error::TimeOut`] if it
    /// is stopped.
    ///
    /// # Safety
    /// `to` must be valid for writing `len` bytes.
    pub unsafe fn read(&self, addr: u64, to: *mut u8, len: usize) -> Result<()> {
        self.exchange(len, |connection| {
            for (offset, chunk) in chunks(len) {
                let from = addr.wrapping_add(offset as u64);
                connection.send(
                    &self.header(Operation::Read, from, chunk as u64, [0; 2]),
                    &[],
                    &[],
                )?;
                let mut head = [0; ReplyHeader::SIZE];
                // SAFETY: `offset + chunk` is at most `len`, for which the caller guarantees `to`.
                let received = connection
                    .until_deadline(Socket::wait_readable, |socket| unsafe {
                        socket.receive_memory(&mut head, to.add(offset), chunk)
                    })?;
                let received = received.ok_or(Error::ConnectionReset)?;
                ReplyHeader::decode(&head[..received.min(ReplyHeader::SIZE)])?.result?;
                if received != ReplyHeader::SIZE + chunk {
                    connection.socket.shut_down();
                    return Err(Error::Unexpected);
                }
            }
            Ok(())
        })
    }

    /// Copies `len` bytes from `from` to the exporter's address `addr`.
    ///
    /// # Errors
    /// As [`RemoteRegion::read`].
    pub fn write(&self, addr: u64, from: *const u8, len: usize) -> Result<()> {
        self.exchange(len, |connection| {
            for (offset, chunk) in chunks(len) {
                let to = addr.wrapping_add(offset as u64);
                let header = self
                    .header(Operation::Write, to, chunk as u64, [0; 2])
                    .encode();
                connection.until_deadline(Socket::wait_writable, |socket| {
                    socket.send_memory(&header, from.wrapping_add(offset), chunk)
                })?;
                connection.receive(&mut Vec::new())?;
            }
            Ok(())
        })
    }

    /// Adds `value` to the u64 at `addr`; returns the old value.
    ///
    /// # Errors
    /// As [`RemoteRegion::read`]; [`Error::InvalidValue`] for an address that is not a multiple of 8.
    pub fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        self.atomic(Operation::FetchAdd, addr, [value, 0])
    }

    /// Replaces the u64 at `addr` by `new` if it is `expected`; returns the old value.
    ///
    /// # Errors
    /// As [`RemoteRegion::fetch_add`].
    pub fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        self.atomic(Operation::CompareSwap, addr, [expected, new])
    }

    fn atomic(&self, operation: Operation, addr: u64, operands: [u64; 2]) -> Result<u64> {
        self.exchange(8, |connection| {
            connection.send(&self.header(operation, addr, 8, operands), &[], &[])?;
            connection.receive(&mut Vec::new()).map(|(value, _)| value)
        })
    }

    fn header(
        &self,
        operation: Operation,
        addr: u64,
        len: u64,
        operands: [u64; 2],
    ) -> RequestHeader {
        RequestHeader {
            operation,
            key: self.key,
            addr,
            len,
            operands,
        }
    }

    /// As [`exchange_until`](Self::exchange_until), with the deadline of a copy of `len` bytes.
    fn exchange<T>(
        &self,
        len: usize,
        action: impl FnOnce(&Exchange<'_>) -> Result<T>,
    ) -> Result<T> {
        within_scope(len, |deadline| self.exchange_until(deadline, action))
    }

    /// Runs one exchange with exclusive use of the connection. A closed connection means that the export was withdrawn;
    /// depending on timing, the agent may have answered before that the key is unknown.
    fn exchange_until<T>(
        &self,
        deadline: Deadline,
        action: impl FnOnce(&Exchange<'_>) -> Result<T>,
    ) -> Result<T> {
        let turn = self.acquire(deadline)?;
        let result = action(&self.connection.until(deadline));
        drop(turn);
        result.map_err(|error| match error {
            Error::ConnectionReset => Error::NotFound,
            Error::TimeOut => {
                // A late reply would be mistaken for the reply to the next request.
                self.connection.socket.shut_down();
                Error::TimeOut
            }
            error => error,
        })
    }

    /// Waits until no other thread uses the connection.
    fn acquire(&self, deadline: Deadline) -> Result<Turn<'_>> {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut busy, _) = self
            .freed
            .wait_timeout_while(busy, deadline.left(), |busy| *busy)
            .unwrap_or_else(PoisonError::into_inner);
        if *busy {
            return Err(gave_up("does not answer another thread"));
        }
        *busy = true;
        Ok(Turn(self))
    }
}

/// Exclusive ownership of the connection by this thread.
struct Turn<'a>(&'a RemoteRegion);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.busy.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.freed.notify_one();
    }
}

fn segment(entry: SegmentEntry, fds: &[OwnedFd]) -> Result<RemoteSegment> {
    let backing = match entry.memfd {
        None => RemoteBacking::Private,
        Some(index) => {
            let memfd = fds
                .get(index as usize)
                .ok_or(Error::InvalidValue)?
                .try_clone();
            let memfd = memfd.map_err(|_| Error::OperatingSystem)?;
            RemoteBacking::Shared {
                memfd,
                offset: entry.offset,
            }
        }
    };
    Ok(RemoteSegment {
        addr: entry.addr,
        len: entry.len,
        backing,
    })
}

/// Offsets and lengths that split `len` bytes into messages.
fn chunks(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len)
        .step_by(MAX_PAYLOAD)
        .map(move |offset| (offset, MAX_PAYLOAD.min(len - offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_program() {
        let of = |descriptors| Limits::read(|_| None, descriptors).unwrap();
        let connections = |limits: Limits| (limits.connections, limits.connections_per_process);
        assert_eq!(connections(of(256)), (128, 64));
        assert_eq!(connections(of(1024)), (512, 256));
        assert_eq!(connections(of(u64::MAX)), (4096, 2048));
        assert_eq!(connections(of(0)), (4, 2));
    }

    #[test]
    fn variables_are_numbers_in_a_range() {
        let with = |name: &'static str, value: &'static str| {
            Limits::read(move |asked| (asked == name).then(|| value.into()), 1024)
        };
        let limits = with(REQUEST, "250").unwrap();
        assert_eq!(limits.request, Duration::from_millis(250));
        assert_eq!(with(IMPORT_MIB, "3").unwrap().import_bytes, 3 << 20);
        for (name, value) in [
            (REQUEST, "9"),
            (REQUEST, "600001"),
            (SEGMENTS, "0"),
            (CONNECTIONS, "many"),
            (COPY, ""),
            (IMPORT_MIB, "18446744073709551616"),
        ] {
            assert_eq!(with(name, value), Err(Error::BadConfig), "{name}={value}");
        }
    }

    fn deadline() -> Deadline {
        within_scope(0, Ok).unwrap()
    }

    #[test]
    fn copies_in_a_scope_share_a_deadline() {
        let progress = WaitScope::of_progress();
        let first = deadline();
        assert_eq!(deadline(), first);
        {
            let _submission = WaitScope::of_submission();
            assert_eq!(deadline(), first, "inside of progress");
            let _callback = WaitScope::of_progress();
            assert!(deadline() > first, "progress of a callback");
        }
        assert_eq!(deadline(), first);
        drop(progress);
        assert_ne!(deadline(), deadline(), "each by itself");
    }

    #[test]
    fn slow_copy_fails_only_its_own_call() {
        let progress = WaitScope::of_progress();
        let slow = |_: Deadline| {
            std::thread::sleep(ENOUGH);
            Ok(())
        };
        assert!(!is_held_up());
        within_scope(0, slow).unwrap();
        assert!(is_held_up());
        {
            let _callback = WaitScope::of_progress();
            assert!(!is_held_up());
        }
        assert!(is_held_up());
        drop(progress);
        assert!(!is_held_up());
        within_scope(0, slow).unwrap();
        assert!(!is_held_up(), "no scope");
    }

    #[test]
    fn deadline_grows_with_the_size_of_a_copy() {
        let _progress = WaitScope::of_progress();
        let first = deadline();
        let large = within_scope(COPY_RATE as usize, Ok).unwrap();
        assert_eq!(large.0 - first.0, Duration::from_secs(1));
    }
}
