//! The socket, and one front end after the other.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use role_common::shutdown::Shutdown;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::device::Device;
use crate::session::Session;
use crate::worker::Worker;

/// Connections that the kernel accepts ahead: front ends that wait until the one before has gone.
const BACKLOG: i32 = 8;

/// Why there is no listening socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A file of another kind is not removed.
    #[error("{0}: expected a socket or nothing, found a file; remove it, or give another --socket")]
    NotASocket(PathBuf),
    /// Another back end is using the socket.
    #[error("{0}: another back end is listening there; stop it, or give another --socket")]
    InUse(PathBuf),
    /// The system refused.
    #[error("{path}: {error}")]
    System {
        /// Path of the socket.
        path: PathBuf,
        /// Reason.
        error: io::Error,
    },
}

/// A listening socket that only its owner can connect to. Its file is removed at the end.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode: another back end may have replaced the file.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// Listens at a path, with mode 0600. A socket that a back end has left there is replaced.
    ///
    /// # Errors
    /// There is something else at the path, or the directory cannot be written to.
    pub fn bind(path: &Path) -> Result<Self, ListenError> {
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
                _ => return Err(ListenError::InUse(path.to_owned())),
            },
        }
        let listen = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // The file gets the socket's mode, so that there is no moment at which others can connect.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let socket = UnixListener::from(listen().map_err(system)?);
        Ok(Self {
            socket,
            path: path.to_owned(),
            file: identity(path),
        })
    }
}

impl Drop for Listener {
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

/// A front end that is connected, and the thread of its session.
struct Connection {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

/// Serves front ends until the end is requested, one at a time. Returns what still runs then: the session completes what its guest has submitted.
///
/// # Errors
/// The system has no threads or descriptors.
pub fn serve(
    listener: &Listener,
    device: Device,
    workers: &Arc<[Worker]>,
    shutdown: &Shutdown,
) -> io::Result<Ending> {
    let ended = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let mut connection: Option<Connection> = None;
    while !shutdown.is_requested() {
        let mut fds = vec![
            PollFd::from_borrowed_fd(shutdown.waker().readable(), PollFlags::IN),
            PollFd::new(&ended, PollFlags::IN),
        ];
        if connection.is_none() {
            fds.push(PollFd::new(&listener.socket, PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if rustix::io::read(&ended, &mut [0_u8; 8]).is_ok()
            && let Some(Connection { thread, .. }) = connection.take()
        {
            let _ = thread.join();
        }
        if connection.is_none() && !shutdown.is_requested() {
            connection = match listener.socket.accept() {
                Ok((stream, _)) => Some(connect(stream, device, workers, &ended)?),
                Err(error) if is_transient(&error) => None,
                Err(error) => return Err(error),
            };
        }
    }
    if let Some(Connection { stream, .. }) = &connection {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    Ok(Ending(connection.map(|it| it.thread)))
}

/// What still runs when the end was requested.
#[derive(Debug)]
pub struct Ending(Option<JoinHandle<()>>);

impl Ending {
    /// Returns `true` when the session has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the session.
    pub fn join(self) {
        if let Some(thread) = self.0 {
            let _ = thread.join();
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted)
}

fn connect(
    stream: UnixStream,
    device: Device,
    workers: &Arc<[Worker]>,
    ended: &Arc<OwnedFd>,
) -> io::Result<Connection> {
    stream.set_nonblocking(false)?;
    let copy = stream.try_clone()?;
    let session = Session::new(device, Arc::clone(workers));
    let ended = Arc::clone(ended);
    let thread = std::thread::Builder::new()
        .name("vhost-user".to_owned())
        .spawn(move || {
            tracing::info!("a front end has connected");
            let mut handler = BackendReqHandler::from_stream(copy, Arc::new(Mutex::new(session)));
            let error = loop {
                if let Err(error) = handler.handle_request() {
                    break error;
                }
            };
            match error {
                Error::Disconnected => tracing::info!("the front end has disconnected"),
                error => tracing::warn!("the session with the front end has ended: {error}"),
            }
            // Stops the virtqueues, and completes what they have taken.
            drop(handler);
            let _ = rustix::io::write(ended.as_fd(), &1_u64.to_ne_bytes());
        })?;
    Ok(Connection { stream, thread })
}

#[cfg(test)]
mod tests;
