//! A pipeline of three processes: requests pass from an initiator through a service to a target, which copies a
//! block, and results return the same way.
//!
//! It has the structure of a zero-copy read, reduced to the cost of shared memory: four hops of one cache line, one
//! memcpy from the target's memory to the initiator's, and a yield of the CPU by each idle process.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::sched_yield;
use serde::{Deserialize, Serialize};

/// Offset of the rings in bytes: after a page of flags.
const RINGS: usize = 4096;
/// Offset of the initiator's blocks in bytes.
const BLOCKS: usize = RINGS + 4 * SIZE;
/// Maximum of the latency histogram: a minute.
const LONGEST_NS: u64 = 60_000_000_000;
/// Number of polls of an empty ring before the CPU is yielded.
const LOOKS: u32 = 64;
/// Time limit for the other stages to start.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A process of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Sends requests, and measures.
    Initiator,
    /// Forwards in both directions.
    Service,
    /// Copies blocks and sends results.
    Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// I/Os in flight, at most 256.
    pub transactions: usize,
    /// Size of an I/O in bytes.
    pub block_size: usize,
    /// Number of the target's blocks; I/Os visit them in order, repeatedly.
    pub blocks: usize,
    /// Total number of I/Os.
    pub operations: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds from the first request to the last result.
    pub seconds: f64,
    /// I/Os per second.
    pub rate: f64,
    /// Median latency in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the latency in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile of the latency in nanoseconds.
    pub p99_9_ns: u64,
}

/// Shared memory of one run. Processes can open it by its path as long as this value exists.
pub struct Pipeline {
    arena: Arena,
}

impl Pipeline {
    /// Creates the memory for this load.
    ///
    /// # Errors
    ///
    /// The load is invalid, or there is not enough memory.
    pub fn create(load: Load) -> io::Result<Self> {
        if load.transactions == 0 || load.transactions > SLOTS / 2 {
            return Err(io::Error::other(format!(
                "expected 1 to {} transactions, got {}",
                SLOTS / 2,
                load.transactions
            )));
        }
        let arena = Arena::create(BLOCKS + load.transactions * load.block_size)?;
        Ok(Self { arena })
    }

    /// Path of the shared memory, for [`run`] in the three processes.
    pub fn path(&self) -> PathBuf {
        self.arena.path()
    }
}

/// Runs one process of the pipeline. The initiator returns its measurements.
///
/// # Errors
///
/// The memory cannot be opened, or the other two processes do not start in time.
pub fn run(stage: Stage, path: &Path, load: Load) -> io::Result<Option<Measured>> {
    let arena = Arena::open(path)?;
    if arena.len() != BLOCKS + load.transactions * load.block_size {
        return Err(io::Error::other(
            "expected memory that was made for this load",
        ));
    }
    let flags = Flags::of(&arena);
    let ring = |number| End::new(&arena, RINGS + number * SIZE);
    match stage {
        Stage::Initiator => {
            flags.meet()?;
            let measured = ask(ring(0), ring(3), load);
            flags.stop.store(1, Ordering::Release);
            measured.map(Some)
        }
        Stage::Service => {
            let (mut requests_in, mut requests_out) = (ring(0), ring(1));
            let (mut results_in, mut results_out) = (ring(2), ring(3));
            flags.meet()?;
            flags.until_stopped(|| {
                let mut moved = 0;
                while let Some(message) = requests_in.pop() {
                    requests_out.push(message);
                    moved += 1;
                }
                while let Some(message) = results_in.pop() {
                    results_out.push(message);
                    moved += 1;
                }
                moved
            });
            Ok(None)
        }
        Stage::Target => {
            let (mut requests, mut results) = (ring(1), ring(2));
            let storage = vec![0x5a_u8; load.blocks * load.block_size];
            flags.meet()?;
            flags.until_stopped(|| {
                let mut moved = 0;
                while let Some(message) = requests.pop() {
                    let [_, slot, block, ..] = message;
                    let from = &storage[block as usize * load.block_size..][..load.block_size];
                    let to = BLOCKS + slot as usize * load.block_size;
                    assert!(to + load.block_size <= arena.len());
                    // SAFETY: the destination is within the arena, and no other stage accesses this slot before its result is sent.
                    unsafe {
                        arena
                            .at(to)
                            .copy_from_nonoverlapping(from.as_ptr(), load.block_size);
                    }
                    results.push(message);
                    moved += 1;
                }
                moved
            });
            Ok(None)
        }
    }
}

fn ask(mut requests: End<'_>, mut results: End<'_>, load: Load) -> io::Result<Measured> {
    let mut latencies =
        Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3).map_err(io::Error::other)?;
    let started = Instant::now();
    let request = |number: u64, slot: u64| -> [u64; WORDS] {
        let sent = started.elapsed().as_nanos() as u64;
        [sent, slot, number % load.blocks as u64, 0, 0, 0, 0]
    };
    let (mut sent, mut done) = (0, 0);
    while sent < load.operations.min(load.transactions as u64) {
        requests.push(request(sent, sent));
        sent += 1;
    }
    let mut idle = Idle::default();
    while done < load.operations {
        let mut moved = 0;
        while let Some([then, slot, ..]) = results.pop() {
            let now = started.elapsed().as_nanos() as u64;
            latencies.saturating_record(now - then);
            done += 1;
            moved += 1;
            if sent < load.operations {
                requests.push([now, slot, sent % load.blocks as u64, 0, 0, 0, 0]);
                sent += 1;
            }
        }
        idle.after(moved);
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(Measured {
        seconds,
        rate: load.operations as f64 / seconds,
        p50_ns: latencies.value_at_quantile(0.5),
        p99_ns: latencies.value_at_quantile(0.99),
        p99_9_ns: latencies.value_at_quantile(0.999),
    })
}

/// Flags in the page before the rings.
struct Flags<'a> {
    here: &'a AtomicU64,
    stop: &'a AtomicU64,
}

impl<'a> Flags<'a> {
    fn of(arena: &'a Arena) -> Self {
        let word = |offset| {
            // SAFETY: aligned, within the first page, and an atomic, which may be shared.
            unsafe { &*arena.at(offset).cast::<AtomicU64>() }
        };
        Self {
            here: word(0),
            stop: word(64),
        }
    }

    /// Waits until the other two processes have started.
    fn meet(&self) -> io::Result<()> {
        self.here.fetch_add(1, Ordering::AcqRel);
        let deadline = Instant::now() + TIMEOUT;
        while self.here.load(Ordering::Acquire) < 3 {
            if Instant::now() > deadline {
                return Err(io::Error::other(format!(
                    "expected three processes within {TIMEOUT:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn until_stopped(&self, mut step: impl FnMut() -> usize) {
        let mut idle = Idle::default();
        while self.stop.load(Ordering::Acquire) == 0 {
            idle.after(step());
        }
    }
}

/// Yields the CPU when there is no work.
#[derive(Default)]
struct Idle(u32);

impl Idle {
    fn after(&mut self, moved: usize) {
        if moved > 0 {
            self.0 = 0;
        } else if self.0 < LOOKS {
            self.0 += 1;
            std::hint::spin_loop();
        } else {
            sched_yield();
        }
    }
}

// A ring of one-cache-line messages with one sender, one receiver and no credits.

/// Number of slots. Fewer messages are in flight, so the sender need not check for space.
pub(crate) const SLOTS: usize = 512;
/// Size of a ring in bytes.
pub(crate) const SIZE: usize = SLOTS * size_of::<Slot>();
/// Words in a message; the eighth word of the cache line marks the message as present.
pub(crate) const WORDS: usize = 7;

#[repr(C, align(64))]
struct Slot {
    words: [AtomicU64; WORDS],
    /// Number of the pass over the ring in which the message was written, starting at 1.
    round: AtomicU64,
}

/// One end of a ring.
pub(crate) struct End<'a> {
    slots: &'a [Slot; SLOTS],
    next: u64,
}

impl<'a> End<'a> {
    /// Creates an end of the ring at `offset`.
    pub(crate) fn new(arena: &'a Arena, offset: usize) -> Self {
        assert!(offset.is_multiple_of(64) && offset + SIZE <= arena.len());
        // SAFETY: within the arena and aligned; other processes access it as atomics only.
        let slots = unsafe { &*arena.at(offset).cast::<[Slot; SLOTS]>() };
        Self { slots, next: 0 }
    }

    /// Sends a message. At most `SLOTS - 1` messages may be in the ring.
    pub(crate) fn push(&mut self, message: [u64; WORDS]) {
        let slot = &self.slots[self.next as usize % SLOTS];
        for (word, value) in slot.words.iter().zip(message) {
            word.store(value, Ordering::Relaxed);
        }
        slot.round
            .store(self.next / SLOTS as u64 + 1, Ordering::Release);
        self.next += 1;
    }

    /// Receives the next message, if there is one.
    pub(crate) fn pop(&mut self) -> Option<[u64; WORDS]> {
        let slot = &self.slots[self.next as usize % SLOTS];
        if slot.round.load(Ordering::Acquire) != self.next / SLOTS as u64 + 1 {
            return None;
        }
        self.next += 1;
        Some(std::array::from_fn(|word| {
            slot.words[word].load(Ordering::Relaxed)
        }))
    }
}

// Shared memory of the processes.

/// Zeroed, page-aligned memory that processes share.
pub(crate) struct Arena {
    start: NonNull<u8>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: plain memory; all access goes through raw pointers, whose users justify it.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Creates an arena of `len` bytes.
    pub(crate) fn create(len: usize) -> io::Result<Self> {
        let file = memfd_create("yardstick", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        Self::map(file, len)
    }

    /// Opens another process's arena at its [`path`](Arena::path).
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Self::map(file.into(), len)
    }

    /// Path at which other processes of the same user can open the memory, as long as this value exists.
    pub(crate) fn path(&self) -> PathBuf {
        let (pid, file) = (std::process::id(), self.file.as_fd().as_raw_fd());
        format!("/proc/{pid}/fd/{file}").into()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Pointer to the byte at `offset`.
    ///
    /// # Panics
    ///
    /// If `offset` is out of range.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "expected an offset below {}", self.len);
        // SAFETY: within the mapping, as checked above.
        unsafe { self.start.as_ptr().add(offset) }
    }

    fn map(file: OwnedFd, len: usize) -> io::Result<Self> {
        // Populates all pages, so that there are no page faults during a measurement.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                &file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { start, len, file })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: unmaps the whole mapping, which is no longer used: pointers into it do not outlive the arena.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_copied_and_every_io_counted() {
        let load = Load {
            transactions: 8,
            block_size: 4096,
            blocks: 16,
            operations: 5000,
        };
        let pipeline = Pipeline::create(load).expect("memory");
        let path = pipeline.path();
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| run(Stage::Service, &path, load).expect("a service"));
            scope.spawn(|| run(Stage::Target, &path, load).expect("a target"));
            run(Stage::Initiator, &path, load).expect("an initiator")
        })
        .expect("a measurement");
        assert!(measured.rate > 0.0 && measured.p50_ns > 100 && measured.p50_ns <= measured.p99_ns);
        // SAFETY: all threads have exited.
        let last = unsafe { pipeline.arena.at(BLOCKS + 8 * 4096 - 1).read() };
        assert_eq!(last, 0x5a);
    }

    #[test]
    fn impossible_loads_are_refused() {
        let load = Load {
            transactions: 257,
            block_size: 1,
            blocks: 1,
            operations: 1,
        };
        assert!(Pipeline::create(load).is_err());
    }

    #[test]
    fn messages_arrive_in_order_across_wraps() {
        let arena = Arena::create(SIZE).expect("memory");
        let (mut sender, mut receiver) = (End::new(&arena, 0), End::new(&arena, 0));
        for round in 0..SLOTS as u64 * 3 {
            assert_eq!(receiver.pop(), None);
            sender.push([round, 1, 2, 3, 4, 5, 6]);
            sender.push([round, 6, 5, 4, 3, 2, 1]);
            assert_eq!(receiver.pop(), Some([round, 1, 2, 3, 4, 5, 6]));
            assert_eq!(receiver.pop(), Some([round, 6, 5, 4, 3, 2, 1]));
        }
    }

    #[test]
    fn two_mappings_are_one_memory() {
        let one = Arena::create(8192).expect("memory");
        let other = Arena::open(&one.path()).expect("the same");
        assert_eq!(other.len(), 8192);
        // SAFETY: both mappings exist and are not accessed otherwise.
        unsafe {
            one.at(5000).write_volatile(17);
            assert_eq!(other.at(5000).read_volatile(), 17);
        }
    }
}
