//! Blocks in a file or on a block device.
//!
//! An I/O goes through the staging buffer of its slot, in pieces if it is larger. A read is read from the disk and
//! then transferred; a write is transferred and then written. A write that is not sector-aligned is a
//! read-modify-write of whole file-system blocks under their locks, and so is the first write of a part of such a block
//! ([`WrittenBlocks`]). The store is a state machine without threads and clocks; a [`Disk`] does the I/O.

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use doca::ErrorCode;
use rustix::io::Errno;

use super::{Completed, Disk, Extent, Io, Operation, Range, Step, Store};
use crate::backing::{Health, WrittenBlocks};

/// Maximum size of a worker's staging buffers in bytes, unless two sectors for each need more. They are pinned when a
/// session begins, which takes time.
const STAGING: usize = 16 << 20;

/// Preferred size of a staging buffer in bytes, memory permitting.
const USUAL_IO: usize = 128 << 10;

/// Alignment of staging buffers in bytes, sufficient for any device.
const ALIGNMENT: usize = 4096;

/// Location of blocks in the file, and of staging buffers in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Offset of the first block in the file: a multiple of the sector.
    pub content_offset: u64,
    /// Alignment of reads and writes of the file in bytes; 1 if unaligned I/O is possible.
    pub sector: u64,
    /// Unit of read-modify-writes in bytes: a multiple of the sector.
    pub fs_block: u64,
    /// Size of each staging buffer in bytes: a multiple of `fs_block`.
    pub buffer: usize,
}

impl Layout {
    /// Computes the layout for this number of slots and this block size. `sector` and `fs_block` are powers of 2 of at
    /// most 4096, the sector not the larger one.
    #[must_use]
    pub fn new(
        content_offset: u64,
        sector: u64,
        fs_block: u64,
        block_size: u32,
        slots: usize,
    ) -> Self {
        let wanted = (block_size as usize).max(USUAL_IO) + 2 * fs_block as usize;
        let most = (STAGING / slots.max(1)).max(2 * ALIGNMENT);
        let buffer = wanted.min(most).next_multiple_of(ALIGNMENT);
        Self {
            content_offset,
            sector,
            fs_block,
            buffer,
        }
    }
}

/// A worker's blocks in a file.
#[derive(Debug)]
pub struct FileStore<D: Disk> {
    disk: D,
    layout: Layout,
    slots: Box<[Slot]>,
    /// Slots that wait for locks, in order.
    waiting: VecDeque<usize>,
    locks: Arc<SectorLocks>,
    written: Arc<WrittenBlocks>,
    health: Arc<Health>,
    media_errors: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Reading a piece from the disk.
    Reading,
    /// Waiting for the locks of partially written blocks.
    WaitingToMerge,
    /// Reading the blocks of a write for modification.
    Merging,
    /// Transferring the piece.
    Transferring,
    /// Waiting for the locks of fully written sectors.
    WaitingToWrite,
    Writing,
    Syncing,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    io: Io,
    stage: Stage,
    /// Bytes of the I/O in completed pieces.
    done: u64,
    /// Size of the current piece in bytes.
    piece: u64,
    /// Sectors of the piece in the file.
    span: Span,
    /// Bytes of the span that the disk has read or written.
    moved: usize,
    held: Option<Held>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    offset: u64,
    len: usize,
    /// Bytes of the span before the piece.
    skew: usize,
    /// `true` if the piece fills the span.
    is_whole: bool,
}

impl Slot {
    const IDLE: Self = Self {
        io: Io {
            operation: Operation::Flush,
            storage_offset: 0,
            requester_offset: 0,
            size: 0,
        },
        stage: Stage::Idle,
        done: 0,
        piece: 0,
        span: Span {
            offset: 0,
            len: 0,
            skew: 0,
            is_whole: true,
        },
        moved: 0,
        held: None,
    };

    /// Advances to the next piece, if there is one.
    fn next_piece(&mut self, layout: Layout, written: &WrittenBlocks) -> bool {
        if u64::from(self.io.size) == self.done {
            return false;
        }
        self.take_piece(layout, layout.sector);
        if self.io.operation != Operation::Read {
            let Span { offset, len, .. } = self.span;
            if !self.span.is_whole || !written.permit(offset, len as u64) {
                self.take_piece(layout, layout.fs_block);
            }
        }
        true
    }

    /// Takes as much as the buffer holds for the current piece, and whole units of the file for its span.
    fn take_piece(&mut self, layout: Layout, unit: u64) {
        let left = u64::from(self.io.size) - self.done;
        let begin = layout.content_offset + self.io.storage_offset + self.done;
        let offset = begin - begin % unit;
        let end = (begin + left).min(offset + layout.buffer as u64);
        let span_end = end.next_multiple_of(unit);
        self.piece = end - begin;
        self.span = Span {
            offset,
            len: (span_end - offset) as usize,
            skew: (begin - offset) as usize,
            is_whole: begin == offset && end == span_end,
        };
        self.moved = 0;
    }

    /// Returns `true` if the piece could be written without its surroundings.
    fn is_sector_aligned(&self, layout: Layout) -> bool {
        let begin = self.span.offset + self.span.skew as u64;
        begin.is_multiple_of(layout.sector) && self.piece.is_multiple_of(layout.sector)
    }
}

impl<D: Disk> FileStore<D> {
    /// Creates a store with this number of slots. The memory of `disk` contains one staging buffer per slot,
    /// consecutively.
    #[must_use]
    pub fn new(
        disk: D,
        layout: Layout,
        slots: usize,
        locks: Arc<SectorLocks>,
        written: Arc<WrittenBlocks>,
        health: Arc<Health>,
    ) -> Self {
        Self {
            disk,
            layout,
            slots: vec![Slot::IDLE; slots].into(),
            waiting: VecDeque::with_capacity(slots),
            locks,
            written,
            health,
            media_errors: 0,
        }
    }

    /// The store's disk.
    pub fn disk(&mut self) -> &mut D {
        &mut self.disk
    }

    fn buffer(&self, slot: usize) -> usize {
        slot * self.layout.buffer
    }

    /// Queues the rest of a slot's span.
    #[inline]
    fn push(&mut self, slot: usize, stage: Stage) {
        let memory_offset = self.buffer(slot);
        let it = &mut self.slots[slot];
        it.stage = stage;
        let range = Range {
            file_offset: it.span.offset + it.moved as u64,
            memory_offset: memory_offset + it.moved,
            len: it.span.len - it.moved,
        };
        let operation = match stage {
            Stage::Syncing => super::DiskOperation::Sync,
            Stage::Writing => super::DiskOperation::Write {
                range,
                durable: it.io.operation == Operation::Write { durable: true },
            },
            _ => super::DiskOperation::Read(range),
        };
        self.disk.push(slot as u64, operation);
    }

    /// Starts the next piece, or completes the I/O.
    #[inline]
    fn go_on(&mut self, slot: usize) -> Step {
        let it = &mut self.slots[slot];
        if !it.next_piece(self.layout, &self.written) {
            return self.complete(slot, ErrorCode::SUCCESS);
        }
        if it.io.operation == Operation::Read {
            self.push(slot, Stage::Reading);
            Step::Pending
        } else if it.span.is_whole {
            self.transfer(slot)
        } else {
            self.merge(slot)
        }
    }

    #[inline]
    fn transfer(&mut self, slot: usize) -> Step {
        let buffer = self.buffer(slot);
        let it = &mut self.slots[slot];
        it.stage = Stage::Transferring;
        Step::Transfer(Extent {
            to_requester: it.io.operation == Operation::Read,
            local_offset: (buffer + it.span.skew) as u64,
            requester_offset: it.io.requester_offset + it.done,
            len: it.piece as usize,
        })
    }

    /// Reads the blocks that a piece is a part of.
    fn merge(&mut self, slot: usize) -> Step {
        if self.lock(slot, Mode::Exclusive) {
            self.push(slot, Stage::Merging);
        } else {
            self.wait(slot, Stage::WaitingToMerge);
        }
        Step::Pending
    }

    /// Writes a transferred piece.
    #[inline]
    fn write(&mut self, slot: usize) -> Step {
        self.slots[slot].moved = 0;
        // With sectors of one byte there are no partial writes; partial writes of other sectors hold their locks
        // already.
        if self.layout.sector == 1
            || self.slots[slot].held.is_some()
            || self.lock(slot, Mode::Shared)
        {
            self.push(slot, Stage::Writing);
        } else {
            self.wait(slot, Stage::WaitingToWrite);
        }
        Step::Pending
    }

    fn lock(&mut self, slot: usize, mode: Mode) -> bool {
        let span = self.slots[slot].span;
        let held = self.locks.try_lock(mode, span.offset, span.len as u64);
        self.slots[slot].held = held;
        held.is_some()
    }

    fn unlock(&mut self, slot: usize) {
        if let Some(held) = self.slots[slot].held.take() {
            self.locks.unlock(held);
        }
    }

    #[cold]
    fn wait(&mut self, slot: usize, stage: Stage) {
        self.slots[slot].stage = stage;
        self.waiting.push_back(slot);
    }

    /// Retries the locks that slots wait for.
    #[cold]
    fn retry_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(slot) = self.waiting.pop_front() else {
                return;
            };
            match self.slots[slot].stage {
                Stage::WaitingToMerge => drop(self.merge(slot)),
                _ => drop(self.write(slot)),
            }
        }
    }

    #[inline]
    fn complete(&mut self, slot: usize, result: ErrorCode) -> Step {
        self.unlock(slot);
        self.slots[slot].stage = Stage::Idle;
        Step::Complete(result)
    }

    /// Completes an I/O that failed because of the medium.
    #[cold]
    fn fail(&mut self, slot: usize, error: &io::Error) -> Step {
        let Slot {
            stage, span, moved, ..
        } = self.slots[slot];
        let doing = match stage {
            Stage::Syncing => "sync",
            Stage::Writing => "write",
            _ => "read",
        };
        self.media_errors += 1;
        if stage == Stage::Syncing {
            // The kernel reports a failed sync once, and then treats the unwritten data as written.
            self.health
                .fail(format_args!("sync: {error}: what was not durable is lost"));
        }
        self.health.io_failed(format_args!(
            "{doing} of {} bytes at offset {}: {error}",
            span.len - moved,
            span.offset + moved as u64
        ));
        self.complete(slot, ErrorCode::IO_FAILED)
    }

    #[inline]
    fn completed(&mut self, completed: Completed) -> Step {
        let slot = completed.token as usize;
        if self.health.has_failed() {
            return self.fail(slot, &Errno::IO.into());
        }
        let it = &mut self.slots[slot];
        let count = match completed.result {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => {
                let stage = it.stage;
                self.push(slot, stage);
                return Step::Pending;
            }
            Err(error) if it.stage == Stage::Merging && it.is_sector_aligned(self.layout) => {
                return self.write_sectors(slot, error);
            }
            Err(error) => return self.fail(slot, &error.into()),
        };
        let stage = it.stage;
        if stage == Stage::Syncing {
            return self.complete(slot, ErrorCode::SUCCESS);
        }
        it.moved += count;
        if it.moved < it.span.len {
            return self.shortened(slot, count);
        }
        match stage {
            Stage::Writing => {
                let Span { offset, len, .. } = it.span;
                self.written.record(offset, len as u64);
                self.unlock(slot);
                let it = &mut self.slots[slot];
                it.done += it.piece;
                self.go_on(slot)
            }
            _ => self.transfer(slot),
        }
    }

    /// Writes the piece alone, because its surroundings cannot be read: overwriting a bad sector is its repair.
    #[cold]
    fn write_sectors(&mut self, slot: usize, error: Errno) -> Step {
        let it = &mut self.slots[slot];
        let Span {
            offset, len, skew, ..
        } = it.span;
        tracing::debug!(
            "read of {len} bytes at offset {offset}: {error}; only the sectors of the write are written"
        );
        // Inside the range that is locked.
        it.span = Span {
            offset: offset + skew as u64,
            len: it.piece as usize,
            skew: 0,
            is_whole: true,
        };
        self.transfer(slot)
    }

    /// Continues after a short read or write.
    #[cold]
    fn shortened(&mut self, slot: usize, count: usize) -> Step {
        let Slot { stage, moved, .. } = self.slots[slot];
        if count == 0 {
            let error = if stage == Stage::Writing {
                Errno::NOSPC.into()
            } else {
                io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before it")
            };
            return self.fail(slot, &error);
        }
        // A part of a sector was done: repeat the whole sector.
        let sector = self.layout.sector as usize;
        self.slots[slot].moved = moved - moved % sector;
        if !moved.is_multiple_of(sector) && count < sector {
            return self.fail(slot, &Errno::IO.into());
        }
        self.push(slot, stage);
        Step::Pending
    }

    fn verify(&mut self) -> bool {
        if let Err(why) = self.disk.verify() {
            self.health.fail(why);
        }
        !self.health.has_failed()
    }
}

impl<D: Disk> Store for FileStore<D> {
    const WAITS: bool = true;

    #[inline]
    fn begin(&mut self, slot: usize, io: Io) -> Step {
        let it = &mut self.slots[slot];
        (it.io, it.done, it.moved) = (io, 0, 0);
        it.span = Span::default();
        if io.operation == Operation::Flush {
            self.push(slot, Stage::Syncing);
            return Step::Pending;
        }
        self.go_on(slot)
    }

    #[inline]
    fn transferred(&mut self, slot: usize) -> Step {
        let it = &mut self.slots[slot];
        if it.io.operation == Operation::Read {
            it.done += it.piece;
            self.go_on(slot)
        } else {
            self.write(slot)
        }
    }

    fn abandon(&mut self, slot: usize) {
        self.unlock(slot);
        self.slots[slot].stage = Stage::Idle;
    }

    #[inline]
    fn poll(&mut self) -> bool {
        if !self.waiting.is_empty() {
            self.retry_waiting();
        }
        if self.disk.has_pending() {
            if self.verify() {
                self.disk.submit();
            } else {
                self.disk.fail_pending();
            }
        }
        let any = self.disk.reap();
        if any {
            // Data read before the file was truncated is correct, but the time of truncation is unknown.
            self.verify();
        }
        any
    }

    #[inline]
    fn next(&mut self) -> Option<(usize, Step)> {
        loop {
            let completed = self.disk.next()?;
            let slot = completed.token as usize;
            match self.completed(completed) {
                Step::Pending => {}
                step => return Some((slot, step)),
            }
        }
    }

    #[inline]
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        if self.disk.in_flight() == 0 || self.disk.has_pending() {
            return None;
        }
        self.disk.readiness()
    }

    fn media_errors(&self) -> u64 {
        self.media_errors
    }
}

impl<D: Disk> Drop for FileStore<D> {
    fn drop(&mut self) {
        // The kernel may be writing sectors whose locks are held here.
        self.disk.drain();
        for slot in 0..self.slots.len() {
            if self.slots[slot].stage == Stage::WaitingToMerge {
                let Span { offset, len, .. } = self.slots[slot].span;
                self.locks.give_up(offset, len as u64);
            }
            self.unlock(slot);
        }
    }
}

/// Bytes of the file covered by a lock: the largest unit of a read-modify-write.
const GRANULE: u64 = 4096;

/// Number of locks. Granules at multiples of this distance share a lock.
const LOCKS: u64 = 8192;

/// Maximum length of a locked range: it uses no lock twice.
const LARGEST: u64 = GRANULE * (LOCKS - 1);

const EXCLUSIVE: u32 = 1 << 31;
/// An exclusive lock is wanted: refuses further shared ones, to avoid starvation.
const WANTED: u32 = 1 << 30;

/// Lock mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For writes of whole sectors.
    Shared,
    /// For writes of partial sectors.
    Exclusive,
}

/// The locks of a file, shared by all workers of a session.
#[derive(Debug)]
pub struct SectorLocks(Box<[AtomicU32]>);

impl Default for SectorLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| AtomicU32::new(0)).collect())
    }
}

/// A locked range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    mode: Mode,
    offset: u64,
    len: u64,
}

impl SectorLocks {
    /// Locks a range of the file of at least one and at most `LARGEST` bytes (nearly 32 MiB). Returns `None` if a
    /// part of it is locked.
    pub fn try_lock(&self, mode: Mode, offset: u64, len: u64) -> Option<Held> {
        debug_assert!((1..=LARGEST).contains(&len), "{len}");
        let granules = granules(offset, len);
        for granule in granules.clone() {
            if !self.try_one(mode, granule) {
                // In locking order; the order of release does not matter.
                (*granules.start()..granule).for_each(|granule| self.unlock_one(mode, granule));
                return None;
            }
        }
        Some(Held { mode, offset, len })
    }

    /// Releases a lock taken by [`try_lock`](Self::try_lock).
    pub fn unlock(&self, held: Held) {
        granules(held.offset, held.len).for_each(|granule| self.unlock_one(held.mode, granule));
    }

    /// Withdraws the request for an exclusive lock. Other waiting requests are repeated by their owners.
    pub fn give_up(&self, offset: u64, len: u64) {
        for granule in granules(offset, len) {
            self.word(granule).fetch_and(!WANTED, Ordering::Relaxed);
        }
    }

    fn word(&self, granule: u64) -> &AtomicU32 {
        &self.0[(granule % LOCKS) as usize]
    }

    fn try_one(&self, mode: Mode, granule: u64) -> bool {
        let word = self.word(granule);
        match mode {
            Mode::Shared => word
                .try_update(Ordering::Acquire, Ordering::Relaxed, |value| {
                    (value & (EXCLUSIVE | WANTED) == 0).then_some(value + 1)
                })
                .is_ok(),
            Mode::Exclusive => {
                let taken = word.try_update(Ordering::Acquire, Ordering::Relaxed, |value| {
                    (value & !WANTED == 0).then_some(EXCLUSIVE)
                });
                if taken.is_err() {
                    word.fetch_or(WANTED, Ordering::Relaxed);
                }
                taken.is_ok()
            }
        }
    }

    fn unlock_one(&self, mode: Mode, granule: u64) {
        let word = self.word(granule);
        match mode {
            Mode::Shared => word.fetch_sub(1, Ordering::Release),
            Mode::Exclusive => word.fetch_and(!EXCLUSIVE, Ordering::Release),
        };
    }
}

fn granules(offset: u64, len: u64) -> RangeInclusive<u64> {
    offset / GRANULE..=(offset + len - 1) / GRANULE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_locks_coexist_and_exclusive_locks_do_not() {
        let locks = SectorLocks::default();
        let one = locks.try_lock(Mode::Shared, 0, 4096).expect("free");
        let two = locks.try_lock(Mode::Shared, 512, GRANULE).expect("shared");
        assert_eq!(locks.try_lock(Mode::Exclusive, 0, 512), None);
        assert_eq!(
            locks.try_lock(Mode::Shared, 0, 512),
            None,
            "an exclusive one waits"
        );
        locks.unlock(one);
        assert_eq!(locks.try_lock(Mode::Exclusive, 0, 512), None);
        locks.unlock(two);
        let alone = locks.try_lock(Mode::Exclusive, 0, 512).expect("free");
        assert_eq!(locks.try_lock(Mode::Exclusive, 100, 512), None);
        assert!(locks.try_lock(Mode::Shared, 2 * GRANULE, 512).is_some());
        locks.unlock(alone);
        locks.give_up(100, 512);
        assert!(locks.try_lock(Mode::Shared, 0, 512).is_some());
    }

    #[test]
    fn partly_locked_range_is_not_locked_at_all() {
        let locks = SectorLocks::default();
        let last = locks
            .try_lock(Mode::Exclusive, 3 * GRANULE, 1)
            .expect("free");
        assert_eq!(locks.try_lock(Mode::Exclusive, 0, 4 * GRANULE), None);
        assert!(locks.try_lock(Mode::Exclusive, 0, 3 * GRANULE).is_some());
        locks.unlock(last);
    }
}
