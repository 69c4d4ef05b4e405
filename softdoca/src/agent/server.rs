//! The agent's thread.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll};
use rustix::io::Errno;

use super::address::AgentAddress;
use super::export::Export;
use crate::error::{Error, Result};
use crate::log;
use crate::runtime::{Key, Listener, MAX_MESSAGE, RuntimeDir, Socket};

/// Names a connection for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// A call from a peer.
#[derive(Debug)]
pub struct Request<'a> {
    /// The connection it came over, which stays open after the reply for as long as both want it.
    pub connection: ConnectionId,
    /// At most [`MAX_PAYLOAD`](super::MAX_PAYLOAD) bytes. From another process: check everything.
    pub payload: &'a [u8],
    /// At most [`MAX_FDS`](crate::runtime::MAX_FDS).
    pub fds: Vec<OwnedFd>,
}

/// Called once when the peer closes the connection or dies, in the agent thread.
pub type OnClose = Box<dyn FnOnce() + Send>;

/// The answer to a call.
#[derive(Default)]
pub struct Reply {
    /// At most [`MAX_PAYLOAD`](super::MAX_PAYLOAD) bytes.
    pub payload: Vec<u8>,
    /// At most [`MAX_FDS`](crate::runtime::MAX_FDS).
    pub fds: Vec<OwnedFd>,
    /// Tells the service of the end of the connection.
    pub on_close: Option<OnClose>,
}

/// A published service. Runs in the agent thread, which serves all peers: it must neither wait nor call
/// [`request`](super::request).
pub type Handler = Arc<dyn Fn(Request<'_>) -> Result<Reply> + Send + Sync>;

pub(super) struct Connection {
    socket: Arc<Socket>,
    /// The services called over this connection.
    pub(super) calls: Vec<(Key, Option<OnClose>)>,
}

/// State shared between the agent thread and those who export and publish.
pub(super) struct Server {
    listener: Mutex<Option<Listener>>,
    epoll: OwnedFd,
    wake: OwnedFd,
    stopping: AtomicBool,
    /// Held while memory is copied, so that a withdrawn export is out of use when the withdrawal returns.
    pub(super) exports: Mutex<HashMap<Key, Export>>,
    pub(super) services: Mutex<HashMap<Key, Handler>>,
    pub(super) connections: Mutex<HashMap<ConnectionId, Connection>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is a single insertion or removal: nothing is left half done by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Epoll data of what is no connection.
const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

impl Server {
    /// Binds the socket and starts the thread.
    pub(super) fn start(address: &AgentAddress) -> Result<Arc<Server>> {
        let listener = Listener::bind(&RuntimeDir::get()?, &address.socket_name())?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(
            &epoll,
            &listener,
            epoll::EventData::new_u64(LISTENER),
            epoll::EventFlags::IN,
        )?;
        epoll::add(
            &epoll,
            &wake,
            epoll::EventData::new_u64(WAKE),
            epoll::EventFlags::IN,
        )?;
        let server = Arc::new(Server {
            listener: Mutex::new(Some(listener)),
            epoll,
            wake,
            stopping: AtomicBool::new(false),
            exports: Mutex::default(),
            services: Mutex::default(),
            connections: Mutex::default(),
        });
        let in_thread = Arc::clone(&server);
        let thread = std::thread::Builder::new().name("softdoca-agent".to_owned());
        // The program's signal handlers are not to run in a thread that it does not know of.
        with_signals_blocked(|| thread.spawn(move || in_thread.run())).map_err(|error| {
            Error::OperatingSystem.because(format_args!("cannot start the agent thread: {error}"))
        })?;
        Ok(server)
    }

    /// Frees the name and ends the thread, soon.
    pub(super) fn stop(&self) {
        *lock(&self.listener) = None;
        self.stopping.store(true, Ordering::Release);
        // Fails only when the counter is full: then it is awake already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(super) fn add_export(&self, key: Key, export: Export) {
        lock(&self.exports).insert(key, export);
    }

    pub(super) fn withdraw_export(&self, key: Key) {
        lock(&self.exports).remove(&key);
    }

    pub(super) fn add_service(&self, key: Key, handler: Handler) {
        lock(&self.services).insert(key, handler);
    }

    pub(super) fn withdraw_service(&self, key: Key) {
        let handler = lock(&self.services).remove(&key);
        let mut dropped = Vec::new();
        for connection in lock(&self.connections).values_mut() {
            let before = connection.calls.len();
            dropped.extend(
                connection
                    .calls
                    .extract_if(.., |(service, _)| *service == key),
            );
            if connection.calls.len() != before {
                connection.socket.shut_down();
            }
        }
        // After the locks: what the closures own may come back here.
        drop((handler, dropped));
    }

    fn run(&self) {
        let mut buffer = vec![0; MAX_MESSAGE];
        let mut next_id = 0;
        while !self.stopping.load(Ordering::Acquire) {
            let mut events = Vec::with_capacity(32);
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    log::error!("the agent thread cannot wait for its peers and ends: {errno}");
                    break;
                }
            }
            for event in events {
                match event.data.u64() {
                    WAKE => {}
                    LISTENER => self.accept(&mut next_id),
                    id => self.serve(ConnectionId(id), &mut buffer),
                }
            }
        }
        // Whoever is still connected sees the end of the connection.
        let connections = std::mem::take(&mut *lock(&self.connections));
        drop(connections);
    }

    fn accept(&self, next_id: &mut u64) {
        let accepted = match &*lock(&self.listener) {
            Some(listener) => listener.accept(),
            None => return,
        };
        let added = accepted.and_then(|socket| {
            let Some(socket) = socket else { return Ok(()) };
            let id = *next_id;
            *next_id += 1;
            epoll::add(
                &self.epoll,
                &socket,
                epoll::EventData::new_u64(id),
                epoll::EventFlags::IN,
            )?;
            lock(&self.connections).insert(
                ConnectionId(id),
                Connection {
                    socket: Arc::new(socket),
                    calls: Vec::new(),
                },
            );
            Ok(())
        });
        if let Err(error) = added {
            log::warn!("the agent cannot take a connection: {error}");
            // Out of descriptors, most likely: the connection still waits, and would be reported again at once.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn serve(&self, id: ConnectionId, buffer: &mut [u8]) {
        let Some(socket) = lock(&self.connections)
            .get(&id)
            .map(|connection| Arc::clone(&connection.socket))
        else {
            return;
        };
        match self.answer(id, &socket, buffer) {
            Ok(true) | Err(Error::Again) => {}
            Ok(false) => self.close(id),
            Err(error) => {
                log::warn!("the agent closes a connection: {error}");
                self.close(id);
            }
        }
    }

    fn close(&self, id: ConnectionId) {
        let Some(connection) = lock(&self.connections).remove(&id) else {
            return;
        };
        // Before the descriptor is closed: another's copy of it would keep it in the epoll set.
        let _ = epoll::delete(&self.epoll, &*connection.socket);
        for on_close in connection
            .calls
            .into_iter()
            .filter_map(|(_, on_close)| on_close)
        {
            shielded(on_close);
        }
    }
}

/// Runs code of a service; `None` when it panicked, which must not end the thread that serves all others.
pub(super) fn shielded<T>(action: impl FnOnce() -> T) -> Option<T> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(action));
    result
        .inspect_err(|_| {
            log::error!(
                "a bug in softdoca, please report it: a service panicked in the agent thread"
            )
        })
        .ok()
}

fn with_signals_blocked<T>(action: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are initialised by the calls before they are read.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = action();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}
