//! Crash states of a session with versions: after any power failure, each block has its newest durable version, or a
//! later one, completely; and skipping versions that are not retired leads to the newest retired version.

use super::*;
use crate::store::{Apply as _, FileApplier, FileLayout, FileVersions, Progress};
use crate::versions::{Log, Tail, Versions, parse_slot};
use wire::backing::{TAIL_OFFSETS, VersionTail};

const EPOCH: u64 = 7;
const WRITES: u64 = 60;

/// A client's write of a version of a block.
#[derive(Debug)]
struct Write {
    block: usize,
    begun: usize,
    completed: Option<usize>,
    promised: Option<usize>,
}

/// State known to the service of a session. Its writes are numbered from 1.
struct Service {
    geometry: Geometry,
    slots: SlotArea,
    writes: Vec<Write>,
    /// Contents of each block before its first write.
    zeros: Vec<u8>,
    /// The data of each write.
    contents: Vec<Vec<u8>>,
    /// Times from which versions below a number are retired, in ascending order.
    retired: Vec<(usize, u64)>,
}

impl Service {
    /// The data of a write; 0 for the data before the first write.
    fn content(&self, number: usize) -> &[u8] {
        match number.checked_sub(1) {
            Some(at) => &self.contents[at],
            None => &self.zeros,
        }
    }

    /// Lowest number that is not retired at a point in time.
    fn retired_at(&self, moment: usize) -> u64 {
        let at = self.retired.partition_point(|(since, _)| *since <= moment);
        at.checked_sub(1).map_or(0, |at| self.retired[at].1)
    }

    /// Retires all versions that are complete and durable.
    fn retire(&mut self, now: usize) -> u64 {
        let is_done = |write: &Write| write.completed.is_some() && write.promised.is_some();
        let number = self.writes.iter().take_while(|it| is_done(it)).count() as u64 + 1;
        if self.retired.last().is_none_or(|(_, last)| *last < number) {
            self.retired.push((now, number));
        }
        number
    }

    fn unretired(&self) -> usize {
        let number = self.retired.last().map_or(1, |(_, number)| *number);
        self.writes.len() + 1 - number as usize
    }
}

#[derive(Debug, Clone, Copy)]
enum Doing {
    Write { number: u64, durable: bool },
    Flush { begun: usize },
    Read { block: usize },
}

/// Runs a session, and returns the disk's events and the service's state.
fn session(
    geometry: Geometry,
    (sector, fs_block): (u64, u64),
    (versions, buffer): (u32, usize),
    omission: Omission,
    seed: u64,
) -> (Journal, Service) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let area = SlotArea {
        count: versions,
        ..SlotArea::new(geometry, CONTENT_OFFSET)
    };
    let length = area.end().expect("small") as usize;
    let mut image = vec![0; length];
    image[..HEADER_SIZE].copy_from_slice(&emit(FileHeader {
        slots: area,
        ..header(geometry)
    }));
    let journal = Rc::new(RefCell::new(Journal {
        initial: image.clone(),
        image,
        writes: Vec::new(),
        now: 0,
        omission,
    }));
    let recorder = Recorder(Rc::clone(&journal));
    let layout = Layout {
        buffer,
        ..Layout::new(CONTENT_OFFSET, sector, fs_block, geometry.block_size, SLOTS)
    };
    let queue = |memory: &Arc<MemoryRegion>, seed, ignores_syncs| Queue {
        ignores_syncs,
        recorder: recorder.clone(),
        memory: Arc::clone(memory),
        pending: Vec::new(),
        in_flight: Vec::new(),
        completed: VecDeque::new(),
        rng: fastrand::Rng::with_seed(seed),
    };
    let memory = MemoryRegion::new(layout.buffer * SLOTS).expect("memory");
    let health = Arc::new(Health::new("the recorder"));
    let versions = Versions::new(Log::new(area.count));
    let mut store = FileStore::new(
        queue(&memory, seed + 1, false),
        layout,
        SLOTS,
        Arc::default(),
        Arc::new(WrittenBlocks::new(length as u64, sector, fs_block)),
        Arc::clone(&health),
        Some(FileVersions {
            versions: versions.worker().expect("a worker"),
            slots: area,
            block_size: geometry.block_size,
            memory: Arc::clone(&memory),
        }),
    );
    let file_layout = FileLayout {
        content_offset: CONTENT_OFFSET,
        block_size: geometry.block_size,
        sector,
        fs_block,
        slots: area,
    };
    type Applier = FileApplier<Queue, Recorder>;
    let batch_memory =
        MemoryRegion::new(Applier::memory_size(file_layout)).expect("memory of the applier");
    let ignores_syncs = omission == Omission::ApplySync;
    let mut applier = Applier::new(
        Arc::clone(&versions),
        file_layout,
        (queue(&batch_memory, seed + 2, ignores_syncs), batch_memory),
        (recorder.clone(), Places::default()),
        health,
    );

    let size = geometry.block_size as usize;
    let mut service = Service {
        geometry,
        slots: area,
        writes: Vec::new(),
        zeros: vec![0; size],
        contents: Vec::new(),
        retired: Vec::new(),
    };
    let mut slots: [Option<Doing>; SLOTS] = [None; SLOTS];
    let mut steps: Vec<(usize, Step)> = Vec::new();
    let mut read = vec![vec![0; size]; SLOTS];
    loop {
        let is_over = service.writes.len() as u64 == WRITES;
        let idle = slots.iter().position(Option::is_none);
        if let Some(slot) = idle.filter(|_| !is_over && rng.bool()) {
            let now = journal.borrow_mut().tick();
            let retired = service.retire(now);
            let block = rng.usize(..geometry.block_count as usize);
            // Corresponds to the service's stripe locks.
            let is_busy = slots.iter().flatten().any(|doing| match *doing {
                Doing::Write { number, .. } => service.writes[number as usize - 1].block == block,
                Doing::Read { block: it } => it == block,
                Doing::Flush { .. } => false,
            });
            let mut io = Io {
                operation: Operation::Flush,
                storage_offset: (block * size) as u64,
                requester_offset: 0,
                size: geometry.block_size,
                version: Version {
                    epoch: EPOCH,
                    number: 0,
                },
                retired,
            };
            let doing = match rng.u8(..10) {
                0 => Some(Doing::Flush { begun: now }),
                1 if !is_busy => {
                    io.operation = Operation::Read;
                    Some(Doing::Read { block })
                }
                2.. if !is_busy && service.unretired() < area.count as usize / 2 => {
                    let durable = rng.u8(..4) == 0;
                    service.writes.push(Write {
                        block,
                        begun: now,
                        completed: None,
                        promised: None,
                    });
                    let number = service.writes.len() as u64;
                    service.contents.push(content(block, number as usize, size));
                    io.operation = Operation::WriteVersion { durable };
                    io.version.number = number;
                    Some(Doing::Write { number, durable })
                }
                _ => None,
            };
            if let Some(doing) = doing {
                slots[slot] = Some(doing);
                steps.push((slot, store.begin(slot, io)));
            }
        }
        if rng.bool() {
            let _: Progress = applier.step(false).expect("applied");
        }
        store.poll();
        while let Some(step) = store.next() {
            steps.push(step);
        }
        while let Some((slot, step)) = steps.pop() {
            match (step, slots[slot]) {
                (Step::Pending, _) => {}
                (Step::Transfer(extent), Some(Doing::Write { number, .. })) => {
                    assert!(!extent.to_requester);
                    let bytes = service.content(number as usize);
                    let from = extent.requester_offset as usize;
                    let piece = &bytes[from..from + extent.len];
                    memory
                        .write(extent.local_offset as usize, piece)
                        .expect("inside");
                    steps.push((slot, store.transferred(slot)));
                }
                (Step::Transfer(extent), Some(Doing::Read { .. })) => {
                    let from = extent.requester_offset as usize;
                    let piece = &mut read[slot][from..from + extent.len];
                    memory
                        .read(extent.local_offset as usize, piece)
                        .expect("inside");
                    steps.push((slot, store.transferred(slot)));
                }
                (Step::Complete(code), Some(doing)) => {
                    assert_eq!(code, ErrorCode::SUCCESS, "{doing:?}");
                    slots[slot] = None;
                    let now = journal.borrow_mut().tick();
                    match doing {
                        Doing::Write { number, durable } => {
                            let write = &mut service.writes[number as usize - 1];
                            write.completed = Some(now);
                            write.promised = durable.then_some(now);
                        }
                        Doing::Flush { begun } => {
                            for write in &mut service.writes {
                                let was_before = write.completed.is_some_and(|at| at < begun);
                                if was_before && write.promised.is_none() {
                                    write.promised = Some(now);
                                }
                            }
                        }
                        Doing::Read { block } => {
                            let newest = service.writes.iter().rposition(|it| it.block == block);
                            let number = newest.map_or(0, |at| at + 1);
                            assert!(read[slot] == service.content(number), "read of {number}");
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
    while applier.step(false).expect("applied") != Progress::Idle {}
    drop((store, applier, recorder));
    let journal = Rc::into_inner(journal).expect("the recorders are gone");
    (journal.into_inner(), service)
}

/// The log, as restored at a start.
fn restored(image: &[u8], slots: SlotArea, block_size: usize) -> Log {
    let place = |offset: u64| {
        let at = offset as usize;
        image[at..at + VersionTail::SIZE]
            .try_into()
            .expect("its size")
    };
    let places = Places::<Tail>::new(&TAIL_OFFSETS.map(place), |_| {});
    let tail = places.newest().unwrap_or_default();
    let found: Vec<_> = (0..slots.count)
        .filter_map(|slot| {
            let at = slots.offset_of(slot) as usize;
            parse_slot(slot, &image[at..at + slots.slot_size as usize], block_size)
        })
        .collect();
    Log::restore(slots.count, tail, &found)
}

impl Service {
    /// Checks the versions that a start with these disk contents finds.
    fn check(&self, moment: usize, image: &[u8]) -> Result<(), String> {
        let size = self.geometry.block_size as usize;
        let log = restored(image, self.slots, size);
        let retired = self.retired_at(moment);
        let unretired = log.unretired();
        let read = |block: usize, before: Option<u64>| {
            let before = before.map(|number| Version {
                epoch: EPOCH,
                number,
            });
            let slot = log.find(block as u64, before);
            let at = match slot {
                Some(slot) => self.slots.offset_of(slot),
                None => CONTENT_OFFSET + (block * size) as u64,
            };
            &image[at as usize..at as usize + size]
        };
        for block in 0..self.geometry.block_count as usize {
            let mut numbers = vec![0];
            let of_block = self
                .writes
                .iter()
                .zip(1..)
                .filter(|(it, _)| it.block == block);
            numbers.extend(of_block.map(|(_, number)| number));
            let write = |number: usize| number.checked_sub(1).map(|at| &self.writes[at]);
            let oldest = numbers
                .iter()
                .rposition(|&number| {
                    write(number).is_none_or(|it| it.promised.is_some_and(|at| at <= moment))
                })
                .unwrap_or(0);
            let newest = numbers
                .iter()
                .rposition(|&number| write(number).is_none_or(|it| it.begun <= moment))
                .unwrap_or(0);
            let bytes = read(block, None);
            let found = (oldest..=newest)
                .map(|at| numbers[at])
                .find(|&number| bytes == self.content(number));
            let Some(found) = found else {
                return Err(format!(
                    "block {block}: expected one of versions {:?}",
                    &numbers[oldest..=newest]
                ));
            };
            if found as u64 >= retired.max(1) && !unretired.contains(&(block as u64)) {
                return Err(format!(
                    "block {block}: version {found} is not retired, and not reported"
                ));
            }
            let newest_retired = numbers
                .iter()
                .rev()
                .find(|&&it| (it as u64) < retired.max(1));
            let newest_retired = newest_retired.copied().unwrap_or(0);
            if read(block, Some(retired.max(1))) != self.content(newest_retired) {
                return Err(format!(
                    "block {block}: expected the retired version {newest_retired} before {retired}"
                ));
            }
        }
        Ok(())
    }
}

const SECTORS: Geometry = Geometry {
    block_size: 1024,
    block_count: 8,
};
const ODD: Geometry = Geometry {
    block_size: 2112,
    block_count: 6,
};
/// A slot is written in two pieces, the second of which contains only the record.
const LARGE: Geometry = Geometry {
    block_size: 8192,
    block_count: 4,
};

#[test]
fn every_crash_state_has_the_durable_and_the_retired_versions() {
    let mut all = 0;
    for (geometry, units, sizes) in [
        (SECTORS, (512, 512), (16, 16384)),
        (SECTORS, (512, 512), (6, 16384)),
        (ODD, (512, 4096), (16, 16384)),
        (LARGE, (512, 4096), (16, 8192)),
    ] {
        let (journal, service) = session(geometry, units, sizes, Omission::Nothing, 1);
        let mut check = |moment, image: &[u8]| service.check(moment, image);
        let (states, violations) = explore_with(&journal, 2, &mut check);
        assert!(
            violations.is_empty(),
            "{geometry:?} {units:?}: {} of {states}: {:?}",
            violations.len(),
            &violations[..violations.len().min(3)]
        );
        assert!(service.retired.len() > 5, "{}", service.retired.len());
        println!(
            "{} blocks of {} bytes, units {units:?}: {states} crash states at {} moments, {} retirements",
            geometry.block_count,
            geometry.block_size,
            journal.now,
            service.retired.len()
        );
        all += states;
    }
    println!("{all} crash states");
}

#[test]
fn omitted_steps_of_versions_are_detected() {
    for omission in [
        Omission::Sync,
        Omission::Fua,
        Omission::RecordSync,
        Omission::ApplySync,
    ] {
        let found = (2..20).find_map(|seed| {
            let (journal, service) = session(SECTORS, (512, 512), (6, 16384), omission, seed);
            let mut check = |moment, image: &[u8]| service.check(moment, image);
            let (states, violations) = explore_with(&journal, 2, &mut check);
            println!(
                "{omission:?}, seed {seed}: {} of {states} states are wrong",
                violations.len()
            );
            violations.into_iter().next()
        });
        assert!(found.is_some(), "{omission:?} goes unnoticed");
    }
}
