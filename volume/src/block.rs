//! Queues of a block device, as used by front ends: a [`Queue`] of a volume or, in tests, of a disk in memory (feature
//! `testing`).

use std::ops::DerefMut;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use control::budget::{LOG_LINES_PER_SECOND, LogBudget};

use crate::buffer::Buffer;
use crate::engine::IoError;
use crate::queue::{Completion, Io, Queue};
use crate::unflushed::WriteLosses;

/// A submission queue with its completions, for one thread.
pub trait BlockQueue: Send + 'static {
    /// Data of an I/O, initially with arbitrary contents. Dropping it frees it.
    type Buffer: DerefMut<Target = [u8]> + Send;

    /// Returns a buffer of `len` bytes, at most the largest transfer. `None` if all are in use; retry after a buffer was
    /// dropped.
    fn buffer(&mut self, len: usize) -> Option<Self::Buffer>;

    /// Submits an I/O.
    ///
    /// # Errors
    /// The queue is full: returns the I/O, which can be submitted again after a completion.
    fn submit(&mut self, io: Io<Self::Buffer>) -> Result<(), Io<Self::Buffer>>;

    /// Makes progress, and passes completions, in any order, to `done`. Never blocks. Returns the number of completions.
    fn poll(&mut self, done: &mut dyn FnMut(Completion<Self::Buffer>)) -> usize;

    /// Losses of acknowledged writes of all queues of the device. The queue itself fails one flush after a loss, with
    /// [`IoError::LostWrites`]; a front end with several clients on a queue has to inform each of them.
    fn losses(&self) -> WriteLosses;

    /// Descriptor that is readable when an armed queue must be polled.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Arms the descriptor before a sleep. Returns `false` if the queue must be polled instead.
    fn arm(&mut self) -> bool;

    /// Reverts [`arm`](Self::arm).
    fn disarm(&mut self);
}

impl BlockQueue for Queue {
    type Buffer = Buffer;

    #[inline]
    fn buffer(&mut self, len: usize) -> Option<Buffer> {
        Self::buffer(self, len)
    }

    #[inline]
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        Self::submit(self, io)
    }

    #[inline]
    fn poll(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        Self::poll(self, done)
    }

    fn losses(&self) -> WriteLosses {
        Self::losses(self)
    }

    #[inline]
    fn descriptor(&self) -> BorrowedFd<'_> {
        Self::descriptor(self)
    }

    #[inline]
    fn arm(&mut self) -> bool {
        Self::arm(self)
    }

    #[inline]
    fn disarm(&mut self) {
        Self::disarm(self);
    }
}

/// Log of failed I/Os with a limited number of lines per second: an offline storage fails every I/O, and must not fill
/// the log. The number of suppressed lines is logged with the next failure after that second, and at the end.
#[derive(Debug)]
pub struct ErrorLog {
    budget: LogBudget<()>,
}

impl Default for ErrorLog {
    fn default() -> Self {
        Self {
            budget: LogBudget::new(LOG_LINES_PER_SECOND),
        }
    }
}

impl ErrorLog {
    /// Logs the failure of an I/O, or counts it.
    #[cold]
    pub fn failed(&mut self, error: &IoError) {
        self.failed_at(Instant::now(), error);
    }

    fn failed_at(&mut self, now: Instant, error: &IoError) {
        self.report(now);
        if self.budget.charge(now, ()) {
            tracing::error!("I/O failed: {error}");
        }
    }

    /// Logs the number of suppressed lines once their second has passed, and returns it.
    fn report(&mut self, now: Instant) -> u64 {
        let suppressed = self.budget.take_suppressed(now).iter().map(|it| it.1).sum();
        if suppressed != 0 {
            tracing::error!("{suppressed} further I/Os failed");
        }
        suppressed
    }
}

impl Drop for ErrorLog {
    fn drop(&mut self) {
        // Regardless of the time, because there will be no later line.
        self.report(Instant::now() + std::time::Duration::from_secs(1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn suppressed_failures_are_counted_once() {
        let mut log = ErrorLog::default();
        let start = Instant::now();
        for _ in 0..LOG_LINES_PER_SECOND + 3 {
            log.failed_at(start, &IoError::Disconnected);
        }
        assert_eq!(log.report(start), 0, "the second has not passed");
        let later = start + Duration::from_secs(1);
        assert_eq!(log.report(later), 3);
        assert_eq!(log.report(later), 0);
        log.failed_at(later, &IoError::Disconnected);
        assert_eq!(log.report(later + Duration::from_secs(1)), 0);
    }
}
