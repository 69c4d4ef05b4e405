//! Listening sockets: a Unix socket that only its owner can use, or TCP.

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use role_common::address::HostPort;
use role_common::unix_server::{self, UnixServer};

use crate::stream::Socket;

/// Connections that the kernel accepts ahead.
const BACKLOG: i32 = 128;

/// Time without traffic before a TCP connection is probed, so that hosts that are gone are noticed.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Why there is no listening socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A file of another kind is not removed.
    #[error("{0}: expected a socket or nothing, found a file; remove it, or give another --socket")]
    NotASocket(PathBuf),
    /// Another server is using the socket.
    #[error("{0}: another server is listening there; stop it, or give another --socket")]
    InUse(PathBuf),
    /// The system refused.
    #[error("{place}: {error}")]
    System {
        /// Path or address.
        place: String,
        /// Reason.
        error: io::Error,
    },
    /// Data would pass a network unencrypted.
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
    /// Listens at a path, with mode 0600. A socket that a server has left there is replaced.
    ///
    /// # Errors
    ///
    /// There is something else at the path, or the directory cannot be written to.
    pub fn unix(path: &Path) -> Result<Self, ListenError> {
        Ok(Self::Unix(UnixServer::bind(path, BACKLOG)?))
    }

    /// Listens at each address that `address` (port 0 for a free one) has.
    ///
    /// # Errors
    ///
    /// There is none, it is in use, or [`permit`] refuses it.
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
                // A host without IPv6 still has such addresses for names.
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

    /// The URI of an export.
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

    /// The socket, for waiting.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(server) => server.listener().as_fd(),
            Self::Tcp(listener, _) => listener.as_fd(),
        }
    }

    /// `true` for TCP.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(..))
    }

    /// The next client and its name; `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// As of the system call: too many open files, for example.
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

/// Refuses TCP without TLS on addresses other than loopback: `is_secure` says that there is TLS or that none is wanted.
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

/// The text with all bytes encoded that may have a meaning in a URI, but for those of `kept`.
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
