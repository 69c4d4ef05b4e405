//! The block device of the server: queues of asynchronous I/Os. [`Disk`] is a device in memory, for tests and measurements of the
//! protocol without a storage.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use volume::{Buffer, IoError, Queue as VolumeQueue, WriteLosses};

pub use volume::Operation;

/// An I/O on any range of bytes within the device.
#[derive(Debug)]
pub struct Io<B> {
    /// Chosen by the submitter, and returned in the completion.
    pub tag: u64,
    pub operation: Operation,
    /// Offset on the device in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// Buffer of exactly `len` bytes; for reads and writes only.
    pub buffer: Option<B>,
}

/// Failure of an I/O. The device logs the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

#[derive(Debug)]
pub struct Completion<B> {
    pub tag: u64,
    pub result: Result<(), Failed>,
    /// Buffer that was submitted with the I/O, if any.
    pub buffer: Option<B>,
    /// Number of [losses](Losses::count) so far.
    pub losses: u64,
}

/// Losses of writes that the device had completed, and that no flush had covered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    pub count: u64,
    /// Number of losses of which a client was told.
    pub reported: u64,
}

/// A submission queue with its completions, for one thread.
pub trait Queue {
    /// Buffer from the queue. Dropping it returns it.
    type Buffer: AsRef<[u8]> + AsMut<[u8]> + Send;

    /// Returns a buffer for an I/O of `len` bytes, at most [`crate::MAX_SEGMENT`]. `None` if all are in use; retry
    /// after completions.
    fn buffer(&mut self, len: usize) -> Option<Self::Buffer>;

    /// Submits an I/O.
    ///
    /// # Errors
    ///
    /// The queue is full: returns the I/O, which can be submitted again after a completion.
    fn submit(&mut self, io: Io<Self::Buffer>) -> Result<(), Io<Self::Buffer>>;

    /// Makes progress, and passes completions to `done`; never blocks. Returns the number of completions.
    fn poll(&mut self, done: &mut dyn FnMut(Completion<Self::Buffer>)) -> usize;

    /// Losses of writes of all queues. Each client that flushes afterwards has to be told.
    fn losses(&self) -> Losses;

    /// Descriptor that is readable when an armed queue must be polled.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Arms the descriptor before a sleep. Returns `false` if the queue must be polled instead.
    fn arm(&mut self) -> bool;

    /// Reverts [`arm`](Self::arm).
    fn disarm(&mut self);
}

/// Number of failed I/Os that a process logs; further ones are only counted, so that an offline storage does not fill the log.
const LOGGED: u64 = 100;

static FAILURES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub struct StorageQueue {
    queue: VolumeQueue,
    losses: WriteLosses,
}

impl From<VolumeQueue> for StorageQueue {
    fn from(queue: VolumeQueue) -> Self {
        Self {
            losses: queue.write_losses(),
            queue,
        }
    }
}

impl Queue for StorageQueue {
    type Buffer = Buffer;

    fn buffer(&mut self, len: usize) -> Option<Buffer> {
        self.queue.buffer(len)
    }

    fn submit(&mut self, io: Io<Buffer>) -> Result<(), Io<Buffer>> {
        let Io {
            tag,
            operation,
            offset,
            len,
            buffer,
        } = io;
        let theirs = volume::Io {
            tag,
            operation,
            offset,
            len,
            buffer,
        };
        self.queue.submit(theirs).map_err(|io| Io {
            tag,
            operation,
            offset,
            len,
            buffer: io.buffer,
        })
    }

    fn poll(&mut self, done: &mut dyn FnMut(Completion<Buffer>)) -> usize {
        let losses = &self.losses;
        self.queue.poll(&mut |completion| {
            let volume::Completion {
                tag,
                result,
                buffer,
            } = completion;
            let result = match result {
                // Each client of the queue is told, by its connection.
                Ok(()) | Err(IoError::LostWrites) => Ok(()),
                Err(error) => {
                    log(&error);
                    Err(Failed)
                }
            };
            done(Completion {
                tag,
                result,
                buffer,
                losses: losses.count(),
            });
        })
    }

    fn losses(&self) -> Losses {
        Losses {
            count: self.losses.count(),
            reported: self.losses.reported(),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    fn disarm(&mut self) {
        self.queue.disarm();
    }
}

#[cold]
fn log(error: &IoError) {
    match FAILURES.fetch_add(1, Ordering::Relaxed) {
        LOGGED => tracing::error!("further failed I/Os are not logged"),
        count if count < LOGGED => tracing::error!("I/O failed: {error}"),
        _ => {}
    }
}

/// A disk whose contents all queues share.
#[derive(Debug, Clone)]
pub struct Disk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    /// Byte range on which I/Os fail.
    bad: Range<u64>,
    flushes: u64,
    losses: Losses,
}

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Maximum number of I/Os in flight.
    pub depth: usize,
    pub buffers: usize,
    /// Polls after which an I/O completes.
    pub delay: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            depth: 256,
            buffers: 256,
            delay: 0,
        }
    }
}

/// A queue of the disk.
#[derive(Debug)]
pub struct MemoryQueue {
    disk: Disk,
    settings: Settings,
    buffers: Arc<AtomicUsize>,
    pending: VecDeque<(u32, Io<MemoryBuffer>)>,
    event: OwnedFd,
}

/// A buffer of a queue.
#[derive(Debug)]
pub struct MemoryBuffer {
    bytes: Vec<u8>,
    free: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for MemoryBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for MemoryBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for MemoryBuffer {
    fn drop(&mut self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}

impl Disk {
    /// Creates a disk of `size` zero bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                bytes: vec![0; size],
                bad: 0..0,
                flushes: 0,
                losses: Losses::default(),
            })),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// Replaces the contents from offset 0 on.
    pub fn fill(&self, bytes: &[u8]) {
        self.state().bytes[..bytes.len()].copy_from_slice(bytes);
    }

    /// Makes I/Os on these bytes fail.
    pub fn fail(&self, bad: Range<u64>) {
        self.state().bad = bad;
    }

    /// Sets the losses of completed writes.
    pub fn lose(&self, losses: Losses) {
        self.state().losses = losses;
    }

    /// Number of flushes and of writes with FUA.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.state().flushes
    }

    /// Creates a queue.
    ///
    /// # Errors
    ///
    /// The process or the system has too many open files.
    pub fn queue(&self, settings: Settings) -> std::io::Result<MemoryQueue> {
        Ok(MemoryQueue {
            disk: self.clone(),
            settings,
            buffers: Arc::new(AtomicUsize::new(settings.buffers)),
            pending: VecDeque::new(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn execute(&self, io: &mut Io<MemoryBuffer>) -> Result<(), Failed> {
        let mut state = self.state();
        let range = io.offset as usize..io.offset as usize + io.len as usize;
        let is_bad = io.offset < state.bad.end && io.offset + u64::from(io.len) > state.bad.start;
        if is_bad {
            return Err(Failed);
        }
        match (io.operation, &mut io.buffer) {
            (Operation::Read, Some(buffer)) => {
                buffer.bytes.copy_from_slice(&state.bytes[range]);
            }
            (Operation::Write { fua }, Some(buffer)) => {
                state.bytes[range].copy_from_slice(&buffer.bytes);
                state.flushes += u64::from(fua);
            }
            (Operation::WriteZeroes { fua }, None) => {
                state.bytes[range].fill(0);
                state.flushes += u64::from(fua);
            }
            (Operation::Discard, None) => {}
            (Operation::Flush, None) => state.flushes += 1,
            _ => return Err(Failed),
        }
        Ok(())
    }
}

impl Queue for MemoryQueue {
    type Buffer = MemoryBuffer;

    fn buffer(&mut self, len: usize) -> Option<MemoryBuffer> {
        let taken = self
            .buffers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(1)
            });
        taken.ok().map(|_| MemoryBuffer {
            bytes: vec![0; len],
            free: self.buffers.clone(),
        })
    }

    fn submit(&mut self, io: Io<MemoryBuffer>) -> Result<(), Io<MemoryBuffer>> {
        if self.pending.len() == self.settings.depth {
            return Err(io);
        }
        self.pending.push_back((self.settings.delay, io));
        Ok(())
    }

    fn poll(&mut self, done: &mut dyn FnMut(Completion<MemoryBuffer>)) -> usize {
        let mut count = 0;
        for _ in 0..self.pending.len() {
            let Some((delay, mut io)) = self.pending.pop_front() else {
                break;
            };
            if delay > 0 {
                self.pending.push_back((delay - 1, io));
                continue;
            }
            let result = self.disk.execute(&mut io);
            count += 1;
            done(Completion {
                tag: io.tag,
                result,
                buffer: io.buffer,
                losses: self.losses().count,
            });
        }
        count
    }

    fn losses(&self) -> Losses {
        self.disk.state().losses
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn arm(&mut self) -> bool {
        self.pending.is_empty()
    }

    fn disarm(&mut self) {}
}
