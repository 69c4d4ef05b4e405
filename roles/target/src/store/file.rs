//! Blocks in a file or on a block device.
//!
//! An I/O goes through the staging buffer of its slot, in pieces where it is larger than that. A read is read from the disk and then transferred; a
//! write is transferred and then written. A write whose ends are not those of sectors reads the sectors first, under their locks, and writes them
//! whole. What decides is in here, without threads and clocks; what is done is a [`Disk`]'s.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use doca::ErrorCode;
use rustix::io::Errno;

use super::disk::{self, Completed, Disk, Range};
use super::locks::{Held, Mode};
use super::{Extent, Health, Io, Operation, SectorLocks, Step, Store};

/// Bytes of staging buffers that a worker has at most, unless it needs more for two sectors in each. All of it is pinned when a session begins,
/// which takes its time.
const STAGING: usize = 16 << 20;

/// Bytes of an I/O that fit into a staging buffer, if there is memory for so many.
const USUAL_IO: usize = 128 << 10;

/// Staging buffers begin at multiples of this, which is as much as any device wants.
const ALIGNMENT: usize = 4096;

/// Where blocks lie in the file, and staging buffers in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Where the first block begins in the file: a multiple of the sector.
    pub content_offset: u64,
    /// Reads and writes of the file begin and end at multiples of this; 1 when they need not.
    pub sector: u64,
    /// Bytes of each staging buffer: a multiple of the sector.
    pub buffer: usize,
}

impl Layout {
    /// The layout for so many slots, with blocks of this size. `sector` is a power of 2 of at most 4096.
    #[must_use]
    pub fn new(content_offset: u64, sector: u64, block_size: u32, slots: usize) -> Self {
        let wanted = (block_size as usize).max(USUAL_IO) + 2 * sector as usize;
        let most = (STAGING / slots.max(1)).max(2 * ALIGNMENT);
        let buffer = wanted.min(most).next_multiple_of(ALIGNMENT);
        Self {
            content_offset,
            sector,
            buffer,
        }
    }
}

/// The blocks of a file, as one worker uses them.
#[derive(Debug)]
pub struct FileStore<D: Disk> {
    disk: D,
    layout: Layout,
    slots: Box<[Slot]>,
    /// Slots that wait for locks, in order.
    waiting: VecDeque<usize>,
    locks: Arc<SectorLocks>,
    health: Arc<Health>,
    media_errors: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Reads a piece that is to be read.
    Reading,
    /// Waits for the locks of sectors that are written in part.
    WaitingToMerge,
    /// Reads the sectors of a piece that is to be written.
    Merging,
    /// The piece is transferred.
    Transferring,
    /// Waits for the locks of sectors that are written as a whole.
    WaitingToWrite,
    Writing,
    Syncing,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    io: Io,
    stage: Stage,
    /// Bytes of the I/O in pieces that are complete.
    done: u64,
    /// Bytes of the piece at hand.
    piece: u64,
    /// The sectors of the piece in the file.
    span: Span,
    /// Bytes of the span that the disk has read or written.
    moved: usize,
    held: Option<Held>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    offset: u64,
    len: usize,
    /// Bytes of it before the piece.
    skew: usize,
    /// `true` if the piece is all of it.
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

    /// Goes to the next piece, if there is one.
    fn next_piece(&mut self, layout: Layout) -> bool {
        let left = u64::from(self.io.size) - self.done;
        if left == 0 {
            return false;
        }
        let sector = layout.sector;
        let begin = layout.content_offset + self.io.storage_offset + self.done;
        let offset = begin - begin % sector;
        let end = (begin + left).min(offset + layout.buffer as u64);
        let span_end = end.next_multiple_of(sector);
        self.piece = end - begin;
        self.span = Span {
            offset,
            len: (span_end - offset) as usize,
            skew: (begin - offset) as usize,
            is_whole: begin == offset && end == span_end,
        };
        self.moved = 0;
        true
    }
}

impl<D: Disk> FileStore<D> {
    /// A store with so many slots. The memory of `disk` has a staging buffer for each, one after the other.
    #[must_use]
    pub fn new(
        disk: D,
        layout: Layout,
        slots: usize,
        locks: Arc<SectorLocks>,
        health: Arc<Health>,
    ) -> Self {
        Self {
            disk,
            layout,
            slots: vec![Slot::IDLE; slots].into(),
            waiting: VecDeque::with_capacity(slots),
            locks,
            health,
            media_errors: 0,
        }
    }

    /// The disk.
    pub fn disk(&mut self) -> &mut D {
        &mut self.disk
    }

    fn buffer(&self, slot: usize) -> usize {
        slot * self.layout.buffer
    }

    /// Has the disk do what is left of the span of a slot.
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
            Stage::Syncing => disk::Operation::Sync,
            Stage::Writing => disk::Operation::Write {
                range,
                durable: it.io.operation == Operation::Write { durable: true },
            },
            _ => disk::Operation::Read(range),
        };
        self.disk.push(slot as u64, operation);
    }

    /// Begins the next piece, or completes the I/O.
    #[inline]
    fn go_on(&mut self, slot: usize) -> Step {
        let it = &mut self.slots[slot];
        if !it.next_piece(self.layout) {
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

    /// Reads the sectors of a write of parts of them.
    fn merge(&mut self, slot: usize) -> Step {
        if self.lock(slot, Mode::Exclusive) {
            self.push(slot, Stage::Merging);
        } else {
            self.wait(slot, Stage::WaitingToMerge);
        }
        Step::Pending
    }

    /// Writes a piece that was transferred.
    #[inline]
    fn write(&mut self, slot: usize) -> Step {
        self.slots[slot].moved = 0;
        // Sectors of one byte are never written in part; others are locked already if they are.
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

    /// Tries again to get the locks that slots wait for.
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
            // The kernel reports it once, and then takes what it has not written for written.
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
                self.unlock(slot);
                let it = &mut self.slots[slot];
                it.done += it.piece;
                self.go_on(slot)
            }
            _ => self.transfer(slot),
        }
    }

    /// The disk has done a part only: goes on behind it.
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
        // A part of a sector was done: all of it, again.
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
            // What was read before the file was truncated is right; nobody knows when that was.
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
