//! A pipeline of three processes: requests pass from an initiator through a service to a target, which copies a
//! block, and results return the same way.
//!
//! It has the structure of a zero-copy read, reduced to the cost of shared memory: four hops of one cache line, one
//! memcpy from the target's memory to the initiator's, and a yield of the CPU by each idle process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::thread::sched_yield;
use serde::{Deserialize, Serialize};

use crate::arena::Arena;
use crate::bare_ring::{End, SIZE, SLOTS, WORDS};

/// Offset of the rings in bytes: after a page of flags.
const RINGS: usize = 4096;
/// Offset of the initiator's blocks in bytes.
const BLOCKS: usize = RINGS + 4 * SIZE;
/// Maximum of the latency histogram: a minute.
const LONGEST_NS: u64 = 60_000_000_000;
/// Polls of an empty ring before the CPU is yielded.
const LOOKS: u32 = 64;
/// Time limit for the other stages to start.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One of the three processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Sends requests, and measures.
    Initiator,
    /// Forwards in both directions.
    Service,
    /// Copies blocks and sends results.
    Target,
}

/// Parameters of a run.
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

/// Results of a run.
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

/// Shared memory of one run. Processes can open it at its path as long as it exists.
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
}
