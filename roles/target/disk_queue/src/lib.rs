//! Reads, writes and syncs of one file, from and to a memory region that devices also use.
//!
//! A [`Queue`] belongs to one thread. Operations are [pushed](Queue::push), [submitted](Queue::submit) as a batch, and
//! complete in any order ([`next`](Queue::next)). With [`Queue::io_uring`] the kernel executes them asynchronously: one
//! ring, with the file and the memory registered if the limits of the process permit it. [`Queue::blocking`] executes
//! them with `pread` and `pwrite` inside `submit`, for systems without io_uring.
//!
//! The kernel executes a sync on a separate thread, which first has to be scheduled: this adds about 10 us to an
//! `fdatasync` of 30 us. A sync without other operations in flight is therefore executed inside `submit`, as long as
//! the device is fast (`lone_sync`).
//!
//! This is a separate crate because of its `unsafe` code: addresses are passed to the kernel. They are addresses of a
//! [`MemoryRegion`], to whose bytes no Rust reference exists, and which the queue keeps mapped until the last operation
//! has completed.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::MemoryRegion;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;

/// One operation on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads from the file into the memory.
    Read(Range),
    /// Writes from the memory to the file.
    Write {
        range: Range,
        /// Completes only when the bytes, and the metadata needed to read them, are durable: `RWF_DSYNC`.
        durable: bool,
    },
    /// Makes all writes that have completed durable: `fdatasync`.
    Sync,
}

/// A range of the file, and a range of the same length of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte in the file.
    pub file_offset: u64,
    /// First byte in the memory.
    pub memory_offset: usize,
    /// Number of bytes.
    pub len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// The token passed to [`Queue::push`].
    pub token: u64,
    /// Number of bytes read or written, which may be smaller than requested; 0 for a sync.
    pub result: Result<usize, Errno>,
}

#[derive(Debug)]
pub struct Queue {
    engine: Engine,
    memory: Arc<MemoryRegion>,
    pending: Vec<(u64, Operation)>,
    completed: VecDeque<Completed>,
    in_flight: usize,
    lone_syncs: LoneSyncs,
    /// Token and start of a lone sync in flight.
    timed: Option<(u64, Instant)>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each worker")]
enum Engine {
    Ring(Ring),
    Blocking(Blocking),
}

impl Queue {
    /// Creates a queue on io_uring with up to `depth` operations in flight without allocation. It must be used on the
    /// thread that creates it.
    ///
    /// # Errors
    ///
    /// The system has no io_uring, or does not permit this process to use it (seccomp,
    /// `/proc/sys/kernel/io_uring_disabled`, a limit).
    pub fn io_uring(file: Arc<File>, memory: Arc<MemoryRegion>, depth: usize) -> io::Result<Self> {
        let ring = Ring::new(file, &memory, depth)?;
        Ok(Self::new(Engine::Ring(ring), memory, depth))
    }

    /// Creates a queue that executes its operations synchronously, in order.
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
            lone_syncs: LoneSyncs::default(),
            timed: None,
        }
    }

    /// Queues an operation for the next submission. If its range is not inside the memory, it completes with `EFAULT`.
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
        // The kernel transfers less than 2 GiB per operation.
        if is_inside && range.len <= i32::MAX as usize {
            self.pending.push((token, operation));
        } else {
            self.completed.push_back(Completed {
                token,
                result: Err(Errno::FAULT),
            });
        }
    }

    /// Returns `true` if there are operations to be submitted.
    #[inline]
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Submits the queued operations. Operations that the kernel does not accept now are submitted by the next call.
    #[inline]
    pub fn submit(&mut self) {
        if self.in_flight == 0
            && let [(token, Operation::Sync)] = self.pending[..]
            && self.sync_alone(token)
        {
            return;
        }
        match &mut self.engine {
            Engine::Ring(ring) => {
                // SAFETY: `push` has checked that ranges are inside the memory. The memory remains mapped until all
                // operations have completed: the ring waits for them when it is dropped, before the memory, and there
                // are no references to the memory that the kernel's reads and writes could violate.
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

    /// Executes the only pending operation if it is a sync and no operation is in flight, or has the sync timed.
    /// Returns `true` if it was executed.
    fn sync_alone(&mut self, token: u64) -> bool {
        let Engine::Ring(ring) = &self.engine else {
            return false;
        };
        let start = Instant::now();
        if self.lone_syncs.next() == Execution::Asynchronous {
            self.timed = Some((token, start));
            return false;
        }
        let result = ring.sync();
        self.lone_syncs.completed(start.elapsed());
        self.pending.clear();
        self.completed.push_back(Completed { token, result });
        true
    }

    /// Measures the lone sync in flight, if it has completed. Its token is not reused before.
    #[cold]
    fn measure(&mut self, token: u64, start: Instant) {
        if self
            .completed
            .iter()
            .any(|completed| completed.token == token)
        {
            self.lone_syncs.completed(start.elapsed());
            self.timed = None;
        }
    }

    /// Completes all queued operations with this error.
    pub fn fail_pending(&mut self, error: Errno) {
        for (token, _) in self.pending.drain(..) {
            let result = Err(error);
            self.completed.push_back(Completed { token, result });
        }
    }

    /// Collects completions, and returns `true` if there are any for [`next`](Self::next).
    #[inline]
    pub fn reap(&mut self) -> bool {
        if let Engine::Ring(ring) = &mut self.engine
            && self.in_flight != 0
        {
            self.in_flight -= ring.reap(&mut self.completed);
            if let Some((token, start)) = self.timed {
                self.measure(token, start);
            }
        }
        !self.completed.is_empty()
    }

    /// Next collected completion.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it has more after a `None`")]
    pub fn next(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    /// Number of submitted operations whose completions have not been collected.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Descriptor that becomes readable when an operation completes. `None` if operations are never in flight.
    #[must_use]
    pub fn readiness(&self) -> Option<BorrowedFd<'_>> {
        match &self.engine {
            Engine::Ring(ring) => Some(ring.readiness()),
            Engine::Blocking(_) => None,
        }
    }

    /// Waits until no operation is in flight.
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
        // Until then, the kernel may write to the memory.
        self.drain();
    }
}

/// Executes operations synchronously, in order.
#[derive(Debug)]
struct Blocking {
    file: Arc<File>,
}

impl Blocking {
    fn new(file: Arc<File>) -> Self {
        Self { file }
    }

    /// Executes an operation whose range is inside the memory.
    fn execute(&self, operation: Operation, memory: &MemoryRegion) -> Result<usize, Errno> {
        let vector = |range: Range| libc::iovec {
            iov_base: memory.as_ptr().wrapping_add(range.memory_offset).cast(),
            iov_len: range.len,
        };
        let fd = self.file.as_raw_fd();
        let offset = |range: Range| i64::try_from(range.file_offset).unwrap_or(i64::MAX);
        let count = match operation {
            // SAFETY: the vector refers to bytes inside the memory, which is mapped, and to which there are no
            // references.
            Operation::Read(range) => unsafe {
                libc::preadv2(fd, &vector(range), 1, offset(range), 0)
            },
            Operation::Write { range, durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                // SAFETY: as above.
                unsafe { libc::pwritev2(fd, &vector(range), 1, offset(range), flags) }
            }
            Operation::Sync => return rustix::fs::fdatasync(&self.file).map(|()| 0),
        };
        usize::try_from(count).map_err(|_| {
            let error = std::io::Error::last_os_error();
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }
}

/// Longest duration of a sync after which the next sync is executed on the calling thread.
const FAST: Duration = Duration::from_millis(1);

/// Execution of a lone sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Execution {
    /// Executed by the kernel, like other operations.
    Asynchronous,
    /// Executed on the submitting thread.
    Inline,
}

/// Selects the execution of the next lone sync, based on the duration of the last one: a device that becomes slow
/// blocks the thread only for one sync.
#[derive(Debug, Default)]
struct LoneSyncs {
    is_fast: bool,
}

impl LoneSyncs {
    /// Execution of the next lone sync. The first one is asynchronous.
    fn next(&self) -> Execution {
        if self.is_fast {
            Execution::Inline
        } else {
            Execution::Asynchronous
        }
    }

    /// Handles the completion of a lone sync that took this long.
    fn completed(&mut self, after: Duration) {
        self.is_fast = after < FAST;
    }
}

/// Maximum number of operations per system call; the ring may have more in flight.
const MOST_ENTRIES: usize = 1024;

/// Maximum number of completions in a ring. The kernel allocates memory for each further one.
const MOST_COMPLETIONS: usize = 65536;

/// `IORING_ENTER_GETEVENTS`.
const ENTER_GETEVENTS: u32 = 1;

/// A ring. Its owner must keep the memory of its operations mapped, and wait for them before dropping it.
struct Ring {
    ring: IoUring,
    file: Arc<File>,
    /// `true` if the file is registered as number 0.
    has_file: bool,
    /// `true` if the memory is registered as buffer 0.
    has_memory: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("file", &self.file)
            .field("has_file", &self.has_file)
            .field("has_memory", &self.has_memory)
            .finish_non_exhaustive()
    }
}

impl Ring {
    fn new(file: Arc<File>, memory: &MemoryRegion, depth: usize) -> io::Result<Self> {
        let entries = depth.clamp(1, MOST_ENTRIES).next_power_of_two() as u32;
        let completions = (depth * 2)
            .clamp(2 * entries as usize, MOST_COMPLETIONS)
            .next_power_of_two() as u32;
        // Completions are posted when the thread enters the kernel, without interrupting it: since Linux 6.0.
        let ring = IoUring::builder()
            .setup_cqsize(completions)
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_single_issuer()
            .build(entries)
            .or_else(|_| IoUring::builder().setup_cqsize(completions).build(entries))?;
        let submitter = ring.submitter();
        let has_file = submitter.register_files(&[file.as_raw_fd()]).is_ok();
        let vector = libc::iovec {
            iov_base: memory.as_ptr().cast(),
            iov_len: memory.len(),
        };
        // SAFETY: the memory remains mapped as long as the ring exists, by the contract of this type. Registration
        // fails if the process may not pin this amount of memory (RLIMIT_MEMLOCK); the kernel then translates the
        // addresses of each operation.
        let has_memory = unsafe { submitter.register_buffers(&[vector]) }.is_ok();
        Ok(Self {
            ring,
            file,
            has_file,
            has_memory,
        })
    }

    /// Submits operations from the front of `pending`, and returns their number.
    ///
    /// # Safety
    ///
    /// Their ranges must be inside `memory`, with which the ring was created and which must stay mapped until they
    /// have completed.
    unsafe fn submit(
        &mut self,
        pending: &mut Vec<(u64, Operation)>,
        memory: &MemoryRegion,
    ) -> usize {
        let mut taken = 0;
        while taken < pending.len() {
            let mut queue = self.ring.submission();
            while let Some(&(token, operation)) = pending.get(taken) {
                let entry = entry(
                    operation,
                    memory,
                    self.file.as_raw_fd(),
                    self.has_file,
                    self.has_memory,
                )
                .user_data(token);
                // SAFETY: by the contract of this function.
                if unsafe { queue.push(&entry) }.is_err() {
                    break;
                }
                taken += 1;
            }
            drop(queue);
            // Entries that the kernel does not accept now, because it is out of memory or waits for completions to be
            // collected, remain in the submission queue for the next call.
            if self.ring.submit().is_err() && self.ring.submission().is_full() {
                break;
            }
        }
        pending.drain(..taken);
        taken
    }

    /// Moves completions to `completed`, and returns their number.
    fn reap(&mut self, completed: &mut VecDeque<Completed>) -> usize {
        let submission = self.ring.submission();
        let (is_left, is_due) = (!submission.is_empty(), submission.taskrun());
        drop(submission);
        if is_left {
            let _ = self.ring.submit();
        }
        if is_due {
            // Makes the kernel post completions, without waiting. SAFETY: without an argument, the call accesses no
            // memory except the ring's.
            let _ = unsafe {
                self.ring
                    .submitter()
                    .enter::<()>(0, 0, ENTER_GETEVENTS, None)
            };
        }
        let mut count = 0;
        for entry in self.ring.completion() {
            count += 1;
            let result = entry.result();
            completed.push_back(Completed {
                token: entry.user_data(),
                result: usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result)),
            });
        }
        count
    }

    /// Executes a sync on the calling thread.
    fn sync(&self) -> Result<usize, Errno> {
        rustix::fs::fdatasync(&self.file).map(|()| 0)
    }

    /// Waits for a completion or a signal.
    fn wait(&mut self) {
        let _ = self.ring.submit_and_wait(1);
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor, and is borrowed while the result exists.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

fn entry(
    operation: Operation,
    memory: &MemoryRegion,
    fd: i32,
    has_file: bool,
    has_memory: bool,
) -> squeue::Entry {
    let (file, flags) = if has_file {
        (Fd(0), squeue::Flags::FIXED_FILE)
    } else {
        (Fd(fd), squeue::Flags::empty())
    };
    let entry = match operation {
        Operation::Read(range) => {
            let at = memory.as_ptr().wrapping_add(range.memory_offset);
            let (len, offset) = (range.len as u32, range.file_offset);
            if has_memory {
                opcode::ReadFixed::new(file, at, len, 0)
                    .offset(offset)
                    .build()
            } else {
                opcode::Read::new(file, at, len).offset(offset).build()
            }
        }
        Operation::Write { range, durable } => {
            let at = memory.as_ptr().wrapping_add(range.memory_offset);
            let (len, offset) = (range.len as u32, range.file_offset);
            let how = if durable { libc::RWF_DSYNC } else { 0 };
            if has_memory {
                opcode::WriteFixed::new(file, at, len, 0)
                    .offset(offset)
                    .rw_flags(how)
                    .build()
            } else {
                opcode::Write::new(file, at, len)
                    .offset(offset)
                    .rw_flags(how)
                    .build()
            }
        }
        Operation::Sync => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
    };
    entry.flags(flags)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queues() -> Vec<(Queue, Arc<File>, Arc<MemoryRegion>)> {
        let kinds: [&dyn Fn(Arc<File>, Arc<MemoryRegion>) -> Queue; 2] = [
            &|file, memory| Queue::io_uring(file, memory, 4).expect("io_uring"),
            &|file, memory| Queue::blocking(file, memory, 4),
        ];
        let queue = |kind: &dyn Fn(Arc<File>, Arc<MemoryRegion>) -> Queue| {
            let file = Arc::new(tempfile::tempfile().expect("a file"));
            let memory = MemoryRegion::new(16 * 4096).expect("memory");
            let queue = kind(Arc::clone(&file), Arc::clone(&memory));
            (queue, file, memory)
        };
        // Without io_uring, this is reported, and only the blocking queue is tested.
        let file = Arc::new(tempfile::tempfile().expect("a file"));
        let memory = MemoryRegion::new(4096).expect("memory");
        match Queue::io_uring(file, memory, 1) {
            Ok(_) => kinds.into_iter().map(queue).collect(),
            Err(error) => {
                eprintln!("no io_uring here: {error}");
                vec![queue(kinds[1])]
            }
        }
    }

    fn wait(queue: &mut Queue, count: usize) -> Vec<Completed> {
        queue.submit();
        queue.drain();
        queue.reap();
        let all: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(all.len(), count);
        all
    }

    #[test]
    fn more_operations_than_the_ring_has_entries_all_complete() {
        for (mut queue, file, memory) in queues() {
            for block in 0..16 {
                memory
                    .fill(block * 4096, 4096, block as u8 + 1)
                    .expect("inside");
                let range = Range {
                    file_offset: (15 - block as u64) * 4096,
                    memory_offset: block * 4096,
                    len: 4096,
                };
                let durable = block % 2 == 0;
                queue.push(block as u64, Operation::Write { range, durable });
            }
            let mut tokens: Vec<_> = wait(&mut queue, 16)
                .into_iter()
                .map(|completed| {
                    assert_eq!(completed.result, Ok(4096));
                    completed.token
                })
                .collect();
            tokens.sort_unstable();
            assert_eq!(tokens, (0..16).collect::<Vec<_>>());
            queue.push(7, Operation::Sync);
            let synced = Completed {
                token: 7,
                result: Ok(0),
            };
            assert_eq!(wait(&mut queue, 1), [synced]);
            assert_eq!(file.metadata().expect("a file").len(), 16 * 4096);
            let range = Range {
                file_offset: 4096,
                memory_offset: 0,
                len: 4096,
            };
            queue.push(8, Operation::Read(range));
            wait(&mut queue, 1);
            let mut byte = [0];
            memory.read(4095, &mut byte).expect("inside");
            assert_eq!(byte, [15]);
        }
    }

    #[test]
    fn failed_operations_complete_with_their_error() {
        for (mut queue, _, memory) in queues() {
            let range = Range {
                file_offset: 0,
                memory_offset: memory.len() - 1,
                len: 2,
            };
            queue.push(1, Operation::Read(range));
            assert_eq!(wait(&mut queue, 1)[0].result, Err(Errno::FAULT));
            let range = Range { len: 1, ..range };
            queue.push(2, Operation::Read(range));
            assert_eq!(wait(&mut queue, 1)[0].result, Ok(0), "the end of the file");
            queue.push(3, Operation::Read(range));
            queue.fail_pending(Errno::IO);
            assert_eq!(wait(&mut queue, 1)[0].result, Err(Errno::IO));
        }
    }

    #[test]
    fn dropping_a_queue_waits_for_its_operations() {
        for (mut queue, file, memory) in queues() {
            memory.fill(0, memory.len(), 9).expect("inside");
            for token in 0..4 {
                let range = Range {
                    file_offset: token * 4 * 4096,
                    memory_offset: token as usize * 4 * 4096,
                    len: 4 * 4096,
                };
                let durable = true;
                queue.push(token, Operation::Write { range, durable });
            }
            queue.submit();
            drop(queue);
            assert_eq!(file.metadata().expect("a file").len(), 16 * 4096);
        }
    }

    #[test]
    fn only_lone_syncs_of_a_fast_device_are_executed_inline() {
        for (mut queue, _, _) in queues() {
            let is_ring = matches!(queue.engine, Engine::Ring(_));
            queue.lone_syncs.completed(Duration::ZERO);
            queue.push(1, Operation::Sync);
            queue.submit();
            assert_eq!((queue.in_flight(), queue.has_pending()), (0, false));
            let result = Ok(0);
            assert!(queue.reap());
            assert_eq!(queue.next(), Some(Completed { token: 1, result }));

            queue.push(2, Operation::Sync);
            queue.push(3, Operation::Sync);
            queue.submit();
            assert_eq!(queue.in_flight(), if is_ring { 2 } else { 0 });
            wait(&mut queue, 2);

            queue.lone_syncs.completed(Duration::MAX);
            queue.push(4, Operation::Sync);
            queue.submit();
            assert_eq!(queue.in_flight(), usize::from(is_ring));
            assert_eq!(queue.timed.is_some(), is_ring);
            wait(&mut queue, 1);
            assert_eq!(queue.timed, None, "it was measured");
        }
    }

    #[test]
    fn only_after_a_fast_sync_is_the_next_one_inline() {
        let mut syncs = LoneSyncs::default();
        assert_eq!(syncs.next(), Execution::Asynchronous);
        for (after, expected) in [
            (FAST, Execution::Asynchronous),
            (Duration::from_micros(30), Execution::Inline),
            (Duration::from_micros(999), Execution::Inline),
            (Duration::from_secs(1), Execution::Asynchronous),
        ] {
            syncs.completed(after);
            assert_eq!(syncs.next(), expected, "{after:?}");
        }
    }
}
