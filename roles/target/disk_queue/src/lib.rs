//! Reads, writes and syncs of one file, from and to a memory region that devices use as well.
//!
//! A [`Queue`] belongs to one thread. Operations are [pushed](Queue::push), [submitted](Queue::submit) together, and complete in any order
//! ([`next`](Queue::next)). With [`Queue::io_uring`] the kernel does them meanwhile: one ring, the file and the memory registered with it where
//! the limits of the process allow that. [`Queue::blocking`] does them with `pread` and `pwrite` inside of `submit`, for systems without io_uring.
//!
//! The crate is apart from its user because this is where `unsafe` is: the kernel gets addresses. They are those of a [`MemoryRegion`], to
//! whose bytes no Rust reference exists, which the queue keeps mapped, and which it does not let go before the last operation has completed.

mod blocking;
mod ring;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use doca::MemoryRegion;
use rustix::io::Errno;

use blocking::Blocking;
use ring::Ring;

/// One operation on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads from the file into the memory.
    Read(Range),
    /// Writes from the memory to the file.
    Write {
        /// The bytes.
        range: Range,
        /// Completes only when the bytes are durable, with what is needed to read them: `RWF_DSYNC`.
        durable: bool,
    },
    /// Makes all writes that have completed durable: `fdatasync`.
    Sync,
}

/// Bytes of the file, and as many of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte in the file.
    pub file_offset: u64,
    /// First byte in the memory.
    pub memory_offset: usize,
    /// Number of bytes.
    pub len: usize,
}

/// A completed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// The number that the operation was pushed with.
    pub token: u64,
    /// Bytes that were read or written, which may be fewer than asked for; 0 for a sync.
    pub result: Result<usize, Errno>,
}

/// A queue of operations.
#[derive(Debug)]
pub struct Queue {
    engine: Engine,
    memory: Arc<MemoryRegion>,
    pending: Vec<(u64, Operation)>,
    completed: VecDeque<Completed>,
    in_flight: usize,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each worker")]
enum Engine {
    Ring(Ring),
    Blocking(Blocking),
}

impl Queue {
    /// A queue whose operations are done by the kernel, `depth` of them at a time without allocations. It is used on the thread that makes it.
    ///
    /// # Errors
    ///
    /// The system has no io_uring, or does not let this process use it (seccomp, `/proc/sys/kernel/io_uring_disabled`, a limit).
    pub fn io_uring(file: Arc<File>, memory: Arc<MemoryRegion>, depth: usize) -> io::Result<Self> {
        let ring = Ring::new(file, &memory, depth)?;
        Ok(Self::new(Engine::Ring(ring), memory, depth))
    }

    /// A queue that does its operations itself, one after the other.
    #[must_use]
    pub fn blocking(file: Arc<File>, memory: Arc<MemoryRegion>, depth: usize) -> Self {
        Self::new(Engine::Blocking(Blocking::new(file)), memory, depth)
    }

    fn new(engine: Engine, memory: Arc<MemoryRegion>, depth: usize) -> Self {
        Self {
            engine,
            memory,
            pending: Vec::with_capacity(depth),
            completed: VecDeque::with_capacity(depth),
            in_flight: 0,
        }
    }

    /// Adds an operation to those that are submitted next. One whose range is not inside the memory completes with `EFAULT`.
    #[inline]
    pub fn push(&mut self, token: u64, operation: Operation) {
        let range = match operation {
            Operation::Read(range) | Operation::Write { range, .. } => range,
            Operation::Sync => Range {
                file_offset: 0,
                memory_offset: 0,
                len: 0,
            },
        };
        let end = range.memory_offset.checked_add(range.len);
        let is_inside = end.is_some_and(|end| end <= self.memory.len());
        // The largest length that the kernel transfers at once is less than 2 GiB.
        if is_inside && range.len <= i32::MAX as usize {
            self.pending.push((token, operation));
        } else {
            self.completed.push_back(Completed {
                token,
                result: Err(Errno::FAULT),
            });
        }
    }

    /// Returns `true` if operations wait to be submitted.
    #[inline]
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Submits what was pushed. What the kernel does not take now is submitted by the next call.
    #[inline]
    pub fn submit(&mut self) {
        match &mut self.engine {
            Engine::Ring(ring) => {
                // SAFETY: `push` has checked that ranges are inside the memory. It stays mapped until all operations have completed: the ring
                // waits for them when it is dropped, before the memory, and the memory has no references that the kernel's reads and writes could contradict.
                self.in_flight += unsafe { ring.submit(&mut self.pending, &self.memory) };
            }
            Engine::Blocking(blocking) => {
                for (token, operation) in self.pending.drain(..) {
                    let result = blocking.execute(operation, &self.memory);
                    self.completed.push_back(Completed { token, result });
                }
            }
        }
    }

    /// Completes what was pushed and not yet submitted with this error.
    pub fn fail_pending(&mut self, error: Errno) {
        for (token, _) in self.pending.drain(..) {
            let result = Err(error);
            self.completed.push_back(Completed { token, result });
        }
    }

    /// Collects completions, and returns whether there are any for [`next`](Self::next).
    #[inline]
    pub fn reap(&mut self) -> bool {
        if let Engine::Ring(ring) = &mut self.engine
            && self.in_flight != 0
        {
            self.in_flight -= ring.reap(&mut self.completed);
        }
        !self.completed.is_empty()
    }

    /// The next of the completions that were collected.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it has more after a `None`")]
    pub fn next(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    /// Operations that were submitted and have not been collected.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The descriptor that can be read when an operation in flight has completed. `None` when none ever is in flight.
    #[must_use]
    pub fn readiness(&self) -> Option<BorrowedFd<'_>> {
        match &self.engine {
            Engine::Ring(ring) => Some(ring.readiness()),
            Engine::Blocking(_) => None,
        }
    }

    /// Waits until nothing is in flight.
    pub fn drain(&mut self) {
        while self.in_flight != 0 {
            self.reap();
            if let Engine::Ring(ring) = &mut self.engine
                && self.in_flight != 0
            {
                ring.wait();
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The kernel may still write to the memory.
        self.drain();
    }
}

#[cfg(test)]
mod tests;
