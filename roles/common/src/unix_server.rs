//! Listening Unix sockets that only their owner can connect to.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Error of [`UnixServer::bind`].
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The path exists and is not a socket; it is not removed.
    #[error("{0}: expected a socket or nothing, found a file; remove it, or give another --socket")]
    NotASocket(PathBuf),
    /// Another process listens on the socket.
    #[error("{0}: another process is listening there; stop it, or give another --socket")]
    InUse(PathBuf),
    /// Operating system error.
    #[error("{path}: {error}")]
    System {
        /// Path of the socket.
        path: PathBuf,
        /// Reason.
        error: io::Error,
    },
}

/// A listening, non-blocking Unix socket with mode 0600. Dropping it removes its file.
#[derive(Debug)]
pub struct UnixServer {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, to detect that another process has replaced the file.
    file: Option<(u64, u64)>,
}

impl UnixServer {
    /// Listens at a path, with a backlog of `backlog` connections. The stale socket of a killed process is replaced.
    ///
    /// # Errors
    ///
    /// The path exists and is not a stale socket, or the directory is not writable.
    pub fn bind(path: &Path, backlog: i32) -> Result<Self, ListenError> {
        let system = |error: io::Error| ListenError::System {
            path: path.to_owned(),
            error,
        };
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(system(error)),
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(ListenError::NotASocket(path.to_owned()));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(system)?;
                }
                // A process whose backlog is full listens, too.
                _ => return Err(ListenError::InUse(path.to_owned())),
            },
        }
        let listen = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // The file inherits the socket's mode, so others can never connect, not even briefly.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            rustix::net::listen(&socket, backlog)?;
            Ok(socket)
        };
        Ok(Self {
            listener: UnixListener::from(listen().map_err(system)?),
            path: path.to_owned(),
            file: identity(path),
        })
    }

    /// The listening socket.
    #[must_use]
    pub const fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Path of the socket's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixServer {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.path) == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
