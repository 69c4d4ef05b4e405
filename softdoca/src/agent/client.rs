//! Asking the agent of another process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::address::AgentAddress;
use super::export::Rights;
use super::protocol::{MAX_PAYLOAD, Operation, ReplyHeader, RequestHeader, SegmentEntry};
use crate::error::{Error, Result};
use crate::runtime::{Key, MAX_MESSAGE, RuntimeDir, Socket};

/// How long a living agent may take: it never waits for its program, but the machine may be busy. One whose process is stopped does not
/// answer, and whoever asks it is a thread that can do nothing else meanwhile: it must be over before others give that thread up,
/// which for the storage programs is after 4 to 5 s.
const PATIENCE: Duration = Duration::from_secs(3);

/// An open connection to an agent. The peer's death or withdrawal shows as its end.
#[derive(Debug)]
pub struct AgentConnection {
    socket: Socket,
}

impl AgentConnection {
    fn open(address: &AgentAddress) -> Result<AgentConnection> {
        address.check()?;
        let (directory, name) = (RuntimeDir::get()?, address.socket_name());
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Socket::connect(&directory, &name) {
                Ok(socket) => return Ok(AgentConnection { socket }),
                // Its queue of connections is full.
                Err(Error::Again) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(Error::Again) => return Err(Error::TimeOut),
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

    /// Whether the peer has gone, or has withdrawn what this connection was made for.
    pub fn is_closed(&self) -> bool {
        self.socket.is_closed()
    }

    fn send(&self, header: &RequestHeader, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        let mut message = header.encode().to_vec();
        message.extend_from_slice(payload);
        self.patiently(Socket::wait_writable, |socket| socket.send(&message, fds))
    }

    /// The value and the payload of the reply.
    fn receive(&self, fds: &mut Vec<OwnedFd>) -> Result<(u64, Vec<u8>)> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let len = self
            .patiently(Socket::wait_readable, |socket| {
                socket.receive(&mut buffer, fds)
            })?
            .ok_or(Error::ConnectionReset)?;
        let header = ReplyHeader::decode(&buffer[..len])?;
        header.result?;
        buffer.truncate(len);
        buffer.drain(..ReplyHeader::SIZE);
        Ok((header.value, buffer))
    }

    fn patiently<T>(
        &self,
        wait: impl Fn(&Socket, Duration) -> Result<()>,
        mut action: impl FnMut(&Socket) -> Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match action(&self.socket) {
                Err(Error::Again) => wait(
                    &self.socket,
                    deadline.saturating_duration_since(Instant::now()),
                )?,
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
/// [`Error::NotFound`] when the process or the service has gone, [`Error::NotSupported`] for another machine's address,
/// [`Error::TimeOut`], and whatever the service answers.
pub fn request(
    address: &AgentAddress,
    key: Key,
    payload: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(AgentConnection, Vec<u8>, Vec<OwnedFd>)> {
    if payload.len() > MAX_PAYLOAD {
        return Err(Error::TooBig);
    }
    let connection = AgentConnection::open(address)?;
    let header = RequestHeader {
        operation: Operation::Call,
        key,
        addr: 0,
        len: payload.len() as u64,
        operands: [0; 2],
    };
    connection.send(&header, payload, fds)?;
    let mut received = Vec::new();
    let (_, answer) = connection.receive(&mut received)?;
    Ok((connection, answer, received))
}

/// A segment of an export, as its exporter describes it. Not checked yet.
#[derive(Debug)]
pub struct RemoteSegment {
    /// First address in the exporter.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// How to reach it.
    pub backing: RemoteBacking,
}

/// How a remote segment is reached.
#[derive(Debug)]
pub enum RemoteBacking {
    /// By mapping this memfd from `offset`.
    Shared {
        /// As received.
        memfd: OwnedFd,
        /// In bytes.
        offset: u64,
    },
    /// Through [`RemoteRegion`].
    Private,
}

/// Memory of another process that only its agent reaches.
#[derive(Debug)]
pub struct RemoteRegion {
    key: Key,
    connection: Mutex<AgentConnection>,
}

impl RemoteRegion {
    /// More segments than a sane process makes of one range.
    const MAX_SEGMENTS: u64 = 65_536;

    /// Asks for the segments of the export `key`, to use them with these rights.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the process has gone or has withdrawn the export, [`Error::NotPermitted`] when it gives other rights.
    pub fn open(
        address: &AgentAddress,
        key: Key,
        rights: Rights,
    ) -> Result<(RemoteRegion, Vec<RemoteSegment>)> {
        let connection = Mutex::new(AgentConnection::open(address)?);
        let region = RemoteRegion { key, connection };
        let mut segments = Vec::new();
        loop {
            let (count, part) = region.exchange(|connection| {
                region.describe(connection, segments.len() as u64, rights)
            })?;
            if count > RemoteRegion::MAX_SEGMENTS {
                return Err(Error::TooBig);
            }
            let is_last = part.is_empty();
            segments.extend(part);
            if segments.len() as u64 >= count || is_last {
                return Ok((region, segments));
            }
        }
    }

    /// How many segments there are, and some of them from index `from` on.
    fn describe(
        &self,
        connection: &AgentConnection,
        from: u64,
        rights: Rights,
    ) -> Result<(u64, Vec<RemoteSegment>)> {
        let header = self.header(Operation::Describe, from, 0, [rights.bits(), 0]);
        connection.send(&header, &[], &[])?;
        let mut fds = Vec::new();
        let (count, payload) = connection.receive(&mut fds)?;
        let entries = payload.chunks(SegmentEntry::SIZE);
        let segments = entries.map(|entry| segment(SegmentEntry::decode(entry)?, &fds));
        Ok((count, segments.collect::<Result<_>>()?))
    }

    /// The word that says whether the export stands: a memfd, the offset in it, and the value of the word while it does. Not checked yet.
    ///
    /// # Errors
    /// As [`RemoteRegion::open`].
    pub fn validity(&self) -> Result<(OwnedFd, u32, u32)> {
        self.exchange(|connection| {
            let header = self.header(Operation::Validity, 0, 0, [0; 2]);
            connection.send(&header, &[], &[])?;
            let mut fds = Vec::new();
            let (place, _) = connection.receive(&mut fds)?;
            let memfd = fds.pop().ok_or(Error::Unexpected)?;
            Ok((memfd, (place >> 32) as u32, place as u32))
        })
    }

    /// Whether the exporter has ended, or nothing of it is exported any more.
    pub fn is_closed(&self) -> bool {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connection.is_closed()
    }

    /// Copies `len` bytes at the exporter's address `addr` to `to`.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the exporter has ended or withdrawn the export, [`Error::NotPermitted`], [`Error::InvalidValue`] outside
    /// the export or where the exporter has unmapped its memory, [`Error::TimeOut`] when it is stopped.
    ///
    /// # Safety
    /// The `len` bytes at `to` are the caller's to write.
    pub unsafe fn read(&self, addr: u64, to: *mut u8, len: usize) -> Result<()> {
        self.exchange(|connection| {
            for (offset, chunk) in chunks(len) {
                let from = addr.wrapping_add(offset as u64);
                connection.send(
                    &self.header(Operation::Read, from, chunk as u64, [0; 2]),
                    &[],
                    &[],
                )?;
                let mut head = [0; ReplyHeader::SIZE];
                // SAFETY: `offset + chunk` is at most `len`, and the caller vouches for `len` bytes.
                let received = connection.patiently(Socket::wait_readable, |socket| unsafe {
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
        self.exchange(|connection| {
            for (offset, chunk) in chunks(len) {
                let to = addr.wrapping_add(offset as u64);
                let header = self
                    .header(Operation::Write, to, chunk as u64, [0; 2])
                    .encode();
                connection.patiently(Socket::wait_writable, |socket| {
                    socket.send_memory(&header, from.wrapping_add(offset), chunk)
                })?;
                connection.receive(&mut Vec::new())?;
            }
            Ok(())
        })
    }

    /// Adds `value` to the u64 at `addr`; answers the old value.
    ///
    /// # Errors
    /// As [`RemoteRegion::read`]; [`Error::InvalidValue`] for an address that is no multiple of 8.
    pub fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        self.atomic(Operation::FetchAdd, addr, [value, 0])
    }

    /// Replaces the u64 at `addr` by `new` if it is `expected`; answers the old value.
    ///
    /// # Errors
    /// As [`RemoteRegion::fetch_add`].
    pub fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        self.atomic(Operation::CompareSwap, addr, [expected, new])
    }

    fn atomic(&self, operation: Operation, addr: u64, operands: [u64; 2]) -> Result<u64> {
        self.exchange(|connection| {
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

    /// Uses the connection alone. Its end is the end of the export: whether the agent still answered that the key is unknown, or
    /// went with its last export, is chance.
    fn exchange<T>(&self, action: impl FnOnce(&AgentConnection) -> Result<T>) -> Result<T> {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        action(&connection).map_err(|error| match error {
            Error::ConnectionReset => Error::NotFound,
            Error::TimeOut => {
                // The answer may still come, and would be taken for that to the next request.
                connection.socket.shut_down();
                Error::TimeOut
            }
            error => error,
        })
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

/// Offsets and lengths that cut `len` bytes into messages.
fn chunks(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len)
        .step_by(MAX_PAYLOAD)
        .map(move |offset| (offset, MAX_PAYLOAD.min(len - offset)))
}
