//! Locks of ranges of blocks, across all queues of a volume.
//!
//! A write locks its blocks exclusively, a read shares them with other reads, and while a write holds all of its locks,
//! no other I/O accesses its blocks. No call blocks: an I/O that does not get a lock retries later. Without contention,
//! acquiring and releasing a lock take one atomic operation each.
//!
//! Blocks share a fixed number of locks: block n has lock n modulo their number, so that adjacent blocks have different
//! locks. An I/O takes its locks in ascending order and holds the earlier ones while it waits, which excludes
//! deadlocks.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Locks per I/O that may be in flight: enough for collisions of unrelated blocks to be rare.
const LOCKS_PER_IO: usize = 64;
/// Minimum and maximum number of locks: 16 KiB and 256 KiB of memory.
const LOCKS: (usize, usize) = (1 << 12, 1 << 16);

/// Flag: a write holds the lock.
const WRITER: u32 = 1 << 31;
/// Flag: a write waits for the lock, so that later reads also wait.
const WANTED: u32 = 1 << 30;

/// Lock mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Of a read: shared with other reads.
    Shared,
    /// Of a write: excludes all other I/Os.
    Exclusive,
}

/// The locks of a volume.
#[derive(Debug)]
pub(crate) struct RangeLocks {
    /// Number of reads that hold a lock, and the flags [`WRITER`] and [`WANTED`]. The number of locks is a power of two.
    words: Box<[AtomicU32]>,
    /// Number of sleeping queues with I/Os that wait for locks.
    sleepers: AtomicU32,
}

/// Locks of one I/O, in part or completely held.
#[derive(Clone, Debug)]
pub(crate) struct RangeLock {
    first: usize,
    count: usize,
    access: Access,
    held: usize,
    /// `true` if this write has set [`WANTED`] in the next lock.
    has_marked: bool,
}

impl RangeLocks {
    /// Creates the locks of a volume with up to `ios` I/Os in flight.
    pub(crate) fn new(ios: usize) -> Self {
        let count = ios
            .saturating_mul(LOCKS_PER_IO)
            .clamp(LOCKS.0, LOCKS.1)
            .next_power_of_two();
        Self {
            words: (0..count).map(|_| AtomicU32::new(0)).collect(),
            sleepers: AtomicU32::new(0),
        }
    }

    /// Returns the locks of these blocks, none of which is held yet.
    pub(crate) fn range(&self, blocks: Range<u64>, access: Access) -> RangeLock {
        let length = blocks.end.saturating_sub(blocks.start);
        RangeLock {
            first: (blocks.start as usize) & (self.words.len() - 1),
            count: usize::try_from(length)
                .map_or(self.words.len(), |count| count.min(self.words.len())),
            access,
            held: 0,
            has_marked: false,
        }
    }

    /// Takes further locks until one is held by another I/O; returns `true` once all are held.
    #[inline]
    pub(crate) fn advance(&self, range: &mut RangeLock) -> bool {
        while range.held < range.count {
            let word = &self.words[self.index(range, range.held)];
            let is_locked = match range.access {
                Access::Shared => lock_shared(word),
                Access::Exclusive => lock_exclusive(word, &mut range.has_marked),
            };
            if !is_locked {
                return false;
            }
            range.held += 1;
        }
        true
    }

    /// Releases the held locks and the mark on the next one. Returns `true` if sleeping queues may wait for them.
    #[inline]
    pub(crate) fn release(&self, range: &mut RangeLock) -> bool {
        for number in 0..range.held {
            let word = &self.words[self.index(range, number)];
            match range.access {
                Access::Shared => word.fetch_sub(1, Ordering::SeqCst),
                Access::Exclusive => word.fetch_and(!WRITER, Ordering::SeqCst),
            };
        }
        if range.has_marked {
            // Other waiting writes set the mark again when they retry.
            let word = &self.words[self.index(range, range.held)];
            word.fetch_and(!WANTED, Ordering::SeqCst);
            range.has_marked = false;
        }
        range.held = 0;
        // Sequentially consistent, as are the stores before it and those of a sleeping queue: either this thread
        // observes the sleeping queue, or the queue observes the released locks.
        self.sleepers.load(Ordering::SeqCst) != 0
    }

    /// Records that a queue with waiting I/Os is about to sleep. It must retry their locks once more afterwards.
    pub(crate) fn sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// Records that the queue is awake again.
    pub(crate) fn wake(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Index of lock `number` of a range, in ascending order: if the range wraps around, the lowest locks come first.
    #[inline]
    fn index(&self, range: &RangeLock, number: usize) -> usize {
        let wrapped = (range.first + range.count).saturating_sub(self.words.len());
        if number < wrapped {
            number
        } else {
            range.first + number - wrapped
        }
    }

    /// Returns `true` if no lock is held or marked.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.words
            .iter()
            .all(|word| word.load(Ordering::SeqCst) == 0)
    }
}

#[inline]
fn lock_shared(word: &AtomicU32) -> bool {
    let mut value = word.load(Ordering::SeqCst);
    while value & (WRITER | WANTED) == 0 {
        match word.compare_exchange_weak(value, value + 1, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return true,
            Err(now) => value = now,
        }
    }
    false
}

#[inline]
fn lock_exclusive(word: &AtomicU32, has_marked: &mut bool) -> bool {
    let mut value = word.load(Ordering::SeqCst);
    loop {
        let is_free = value & !WANTED == 0;
        let next = if is_free { WRITER } else { value | WANTED };
        if next == value {
            // Another write is also waiting.
            *has_marked = true;
            return false;
        }
        match word.compare_exchange_weak(value, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                *has_marked = !is_free;
                return is_free;
            }
            Err(now) => value = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(locks: &RangeLocks, blocks: Range<u64>, access: Access) -> (RangeLock, bool) {
        let mut range = locks.range(blocks, access);
        let is_locked = locks.advance(&mut range);
        (range, is_locked)
    }

    #[test]
    fn reads_share_locks_and_writes_exclude_others() {
        let locks = RangeLocks::new(1);
        let (mut first, is_locked) = locked(&locks, 0..4, Access::Shared);
        assert!(is_locked);
        let (mut second, is_locked) = locked(&locks, 3..9, Access::Shared);
        assert!(is_locked);
        let (mut write, is_locked) = locked(&locks, 2..4, Access::Exclusive);
        assert!(!is_locked);
        locks.release(&mut first);
        // The write holds lock 2 and waits for lock 3.
        assert!(!locks.advance(&mut write));
        locks.release(&mut second);
        assert!(locks.advance(&mut write));
        let (mut read, is_locked) = locked(&locks, 0..3, Access::Shared);
        assert!(!is_locked);
        locks.release(&mut write);
        assert!(locks.advance(&mut read));
        locks.release(&mut read);
        assert!(locks.is_free());
    }

    #[test]
    fn read_does_not_overtake_a_waiting_write() {
        let locks = RangeLocks::new(1);
        let (mut holder, _) = locked(&locks, 7..8, Access::Shared);
        let (mut write, _) = locked(&locks, 7..8, Access::Exclusive);
        let (mut read, is_locked) = locked(&locks, 7..8, Access::Shared);
        assert!(!is_locked);
        locks.release(&mut holder);
        assert!(!locks.advance(&mut read));
        assert!(locks.advance(&mut write));
        locks.release(&mut write);
        assert!(locks.advance(&mut read));
        locks.release(&mut read);
        assert!(locks.is_free());
    }

    #[test]
    fn abandoned_write_does_not_block_reads() {
        let locks = RangeLocks::new(1);
        let (mut holder, _) = locked(&locks, 7..8, Access::Shared);
        let (mut write, _) = locked(&locks, 6..8, Access::Exclusive);
        let (mut other, _) = locked(&locks, 7..8, Access::Exclusive);
        locks.release(&mut write);
        let (mut read, is_locked) = locked(&locks, 7..8, Access::Shared);
        assert!(is_locked);
        locks.release(&mut read);
        locks.release(&mut holder);
        assert!(locks.advance(&mut other));
        locks.release(&mut other);
        assert!(locks.is_free());
    }

    #[test]
    fn ranges_wrap_around_the_locks() {
        let locks = RangeLocks::new(1);
        let count = locks.words.len() as u64;
        let (mut end, is_locked) = locked(&locks, count - 2..count + 3, Access::Exclusive);
        assert!(is_locked);
        let indices: Vec<_> = (0..5).map(|number| locks.index(&end, number)).collect();
        let last = locks.words.len() - 1;
        assert_eq!(indices, [0, 1, 2, last - 1, last]);
        let (mut all, is_locked) = locked(&locks, 5..5 + 3 * count, Access::Exclusive);
        assert!(!is_locked);
        locks.release(&mut end);
        assert!(locks.advance(&mut all));
        assert_eq!(all.held, locks.words.len());
        locks.release(&mut all);
        assert!(locks.is_free());
    }

    #[test]
    fn release_reports_sleeping_queues() {
        let locks = RangeLocks::new(1);
        let (mut range, _) = locked(&locks, 0..1, Access::Shared);
        locks.sleep();
        assert!(locks.release(&mut range));
        locks.wake();
        let (mut range, _) = locked(&locks, 0..1, Access::Shared);
        assert!(!locks.release(&mut range));
    }

    /// Threads increment two words of every block of their range after reading both: partial or concurrent writes make
    /// the words differ, or lose increments.
    #[test]
    fn concurrent_reads_see_no_partial_write() {
        const BLOCKS: u64 = 6;
        const ROUNDS: u64 = 3000;
        let locks = RangeLocks::new(1);
        let words: Vec<AtomicU32> = (0..BLOCKS * 2).map(|_| AtomicU32::new(0)).collect();
        let relaxed = Ordering::Relaxed;
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (locks, words) = (&locks, &words);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let begin = (round * 7 + thread) % BLOCKS;
                        let blocks = begin..(begin + 1 + round % 3).min(BLOCKS);
                        let writes = (round + thread).is_multiple_of(2);
                        let access = if writes {
                            Access::Exclusive
                        } else {
                            Access::Shared
                        };
                        let mut range = locks.range(blocks.clone(), access);
                        while !locks.advance(&mut range) {
                            std::thread::yield_now();
                        }
                        for block in blocks {
                            let at = block as usize * 2;
                            let (one, two) = (words[at].load(relaxed), words[at + 1].load(relaxed));
                            assert_eq!(one, two);
                            if writes {
                                words[at].store(one + 1, relaxed);
                                if round.is_multiple_of(8) {
                                    // Lets the other threads run before the next retry.
                                    std::thread::yield_now();
                                }
                                words[at + 1].store(two + 1, relaxed);
                            }
                        }
                        locks.release(&mut range);
                    }
                });
            }
        });
        let expected: u64 = (0..3_u64)
            .flat_map(|thread| (0..ROUNDS).map(move |round| (thread, round)))
            .filter(|(thread, round)| (round + thread).is_multiple_of(2))
            .map(|(thread, round)| {
                let begin = (round * 7 + thread) % BLOCKS;
                (begin + 1 + round % 3).min(BLOCKS) - begin
            })
            .sum();
        let found: u64 = words
            .iter()
            .step_by(2)
            .map(|word| u64::from(word.load(relaxed)))
            .sum();
        assert_eq!(found, expected);
        assert!(locks.is_free());
    }
}
