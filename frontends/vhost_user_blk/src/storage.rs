//! The storage of the virtqueues: queues of asynchronous I/Os.

use std::collections::VecDeque;
use std::ops::DerefMut;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use volume::{Io, IoError, Operation};

use crate::ring::Part;

/// Reason why an I/O was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// It failed; the storage has logged the reason.
    Failed,
    /// The storage was closed: another process may execute the I/O.
    Closed,
}

/// A submission queue with its completions, for one thread.
pub trait Queue: Send + 'static {
    /// Buffer for the data of an I/O. Dropping it frees it.
    type Buffer: DerefMut<Target = [u8]> + Send;

    /// Returns a buffer of `len` bytes, at most the largest transfer. `None` if all are in use; retry after completions.
    fn buffer(&mut self, len: usize) -> Option<Self::Buffer>;

    /// Submits an I/O; reads and writes with a buffer of their length.
    ///
    /// # Errors
    /// The queue is full: returns the buffer. The I/O can be submitted again after a completion.
    fn submit(
        &mut self,
        part: Part,
        buffer: Option<Self::Buffer>,
    ) -> Result<(), Option<Self::Buffer>>;

    /// Makes progress, and passes completions (tag, result and buffer) to `done`. Never blocks. Returns the number of completions.
    fn poll(
        &mut self,
        done: &mut dyn FnMut(u64, Result<(), NotDone>, Option<Self::Buffer>),
    ) -> usize;

    /// Descriptor that is readable when an armed queue must be polled.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Arms the descriptor before a sleep. Returns `false` if the queue must be polled instead.
    fn arm(&mut self) -> bool;

    /// Reverts [`arm`](Self::arm).
    fn disarm(&mut self);
}

/// A queue of a volume.
#[derive(Debug)]
pub struct VolumeQueue(pub volume::Queue);

impl Queue for VolumeQueue {
    type Buffer = volume::Buffer;

    #[inline]
    fn buffer(&mut self, len: usize) -> Option<volume::Buffer> {
        self.0.buffer(len)
    }

    #[inline]
    fn submit(
        &mut self,
        part: Part,
        buffer: Option<volume::Buffer>,
    ) -> Result<(), Option<volume::Buffer>> {
        let Part {
            tag,
            operation,
            offset,
            len,
        } = part;
        self.0
            .submit(Io {
                tag,
                operation,
                offset,
                len,
                buffer,
            })
            .map_err(|io| io.buffer)
    }

    #[inline]
    fn poll(
        &mut self,
        done: &mut dyn FnMut(u64, Result<(), NotDone>, Option<volume::Buffer>),
    ) -> usize {
        self.0.poll(&mut |completion| {
            let result = completion.result.map_err(|error| match error {
                IoError::Closed => NotDone::Closed,
                error => {
                    tracing::debug!("an I/O has failed: {error}");
                    NotDone::Failed
                }
            });
            done(completion.tag, result, completion.buffer);
        })
    }

    #[inline]
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    #[inline]
    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    #[inline]
    fn disarm(&mut self) {
        self.0.disarm();
    }
}

/// Maximum number of I/Os in flight per queue.
const DEPTH: usize = 16;
/// Number of buffers per queue. Operations without data can use the whole depth.
const BUFFERS: usize = 12;

/// A disk whose contents all queues share.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    flushes: Arc<AtomicU64>,
    fails: Arc<AtomicBool>,
    is_held: Arc<AtomicBool>,
    is_closed: Arc<AtomicBool>,
}

impl Disk {
    /// Creates a disk with these contents.
    #[must_use]
    pub fn new(content: Vec<u8>) -> Self {
        Self {
            bytes: Arc::new(Mutex::new(content)),
            ..Self::default()
        }
    }

    /// Copy of the contents.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.lock().clone()
    }

    /// Number of completed flushes.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Makes later I/Os fail or succeed.
    pub fn set_failing(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Keeps I/Os in flight, or lets them complete.
    pub fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Relaxed);
    }

    /// Completes I/Os with [`NotDone::Closed`] from now on.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Creates a queue.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn queue(&self) -> std::io::Result<DiskQueue> {
        Ok(DiskQueue {
            disk: self.clone(),
            ios: VecDeque::with_capacity(DEPTH),
            never: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue of a [`Disk`].
#[derive(Debug)]
pub struct DiskQueue {
    disk: Disk,
    ios: VecDeque<(Part, Option<Vec<u8>>)>,
    never: OwnedFd,
}

impl Queue for DiskQueue {
    type Buffer = Vec<u8>;

    fn buffer(&mut self, len: usize) -> Option<Vec<u8>> {
        (self.ios.len() < BUFFERS).then(|| vec![0; len])
    }

    fn submit(&mut self, part: Part, buffer: Option<Vec<u8>>) -> Result<(), Option<Vec<u8>>> {
        if self.ios.len() == DEPTH {
            return Err(buffer);
        }
        self.ios.push_back((part, buffer));
        Ok(())
    }

    fn poll(&mut self, done: &mut dyn FnMut(u64, Result<(), NotDone>, Option<Vec<u8>>)) -> usize {
        let is_closed = self.disk.is_closed.load(Ordering::Relaxed);
        if self.disk.is_held.load(Ordering::Relaxed) && !is_closed {
            return 0;
        }
        let mut count = 0;
        // Newest first: completions may be in any order.
        while let Some((part, mut buffer)) = self.ios.pop_back() {
            count += 1;
            let range = part.offset as usize..part.offset as usize + part.len as usize;
            let mut result = Ok(());
            if is_closed {
                result = Err(NotDone::Closed);
            } else if self.disk.fails.load(Ordering::Relaxed) {
                result = Err(NotDone::Failed);
            } else {
                let mut bytes = self
                    .disk
                    .bytes
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                match (part.operation, &mut buffer) {
                    (Operation::Read, Some(buffer)) => buffer.copy_from_slice(&bytes[range]),
                    (Operation::Write { .. }, Some(buffer)) => bytes[range].copy_from_slice(buffer),
                    (Operation::WriteZeroes { .. } | Operation::Discard, _) => bytes[range].fill(0),
                    (Operation::Flush, _) => {
                        self.disk.flushes.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => result = Err(NotDone::Failed),
                }
            }
            done(part.tag, result, buffer);
        }
        count
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn arm(&mut self) -> bool {
        self.ios.is_empty()
    }

    fn disarm(&mut self) {}
}
