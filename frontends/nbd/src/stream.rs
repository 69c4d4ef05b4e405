//! Connected sockets, with or without TLS. No call blocks.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::{ServerConfig, ServerConnection};

/// Maximum number of bytes that rustls buffers for a socket that accepts no more.
const TLS_BUFFER: usize = 128 * 1024;

/// A non-blocking connection.
pub enum Stream {
    /// Without TLS.
    Plain(Socket),
    /// With TLS.
    Tls(Box<Tls>),
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Stream::Plain",
            Self::Tls(_) => "Stream::Tls",
        })
    }
}

/// A non-blocking stream socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// A TLS session over a socket.
pub struct Tls {
    socket: Socket,
    session: ServerConnection,
}

impl Socket {
    /// Makes the socket non-blocking.
    ///
    /// # Errors
    ///
    /// The errors of the system call.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self(socket))
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = rustix::io::retry_on_intr(|| {
            sendmsg(
                &self.0,
                parts,
                &mut SendAncillaryBuffer::default(),
                SendFlags::NOSIGNAL,
            )
        });
        Ok(sent?)
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::read(&self.0, &mut *buffer)
        })?)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(&[IoSlice::new(bytes)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// The socket, for polling.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.0.as_fd(),
            Self::Tls(tls) => tls.socket.0.as_fd(),
        }
    }

    /// Starts TLS; `received` are the bytes already read from the socket.
    ///
    /// # Errors
    ///
    /// The configuration is unusable, or the received bytes are not TLS.
    pub fn start_tls(self, config: Arc<ServerConfig>, received: &[u8]) -> io::Result<Self> {
        let Self::Plain(socket) = self else {
            return Err(io::Error::other("TLS is in use already"));
        };
        let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
        session.set_buffer_limit(Some(TLS_BUFFER));
        let mut tls = Box::new(Tls { socket, session });
        let mut received = received;
        while !received.is_empty() {
            if tls.session.read_tls(&mut received)? == 0 {
                break;
            }
            tls.process()?;
        }
        Ok(Self::Tls(tls))
    }

    /// Reads into `parts`, in order. Returns 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: wait until the socket is readable. Others end the connection.
    pub fn receive(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => Ok(rustix::io::retry_on_intr(|| {
                rustix::io::readv(&socket.0, parts)
            })?),
            Self::Tls(tls) => tls.receive(parts),
        }
    }

    /// Sends from `parts`, in order. Returns the number of bytes accepted.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: wait until the socket is writable. Others end the connection.
    pub fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.send(parts),
            Self::Tls(tls) => {
                tls.flush()?;
                let taken = tls.session.writer().write_vectored(parts)?;
                tls.flush()?;
                if taken == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(taken)
            }
        }
    }

    /// Sends the data buffered by TLS. Returns `true` if none is left.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub fn flush(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => {
                tls.flush()?;
                Ok(!tls.session.wants_write())
            }
        }
    }

    /// Returns `true` if TLS has buffered bytes that the socket did not accept.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.session.wants_write(),
        }
    }

    /// Returns `true` if a read may return data without the socket being readable: short reads do not indicate an empty stream.
    #[must_use]
    pub const fn is_buffered(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Closes the sending side, as far as possible without blocking.
    pub fn say_goodbye(&mut self) {
        if let Self::Tls(tls) = self {
            tls.session.send_close_notify();
            let _ = tls.flush();
        }
    }
}

impl Tls {
    fn process(&mut self) -> io::Result<()> {
        match self.session.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The alert reports the reason to the client.
                let _ = self.flush();
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    fn receive(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            let result = self.session.reader().read_vectored(parts);
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Closed without close_notify: only complete requests are executed, so truncation is harmless.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            let received = self.session.read_tls(&mut &self.socket);
            match received {
                Ok(0) if self.session.is_handshaking() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(_) => self.process()?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.flush()?;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends until the socket accepts no more.
    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut &self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
