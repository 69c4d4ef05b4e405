//! The server: accepts clients, and assigns each to a worker.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use role_common::shutdown::Shutdown;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::connection::Shared;
use crate::device::Queue;
use crate::negotiation::Security;
use crate::sockets::Listener;
use crate::worker::{Client, Handle, Worker};

/// Pause after `accept` has failed for a reason that may persist, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Interval between warnings about refused clients.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// A server with one worker per queue.
#[derive(Debug)]
pub struct Server<Q: Queue + Send + 'static> {
    shared: Arc<Shared>,
    max_connections: usize,
    workers: Vec<(Handle, JoinHandle<io::Result<Q>>)>,
}

impl<Q: Queue + Send + 'static> Server<Q> {
    /// Starts the workers, each pinned to its entry of `cpus`, or not pinned if it has none.
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
            // Workers exit on request only; one that exits by itself is detected within a second.
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
