//! One thread with a virtqueue and a queue of the storage.
//!
//! While busy, it polls both; requests that complete in one iteration are announced to the driver together. When
//! idle, it sleeps until the driver kicks, the storage has a completion, or the session sends a command.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::thread::{CpuSet, sched_setaffinity};
use volume::{BlockQueue, ErrorLog, Io, IoError, Operation};

use crate::ring::{Outcome, Ring, RingError, Setup};

/// Idle poll iterations before the thread sleeps.
const SPINS: u32 = 64;

/// A virtqueue to serve.
#[derive(Debug)]
pub struct Start {
    pub setup: Setup,
    /// Descriptor that is readable when the driver has made requests available.
    pub kick: File,
    /// Descriptor to write to when requests are completed.
    pub call: Option<File>,
    /// Descriptor to write to when the driver has violated the protocol.
    pub error: Option<File>,
}

enum Command {
    Start(Box<Start>, SyncSender<Result<(), RingError>>),
    Call(Option<File>),
    Stop(SyncSender<u16>),
    Quit,
}

/// Handle of a session for a worker.
#[derive(Debug)]
pub struct Worker {
    commands: Sender<Command>,
    has_commands: Arc<AtomicBool>,
    waker: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread, pinned to `cpu` if given.
    ///
    /// # Errors
    /// The system is out of threads or file descriptors.
    pub fn spawn<Q: BlockQueue>(index: usize, queue: Q, cpu: Option<u32>) -> io::Result<Self> {
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let has_commands = Arc::new(AtomicBool::new(false));
        let (commands, receiver) = channel();
        let worker = Loop {
            queue,
            commands: receiver,
            has_commands: Arc::clone(&has_commands),
            waker: Arc::clone(&waker),
            served: None,
            stopping: None,
            position: 0,
            errors: ErrorLog::default(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("virtqueue {index}"))
            .spawn(move || {
                if let Some(cpu) = cpu {
                    let mut cpus = CpuSet::new();
                    cpus.set(cpu as usize);
                    if let Err(error) = sched_setaffinity(None, &cpus) {
                        tracing::warn!("virtqueue {index}: not bound to CPU {cpu}: {error}");
                    }
                }
                worker.run();
            })?;
        Ok(Self {
            commands,
            has_commands,
            waker,
            thread: Some(thread),
        })
    }

    /// Starts to serve a virtqueue.
    ///
    /// # Errors
    /// The values of the front end are invalid.
    pub fn start(&self, start: Start) -> Result<(), RingError> {
        let (sender, receiver) = sync_channel(1);
        self.send(Command::Start(Box::new(start), sender));
        receiver.recv().unwrap_or(Ok(()))
    }

    /// Completes all requests that were taken, stops taking requests, and returns the next index of the available ring.
    pub fn stop(&self) -> u16 {
        let (sender, receiver) = sync_channel(1);
        self.send(Command::Stop(sender));
        receiver.recv().unwrap_or(0)
    }

    /// Changes the descriptor for completions.
    pub fn set_call(&self, call: Option<File>) {
        self.send(Command::Call(call));
    }

    fn send(&self, command: Command) {
        // Fails only if the thread has exited.
        let _ = self.commands.send(command);
        self.has_commands.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.send(Command::Quit);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The virtqueue that is being served.
struct Served<B> {
    ring: Ring,
    kick: File,
    call: Option<File>,
    error: Option<File>,
    /// The I/O of a part that was handed out, if the queue of the storage was full.
    refused: Option<Io<B>>,
    /// `true` if the driver has violated the protocol.
    is_broken: bool,
}

struct Loop<Q: BlockQueue> {
    queue: Q,
    commands: Receiver<Command>,
    has_commands: Arc<AtomicBool>,
    waker: Arc<OwnedFd>,
    served: Option<Served<Q::Buffer>>,
    stopping: Option<SyncSender<u16>>,
    /// Next available index of the last virtqueue when it was stopped.
    position: u16,
    errors: ErrorLog,
}

impl<Q: BlockQueue> Loop<Q> {
    fn run(mut self) {
        let mut idle = 0;
        loop {
            if self.has_commands.swap(false, Ordering::Acquire) && !self.obey() {
                return;
            }
            let has_submitted = self.submit();
            let has_completed = self.reap();
            self.finish_stop();
            if has_submitted || has_completed {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle <= SPINS {
                // The storage or the guest may need the CPU.
                std::thread::yield_now();
            } else {
                self.sleep();
            }
        }
    }

    /// Executes commands of sessions; returns `false` when the thread is to exit.
    #[cold]
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Start(start, reply) => {
                    let _ = reply.send(self.start(*start));
                }
                Command::Call(call) => {
                    if let Some(served) = &mut self.served {
                        call.iter().for_each(unblock);
                        served.call = call;
                        // Earlier completions may have been announced to the previous descriptor only.
                        announce(served.call.as_ref());
                    }
                }
                Command::Stop(reply) => {
                    if let Some(served) = &mut self.served {
                        served.ring.drain();
                    }
                    self.stopping = Some(reply);
                }
                Command::Quit => return false,
            }
        }
        true
    }

    fn start(&mut self, start: Start) -> Result<(), RingError> {
        let Start {
            setup,
            kick,
            call,
            error,
        } = start;
        let mut ring = Ring::new(setup)?;
        for file in [Some(&kick), call.as_ref(), error.as_ref()]
            .into_iter()
            .flatten()
        {
            unblock(file);
        }
        ring.disarm();
        self.served = Some(Served {
            ring,
            kick,
            call,
            error,
            refused: None,
            is_broken: false,
        });
        Ok(())
    }

    /// Takes requests, and submits I/Os until the queue of the storage is full; returns `true` if any were submitted.
    fn submit(&mut self) -> bool {
        let Some(served) = &mut self.served else {
            return false;
        };
        let mut is_busy = false;
        loop {
            if let Some(io) = served.refused.take() {
                if let Err(io) = self.queue.submit(io) {
                    served.refused = Some(io);
                    return is_busy;
                }
                is_busy = true;
            }
            if served.is_broken {
                return is_busy;
            }
            let part = match served.ring.next_part() {
                Ok(Some(part)) => part,
                Ok(None) => return is_busy,
                Err(error) => {
                    served.violated(&error);
                    return is_busy;
                }
            };
            let mut buffer = None;
            if part.operation.has_buffer() {
                let Some(mut memory) = self.queue.buffer(part.len as usize) else {
                    return is_busy;
                };
                if let Operation::Write { .. } = part.operation
                    && served.ring.copy_from_guest(&part, &mut memory).is_err()
                {
                    served.ring.fail_part();
                    continue;
                }
                buffer = Some(memory);
            }
            served.ring.handed_out(&part);
            served.refused = Some(Io {
                tag: part.tag,
                operation: part.operation,
                offset: part.offset,
                len: part.len,
                buffer,
            });
        }
    }

    /// Takes completions, and announces completed requests to the driver; returns `true` if there were any completions.
    fn reap(&mut self) -> bool {
        let Some(served) = &mut self.served else {
            // The storage may have other events, such as the end of a session.
            return self.queue.poll(&mut drop) != 0;
        };
        let errors = &mut self.errors;
        let count = self.queue.poll(&mut |completion| {
            let outcome = match completion.result {
                Ok(()) => Outcome::Done(completion.buffer.as_deref().unwrap_or(&[])),
                // Another back end process may execute the request.
                Err(IoError::Closed) => Outcome::Abandoned,
                // Logged once per queue and loss, so no rate limit is needed.
                Err(error @ IoError::LostWrites) => {
                    tracing::error!("a flush fails: {error}");
                    Outcome::Failed
                }
                Err(error) => {
                    errors.failed(&error);
                    Outcome::Failed
                }
            };
            served.ring.complete(completion.tag, outcome);
            if outcome == Outcome::Abandoned {
                served.ring.abandon();
            }
        });
        if served.ring.take_notification() {
            announce(served.call.as_ref());
        }
        count != 0
    }

    /// Stops a virtqueue as requested, once none of its I/Os is in flight.
    fn finish_stop(&mut self) {
        let Some(stopping) = self.stopping.take() else {
            return;
        };
        if let Some(served) = &self.served {
            // The current request of a broken ring has no further parts.
            let is_done = served.refused.is_none()
                && (served.ring.is_drained() || served.is_broken && served.ring.outstanding() == 0);
            if !is_done {
                self.stopping = Some(stopping);
                return;
            }
            self.position = served.ring.next_available();
            self.served = None;
        }
        let _ = stopping.send(self.position);
    }

    #[cold]
    fn sleep(&mut self) {
        let is_armed = self.queue.arm() && self.served.as_mut().is_none_or(Served::arm);
        if is_armed && !self.has_commands.load(Ordering::Acquire) {
            let descriptor = self.queue.descriptor();
            let mut fds = vec![
                PollFd::new(&self.waker, PollFlags::IN),
                PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
            ];
            if let Some(served) = self
                .served
                .as_ref()
                .filter(|served| served.waits_for_driver())
            {
                fds.push(PollFd::new(&served.kick, PollFlags::IN));
            }
            // After an interruption by a signal, all sources are polled.
            let _ = rustix::event::poll(&mut fds, None);
            let events: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
            if events[0].contains(PollFlags::IN) {
                let _ = rustix::io::read(&self.waker, &mut [0_u8; 8]);
            }
            if let (Some(served), Some(&events)) = (&mut self.served, events.get(2)) {
                if events.contains(PollFlags::IN) {
                    let _ = rustix::io::read(&served.kick, &mut [0_u8; 8]);
                } else if !events.is_empty() {
                    tracing::warn!(
                        "the front end's kick descriptor cannot be waited for; the virtqueue is stopped"
                    );
                    served.stop_broken();
                }
            }
        } else {
            // The storage or the guest may need the CPU.
            std::thread::yield_now();
        }
        self.queue.disarm();
        if let Some(served) = &mut self.served {
            served.ring.disarm();
        }
    }
}

impl<B> Served<B> {
    /// Returns `false` if progress does not depend on the driver: an I/O waits for the storage, or the driver has
    /// violated the protocol.
    fn waits_for_driver(&self) -> bool {
        !self.is_broken && self.refused.is_none() && !self.ring.has_part()
    }

    /// Enables notifications before a sleep; returns `false` if a request is available.
    fn arm(&mut self) -> bool {
        !self.waits_for_driver() || self.ring.arm()
    }

    #[cold]
    fn violated(&mut self, error: &RingError) {
        tracing::warn!("the driver has violated the protocol; the virtqueue is stopped: {error}");
        self.stop_broken();
    }

    fn stop_broken(&mut self) {
        self.is_broken = true;
        announce(self.error.as_ref());
    }
}

/// Makes a front end's descriptor non-blocking, so that the front end cannot block this thread. The flag is shared with
/// the front end; a front end that clears it blocks only its own virtqueue.
fn unblock(file: &File) {
    if let Ok(flags) = fcntl_getfl(file) {
        let _ = fcntl_setfl(file, flags | OFlags::NONBLOCK);
    }
}

/// Adds 1 to a front end's event counter.
fn announce(file: Option<&File>) {
    if let Some(file) = file {
        // A full counter is also readable.
        let _ = rustix::io::write(file.as_fd(), &1_u64.to_ne_bytes());
    }
}
