//! The block device of the server: queues of asynchronous I/Os.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use volume::{Buffer, Queue as VolumeQueue};

pub use volume::Operation;

/// An I/O on any range of bytes within the device.
#[derive(Debug)]
pub struct Io<B> {
    /// Chosen by the submitter, and returned in the completion.
    pub tag: u64,
    /// Operation.
    pub operation: Operation,
    /// Offset on the device in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// Buffer of exactly `len` bytes; for reads and writes only.
    pub buffer: Option<B>,
}

/// Failure of an I/O. The device logs the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// A completed I/O.
#[derive(Debug)]
pub struct Completion<B> {
    /// Tag of the I/O.
    pub tag: u64,
    /// Its result.
    pub result: Result<(), Failed>,
    /// Buffer of the I/O.
    pub buffer: Option<B>,
}

/// A submission queue with its completions, for one thread.
pub trait Queue {
    /// Buffer from the queue. Dropping it returns it.
    type Buffer: AsRef<[u8]> + AsMut<[u8]> + Send;

    /// Returns a buffer for an I/O of `len` bytes, at most [`crate::MAX_SEGMENT`]. `None` if all are in use; retry
    /// after completions.
    fn buffer(&mut self, len: usize) -> Option<Self::Buffer>;

    /// Submits an I/O.
    ///
    /// # Errors
    ///
    /// The queue is full: returns the I/O, which can be submitted again after a completion.
    fn submit(&mut self, io: Io<Self::Buffer>) -> Result<(), Io<Self::Buffer>>;

    /// Makes progress, and passes completions to `done`; never blocks. Returns the number of completions.
    fn poll(&mut self, done: &mut dyn FnMut(Completion<Self::Buffer>)) -> usize;

    /// Descriptor that is readable when an armed queue must be polled.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Arms the descriptor before a sleep. Returns `false` if the queue must be polled instead.
    fn arm(&mut self) -> bool;

    /// Reverts [`arm`](Self::arm).
    fn disarm(&mut self);
}

/// Number of failed I/Os that a process logs; further ones are only counted, so that an offline storage does not fill the log.
const LOGGED: u64 = 100;

static FAILURES: AtomicU64 = AtomicU64::new(0);

/// A queue of the volume.
#[derive(Debug)]
pub struct StorageQueue(pub VolumeQueue);

impl Queue for StorageQueue {
    type Buffer = Buffer;

    fn buffer(&mut self, len: usize) -> Option<Buffer> {
        self.0.buffer(len)
    }

    fn submit(&mut self, io: Io<Buffer>) -> Result<(), Io<Buffer>> {
        let Io {
            tag,
            operation,
            offset,
            len,
            buffer,
        } = io;
        let theirs = volume::Io {
            tag,
            operation,
            offset,
            len,
            buffer,
        };
        self.0.submit(theirs).map_err(|io| Io {
            tag,
            operation,
            offset,
            len,
            buffer: io.buffer,
        })
    }

    fn poll(&mut self, done: &mut dyn FnMut(Completion<Buffer>)) -> usize {
        self.0.poll(&mut |completion| {
            let volume::Completion {
                tag,
                result,
                buffer,
            } = completion;
            let result = result.map_err(|error| {
                log(&error);
                Failed
            });
            done(Completion {
                tag,
                result,
                buffer,
            });
        })
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }
}

#[cold]
fn log(error: &volume::IoError) {
    match FAILURES.fetch_add(1, Ordering::Relaxed) {
        LOGGED => tracing::error!("further failed I/Os are not logged"),
        count if count < LOGGED => tracing::error!("I/O failed: {error}"),
        _ => {}
    }
}
