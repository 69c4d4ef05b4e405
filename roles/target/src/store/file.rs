//! Blocks in a file or on a block device.
//!
//! An I/O uses the staging buffer of its slot, in pieces if it is larger. The data of a read is read from the disk and
//! then transferred; the data of a write is transferred and then written. A write that is not sector-aligned is a
//! read-modify-write of whole file-system blocks under their locks, as is the first partial write of such a block
//! ([`WrittenBlocks`]). The store is a state machine without threads and clocks; a [`Disk`] performs the I/O.
//!
//! With [`FileVersions`], a block is written to a slot for versions: first the block, then its record, in writes of
//! whole file-system blocks. Reads get each block from the slot with its newest version, or from its place.

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use doca::{ErrorCode, MemoryRegion};
use rustix::io::Errno;
use wire::backing::VersionSlot;

use super::{Completed, Disk, Extent, Io, Operation, Range, Step, Store};
use crate::backing::{Health, WrittenBlocks};
use crate::versions::{Full, Reading, SlotArea, SlotChecksum, Version, WorkerVersions};

/// Maximum size of a worker's staging buffers in bytes, unless two sectors per buffer need more. They are pinned when a
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
    /// most 4096, the sector must not be larger than `fs_block`.
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
    versions: Option<FileVersions>,
    /// I/Os that have completed without an operation of the disk.
    done: VecDeque<(usize, ErrorCode)>,
    /// Bytes of a staging buffer while their checksum is computed.
    scratch: Box<[u8]>,
}

/// Versions of blocks in a file, as used by a worker.
#[derive(Debug)]
pub struct FileVersions {
    pub versions: WorkerVersions,
    pub slots: SlotArea,
    /// Size of a block in bytes.
    pub block_size: u32,
    /// The memory with the staging buffers.
    pub memory: Arc<MemoryRegion>,
}

/// Bytes of a staging buffer whose checksum is computed at a time.
const SCRATCH: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Reading a piece from the disk.
    Reading,
    /// Waiting for the locks of partially written blocks.
    WaitingToMerge,
    /// Reading the blocks of a write for modification.
    Merging,
    Transferring,
    /// Waiting for the locks of fully written sectors.
    WaitingToWrite,
    /// Waiting for a slot for a version.
    WaitingForSlot,
    Writing,
    Syncing,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    io: Io,
    stage: Stage,
    /// Number of bytes of the I/O in completed pieces.
    done: u64,
    /// Size of the current piece in bytes.
    piece: u64,
    /// Sectors of the piece in the file.
    span: Span,
    /// Number of bytes of the span that the disk has read or written.
    moved: usize,
    held: Option<Held>,
    /// Location from which a part of the blocks is read.
    located: Option<Located>,
    /// Slot for the version being written.
    version_slot: Option<u32>,
    /// Checksum of the completed pieces of the version.
    checksum: SlotChecksum,
}

/// Location of consecutive bytes of the storage in the file, while they are read.
#[derive(Debug, Clone, Copy)]
struct Located {
    /// The first byte after the range in the storage.
    end: u64,
    /// Offset in the file minus offset in the storage, modulo 2^64.
    shift: u64,
    reading: Reading,
}

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    offset: u64,
    len: usize,
    /// Number of bytes of the span before the piece.
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
            version: Version::NONE,
            retired: 0,
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
        located: None,
        version_slot: None,
        checksum: SlotChecksum::NONE,
    };

    /// Advances to the next piece, if there is one.
    fn next_piece(&mut self, layout: Layout, written: &WrittenBlocks) -> bool {
        if u64::from(self.io.size) == self.done {
            return false;
        }
        self.take_piece(layout, layout.sector);
        if !self.io.operation.is_read() {
            let Span { offset, len, .. } = self.span;
            if !self.span.is_whole || !written.permit(offset, len as u64) {
                self.take_piece(layout, layout.fs_block);
            }
        }
        true
    }

    /// Offset in the storage of the first byte that is not in a completed piece.
    #[inline]
    fn position(&self) -> u64 {
        self.io.storage_offset + self.done
    }

    /// Sets the current piece to as many bytes as fit in the buffer, and its span to whole units of the file.
    fn take_piece(&mut self, layout: Layout, unit: u64) {
        let mut left = u64::from(self.io.size) - self.done;
        let position = self.position();
        let mut begin = layout.content_offset + position;
        if let Some(located) = self.located {
            left = left.min(located.end - position);
            begin = position.wrapping_add(located.shift);
        }
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

    /// Sets the next piece of a version, and its span to whole units of the slot: the last piece includes the record.
    fn take_version_piece(&mut self, layout: Layout) {
        let left = u64::from(self.io.size) - self.done;
        let buffer = layout.buffer as u64;
        let with_record = left + VersionSlot::SIZE as u64;
        let (piece, len) = if with_record <= buffer {
            (left, with_record.next_multiple_of(ALIGNMENT as u64))
        } else if left > buffer {
            (buffer, buffer)
        } else {
            // The record does not fit: a part of the block is left for the last piece.
            let len = buffer - ALIGNMENT as u64;
            (len, len)
        };
        self.piece = piece;
        self.span = Span {
            // Relative to the slot's start, until a slot is assigned.
            offset: self.done,
            len: len as usize,
            skew: 0,
            is_whole: true,
        };
        self.moved = 0;
    }

    /// `true` if the current piece is the last of its I/O.
    #[inline]
    fn is_last_piece(&self) -> bool {
        self.done + self.piece == u64::from(self.io.size)
    }

    /// Returns `true` if the piece could be written without a read-modify-write.
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
        versions: Option<FileVersions>,
    ) -> Self {
        let scratch = if versions.is_some() { SCRATCH } else { 0 };
        Self {
            disk,
            layout,
            slots: vec![Slot::IDLE; slots].into(),
            waiting: VecDeque::with_capacity(slots),
            locks,
            written,
            health,
            media_errors: 0,
            versions,
            done: VecDeque::with_capacity(slots),
            scratch: vec![0; scratch].into(),
        }
    }

    pub fn disk(&mut self) -> &mut D {
        &mut self.disk
    }

    fn buffer(&self, slot: usize) -> usize {
        slot * self.layout.buffer
    }

    /// Queues the remaining part of a slot's span.
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
                durable: it.io.operation.is_durable(),
            },
            _ => super::DiskOperation::Read(range),
        };
        self.disk.push(slot as u64, operation);
    }

    /// Starts the next piece, or completes the I/O.
    #[inline]
    fn go_on(&mut self, slot: usize) -> Step {
        if self.versions.is_some() && self.slots[slot].io.operation.is_read() {
            self.locate(slot);
        }
        let it = &mut self.slots[slot];
        if let Operation::WriteVersion { .. } = it.io.operation {
            it.take_version_piece(self.layout);
            return self.transfer(slot);
        }
        if !it.next_piece(self.layout, &self.written) {
            if it.io.operation.is_durable() {
                return self.complete_durable(slot);
            }
            return self.complete(slot, ErrorCode::SUCCESS);
        }
        if it.io.operation.is_read() {
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
            to_requester: it.io.operation.is_read(),
            local_offset: (buffer + it.span.skew) as u64,
            requester_offset: it.io.requester_offset + it.done,
            len: it.piece as usize,
        })
    }

    /// Determines the location from which the next bytes are read: a slot, or places.
    #[inline]
    fn locate(&mut self, slot: usize) {
        let it = &mut self.slots[slot];
        let position = it.position();
        if it.located.is_some_and(|located| position < located.end) {
            return;
        }
        let Some(versions) = &self.versions else {
            return;
        };
        if let Some(located) = it.located.take() {
            versions.versions.read(located.reading);
        }
        let io_end = it.io.storage_offset + u64::from(it.io.size);
        if position == io_end {
            return;
        }
        let block_size = u64::from(versions.block_size);
        let block = position / block_size;
        let (version_slot, blocks, reading) = if it.io.operation == Operation::ReadBefore {
            let (version_slot, reading) = versions.versions.find(block, Some(it.io.version));
            (version_slot, 1, reading)
        } else {
            let end = io_end.div_ceil(block_size);
            versions.versions.find_range(block, end)
        };
        let shift = match version_slot {
            Some(slot) => versions
                .slots
                .offset_of(slot)
                .wrapping_sub(block * block_size),
            None => self.layout.content_offset,
        };
        it.located = Some(Located {
            end: (block + blocks) * block_size,
            shift,
            reading,
        });
    }

    /// Writes a transferred piece of a version to its slot, the last one with its record.
    fn write_version(&mut self, slot: usize) -> Step {
        let buffer = self.buffer(slot);
        let Some(versions) = &self.versions else {
            return self.complete(slot, ErrorCode::NOT_PERMITTED);
        };
        let it = &mut self.slots[slot];
        let version_slot = match it.version_slot {
            Some(version_slot) => version_slot,
            None => match versions
                .versions
                .allocate(it.io.version.epoch, it.io.retired)
            {
                Ok(version_slot) => *it.version_slot.insert(version_slot),
                Err(Full::Wait) => {
                    self.wait(slot, Stage::WaitingForSlot);
                    return Step::Pending;
                }
                Err(Full::Stuck) => return self.complete(slot, ErrorCode::NO_MEMORY),
            },
        };
        it.span.offset = versions.slots.offset_of(version_slot) + it.done;
        let (begin, end) = (buffer, buffer + it.piece as usize);
        let mut at = begin;
        while at < end {
            let bytes = &mut self.scratch[..SCRATCH.min(end - at)];
            if versions.memory.read(at, bytes).is_err() {
                return self.complete(slot, ErrorCode::UNEXPECTED);
            }
            it.checksum.update(bytes);
            at += bytes.len();
        }
        if it.is_last_piece() {
            let block = it.io.storage_offset / u64::from(versions.block_size);
            let sealed = match versions.versions.seal(version_slot, block, it.io.version) {
                Ok(sealed) => sealed,
                Err(code) => return self.complete(slot, code),
            };
            let record = it
                .checksum
                .record(sealed.sequence, block, it.io.version, sealed.retired);
            let padding = end + record.len();
            let written = versions.memory.write(end, &record).and_then(|()| {
                let len = buffer + it.span.len - padding;
                versions.memory.fill(padding, len, 0)
            });
            if written.is_err() {
                return self.complete(slot, ErrorCode::UNEXPECTED);
            }
        }
        it.moved = 0;
        self.push(slot, Stage::Writing);
        Step::Pending
    }

    /// Starts a read-modify-write: locks and reads the sectors that the piece covers partially.
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
        // With sectors of one byte, there are no partial writes; partial writes of other sectors already hold their
        // locks.
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

    /// Retries the locks for which slots wait.
    #[cold]
    fn retry_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(slot) = self.waiting.pop_front() else {
                return;
            };
            match self.slots[slot].stage {
                Stage::WaitingToMerge => drop(self.merge(slot)),
                Stage::WaitingForSlot if self.health.has_failed() => {
                    self.media_errors += 1;
                    self.complete_later(slot, ErrorCode::IO_FAILED);
                }
                Stage::WaitingForSlot if self.waits_for_slots() => self.waiting.push_back(slot),
                Stage::WaitingForSlot => {
                    if let Step::Complete(code) = self.write_version(slot) {
                        self.complete_later(slot, code);
                    }
                }
                _ => drop(self.write(slot)),
            }
        }
    }

    fn waits_for_slots(&self) -> bool {
        let versions = self.versions.as_ref();
        versions.is_some_and(|it| it.versions.is_waiting())
    }

    /// Completes an I/O that was waiting.
    #[cold]
    fn complete_later(&mut self, slot: usize, code: ErrorCode) {
        self.give_up(slot);
        self.done.push_back((slot, code));
    }

    #[inline]
    fn complete(&mut self, slot: usize, result: ErrorCode) -> Step {
        self.give_up(slot);
        Step::Complete(result)
    }

    /// Releases the locks and the slot of an I/O. A version whose slot was not completed has not been written.
    #[inline]
    fn give_up(&mut self, slot: usize) {
        self.unlock(slot);
        let it = &mut self.slots[slot];
        it.stage = Stage::Idle;
        if let Some(versions) = &self.versions {
            if let Some(located) = it.located.take() {
                versions.versions.read(located.reading);
            }
            if let Some(version_slot) = it.version_slot.take() {
                versions.versions.release(version_slot);
            }
        }
    }

    /// Completes a flush or a durable write if the next process will find the data, i.e. if the path still refers to
    /// the file.
    fn complete_durable(&mut self, slot: usize) -> Step {
        match self.disk.verify_path() {
            Ok(()) => self.complete(slot, ErrorCode::SUCCESS),
            Err(error) => {
                self.health.fail(&error);
                self.fail(slot, &error)
            }
        }
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
            return self.complete_durable(slot);
        }
        it.moved += count;
        if it.moved < it.span.len {
            return self.shortened(slot, count);
        }
        match stage {
            Stage::Writing if it.version_slot.is_some() => self.version_written(slot),
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

    /// A piece of a version was written.
    #[inline]
    fn version_written(&mut self, slot: usize) -> Step {
        let it = &mut self.slots[slot];
        if !it.is_last_piece() {
            it.done += it.piece;
            return self.go_on(slot);
        }
        if let (Some(versions), Some(version_slot)) = (&self.versions, it.version_slot.take()) {
            versions.versions.complete(version_slot, true);
        }
        if it.io.operation.is_durable() {
            return self.complete_durable(slot);
        }
        self.complete(slot, ErrorCode::SUCCESS)
    }

    /// Writes only the piece, because its surroundings cannot be read: overwriting a bad sector repairs it.
    #[cold]
    fn write_sectors(&mut self, slot: usize, error: Errno) -> Step {
        let it = &mut self.slots[slot];
        let Span {
            offset, len, skew, ..
        } = it.span;
        tracing::debug!(
            "read of {len} bytes at offset {offset}: {error}; only the sectors of the write are written"
        );
        // Inside the locked range.
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
        // A sector was transferred partially: repeat the whole sector.
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
        match (io.operation, &self.versions) {
            (Operation::Flush, versions) => {
                if let Some(versions) = versions
                    && io.retired != 0
                {
                    versions.versions.retire(io.version.epoch, io.retired);
                }
                self.push(slot, Stage::Syncing);
                return Step::Pending;
            }
            (Operation::Write { .. }, Some(_))
            | (Operation::WriteVersion { .. } | Operation::ReadBefore, None) => {
                return self.complete(slot, ErrorCode::NOT_PERMITTED);
            }
            (Operation::WriteVersion { .. }, Some(_)) => it.checksum = SlotChecksum::NONE,
            _ => {}
        }
        self.go_on(slot)
    }

    #[inline]
    fn transferred(&mut self, slot: usize) -> Step {
        let it = &mut self.slots[slot];
        match it.io.operation {
            Operation::Read | Operation::ReadBefore => {
                it.done += it.piece;
                self.go_on(slot)
            }
            Operation::WriteVersion { .. } => self.write_version(slot),
            _ => self.write(slot),
        }
    }

    fn abandon(&mut self, slot: usize) {
        self.give_up(slot);
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
        any || !self.done.is_empty()
    }

    #[inline]
    fn next(&mut self) -> Option<(usize, Step)> {
        if let Some((slot, code)) = self.done.pop_front() {
            return Some((slot, Step::Complete(code)));
        }
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
        if self.disk.has_pending() {
            return None;
        }
        if self.disk.in_flight() != 0 {
            return self.disk.readiness();
        }
        // Writes without a lock wait for operations in flight, others for slots.
        match &self.versions {
            Some(versions) if !self.waiting.is_empty() => Some(versions.versions.freed()),
            _ => None,
        }
    }

    fn media_errors(&self) -> u64 {
        self.media_errors
    }
}

impl<D: Disk> Drop for FileStore<D> {
    fn drop(&mut self) {
        // The kernel may still be writing sectors whose locks are held here.
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

/// Size in bytes of the range covered by a lock: the largest unit of a read-modify-write.
const GRANULE: u64 = 4096;

/// Number of locks. Granules at multiples of this distance share a lock.
const LOCKS: u64 = 8192;

/// Maximum length of a locked range, with which it does not use any lock twice.
const LARGEST: u64 = GRANULE * (LOCKS - 1);

const EXCLUSIVE: u32 = 1 << 31;
/// Flag: an exclusive lock is requested, so further shared locks are refused, to avoid starvation.
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
                // In locking order; the order of release is irrelevant.
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
    use std::sync::Mutex;

    use doca::MemoryRegion;
    use tempfile::TempDir;
    use tracing_subscriber::fmt::MakeWriter;
    use wire::backing::CONTENT_OFFSET;

    use super::*;
    use crate::backing::{BackingFile, Options};
    use crate::content::{Content, Geometry};
    use crate::store::{DiskOperation, FileDisk, FileStore, Layout};

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

    const BLOCK: usize = 520;
    const SECTOR: u64 = 512;

    /// A queue to a file, with injected media errors.
    struct Faulty {
        disk: FileDisk,
        fails: fn(DiskOperation) -> bool,
        pushed: Vec<u64>,
        /// Number of reads so far.
        reads: usize,
        failed: VecDeque<Completed>,
    }

    impl Faulty {
        fn fail_pushed(&mut self) {
            let failed = |token| Completed {
                token,
                result: Err(Errno::IO),
            };
            self.failed.extend(self.pushed.drain(..).map(failed));
        }
    }

    impl Disk for Faulty {
        fn push(&mut self, token: u64, operation: DiskOperation) {
            self.reads += usize::from(is_read(operation));
            if (self.fails)(operation) {
                self.pushed.push(token);
            } else {
                self.disk.push(token, operation);
            }
        }

        fn has_pending(&self) -> bool {
            !self.pushed.is_empty() || self.disk.has_pending()
        }

        fn submit(&mut self) {
            self.fail_pushed();
            self.disk.submit();
        }

        fn fail_pending(&mut self) {
            self.fail_pushed();
            self.disk.fail_pending();
        }

        fn reap(&mut self) -> bool {
            self.disk.reap() || !self.failed.is_empty()
        }

        fn next(&mut self) -> Option<Completed> {
            self.failed.pop_front().or_else(|| self.disk.next())
        }

        fn in_flight(&self) -> usize {
            self.disk.in_flight()
        }

        fn drain(&mut self) {
            self.disk.drain();
        }

        fn readiness(&self) -> Option<BorrowedFd<'_>> {
            self.disk.readiness()
        }

        fn verify(&mut self) -> io::Result<()> {
            self.disk.verify()
        }
    }

    /// A store on a file.
    struct Medium {
        store: FileStore<Faulty>,
        memory: Arc<MemoryRegion>,
        file: Arc<BackingFile>,
        _directory: TempDir,
    }

    impl Medium {
        /// A file on a file system with blocks of this size.
        fn new(fs_block: u64) -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let geometry = Geometry {
                block_size: BLOCK as u32,
                block_count: 16,
            };
            let content = Content::open(None, geometry).expect("content");
            let path = directory.path().join("blocks");
            let file = BackingFile::open(&path, content, Options::default()).expect("made");
            let file = Arc::new(file);
            let sector = file.sector().max(SECTOR);
            let fs_block = fs_block.max(sector);
            let layout = Layout::new(CONTENT_OFFSET, sector, fs_block, BLOCK as u32, 1);
            let length = CONTENT_OFFSET + geometry.capacity();
            let written = Arc::new(WrittenBlocks::new(length, sector, fs_block));
            let memory = MemoryRegion::new(layout.buffer).expect("memory");
            let disk = Faulty {
                disk: FileDisk::new(Arc::clone(&file), &memory, 1),
                fails: |_| false,
                pushed: Vec::new(),
                reads: 0,
                failed: VecDeque::new(),
            };
            let health = Arc::clone(file.health());
            Self {
                store: FileStore::new(disk, layout, 1, Arc::default(), written, health, None),
                memory,
                file,
                _directory: directory,
            }
        }

        /// Executes a client's I/O while these disk operations fail; a read fills `bytes`.
        fn io(
            &mut self,
            fails: fn(DiskOperation) -> bool,
            operation: Operation,
            storage_offset: usize,
            bytes: &mut [u8],
        ) -> ErrorCode {
            self.store.disk().fails = fails;
            let io = Io {
                operation,
                storage_offset: storage_offset as u64,
                requester_offset: 0,
                version: Version::NONE,
                retired: 0,
                size: bytes.len() as u32,
            };
            let mut step = self.store.begin(0, io);
            loop {
                step = match step {
                    Step::Complete(code) => return code,
                    Step::Transfer(extent) => {
                        let at = extent.local_offset as usize;
                        let moved = if extent.to_requester {
                            self.memory.read(at, bytes)
                        } else {
                            self.memory.write(at, bytes)
                        };
                        moved.expect("inside the memory");
                        self.store.transferred(0)
                    }
                    Step::Pending => {
                        self.store.poll();
                        self.store.next().map_or(Step::Pending, |(_, step)| step)
                    }
                };
            }
        }

        fn read(&mut self, storage_offset: usize, size: usize) -> Vec<u8> {
            let mut bytes = vec![0xee; size];
            let code = self.io(|_| false, Operation::Read, storage_offset, &mut bytes);
            assert_eq!(code, ErrorCode::SUCCESS);
            bytes
        }
    }

    /// Captured log.
    #[derive(Debug, Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// Errors logged while `run` is executed.
    fn errors_logged(run: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(lines.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, run);
        let text = String::from_utf8(lines.0.lock().expect("not poisoned").clone()).expect("text");
        let errors = text.lines().filter(|line| line.contains("ERROR"));
        errors.map(str::to_owned).collect()
    }

    fn is_read(operation: DiskOperation) -> bool {
        matches!(operation, DiskOperation::Read(_))
    }

    fn is_write(operation: DiskOperation) -> bool {
        matches!(operation, DiskOperation::Write { .. })
    }

    #[test]
    fn failed_disk_operation_fails_only_its_own_io() {
        type Fails = fn(DiskOperation) -> bool;
        let write = |durable| Operation::Write { durable };
        // A block is a sector and a part of another: writing it reads, modifies and writes both.
        let cases: [(&str, Operation, usize, Fails); 6] = [
            ("read", Operation::Read, BLOCK, is_read),
            ("merge", write(false), BLOCK, is_read),
            ("write of parts", write(false), BLOCK, is_write),
            ("durable write of parts", write(true), BLOCK, is_write),
            ("write of sectors", write(false), 4096, is_write),
            ("durable write of sectors", write(true), 4096, is_write),
        ];
        for ((name, operation, size, fails), fs_block) in cases
            .into_iter()
            .flat_map(|case| [(case, SECTOR), (case, 4096)])
        {
            let mut medium = Medium::new(fs_block);
            let before: Vec<u8> = (0..BLOCK * 16).map(|at| (at % 251) as u8).collect();
            let (first, second) = before.split_at(4096);
            for (offset, part) in [(0, first), (4096, second)] {
                let code = medium.io(|_| false, write(false), offset, &mut part.to_vec());
                assert_eq!(code, ErrorCode::SUCCESS);
            }
            // Aligned for cases with whole sectors.
            let offset = if size == 4096 { 0 } else { 3 * BLOCK };
            let lines = errors_logged(|| {
                for count in 1..=3 {
                    let mut bytes = vec![0x77; size];
                    let code = medium.io(fails, operation, offset, &mut bytes);
                    assert_eq!(code, ErrorCode::IO_FAILED, "{name}");
                    assert_eq!(medium.store.media_errors(), count, "{name}");
                }
            });
            assert_eq!(lines.len(), 1, "{name}: {lines:?}");
            assert_eq!(medium.file.health().errors(), 3, "{name}");
            // The failed operations had no effect, and the sectors are not locked.
            assert!(medium.read(0, before.len()) == before, "{name}");
            let code = medium.io(|_| false, write(true), offset, &mut vec![0x78; size]);
            assert_eq!(code, ErrorCode::SUCCESS, "{name}");
            assert_eq!(medium.read(offset, size), vec![0x78; size], "{name}");
            let flushed = medium.io(|_| false, Operation::Flush, 0, &mut []);
            assert_eq!(flushed, ErrorCode::SUCCESS, "{name}");
            // A clean shutdown is not recorded: acknowledged data may be missing.
            assert!(medium.file.sync().is_err(), "{name}");
        }
    }

    /// The kernel reports a failed sync once, and treats the unwritten data as written.
    #[test]
    fn all_ios_fail_after_a_failed_sync() {
        let mut medium = Medium::new(SECTOR);
        let is_sync = |operation| operation == DiskOperation::Sync;
        let lines = errors_logged(|| {
            let flushed = medium.io(is_sync, Operation::Flush, 0, &mut []);
            assert_eq!(flushed, ErrorCode::IO_FAILED);
            for operation in [
                Operation::Flush,
                Operation::Read,
                Operation::Write { durable: true },
            ] {
                let code = medium.io(|_| false, operation, 0, &mut [0; BLOCK]);
                assert_eq!(code, ErrorCode::IO_FAILED, "{operation:?}");
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(medium.store.media_errors(), 4);
        assert!(medium.file.sync().is_err());
        assert!(medium.file.check_health().is_err());
    }

    #[test]
    fn part_of_a_block_is_written_with_the_rest_of_it_once() {
        let mut medium = Medium::new(4096);
        let write = |medium: &mut Medium, offset, size, byte| {
            let before = medium.store.disk().reads;
            let write = Operation::Write { durable: false };
            let code = medium.io(|_| false, write, offset, &mut vec![byte; size]);
            assert_eq!(code, ErrorCode::SUCCESS);
            medium.store.disk().reads - before
        };
        let is_sectored = medium.file.sector() <= SECTOR;
        assert_eq!(write(&mut medium, 512, 1024, 1), usize::from(is_sectored));
        assert_eq!(write(&mut medium, 0, 512, 2), usize::from(!is_sectored));
        assert_eq!(write(&mut medium, 3072, 1024, 3), usize::from(!is_sectored));
        let mut expected = vec![0; 4096];
        expected[..512].fill(2);
        expected[512..1536].fill(1);
        expected[3072..].fill(3);
        assert!(medium.read(0, 4096) == expected);
    }

    /// A disk replaces a sector that it cannot read when the sector is written.
    #[test]
    fn sectors_are_written_where_the_rest_of_their_block_cannot_be_read() {
        let mut medium = Medium::new(4096);
        if medium.file.sector() > SECTOR {
            eprintln!("NOT RUN: a write of 512 bytes needs sectors of 512 bytes");
            return;
        }
        let write = Operation::Write { durable: true };
        let code = medium.io(is_read, write, 512, &mut [1; 1024]);
        assert_eq!(code, ErrorCode::SUCCESS);
        assert_eq!(medium.store.media_errors(), 0);
        assert!(medium.file.check_health().is_ok());
        let mut expected = vec![0; 4096];
        expected[512..1536].fill(1);
        assert!(medium.read(0, 4096) == expected);
        // The write must consist of whole sectors, but this I/O does not.
        let code = medium.io(is_read, write, 512, &mut [1; 1000]);
        assert_eq!(code, ErrorCode::IO_FAILED);
    }
}
