//! Locks of sectors, between writes of whole sectors and writes that have to read a sector before they write it.
//!
//! A write of a part of a sector reads it, puts its bytes in, and writes it whole: another write to the same sector in between would be undone.
//! So such a write is alone in its sectors ([`Mode::Exclusive`]), and writes of whole sectors are there together ([`Mode::Shared`]). One lock is for
//! [`GRANULE`] bytes of the file. Nothing waits in here: a write that does not get its locks tries again later.
//!
//! Each session has locks of its own. A worker that is abandoned with its session keeps those that it holds; what it may still write is
//! refused to other sessions by the quarantine instead.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of the file that share a lock.
const GRANULE: u64 = 64 << 10;

/// Number of locks. Parts of the file that are so many granules apart share theirs.
const LOCKS: u64 = 4096;

/// Largest range that can be locked: it has no lock twice.
const LARGEST: u64 = GRANULE * (LOCKS - 1);

const EXCLUSIVE: u32 = 1 << 31;
/// An exclusive one waits: no further shared ones, or it would wait for ever.
const WANTED: u32 = 1 << 30;

/// How sectors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As a whole.
    Shared,
    /// In parts.
    Exclusive,
}

/// The locks of a file, shared by all workers of one session.
#[derive(Debug)]
pub struct SectorLocks(Box<[AtomicU32]>);

impl Default for SectorLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| AtomicU32::new(0)).collect())
    }
}

/// Locks that are held, of a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    mode: Mode,
    offset: u64,
    len: u64,
}

impl SectorLocks {
    /// Locks a range of at least one and at most `LARGEST` bytes (nearly 256 MiB) of the file. `None`: others have a part of it.
    pub fn try_lock(&self, mode: Mode, offset: u64, len: u64) -> Option<Held> {
        debug_assert!((1..=LARGEST).contains(&len), "{len}");
        let granules = granules(offset, len);
        for granule in granules.clone() {
            if !self.try_one(mode, granule) {
                // In the order in which they were taken: it is no matter which are let go first.
                (*granules.start()..granule).for_each(|granule| self.unlock_one(mode, granule));
                return None;
            }
        }
        Some(Held { mode, offset, len })
    }

    /// Unlocks what [`try_lock`](Self::try_lock) has locked.
    pub fn unlock(&self, held: Held) {
        granules(held.offset, held.len).for_each(|granule| self.unlock_one(held.mode, granule));
    }

    /// A write that did not get its locks does not want them any more. Others that wait say again that they do.
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
    fn shared_locks_are_held_together_and_exclusive_ones_alone() {
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
    fn a_range_that_is_not_free_as_a_whole_is_not_locked_in_part() {
        let locks = SectorLocks::default();
        let last = locks
            .try_lock(Mode::Exclusive, 3 * GRANULE, 1)
            .expect("free");
        assert_eq!(locks.try_lock(Mode::Exclusive, 0, 4 * GRANULE), None);
        assert!(locks.try_lock(Mode::Exclusive, 0, 3 * GRANULE).is_some());
        locks.unlock(last);
    }
}
