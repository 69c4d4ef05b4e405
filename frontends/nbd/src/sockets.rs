//! Sockets: listening ones (TCP, or a Unix socket to which only its owner can connect), and connected ones, with or
//! without TLS. No call blocks.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::network::{self, HostPort, UnixServer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::{ServerConfig, ServerConnection};

/// Bytes that are percent-encoded in a URI: all except the unreserved characters of RFC 3986.
const RESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// As [`RESERVED`], without the path separator.
const RESERVED_IN_PATHS: AsciiSet = RESERVED.remove(b'/');

/// Maximum number of bytes that rustls buffers for a socket that accepts no more.
const TLS_BUFFER: usize = 128 * 1024;

/// A non-blocking connection.
pub enum Stream {
    Plain(Socket),
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

    /// Sends the data buffered by TLS. Returns `true` if all data has been sent.
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

/// Backlog of a listening socket.
const BACKLOG: i32 = 128;

/// Idle time before a TCP connection is probed, so that unreachable hosts are detected.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Error of creating a listening socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The path exists and is not a socket; it is not removed.
    #[error("{0}: expected a socket or nothing, found a file; remove it, or give another --socket")]
    NotASocket(PathBuf),
    /// Another process listens on the socket.
    #[error("{0}: another server is listening there; stop it, or give another --socket")]
    InUse(PathBuf),
    /// Operating system error.
    #[error("{place}: {error}")]
    System {
        /// Path or address.
        place: String,
        error: io::Error,
    },
    /// Data would cross a network unencrypted.
    #[error(
        "--listen {0}: refusing TCP without TLS beyond loopback; give --tls-certificate and --tls-key, or --insecure if the network is trusted"
    )]
    Insecure(SocketAddr),
}

impl From<network::ListenError> for ListenError {
    fn from(error: network::ListenError) -> Self {
        match error {
            network::ListenError::NotASocket(path) => Self::NotASocket(path),
            network::ListenError::InUse(path) => Self::InUse(path),
            network::ListenError::System { path, error } => Self::System {
                place: path.display().to_string(),
                error,
            },
        }
    }
}

#[derive(Debug)]
pub enum Listener {
    Unix(UnixServer),
    Tcp(TcpListener, SocketAddr),
}

impl Listener {
    /// Listens at a path, with mode 0600. The stale socket of a killed server is replaced.
    ///
    /// # Errors
    ///
    /// The path exists and is not a stale socket, or the directory is not writable.
    pub fn unix(path: &Path) -> Result<Self, ListenError> {
        Ok(Self::Unix(UnixServer::bind(path, BACKLOG)?))
    }

    /// Listens on every address of `address`; port 0 selects a free one.
    ///
    /// # Errors
    ///
    /// The name has no address, an address is in use, or [`permit`] refuses it.
    pub fn tcp(address: &HostPort, is_secure: bool) -> Result<Vec<Self>, ListenError> {
        let addresses = address.resolve().map_err(|error| ListenError::System {
            place: address.to_string(),
            error,
        })?;
        permit(&addresses, is_secure)?;
        let mut listeners = Vec::new();
        let mut failed = None;
        for address in addresses {
            let listen = || -> io::Result<Self> {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                Ok(Self::Tcp(listener, address))
            };
            match listen() {
                Ok(listener) => listeners.push(listener),
                // A host without IPv6 may still resolve names to IPv6 addresses.
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                    failed = Some((address, error));
                }
                Err(error) => {
                    failed = Some((address, error));
                    listeners.clear();
                    break;
                }
            }
        }
        match failed {
            Some((address, error)) if listeners.is_empty() => Err(ListenError::System {
                place: address.to_string(),
                error,
            }),
            _ => Ok(listeners),
        }
    }

    /// URI of an export on this socket.
    #[must_use]
    pub fn uri(&self, export: &str, has_tls: bool) -> String {
        let export = utf8_percent_encode(export, &RESERVED);
        match self {
            Self::Unix(server) => {
                let path = server.path().to_string_lossy();
                let path = utf8_percent_encode(&path, &RESERVED_IN_PATHS);
                format!("nbd+unix:///{export}?socket={path}")
            }
            Self::Tcp(_, address) if has_tls => format!("nbds://{address}/{export}"),
            Self::Tcp(_, address) => format!("nbd://{address}/{export}"),
        }
    }

    /// The socket, for polling.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(server) => server.listener().as_fd(),
            Self::Tcp(listener, _) => listener.as_fd(),
        }
    }

    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(..))
    }

    /// Accepts the next client, and returns its socket and its description; `None` if no client is waiting.
    ///
    /// # Errors
    ///
    /// The errors of accept(2), for example too many open files.
    pub fn accept(&self) -> io::Result<Option<(Socket, String)>> {
        let accepted = match self {
            Self::Unix(server) => server
                .listener()
                .accept()
                .map(|(stream, _)| (OwnedFd::from(stream), "local client".to_owned())),
            Self::Tcp(listener, _) => listener.accept().and_then(|(stream, address)| {
                prepare(&stream)?;
                Ok((OwnedFd::from(stream), address.to_string()))
            }),
        };
        match accepted {
            Ok((socket, peer)) => Ok(Some((Socket::new(socket)?, peer))),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionAborted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// Refuses TCP without TLS on addresses other than loopback. `is_secure` is `true` if TLS is required, or unencrypted
/// TCP was explicitly permitted.
///
/// # Errors
///
/// [`ListenError::Insecure`].
pub fn permit(addresses: &[SocketAddr], is_secure: bool) -> Result<(), ListenError> {
    match addresses.iter().find(|it| !it.ip().is_loopback()) {
        Some(exposed) if !is_secure => Err(ListenError::Insecure(*exposed)),
        _ => Ok(()),
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    rustix::net::sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    Ok(())
}
