//! A storage in memory, for tests and measurements of the protocol without a deployment.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use volume::Operation;

use crate::ring::Part;
use crate::storage::{self, NotDone};

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

impl storage::Queue for DiskQueue {
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
