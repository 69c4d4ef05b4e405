//! The agent's thread.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::io::Errno;

use super::Limits;
use super::protocol::{
    self, AgentAddress, Export, MAX_PAYLOAD, Operation, ReplyHeader, RequestHeader, SegmentEntry,
};
use crate::error::{Error, Result};
use crate::log::{self, Limited};
use crate::runtime::{Key, Listener, MAX_FDS, MAX_MESSAGE, RuntimeDir, Socket};

/// Identifies a connection for the lifetime of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// A call from a peer.
#[derive(Debug)]
pub struct Request<'a> {
    /// The connection of the call, which stays open after the reply until one side closes it.
    pub connection: ConnectionId,
    /// At most [`MAX_PAYLOAD`](super::MAX_PAYLOAD) bytes, from another process: must be validated.
    pub payload: &'a [u8],
    /// At most [`MAX_FDS`](crate::runtime::MAX_FDS).
    pub fds: Vec<OwnedFd>,
}

/// Called once in the agent thread, when the peer closes the connection or exits.
pub type OnClose = Box<dyn FnOnce() + Send>;

/// The answer to a call.
#[derive(Default)]
pub struct Reply {
    /// At most [`MAX_PAYLOAD`](super::MAX_PAYLOAD) bytes.
    pub payload: Vec<u8>,
    /// At most [`MAX_FDS`](crate::runtime::MAX_FDS).
    pub fds: Vec<OwnedFd>,
    /// Called when the connection ends.
    pub on_close: Option<OnClose>,
}

/// A published service. Runs in the agent thread, which serves all peers: it must not block or call
/// [`request`](super::request).
pub type Handler = Arc<dyn Fn(Request<'_>) -> Result<Reply> + Send + Sync>;

pub(super) struct Connection {
    socket: Arc<Socket>,
    /// Process id of the peer when it connected.
    process: i32,
    /// Valid exports and services to which this connection has been granted access.
    granted: Vec<Key>,
    /// The services called over this connection.
    pub(super) calls: Vec<(Key, Option<OnClose>)>,
}

/// Maximum number of keys per connection; softdoca's own clients use one.
const MOST_KEYS: usize = 16;

/// State shared between the agent thread and the exporting and publishing threads.
pub(super) struct Server {
    limits: Limits,
    listener: Mutex<Option<Listener>>,
    epoll: OwnedFd,
    wake: OwnedFd,
    stopping: AtomicBool,
    /// Held while memory is copied, so that an export is unused when its withdrawal returns.
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
    // Every change under these locks is a single insertion or removal, so a panic leaves no inconsistent state.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Epoll data of descriptors other than connections.
const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

impl Server {
    /// Binds the socket and starts the thread.
    pub(super) fn start(address: &AgentAddress) -> Result<Arc<Server>> {
        Server::start_with(address, Limits::get()?.clone())
    }

    fn start_with(address: &AgentAddress, limits: Limits) -> Result<Arc<Server>> {
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
            limits,
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
        // The program's signal handlers must not run in a thread that is unknown to the program.
        with_signals_blocked(|| thread.spawn(move || in_thread.run())).map_err(|error| {
            Error::OperatingSystem.because(format_args!("cannot start the agent thread: {error}"))
        })?;
        Ok(server)
    }

    /// Frees the name and makes the thread exit.
    pub(super) fn stop(&self) {
        *lock(&self.listener) = None;
        self.stopping.store(true, Ordering::Release);
        // Fails only if the counter is full, in which case a wake-up is already pending.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(super) fn add_export(&self, key: Key, export: Export) {
        lock(&self.exports).insert(key, export);
    }

    pub(super) fn withdraw_export(&self, key: Key) {
        lock(&self.exports).remove(&key);
        self.revoke(key);
    }

    /// Records that a connection was granted access to `key`.
    ///
    /// # Errors
    /// [`Error::Full`] if the connection has reached the maximum number of keys.
    pub(super) fn grant(&self, id: ConnectionId, key: Key) -> Result<()> {
        if let Some(connection) = lock(&self.connections).get_mut(&id)
            && !connection.granted.contains(&key)
        {
            if connection.granted.len() >= MOST_KEYS {
                return Err(Error::Full);
            }
            connection.granted.push(key);
        } else {
            return Ok(());
        }
        if !lock(&self.exports).contains_key(&key) && !lock(&self.services).contains_key(&key) {
            // Withdrawn in the meantime.
            self.revoke(key);
        }
        Ok(())
    }

    /// Removes the grants of `key`: connections without other grants are closed.
    fn revoke(&self, key: Key) {
        for connection in lock(&self.connections).values_mut() {
            let before = connection.granted.len();
            connection.granted.retain(|granted| *granted != key);
            if connection.granted.len() != before && connection.granted.is_empty() {
                connection.socket.shut_down();
            }
        }
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
        self.revoke(key);
        // After the locks are released, because drop code of the closures may call back into this module.
        drop((handler, dropped));
    }

    fn run(&self) {
        let mut buffer = vec![0; MAX_MESSAGE];
        let mut admission = Admission::new();
        while !self.stopping.load(Ordering::Acquire) {
            let timeout = self.handle_timeouts(&mut admission);
            let mut events = Vec::with_capacity(32);
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
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
                    LISTENER => self.accept(&mut admission),
                    id => self.serve(ConnectionId(id), &mut buffer, &mut admission),
                }
            }
        }
        // Connected peers detect the end of their connections.
        let connections = std::mem::take(&mut *lock(&self.connections));
        drop(connections);
    }

    /// Handles due timeouts, and returns the time until the next.
    fn handle_timeouts(&self, admission: &mut Admission) -> Option<Timespec> {
        let now = Instant::now();
        if admission.paused_until.is_some_and(|until| until <= now) {
            admission.paused_until = None;
            self.watch_listener(epoll::EventFlags::IN);
        }
        while let Some((until, id)) = admission.ungranted.front().copied()
            && until <= now
        {
            admission.ungranted.pop_front();
            let idle = lock(&self.connections)
                .get(&id)
                .is_some_and(|connection| connection.granted.is_empty());
            if idle {
                self.close(id);
            }
        }
        let first = admission.ungranted.front().map(|(until, _)| *until);
        let next = first.into_iter().chain(admission.paused_until).min()?;
        let time = next.saturating_duration_since(now);
        // Rounded up, so that the deadline has passed at the wake-up.
        Timespec::try_from(time + Duration::from_millis(1)).ok()
    }

    fn watch_listener(&self, flags: epoll::EventFlags) {
        if let Some(listener) = &*lock(&self.listener) {
            // Cannot fail: the listener is in the set for its whole lifetime.
            let _ = epoll::modify(
                &self.epoll,
                listener,
                epoll::EventData::new_u64(LISTENER),
                flags,
            );
        }
    }

    fn accept(&self, admission: &mut Admission) {
        let accepted = match &*lock(&self.listener) {
            Some(listener) => listener.accept(),
            None => return,
        };
        match accepted
            .and_then(|socket| socket.map_or(Ok(()), |socket| self.admit(socket, admission)))
        {
            Ok(()) => {}
            // Reported to the peer only.
            Err(Error::Full) => admission.warn(format_args!(
                "the agent refuses a connection: it has {} of at most {}, one process at most {}",
                lock(&self.connections).len(),
                self.limits.connections,
                self.limits.connections_per_process
            )),
            Err(error) => {
                admission.warn(format_args!("the agent cannot take a connection: {error}"));
                // Probably out of descriptors: the connection remains pending, and would immediately be reported again.
                admission.paused_until = Some(Instant::now() + BACK_OFF);
                self.watch_listener(epoll::EventFlags::empty());
            }
        }
    }

    /// Accepts a connection, or answers that the limit is reached.
    fn admit(&self, socket: Socket, admission: &mut Admission) -> Result<()> {
        let process = socket.peer_pid()?;
        let has_room = {
            let connections = lock(&self.connections);
            let of_process = |connection: &&Connection| connection.process == process;
            connections.len() < self.limits.connections
                && connections.values().filter(of_process).count()
                    < self.limits.connections_per_process
        };
        if !has_room {
            let refusal = ReplyHeader {
                result: Err(Error::Full),
                value: 0,
            };
            // The peer's socket buffer is empty, so the message fits unless the peer has disconnected.
            let _ = socket.send(&refusal.encode(), &[]);
            return Err(Error::Full);
        }
        let id = ConnectionId(admission.next_id);
        admission.next_id += 1;
        epoll::add(
            &self.epoll,
            &socket,
            epoll::EventData::new_u64(id.0),
            epoll::EventFlags::IN,
        )?;
        admission
            .ungranted
            .push_back((Instant::now() + self.limits.idle, id));
        lock(&self.connections).insert(
            id,
            Connection {
                socket: Arc::new(socket),
                process,
                granted: Vec::new(),
                calls: Vec::new(),
            },
        );
        Ok(())
    }

    fn serve(&self, id: ConnectionId, buffer: &mut [u8], admission: &mut Admission) {
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
                admission.warn(format_args!("the agent closes a connection: {error}"));
                self.close(id);
            }
        }
    }

    fn close(&self, id: ConnectionId) {
        let Some(connection) = lock(&self.connections).remove(&id) else {
            return;
        };
        // Before the descriptor is closed, because a duplicate in another process would keep it in the epoll set.
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

/// Pause after a failed accept.
const BACK_OFF: Duration = Duration::from_millis(100);

/// State of accepting connections; used by the agent thread only.
struct Admission {
    next_id: u64,
    /// Connections without a grant, with their deadlines.
    ungranted: VecDeque<(Instant, ConnectionId)>,
    /// Time before which the listener is not polled.
    paused_until: Option<Instant>,
    warnings: Limited,
}

impl Admission {
    fn new() -> Admission {
        Admission {
            next_id: 0,
            ungranted: VecDeque::new(),
            paused_until: None,
            warnings: Limited::new(1),
        }
    }

    /// Logs at a limited rate: peers can cause these messages at any rate.
    fn warn(&mut self, what: fmt::Arguments<'_>) {
        if let Some(suppressed) = self.warnings.admit(Instant::now()) {
            log::warn!("{what}{suppressed}");
        }
    }
}

/// Runs code of a service; `None` if it panicked, which must not end the agent thread.
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

pub(super) fn with_signals_blocked<T>(action: impl FnOnce() -> T) -> T {
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

// Processing of one request by the agent.

impl Server {
    /// Receives a request and replies. Returns `false` if the peer has closed the connection. An error closes the
    /// connection; invalid requests are answered instead.
    pub(in crate::agent) fn answer(
        &self,
        id: ConnectionId,
        socket: &Socket,
        buffer: &mut [u8],
    ) -> Result<bool> {
        let mut head = [0; RequestHeader::SIZE];
        let Some(len) = socket.peek(&mut head)? else {
            return Ok(false);
        };
        let header = RequestHeader::decode(&head[..len])?;
        // A write's payload is received directly into its destination; other messages are received into a buffer
        // first.
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
                let value = self.atomic(&header, protocol::fetch_add(header.operands[0]));
                reply(socket, value, &[], &[])?;
            }
            Operation::CompareSwap => {
                let [expected, new] = header.operands;
                let value = self.atomic(&header, protocol::compare_swap(expected, new));
                reply(socket, value, &[], &[])?;
            }
            Operation::Describe => match self.describe(&header) {
                Ok((count, payload, fds)) => {
                    self.grant(id, header.key)?;
                    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
                    reply(socket, Ok(count), &payload, &fds)?;
                }
                Err(error) => reply(socket, Err(error), &[], &[])?,
            },
            Operation::Validity => {
                let word = self.with_export(header.key, |export| {
                    export.validity.clone().ok_or(Error::NotSupported)
                });
                match word {
                    Ok(word) => reply(socket, Ok(word.place()), &[], &[word.memfd.as_fd()])?,
                    Err(error) => reply(socket, Err(error), &[], &[])?,
                }
            }
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
            // The refused message is still in the socket; the result reports truncation, as intended. SAFETY: no buffer
            // is passed.
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
            // The peer may have altered the descriptor's permissions.
            if !export.rights.include(header.operands[0]) {
                return Err(Error::NotPermitted);
            }
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
        let answer = shielded(|| handler(request)).unwrap_or(Err(Error::Unexpected))?;
        if answer.payload.len() > MAX_PAYLOAD || answer.fds.len() > MAX_FDS {
            return Err(Error::TooBig.because("a service's reply does not fit into one message"));
        }
        Ok(answer)
    }

    /// Records the call before its success is reported to the peer, which may disconnect immediately.
    fn reply_to_call(
        &self,
        id: ConnectionId,
        socket: &Socket,
        service: Key,
        answer: Reply,
    ) -> Result<()> {
        self.grant(id, service)?;
        if let Some(connection) = lock(&self.connections).get_mut(&id) {
            connection.calls.push((service, answer.on_close));
        }
        if !lock(&self.services).contains_key(&service) {
            // Withdrawn while its handler was running.
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

// Exports and services of this process's agent, and its lifetime.

struct Running {
    server: Arc<Server>,
    users: usize,
}

static AGENT: Mutex<Option<Running>> = Mutex::new(None);

/// Keeps the agent running; dropping the last one stops it.
#[derive(Debug)]
struct AgentRef {
    server: Arc<Server>,
}

impl AgentRef {
    fn acquire() -> Result<AgentRef> {
        let mut agent = AGENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &mut *agent {
            running.users += 1;
            return Ok(AgentRef {
                server: Arc::clone(&running.server),
            });
        }
        let server = Server::start(&AgentAddress::local()?)?;
        *agent = Some(Running {
            server: Arc::clone(&server),
            users: 1,
        });
        Ok(AgentRef { server })
    }
}

impl Drop for AgentRef {
    fn drop(&mut self) {
        let mut agent = AGENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &mut *agent {
            running.users -= 1;
            if running.users == 0 {
                // Under the lock, so that the name is free before the next agent binds it.
                self.server.stop();
                *agent = None;
            }
        }
    }
}

/// Withdraws an export when dropped: afterwards, the agent no longer copies data to or from the memory. Memory that a
/// peer has mapped remains mapped in the peer.
#[derive(Debug)]
pub struct ExportGuard {
    key: Key,
    agent: AgentRef,
}

impl ExportGuard {
    /// The key under which the memory is offered.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl Drop for ExportGuard {
    fn drop(&mut self) {
        self.agent.server.withdraw_export(self.key);
    }
}

/// Exports memory under `key`, starting the agent if necessary.
///
/// # Errors
/// The agent cannot start: no runtime directory, thread or descriptors.
pub fn export(key: Key, export: Export) -> Result<ExportGuard> {
    let agent = AgentRef::acquire()?;
    agent.server.add_export(key, export);
    Ok(ExportGuard { key, agent })
}

/// Withdraws a service when dropped, and closes the connections that were made through it (without calling their
/// [`OnClose`](OnClose)). A call that is running in the agent thread at that time still completes.
#[derive(Debug)]
pub struct PublishGuard {
    key: Key,
    agent: AgentRef,
}

impl PublishGuard {
    /// The key under which the service is called.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl Drop for PublishGuard {
    fn drop(&mut self) {
        self.agent.server.withdraw_service(self.key);
    }
}

/// Lets other processes call `handler` through [`request`](super::request), starting the agent if necessary.
///
/// # Errors
/// As [`export`].
pub fn publish(key: Key, handler: Handler) -> Result<PublishGuard> {
    let agent = AgentRef::acquire()?;
    agent.server.add_service(key, handler);
    Ok(PublishGuard { key, agent })
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Backing, Rights, Segment};
    use super::*;
    use crate::runtime::BootId;

    /// An agent in addition to that of the process, with one export.
    struct Agent {
        server: Arc<Server>,
        name: String,
        key: Key,
    }

    impl Agent {
        fn start(connections: usize, idle: u64) -> Agent {
            let limits = Limits {
                connections,
                connections_per_process: connections,
                idle: Duration::from_millis(idle),
                ..Limits::get().unwrap().clone()
            };
            let mut bytes = [0; AgentAddress::SIZE];
            bytes[..BootId::SIZE].copy_from_slice(&BootId::current().unwrap().to_bytes());
            bytes[BootId::SIZE..].copy_from_slice(&Key::random().unwrap().to_bytes());
            let address = AgentAddress::decode(&bytes);
            let (server, key) = (
                Server::start_with(&address, limits).unwrap(),
                Key::random().unwrap(),
            );
            server.add_export(
                key,
                Export {
                    rights: Rights {
                        read: true,
                        write: false,
                        atomic: false,
                    },
                    segments: vec![Segment {
                        addr: 0x1000,
                        len: 8,
                        backing: Backing::Private,
                    }],
                    validity: None,
                },
            );
            let name = address.socket_name();
            Agent { server, name, key }
        }

        fn connect(&self) -> Socket {
            Socket::connect(&RuntimeDir::get().unwrap(), &self.name).unwrap()
        }

        fn connections(&self) -> usize {
            lock(&self.server.connections).len()
        }

        fn describe(&self, socket: &Socket) -> Result<()> {
            let request = RequestHeader {
                operation: Operation::Describe,
                key: self.key,
                addr: 0,
                len: 0,
                operands: [1, 0],
            };
            socket.send(&request.encode(), &[])?;
            reply_on(socket)
        }
    }

    impl Drop for Agent {
        fn drop(&mut self) {
            self.server.stop();
        }
    }

    fn reply_on(socket: &Socket) -> Result<()> {
        let mut buffer = [0; 1024];
        socket.wait_readable(Duration::from_secs(10))?;
        let len = socket.receive(&mut buffer, &mut Vec::new())?;
        ReplyHeader::decode(&buffer[..len.ok_or(Error::ConnectionReset)?])?.result
    }

    #[track_caller]
    fn wait_until(what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn connections_beyond_the_limit_are_refused_and_the_others_served() {
        let agent = Agent::start(3, 60_000);
        let sockets: Vec<_> = (0..3).map(|_| agent.connect()).collect();
        for _ in 0..50 {
            assert_eq!(reply_on(&agent.connect()), Err(Error::Full));
        }
        assert_eq!(agent.connections(), 3);
        for socket in &sockets {
            assert_eq!(agent.describe(socket), Ok(()));
        }
        drop(sockets);
        wait_until("room", || agent.connections() == 0);
        assert_eq!(agent.describe(&agent.connect()), Ok(()));
    }

    #[test]
    fn idle_connection_without_a_grant_is_closed() {
        let agent = Agent::start(8, 1500);
        let (idle, refused, used) = (agent.connect(), agent.connect(), agent.connect());
        assert_eq!(agent.describe(&used), Ok(()));
        let mut garbage = [0; RequestHeader::SIZE];
        garbage[..8].copy_from_slice(b"SDrq\x02\0\x02\0");
        refused.send(&garbage, &[]).unwrap();
        assert_eq!(reply_on(&refused), Err(Error::NotFound));
        wait_until("closed", || idle.is_closed() && refused.is_closed());
        assert!(!used.is_closed());
        assert_eq!(agent.describe(&used), Ok(()));
    }

    #[test]
    fn connection_ends_with_its_export() {
        let agent = Agent::start(8, 60_000);
        let used = agent.connect();
        assert_eq!(agent.describe(&used), Ok(()));
        agent.server.withdraw_export(agent.key);
        wait_until("closed", || used.is_closed() && agent.connections() == 0);
    }
}
