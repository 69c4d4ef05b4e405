//! The interface to the storage behind the virtqueues: queues of asynchronous I/Os.

use std::ops::DerefMut;
use std::os::fd::BorrowedFd;

use crate::ring::Part;

/// An operation on a range of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads into the I/O's buffer.
    Read,
    /// Writes from the I/O's buffer.
    Write {
        /// Completes when the bytes are durable.
        fua: bool,
    },
    /// Makes all writes durable that have completed.
    Flush,
    /// Writes zeros.
    WriteZeroes {
        /// Completes when the zeros are durable.
        fua: bool,
    },
    /// The bytes are not needed any more.
    Discard,
}

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
