//! The locks of stripes, across all workers.
//!
//! A write changes three chunks on three targets, in no particular order: a read in between, or another write, would see or leave
//! chunks of different blocks. So I/Os on one stripe queue: each draws a ticket, and is served in the order of the tickets, neighbouring
//! reads together. No call blocks: the owner of a ticket asks again until it is served. Without contention, that is two atomic additions
//! on a cache line that other workers rarely use. With a single worker the additions are not atomic: an atomic addition waits until the
//! core's stores have left it, those to the memory of other processes included, which took a fiftieth of the time of a read (measured).
//!
//! Stripes share a fixed number of locks. I/Os on two stripes of one lock wait for each other, which is slow and rare, and no I/O ever
//! queues for two.

use std::sync::atomic::{AtomicU32, Ordering};

/// Locks for each slot of the engines: enough for collisions to stay rare.
const LOCKS_PER_TRANSACTION: u64 = 16;
/// Minimum and maximum number of locks: 16 KiB and 1 MiB.
const LOCKS: (u64, u64) = (1 << 10, 1 << 16);

/// Mode of a stripe lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Shared with other reads.
    Read,
    /// Exclusive.
    Write,
}

/// A place in the queue for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// The queue for a lock. Four share a cache line, and there are no more than needed: I/Os take locks all over, which should be in a
/// core's cache, while two workers rarely meet on one. Tickets wrap, which does no harm: there are never as many at once.
#[repr(align(16))]
#[derive(Debug, Default)]
struct Lock {
    /// The next ticket.
    next: AtomicU32,
    /// The ticket with which a read is served: all before it are writes that have finished, or reads.
    readers: AtomicU32,
    /// The ticket with which a write is served: all before it have finished.
    writers: AtomicU32,
}

/// The locks of all stripes.
#[derive(Debug)]
pub(crate) struct StripeLocks {
    /// A power of two of them.
    locks: Box<[Lock]>,
    /// `true` if there is more than one worker.
    is_shared: bool,
}

impl StripeLocks {
    /// Locks for a session with this many workers, which have this many transactions together.
    ///
    /// With one worker, only that one may use it.
    pub(crate) fn new(workers: u32, transactions: u64) -> Self {
        let wanted = transactions.saturating_mul(LOCKS_PER_TRANSACTION);
        let locks = wanted.clamp(LOCKS.0, LOCKS.1).next_power_of_two();
        Self {
            locks: (0..locks).map(|_| Lock::default()).collect(),
            is_shared: workers > 1,
        }
    }

    /// The lock of a stripe: neighbours have different ones.
    #[inline]
    pub(crate) fn of(&self, stripe: u64) -> usize {
        // The multiplier spreads stripes that are a power of two apart, as those of workers are.
        (stripe.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.locks.len().trailing_zeros()))
            as usize
    }

    /// Draws a ticket. It has to be locked and unlocked, or no ticket behind it is ever served.
    #[inline]
    pub(crate) fn queue(&self, lock: usize) -> Ticket {
        Ticket(self.add_one(&self.locks[lock].next, Ordering::Relaxed))
    }

    /// Locks with a ticket, if it is served.
    #[inline]
    pub(crate) fn try_lock(&self, lock: usize, ticket: Ticket, access: Access) -> bool {
        let lock = &self.locks[lock];
        match access {
            Access::Read => {
                let is_served = lock.readers.load(Ordering::Acquire) == ticket.0;
                if is_served {
                    // The next one may read too. Only the owner of this ticket changes the word now.
                    lock.readers
                        .store(ticket.0.wrapping_add(1), Ordering::Release);
                }
                is_served
            }
            Access::Write => lock.writers.load(Ordering::Acquire) == ticket.0,
        }
    }

    /// Releases the lock.
    #[inline]
    pub(crate) fn unlock(&self, lock: usize, ticket: Ticket, access: Access) {
        let lock = &self.locks[lock];
        match access {
            Access::Read => {
                self.add_one(&lock.writers, Ordering::Release);
            }
            Access::Write => {
                // Reads first: the other word serves the next write, which must not complete before both words are changed. It is added to,
                // because reads may have completed by then and have added too.
                lock.readers
                    .store(ticket.0.wrapping_add(1), Ordering::Release);
                self.add_one(&lock.writers, Ordering::Release);
            }
        }
    }

    /// Adds one to a word of a lock, and returns what it was.
    #[inline]
    fn add_one(&self, word: &AtomicU32, order: Ordering) -> u32 {
        if self.is_shared {
            return word.fetch_add(1, order);
        }
        let before = word.load(Ordering::Relaxed);
        word.store(before.wrapping_add(1), order);
        before
    }
}

#[cfg(test)]
mod tests;
