//! Applies retired versions: copies them from their slots to the places of their blocks. See [`versions`](crate::versions) for the order of the steps.

use std::io;
use std::sync::Arc;

use doca::MemoryRegion;
use rustix::io::Errno;

use super::{Disk, DiskOperation, Range};
use crate::backing::Health;
use crate::metadata::{Medium, Places};
use crate::versions::{Reading, SlotArea, Tail, Versions, parse_slot};

/// Maximum number of slots of a batch in memory. It is small, because batches in memory need no syncs, and waiting
/// writes should get slots soon.
const MEMORY_BATCH: usize = 256;

/// Preferred size of the memory for the slots of a batch in bytes.
const BATCH: usize = 8 << 20;

/// Preferred size of the memory for the places that are written together in bytes.
const ROUND: usize = 4 << 20;

/// Largest read of adjacent slots in bytes.
const LARGEST_READ: u64 = 256 << 10;

/// Maximum number of operations in flight.
const DEPTH: usize = 32;

/// Alignment of memory for direct I/O in bytes.
const ALIGNMENT: usize = 4096;

/// Replaces bytes that cannot be read; it is not the start of a valid chunk record.
const FILLER: u8 = 0xA5;

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There are no versions to apply.
    Idle,
    /// The batch waits for reads of workers.
    Reads,
    /// Disk operations may be in flight.
    Disk,
}

/// Applies versions step by step.
pub trait Apply {
    /// Executes the next step of the batch, or begins a batch of retired versions, or of `all`.
    ///
    /// # Errors
    ///
    /// The medium failed.
    fn step(&mut self, all: bool) -> io::Result<Progress>;

    /// `true` without a current batch.
    fn is_between_batches(&self) -> bool;

    /// Discards all versions durably, if there is no batch. Their slots are freed by the next steps.
    ///
    /// # Errors
    ///
    /// The medium failed.
    fn forget(&mut self) -> io::Result<()>;

    /// Waits for the disk operations in flight.
    fn wait(&mut self) {}
}

/// Applies versions in memory.
#[derive(Debug)]
pub struct MemoryApplier {
    versions: Arc<Versions>,
    region: Arc<MemoryRegion>,
    layout: MemoryLayout,
    stage: MemoryStage,
    /// Slots and blocks of the batch.
    entries: Vec<(u32, u64)>,
}

/// Location of blocks and slots in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLayout {
    /// Size of blocks and slots in bytes.
    pub block_size: u64,
    /// Offset of the first slot.
    pub slots_offset: u64,
}

impl MemoryLayout {
    /// Offset of a slot.
    #[inline]
    #[must_use]
    pub fn offset_of(self, slot: u32) -> u64 {
        self.slots_offset + u64::from(slot) * self.block_size
    }
}

#[derive(Debug, Clone, Copy)]
enum MemoryStage {
    Idle,
    Begun(Reading),
    Draining(Reading),
}

impl MemoryApplier {
    /// For blocks and slots in this memory.
    #[must_use]
    pub fn new(versions: Arc<Versions>, region: Arc<MemoryRegion>, layout: MemoryLayout) -> Self {
        Self {
            entries: Vec::with_capacity(MEMORY_BATCH),
            versions,
            region,
            layout,
            stage: MemoryStage::Idle,
        }
    }

    fn copy(&mut self) -> io::Result<()> {
        self.entries.clear();
        let entries = &mut self.entries;
        self.versions
            .with(|log| entries.extend(log.to_apply().map(|(slot, block, _)| (slot, block))));
        for &(slot, block) in &self.entries {
            let to = (block * self.layout.block_size) as usize;
            let from = self.layout.offset_of(slot) as usize;
            self.region
                .copy_from(to, &self.region, from, self.layout.block_size as usize)
                .map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(())
    }
}

impl Apply for MemoryApplier {
    fn step(&mut self, all: bool) -> io::Result<Progress> {
        match self.stage {
            MemoryStage::Idle => match self.versions.begin_apply(all, MEMORY_BATCH) {
                None => return Ok(Progress::Idle),
                Some(reads) => self.stage = MemoryStage::Begun(reads),
            },
            MemoryStage::Begun(reads) if self.versions.have_completed(reads) => {
                self.copy()?;
                self.stage = MemoryStage::Draining(self.versions.end_apply());
            }
            MemoryStage::Draining(reads) if self.versions.have_completed(reads) => {
                self.versions.free_batch();
                self.stage = MemoryStage::Idle;
            }
            _ => return Ok(Progress::Reads),
        }
        Ok(Progress::Disk)
    }

    fn is_between_batches(&self) -> bool {
        matches!(self.stage, MemoryStage::Idle)
    }

    fn forget(&mut self) -> io::Result<()> {
        if let Some(reads) = self.versions.forget() {
            self.stage = MemoryStage::Draining(reads);
        }
        Ok(())
    }
}

/// Location of blocks and slots in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLayout {
    /// Offset of the first block.
    pub content_offset: u64,
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Alignment of reads and writes in bytes, a power of 2.
    pub sector: u64,
    /// Unit of read-modify-writes in bytes, a power of 2.
    pub fs_block: u64,
    pub slots: SlotArea,
}

/// Applies versions in a file. The tail is written to `records`; blocks and slots are read and written by `disk`.
#[derive(Debug)]
pub struct FileApplier<D, M> {
    versions: Arc<Versions>,
    layout: FileLayout,
    disk: D,
    records: M,
    health: Arc<Health>,
    tail: Places<Tail>,
    stage: Stage,
    memory: Arc<MemoryRegion>,
    /// Maximum number of slots in a batch.
    most: usize,
    /// Versions to copy, in ascending order of the slots, then of the blocks.
    entries: Vec<Entry>,
    /// First entry that is not in a round yet.
    next_entry: usize,
    runs: Vec<Run>,
    /// Sectors of the runs that cannot be read.
    unreadable: Vec<Range>,
    operations: Operations,
    scratch: Vec<u8>,
}

/// Memory and limits of a [`FileApplier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    /// Maximum number of slots in a batch.
    most: usize,
    /// Size of the memory for a batch in bytes.
    batch: usize,
    /// Size of the memory for a round in bytes.
    round: usize,
}

impl Sizes {
    fn new(layout: FileLayout) -> Self {
        let slot_size = layout.slots.slot_size as usize;
        let most = (BATCH / slot_size.max(1)).clamp(1, layout.slots.count.max(1) as usize);
        let block = layout.block_size as usize + 2 * layout.fs_block as usize;
        Self {
            most,
            batch: most * slot_size,
            round: block
                .max(ROUND.min(most * block))
                .next_multiple_of(ALIGNMENT),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    slot: u32,
    sequence: u64,
    block: u64,
    /// Offset of the entry's block in the memory.
    memory: usize,
}

/// Adjacent blocks that are written together.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Range of the file, in whole units of read-modify-writes.
    begin: u64,
    end: u64,
    /// Offset of the range in the memory.
    memory: usize,
    /// Index of the first entry of the run.
    first: usize,
    last: usize,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Idle,
    /// Waiting for reads of places that began before the batch.
    Begun(Reading),
    /// Making the slots durable.
    SyncingSlots,
    /// Reading the slots.
    Loading,
    /// Reading places that are written partially.
    Merging,
    /// Writing places.
    Writing,
    SyncingPlaces,
    /// Waiting for reads of the slots.
    Draining(Reading),
}

impl<D: Disk, M: Medium> FileApplier<D, M> {
    /// Number of bytes of memory that the disk needs for these sizes.
    #[must_use]
    pub fn memory_size(layout: FileLayout) -> usize {
        let sizes = Sizes::new(layout);
        sizes.batch + sizes.round
    }

    /// Creates an applier, whose disk uses this memory of [`memory_size`](Self::memory_size) bytes.
    #[must_use]
    pub fn new(
        versions: Arc<Versions>,
        layout: FileLayout,
        (disk, memory): (D, Arc<MemoryRegion>),
        (records, tail): (M, Places<Tail>),
        health: Arc<Health>,
    ) -> Self {
        let most = Sizes::new(layout).most;
        Self {
            versions,
            layout,
            disk,
            records,
            health,
            tail,
            stage: Stage::Idle,
            memory,
            most,
            entries: Vec::with_capacity(most),
            next_entry: 0,
            runs: Vec::new(),
            unreadable: Vec::new(),
            operations: Operations::default(),
            scratch: vec![0; layout.slots.slot_size as usize],
        }
    }

    fn advance(&mut self, all: bool) -> io::Result<Progress> {
        let is_idle = matches!(self.stage, Stage::Idle);
        if is_idle && !self.versions.with(|log| log.is_applicable(all)) {
            return Ok(Progress::Idle);
        }
        if self.health.has_failed() {
            return Err(io::Error::other("the medium has failed"));
        }
        let sector = self.layout.sector as usize;
        let is_merging = matches!(self.stage, Stage::Merging);
        let unreadable = is_merging.then_some(&mut self.unreadable);
        if !self
            .operations
            .advance(&mut self.disk, sector, unreadable)?
        {
            return Ok(Progress::Disk);
        }
        match self.stage {
            Stage::Idle => match self.versions.begin_apply(all, self.most) {
                None => return Ok(Progress::Idle),
                Some(reads) => self.stage = Stage::Begun(reads),
            },
            Stage::Begun(reads) => {
                if !self.versions.have_completed(reads) {
                    return Ok(Progress::Reads);
                }
                self.begin(Stage::SyncingSlots)?;
                self.operations.push(DiskOperation::Sync);
            }
            Stage::SyncingSlots => {
                self.begin(Stage::Loading)?;
                self.load();
            }
            Stage::Loading => {
                self.check_loaded()?;
                self.next_round()?;
            }
            Stage::Merging => {
                self.begin(Stage::Writing)?;
                self.write()?;
            }
            Stage::Writing => self.next_round()?,
            Stage::SyncingPlaces => {
                self.disk.verify()?;
                let tail = self.versions.with(|log| log.tail());
                self.tail.write(&self.records, &tail)?;
                self.stage = Stage::Draining(self.versions.end_apply());
            }
            Stage::Draining(reads) => {
                if !self.versions.have_completed(reads) {
                    return Ok(Progress::Reads);
                }
                self.versions.free_batch();
                self.stage = Stage::Idle;
            }
        }
        Ok(Progress::Disk)
    }

    fn begin(&mut self, stage: Stage) -> io::Result<()> {
        self.stage = stage;
        self.disk.verify()
    }

    /// Reads the slots of the batch, adjacent ones together.
    fn load(&mut self) {
        self.entries.clear();
        let entries = &mut self.entries;
        self.versions.with(|log| {
            let batch = log.to_apply();
            entries.extend(batch.map(|(slot, block, sequence)| Entry {
                slot,
                sequence,
                block,
                memory: 0,
            }));
        });
        self.entries.sort_unstable_by_key(|entry| entry.slot);
        let slots = self.layout.slots;
        let mut run: Option<Range> = None;
        for (at, entry) in self.entries.iter_mut().enumerate() {
            let (offset, size) = (slots.offset_of(entry.slot), slots.slot_size as usize);
            entry.memory = at * size;
            match &mut run {
                Some(run)
                    if run.file_offset + run.len as u64 == offset
                        && (run.len + size) as u64 <= LARGEST_READ =>
                {
                    run.len += size;
                }
                _ => {
                    let next = Range {
                        file_offset: offset,
                        memory_offset: entry.memory,
                        len: size,
                    };
                    if let Some(run) = run.replace(next) {
                        self.operations.push(DiskOperation::Read(run));
                    }
                }
            }
        }
        if let Some(run) = run {
            self.operations.push(DiskOperation::Read(run));
        }
    }

    /// Checks that the slots contain the data written to them, and sorts them by the places of their blocks.
    fn check_loaded(&mut self) -> io::Result<()> {
        for entry in &self.entries {
            self.memory
                .read(entry.memory, &mut self.scratch)
                .map_err(|error| io::Error::other(error.to_string()))?;
            let block_size = self.layout.block_size as usize;
            let found = parse_slot(entry.slot, &self.scratch, block_size);
            if found.map(|it| (it.sequence, it.block)) != Some((entry.sequence, entry.block)) {
                return Err(io::Error::other(format!(
                    "slot {} for versions: expected sequence {} of block {}, found {}",
                    entry.slot,
                    entry.sequence,
                    entry.block,
                    found.map_or_else(
                        || "damaged bytes".to_owned(),
                        |it| format!("sequence {} of block {}", it.sequence, it.block)
                    )
                )));
            }
        }
        self.entries.sort_unstable_by_key(|entry| entry.block);
        self.next_entry = 0;
        Ok(())
    }

    /// Starts writing the next blocks to their places.
    fn next_round(&mut self) -> io::Result<()> {
        if self.next_entry == self.entries.len() {
            self.begin(Stage::SyncingPlaces)?;
            self.operations.push(DiskOperation::Sync);
            return Ok(());
        }
        self.begin(Stage::Merging)?;
        let FileLayout {
            content_offset,
            block_size,
            fs_block,
            ..
        } = self.layout;
        let sizes = Sizes::new(self.layout);
        let mut free = sizes.round as u64;
        self.runs.clear();
        for at in self.next_entry..self.entries.len() {
            let place = content_offset + self.entries[at].block * u64::from(block_size);
            let begin = place - place % fs_block;
            let end = (place + u64::from(block_size)).next_multiple_of(fs_block);
            match self.runs.last_mut() {
                Some(run) if begin <= run.end => {
                    let more = end.saturating_sub(run.end);
                    if more > free {
                        break;
                    }
                    free -= more;
                    (run.end, run.last) = (run.end.max(end), at);
                }
                _ => {
                    if end - begin > free {
                        break;
                    }
                    self.runs.push(Run {
                        begin,
                        end,
                        memory: sizes.batch + sizes.round - free as usize,
                        first: at,
                        last: at,
                    });
                    free -= end - begin;
                }
            }
            self.next_entry = at + 1;
        }
        for run in &self.runs {
            let count = (run.last - run.first + 1) as u64;
            if count * u64::from(block_size) != run.end - run.begin {
                let all = run.part(run.begin, run.end);
                self.operations.push(DiskOperation::Read(all));
            }
        }
        Ok(())
    }

    /// Copies the blocks of the round over their places in memory, and writes them. A sector that could not be read is
    /// written only if it contains a part of one of the blocks: this repairs the sector, and its other part is replaced
    /// by bytes that are not a valid chunk, so that damage of the other block is detected.
    fn write(&mut self) -> io::Result<()> {
        let failed = |error: doca::Error| io::Error::other(error.to_string());
        let (block_size, content) = (self.layout.block_size as usize, self.layout.content_offset);
        let place_of = |entry: &Entry| content + entry.block * block_size as u64;
        self.unreadable.sort_unstable_by_key(|it| it.file_offset);
        for run in &self.runs {
            let entries = &self.entries[run.first..=run.last];
            let mut begin = run.begin;
            for sector in &self.unreadable {
                let end = sector.file_offset + sector.len as u64;
                if sector.file_offset < run.begin || end > run.end {
                    continue;
                }
                self.health.io_failed(format_args!(
                    "read of {} bytes at offset {}: {}",
                    sector.len,
                    sector.file_offset,
                    Errno::IO
                ));
                let has_part = |entry: &Entry| {
                    let place = place_of(entry);
                    place < end && sector.file_offset < place + block_size as u64
                };
                if entries.iter().any(has_part) {
                    let filler = vec![FILLER; sector.len];
                    self.memory
                        .write(sector.memory_offset, &filler)
                        .map_err(failed)?;
                } else {
                    self.operations.write(run, begin, sector.file_offset);
                    begin = end;
                }
            }
            for entry in entries {
                let to = run.memory + (place_of(entry) - run.begin) as usize;
                self.memory
                    .copy_from(to, &self.memory, entry.memory, block_size)
                    .map_err(failed)?;
            }
            self.operations.write(run, begin, run.end);
        }
        self.unreadable.clear();
        Ok(())
    }
}

impl Run {
    /// A part of the range of the file.
    fn part(&self, begin: u64, end: u64) -> Range {
        Range {
            file_offset: begin,
            memory_offset: self.memory + (begin - self.begin) as usize,
            len: (end - begin) as usize,
        }
    }
}

impl<D: Disk, M: Medium> Apply for FileApplier<D, M> {
    fn step(&mut self, all: bool) -> io::Result<Progress> {
        let result = self.advance(all);
        if let Err(error) = &result {
            // Retired versions may be applied late, but never without a successful sync.
            self.health
                .fail(format_args!("versions of blocks: {error}"));
        }
        result
    }

    fn is_between_batches(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    fn forget(&mut self) -> io::Result<()> {
        let Some(reads) = self.versions.forget() else {
            return Ok(());
        };
        let tail = self.versions.with(|log| log.tail());
        self.stage = Stage::Draining(reads);
        let written = self
            .disk
            .verify()
            .and_then(|()| self.tail.write(&self.records, &tail));
        if let Err(error) = &written {
            self.health
                .fail(format_args!("versions of blocks: {error}"));
        }
        written
    }

    fn wait(&mut self) {
        self.disk.drain();
    }
}

/// Operations of a stage, with a limited number in flight.
#[derive(Debug, Default)]
struct Operations {
    all: Vec<DiskOperation>,
    /// Number of operations that were pushed.
    pushed: usize,
    completed: usize,
}

impl Operations {
    fn push(&mut self, operation: DiskOperation) {
        self.all.push(operation);
    }

    /// Submits operations and collects completions. Returns `true` if all have completed. Sectors that cannot be read
    /// are added to `unreadable`, if given.
    fn advance(
        &mut self,
        disk: &mut impl Disk,
        sector: usize,
        mut unreadable: Option<&mut Vec<Range>>,
    ) -> io::Result<bool> {
        if self.all.is_empty() {
            return Ok(true);
        }
        while self.pushed < self.all.len() && self.pushed - self.completed < DEPTH {
            disk.push(self.pushed as u64, self.all[self.pushed]);
            self.pushed += 1;
        }
        if disk.has_pending() {
            disk.submit();
        }
        disk.reap();
        while let Some(completed) = disk.next() {
            let at = completed.token as usize;
            if let (DiskOperation::Read(range), Err(Errno::IO), Some(unreadable)) =
                (self.all[at], completed.result, unreadable.as_deref_mut())
            {
                self.completed += 1;
                if range.len <= sector {
                    unreadable.push(range);
                } else {
                    self.read_sectors(range, sector);
                }
                continue;
            }
            let operation = &mut self.all[at];
            let range = match operation {
                DiskOperation::Sync => {
                    completed.result?;
                    self.completed += 1;
                    continue;
                }
                DiskOperation::Read(range) | DiskOperation::Write { range, .. } => range,
            };
            let count = match completed.result {
                Ok(count) if count >= range.len => {
                    self.completed += 1;
                    continue;
                }
                // A partially transferred sector is repeated.
                Ok(count) => count - count % sector,
                Err(Errno::INTR | Errno::AGAIN) => {
                    disk.push(completed.token, *operation);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if count == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file ends before a slot or a block",
                ));
            }
            range.file_offset += count as u64;
            range.memory_offset += count;
            range.len -= count;
            disk.push(completed.token, *operation);
        }
        if self.completed < self.all.len() {
            return Ok(false);
        }
        (self.pushed, self.completed) = (0, 0);
        self.all.clear();
        Ok(true)
    }

    /// Writes a part of a run, which may be empty.
    fn write(&mut self, run: &Run, begin: u64, end: u64) {
        if begin < end {
            self.push(DiskOperation::Write {
                range: run.part(begin, end),
                durable: false,
            });
        }
    }

    /// Reads each sector of a range separately.
    fn read_sectors(&mut self, range: Range, sector: usize) {
        for at in (0..range.len).step_by(sector) {
            self.push(DiskOperation::Read(Range {
                file_offset: range.file_offset + at as u64,
                memory_offset: range.memory_offset + at,
                len: sector.min(range.len - at),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{BTreeSet, VecDeque};
    use std::os::fd::BorrowedFd;
    use std::rc::Rc;

    use super::*;
    use crate::store::Completed;
    use crate::versions::{Log, SlotChecksum, Version};

    const SECTOR: usize = 512;
    const BLOCK: usize = 2112;
    const BLOCKS: u64 = 8;
    const SLOTS: SlotArea = SlotArea {
        offset: 32 << 10,
        slot_size: 4096,
        count: 4,
    };

    /// A disk whose bad sectors cannot be read until they are written.
    #[derive(Default)]
    struct Content {
        bytes: Vec<u8>,
        bad: BTreeSet<usize>,
    }

    struct Bad {
        content: Rc<RefCell<Content>>,
        memory: Arc<MemoryRegion>,
        completed: VecDeque<Completed>,
    }

    impl Disk for Bad {
        fn push(&mut self, token: u64, operation: DiskOperation) {
            let mut content = self.content.borrow_mut();
            let Content { bytes, bad } = &mut *content;
            let result = match operation {
                DiskOperation::Sync => Ok(0),
                DiskOperation::Read(range) | DiskOperation::Write { range, .. } => {
                    let begin = range.file_offset as usize;
                    let sectors = begin / SECTOR..(begin + range.len) / SECTOR;
                    assert!(begin.is_multiple_of(SECTOR) && range.len.is_multiple_of(SECTOR));
                    let bytes = &mut bytes[begin..begin + range.len];
                    if let DiskOperation::Write { .. } = operation {
                        bad.retain(|it| !sectors.contains(it));
                        let read = self.memory.read(range.memory_offset, bytes);
                        read.expect("inside the memory");
                        Ok(range.len)
                    } else if bad.range(sectors).next().is_some() {
                        Err(Errno::IO)
                    } else {
                        let written = self.memory.write(range.memory_offset, bytes);
                        written.expect("inside the memory");
                        Ok(range.len)
                    }
                }
            };
            self.completed.push_back(Completed { token, result });
        }

        fn has_pending(&self) -> bool {
            false
        }

        fn submit(&mut self) {}

        fn fail_pending(&mut self) {}

        fn reap(&mut self) -> bool {
            !self.completed.is_empty()
        }

        fn next(&mut self) -> Option<Completed> {
            self.completed.pop_front()
        }

        fn in_flight(&self) -> usize {
            0
        }

        fn drain(&mut self) {}

        fn readiness(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn verify(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Discards records.
    struct Nothing;

    impl Medium for Nothing {
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Applies a version of block 3 on a disk with these bad sectors, and returns the disk before and after it.
    fn applied(bad: &[usize]) -> (Vec<u8>, Content, Arc<Health>) {
        let layout = FileLayout {
            content_offset: 0,
            block_size: BLOCK as u32,
            sector: SECTOR as u64,
            fs_block: 4096,
            slots: SLOTS,
        };
        let version = Version {
            epoch: 1,
            number: 2,
        };
        let mut log = Log::new(SLOTS.count);
        let slot = log.allocate(1).expect("free");
        let sequence = log.seal(slot, 3, version);
        log.complete(slot, true);
        let mut bytes: Vec<u8> = (0..(48 << 10)).map(|at| (at / SECTOR) as u8).collect();
        let place = SLOTS.offset_of(slot) as usize;
        bytes[place..place + BLOCK].fill(0xEE);
        let mut checksum = SlotChecksum::NONE;
        checksum.update(&bytes[place..place + BLOCK]);
        let record = checksum.record(sequence, 3, version, Version::NONE);
        bytes[place + BLOCK..place + BLOCK + record.len()].copy_from_slice(&record);
        let before = bytes.clone();
        let bad = bad.iter().copied().collect();
        let content = Rc::new(RefCell::new(Content { bytes, bad }));
        let size = FileApplier::<Bad, Nothing>::memory_size(layout);
        let memory = MemoryRegion::new(size).expect("memory");
        let health = Arc::new(Health::new("test"));
        let disk = Bad {
            content: Rc::clone(&content),
            memory: Arc::clone(&memory),
            completed: VecDeque::new(),
        };
        let records = (Nothing, Places::default());
        let shared = Versions::new(log);
        let mut applier =
            FileApplier::new(shared, layout, (disk, memory), records, Arc::clone(&health));
        while applier.step(true).expect("the medium is good") != Progress::Idle {}
        drop(applier);
        let content = Rc::into_inner(content).expect("the only one").into_inner();
        (before, content, health)
    }

    /// First sector of block 3, which also contains the end of block 2, and the sector after its last whole one, which
    /// also contains the beginning of block 4.
    const FIRST: usize = 3 * BLOCK / SECTOR;
    const LAST: usize = 4 * BLOCK / SECTOR;

    #[test]
    fn unreadable_sectors_are_written_only_where_the_block_has_a_part_of_them() {
        let block = 3 * BLOCK..4 * BLOCK;
        // A sector before the block and one after it in the same units of 4096 bytes, both of its ends, and a sector
        // inside.
        let outside = [FIRST - 1, LAST + 1];
        for bad in [
            vec![],
            outside.to_vec(),
            vec![FIRST],
            vec![LAST],
            vec![FIRST + 1],
        ]
        .into_iter()
        .chain([vec![FIRST - 1, FIRST, FIRST + 2, LAST, LAST + 1]])
        {
            let (before, after, health) = applied(&bad);
            assert!(!health.has_failed());
            assert_eq!(health.errors(), bad.len() as u64);
            assert!(after.bytes[block.clone()].iter().all(|&byte| byte == 0xEE));
            let left: BTreeSet<usize> = bad
                .iter()
                .copied()
                .filter(|it| outside.contains(it))
                .collect();
            assert_eq!(after.bad, left, "they may be readable later");
            for at in (0..BLOCKS as usize * BLOCK).filter(|at| !block.contains(at)) {
                let is_replaced =
                    [FIRST, LAST].contains(&(at / SECTOR)) && bad.contains(&(at / SECTOR));
                let expected = if is_replaced { FILLER } else { before[at] };
                assert_eq!(after.bytes[at], expected, "{bad:?}: byte {at}");
            }
        }
    }
}
