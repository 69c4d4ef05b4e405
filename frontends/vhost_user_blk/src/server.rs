//! The socket, for one front end at a time.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use role_common::shutdown::Shutdown;
use role_common::unix_server::UnixServer;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::device::Device;
use crate::session::Session;
use crate::worker::Worker;

/// Backlog of the socket: front ends that wait while another one is connected.
pub const BACKLOG: i32 = 8;

/// A connected front end, and the thread of its session.
struct Connection {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

/// Serves front ends, one at a time, until shutdown is requested. Returns the session that is still running: it
/// completes the requests that its guest has submitted.
///
/// # Errors
/// The system has no threads or descriptors.
pub fn serve(
    listener: &UnixServer,
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
            fds.push(PollFd::new(listener.listener(), PollFlags::IN));
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
            connection = match listener.listener().accept() {
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

/// The session that is still running when shutdown is requested.
#[derive(Debug)]
pub struct Ending(Option<JoinHandle<()>>);

impl Ending {
    /// Returns `true` once the session has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the session has ended.
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
            // Stops the virtqueues, and completes their requests.
            drop(handler);
            let _ = rustix::io::write(ended.as_fd(), &1_u64.to_ne_bytes());
        })?;
    Ok(Connection { stream, thread })
}

#[cfg(test)]
mod tests;
