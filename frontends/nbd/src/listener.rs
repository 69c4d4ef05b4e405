//! Listening sockets: a Unix socket that only its owner can connect to, or TCP.

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use role_common::address::HostPort;
use role_common::unix_server::{self, UnixServer};

use crate::stream::Socket;

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
        /// Reason.
        error: io::Error,
    },
    /// Data would cross a network unencrypted.
    #[error(
        "--listen {0}: refusing TCP without TLS beyond loopback; give --tls-certificate and --tls-key, or --insecure if the network is trusted"
    )]
    Insecure(SocketAddr),
}

impl From<unix_server::ListenError> for ListenError {
    fn from(error: unix_server::ListenError) -> Self {
        match error {
            unix_server::ListenError::NotASocket(path) => Self::NotASocket(path),
            unix_server::ListenError::InUse(path) => Self::InUse(path),
            unix_server::ListenError::System { path, error } => Self::System {
                place: path.display().to_string(),
                error,
            },
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// Unix socket.
    Unix(UnixServer),
    /// TCP.
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
        let export = percent_encoded(export, "");
        match self {
            Self::Unix(server) => {
                let path = percent_encoded(&server.path().to_string_lossy(), "/");
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

    /// Returns `true` for TCP.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(..))
    }

    /// Accepts the next client, and returns its socket and its description; `None` if there is none yet.
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

/// Refuses TCP without TLS on addresses other than loopback. `is_secure`: TLS is required, or unencrypted TCP was
/// explicitly allowed.
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

/// Percent-encodes all bytes of a text that may have a meaning in a URI, except those in `kept`.
fn percent_encoded(text: &str, kept: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let is_kept = byte.is_ascii_alphanumeric() || "-._~".contains(char::from(byte));
        if is_kept || kept.contains(char::from(byte)) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
