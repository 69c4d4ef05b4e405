//! Storage of a worker's blocks: in memory or in a file.
//!
//! Each worker has its own [`Store`], created for the session. The store returns the next step of an I/O: a transfer
//! between the store's memory and the requester's, done by the worker, or nothing until the disk has completed an
//! operation. RDMA accesses the blocks of a [`MemoryStore`] directly, and a staging buffer of the transaction with a
//! [`FileStore`].

pub mod disk;
mod file;
mod locks;
#[cfg(test)]
mod media_errors;
#[cfg(test)]
mod power_failure;
mod written;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doca::ErrorCode;

pub use file::{FileStore, Layout};
pub use locks::SectorLocks;
pub use written::WrittenBlocks;

/// Kind of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Transfers blocks to the requester.
    Read,
    /// Transfers blocks from the requester.
    Write {
        /// Complete only when the blocks are durable.
        durable: bool,
    },
    /// Complete only when all previously completed writes are durable.
    Flush,
}

/// An I/O whose ranges are inside the storage and the requester's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// Kind of the I/O.
    pub operation: Operation,
    /// First byte in the storage.
    pub storage_offset: u64,
    /// First byte in the requester's memory.
    pub requester_offset: u64,
    /// Number of bytes.
    pub size: u32,
}

/// A range to be transferred by RDMA, in the direction of the I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// `true` if the transfer is to the requester.
    pub to_requester: bool,
    /// First byte in the store's memory.
    pub local_offset: u64,
    /// First byte in the requester's memory.
    pub requester_offset: u64,
    /// Number of bytes.
    pub len: usize,
}

/// Next step of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Transfer this range, then call [`Store::transferred`].
    Transfer(Extent),
    /// Wait: [`Store::next`] returns the next step.
    Pending,
    /// The I/O has completed with this result.
    Complete(ErrorCode),
}

/// A worker's view of the blocks. An I/O is identified by its slot: its transaction number.
pub trait Store {
    /// `true` if I/Os may wait for a disk.
    const WAITS: bool;

    /// Starts an I/O in an idle slot.
    fn begin(&mut self, slot: usize, io: Io) -> Step;

    /// The slot's transfer has succeeded.
    fn transferred(&mut self, slot: usize) -> Step;

    /// The slot's transfer has failed: the I/O has ended.
    fn abandon(&mut self, slot: usize);

    /// Submits disk operations and collects completions. Returns `true` if [`next`](Self::next) has a result.
    fn poll(&mut self) -> bool {
        false
    }

    /// Next I/O that can continue after a disk operation. Never returns [`Step::Pending`].
    fn next(&mut self) -> Option<(usize, Step)> {
        None
    }

    /// Descriptor that becomes readable when a disk operation completes, while any is in flight.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Number of I/Os that failed because of the medium.
    fn media_errors(&self) -> u64 {
        0
    }
}

/// Blocks in memory registered with the device: every I/O is one transfer.
#[derive(Debug, Default)]
pub struct MemoryStore;

impl Store for MemoryStore {
    const WAITS: bool = false;

    #[inline(always)]
    fn begin(&mut self, _: usize, io: Io) -> Step {
        let to_requester = match io.operation {
            Operation::Read => true,
            Operation::Write { .. } => false,
            // Memory has no durability to wait for.
            Operation::Flush => return Step::Complete(ErrorCode::SUCCESS),
        };
        Step::Transfer(Extent {
            to_requester,
            local_offset: io.storage_offset,
            requester_offset: io.requester_offset,
            len: io.size as usize,
        })
    }

    #[inline(always)]
    fn transferred(&mut self, _: usize) -> Step {
        Step::Complete(ErrorCode::SUCCESS)
    }

    fn abandon(&mut self, _: usize) {}
}

// Health of a medium: errors of single I/Os, and total failure.

/// The health of a medium, shared by its users. It never improves.
#[derive(Debug)]
pub struct Health {
    name: String,
    errors: AtomicU64,
    is_reported: AtomicBool,
    has_failed: AtomicBool,
}

impl Health {
    /// Health of a medium without errors, called `name` in the log.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            errors: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Counts an I/O that failed because of the medium. Only the first one is logged: a broken disk can fail millions.
    #[cold]
    pub fn io_failed(&self, why: impl fmt::Display) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if !self.has_failed() && !self.is_reported.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "{}: {why}; the I/O failed, and further ones will not be logged",
                self.name
            );
        }
    }

    /// Records total failure: all I/Os fail from now on, and data that is not durable is lost. The reason is logged
    /// once.
    #[cold]
    pub fn fail(&self, why: impl fmt::Display) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            tracing::error!("{}: {why}; all I/Os fail from now on", self.name);
        }
    }

    /// Returns `true` after total failure.
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Number of I/Os that failed because of the medium.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns `true` if there were no errors.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.has_failed() && self.errors() == 0
    }
}
