//! Client of other processes' agents.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::protocol::{
    AgentAddress, MAX_PAYLOAD, Operation, ReplyHeader, RequestHeader, Rights, SegmentEntry,
};
use super::{Deadline, Limits, within_scope};
use crate::error::{Error, Result};
use crate::runtime::{Key, MAX_MESSAGE, RuntimeDir, Socket};

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

    /// Returns `true` if the peer has exited, or has withdrawn what this connection was made for.
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
    /// Access method.
    pub backing: RemoteBacking,
}

/// Access method of a remote segment.
#[derive(Debug)]
pub enum RemoteBacking {
    /// By mapping this memfd from `offset`.
    Shared {
        /// The descriptor as received.
        memfd: OwnedFd,
        /// In bytes.
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
            // Handled before further ones are received: each may hold a descriptor.
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
                // A late reply would be taken for the reply to the next request.
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
