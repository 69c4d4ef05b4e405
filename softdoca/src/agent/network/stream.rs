//! A non-blocking TCP socket that detects an unreachable peer, and moves bytes between the network and memory in one
//! copy.

#[cfg(feature = "tls")]
use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};

use super::super::Deadline;
#[cfg(feature = "tls")]
use super::records::Records;
use crate::error::{Error, Result};

/// The kernel ends the connection if the peer acknowledges nothing for this long.
const USER_TIMEOUT: Duration = Duration::from_millis(2_500);
/// An idle connection is probed at this interval.
const PROBE: Duration = Duration::from_secs(1);
/// Maximum number of pieces of one system call.
pub(super) const MOST_PIECES: usize = 64;

/// Consecutive bytes of memory that are sent or received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
    /// The bytes are selected by a peer's request, and the program may have unmapped them: only the kernel, which
    /// checks addresses, reads or writes them. If they are unmapped, the call fails, and the process does not crash.
    #[cfg_attr(
        not(feature = "tls"),
        expect(dead_code, reason = "without TLS the kernel copies all")
    )]
    pub(crate) exported: bool,
}

// SAFETY: the value is only an address; the code that creates it guarantees the validity of the memory.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    pub(super) const NONE: Piece = Piece {
        start: std::ptr::null_mut(),
        len: 0,
        exported: false,
    };

    pub(super) fn of(bytes: &[u8]) -> Piece {
        Piece {
            start: bytes.as_ptr().cast_mut(),
            len: bytes.len(),
            exported: false,
        }
    }

    pub(super) fn of_mut(bytes: &mut [u8]) -> Piece {
        Piece {
            start: bytes.as_mut_ptr(),
            len: bytes.len(),
            exported: false,
        }
    }

    /// The bytes from `from` on.
    pub(super) fn skip(self, from: usize) -> Piece {
        Piece {
            start: self.start.wrapping_add(from),
            len: self.len.saturating_sub(from),
            ..self
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    fd: OwnedFd,
    /// Present with TLS. Calls do not overlap.
    #[cfg(feature = "tls")]
    pub(super) records: Option<RefCell<Box<Records>>>,
}

impl Stream {
    /// Connects to `address`.
    ///
    /// # Errors
    /// As [`Unreached`].
    pub(super) fn connect(
        address: SocketAddr,
        deadline: Deadline,
    ) -> std::result::Result<Stream, Unreached> {
        let stream = Stream::of(socket_for(address)?);
        match rustix::net::connect(&stream.fd, &address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => {
                stream.wait(PollFlags::OUT, deadline)?;
                let connected = sockopt::socket_error(&stream.fd).map_err(Error::from)?;
                connected.map_err(unreached)?;
            }
            Err(errno) => return Err(unreached(errno)),
        }
        stream.tune()?;
        Ok(stream)
    }

    fn of(fd: OwnedFd) -> Stream {
        Stream {
            fd,
            #[cfg(feature = "tls")]
            records: None,
        }
    }

    /// The same stream, with all bytes in these records.
    #[cfg(feature = "tls")]
    pub(super) fn encrypted(self, records: Records) -> Stream {
        Stream {
            fd: self.fd,
            records: Some(RefCell::new(Box::new(records))),
        }
    }

    /// Takes over an accepted socket.
    pub(super) fn accepted(fd: OwnedFd) -> Result<Stream> {
        let stream = Stream::of(fd);
        stream.tune()?;
        Ok(stream)
    }

    fn tune(&self) -> Result<()> {
        sockopt::set_tcp_nodelay(&self.fd, true)?;
        sockopt::set_socket_keepalive(&self.fd, true)?;
        sockopt::set_tcp_keepidle(&self.fd, PROBE)?;
        sockopt::set_tcp_keepintvl(&self.fd, PROBE)?;
        sockopt::set_tcp_user_timeout(&self.fd, USER_TIMEOUT.as_millis() as u32)?;
        Ok(())
    }

    /// Sends as much as fits; returns the number of accepted bytes. With TLS, [`Stream::flush`] sends the remaining
    /// ones.
    ///
    /// # Errors
    /// [`Error::Again`] if no byte fits, [`Error::InvalidValue`] for unmapped memory if no byte was sent,
    /// [`Error::ConnectionReset`] if the peer has disconnected.
    pub(super) fn send(&self, pieces: &[Piece]) -> Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(records) = &self.records {
            return records.borrow_mut().send(self.fd.as_fd(), pieces);
        }
        send_to_socket(self.fd.as_fd(), pieces)
    }

    /// Sends accepted bytes that have not been sent; returns `true` if none are left.
    ///
    /// # Errors
    /// [`Error::ConnectionReset`] if the peer has disconnected.
    pub(crate) fn flush(&self) -> Result<bool> {
        #[cfg(feature = "tls")]
        if let Some(records) = &self.records {
            return records.borrow_mut().flush(self.fd.as_fd());
        }
        Ok(true)
    }

    /// Returns `true` if all accepted bytes have been sent.
    pub(crate) fn is_flushed(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(records) = &self.records {
            return records.borrow().is_flushed();
        }
        true
    }

    /// Receives available bytes into the pieces, in their order; returns their number, 0 at the end of the connection.
    ///
    /// # Errors
    /// [`Error::Again`] if no byte has arrived, [`Error::InvalidValue`] for unmapped memory if no byte was received,
    /// [`Error::ConnectionReset`] if the peer has disconnected.
    ///
    /// # Safety
    /// The pieces are the caller's to write, or exported and not mapped.
    pub(super) unsafe fn receive(&self, pieces: &[Piece]) -> Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(records) = &self.records {
            // SAFETY: the caller's promise.
            return unsafe { records.borrow_mut().receive(self.fd.as_fd(), pieces) };
        }
        // SAFETY: the caller's promise.
        unsafe { receive_from_socket(self.fd.as_fd(), pieces) }
    }

    /// Receives into a buffer, as [`Stream::receive`].
    pub(crate) fn receive_into(&self, buffer: &mut [u8]) -> Result<usize> {
        // SAFETY: the buffer is borrowed mutably.
        unsafe { self.receive(&[Piece::of_mut(buffer)]) }
    }

    /// Sends from a buffer, as [`Stream::send`].
    pub(crate) fn send_from(&self, bytes: &[u8]) -> Result<usize> {
        self.send(&[Piece::of(bytes)])
    }

    /// Sends all bytes.
    ///
    /// # Errors
    /// As [`Stream::send`], and [`Error::TimeOut`].
    pub(super) fn send_all(&self, mut bytes: &[u8], deadline: Deadline) -> Result<()> {
        while !bytes.is_empty() {
            match self.send_from(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Error::Again) => self.wait(PollFlags::OUT, deadline)?,
                Err(error) => return Err(error),
            }
        }
        self.flush_all(deadline)
    }

    /// Sends all accepted bytes.
    ///
    /// # Errors
    /// As [`Stream::flush`], and [`Error::TimeOut`].
    pub(super) fn flush_all(&self, deadline: Deadline) -> Result<()> {
        while !self.flush()? {
            self.wait(PollFlags::OUT, deadline)?;
        }
        Ok(())
    }

    /// Fills the buffer.
    ///
    /// # Errors
    /// [`Error::ConnectionReset`] at the end of the connection, [`Error::TimeOut`].
    pub(super) fn receive_all(&self, buffer: &mut [u8], deadline: Deadline) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            done += self.receive_some(&mut buffer[done..], deadline)?;
        }
        Ok(())
    }

    /// Waits for bytes and receives them; returns their number, at least 1.
    ///
    /// # Errors
    /// As [`Stream::receive_all`].
    pub(super) fn receive_some(&self, buffer: &mut [u8], deadline: Deadline) -> Result<usize> {
        loop {
            match self.receive_into(buffer) {
                Ok(0) => return Err(Error::ConnectionReset),
                Ok(received) => return Ok(received),
                Err(Error::Again) => self.wait(PollFlags::IN, deadline)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until there are bytes to receive.
    pub(super) fn wait_readable(&self, deadline: Deadline) -> Result<()> {
        self.wait(PollFlags::IN, deadline)
    }

    /// Waits until bytes can be sent, or received if `also_input`.
    pub(super) fn wait_writable(&self, also_input: bool, deadline: Deadline) -> Result<()> {
        let mut flags = PollFlags::OUT;
        flags.set(PollFlags::IN, also_input);
        self.wait(flags, deadline)
    }

    fn wait(&self, what: PollFlags, deadline: Deadline) -> Result<()> {
        loop {
            let left = Timespec::try_from(deadline.left()).map_err(|_| Error::InvalidValue)?;
            match rustix::event::poll(&mut [PollFd::new(&self.fd, what)], Some(&left)) {
                Ok(0) => return Err(Error::TimeOut),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Returns `true` if the peer has closed its end or exited; bytes that were sent before may still be received.
    pub(crate) fn is_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match rustix::event::poll(&mut fds, Some(&now)) {
            Ok(0) | Err(Errno::INTR) => false,
            Ok(_) => true,
            Err(_) => true,
        }
    }

    /// Closes the sending direction, which the peer sees.
    pub(crate) fn shut_down_output(&self) {
        #[cfg(feature = "tls")]
        if let Some(records) = &self.records {
            records.borrow_mut().close(self.fd.as_fd());
        }
        // An unconnected socket is the desired state.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sends as much as fits to a socket; returns the number of bytes.
///
/// # Errors
/// As [`Stream::send`].
pub(super) fn send_to_socket(socket: BorrowedFd<'_>, pieces: &[Piece]) -> Result<usize> {
    let mut parts = vectors(pieces);
    let message = message_of(&mut parts, pieces.len());
    loop {
        // SAFETY: the kernel only reads the pieces, and checks each address.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) => match last_errno() {
                Errno::INTR => {}
                Errno::FAULT => return Err(Error::InvalidValue),
                errno => return Err(ended(errno)),
            },
        }
    }
}

/// Receives from a socket, as [`Stream::receive`].
///
/// # Safety
/// The pieces are the caller's to write, or not mapped at all.
pub(super) unsafe fn receive_from_socket(
    socket: BorrowedFd<'_>,
    pieces: &[Piece],
) -> Result<usize> {
    let mut parts = vectors(pieces);
    let mut message = message_of(&mut parts, pieces.len());
    loop {
        // SAFETY: the kernel writes to memory that the caller vouches for, and checks each address.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, 0) };
        match usize::try_from(received) {
            Ok(received) => return Ok(received),
            Err(_) => match last_errno() {
                Errno::INTR => {}
                Errno::FAULT => return Err(Error::InvalidValue),
                errno => return Err(ended(errno)),
            },
        }
    }
}

pub(super) fn listen(address: SocketAddr) -> Result<(OwnedFd, SocketAddr)> {
    let fd = socket_for(address)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    rustix::net::bind(&fd, &address)?;
    rustix::net::listen(&fd, 128)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
    Ok((fd, bound))
}

#[cfg(test)]
pub(crate) fn pair() -> (Stream, Stream) {
    let (listener, address) = listen((std::net::Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
    let here = Stream::connect(address, Deadline::after(Duration::from_secs(60)));
    let there = rustix::net::accept_with(&listener, SocketFlags::NONBLOCK).expect("a peer");
    (
        here.expect("a connection"),
        Stream::accepted(there).expect("a connection"),
    )
}

fn socket_for(address: SocketAddr) -> Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// Reason why a connection could not be established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreached {
    /// No process listens at the address.
    Refused,
    /// The machine did not respond in time: packets may have been lost.
    NoAnswer,
    /// The network is down, or there is no route to the machine.
    NoRoute,
    /// This process cannot create a connection.
    Failed(Error),
}

impl From<Error> for Unreached {
    fn from(error: Error) -> Self {
        match error {
            Error::TimeOut => Unreached::NoAnswer,
            error => Unreached::Failed(error),
        }
    }
}

impl From<Unreached> for Error {
    fn from(unreached: Unreached) -> Self {
        match unreached {
            Unreached::Refused | Unreached::NoRoute => Error::NotConnected,
            Unreached::NoAnswer => Error::TimeOut,
            Unreached::Failed(error) => error,
        }
    }
}

fn unreached(errno: Errno) -> Unreached {
    match errno {
        Errno::TIMEDOUT => Unreached::NoAnswer,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::HOSTDOWN => {
            Unreached::NoRoute
        }
        Errno::NOMEM | Errno::NOBUFS => Unreached::Failed(Error::NoMemory),
        _ => Unreached::Refused,
    }
}

/// Converts an error. All errors that mean the end of the connection become `ConnectionReset`.
fn ended(errno: Errno) -> Error {
    match errno {
        Errno::AGAIN => Error::Again,
        Errno::NOMEM | Errno::NOBUFS => Error::NoMemory,
        _ => Error::ConnectionReset,
    }
}

fn vectors(pieces: &[Piece]) -> [libc::iovec; MOST_PIECES] {
    let mut parts = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; MOST_PIECES];
    for (part, piece) in parts.iter_mut().zip(pieces) {
        part.iov_base = piece.start.cast();
        part.iov_len = piece.len;
    }
    parts
}

fn message_of(parts: &mut [libc::iovec; MOST_PIECES], len: usize) -> libc::msghdr {
    // SAFETY: all zero is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = len.min(MOST_PIECES) as _;
    message
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
