//! Stalls of the machine, detected by the duration of durable writes of a suite's own.
//!
//! A role whose CPU or disk stalls for seconds must end its session with a timeout. If the suite's own writes did not
//! complete at that time, either, the timeout is not a failure of the role. Observed with Linux 6.18: when threads of
//! low priority and threads that sleep often share a CPU with the kernel worker that completes durable direct writes,
//! that worker gets no CPU time for ten seconds or more.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deployment::sandbox::Sandbox;
use rustix::fs::{Mode, OFlags};
use rustix::io::{ReadWriteFlags, pwritev2};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Time that a write takes in a stall: a gga service detaches a target after it, and sessions end after twice as long.
const STALL: Duration = Duration::from_secs(2);
/// Time between writes.
const PAUSE: Duration = Duration::from_millis(50);

/// Writes of one thread.
#[derive(Debug, Default)]
struct Writes {
    /// Start of the write that is in flight.
    current: Option<Instant>,
    /// End and duration of the last write that took [`STALL`] or longer.
    stalled: Option<(Instant, Duration)>,
    is_over: bool,
}

/// A thread on each CPU that writes until this is dropped.
#[derive(Debug)]
pub(crate) struct StallWatch {
    threads: Vec<(Arc<Mutex<Writes>>, JoinHandle<()>)>,
}

impl StallWatch {
    /// Starts the threads, each of which writes to its own file in the sandbox.
    pub(crate) fn start(sandbox: &Sandbox, cpus: &[usize]) -> io::Result<Self> {
        let path = sandbox.path("stall.blocks");
        File::create(&path)?.set_len(0)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        // A file system in memory has no direct I/O, and no disk that could stall.
        let file = rustix::fs::open(&path, flags | OFlags::DIRECT, Mode::empty())
            .or_else(|_| rustix::fs::open(&path, flags, Mode::empty()))?;
        let file = Arc::new(File::from(file));
        let threads = cpus.iter().enumerate().map(|(number, &cpu)| {
            let writes = Arc::<Mutex<Writes>>::default();
            let (file, shared) = (Arc::clone(&file), Arc::clone(&writes));
            let offset = (number * BLOCK) as u64;
            (
                writes,
                std::thread::spawn(move || write(&file, offset, cpu, &shared)),
            )
        });
        Ok(Self {
            threads: threads.collect(),
        })
    }

    /// Duration of the longest write since this time, if that was a stall.
    pub(crate) fn stall_since(&self, from: Instant) -> Option<Duration> {
        let of_thread = |(writes, _): &(Arc<Mutex<Writes>>, _)| {
            let writes = locked(writes);
            let current = writes.current.map(|start| start.elapsed());
            let last = writes.stalled.filter(|&(end, _)| end >= from);
            current.max(last.map(|(_, duration)| duration))
        };
        let longest = self.threads.iter().filter_map(of_thread).max();
        longest.filter(|&duration| duration >= STALL)
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        for (writes, _) in &self.threads {
            locked(writes).is_over = true;
        }
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn locked(writes: &Mutex<Writes>) -> MutexGuard<'_, Writes> {
    writes.lock().unwrap_or_else(PoisonError::into_inner)
}

const BLOCK: usize = 4096;

/// Direct I/O needs aligned memory.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

fn write(file: &File, offset: u64, cpu: usize, writes: &Mutex<Writes>) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // Without the affinity, the writes show stalls of the disk, but not of each CPU.
    let _ = sched_setaffinity(None, &set);
    let block = Box::new(Block([0x5a; BLOCK]));
    loop {
        let start = Instant::now();
        {
            let mut writes = locked(writes);
            if writes.is_over {
                return;
            }
            writes.current = Some(start);
        }
        // On a full disk, the roles' writes also fail, and the roles report it.
        let _ = pwritev2(
            file.as_fd(),
            &[IoSlice::new(&block.0)],
            offset,
            ReadWriteFlags::DSYNC,
        );
        let duration = start.elapsed();
        {
            let mut writes = locked(writes);
            writes.current = None;
            if duration >= STALL {
                writes.stalled = Some((Instant::now(), duration));
            }
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(writes: Writes) -> StallWatch {
        StallWatch {
            threads: vec![(Arc::new(Mutex::new(writes)), std::thread::spawn(|| {}))],
        }
    }

    #[test]
    fn a_stall_counts_from_its_end_on_and_while_it_lasts() {
        let now = Instant::now();
        let earlier = now.checked_sub(Duration::from_secs(60)).expect("an uptime");
        let ended = watch(Writes {
            stalled: Some((now, STALL * 2)),
            ..Writes::default()
        });
        assert_eq!(ended.stall_since(earlier), Some(STALL * 2));
        assert_eq!(ended.stall_since(now + STALL), None);
        let lasting = watch(Writes {
            current: Some(earlier),
            ..Writes::default()
        });
        assert!(lasting.stall_since(now).is_some_and(|it| it >= STALL));
        let short = watch(Writes {
            current: Some(now),
            stalled: None,
            is_over: false,
        });
        assert_eq!(short.stall_since(earlier), None);
    }

    #[test]
    fn the_threads_write() {
        let sandbox = Sandbox::new().expect("a sandbox");
        let cpus = deployment::allowed_cpus().expect("CPUs");
        let watch = StallWatch::start(&sandbox, &cpus).expect("a file");
        let path = sandbox.path("stall.blocks");
        let expected = (cpus.len() * BLOCK) as u64;
        while std::fs::metadata(&path).expect("the file").len() < expected {
            std::thread::sleep(PAUSE);
        }
        drop(watch);
    }
}
