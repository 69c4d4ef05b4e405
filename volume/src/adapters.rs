//! I/O of a queue by blocking calls, for programs without an event loop, and by futures, for any executor.

use std::cell::RefCell;
use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rustix::event::{PollFd, PollFlags, poll};

use crate::buffer::Buffer;
use crate::engine::{IoError, Operation};
use crate::queue::{Completion, Io, Queue};

/// Polls before the thread sleeps, because a storage that is polling responds within microseconds.
const SPINS: u32 = 200;

/// A [`Queue`] whose calls block until their I/Os have completed.
///
/// Data is copied between the caller's memory and the queue's buffers. Large ranges are split into several I/Os that
/// are in flight concurrently: each I/O is atomic with respect to overlapping I/Os, but the whole range is not.
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
    /// Converts to a queue with blocking calls. No I/O may be in flight, because its completion would be mistaken for
    /// that of a blocking call.
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
    /// [`IoError::Unsupported`] if the storage does not support flush; otherwise the failure of the storage or the session.
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

    /// Submits the I/Os that `next` returns, and waits for all of them. `next` returns `None` when there are no more,
    /// or temporarily while all buffers are in use.
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
                // Interrupted by a signal: the next poll finds no events, and the thread sleeps again.
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

/// A [`Queue`] whose I/Os are futures. They run on the queue's thread, and need no runtime except for waiting for a
/// descriptor.
///
/// [`drive`](Self::drive) must be polled together with them. Futures can be dropped at any time; the I/O then
/// continues, and its buffer is free when it has completed.
///
/// ```no_run
/// # async fn readable(_: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> { Ok(()) }
/// # async fn race<T>(_: impl Future<Output = std::io::Result<()>>, work: impl Future<Output = T>) -> T { work.await }
/// # async fn example(queue: volume::Queue) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = queue.into_async()?;
/// let work = async {
///     queue.write_at(b"hello", 1000).await?;
///     let mut bytes = [0; 5];
///     queue.read_at(&mut bytes, 1000).await?;
///     Ok(())
/// };
/// // `race` as `future::or` of futures-lite, `readable` as `Async::readable` of async-io or `AsyncFd::readable` of tokio.
/// race(queue.drive(async |descriptor| readable(descriptor).await), work).await
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncQueue {
    inner: RefCell<Inner>,
    /// The queue's largest transfer in bytes.
    largest: u32,
    /// Duplicate of the queue's descriptor, which does not change.
    descriptor: std::os::fd::OwnedFd,
}

#[derive(Debug)]
struct Inner {
    queue: Queue,
    /// State of the I/Os in flight, by tag.
    waiters: Vec<Waiter>,
    free: Vec<usize>,
    /// Tasks that wait for the queue to accept an I/O.
    blocked: Vec<Waker>,
    /// Waker of [`AsyncQueue::drive`] while it sleeps.
    driver: Option<Waker>,
    /// `true` if an I/O was submitted since the driver last polled the queue.
    is_kicked: bool,
}

#[derive(Debug)]
enum Waiter {
    Free,
    Waiting(Option<Waker>),
    Done(Completion),
    /// The future was dropped.
    Abandoned,
}

impl Queue {
    /// Converts to a queue whose I/Os are futures. No I/O may be in flight.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn into_async(self) -> std::io::Result<AsyncQueue> {
        AsyncQueue::new(self)
    }
}

impl AsyncQueue {
    pub(crate) fn new(queue: Queue) -> std::io::Result<Self> {
        Ok(Self {
            largest: queue.largest_transfer(),
            descriptor: queue.descriptor().try_clone_to_owned()?,
            inner: RefCell::new(Inner {
                queue,
                waiters: Vec::new(),
                free: Vec::new(),
                blocked: Vec::new(),
                driver: None,
                is_kicked: false,
            }),
        })
    }

    /// Returns a free buffer of `len` bytes, and waits until one is free. `None` if `len` exceeds
    /// [`Queue::largest_transfer`].
    pub async fn buffer(&self, len: usize) -> Option<Buffer> {
        if len > self.largest as usize {
            return None;
        }
        poll_fn(|context| {
            let mut inner = self.inner.borrow_mut();
            if let Some(buffer) = inner.queue.buffer(len) {
                return Poll::Ready(Some(buffer));
            }
            inner.queue.wait_for_buffer(context.waker());
            match inner.queue.buffer(len) {
                Some(buffer) => Poll::Ready(Some(buffer)),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Performs one I/O on a buffer, without a copy, and returns the buffer. As with [`Queue::submit`], a read or a
    /// write uses the first `len` bytes of the buffer.
    pub async fn run(
        &self,
        operation: Operation,
        offset: u64,
        len: u32,
        buffer: Option<Buffer>,
    ) -> (Result<(), IoError>, Option<Buffer>) {
        let mut ticket = Ticket {
            queue: self,
            number: None,
        };
        let mut io = Some(Io {
            tag: 0,
            operation,
            offset,
            len,
            buffer,
        });
        let completion = poll_fn(|context| {
            let mut inner = self.inner.borrow_mut();
            if let Some(waiting) = io.take() {
                match inner.submit(waiting) {
                    Ok(number) => ticket.number = Some(number),
                    Err(refused) => {
                        io = Some(refused);
                        inner.blocked.push(context.waker().clone());
                        return Poll::Pending;
                    }
                }
            }
            inner.take(&mut ticket.number, context)
        })
        .await;
        (completion.result, completion.buffer)
    }

    /// Reads `bytes.len()` bytes at `offset` through a buffer, in I/Os of at most [`Queue::largest_transfer`] bytes.
    ///
    /// # Errors
    /// The error of the first I/O that failed.
    pub async fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), IoError> {
        let mut at = offset;
        for piece in bytes.chunks_mut(self.largest as usize) {
            let buffer = self.buffer(piece.len()).await;
            let len = piece.len() as u32;
            let (result, buffer) = self.run(Operation::Read, at, len, buffer).await;
            result?;
            if let Some(buffer) = buffer {
                piece.copy_from_slice(&buffer);
            }
            at = at.saturating_add(u64::from(len));
        }
        Ok(())
    }

    /// Writes `bytes` at `offset` through a buffer, in I/Os of at most [`Queue::largest_transfer`] bytes.
    ///
    /// # Errors
    /// The error of the first I/O that failed.
    pub async fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), IoError> {
        let mut at = offset;
        for piece in bytes.chunks(self.largest as usize) {
            let mut buffer = self.buffer(piece.len()).await;
            if let Some(buffer) = &mut buffer {
                buffer.copy_from_slice(piece);
            }
            let len = piece.len() as u32;
            let operation = Operation::Write { fua: false };
            self.run(operation, at, len, buffer).await.0?;
            at = at.saturating_add(u64::from(len));
        }
        Ok(())
    }

    /// Makes durable all writes that have completed before, on any queue of the volume.
    ///
    /// # Errors
    /// [`IoError::Unsupported`] if the storage does not support flush; otherwise the failure of the storage or the session.
    pub async fn flush(&self) -> Result<(), IoError> {
        self.run(Operation::Flush, 0, 0, None).await.0
    }

    /// Makes progress for all I/Os. Returns only with an error of `readable`, which must wait until its argument, a
    /// descriptor, is readable.
    ///
    /// With async-io: `let fd = Async::new_nonblocking(queue.descriptor())?`, and `async |_| fd.readable().await`.
    /// With tokio: `let fd = AsyncFd::with_interest(queue.descriptor(), Interest::READABLE)?`, and `async |_| {
    /// fd.readable().await?.clear_ready(); Ok(()) }`.
    ///
    /// # Errors
    /// The error of `readable`.
    pub async fn drive(
        &self,
        mut readable: impl AsyncFnMut(BorrowedFd<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        loop {
            let is_armed = {
                let mut inner = self.inner.borrow_mut();
                inner.is_kicked = false;
                inner.poll() == 0 && inner.queue.arm()
            };
            if is_armed {
                let slept = self.sleep(&mut readable).await;
                self.inner.borrow_mut().queue.disarm();
                slept?;
            } else {
                yield_once().await;
            }
        }
    }

    /// Waits until the descriptor is readable, or an I/O was submitted.
    async fn sleep(
        &self,
        readable: &mut impl AsyncFnMut(BorrowedFd<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut readable = pin!(readable(self.descriptor()));
        poll_fn(|context| {
            let mut inner = self.inner.borrow_mut();
            if inner.is_kicked {
                return Poll::Ready(Ok(()));
            }
            inner.driver = Some(context.waker().clone());
            drop(inner);
            readable.as_mut().poll(context)
        })
        .await
    }

    /// Descriptor that [`drive`](Self::drive) waits for.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd as _;
        self.descriptor.as_fd()
    }
}

impl Inner {
    /// Submits an I/O with a unique tag, and wakes a sleeping driver.
    fn submit(&mut self, mut io: Io) -> Result<usize, Io> {
        let number = self.free.pop().unwrap_or_else(|| {
            self.waiters.push(Waiter::Free);
            self.waiters.len() - 1
        });
        io.tag = number as u64;
        if let Err(io) = self.queue.submit(io) {
            self.free.push(number);
            return Err(io);
        }
        self.waiters[number] = Waiter::Waiting(None);
        self.is_kicked = true;
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
        Ok(number)
    }

    /// Makes progress, and wakes the tasks of completed I/Os. Returns the number of completions.
    fn poll(&mut self) -> usize {
        let Self {
            queue,
            waiters,
            free,
            blocked,
            ..
        } = self;
        let count = queue.poll(&mut |completion| {
            let number = completion.tag as usize;
            match std::mem::replace(&mut waiters[number], Waiter::Free) {
                Waiter::Waiting(waker) => {
                    waiters[number] = Waiter::Done(completion);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                Waiter::Abandoned | Waiter::Free | Waiter::Done(_) => free.push(number),
            }
        });
        if count != 0 {
            blocked.drain(..).for_each(Waker::wake);
        }
        count
    }

    /// Returns the completion of an I/O, if it has completed.
    fn take(&mut self, ticket: &mut Option<usize>, context: &Context<'_>) -> Poll<Completion> {
        let Some(number) = *ticket else {
            return Poll::Pending;
        };
        match std::mem::replace(&mut self.waiters[number], Waiter::Free) {
            Waiter::Done(completion) => {
                *ticket = None;
                self.free.push(number);
                Poll::Ready(completion)
            }
            _ => {
                self.waiters[number] = Waiter::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

/// The I/O of a future, abandoned when dropped.
struct Ticket<'a> {
    queue: &'a AsyncQueue,
    number: Option<usize>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else {
            return;
        };
        let mut inner = self.queue.inner.borrow_mut();
        match std::mem::replace(&mut inner.waiters[number], Waiter::Abandoned) {
            Waiter::Done(completion) => {
                inner.waiters[number] = Waiter::Free;
                inner.free.push(number);
                drop(completion);
            }
            Waiter::Waiting(_) | Waiter::Free | Waiter::Abandoned => {}
        }
    }
}

/// Lets other futures run.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
