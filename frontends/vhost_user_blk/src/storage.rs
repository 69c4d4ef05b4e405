//! The storage of the virtqueues: queues of asynchronous I/Os.

use std::ops::DerefMut;
use std::os::fd::BorrowedFd;

use volume::{Io, IoError};

use crate::ring::Part;

/// Reason why an I/O was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// It failed; the storage has logged the reason.
    Failed,
    /// The storage was closed: another process may execute the I/O.
    Closed,
}

/// A submission queue with its completions, for one thread.
pub trait Queue: Send + 'static {
    /// Buffer for the data of an I/O. Dropping it frees it.
    type Buffer: DerefMut<Target = [u8]> + Send;

    /// Returns a buffer of `len` bytes, at most the largest transfer. `None` if all are in use; retry after completions.
    fn buffer(&mut self, len: usize) -> Option<Self::Buffer>;

    /// Submits an I/O; reads and writes with a buffer of their length.
    ///
    /// # Errors
    /// The queue is full: returns the buffer. The I/O can be submitted again after a completion.
    fn submit(
        &mut self,
        part: Part,
        buffer: Option<Self::Buffer>,
    ) -> Result<(), Option<Self::Buffer>>;

    /// Makes progress, and passes completions (tag, result and buffer) to `done`. Never blocks. Returns the number of completions.
    fn poll(
        &mut self,
        done: &mut dyn FnMut(u64, Result<(), NotDone>, Option<Self::Buffer>),
    ) -> usize;

    /// Descriptor that is readable when an armed queue must be polled.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Arms the descriptor before a sleep. Returns `false` if the queue must be polled instead.
    fn arm(&mut self) -> bool;

    /// Reverts [`arm`](Self::arm).
    fn disarm(&mut self);
}

/// A queue of a volume.
#[derive(Debug)]
pub struct VolumeQueue(pub volume::Queue);

impl Queue for VolumeQueue {
    type Buffer = volume::Buffer;

    #[inline]
    fn buffer(&mut self, len: usize) -> Option<volume::Buffer> {
        self.0.buffer(len)
    }

    #[inline]
    fn submit(
        &mut self,
        part: Part,
        buffer: Option<volume::Buffer>,
    ) -> Result<(), Option<volume::Buffer>> {
        let Part {
            tag,
            operation,
            offset,
            len,
        } = part;
        self.0
            .submit(Io {
                tag,
                operation,
                offset,
                len,
                buffer,
            })
            .map_err(|io| io.buffer)
    }

    #[inline]
    fn poll(
        &mut self,
        done: &mut dyn FnMut(u64, Result<(), NotDone>, Option<volume::Buffer>),
    ) -> usize {
        self.0.poll(&mut |completion| {
            let result = completion.result.map_err(|error| match error {
                IoError::Closed => NotDone::Closed,
                error => {
                    tracing::debug!("an I/O has failed: {error}");
                    NotDone::Failed
                }
            });
            done(completion.tag, result, completion.buffer);
        })
    }

    #[inline]
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    #[inline]
    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    #[inline]
    fn disarm(&mut self) {
        self.0.disarm();
    }
}
