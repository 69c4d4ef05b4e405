//! Blocks in memory, with versions: RDMA accesses the slots of versions and the places of blocks directly.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use doca::ErrorCode;

use super::{Extent, Io, MemoryLayout, Operation, Step, Store};
use crate::versions::{Full, Reading, Version, WorkerVersions};

/// A worker's blocks in memory, in a session with versions.
#[derive(Debug)]
pub struct VersionedMemoryStore {
    versions: WorkerVersions,
    layout: MemoryLayout,
    transactions: Box<[Transaction]>,
    /// Writes that wait for slots, in order.
    waiting: VecDeque<usize>,
    /// Next steps of writes that were waiting.
    ready: VecDeque<(usize, Step)>,
}

#[derive(Debug, Clone, Copy)]
struct Transaction {
    io: Io,
    /// Number of bytes of the I/O in completed transfers.
    done: u64,
    /// Number of bytes in the current transfer.
    piece: u64,
    held: Held,
}

/// Slot or read that an I/O holds.
#[derive(Debug, Clone, Copy)]
enum Held {
    Nothing,
    Reading(Reading),
    /// The slot being written.
    Slot(u32),
}

impl VersionedMemoryStore {
    /// Creates a store with this number of transactions.
    #[must_use]
    pub fn new(versions: WorkerVersions, layout: MemoryLayout, transactions: usize) -> Self {
        let idle = Transaction {
            io: Io {
                operation: Operation::Flush,
                storage_offset: 0,
                requester_offset: 0,
                size: 0,
                version: Version::NONE,
                retired: 0,
            },
            done: 0,
            piece: 0,
            held: Held::Nothing,
        };
        Self {
            versions,
            layout,
            transactions: vec![idle; transactions].into(),
            waiting: VecDeque::with_capacity(transactions),
            ready: VecDeque::with_capacity(transactions),
        }
    }

    /// Transfers the next bytes of a read: one block from a slot, or blocks from their places.
    #[inline]
    fn read(&mut self, slot: usize) -> Step {
        let it = &mut self.transactions[slot];
        let left = u64::from(it.io.size) - it.done;
        if left == 0 {
            return Step::Complete(ErrorCode::SUCCESS);
        }
        let position = it.io.storage_offset + it.done;
        let block_size = self.layout.block_size;
        let block = position / block_size;
        let (version_slot, blocks, reading) = if it.io.operation == Operation::ReadBefore {
            let (version_slot, reading) = self.versions.find(block, Some(it.io.version));
            (version_slot, 1, reading)
        } else {
            let end = (position + left).div_ceil(block_size);
            self.versions.find_range(block, end)
        };
        it.held = Held::Reading(reading);
        it.piece = left.min((block + blocks) * block_size - position);
        let local_offset = match version_slot {
            Some(version_slot) => {
                self.layout.offset_of(version_slot) + (position - block * block_size)
            }
            None => position,
        };
        Step::Transfer(Extent {
            to_requester: true,
            local_offset,
            requester_offset: it.io.requester_offset + it.done,
            len: it.piece as usize,
        })
    }

    /// Transfers a block into a slot; `None` if no slot is available yet.
    #[inline]
    fn write(&mut self, slot: usize) -> Option<Step> {
        let it = &mut self.transactions[slot];
        match self.versions.allocate(it.io.version.epoch, it.io.retired) {
            Ok(version_slot) => {
                it.held = Held::Slot(version_slot);
                Some(Step::Transfer(Extent {
                    to_requester: false,
                    local_offset: self.layout.offset_of(version_slot),
                    requester_offset: it.io.requester_offset,
                    len: it.io.size as usize,
                }))
            }
            Err(Full::Wait) => None,
            Err(Full::Stuck) => Some(Step::Complete(ErrorCode::NO_MEMORY)),
        }
    }
}

impl Store for VersionedMemoryStore {
    const WAITS: bool = true;

    #[inline]
    fn begin(&mut self, slot: usize, io: Io) -> Step {
        let it = &mut self.transactions[slot];
        (it.io, it.done, it.held) = (io, 0, Held::Nothing);
        match io.operation {
            Operation::Read | Operation::ReadBefore => self.read(slot),
            Operation::WriteVersion { .. } => self.write(slot).unwrap_or_else(|| {
                self.waiting.push_back(slot);
                Step::Pending
            }),
            Operation::Write { .. } => Step::Complete(ErrorCode::NOT_PERMITTED),
            // A flush completes immediately, because memory is not durable.
            Operation::Flush => {
                if io.retired != 0 {
                    self.versions.retire(io.version.epoch, io.retired);
                }
                Step::Complete(ErrorCode::SUCCESS)
            }
        }
    }

    #[inline]
    fn transferred(&mut self, slot: usize) -> Step {
        let it = &mut self.transactions[slot];
        match std::mem::replace(&mut it.held, Held::Nothing) {
            Held::Slot(version_slot) => {
                let block = it.io.storage_offset / self.layout.block_size;
                let published = self
                    .versions
                    .publish(version_slot, block, it.io.version)
                    .inspect_err(|_| self.versions.release(version_slot));
                Step::Complete(published.err().unwrap_or(ErrorCode::SUCCESS))
            }
            held => {
                if let Held::Reading(reading) = held {
                    self.versions.read(reading);
                }
                it.done += it.piece;
                self.read(slot)
            }
        }
    }

    fn abandon(&mut self, slot: usize) {
        match std::mem::replace(&mut self.transactions[slot].held, Held::Nothing) {
            Held::Nothing => {}
            Held::Reading(reading) => self.versions.read(reading),
            Held::Slot(version_slot) => self.versions.release(version_slot),
        }
    }

    #[inline]
    fn poll(&mut self) -> bool {
        if self.waiting.is_empty() || self.versions.is_waiting() {
            return false;
        }
        while let Some(&slot) = self.waiting.front() {
            let Some(step) = self.write(slot) else {
                break;
            };
            self.waiting.pop_front();
            self.ready.push_back((slot, step));
        }
        !self.ready.is_empty()
    }

    #[inline]
    fn next(&mut self) -> Option<(usize, Step)> {
        self.ready.pop_front()
    }

    #[inline]
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        (!self.waiting.is_empty()).then(|| self.versions.freed())
    }
}
