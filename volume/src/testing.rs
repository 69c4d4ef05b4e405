//! A block device in memory, for tests of front ends without a storage.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use doca::ErrorCode;
use rustix::event::{EventfdFlags, eventfd};

use crate::block::BlockQueue;
use crate::engine::{IoError, Operation};
use crate::queue::{Completion, Io};
use crate::unflushed::WriteLosses;

/// Initial value of the bytes of a buffer, so that data that was never read can be recognised.
const UNWRITTEN: u8 = 0xa5;

/// A disk in memory that behaves as [`Operation`] specifies. Clones share its contents, and so do its queues.
#[derive(Debug, Clone)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    /// Byte range on which I/Os fail.
    bad: Range<u64>,
    is_held: bool,
    is_closed: bool,
    flushes: u64,
    in_flight: usize,
    losses: WriteLosses,
}

/// Limits and delay of a [`MemoryQueue`].
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Maximum number of I/Os in flight.
    pub depth: usize,
    /// Number of buffers.
    pub buffers: usize,
    /// Size of a buffer, and so maximum size of a read or a write, in bytes.
    pub largest_transfer: u32,
    /// Calls of [`poll`](BlockQueue::poll) after which an I/O completes.
    pub delay: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            depth: 256,
            buffers: 256,
            largest_transfer: 256 << 10,
            delay: 0,
        }
    }
}

impl MemoryDisk {
    /// Creates a disk with these contents.
    #[must_use]
    pub fn new(content: Vec<u8>) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                bytes: content,
                bad: 0..0,
                is_held: false,
                is_closed: false,
                flushes: 0,
                in_flight: 0,
                losses: WriteLosses::default(),
            })),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copy of the contents.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// Replaces the contents from offset 0 on.
    pub fn fill(&self, bytes: &[u8]) {
        self.state().bytes[..bytes.len()].copy_from_slice(bytes);
    }

    /// Makes later I/Os that overlap these bytes fail, including flushes if the range is the whole disk. With an empty
    /// range, all I/Os succeed.
    pub fn fail(&self, bad: Range<u64>) {
        self.state().bad = bad;
    }

    /// Keeps I/Os in flight, or lets them complete.
    pub fn hold(&self, is_held: bool) {
        self.state().is_held = is_held;
    }

    /// Counts a loss of acknowledged writes: the next flush of each queue fails with [`IoError::LostWrites`]. The
    /// contents do not change.
    pub fn lose(&self) {
        self.state().losses.count += 1;
    }

    /// Completes I/Os with [`IoError::Closed`] from now on.
    pub fn close(&self) {
        self.state().is_closed = true;
    }

    /// Number of flushes, and of writes with FUA.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.state().flushes
    }

    /// Number of I/Os in flight, in all queues.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    /// Creates a queue.
    ///
    /// # Errors
    /// The process or the system has too many open files.
    pub fn queue(&self, settings: Settings) -> std::io::Result<MemoryQueue> {
        Ok(MemoryQueue {
            disk: self.clone(),
            settings,
            free_buffers: Arc::new(AtomicUsize::new(settings.buffers)),
            pending: VecDeque::with_capacity(settings.depth),
            told: 0,
            never: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }
}

impl State {
    fn execute(&mut self, io: &mut Io<MemoryBuffer>, told: &mut u64) -> Result<(), IoError> {
        if self.is_closed {
            return Err(IoError::Closed);
        }
        let failed = IoError::Failed {
            code: ErrorCode::IO_FAILED.0,
        };
        let size = self.bytes.len() as u64;
        let (begin, end) = (io.offset, io.offset.saturating_add(u64::from(io.len)));
        if io.operation == Operation::Flush {
            if self.bad.start == 0 && self.bad.end >= size.max(1) {
                return Err(failed);
            }
            self.flushes += 1;
            let count = self.losses.count;
            if std::mem::replace(told, count) != count {
                self.losses.reported = count;
                return Err(IoError::LostWrites);
            }
            return Ok(());
        }
        if end > size {
            return Err(IoError::OutOfRange {
                offset: io.offset,
                len: io.len,
                size,
            });
        }
        if begin < self.bad.end && end > self.bad.start {
            return Err(failed);
        }
        let bytes = &mut self.bytes[begin as usize..end as usize];
        let len = bytes.len();
        let actual = io.buffer.as_ref().map_or(0, |buffer| buffer.len());
        if io.operation.has_buffer() && actual < len {
            return Err(IoError::Buffer {
                expected: io.len,
                actual: actual as u32,
            });
        }
        match (io.operation, &mut io.buffer) {
            (Operation::Read, Some(buffer)) => buffer[..len].copy_from_slice(bytes),
            (Operation::Write { .. }, Some(buffer)) => bytes.copy_from_slice(&buffer[..len]),
            (Operation::WriteZeroes { .. } | Operation::Discard, _) => bytes.fill(0),
            _ => {}
        }
        let is_durable = matches!(
            io.operation,
            Operation::Write { fua: true } | Operation::WriteZeroes { fua: true }
        );
        self.flushes += u64::from(is_durable);
        Ok(())
    }
}

/// A queue of a [`MemoryDisk`]. I/Os that are due in the same poll complete in reverse order of their submission.
#[derive(Debug)]
pub struct MemoryQueue {
    disk: MemoryDisk,
    settings: Settings,
    free_buffers: Arc<AtomicUsize>,
    /// I/Os, each with the number of polls before it is due.
    pending: VecDeque<(u32, Io<MemoryBuffer>)>,
    /// Number of losses that were reported by a flush of the queue.
    told: u64,
    /// Never readable, because a queue with I/Os in flight has to be polled.
    never: OwnedFd,
}

impl BlockQueue for MemoryQueue {
    type Buffer = MemoryBuffer;

    /// # Panics
    /// `len` exceeds the largest transfer: a queue of a volume would never have such a buffer.
    fn buffer(&mut self, len: usize) -> Option<MemoryBuffer> {
        let most = self.settings.largest_transfer;
        assert!(
            len <= most as usize,
            "expected a buffer of at most {most} bytes, got {len}"
        );
        let taken = self
            .free_buffers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(1)
            });
        taken.ok().map(|_| MemoryBuffer {
            bytes: vec![UNWRITTEN; len],
            free: Arc::clone(&self.free_buffers),
        })
    }

    fn submit(&mut self, io: Io<MemoryBuffer>) -> Result<(), Io<MemoryBuffer>> {
        if self.pending.len() == self.settings.depth {
            return Err(io);
        }
        self.pending.push_back((self.settings.delay, io));
        self.disk.state().in_flight += 1;
        Ok(())
    }

    fn poll(&mut self, done: &mut dyn FnMut(Completion<MemoryBuffer>)) -> usize {
        if self.pending.is_empty() {
            return 0;
        }
        let mut completions = Vec::new();
        {
            let mut state = self.disk.state();
            if state.is_held && !state.is_closed {
                return 0;
            }
            for at in (0..self.pending.len()).rev() {
                let delay = &mut self.pending[at].0;
                if *delay > 0 && !state.is_closed {
                    *delay -= 1;
                } else if let Some((_, mut io)) = self.pending.remove(at) {
                    state.in_flight -= 1;
                    completions.push(Completion {
                        tag: io.tag,
                        result: state.execute(&mut io, &mut self.told),
                        buffer: io.buffer,
                        losses: state.losses.count,
                    });
                }
            }
        }
        let count = completions.len();
        completions.into_iter().for_each(done);
        count
    }

    fn losses(&self) -> WriteLosses {
        self.disk.state().losses
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn arm(&mut self) -> bool {
        self.pending.is_empty()
    }

    fn disarm(&mut self) {}
}

impl Drop for MemoryQueue {
    fn drop(&mut self) {
        self.disk.state().in_flight -= self.pending.len();
    }
}

/// A buffer of a [`MemoryQueue`].
#[derive(Debug)]
pub struct MemoryBuffer {
    bytes: Vec<u8>,
    free: Arc<AtomicUsize>,
}

impl Deref for MemoryBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for MemoryBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for MemoryBuffer {
    fn drop(&mut self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;

    const SIZE: usize = 4096;

    fn io(
        tag: u64,
        operation: Operation,
        offset: u64,
        len: u32,
        buffer: Option<MemoryBuffer>,
    ) -> Io<MemoryBuffer> {
        Io {
            tag,
            operation,
            offset,
            len,
            buffer,
        }
    }

    fn poll(queue: &mut MemoryQueue) -> Vec<(u64, Result<(), IoError>)> {
        let mut done = Vec::new();
        queue.poll(&mut |completion| done.push((completion.tag, completion.result)));
        done
    }

    #[test]
    fn discarded_and_zeroed_bytes_read_as_zeros() {
        let disk = MemoryDisk::new(vec![7; SIZE]);
        let mut queue = disk.queue(Settings::default()).expect("a descriptor");
        let zeroes = Operation::WriteZeroes { fua: true };
        queue
            .submit(io(1, Operation::Discard, 512, 512, None))
            .expect("space");
        queue
            .submit(io(2, zeroes, 2048, 1024, None))
            .expect("space");
        assert_eq!(poll(&mut queue), [(2, Ok(())), (1, Ok(()))]);
        let mut expected = vec![7; SIZE];
        expected[512..1024].fill(0);
        expected[2048..3072].fill(0);
        assert_eq!(disk.content(), expected);
        assert_eq!(disk.flushes(), 1);
        let buffer = queue.buffer(1024);
        queue
            .submit(io(3, Operation::Read, 0, 1024, buffer))
            .expect("space");
        queue.poll(&mut |completion| {
            let bytes = completion.buffer.expect("that of the read");
            assert_eq!(&*bytes, &expected[..1024]);
        });
    }

    #[test]
    fn depth_buffers_and_delay_are_respected() {
        let disk = MemoryDisk::new(vec![0; SIZE]);
        let mut queue = disk
            .queue(Settings {
                depth: 2,
                buffers: 1,
                delay: 1,
                ..Settings::default()
            })
            .expect("a descriptor");
        let buffer = queue.buffer(512);
        assert!(buffer.as_ref().is_some_and(|it| **it == [UNWRITTEN; 512]));
        assert!(queue.buffer(512).is_none());
        drop(buffer);
        assert!(queue.buffer(512).is_some());
        for tag in [1, 2] {
            let flush = io(tag, Operation::Flush, 0, 0, None);
            queue.submit(flush).expect("space");
        }
        assert!(queue.submit(io(3, Operation::Flush, 0, 0, None)).is_err());
        assert!(!queue.arm());
        assert_eq!(poll(&mut queue), []);
        assert_eq!(disk.in_flight(), 2);
        assert_eq!(poll(&mut queue), [(2, Ok(())), (1, Ok(()))]);
        assert_eq!(disk.in_flight(), 0);
        assert!(queue.arm());
        queue
            .submit(io(4, Operation::Flush, 0, 0, None))
            .expect("space");
        drop(queue);
        assert_eq!(disk.in_flight(), 0);
    }

    #[test]
    fn buffer_over_the_largest_transfer_is_a_defect_of_the_test() {
        let settings = Settings {
            largest_transfer: 4096,
            ..Settings::default()
        };
        let queue = MemoryDisk::new(Vec::new()).queue(settings);
        let mut queue = queue.expect("a descriptor");
        assert_eq!(queue.buffer(4096).map(|it| it.len()), Some(4096));
        let longer = std::panic::catch_unwind(AssertUnwindSafe(|| queue.buffer(4097)));
        assert!(longer.is_err());
    }

    #[test]
    fn flush_of_each_queue_fails_once_after_a_loss() {
        let disk = MemoryDisk::new(vec![0; SIZE]);
        let queue = || disk.queue(Settings::default()).expect("a descriptor");
        let (mut one, mut other) = (queue(), queue());
        let flush = |queue: &mut MemoryQueue| {
            let flush = io(1, Operation::Flush, 0, 0, None);
            queue.submit(flush).expect("space");
            let mut results = Vec::new();
            queue.poll(&mut |completion| results.push((completion.result, completion.losses)));
            results
        };
        let losses = |count, reported| WriteLosses { count, reported };
        assert_eq!(flush(&mut one), [(Ok(()), 0)]);
        disk.lose();
        assert_eq!(one.losses(), losses(1, 0));
        assert_eq!(flush(&mut one), [(Err(IoError::LostWrites), 1)]);
        assert_eq!(flush(&mut one), [(Ok(()), 1)]);
        assert_eq!(other.losses(), losses(1, 1));
        assert_eq!(flush(&mut other), [(Err(IoError::LostWrites), 1)]);
        assert_eq!(flush(&mut other), [(Ok(()), 1)]);
    }

    #[test]
    fn held_failing_and_closed_disks() {
        let failed = Err(IoError::Failed {
            code: ErrorCode::IO_FAILED.0,
        });
        let disk = MemoryDisk::new(vec![1; SIZE]);
        let mut queue = disk.queue(Settings::default()).expect("a descriptor");
        let run = |queue: &mut MemoryQueue, operation, offset, len| {
            let buffer = queue.buffer(len as usize);
            queue
                .submit(io(1, operation, offset, len, buffer))
                .expect("space");
            poll(queue)
        };
        disk.hold(true);
        assert_eq!(run(&mut queue, Operation::Read, 0, 512), []);
        disk.hold(false);
        assert_eq!(poll(&mut queue), [(1, Ok(()))]);
        disk.fail(600..601);
        assert_eq!(run(&mut queue, Operation::Read, 0, 600), [(1, Ok(()))]);
        assert_eq!(run(&mut queue, Operation::Read, 0, 601), [(1, failed)]);
        assert_eq!(run(&mut queue, Operation::Flush, 0, 0), [(1, Ok(()))]);
        disk.fail(0..u64::MAX);
        assert_eq!(run(&mut queue, Operation::Flush, 0, 0), [(1, failed)]);
        disk.fail(0..0);
        let out = IoError::OutOfRange {
            offset: 4000,
            len: 97,
            size: SIZE as u64,
        };
        assert_eq!(
            run(&mut queue, Operation::Discard, 4000, 97),
            [(1, Err(out))]
        );
        disk.close();
        let write = Operation::Write { fua: false };
        assert_eq!(run(&mut queue, write, 0, 512), [(1, Err(IoError::Closed))]);
        assert_eq!(disk.content(), vec![1; SIZE]);
    }
}
