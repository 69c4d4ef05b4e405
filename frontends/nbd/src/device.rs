//! The block device behind the server: queues of asynchronous I/Os.

use std::os::fd::BorrowedFd;

pub use volume::Operation;

/// An I/O, of any offset and length within the device.
#[derive(Debug)]
pub struct Io<B> {
    /// Chosen by the submitter, repeated in the completion.
    pub tag: u64,
    /// The operation.
    pub operation: Operation,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Memory of exactly `len` bytes, for reads and writes only.
    pub buffer: Option<B>,
}

/// An I/O that the device could not do. It says the reason in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// An I/O that has completed.
#[derive(Debug)]
pub struct Completion<B> {
    /// The I/O.
    pub tag: u64,
    /// Its result.
    pub result: Result<(), Failed>,
    /// Its buffer.
    pub buffer: Option<B>,
}

/// A submission queue with its completions, for one thread.
pub trait Queue {
    /// Memory of the queue. Dropping it gives it back.
    type Buffer: AsRef<[u8]> + AsMut<[u8]> + Send;

    /// Memory for an I/O of `len` bytes, at most [`crate::MAX_SEGMENT`]. `None`: all of it is used; try again after completions.
    fn buffer(&mut self, len: usize) -> Option<Self::Buffer>;

    /// Submits an I/O.
    ///
    /// # Errors
    ///
    /// The I/O itself, because the queue is full: submit it again after a completion.
    fn submit(&mut self, io: Io<Self::Buffer>) -> Result<(), Io<Self::Buffer>>;

    /// Makes progress, and hands over completions; never blocks. Returns the number of completions.
    fn poll(&mut self, done: &mut dyn FnMut(Completion<Self::Buffer>)) -> usize;

    /// Readable when an armed queue has to be polled.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Prepares for sleeping on the descriptor. `false`: poll instead.
    fn arm(&mut self) -> bool;

    /// Ends what [`arm`](Self::arm) began.
    fn disarm(&mut self);
}
