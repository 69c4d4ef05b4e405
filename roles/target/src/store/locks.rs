//! Sector locks between writes of whole sectors and read-modify-writes.
//!
//! A partial write of a sector reads it, modifies it and writes it: another write to the same sector in between would
//! be lost. So such a write holds its sectors exclusively ([`Mode::Exclusive`]), and writes of whole sectors share
//! them ([`Mode::Shared`]). A lock covers [`GRANULE`] bytes of the file: a larger one would serialize small writes that
//! are neighbours and not the same. Nothing blocks here: a write that does not get its locks retries later.
//!
//! Locks are per session. An abandoned worker keeps its locks; other sessions are protected from its writes by the
//! quarantine.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of the file covered by a lock: the largest unit of a read-modify-write.
const GRANULE: u64 = 4096;

/// Number of locks. Granules at multiples of this distance share a lock.
const LOCKS: u64 = 8192;

/// Maximum length of a locked range: it uses no lock twice.
const LARGEST: u64 = GRANULE * (LOCKS - 1);

const EXCLUSIVE: u32 = 1 << 31;
/// An exclusive lock is wanted: refuses further shared ones, to avoid starvation.
const WANTED: u32 = 1 << 30;

/// Lock mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For writes of whole sectors.
    Shared,
    /// For writes of partial sectors.
    Exclusive,
}

/// The locks of a file, shared by all workers of a session.
#[derive(Debug)]
pub struct SectorLocks(Box<[AtomicU32]>);

impl Default for SectorLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| AtomicU32::new(0)).collect())
    }
}

/// A locked range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    mode: Mode,
    offset: u64,
    len: u64,
}

impl SectorLocks {
    /// Locks a range of the file of at least one and at most `LARGEST` bytes (nearly 32 MiB). Returns `None` if a
    /// part of it is locked.
    pub fn try_lock(&self, mode: Mode, offset: u64, len: u64) -> Option<Held> {
        debug_assert!((1..=LARGEST).contains(&len), "{len}");
        let granules = granules(offset, len);
        for granule in granules.clone() {
            if !self.try_one(mode, granule) {
                // In locking order; the order of release does not matter.
                (*granules.start()..granule).for_each(|granule| self.unlock_one(mode, granule));
                return None;
            }
        }
        Some(Held { mode, offset, len })
    }

    /// Releases a lock taken by [`try_lock`](Self::try_lock).
    pub fn unlock(&self, held: Held) {
        granules(held.offset, held.len).for_each(|granule| self.unlock_one(held.mode, granule));
    }

    /// Withdraws the request for an exclusive lock. Other waiting requests are repeated by their owners.
    pub fn give_up(&self, offset: u64, len: u64) {
        for granule in granules(offset, len) {
            self.word(granule).fetch_and(!WANTED, Ordering::Relaxed);
        }
    }

    fn word(&self, granule: u64) -> &AtomicU32 {
        &self.0[(granule % LOCKS) as usize]
    }

    fn try_one(&self, mode: Mode, granule: u64) -> bool {
        let word = self.word(granule);
        match mode {
            Mode::Shared => word
                .try_update(Ordering::Acquire, Ordering::Relaxed, |value| {
                    (value & (EXCLUSIVE | WANTED) == 0).then_some(value + 1)
                })
                .is_ok(),
            Mode::Exclusive => {
                let taken = word.try_update(Ordering::Acquire, Ordering::Relaxed, |value| {
                    (value & !WANTED == 0).then_some(EXCLUSIVE)
                });
                if taken.is_err() {
                    word.fetch_or(WANTED, Ordering::Relaxed);
                }
                taken.is_ok()
            }
        }
    }

    fn unlock_one(&self, mode: Mode, granule: u64) {
        let word = self.word(granule);
        match mode {
            Mode::Shared => word.fetch_sub(1, Ordering::Release),
            Mode::Exclusive => word.fetch_and(!EXCLUSIVE, Ordering::Release),
        };
    }
}

fn granules(offset: u64, len: u64) -> RangeInclusive<u64> {
    offset / GRANULE..=(offset + len - 1) / GRANULE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_locks_coexist_and_exclusive_locks_do_not() {
        let locks = SectorLocks::default();
        let one = locks.try_lock(Mode::Shared, 0, 4096).expect("free");
        let two = locks.try_lock(Mode::Shared, 512, GRANULE).expect("shared");
        assert_eq!(locks.try_lock(Mode::Exclusive, 0, 512), None);
        assert_eq!(
            locks.try_lock(Mode::Shared, 0, 512),
            None,
            "an exclusive one waits"
        );
        locks.unlock(one);
        assert_eq!(locks.try_lock(Mode::Exclusive, 0, 512), None);
        locks.unlock(two);
        let alone = locks.try_lock(Mode::Exclusive, 0, 512).expect("free");
        assert_eq!(locks.try_lock(Mode::Exclusive, 100, 512), None);
        assert!(locks.try_lock(Mode::Shared, 2 * GRANULE, 512).is_some());
        locks.unlock(alone);
        locks.give_up(100, 512);
        assert!(locks.try_lock(Mode::Shared, 0, 512).is_some());
    }

    #[test]
    fn partly_locked_range_is_not_locked_at_all() {
        let locks = SectorLocks::default();
        let last = locks
            .try_lock(Mode::Exclusive, 3 * GRANULE, 1)
            .expect("free");
        assert_eq!(locks.try_lock(Mode::Exclusive, 0, 4 * GRANULE), None);
        assert!(locks.try_lock(Mode::Exclusive, 0, 3 * GRANULE).is_some());
        locks.unlock(last);
    }
}
