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
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::Access::{Read, Write};
    use super::*;

    /// An I/O on slot 5.
    #[derive(Debug)]
    struct Io<'a> {
        order: &'a StripeLocks,
        ticket: Ticket,
        access: Access,
    }

    impl<'a> Io<'a> {
        fn new(order: &'a StripeLocks, access: Access) -> Self {
            let ticket = order.queue(5);
            Self {
                order,
                ticket,
                access,
            }
        }

        fn begins(&self) -> bool {
            self.order.try_lock(5, self.ticket, self.access)
        }

        fn complete(self) {
            self.order.unlock(5, self.ticket, self.access);
        }
    }

    #[test]
    fn reads_share_a_lock_and_writes_are_exclusive() {
        for workers in [1, 2] {
            let order = StripeLocks::new(workers, 64);
            let [first, second] = [Read, Read].map(|access| Io::new(&order, access));
            assert!(first.begins() && second.begins());
            let writer = Io::new(&order, Write);
            assert!(!writer.begins());
            second.complete();
            assert!(!writer.begins(), "a reader is left");
            first.complete();
            assert!(writer.begins());
            let [reader, other] = [Read, Write].map(|access| Io::new(&order, access));
            assert!(!reader.begins() && !other.begins());
            let elsewhere = order.queue(6);
            assert!(order.try_lock(6, elsewhere, Write), "another slot");
            writer.complete();
            assert!(reader.begins() && !other.begins());
            reader.complete();
            assert!(other.begins());
        }
    }

    #[test]
    fn locks_are_granted_in_order_of_arrival() {
        for workers in [1, 2] {
            let order = StripeLocks::new(workers, 64);
            let running = Io::new(&order, Read);
            assert!(running.begins());
            let waiting = [Write, Read, Read, Write, Read].map(|access| Io::new(&order, access));
            let begins = |waiting: &[Io<'_>]| waiting.iter().map(Io::begins).collect::<Vec<_>>();
            assert_eq!(begins(&waiting), [false; 5], "no reader passes a writer");
            running.complete();
            let [writer, rest @ ..] = waiting;
            assert!(writer.begins());
            assert_eq!(begins(&rest), [false; 4]);
            writer.complete();
            assert_eq!(begins(&rest), [true, true, false, false]);
            let [first, second, writer, last] = rest;
            first.complete();
            second.complete();
            assert!(writer.begins() && !last.begins());
            writer.complete();
            assert!(last.begins());
        }
    }

    #[test]
    fn tickets_wrap() {
        for workers in [1, 2] {
            let order = StripeLocks::new(workers, 64);
            let slot = &order.locks[5];
            for word in [&slot.next, &slot.readers, &slot.writers] {
                word.store(u32::MAX, Ordering::Relaxed);
            }
            for access in [Read, Write, Read, Read, Write] {
                let io = Io::new(&order, access);
                assert!(io.begins());
                io.complete();
            }
        }
    }

    #[test]
    fn number_of_locks_covers_all_transactions_within_bounds() {
        let slots = |transactions| StripeLocks::new(1, transactions).locks.len();
        assert_eq!(slots(1), 1 << 10);
        assert_eq!(slots(64), 1 << 10);
        assert_eq!(slots(65), 1 << 11);
        assert_eq!(slots(512), 1 << 13);
        assert_eq!(slots(u64::MAX), 1 << 16);
    }

    #[test]
    fn neighbouring_stripes_have_different_locks() {
        let order = StripeLocks::new(1, 1024);
        for stride in [1, 2, 1024, 1 << 20] {
            let slots: HashSet<usize> = (0..1024).map(|stripe| order.of(stripe * stride)).collect();
            assert!(slots.len() > 900, "{} slots at {stride}", slots.len());
            assert!(slots.iter().all(|&slot| slot < order.locks.len()));
        }
    }

    /// Rounds of a thread, at most: fewer where the lock is passed on slowly, because other processes use the CPUs.
    fn rounds(count: u64) -> impl Iterator<Item = u64> {
        let deadline = Instant::now() + Duration::from_secs(5);
        (0..count).take_while(move |_| Instant::now() < deadline)
    }

    #[test]
    fn threads_never_see_a_half_written_pair() {
        let order = StripeLocks::new(4, 64);
        let pair = [AtomicU64::new(0), AtomicU64::new(0)];
        let begin = |access| {
            let io = Io::new(&order, access);
            while !io.begins() {
                thread::yield_now();
            }
            io
        };
        thread::scope(|scope| {
            for writer in 0..2 {
                let (pair, begin) = (&pair, &begin);
                scope.spawn(move || {
                    for round in rounds(2000) {
                        let io = begin(Write);
                        pair[0].store(writer << 32 | round, Ordering::Relaxed);
                        thread::yield_now();
                        pair[1].store(writer << 32 | round, Ordering::Relaxed);
                        io.complete();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in rounds(2000) {
                        let io = begin(Read);
                        let seen = [&pair[0], &pair[1]].map(|half| half.load(Ordering::Relaxed));
                        io.complete();
                        assert_eq!(seen[0], seen[1]);
                    }
                });
            }
        });
    }

    #[test]
    fn no_ticket_is_lost() {
        let order = StripeLocks::new(4, 64);
        let run = |seed: u64| {
            let mut random = seed;
            let mut served = 0;
            for _ in rounds(50_000) {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let access = if random >> 60 < 3 { Read } else { Write };
                let io = Io::new(&order, access);
                let mut asked = 0u32;
                while !io.begins() {
                    asked += 1;
                    assert!(asked < 100_000_000, "{io:?} is never served");
                    if asked.is_multiple_of(64) {
                        thread::yield_now();
                    }
                }
                io.complete();
                served += 1;
            }
            served
        };
        let served: u32 = thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || run(seed))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        });
        let slot = &order.locks[5];
        let words =
            [&slot.next, &slot.readers, &slot.writers].map(|word| word.load(Ordering::Relaxed));
        assert!(served >= 4);
        assert_eq!(words, [served; 3]);
    }
}
