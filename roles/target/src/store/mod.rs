//! Where a worker's blocks are: in memory, or in a file.
//!
//! A worker has one [`Store`] of its own, made for the session. The store says what an I/O needs next: a transfer between the memory of the store
//! and that of the requester, which is the worker's part, or nothing until the disk has completed something. So RDMA goes straight from and
//! to the blocks of a [`MemoryStore`], and from and to a staging buffer of the transaction for a [`FileStore`].

pub mod disk;
mod file;
mod health;
mod locks;
#[cfg(test)]
mod media_errors;
#[cfg(test)]
mod power_failure;

use std::os::fd::BorrowedFd;

use doca::ErrorCode;

pub use file::{FileStore, Layout};
pub use health::Health;
pub use locks::SectorLocks;

/// What an I/O asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Blocks go to the requester.
    Read,
    /// Blocks come from the requester.
    Write {
        /// The write completes when its blocks survive a power failure.
        durable: bool,
    },
    /// The I/O completes when all writes that had completed before survive a power failure.
    Flush,
}

/// An I/O whose ranges are inside the storage and the requester's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// What it asks for.
    pub operation: Operation,
    /// First byte in the storage.
    pub storage_offset: u64,
    /// First byte in the requester's memory.
    pub requester_offset: u64,
    /// Number of bytes.
    pub size: u32,
}

/// Bytes to be moved by RDMA, in the direction of the I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// `true` if they go to the requester.
    pub to_requester: bool,
    /// First byte in the memory of the store.
    pub local_offset: u64,
    /// First byte in the requester's memory.
    pub requester_offset: u64,
    /// Number of bytes.
    pub len: usize,
}

/// What an I/O needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// These bytes are to be moved; then [`Store::transferred`] is called.
    Transfer(Extent),
    /// Nothing: [`Store::next`] tells how it goes on.
    Pending,
    /// It is complete, with this result.
    Complete(ErrorCode),
}

/// The blocks, as one worker sees them. An I/O is named by its slot: the number of its transaction.
pub trait Store {
    /// `true` if I/Os wait for a disk.
    const WAITS: bool;

    /// Begins an I/O in a slot that has none.
    fn begin(&mut self, slot: usize, io: Io) -> Step;

    /// The transfer of this slot has succeeded.
    fn transferred(&mut self, slot: usize) -> Step;

    /// The transfer of this slot has failed: its I/O is over.
    fn abandon(&mut self, slot: usize);

    /// Submits what is to be done by the disk and collects what is done. Returns whether [`next`](Self::next) has something.
    fn poll(&mut self) -> bool {
        false
    }

    /// The next I/O that goes on after the disk has done something. Never [`Step::Pending`].
    fn next(&mut self) -> Option<(usize, Step)> {
        None
    }

    /// While the disk is at work: the descriptor that can be read when it has done something.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// I/Os that failed because of the medium.
    fn media_errors(&self) -> u64 {
        0
    }
}

/// Blocks in memory that is registered with the device: every I/O is one transfer.
#[derive(Debug, Default)]
pub struct MemoryStore;

impl Store for MemoryStore {
    const WAITS: bool = false;

    #[inline(always)]
    fn begin(&mut self, _: usize, io: Io) -> Step {
        let to_requester = match io.operation {
            Operation::Read => true,
            Operation::Write { .. } => false,
            // Memory is as durable as it will ever be.
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
