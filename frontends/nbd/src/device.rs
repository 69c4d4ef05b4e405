//! The block device of the server: queues of asynchronous I/Os.

use std::os::fd::BorrowedFd;

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
