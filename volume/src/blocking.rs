//! Blocking I/O, for programs without an event loop.

use rustix::event::{PollFd, PollFlags, poll};

use crate::engine::{IoError, Operation};
use crate::queue::{Completion, Io, Queue};

/// Polls before the thread sleeps: a storage that is polling answers within microseconds.
const SPINS: u32 = 200;

/// A [`Queue`] whose calls block until their I/Os have completed.
///
/// Data is copied between the caller's memory and the queue's buffers. Large ranges are split into several I/Os that are in flight
/// concurrently: each I/O is atomic with respect to overlapping I/Os, the whole range is not.
///
/// ```no_run
/// use volume::{Config, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut volume = Volume::open(Config::default())?;
/// let mut queue = volume.take_queues().remove(0).into_blocking();
/// queue.write_at(b"hello", 1000)?;
/// if volume.capabilities().flush {
///     queue.flush()?;
/// }
/// let mut bytes = [0; 5];
/// queue.read_at(&mut bytes, 1000)?;
/// assert_eq!(&bytes, b"hello");
/// drop(queue);
/// volume.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BlockingQueue {
    queue: Queue,
}

impl Queue {
    /// Converts to a queue with blocking calls. No I/O may be in flight: its completion would be taken for that of a blocking call.
    #[must_use]
    pub fn into_blocking(self) -> BlockingQueue {
        BlockingQueue::new(self)
    }
}

impl BlockingQueue {
    pub(crate) fn new(queue: Queue) -> Self {
        Self { queue }
    }

    /// Returns the queue; no I/O is in flight.
    #[must_use]
    pub fn into_inner(self) -> Queue {
        self.queue
    }

    /// Reads `bytes.len()` bytes at `offset`.
    ///
    /// # Errors
    /// The error of the first I/O that failed. The contents of `bytes` are then unspecified.
    pub fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> Result<(), IoError> {
        let mut pieces = Pieces::new(self.queue.largest_transfer(), bytes.len() as u64);
        self.run(
            |queue| {
                let (position, len) = pieces.peek()?;
                let buffer = Some(queue.buffer(len as usize)?);
                pieces.next();
                Some(Io {
                    tag: position,
                    operation: Operation::Read,
                    offset: offset.saturating_add(position),
                    len,
                    buffer,
                })
            },
            |completion| {
                if let Some(buffer) = completion.buffer {
                    let position = completion.tag as usize;
                    bytes[position..position + buffer.len()].copy_from_slice(&buffer);
                }
            },
        )
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// The error of the first I/O that failed. Any part may have been written.
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), IoError> {
        let mut pieces = Pieces::new(self.queue.largest_transfer(), bytes.len() as u64);
        self.run(
            |queue| {
                let (position, len) = pieces.peek()?;
                let mut buffer = queue.buffer(len as usize)?;
                pieces.next();
                let at = position as usize;
                buffer.copy_from_slice(&bytes[at..at + len as usize]);
                Some(Io {
                    tag: position,
                    operation: Operation::Write { fua: false },
                    offset: offset.saturating_add(position),
                    len,
                    buffer: Some(buffer),
                })
            },
            |_| {},
        )
    }

    /// Writes `len` zeros at `offset`.
    ///
    /// # Errors
    /// As for [`write_at`](Self::write_at).
    pub fn write_zeroes_at(&mut self, offset: u64, len: u64) -> Result<(), IoError> {
        let mut pieces = Pieces::new(u32::MAX, len);
        self.run(
            |_| {
                let (position, len) = pieces.next()?;
                Some(Io {
                    tag: position,
                    operation: Operation::WriteZeroes { fua: false },
                    offset: offset.saturating_add(position),
                    len,
                    buffer: None,
                })
            },
            |_| {},
        )
    }

    /// Makes durable all writes that have completed before, on any queue of the volume.
    ///
    /// # Errors
    /// [`IoError::Unsupported`] if the storage has no flush; otherwise the failure of the storage or the session.
    pub fn flush(&mut self) -> Result<(), IoError> {
        let mut flush = Some(Io {
            tag: 0,
            operation: Operation::Flush,
            offset: 0,
            len: 0,
            buffer: None,
        });
        self.run(|_| flush.take(), |_| {})
    }

    /// Submits the I/Os that `next` returns, and waits for all of them. `next` returns `None` when there are none
    /// left, or temporarily while all buffers are in use.
    fn run(
        &mut self,
        mut next: impl FnMut(&mut Queue) -> Option<Io>,
        mut done: impl FnMut(Completion),
    ) -> Result<(), IoError> {
        let (mut in_flight, mut result, mut waiting) = (0, Ok(()), None);
        loop {
            while result.is_ok()
                && let Some(io) = waiting.take().or_else(|| next(&mut self.queue))
            {
                match self.queue.submit(io) {
                    Ok(()) => in_flight += 1,
                    Err(io) => {
                        waiting = Some(io);
                        break;
                    }
                }
            }
            if in_flight == 0 {
                return result;
            }
            in_flight -= self.wait(|completion| match completion.result {
                Ok(()) => done(completion),
                Err(error) if result.is_ok() => result = Err(error),
                Err(_) => {}
            });
        }
    }

    /// Waits for at least one completion.
    fn wait(&mut self, mut done: impl FnMut(Completion)) -> usize {
        let mut spins = 0;
        loop {
            let count = self.queue.poll(&mut done);
            if count != 0 {
                return count;
            }
            spins += 1;
            if spins > SPINS && self.queue.arm() {
                let mut fds = [PollFd::from_borrowed_fd(
                    self.queue.descriptor(),
                    PollFlags::IN,
                )];
                // Interrupted by a signal: the next poll finds nothing, and the thread sleeps again.
                let _ = poll(&mut fds, None);
                self.queue.disarm();
            }
        }
    }
}

/// A range, split into pieces.
struct Pieces {
    largest: u64,
    position: u64,
    len: u64,
}

impl Pieces {
    fn new(largest: u32, len: u64) -> Self {
        Self {
            largest: largest.into(),
            position: 0,
            len,
        }
    }

    /// Offset and length of the next piece.
    fn peek(&self) -> Option<(u64, u32)> {
        let left = self.len - self.position;
        (left != 0).then_some((self.position, left.min(self.largest) as u32))
    }

    fn next(&mut self) -> Option<(u64, u32)> {
        let (position, len) = self.peek()?;
        self.position += u64::from(len);
        Some((position, len))
    }
}
