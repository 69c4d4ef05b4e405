//! The server: accepts clients, and assigns each to a worker.
//!
//! A [`Worker`] is one thread with its queue and its connections. While busy, it polls the queue, and the sockets
//! without waiting; replies that accumulate in the meantime are sent together. When idle, it sleeps until a socket, the
//! queue or the main thread wakes it.

use std::io;
use std::ops::DerefMut;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::shutdown::Shutdown;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use slab::Slab;
use volume::{BlockQueue, ErrorLog, IoError};

use crate::connection::{Connection, Ended, Shared, Wants};
use crate::negotiation::Security;
use crate::sockets::{Listener, Socket};

/// Pause after `accept` has failed for a reason that may persist, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Interval between warnings about refused clients.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// A server with one worker per queue.
#[derive(Debug)]
pub struct Server<Q: BlockQueue> {
    shared: Arc<Shared>,
    max_connections: usize,
    workers: Vec<(Handle, JoinHandle<io::Result<Q>>)>,
}

impl<Q: BlockQueue> Server<Q> {
    /// Starts the workers, each pinned to its entry of `cpus`, or not pinned without an entry.
    ///
    /// # Errors
    ///
    /// The process or the system has too many open files or threads.
    pub fn start(
        queues: Vec<Q>,
        cpus: &[u32],
        shared: Shared,
        max_connections: usize,
    ) -> io::Result<Self> {
        let shared = Arc::new(shared);
        let mut workers = Vec::new();
        for (index, queue) in queues.into_iter().enumerate() {
            let (worker, handle) = Worker::new(queue, shared.clone())?;
            let cpu = cpus.get(index).copied();
            let thread = std::thread::Builder::new()
                .name(format!("nbd-{index}"))
                .spawn(move || {
                    if let Some(cpu) = cpu {
                        pin(cpu)?;
                    }
                    worker.run()
                })?;
            workers.push((handle, thread));
        }
        Ok(Self {
            shared,
            max_connections,
            workers,
        })
    }

    /// Accepts clients until shutdown is requested: connection n is assigned to worker n modulo the number of workers.
    ///
    /// # Errors
    ///
    /// A worker has exited, or epoll failed.
    pub fn serve(&self, listeners: &[Listener], shutdown: &Shutdown) -> io::Result<()> {
        let mut number = 0;
        let mut warned: Option<Instant> = None;
        while !shutdown.is_requested() {
            let waker = shutdown.waker().readable();
            let mut descriptors: Vec<_> = listeners
                .iter()
                .map(Listener::descriptor)
                .chain([waker])
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            // Workers exit only on request; a worker that exits by itself is detected within a second.
            let second = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            match poll(&mut descriptors, Some(&second)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if self.workers.iter().any(|(_, thread)| thread.is_finished()) {
                return Err(io::Error::other("a worker thread has ended"));
            }
            for listener in listeners {
                loop {
                    match listener.accept() {
                        Ok(None) => break,
                        Ok(Some((socket, peer))) => {
                            let open: usize = self
                                .workers
                                .iter()
                                .map(|(handle, _)| handle.connections())
                                .sum();
                            if open >= self.max_connections {
                                let now = Instant::now();
                                if warned.is_none_or(|it| now - it >= WARNING_INTERVAL) {
                                    warned = Some(now);
                                    tracing::warn!(
                                        peer,
                                        "refused: {open} clients are connected; --max-connections allows no more"
                                    );
                                }
                                continue;
                            }
                            let security = if listener.is_tcp() && self.shared.tls.is_some() {
                                Security::TlsRequired
                            } else {
                                Security::Plain
                            };
                            let (handle, _) = &self.workers[number % self.workers.len()];
                            handle.serve(Client {
                                socket,
                                peer,
                                security,
                            });
                            number += 1;
                        }
                        Err(error) => {
                            tracing::warn!("cannot accept a client: {error}");
                            std::thread::sleep(PAUSE);
                            break;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Completes requests in flight, stops the workers, and returns their queues.
    ///
    /// # Errors
    ///
    /// A worker has failed.
    pub fn stop(self) -> io::Result<Vec<Q>> {
        for (handle, _) in &self.workers {
            handle.stop();
        }
        self.workers
            .into_iter()
            .map(|(_, thread)| {
                thread
                    .join()
                    .map_err(|_| io::Error::other("a worker thread has panicked"))?
            })
            .collect()
    }
}

/// Pins the calling thread to a CPU.
fn pin(cpu: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set)
        .map_err(|error| io::Error::other(format!("--cpu {cpu}: cannot run there: {error}")))
}

/// Idle poll iterations with I/Os outstanding before the thread sleeps.
const SPINS: u32 = 64;

/// Interval between checks of deadlines.
const CHECKS: Duration = Duration::from_millis(250);

/// Time for requests in flight to complete when the server shuts down.
const DRAIN: Duration = Duration::from_secs(5);

/// Maximum number of events per call of epoll_wait.
const EVENTS: usize = 64;

const WAKER: u64 = u64::MAX;
const QUEUE: u64 = u64::MAX - 1;

/// A client to be served by a worker.
#[derive(Debug)]
pub struct Client {
    pub socket: Socket,
    /// Description of the client for the log.
    pub peer: String,
    /// TLS requirement of the client.
    pub security: Security,
}

/// Handle of the main thread for a worker.
#[derive(Debug)]
pub struct Handle {
    clients: Sender<Client>,
    waker: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
}

impl Handle {
    /// Passes a client to the worker.
    pub fn serve(&self, client: Client) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        if self.clients.send(client).is_err() {
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
        self.wake();
    }

    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Requests the worker to complete requests in flight and exit.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // A counter at its maximum also wakes the worker.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }
}

/// A worker thread of the server.
#[derive(Debug)]
pub struct Worker<Q: BlockQueue> {
    queue: Q,
    shared: Arc<Shared>,
    clients: Receiver<Client>,
    waker: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    epoll: OwnedFd,
    connections: Slab<Connection<Q::Buffer>>,
    /// Number of I/Os in the queue.
    outstanding: usize,
    errors: ErrorLog,
    /// `true` if buffers were freed since the last retry of starved connections.
    has_freed: bool,
    /// Index of the connection that the next iteration starts with.
    first: usize,
    ends_at: Option<Instant>,
}

impl<Q: BlockQueue> Worker<Q> {
    /// Creates a worker for a queue, and its handle.
    ///
    /// # Errors
    ///
    /// The process or the system has too many open files.
    pub fn new(queue: Q, shared: Arc<Shared>) -> io::Result<(Self, Handle)> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let add = |descriptor, data| {
            epoll::add(&epoll, descriptor, EventData::new_u64(data), EventFlags::IN)
        };
        add(waker.as_fd(), WAKER)?;
        add(queue.descriptor(), QUEUE)?;
        let (sender, clients) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicUsize::new(0));
        let handle = Handle {
            clients: sender,
            waker: waker.clone(),
            stop: stop.clone(),
            connections: count.clone(),
        };
        let worker = Self {
            queue,
            shared,
            clients,
            waker,
            stop,
            count,
            epoll,
            connections: Slab::new(),
            outstanding: 0,
            errors: ErrorLog::default(),
            has_freed: false,
            first: 0,
            ends_at: None,
        };
        Ok((worker, handle))
    }

    /// Serves clients until [`Handle::stop`]. Returns the queue.
    ///
    /// # Errors
    ///
    /// epoll failed.
    pub fn run(mut self) -> io::Result<Q> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut idle = 0;
        let mut checked = Instant::now();
        loop {
            let completed = self.poll_queue();
            let stepped = self.step_all();
            let has_ended = self.ends_at.is_some() && self.connections.is_empty();
            if has_ended {
                return Ok(self.queue);
            }
            idle = if completed || stepped { 0 } else { idle + 1 };
            let may_sleep = idle > 0 && (self.outstanding == 0 || idle > SPINS);
            let armed = may_sleep && self.queue.arm();
            let limit = if armed {
                self.sleep_limit()
            } else {
                Some(Timespec::default())
            };
            events.clear();
            let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), limit.as_ref());
            if armed {
                self.queue.disarm();
            }
            match waited {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if events.is_empty() && !armed && idle > 0 {
                std::thread::yield_now();
            }
            for event in &events {
                idle = 0;
                self.event(event.data.u64(), event.flags);
            }
            if armed || completed {
                let now = Instant::now();
                if now.duration_since(checked) >= CHECKS {
                    checked = now;
                    self.check(now);
                }
            }
        }
    }

    /// Maximum time to sleep before deadlines must be checked, if there are any.
    fn sleep_limit(&self) -> Option<Timespec> {
        let has_deadlines = !self.connections.is_empty() || self.ends_at.is_some();
        has_deadlines.then(|| Timespec {
            tv_sec: 0,
            tv_nsec: CHECKS.as_nanos() as _,
        })
    }

    fn poll_queue(&mut self) -> bool {
        let (connections, errors) = (&mut self.connections, &mut self.errors);
        let completed = self.queue.poll(&mut |completion| {
            match &completion.result {
                // Logged by the connections that are informed.
                Ok(()) | Err(IoError::LostWrites) => {}
                Err(error) => errors.failed(error),
            }
            let index = (completion.tag >> 32) as usize;
            let part = completion.tag as u32;
            if let Some(connection) = connections.get_mut(index) {
                connection.complete(index, part, completion);
                connection.is_dirty = true;
            }
        });
        if completed == 0 {
            return false;
        }
        self.wake_starved();
        true
    }

    fn event(&mut self, data: u64, flags: EventFlags) {
        match data {
            QUEUE => {}
            WAKER => self.woken(),
            index => {
                let index = index as usize;
                let Some(connection) = self.connections.get_mut(index) else {
                    return;
                };
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    connection.readable();
                }
                connection.is_dirty = true;
                if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                    // The event would be reported until the socket is closed. Bytes received before can still be read
                    // without waiting.
                    unregister(&self.epoll, connection);
                }
            }
        }
    }

    fn woken(&mut self) {
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
        while let Ok(client) = self.clients.try_recv() {
            if self.ends_at.is_some() {
                self.count.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            tracing::info!(peer = client.peer, "connected");
            let connection = Connection::new(
                client.socket,
                client.peer,
                client.security,
                &self.shared,
                Instant::now(),
            );
            let index = self.connections.insert(connection);
            self.connections[index].is_dirty = true;
        }
        if self.stop.load(Ordering::Acquire) && self.ends_at.is_none() {
            self.ends_at = Some(Instant::now() + DRAIN);
            for (_, connection) in &mut self.connections {
                connection.end();
                connection.is_dirty = true;
            }
        }
    }

    /// Steps all connections with pending events. Returns `true` if any had pending events.
    fn step_all(&mut self) -> bool {
        let count = self.connections.capacity().min(self.connections_bound());
        let mut stepped = false;
        // Starts with a different connection each time, for fairness when buffers are scarce.
        self.first = if self.first + 1 < count {
            self.first + 1
        } else {
            0
        };
        for at in 0..count {
            let index = (self.first + at) % count;
            let is_dirty = self
                .connections
                .get(index)
                .is_some_and(|connection| connection.is_dirty);
            if is_dirty {
                stepped = true;
                self.step(index);
            }
        }
        if std::mem::take(&mut self.has_freed) {
            self.wake_starved();
        }
        self.outstanding = self
            .connections
            .iter()
            .map(|(_, connection)| connection.outstanding())
            .sum();
        stepped
    }

    /// Marks connections that wait for buffers or for the queue for another attempt.
    fn wake_starved(&mut self) {
        for (_, connection) in &mut self.connections {
            connection.is_dirty |= connection.is_starved;
        }
    }

    /// Largest index of a connection plus one.
    fn connections_bound(&self) -> usize {
        self.connections
            .iter()
            .next_back()
            .map_or(0, |(index, _)| index + 1)
    }

    fn step(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.is_dirty = false;
        let moved = connection.moved();
        if let Err(reason) = connection.step(index, &mut self.queue, &self.shared) {
            close(&self.epoll, connection, &reason);
        }
        // Sent replies and closed connections free memory.
        self.has_freed |= connection.moved() != moved || connection.descriptor().is_none();
        if connection.is_over() {
            self.remove(index);
        } else {
            self.register(index);
        }
    }

    fn remove(&mut self, index: usize) {
        self.connections.remove(index);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Updates the events that a connection's socket is registered for.
    fn register(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let wants = connection.wants();
        let Some(descriptor) = connection.descriptor() else {
            return;
        };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, wants.read);
        flags.set(EventFlags::OUT, wants.write);
        let data = EventData::new_u64(index as u64);
        let result = match connection.registered {
            Some(registered) if registered == wants => return,
            Some(_) => epoll::modify(&self.epoll, descriptor, data, flags),
            None if connection.is_hung_up => return,
            None => epoll::add(&self.epoll, descriptor, data, flags),
        };
        match result {
            Ok(()) => connection.registered = Some(wants),
            Err(error) => {
                let reason = Ended::Lost(error.into());
                close(&self.epoll, connection, &reason);
                connection.is_dirty = true;
            }
        }
    }

    fn check(&mut self, now: Instant) {
        let is_late = self.ends_at.is_some_and(|end| now >= end);
        for (_, connection) in &mut self.connections {
            let result = if is_late {
                Err(Ended::Shutdown)
            } else {
                connection.check(&self.shared, now)
            };
            match result {
                Ok(has_freed) => self.has_freed |= has_freed,
                Err(reason) => {
                    close(&self.epoll, connection, &reason);
                    connection.is_dirty = true;
                }
            }
        }
        if is_late {
            // The device, which is dropped next, still owns the buffers of I/Os in flight.
            self.connections.clear();
        }
    }
}

fn unregister<B: DerefMut<Target = [u8]>>(epoll: &OwnedFd, connection: &mut Connection<B>) {
    if let Some(Wants { .. }) = connection.registered.take()
        && let Some(descriptor) = connection.descriptor()
    {
        let _ = epoll::delete(epoll, descriptor);
    }
    connection.is_hung_up = true;
}

fn close<B: DerefMut<Target = [u8]>>(
    epoll: &OwnedFd,
    connection: &mut Connection<B>,
    reason: &Ended,
) {
    if connection.descriptor().is_none() {
        return;
    }
    unregister(epoll, connection);
    match reason {
        Ended::Disconnected | Ended::Shutdown => {
            tracing::info!(peer = connection.peer, "{reason}");
        }
        _ => tracing::warn!(peer = connection.peer, "{reason}"),
    }
    connection.close();
}
