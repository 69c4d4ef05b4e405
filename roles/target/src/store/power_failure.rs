//! Power failures at any time: possible disk contents afterwards, which must include all flushed data.
//!
//! A [`FileStore`] and the superblocks of a backing file use a [`Recorder`], which completes operations in any order
//! and records when each was submitted and completed. Crash states are derived from this, with the semantics of disks
//! and kernels: each sector of 512 bytes contains the data made durable by the last sync, or the data of any later
//! write, independently of other sectors. A sector of a superblock that is being written may contain garbage.

mod versions;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;

use doca::{ErrorCode, MemoryRegion};
use role_formats::stored_block::MatrixType;
use role_formats::superblock::{Epoch, Form, Format, SetId, Superblock};
use rustix::io::Errno;
use wire::backing::{CONTENT_OFFSET, HEADER_SIZE, RECORD_OFFSETS, RECORD_SIZE};
use wire::control::RecordState;

use super::{
    Completed, Disk, DiskOperation, FileStore, Io, Layout, Operation, SectorLocks, Step, Store as _,
};
use crate::backing::{
    BackingFile, BackingIo, FileHeader, Health, Identity, Options, WrittenBlocks, check, emit,
};
use crate::content::{Content, Geometry};
use crate::metadata::{Medium, Places, StoredSuperblock};
use crate::versions::{SlotArea, Version};

/// Unit of atomic writes.
const SECTOR: usize = 512;
const SLOTS: usize = 8;
const WRITES: u32 = 200;
const FLUSHES: u32 = 20;
const RECORDS: u64 = 10;
/// Number of random combinations of sectors per point in time.
const RANDOM_STATES: usize = 12;

/// Steps omitted on purpose, to check that the test detects their absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Omission {
    Nothing,
    /// Syncs complete without effect.
    Sync,
    /// Durable writes are treated like other writes.
    Fua,
    /// Superblocks are not synced.
    RecordSync,
    /// Superblocks are always written to the same place.
    OnePlace,
    /// Applied versions are not synced at their places.
    ApplySync,
}

/// A write submitted to the disk.
#[derive(Debug)]
struct DiskWrite {
    offset: usize,
    bytes: Vec<u8>,
    submitted: usize,
    completed: Option<usize>,
    durable: Option<usize>,
}

/// All events of a disk.
#[derive(Debug)]
struct Journal {
    /// Contents returned by reads: all completed writes.
    image: Vec<u8>,
    initial: Vec<u8>,
    writes: Vec<DiskWrite>,
    /// Number of events so far, used as time.
    now: usize,
    omission: Omission,
}

impl Journal {
    fn tick(&mut self) -> usize {
        self.now += 1;
        self.now
    }

    fn submit(&mut self, offset: usize, bytes: Vec<u8>) -> usize {
        let submitted = self.tick();
        self.writes.push(DiskWrite {
            offset,
            bytes,
            submitted,
            completed: None,
            durable: None,
        });
        self.writes.len() - 1
    }

    fn complete(&mut self, write: usize, durable: bool) {
        let now = self.tick();
        let it = &mut self.writes[write];
        it.completed = Some(now);
        it.durable = durable.then_some(now);
        self.image[it.offset..it.offset + it.bytes.len()].copy_from_slice(&it.bytes);
    }

    /// Completes a sync that began at this time.
    fn sync(&mut self, begun: usize) {
        let now = self.tick();
        for it in &mut self.writes {
            if it.durable.is_none() && it.completed.is_some_and(|at| at <= begun) {
                it.durable = Some(now);
            }
        }
    }
}

/// A disk that records its events.
#[derive(Debug, Clone)]
struct Recorder(Rc<RefCell<Journal>>);

impl Medium for Recorder {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut journal = self.0.borrow_mut();
        // The page cache contains the remaining part of the sector.
        let sector = offset as usize - offset as usize % SECTOR;
        let sector = if journal.omission == Omission::OnePlace {
            RECORD_OFFSETS[0] as usize
        } else {
            sector
        };
        let mut whole = vec![0; SECTOR];
        whole[..bytes.len()].copy_from_slice(bytes);
        let write = journal.submit(sector, whole);
        journal.complete(write, false);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut journal = self.0.borrow_mut();
        let begun = journal.tick();
        if journal.omission != Omission::RecordSync {
            journal.sync(begun);
        }
        Ok(())
    }
}

/// An operation in flight: the number of a write, or the start time of a sync.
#[derive(Debug)]
struct InFlight {
    token: u64,
    operation: DiskOperation,
    number: usize,
}

/// A queue to a recorder.
#[derive(Debug)]
struct Queue {
    /// `true` if its syncs complete without effect.
    ignores_syncs: bool,
    recorder: Recorder,
    memory: Arc<MemoryRegion>,
    pending: Vec<(u64, DiskOperation)>,
    in_flight: Vec<InFlight>,
    completed: VecDeque<Completed>,
    rng: fastrand::Rng,
}

impl Disk for Queue {
    fn push(&mut self, token: u64, operation: DiskOperation) {
        self.pending.push((token, operation));
    }

    fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn submit(&mut self) {
        let mut journal = self.recorder.0.borrow_mut();
        for (token, operation) in self.pending.drain(..) {
            let number = match operation {
                DiskOperation::Write { range, .. } => {
                    let mut bytes = vec![0; range.len];
                    let read = self.memory.read(range.memory_offset, &mut bytes);
                    read.expect("inside the memory");
                    journal.submit(range.file_offset as usize, bytes)
                }
                _ => journal.tick(),
            };
            self.in_flight.push(InFlight {
                token,
                operation,
                number,
            });
        }
    }

    fn fail_pending(&mut self) {
        for (token, _) in self.pending.drain(..) {
            let result = Err(Errno::IO);
            self.completed.push_back(Completed { token, result });
        }
    }

    fn reap(&mut self) -> bool {
        // Complete any number of the operations in flight.
        while !self.in_flight.is_empty() && self.rng.u8(..3) != 0 {
            let InFlight {
                token,
                operation,
                number,
            } = self
                .in_flight
                .swap_remove(self.rng.usize(..self.in_flight.len()));
            let mut journal = self.recorder.0.borrow_mut();
            let count = match operation {
                DiskOperation::Read(range) => {
                    let from = range.file_offset as usize;
                    let bytes = &journal.image[from..from + range.len];
                    self.memory
                        .write(range.memory_offset, bytes)
                        .expect("inside");
                    range.len
                }
                DiskOperation::Write { range, durable } => {
                    let durable = durable && journal.omission != Omission::Fua;
                    journal.complete(number, durable);
                    range.len
                }
                DiskOperation::Sync => {
                    if journal.omission != Omission::Sync && !self.ignores_syncs {
                        journal.sync(number);
                    }
                    0
                }
            };
            let result = Ok(count);
            self.completed.push_back(Completed { token, result });
        }
        !self.completed.is_empty()
    }

    fn next(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn drain(&mut self) {
        while !self.in_flight.is_empty() {
            self.reap();
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn verify(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client's write to one block, with unique data.
#[derive(Debug)]
struct ClientWrite {
    begun: usize,
    acknowledged: Option<usize>,
    /// Time from which on the write must survive.
    promised: Option<usize>,
}

/// State known to the client of a session.
struct Client {
    geometry: Geometry,
    /// By block: its writes in order, starting with the file's initial data.
    blocks: Vec<Vec<ClientWrite>>,
    /// By superblock: start and acknowledgement times; the first entry means that there is no superblock.
    records: Vec<(usize, usize)>,
}

/// Data of write number `write` to a block.
fn content(block: usize, write: usize, len: usize) -> Vec<u8> {
    if write == 0 {
        return vec![0; len];
    }
    let mut rng = fastrand::Rng::with_seed((block as u64) << 32 | write as u64);
    (0..len).map(|_| rng.u8(1..)).collect()
}

fn stored(number: u64) -> StoredSuperblock {
    StoredSuperblock {
        superblock: Superblock {
            set: SetId(77),
            member: 1,
            epoch: Epoch { number, id: 5 },
            next: Epoch::NONE,
            state: RecordState::InUse,
            form: Form {
                format: Format::StoredChunks,
                matrix: MatrixType::Vandermonde,
                logical_block_size: 512,
            },
        },
        since: None,
    }
}

const IDENTITY: Identity = Identity([9; 16]);

/// Header of a file without slots for versions.
fn header(geometry: Geometry) -> FileHeader {
    FileHeader {
        geometry,
        identity: IDENTITY,
        slots: SlotArea::default(),
    }
}

/// Runs a session, and returns the disk's events and the client's state.
fn session(
    geometry: Geometry,
    (sector, fs_block): (u64, u64),
    omission: Omission,
    seed: u64,
) -> (Journal, Client) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let length = (CONTENT_OFFSET + geometry.capacity()).next_multiple_of(4096) as usize;
    let mut image = vec![0; length];
    image[..HEADER_SIZE].copy_from_slice(&emit(header(geometry)));
    let journal = Rc::new(RefCell::new(Journal {
        initial: image.clone(),
        image,
        writes: Vec::new(),
        now: 0,
        omission,
    }));
    let recorder = Recorder(Rc::clone(&journal));
    let layout = Layout::new(CONTENT_OFFSET, sector, fs_block, geometry.block_size, SLOTS);
    let memory = MemoryRegion::new(layout.buffer * SLOTS).expect("memory");
    let queue = Queue {
        ignores_syncs: false,
        recorder: recorder.clone(),
        memory: Arc::clone(&memory),
        pending: Vec::new(),
        in_flight: Vec::new(),
        completed: VecDeque::new(),
        rng: fastrand::Rng::with_seed(seed + 1),
    };
    let health = Arc::new(Health::new("the recorder"));
    let locks = Arc::<SectorLocks>::default();
    let written = Arc::new(WrittenBlocks::new(length as u64, sector, fs_block));
    let mut store = FileStore::new(queue, layout, SLOTS, locks, written, health, None);
    let mut places = Places::<StoredSuperblock>::new(&[[0; RECORD_SIZE]; 2], |why| panic!("{why}"));

    let block_count = geometry.block_count as usize;
    let size = geometry.block_size as usize;
    let initially = || {
        vec![ClientWrite {
            begun: 0,
            acknowledged: Some(0),
            promised: Some(0),
        }]
    };
    let mut client = Client {
        geometry,
        blocks: (0..block_count).map(|_| initially()).collect(),
        records: vec![(0, 0)],
    };
    /// Operation of a slot: a write to this block, or a flush started at this time.
    #[derive(Clone, Copy)]
    enum Doing {
        Write { block: usize, durable: bool },
        Flush { begun: usize },
    }
    let mut slots: [Option<Doing>; SLOTS] = [None; SLOTS];
    let (mut writes, mut flushes) = (0, 0);
    let mut steps: Vec<(usize, Step)> = Vec::new();
    loop {
        let idle = slots.iter().position(Option::is_none);
        let is_over = writes == WRITES && flushes == FLUSHES;
        if let Some(slot) = idle.filter(|_| !is_over && rng.bool()) {
            let now = journal.borrow_mut().tick();
            let is_flush = flushes < FLUSHES && (writes == WRITES || rng.u32(..11) == 0);
            let is_busy = |wanted: usize| {
                let busy = slots.iter().flatten();
                busy.into_iter()
                    .any(|doing| matches!(doing, Doing::Write { block, .. } if *block == wanted))
            };
            let block = rng.usize(..block_count);
            if is_flush {
                flushes += 1;
                slots[slot] = Some(Doing::Flush { begun: now });
                let io = Io {
                    operation: Operation::Flush,
                    storage_offset: 0,
                    requester_offset: 0,
                    size: 0,
                    version: Version::NONE,
                    retired: 0,
                };
                steps.push((slot, store.begin(slot, io)));
            } else if writes < WRITES && !is_busy(block) {
                writes += 1;
                let durable = rng.u8(..10) == 0;
                slots[slot] = Some(Doing::Write { block, durable });
                client.blocks[block].push(ClientWrite {
                    begun: now,
                    acknowledged: None,
                    promised: None,
                });
                let io = Io {
                    operation: Operation::Write { durable },
                    storage_offset: (block * size) as u64,
                    requester_offset: 0,
                    size: geometry.block_size,
                    version: Version::NONE,
                    retired: 0,
                };
                steps.push((slot, store.begin(slot, io)));
            }
        }
        if (client.records.len() as u64) <= RECORDS && rng.u8(..25) == 0 {
            let begun = journal.borrow_mut().tick();
            let number = client.records.len() as u64;
            places.write(&recorder, &stored(number)).expect("written");
            let now = journal.borrow_mut().tick();
            client.records.push((begun, now));
        }
        store.poll();
        while let Some(step) = store.next() {
            steps.push(step);
        }
        while let Some((slot, step)) = steps.pop() {
            match (step, slots[slot]) {
                (Step::Pending, _) => {}
                (Step::Transfer(extent), Some(Doing::Write { block, .. })) => {
                    assert!(!extent.to_requester);
                    let number = client.blocks[block].len() - 1;
                    let bytes = content(block, number, size);
                    let from = extent.requester_offset as usize;
                    let piece = &bytes[from..from + extent.len];
                    memory
                        .write(extent.local_offset as usize, piece)
                        .expect("inside");
                    steps.push((slot, store.transferred(slot)));
                }
                (Step::Complete(code), Some(doing)) => {
                    assert_eq!(code, ErrorCode::SUCCESS);
                    slots[slot] = None;
                    let now = journal.borrow_mut().tick();
                    match doing {
                        Doing::Write { block, durable } => {
                            let write = client.blocks[block].last_mut().expect("it");
                            write.acknowledged = Some(now);
                            write.promised = durable.then_some(now);
                        }
                        Doing::Flush { begun } => {
                            for write in client.blocks.iter_mut().flatten() {
                                let was_before = write.acknowledged.is_some_and(|at| at < begun);
                                if was_before && write.promised.is_none() {
                                    write.promised = Some(now);
                                }
                            }
                        }
                    }
                }
                (step, _) => panic!("{step:?} of an idle slot"),
            }
        }
        if is_over && slots.iter().all(Option::is_none) {
            break;
        }
    }
    drop((store, recorder));
    let journal = Rc::into_inner(journal).expect("the recorders are gone");
    (journal.into_inner(), client)
}

/// Possible contents of a sector other than the durable data: the number of a write, or garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Candidate {
    Write(usize),
    Garbage,
}

/// Checks a crash state: a point in time, and the contents of the disk.
type Check<'a> = dyn FnMut(usize, &[u8]) -> Result<(), String> + 'a;

/// Explores the crash states of a session, and returns their number and the violations found.
fn explore(journal: &Journal, client: &Client, seed: u64) -> (usize, Vec<String>) {
    let mut checker = Checker {
        client,
        states: 0,
        contents: client
            .blocks
            .iter()
            .enumerate()
            .map(|(block, writes)| {
                let size = client.geometry.block_size as usize;
                let of = |write| content(block, write, size);
                (0..writes.len()).map(of).collect()
            })
            .collect(),
        directory: tempfile::tempdir().expect("a directory"),
    };
    explore_with(journal, seed, &mut |moment, image| {
        checker
            .check_blocks(moment, image)
            .and_then(|()| checker.check_record(moment, image))
    })
}

/// Explores the crash states of a disk with this check.
fn explore_with(journal: &Journal, seed: u64, check: &mut Check<'_>) -> (usize, Vec<String>) {
    let mut explorer = Explorer {
        journal,
        check,
        base: journal.initial.clone(),
        base_write: BTreeMap::new(),
        rng: fastrand::Rng::with_seed(seed),
        states: 0,
        violations: Vec::new(),
    };
    for moment in 0..=journal.now {
        explorer.explore(moment);
    }
    (explorer.states, explorer.violations)
}

struct Explorer<'a> {
    journal: &'a Journal,
    check: &'a mut Check<'a>,
    /// Durable data at the current time, and the write from which each sector originates.
    base: Vec<u8>,
    base_write: BTreeMap<usize, usize>,
    rng: fastrand::Rng,
    states: usize,
    violations: Vec<String>,
}

impl Explorer<'_> {
    fn sectors(write: &DiskWrite) -> impl Iterator<Item = usize> {
        write.offset / SECTOR..(write.offset + write.bytes.len()).div_ceil(SECTOR)
    }

    fn put(image: &mut [u8], write: &DiskWrite, sector: usize) {
        let (begin, end) = (sector * SECTOR, (sector + 1) * SECTOR);
        let begin = begin.max(write.offset);
        let end = end.min(write.offset + write.bytes.len());
        image[begin..end].copy_from_slice(&write.bytes[begin - write.offset..end - write.offset]);
    }

    fn explore(&mut self, moment: usize) {
        let writes = &self.journal.writes;
        for (number, write) in writes.iter().enumerate() {
            if write.durable != Some(moment) {
                continue;
            }
            for sector in Self::sectors(write) {
                // A later write to the sector may have become durable before.
                let newest = self.base_write.entry(sector).or_insert(number);
                if *newest <= number {
                    *newest = number;
                    Self::put(&mut self.base, write, sector);
                }
            }
        }
        // Alternatives for each sector, in the order of the writes.
        let mut open: BTreeMap<usize, Vec<Candidate>> = BTreeMap::new();
        for (number, write) in writes.iter().enumerate() {
            let is_open = write.submitted <= moment && write.durable.is_none_or(|at| at > moment);
            if !is_open {
                continue;
            }
            for sector in Self::sectors(write) {
                if self
                    .base_write
                    .get(&sector)
                    .is_some_and(|&newest| newest > number)
                {
                    continue;
                }
                let candidates = open.entry(sector).or_default();
                candidates.push(Candidate::Write(number));
                let is_record = sector * SECTOR < CONTENT_OFFSET as usize;
                if is_record && !candidates.contains(&Candidate::Garbage) {
                    candidates.insert(0, Candidate::Garbage);
                }
            }
        }
        let open: Vec<(usize, Vec<Candidate>)> = open.into_iter().collect();
        self.state(moment, &open, |_, _| None);
        if open.is_empty() {
            return;
        }
        let last = |candidates: &[Candidate]| candidates.last().copied();
        self.state(moment, &open, |_, candidates| last(candidates));
        for one in 0..open.len() {
            for candidate in 0..open[one].1.len() {
                self.state(moment, &open, |at, candidates| {
                    (at == one).then(|| candidates[candidate])
                });
            }
            self.state(moment, &open, |at, candidates| {
                last(candidates).filter(|_| at != one)
            });
        }
        for _ in 0..RANDOM_STATES {
            let mut rng = self.rng.fork();
            self.state(moment, &open, |_, candidates| {
                let at = rng.usize(..=candidates.len());
                candidates.get(at).copied()
            });
        }
    }

    /// Builds the state in which each open sector contains the choice of `choose`, or the durable data for `None`, and
    /// checks it.
    fn state(
        &mut self,
        moment: usize,
        open: &[(usize, Vec<Candidate>)],
        mut choose: impl FnMut(usize, &[Candidate]) -> Option<Candidate>,
    ) {
        self.states += 1;
        let mut image = self.base.clone();
        for (at, (sector, candidates)) in open.iter().enumerate() {
            match choose(at, candidates) {
                None => {}
                Some(Candidate::Write(number)) => {
                    Self::put(&mut image, &self.journal.writes[number], *sector);
                }
                Some(Candidate::Garbage) => {
                    self.rng
                        .fill(&mut image[sector * SECTOR..(sector + 1) * SECTOR]);
                }
            }
        }
        if let Err(why) = (self.check)(moment, &image) {
            self.violations.push(format!("at moment {moment}: {why}"));
        }
    }
}

/// Checks crash states of a session without versions.
struct Checker<'a> {
    client: &'a Client,
    states: usize,
    /// By block: the data of each write.
    contents: Vec<Vec<Vec<u8>>>,
    directory: tempfile::TempDir,
}

impl Checker<'_> {
    /// Checks that every part of a block in a sector belongs to the last write that must survive, or to a later one.
    fn check_blocks(&self, moment: usize, image: &[u8]) -> Result<(), String> {
        let size = self.client.geometry.block_size as usize;
        for (block, writes) in self.client.blocks.iter().enumerate() {
            let promised = |write: &ClientWrite| write.promised.is_some_and(|at| at <= moment);
            let oldest = writes.iter().rposition(promised).unwrap_or(0);
            let newest = writes
                .iter()
                .rposition(|write| write.begun <= moment)
                .unwrap_or(0);
            let begin = CONTENT_OFFSET as usize + block * size;
            let mut at = begin;
            let contents = &self.contents[block][oldest..=newest];
            while at < begin + size {
                let end = ((at / SECTOR + 1) * SECTOR).min(begin + size);
                let found = &image[at..end];
                if !contents
                    .iter()
                    .any(|bytes| &bytes[at - begin..end - begin] == found)
                {
                    return Err(format!(
                        "block {block}, bytes {}..{}: expected one of writes {oldest} to {newest}",
                        at - begin,
                        end - begin
                    ));
                }
                at = end;
            }
        }
        Ok(())
    }

    /// Checks that the file is valid, and contains the last acknowledged superblock or the one being written.
    fn check_record(&mut self, moment: usize, image: &[u8]) -> Result<(), String> {
        self.states += 1;
        let geometry = self.client.geometry;
        let found = check(&image[..HEADER_SIZE], image.len() as u64, geometry);
        if found != Ok(header(geometry)) {
            return Err(format!("the header: {found:?}"));
        }
        let place = |offset: u64| {
            let at = offset as usize;
            image[at..at + RECORD_SIZE].try_into().expect("its size")
        };
        let found = Places::<StoredSuperblock>::new(&RECORD_OFFSETS.map(place), |_| {}).newest();
        let records = &self.client.records;
        let oldest = records
            .iter()
            .rposition(|(_, at)| *at <= moment)
            .unwrap_or(0);
        let newest = records
            .iter()
            .rposition(|(at, _)| *at <= moment)
            .unwrap_or(0);
        let is_right = (oldest..=newest).any(|number| match (number, found) {
            (0, found) => found.is_none(),
            (number, found) => found == Some(stored(number as u64)),
        });
        if !is_right {
            return Err(format!(
                "expected record {oldest} or {newest}, found {found:?}"
            ));
        }
        if self.states.is_multiple_of(1000) {
            // Read in the same way as by a target.
            let path = self.directory.path().join("blocks");
            std::fs::write(&path, image).map_err(|error| error.to_string())?;
            let options = Options {
                io: BackingIo::Buffered,
                initialise: false,
            };
            let content = Content::open(None, geometry).expect("content");
            let file = BackingFile::open(&path, content, options).map_err(|why| why.message)?;
            if (file.identity(), file.superblock()) != (IDENTITY, found) {
                return Err("another file was opened".to_owned());
            }
        }
        Ok(())
    }
}

const BLOCKS_OF_SECTORS: Geometry = Geometry {
    block_size: 1024,
    block_count: 24,
};
/// Two blocks in a sector, and sectors shared by two blocks.
const ODD_BLOCKS: Geometry = Geometry {
    block_size: 520,
    block_count: 24,
};

#[test]
fn every_crash_state_contains_the_flushed_data() {
    let mut all = 0;
    for (geometry, units) in [
        (BLOCKS_OF_SECTORS, (1, 1)),
        (BLOCKS_OF_SECTORS, (512, 512)),
        (BLOCKS_OF_SECTORS, (512, 4096)),
        (ODD_BLOCKS, (512, 512)),
        (ODD_BLOCKS, (512, 4096)),
        (ODD_BLOCKS, (4096, 4096)),
    ] {
        let (journal, client) = session(geometry, units, Omission::Nothing, 1);
        let (states, violations) = explore(&journal, &client, 2);
        assert!(
            violations.is_empty(),
            "{geometry:?} {units:?}: {violations:?}"
        );
        assert!(states > 10_000, "only {states} states");
        println!(
            "{} blocks of {} bytes, sectors and file-system blocks of {units:?}: {states} crash states at {} moments, 0 violations",
            geometry.block_count, geometry.block_size, journal.now
        );
        all += states;
    }
    println!("{all} crash states");
}

#[test]
fn omitted_steps_are_detected() {
    for omission in [
        Omission::Sync,
        Omission::Fua,
        Omission::RecordSync,
        Omission::OnePlace,
    ] {
        let (journal, client) = session(BLOCKS_OF_SECTORS, (512, 512), omission, 1);
        let (states, violations) = explore(&journal, &client, 2);
        println!(
            "{omission:?}: {} of {states} states are wrong",
            violations.len()
        );
        assert!(!violations.is_empty(), "{omission:?} goes unnoticed");
        let is_record = violations.iter().all(|why| why.contains("record"));
        let expected = matches!(omission, Omission::RecordSync | Omission::OnePlace);
        assert_eq!(is_record, expected, "{omission:?}: {:?}", violations[0]);
    }
}
