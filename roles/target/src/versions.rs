//! Versions of blocks, stored separately from the blocks' places: the contents of the slots, and the time at which they
//! may be applied.
//!
//! A versioned write goes into a free slot and never to the block's place, so it is atomic, and the block's earlier
//! versions remain readable. Slots form a log: each written slot gets the next sequence number. The service announces
//! which versions are *retired*: complete and durable on all members of its set. Retired versions at the tail of the
//! log are *applied*: the newest of each block is copied to its place, the tail moves past them, and their slots are
//! free again.
//!
//! [`Log`] is the state machine, without I/O, locks or clocks; the stores and `store::apply` execute its decisions.
//! [`Versions`] is the log as shared by the workers of all sessions, and counts the reads in flight: a slot is not
//! reused, and a place not overwritten, while a read of it is in flight.
//!
//! A batch is applied in these steps. A crash in between leaves the tail unchanged, so that the next start finds all
//! versions again.
//!
//! 1. [`Log::begin_apply`] takes the batch. From now on, reads of versions before the newest one in the batch get the
//!    newest one from its slot.
//! 2. Reads of places that began before complete. The slots are synced, and copied to the places; the places are synced.
//! 3. The new tail is persisted: the slots in the batch hold no versions at the next start.
//! 4. [`Log::end_apply`]: reads get these blocks from their places.
//! 5. Reads of the slots that began before complete; then [`Log::free_batch`].

mod records;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use doca::ErrorCode;
use rustix::event::{EventfdFlags, eventfd};

pub use records::{SlotArea, SlotChecksum, parse_slot};

/// A version of a block. Versions of later writes are higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Version {
    /// Epoch of the set of targets in which the block was written.
    pub epoch: u64,
    /// Number of the write in that epoch.
    pub number: u64,
}

impl Version {
    /// Lower than every version of a block.
    pub const NONE: Self = Self {
        epoch: 0,
        number: 0,
    };
}

/// Number of slots for versions of blocks of this size; 0 if such blocks have none.
///
/// About 64 MiB and at most 4096 slots; at least 256, and 64 for huge blocks. A small storage has at most twice as many
/// slots as blocks, but at least 1024 if they fit: whenever a quarter of the slots is used, the service flushes all
/// targets.
#[must_use]
pub fn slot_count(block_size: u32, block_count: u32, slot_size: u64) -> u32 {
    /// Largest block with versions, for which 64 slots take 256 MiB.
    const LARGEST_BLOCK: u32 = 4 << 20;
    const USUAL: u64 = 64 << 20;
    const MOST: u64 = 256 << 20;
    if block_size > LARGEST_BLOCK {
        return 0;
    }
    let slot_size = slot_size.max(1);
    let usual = (USUAL / slot_size).min(4096);
    let least = (MOST / slot_size).clamp(64, 256);
    let wanted = u64::from(block_count).saturating_mul(2).max(1024);
    // The result is at most 4096.
    usual.min(wanted).max(least) as u32
}

/// Denotes that there is no slot.
const NO_SLOT: u32 = u32::MAX;

/// State of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// Taken by a write that has no sequence number yet.
    Filling,
    /// Being written; it has a sequence number.
    Writing,
    /// Being written, but its version was discarded: it is no longer in the log.
    Discarded,
    /// Contains a version.
    Live,
    /// In the log, but its write failed or was abandoned: it contains no version.
    Dead,
    /// In the batch, and the newest version of its block in the batch.
    Applying,
    /// In the batch, and no longer read.
    Superseded,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    state: State,
    /// `true` until the abandoned worker that writes it has returned: until then, it may be written in any state.
    is_held: bool,
    owner: u32,
    /// Next slot with the same hash, with a lower sequence.
    next: u32,
    sequence: u64,
    block: u64,
    version: Version,
}

impl Slot {
    const FREE: Self = Self {
        state: State::Free,
        is_held: false,
        owner: 0,
        next: NO_SLOT,
        sequence: 0,
        block: 0,
        version: Version::NONE,
    };
}

/// Reason why a write gets no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Slots become free when the batch is applied, or when writes in flight complete.
    Wait,
    /// All slots contain versions that are not retired: the service has exceeded the permitted number of writes in
    /// flight.
    Stuck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Applying,
    Draining,
}

/// A version found in a slot at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub slot: u32,
    pub sequence: u64,
    pub block: u64,
    pub version: Version,
    /// The highest version known to be retired when it was written; exclusive.
    pub retired: Version,
}

/// The durable end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Lowest sequence number of a slot that contains a version.
    pub sequence: u64,
    /// The newest version that was written.
    pub last: Version,
    /// Versions below this one are retired.
    pub retired: Version,
}

impl Default for Tail {
    fn default() -> Self {
        Self {
            sequence: 1,
            last: Version::NONE,
            retired: Version::NONE,
        }
    }
}

/// The log of versions. All memory is allocated when it is created.
#[derive(Debug)]
pub struct Log {
    slots: Box<[Slot]>,
    /// For each hash of a block, the slot with the highest sequence number. The others follow in descending order.
    heads: Box<[u32]>,
    /// Free slots, in the order in which they were freed.
    free: VecDeque<u32>,
    /// Slots with a sequence number that are not in the batch, in ascending order.
    order: VecDeque<u32>,
    batch: Vec<u32>,
    phase: Phase,
    next_sequence: u64,
    last: Version,
    /// Versions below this one are retired.
    retired: Version,
}

impl Log {
    /// Creates a log with this number of free slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self::restore(slots, Tail::default(), &[])
    }

    /// Creates the log from the valid slots found at start, including those that no longer contain a version, and the
    /// durable tail.
    #[must_use]
    pub fn restore(slots: u32, tail: Tail, found: &[Found]) -> Self {
        let count = slots as usize;
        let mut found: Vec<&Found> = found.iter().collect();
        found.sort_unstable_by_key(|it| it.sequence);
        let mut log = Self {
            slots: vec![Slot::FREE; count].into(),
            heads: vec![NO_SLOT; (count * 2).next_power_of_two()].into(),
            free: VecDeque::with_capacity(count),
            order: VecDeque::with_capacity(count),
            batch: Vec::with_capacity(count),
            phase: Phase::Idle,
            next_sequence: tail.sequence,
            last: tail.last,
            retired: tail.retired,
        };
        let mut has_held = vec![false; count];
        for it in &found {
            has_held[it.slot as usize] = true;
            log.next_sequence = log.next_sequence.max(it.sequence + 1);
        }
        // Slots that were never written first, then the oldest ones.
        log.free
            .extend((0..slots).filter(|&slot| !has_held[slot as usize]));
        for it in found {
            if it.sequence < tail.sequence {
                log.free.push_back(it.slot);
                continue;
            }
            log.last = log.last.max(it.version);
            log.retired = log.retired.max(it.retired);
            log.order.push_back(it.slot);
            log.slots[it.slot as usize] = Slot {
                state: State::Live,
                sequence: it.sequence,
                block: it.block,
                version: it.version,
                ..Slot::FREE
            };
            log.link(it.slot);
        }
        log
    }

    /// Number of slots.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The newest version that was written.
    #[must_use]
    pub fn last(&self) -> Version {
        self.last
    }

    /// The durable end of the log, once the batch is applied.
    #[must_use]
    pub fn tail(&self) -> Tail {
        let front = self.order.front();
        Tail {
            sequence: front.map_or(self.next_sequence, |&slot| self.slot(slot).sequence),
            last: self.last,
            retired: self.retired,
        }
    }

    /// Blocks with a version that is not retired, in ascending order. They include writes that have failed or were
    /// abandoned: the next start may find their versions, unless the tail has moved past them.
    #[must_use]
    pub fn unretired(&self) -> Vec<u64> {
        let slots = self.order.iter().map(|&slot| self.slot(slot));
        let unretired = slots.filter(|slot| slot.version >= self.retired);
        let mut blocks: Vec<u64> = unretired.map(|slot| slot.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Versions of this epoch with lower numbers, and all of earlier epochs, are retired. A number of 0 has no effect.
    #[inline]
    pub fn retire(&mut self, epoch: u64, number: u64) {
        let retired = Version { epoch, number };
        if number != 0 && retired > self.retired {
            self.retired = retired;
        }
    }

    /// Versions below this one are retired.
    #[must_use]
    pub fn retired(&self) -> Version {
        self.retired
    }

    /// Takes a free slot for a write of this owner.
    ///
    /// # Errors
    ///
    /// No slot is free.
    #[inline]
    pub fn allocate(&mut self, owner: u32) -> Result<u32, Full> {
        let Some(slot) = self.free.pop_front() else {
            return Err(self.full());
        };
        let it = &mut self.slots[slot as usize];
        (it.state, it.owner) = (State::Filling, owner);
        Ok(slot)
    }

    #[cold]
    fn full(&self) -> Full {
        let is_stuck = self.phase == Phase::Idle
            && self.order.front().is_some_and(|&slot| {
                let slot = self.slot(slot);
                slot.state == State::Live && slot.version >= self.retired
            });
        if is_stuck { Full::Stuck } else { Full::Wait }
    }

    /// Assigns a sequence number to the slot of a write, which is about to be written.
    #[inline]
    pub fn seal(&mut self, slot: u32, block: u64, version: Version) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let it = &mut self.slots[slot as usize];
        debug_assert_eq!(it.state, State::Filling);
        it.state = State::Writing;
        (it.sequence, it.block, it.version) = (sequence, block, version);
        self.order.push_back(slot);
        self.last = self.last.max(version);
        sequence
    }

    /// Handles the completion of the write of a sealed slot. If it was successful, its version is the block's newest
    /// from now on.
    #[inline]
    pub fn complete(&mut self, slot: u32, is_written: bool) {
        let it = &mut self.slots[slot as usize];
        match it.state {
            State::Writing if is_written => {
                it.state = State::Live;
                self.link(slot);
            }
            State::Writing => it.state = State::Dead,
            State::Discarded => self.free(slot),
            state => debug_assert!(it.is_held, "{state:?}"),
        }
    }

    /// Releases the slot of a write that was abandoned before or after the slot was sealed, and that is not in flight.
    #[cold]
    pub fn release(&mut self, slot: u32) {
        match self.slot(slot).state {
            State::Filling => self.free(slot),
            _ => self.complete(slot, false),
        }
    }

    /// The slot with the newest version of a block that is lower than `before`; `None` if this version is at the
    /// block's place.
    #[inline]
    #[must_use]
    pub fn find(&self, block: u64, before: Option<Version>) -> Option<u32> {
        let mut slot = self.heads[self.bucket(block)];
        while slot != NO_SLOT {
            let it = self.slot(slot);
            // A version that is being applied is treated as applied, because it will be at the block's place.
            let is_old = before.is_none_or(|before| it.version < before);
            if it.block == block && (is_old || it.state == State::Applying) {
                return Some(slot);
            }
            slot = it.next;
        }
        None
    }

    /// Handles the abandonment of a worker: it completes none of its writes, but may still write to their slots until
    /// it [leaves](Self::leave).
    pub fn abandon(&mut self, owner: u32) {
        for it in self.slots.iter_mut().filter(|it| it.owner == owner) {
            match it.state {
                State::Filling | State::Discarded => it.is_held = true,
                State::Writing => (it.state, it.is_held) = (State::Dead, true),
                _ => {}
            }
        }
    }

    /// Handles the return of a worker, which has no more operations in flight. Its uncompleted writes have failed.
    pub fn leave(&mut self, owner: u32) {
        for slot in 0..self.capacity() {
            let it = &mut self.slots[slot as usize];
            if it.owner != owner {
                continue;
            }
            it.is_held = false;
            match it.state {
                State::Writing => it.state = State::Dead,
                State::Filling | State::Discarded => self.free(slot),
                _ => {}
            }
        }
    }

    /// `true` if more than half of the slots are used and some can be applied.
    #[inline]
    #[must_use]
    pub fn wants_apply(&self) -> bool {
        self.free.len() * 2 < self.slots.len()
            && self.phase == Phase::Idle
            && self.is_applicable(false)
    }

    /// `true` if the oldest slot of the log can be applied.
    #[must_use]
    pub fn is_applicable(&self, all: bool) -> bool {
        self.order
            .front()
            .is_some_and(|&slot| self.may_apply(slot, all))
    }

    fn may_apply(&self, slot: u32, all: bool) -> bool {
        let it = self.slot(slot);
        match it.state {
            State::Live => all || it.version < self.retired,
            State::Dead => true,
            _ => false,
        }
    }

    /// Takes a batch of at most `most` retired slots, or of `all` slots, from the end of the log. Returns `false` if
    /// there are none, or if there is already a batch.
    pub fn begin_apply(&mut self, all: bool, most: usize) -> bool {
        if self.phase != Phase::Idle {
            return false;
        }
        while self.batch.len() < most
            && let Some(&slot) = self.order.front()
            && self.may_apply(slot, all)
        {
            self.order.pop_front();
            self.batch.push(slot);
            if self.slot(slot).state == State::Dead {
                self.slots[slot as usize].state = State::Superseded;
                continue;
            }
            if let Some(older) = self.older_in_batch(slot) {
                self.unlink(older);
                self.slots[older as usize].state = State::Superseded;
            }
            self.slots[slot as usize].state = State::Applying;
        }
        if self.batch.is_empty() {
            return false;
        }
        self.phase = Phase::Applying;
        true
    }

    /// The slot in the batch with an older version of the same block.
    fn older_in_batch(&self, slot: u32) -> Option<u32> {
        let block = self.slot(slot).block;
        let mut at = self.slot(slot).next;
        while at != NO_SLOT {
            let it = self.slot(at);
            if it.block == block && it.state == State::Applying {
                return Some(at);
            }
            at = it.next;
        }
        None
    }

    /// Versions to copy to the places of their blocks: slot, block and sequence.
    pub fn to_apply(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let batch = self.batch.iter().map(|&slot| (slot, self.slot(slot)));
        batch
            .filter(|(_, it)| it.state == State::Applying)
            .map(|(slot, it)| (slot, it.block, it.sequence))
    }

    /// Called when the batch has been written to its places, and the tail is durable.
    pub fn end_apply(&mut self) {
        debug_assert_eq!(self.phase, Phase::Applying);
        for at in 0..self.batch.len() {
            let slot = self.batch[at];
            if self.slot(slot).state == State::Applying {
                self.unlink(slot);
                self.slots[slot as usize].state = State::Superseded;
            }
        }
        self.phase = Phase::Draining;
    }

    /// Called when no read of a slot in the batch is in flight.
    pub fn free_batch(&mut self) {
        debug_assert_eq!(self.phase, Phase::Draining);
        for at in 0..self.batch.len() {
            let slot = self.batch[at];
            if self.slot(slot).is_held {
                // In use until its owner leaves.
                self.slots[slot as usize].state = State::Filling;
            } else {
                self.free(slot);
            }
        }
        self.batch.clear();
        self.phase = Phase::Idle;
    }

    /// Discards all versions: takes all slots into the batch, to be [freed](Self::free_batch) once the tail is durable.
    /// Returns `false` if there is already a batch.
    pub fn forget(&mut self) -> bool {
        if self.phase != Phase::Idle {
            return false;
        }
        while let Some(slot) = self.order.pop_front() {
            match self.slot(slot).state {
                State::Writing => self.slots[slot as usize].state = State::Discarded,
                state => {
                    if state == State::Live {
                        self.unlink(slot);
                    }
                    self.slots[slot as usize].state = State::Superseded;
                    self.batch.push(slot);
                }
            }
        }
        (self.last, self.retired) = (Version::NONE, Version::NONE);
        self.phase = Phase::Draining;
        true
    }

    fn free(&mut self, slot: u32) {
        self.slots[slot as usize] = Slot::FREE;
        self.free.push_back(slot);
    }

    #[inline]
    fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    #[inline]
    fn bucket(&self, block: u64) -> usize {
        // Fibonacci hashing: adjacent blocks get buckets far from each other.
        let hash = block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        hash as usize & (self.heads.len() - 1)
    }

    /// Inserts a slot into the list of its hash.
    #[inline]
    fn link(&mut self, slot: u32) {
        let Slot {
            block, sequence, ..
        } = *self.slot(slot);
        let bucket = self.bucket(block);
        let (mut before, mut after) = (NO_SLOT, self.heads[bucket]);
        while after != NO_SLOT && self.slot(after).sequence > sequence {
            (before, after) = (after, self.slot(after).next);
        }
        self.slots[slot as usize].next = after;
        self.set_next(before, bucket, slot);
    }

    fn unlink(&mut self, slot: u32) {
        let bucket = self.bucket(self.slot(slot).block);
        let (mut before, mut at) = (NO_SLOT, self.heads[bucket]);
        while at != slot && at != NO_SLOT {
            (before, at) = (at, self.slot(at).next);
        }
        if at == slot {
            let next = self.slot(slot).next;
            self.set_next(before, bucket, next);
            self.slots[slot as usize].next = NO_SLOT;
        }
    }

    #[inline]
    fn set_next(&mut self, before: u32, bucket: usize, next: u32) {
        match before {
            NO_SLOT => self.heads[bucket] = next,
            before => self.slots[before as usize].next = next,
        }
    }
}

/// The log, as shared by the workers of all sessions.
#[derive(Debug)]
pub struct Versions {
    shared: Mutex<Shared>,
    /// `true` from the time that a batch is wanted until the applying thread has checked.
    is_wanted: AtomicBool,
    applier: OnceLock<Thread>,
    is_stuck_reported: AtomicBool,
    slots: u32,
}

#[derive(Debug)]
struct Shared {
    log: Log,
    workers: Vec<Arc<Worker>>,
    next_owner: u32,
    /// Index of [`Worker::in_flight`] for reads that begin now.
    generation: usize,
}

/// State of a worker that is used by others: its reads in flight, and whether it waits for slots.
#[derive(Debug)]
struct Worker {
    owner: u32,
    /// Reads in flight, by the parity of the generation in which they began. Written only by the worker.
    in_flight: [AtomicU32; 2],
    /// Written while the log is locked.
    is_abandoned: AtomicBool,
    /// `true` from the time that the worker gets no slot until slots are freed. Written while the log is locked.
    is_waiting: AtomicBool,
    /// Readable after slots were freed.
    freed: Doorbell,
}

/// A read in flight of slots or places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Reading(usize);

/// A slot that is about to be written, with the contents of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    pub slot: u32,
    pub sequence: u64,
    /// Versions below this one are retired.
    pub retired: Version,
}

impl Versions {
    /// Creates a shared log.
    #[must_use]
    pub fn new(log: Log) -> Arc<Self> {
        Arc::new(Self {
            slots: log.capacity(),
            shared: Mutex::new(Shared {
                log,
                workers: Vec::new(),
                next_owner: 1,
                generation: 0,
            }),
            is_wanted: AtomicBool::new(false),
            applier: OnceLock::new(),
            is_stuck_reported: AtomicBool::new(false),
        })
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Every change of the log is complete before a panic is possible.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes `f` with the log locked.
    pub fn with<R>(&self, f: impl FnOnce(&mut Log) -> R) -> R {
        f(&mut self.lock().log)
    }

    /// Adds a worker.
    ///
    /// # Errors
    ///
    /// The operating system provides no event descriptor.
    pub fn worker(self: &Arc<Self>) -> io::Result<WorkerVersions> {
        let freed = Doorbell::new()?;
        let mut shared = self.lock();
        let owner = shared.next_owner;
        shared.next_owner += 1;
        let worker = Arc::new(Worker {
            owner,
            in_flight: [const { AtomicU32::new(0) }; 2],
            is_abandoned: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            freed,
        });
        shared.workers.push(Arc::clone(&worker));
        drop(shared);
        Ok(WorkerVersions {
            versions: Arc::clone(self),
            worker,
        })
    }

    /// A worker was abandoned: it completes none of its writes, and its reads are not waited for.
    pub fn abandon(&self, owner: u32) {
        let mut shared = self.lock();
        for worker in shared.workers.iter().filter(|it| it.owner == owner) {
            worker.is_abandoned.store(true, Ordering::Relaxed);
        }
        shared.log.abandon(owner);
    }

    /// Begins a batch ([`Log::begin_apply`]). Returns the reads that must complete before places may be overwritten.
    #[must_use]
    pub fn begin_apply(&self, all: bool, most: usize) -> Option<Reading> {
        let mut shared = self.lock();
        shared
            .log
            .begin_apply(all, most)
            .then(|| shared.next_generation())
    }

    /// Ends a batch ([`Log::end_apply`]). Returns the reads that must complete before slots may be reused.
    pub fn end_apply(&self) -> Reading {
        let mut shared = self.lock();
        shared.log.end_apply();
        shared.next_generation()
    }

    /// Discards all versions ([`Log::forget`]). Returns the reads that must complete before slots may be reused.
    #[must_use]
    pub fn forget(&self) -> Option<Reading> {
        let mut shared = self.lock();
        shared.log.forget().then(|| shared.next_generation())
    }

    /// `true` if these reads, and all that began before them, have completed.
    #[must_use]
    pub fn have_completed(&self, reads: Reading) -> bool {
        let shared = self.lock();
        shared.workers.iter().all(|worker| {
            worker.in_flight[reads.0].load(Ordering::Acquire) == 0
                || worker.is_abandoned.load(Ordering::Relaxed)
        })
    }

    /// Frees the batch ([`Log::free_batch`]), and wakes up workers with writes that wait.
    pub fn free_batch(&self) {
        let mut shared = self.lock();
        shared.log.free_batch();
        shared.wake_waiting();
    }

    /// `true` if a batch of retired versions should be applied. Otherwise, the thread set by
    /// [`set_applier`](Self::set_applier) is unparked as soon as a batch should be applied.
    #[must_use]
    pub fn wants_apply(&self) -> bool {
        // Before the log is examined: versions that become retired afterwards set it again.
        self.is_wanted.store(false, Ordering::Relaxed);
        self.lock().log.wants_apply()
    }

    /// Sets the thread to be unparked when a batch is wanted.
    pub fn set_applier(&self, thread: Thread) {
        // Fails only if a thread is already set.
        let _ = self.applier.set(thread);
    }

    /// Logs the first write that gets no slot: a faulty service can send millions.
    #[cold]
    fn report_stuck(&self) {
        if !self.is_stuck_reported.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "a version was refused, and further ones will not be logged: all {} slots hold versions that are not retired",
                self.slots
            );
        }
    }

    #[cold]
    fn want_apply(&self) {
        if !self.is_wanted.swap(true, Ordering::Relaxed)
            && let Some(thread) = self.applier.get()
        {
            thread.unpark();
        }
    }
}

impl Shared {
    /// Wakes up the workers that wait for slots, after slots were freed.
    fn wake_waiting(&self) {
        for worker in &self.workers {
            if worker.is_waiting.load(Ordering::Relaxed) {
                worker.is_waiting.store(false, Ordering::Relaxed);
                worker.freed.ring();
            }
        }
    }

    /// Begins a generation of reads, and returns the previous one.
    fn next_generation(&mut self) -> Reading {
        let before = self.generation;
        self.generation = 1 - before;
        Reading(before)
    }
}

/// The log, as used by one worker. Dropped when the worker has no operations in flight.
#[derive(Debug)]
pub struct WorkerVersions {
    versions: Arc<Versions>,
    worker: Arc<Worker>,
}

impl WorkerVersions {
    /// Number of the worker.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.worker.owner
    }

    /// Begins a read of a block: returns the slot that contains the newest version below `before`, or `None` if this
    /// version is at its place.
    #[inline]
    pub fn find(&self, block: u64, before: Option<Version>) -> (Option<u32>, Reading) {
        let shared = self.versions.lock();
        let slot = shared.log.find(block, before);
        let generation = shared.generation;
        self.worker.in_flight[generation].fetch_add(1, Ordering::Relaxed);
        (slot, Reading(generation))
    }

    /// As [`find`](Self::find), of the newest version, and of the blocks that follow it up to `end`, exclusive: returns
    /// the number of blocks that are contiguous in the slot (one block) or at their places.
    #[inline]
    pub fn find_range(&self, block: u64, end: u64) -> (Option<u32>, u64, Reading) {
        let shared = self.versions.lock();
        let slot = shared.log.find(block, None);
        let last = if slot.is_some() {
            block + 1
        } else {
            let mut rest = block + 1..end;
            rest.find(|&block| shared.log.find(block, None).is_some())
                .unwrap_or(end.max(block + 1))
        };
        let generation = shared.generation;
        self.worker.in_flight[generation].fetch_add(1, Ordering::Relaxed);
        (slot, last - block, Reading(generation))
    }

    /// Records that a read has completed.
    #[inline]
    pub fn read(&self, Reading(generation): Reading) {
        self.worker.in_flight[generation].fetch_sub(1, Ordering::Release);
    }

    /// Retires versions of this epoch below `retired`, unless it is 0.
    #[inline]
    pub fn retire(&self, epoch: u64, retired: u64) {
        let mut shared = self.versions.lock();
        shared.log.retire(epoch, retired);
        self.unlock(shared);
    }

    /// Takes a slot for a write, and retires versions of this epoch below `retired`, unless it is 0.
    ///
    /// # Errors
    ///
    /// No slot is free. After [`Full::Wait`], the worker [waits](Self::is_waiting) until slots may be free.
    #[inline]
    pub fn allocate(&self, epoch: u64, retired: u64) -> Result<u32, Full> {
        let mut shared = self.versions.lock();
        shared.log.retire(epoch, retired);
        let slot = shared.log.allocate(self.worker.owner);
        if slot == Err(Full::Stuck) {
            self.versions.report_stuck();
        }
        if slot == Err(Full::Wait) {
            self.worker.freed.clear();
            self.worker.is_waiting.store(true, Ordering::Relaxed);
        }
        self.unlock(shared);
        slot
    }

    /// Assigns a sequence number to a slot, directly before it is written.
    ///
    /// # Errors
    ///
    /// The worker was abandoned.
    #[inline]
    pub fn seal(&self, slot: u32, block: u64, version: Version) -> Result<Sealed, ErrorCode> {
        self.if_attached(|log| Sealed {
            slot,
            sequence: log.seal(slot, block, version),
            retired: log.retired(),
        })
    }

    /// Records that a sealed slot has been written, or that its write has failed.
    #[inline]
    pub fn complete(&self, slot: u32, is_written: bool) {
        self.versions.lock().log.complete(slot, is_written);
    }

    /// [Seals](Self::seal) and [completes](Self::complete) a slot whose block has already been written.
    ///
    /// # Errors
    ///
    /// The worker was abandoned.
    #[inline]
    pub fn publish(&self, slot: u32, block: u64, version: Version) -> Result<(), ErrorCode> {
        self.if_attached(|log| {
            log.seal(slot, block, version);
            log.complete(slot, true);
        })
    }

    /// Returns the slot of a write that was abandoned and is not in flight.
    pub fn release(&self, slot: u32) {
        let mut shared = self.versions.lock();
        shared.log.release(slot);
        shared.wake_waiting();
    }

    /// `true` if no slot has been freed since the worker got none.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.worker.is_waiting.load(Ordering::Relaxed)
    }

    /// Descriptor that becomes readable when the worker no longer [waits](Self::is_waiting).
    #[must_use]
    pub fn freed(&self) -> BorrowedFd<'_> {
        self.worker.freed.as_fd()
    }

    #[inline]
    fn if_attached<R>(&self, f: impl FnOnce(&mut Log) -> R) -> Result<R, ErrorCode> {
        let mut shared = self.versions.lock();
        if self.worker.is_abandoned.load(Ordering::Relaxed) {
            return Err(ErrorCode::SHUTDOWN);
        }
        Ok(f(&mut shared.log))
    }

    #[inline]
    fn unlock(&self, shared: MutexGuard<'_, Shared>) {
        let wants_apply = shared.log.wants_apply();
        drop(shared);
        if wants_apply {
            self.versions.want_apply();
        }
    }
}

impl Drop for WorkerVersions {
    fn drop(&mut self) {
        let mut shared = self.versions.lock();
        shared.log.leave(self.worker.owner);
        shared.workers.retain(|it| !Arc::ptr_eq(it, &self.worker));
    }
}

/// An event descriptor.
#[derive(Debug)]
struct Doorbell(OwnedFd);

impl Doorbell {
    fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    fn ring(&self) {
        // Fails only if it is already readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        // Fails only if it is not readable.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    const SLOTS: u32 = 8;
    const BLOCKS: u64 = 3;

    #[test]
    fn number_of_slots_follows_the_size_of_blocks() {
        for (block_size, block_count, slot_size, expected) in [
            (2112, 1 << 20, 4096, 4096),
            (65600, 1 << 20, 69632, 963),
            (1 << 20, 1 << 20, (1 << 20) + 4096, 255),
            (4 << 20, 1 << 20, (4 << 20) + 4096, 64),
            ((4 << 20) + 1, 1 << 20, 8 << 20, 0),
            (4096, 128, 8192, 1024),
            (4096, 1000, 8192, 2000),
            (1, 1, 4096, 1024),
        ] {
            let count = slot_count(block_size, block_count, slot_size);
            assert_eq!(count, expected, "{block_count} blocks of {block_size}");
        }
    }

    /// An event of the log.
    #[derive(Debug, Clone, Copy)]
    enum Happens {
        Allocate {
            block: u64,
        },
        /// Seals one of the writes in flight.
        Seal(usize),
        Complete(usize, bool),
        Release(usize),
        /// Retires this number of the oldest writes that are not retired.
        Retire(u64),
        BeginApply(bool),
        EndApply,
        FreeBatch,
        Forget,
        /// The worker is abandoned and replaced by another one.
        Abandon,
        /// The worker, and all abandoned ones, return.
        Leave,
        Restart,
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            8 => (0..BLOCKS).prop_map(|block| Happens::Allocate { block }),
            8 => (0..9_usize).prop_map(Happens::Seal),
            8 => (0..9_usize, prop::bool::weighted(0.9)).prop_map(|(at, ok)| Happens::Complete(at, ok)),
            1 => (0..9_usize).prop_map(Happens::Release),
            4 => (0..6_u64).prop_map(Happens::Retire),
            3 => prop::bool::weighted(0.1).prop_map(Happens::BeginApply),
            4 => Just(Happens::EndApply),
            4 => Just(Happens::FreeBatch),
            1 => Just(Happens::Forget),
            1 => Just(Happens::Abandon),
            1 => Just(Happens::Leave),
            1 => Just(Happens::Restart),
        ]
    }

    #[derive(Debug, Clone, Copy)]
    struct Flying {
        slot: u32,
        block: u64,
        number: Option<u64>,
    }

    /// A log, the contents of its slots, and its expected state.
    struct World {
        log: Log,
        /// Contents of the slots on the disk.
        disk: BTreeMap<u32, Found>,
        tail: Tail,
        owner: u32,
        flying: Vec<Flying>,
        /// Writes of abandoned workers, which may still write to their slots.
        lost: Vec<Flying>,
        number: u64,
        retired: u64,
        /// Numbers of the versions of each block, ascending, starting with the version at its place.
        versions: BTreeMap<u64, Vec<u64>>,
        places: BTreeMap<u64, u64>,
        /// Blocks and sequences that the batch copies to their places.
        batch: Vec<(u64, u64)>,
        is_applying: bool,
    }

    impl World {
        fn new() -> Self {
            Self {
                log: Log::new(SLOTS),
                disk: BTreeMap::new(),
                tail: Tail::default(),
                owner: 1,
                flying: Vec::new(),
                lost: Vec::new(),
                number: 0,
                retired: 1,
                versions: BTreeMap::new(),
                places: BTreeMap::new(),
                batch: Vec::new(),
                is_applying: false,
            }
        }

        fn version(number: u64) -> Version {
            Version { epoch: 1, number }
        }

        fn handle(&mut self, happens: Happens) {
            match happens {
                Happens::Allocate { block } => {
                    let is_busy = self.flying.iter().any(|it| it.block == block);
                    if is_busy {
                        return;
                    }
                    match self.log.allocate(self.owner) {
                        Ok(slot) => self.flying.push(Flying {
                            slot,
                            block,
                            number: None,
                        }),
                        Err(Full::Stuck) => {
                            let retired = self.log.retired();
                            let mut versions = self.versions.values().flatten();
                            assert!(versions.any(|&it| Self::version(it) >= retired));
                        }
                        Err(Full::Wait) => {}
                    }
                }
                Happens::Seal(at) => {
                    let Some(it) = self.flying.get_mut(at).filter(|it| it.number.is_none()) else {
                        return;
                    };
                    self.number += 1;
                    it.number = Some(self.number);
                    let version = Self::version(self.number);
                    let sequence = self.log.seal(it.slot, it.block, version);
                    self.disk.insert(
                        it.slot,
                        Found {
                            slot: it.slot,
                            sequence,
                            block: it.block,
                            version,
                            retired: self.log.retired(),
                        },
                    );
                }
                Happens::Complete(at, is_written) => {
                    let Some(&Flying {
                        slot,
                        block,
                        number: Some(number),
                    }) = self.flying.get(at)
                    else {
                        return;
                    };
                    self.flying.remove(at);
                    if is_written {
                        self.versions.entry(block).or_default().push(number);
                    } else {
                        self.disk.remove(&slot);
                    }
                    self.log.complete(slot, is_written);
                }
                Happens::Release(at) => {
                    if at < self.flying.len() {
                        let Flying { slot, number, .. } = self.flying.remove(at);
                        if number.is_some() {
                            self.disk.remove(&slot);
                        }
                        self.log.release(slot);
                    }
                }
                Happens::Retire(count) => {
                    let oldest = self.flying.iter().filter_map(|it| it.number).min();
                    let most = oldest.unwrap_or(self.number + 1);
                    self.retired = (self.retired + count).min(most).max(self.retired);
                    self.log.retire(1, self.retired);
                }
                Happens::BeginApply(all) => {
                    if self.log.begin_apply(all, 5) {
                        self.is_applying = true;
                        let batch = self.log.to_apply();
                        self.batch = batch
                            .map(|(slot, block, _)| (block, self.disk[&slot].version.number))
                            .collect();
                        for &(block, newest) in &self.batch {
                            assert!(all || newest < self.retired);
                            // Older versions are indistinguishable from the version that will be at the place.
                            let versions = self.versions.get_mut(&block).expect("versions");
                            versions.retain(|&number| number > newest);
                            self.places.insert(block, newest);
                        }
                    }
                }
                Happens::EndApply => {
                    if std::mem::take(&mut self.is_applying) {
                        self.tail = self.log.tail();
                        self.batch.clear();
                        self.log.end_apply();
                    }
                }
                Happens::FreeBatch => {
                    if self.log.phase == Phase::Draining {
                        self.log.free_batch();
                    }
                }
                Happens::Forget => {
                    if self.log.forget() {
                        self.tail = self.log.tail();
                        self.versions.clear();
                        // Their versions are ignored when they complete.
                        self.lost.append(&mut self.flying);
                        self.log.abandon(self.owner);
                        self.owner += 1;
                    }
                }
                Happens::Abandon => {
                    self.log.abandon(self.owner);
                    self.lost.append(&mut self.flying);
                    // These writes fail here. Their effect on the disk is relevant only for a later start.
                    for it in &self.lost {
                        if it.number.is_some() {
                            self.disk.remove(&it.slot);
                        }
                    }
                    self.owner += 1;
                }
                Happens::Leave => {
                    for owner in 1..=self.owner {
                        self.log.leave(owner);
                    }
                    for it in self.flying.drain(..) {
                        if it.number.is_some() {
                            self.disk.remove(&it.slot);
                        }
                    }
                    self.lost.clear();
                    self.owner += 1;
                }
                Happens::Restart => {
                    self.handle(Happens::Leave);
                    self.tail.last = self.tail.last.max(self.log.last());
                    let found: Vec<Found> = self.disk.values().copied().collect();
                    self.log = Log::restore(SLOTS, self.tail, &found);
                    self.log.retire(1, self.retired);
                    // A batch that was not applied is in the log again.
                    self.is_applying = false;
                    for it in &found {
                        if it.sequence >= self.tail.sequence {
                            let versions = self.versions.entry(it.block).or_default();
                            versions.push(it.version.number);
                        }
                    }
                    for versions in self.versions.values_mut() {
                        versions.sort_unstable();
                        versions.dedup();
                    }
                    self.batch.clear();
                }
            }
            self.check();
        }

        fn check(&self) {
            for block in 0..BLOCKS {
                let versions = self.versions.get(&block).map_or(&[][..], Vec::as_slice);
                let place = self.places.get(&block).copied().unwrap_or(0);
                for before in (1..=self.number + 1).map(Some).chain([None]) {
                    let expected = versions
                        .iter()
                        .rev()
                        .find(|&&number| before.is_none_or(|before| number < before));
                    let found = self
                        .log
                        .find(block, before.map(Self::version))
                        .map(|slot| self.disk[&slot].version.number);
                    match (expected, found) {
                        (Some(&expected), found) => {
                            assert_eq!(found, Some(expected), "{block} {before:?}");
                        }
                        // Read from the slot until the batch is applied.
                        (None, Some(found)) => assert_eq!(found, place, "{block} {before:?}"),
                        (None, None) => assert!(self.batch.iter().all(|it| it.0 != block)),
                    }
                }
            }
            let unretired = |(&block, numbers): (&u64, &Vec<u64>)| {
                let newest = numbers.last().copied().unwrap_or(0);
                (newest >= self.retired).then_some(block)
            };
            let log = &self.log;
            let mut unretired: BTreeSet<u64> = self.versions.iter().filter_map(unretired).collect();
            let retired = log.retired();
            let others = log.order.iter().map(|&slot| log.slot(slot));
            unretired.extend(
                others
                    .filter(|it| it.state != State::Live && it.version >= retired)
                    .map(|it| it.block),
            );
            if retired == Self::version(self.retired) {
                assert_eq!(Vec::from_iter(unretired), log.unretired());
            }
            // Each slot is in exactly one place.
            let mut slots: Vec<u32> = log.free.iter().chain(&log.order).copied().collect();
            slots.extend(&log.batch);
            let others = (0..SLOTS)
                .filter(|&slot| matches!(log.slot(slot).state, State::Filling | State::Discarded));
            slots.extend(others);
            slots.sort_unstable();
            assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn versions_are_found_as_in_a_map(all in prop::collection::vec(happens(), 0..80)) {
            let mut world = World::new();
            for happens in all {
                world.handle(happens);
            }
        }
    }

    #[test]
    fn each_worker_that_waits_for_slots_is_woken_once_there_are_some() {
        let version = |number| Version { epoch: 1, number };
        let versions = Versions::new(Log::new(2));
        let workers = [(); 3].map(|()| versions.worker().expect("a worker"));
        let is_rung = |worker: &WorkerVersions| {
            let mut fd = [PollFd::from_borrowed_fd(worker.freed(), PollFlags::IN)];
            poll(&mut fd, Some(&Timespec::default())).expect("polled") != 0
        };
        let slots = [1, 2].map(|number| {
            let slot = workers[0].allocate(1, 0).expect("a slot");
            workers[0]
                .publish(slot, number, version(number))
                .expect("attached");
            slot
        });
        assert_eq!(workers[0].allocate(1, 3), Err(Full::Wait));
        assert_eq!(workers[1].allocate(1, 0), Err(Full::Wait));
        let waiting = |workers: &[WorkerVersions]| {
            let each = workers.iter();
            each.map(|it| (it.is_waiting(), is_rung(it)))
                .collect::<Vec<_>>()
        };
        let (waits, woken) = ((true, false), (false, true));
        assert_eq!(waiting(&workers), [waits, waits, (false, false)]);
        let reads = versions.begin_apply(false, 2).expect("a batch");
        assert!(versions.have_completed(reads));
        assert!(versions.have_completed(versions.end_apply()));
        versions.free_batch();
        assert_eq!(waiting(&workers), [woken, woken, (false, false)]);
        // The slot of an abandoned write is also reused.
        let again = slots.map(|_| workers[1].allocate(1, 0).expect("a slot"));
        assert_eq!(workers[2].allocate(1, 0), Err(Full::Wait));
        assert_eq!(waiting(&workers)[2], waits);
        workers[1].release(again[0]);
        assert_eq!(waiting(&workers)[2], woken);
        assert!(workers[2].allocate(1, 0).is_ok());
    }

    #[test]
    fn reads_that_began_before_are_waited_for_unless_their_worker_is_abandoned() {
        let versions = Versions::new(Log::new(4));
        let worker = || versions.worker().expect("a worker");
        let (one, other) = (worker(), worker());
        let slot = one.allocate(1, 0).expect("a slot");
        one.publish(
            slot,
            5,
            Version {
                epoch: 1,
                number: 1,
            },
        )
        .expect("attached");
        other.retire(1, 2);
        let (found, early) = one.find(5, None);
        assert_eq!(found, Some(slot));
        let reads = versions.begin_apply(false, 4).expect("a batch");
        let (_, late) = other.find(5, None);
        assert!(!versions.have_completed(reads));
        one.read(early);
        assert!(
            versions.have_completed(reads),
            "the late one does not count"
        );
        let reads = versions.end_apply();
        assert_eq!(one.find(5, None).0, None);
        assert!(
            !versions.have_completed(reads),
            "the late one reads the slot"
        );
        versions.abandon(other.owner());
        assert!(versions.have_completed(reads));
        versions.free_batch();
        other.read(late);
        let slot = other.allocate(1, 0).expect("a slot");
        assert_eq!(
            other.publish(
                slot,
                5,
                Version {
                    epoch: 1,
                    number: 2
                }
            ),
            Err(ErrorCode::SHUTDOWN)
        );
        drop(other);
        assert_eq!(one.find(5, None).0, None);
    }
}
