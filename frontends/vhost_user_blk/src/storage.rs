//! The interface to the storage behind the virtqueues: queues of asynchronous I/Os.

use std::ops::DerefMut;
use std::os::fd::BorrowedFd;

use volume::{Io, IoError};

use crate::ring::Part;

/// Why an I/O was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// It failed. The storage has logged the reason.
    Failed,
    /// The storage was closed: another process may do it.
    Closed,
}

/// A submission queue with its completions, for one thread.
pub trait Queue: Send + 'static {
    /// Memory for the data of an I/O. Dropped, it is free for the next one.
    type Buffer: DerefMut<Target = [u8]> + Send;

    /// Memory of `len` bytes, at most the largest transfer. `None`: all of it is in use; try again after completions.
    fn buffer(&mut self, len: usize) -> Option<Self::Buffer>;

    /// Submits an I/O; reads and writes with a buffer of their length.
    ///
    /// # Errors
    /// Gives the buffer back: the queue is full; submit the I/O again after a completion.
    fn submit(
        &mut self,
        part: Part,
        buffer: Option<Self::Buffer>,
    ) -> Result<(), Option<Self::Buffer>>;

    /// Makes progress, and hands over completions: tag, result and buffer. Never blocks. Returns the number of completions.
    fn poll(
        &mut self,
        done: &mut dyn FnMut(u64, Result<(), NotDone>, Option<Self::Buffer>),
    ) -> usize;

    /// Readable when an armed queue has to be polled.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Prepares for sleeping on the descriptor. `false`: poll instead.
    fn arm(&mut self) -> bool;

    /// Takes back [`arm`](Self::arm).
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
