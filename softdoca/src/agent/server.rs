//! The agent's thread.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll};
use rustix::io::Errno;

use super::address::AgentAddress;
use super::export::{self, Export};
use super::protocol::{MAX_PAYLOAD, Operation, ReplyHeader, RequestHeader, SegmentEntry};
use crate::error::{Error, Result};
use crate::log;
use crate::runtime::{Key, Listener, MAX_FDS, MAX_MESSAGE, RuntimeDir, Socket};

/// Names a connection for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// A call from a peer.
#[derive(Debug)]
pub struct Request<'a> {
    /// The connection it came over, which stays open after the reply for as long as both want it.
    pub connection: ConnectionId,
    /// At most [`MAX_PAYLOAD`] bytes. From another process: check everything.
    pub payload: &'a [u8],
    /// At most [`MAX_FDS`].
    pub fds: Vec<OwnedFd>,
}

/// Called once when the peer closes the connection or dies, in the agent thread.
pub type OnClose = Box<dyn FnOnce() + Send>;

/// The answer to a call.
#[derive(Default)]
pub struct Reply {
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: Vec<u8>,
    /// At most [`MAX_FDS`].
    pub fds: Vec<OwnedFd>,
    /// Tells the service of the end of the connection.
    pub on_close: Option<OnClose>,
}

/// A published service. Runs in the agent thread, which serves all peers: it must neither wait nor call
/// [`request`](super::request).
pub type Handler = Arc<dyn Fn(Request<'_>) -> Result<Reply> + Send + Sync>;

struct Connection {
    socket: Arc<Socket>,
    /// The services called over this connection.
    calls: Vec<(Key, Option<OnClose>)>,
}

/// State shared between the agent thread and those who export and publish.
pub(super) struct Server {
    listener: Mutex<Option<Listener>>,
    epoll: OwnedFd,
    wake: OwnedFd,
    stopping: AtomicBool,
    /// Held while memory is copied, so that a withdrawn export is out of use when the withdrawal returns.
    exports: Mutex<HashMap<Key, Export>>,
    services: Mutex<HashMap<Key, Handler>>,
    connections: Mutex<HashMap<ConnectionId, Connection>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
            on_close();
        }
    }

    /// Receives one request and replies. `false`: the peer has closed the connection. An error is the connection's end; what a peer
    /// asks wrongly is answered instead.
    fn answer(&self, id: ConnectionId, socket: &Socket, buffer: &mut [u8]) -> Result<bool> {
        let mut head = [0; RequestHeader::SIZE];
        let Some(len) = socket.peek(&mut head)? else {
            return Ok(false);
        };
        let header = RequestHeader::decode(&head[..len])?;
        // A write's payload goes straight to its destination; everything else is taken off the socket first.
        if header.operation == Operation::Write {
            let value = self.write(socket, &header);
            return reply(socket, value, &[], &[]).map(|()| true);
        }
        let mut fds = Vec::new();
        let Some(len) = socket.receive(buffer, &mut fds)? else {
            return Ok(false);
        };
        let payload = buffer.get(RequestHeader::SIZE..len).unwrap_or_default();
        match header.operation {
            Operation::Write => unreachable!("answered above"),
            Operation::Read => self.read(socket, &header)?,
            Operation::FetchAdd => {
                let value = self.atomic(&header, export::fetch_add(header.operands[0]));
                reply(socket, value, &[], &[])?;
            }
            Operation::CompareSwap => {
                let [expected, new] = header.operands;
                let value = self.atomic(&header, export::compare_swap(expected, new));
                reply(socket, value, &[], &[])?;
            }
            Operation::Describe => match self.describe(&header) {
                Ok((count, payload, fds)) => {
                    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
                    reply(socket, Ok(count), &payload, &fds)?;
                }
                Err(error) => reply(socket, Err(error), &[], &[])?,
            },
            Operation::Call => {
                let answer = self.call(
                    &header,
                    Request {
                        connection: id,
                        payload,
                        fds,
                    },
                );
                match answer {
                    Ok(answer) => self.reply_to_call(id, socket, header.key, answer)?,
                    Err(error) => reply(socket, Err(error), &[], &[])?,
                }
            }
        }
        Ok(true)
    }

    fn with_export<T>(&self, key: Key, action: impl FnOnce(&Export) -> Result<T>) -> Result<T> {
        lock(&self.exports)
            .get(&key)
            .ok_or(Error::NotFound)
            .and_then(action)
    }

    fn read(&self, socket: &Socket, header: &RequestHeader) -> Result<()> {
        let sent = self.with_export(header.key, |export| {
            if !export.rights.read {
                return Err(Error::NotPermitted);
            }
            let len = usize::try_from(header.len)
                .ok()
                .filter(|len| *len <= MAX_PAYLOAD)
                .ok_or(Error::TooBig)?;
            let pointer = export.pointer(header.addr, header.len)?;
            socket.send_memory(
                &ReplyHeader {
                    result: Ok(()),
                    value: 0,
                }
                .encode(),
                pointer,
                len,
            )
        });
        match sent {
            Ok(()) => Ok(()),
            Err(error) => reply(socket, Err(error), &[], &[]),
        }
    }

    fn write(&self, socket: &Socket, header: &RequestHeader) -> Result<u64> {
        let mut head = [0; RequestHeader::SIZE];
        let mut taken = false;
        let written = self.with_export(header.key, |export| {
            if !export.rights.write {
                return Err(Error::NotPermitted);
            }
            let len = usize::try_from(header.len).map_err(|_| Error::TooBig)?;
            let pointer = export.pointer(header.addr, header.len)?;
            taken = true;
            // SAFETY: inside a range that the program registered as writable by its peers and keeps valid while it is
            // exported; withdrawing waits for the lock that is held here.
            let received = unsafe { socket.receive_memory(&mut head, pointer, len) }?;
            if received != Some(RequestHeader::SIZE + len) {
                return Err(Error::InvalidValue);
            }
            Ok(0)
        });
        if !taken {
            // The refused message still waits. The result says that it was cut off, which is what is wanted.
            // SAFETY: no memory is given.
            let _ = unsafe { socket.receive_memory(&mut head, std::ptr::null_mut(), 0) };
        }
        written
    }

    fn atomic(
        &self,
        header: &RequestHeader,
        operation: impl FnOnce(&std::sync::atomic::AtomicU64) -> u64,
    ) -> Result<u64> {
        self.with_export(header.key, |export| export.atomic(header.addr, operation))
    }

    fn describe(&self, header: &RequestHeader) -> Result<(u64, Vec<u8>, Vec<Arc<OwnedFd>>)> {
        self.with_export(header.key, |export| {
            let (entries, fds) = export.describe(header.addr);
            let payload = entries.iter().flat_map(SegmentEntry::encode).collect();
            Ok((export.segments.len() as u64, payload, fds))
        })
    }

    fn call(&self, header: &RequestHeader, request: Request<'_>) -> Result<Reply> {
        let handler = lock(&self.services)
            .get(&header.key)
            .cloned()
            .ok_or(Error::NotFound)?;
        let answer = handler(request)?;
        if answer.payload.len() > MAX_PAYLOAD || answer.fds.len() > MAX_FDS {
            return Err(Error::TooBig.because("a service's reply does not fit into one message"));
        }
        Ok(answer)
    }

    /// Remembers the call before the peer knows of its success: it may hang up at once.
    fn reply_to_call(
        &self,
        id: ConnectionId,
        socket: &Socket,
        service: Key,
        answer: Reply,
    ) -> Result<()> {
        if let Some(connection) = lock(&self.connections).get_mut(&id) {
            connection.calls.push((service, answer.on_close));
        }
        if !lock(&self.services).contains_key(&service) {
            // Withdrawn while its handler ran.
            self.withdraw_service(service);
            return Err(Error::Shutdown);
        }
        let fds: Vec<_> = answer.fds.iter().map(AsFd::as_fd).collect();
        reply(socket, Ok(0), &answer.payload, &fds)
    }
}

fn reply(
    socket: &Socket,
    value: Result<u64>,
    payload: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<()> {
    let header = ReplyHeader {
        result: value.map(|_| ()),
        value: value.unwrap_or(0),
    };
    let mut message = header.encode().to_vec();
    message.extend_from_slice(payload);
    socket.send(&message, fds)
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
