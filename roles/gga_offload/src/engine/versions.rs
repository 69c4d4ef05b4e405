//! Numbers of writes, and which of them are complete and durable, so that targets need not keep the versions that they replaced.
//!
//! Targets keep earlier versions of a stripe's chunks beside the newest one, in a limited number of slots. Each write takes the next number of the
//! session. A flush of all targets in use *retires* the writes that had completed when it started: they are durable on all members, and a later crash of any
//! kind leaves at least their chunks. Writes in flight are not retired: on some targets, they may not have arrived.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::chunk::Stamp;

/// Number of the version of chunks that are made again; writes have higher ones.
const REPAIR: u64 = 1;

/// Number of the first write of a session.
pub(super) const FIRST: u64 = REPAIR + 1;

/// No write in flight.
const NONE: u64 = u64::MAX;

/// Numbers of a session's writes, shared by its workers.
#[derive(Debug)]
pub struct Versions {
    /// Epoch of all stamps of the session.
    epoch: u64,
    /// The next number.
    next: AtomicU64,
    /// A number that is not higher than that of any write in flight, for each worker; [`NONE`] if it has none.
    oldest: Box<[AtomicU64]>,
    /// Writes with lower numbers are retired, and so are all of earlier epochs; 0 for none yet.
    retired: AtomicU64,
    /// Number of chunks that were made again.
    repairs: AtomicU64,
    /// Number of these that are retired.
    retired_repairs: AtomicU64,
    /// Maximum number of writes that are not retired; settling may take twice as many in addition.
    limit: u64,
    /// `true` while a flush is in progress for the only purpose of retiring writes.
    is_retiring: AtomicBool,
}

/// Writes that a flush retires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Retirable {
    /// Writes with lower numbers; 0 for none.
    number: u64,
    /// Number of chunks that were made again.
    repairs: u64,
}

/// A worker's writes in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    worker: usize,
    /// Numbers in ascending order, `true` for completed ones. The first one is in flight.
    numbers: VecDeque<(u64, bool)>,
}

impl InFlight {
    /// Creates the empty list of a worker with at most `writes` writes in flight.
    pub(super) fn new(worker: u32, writes: usize) -> Self {
        Self {
            worker: worker as usize,
            numbers: VecDeque::with_capacity(writes * 2),
        }
    }
}

impl Versions {
    /// Creates the numbers of a session with this epoch and number of workers. `slots` is the number of additional versions that each target can keep.
    #[must_use]
    pub fn new(epoch: u64, workers: u32, slots: u32) -> Self {
        Self {
            epoch,
            next: AtomicU64::new(FIRST),
            oldest: (0..workers).map(|_| AtomicU64::new(NONE)).collect(),
            retired: AtomicU64::new(0),
            repairs: AtomicU64::new(0),
            retired_repairs: AtomicU64::new(0),
            // The rest is for settling, and for versions of earlier epochs and of chunks that are made again.
            limit: u64::from(slots / 4).max(1),
            is_retiring: AtomicBool::new(false),
        }
    }

    /// Returns the stamp of a new write, or of chunks that settle a stripe; `None` while too many are not retired: retry later.
    #[inline]
    pub(super) fn begin(&self, in_flight: &mut InFlight, is_settling: bool) -> Option<Stamp> {
        let limit = if is_settling {
            self.limit * 3
        } else {
            self.limit
        };
        if self.unretired() >= limit {
            return None;
        }
        let oldest = &self.oldest[in_flight.worker];
        if in_flight.numbers.is_empty() {
            // Published before the number is taken, with the order of `retirable`: either that sees this bound, or the number taken here is not lower than its
            // result.
            oldest.store(self.next.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        in_flight.numbers.push_back((number, false));
        Some(Stamp {
            epoch: self.epoch,
            number,
        })
    }

    /// Records that a write has completed, on all targets that it was sent to and that are still in use.
    #[inline]
    pub(super) fn end(&self, in_flight: &mut InFlight, stamp: Stamp) {
        let numbers = &mut in_flight.numbers;
        if let Ok(at) = numbers.binary_search_by_key(&stamp.number, |&(number, _)| number) {
            numbers[at].1 = true;
        }
        while numbers.front().is_some_and(|&(_, is_done)| is_done) {
            numbers.pop_front();
        }
        let oldest = numbers.front().map_or(NONE, |&(number, _)| number);
        self.oldest[in_flight.worker].store(oldest, Ordering::SeqCst);
    }

    /// Records that a chunk was made again.
    #[cold]
    pub(super) fn repaired(&self) {
        self.repairs.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns `true` if no more chunks should be made again until some are retired.
    pub(super) fn has_many_repairs(&self) -> bool {
        self.unretired_repairs() >= self.limit
    }

    fn unretired_repairs(&self) -> u64 {
        let repairs = self.repairs.load(Ordering::Relaxed);
        repairs.saturating_sub(self.retired_repairs.load(Ordering::Relaxed))
    }

    /// Returns the writes that a flush makes durable which starts now and succeeds on all members.
    pub(super) fn retirable(&self) -> Retirable {
        let repairs = self.repairs.load(Ordering::Acquire);
        Retirable {
            number: self.retirable_number(),
            repairs,
        }
    }

    /// Writes with lower numbers than this have completed.
    fn retirable_number(&self) -> u64 {
        let next = self.next.load(Ordering::SeqCst);
        let oldest = self.oldest.iter().map(|it| it.load(Ordering::SeqCst));
        oldest.fold(next, u64::min)
    }

    /// Records that this is durable on all members.
    pub(super) fn retire(&self, retirable: Retirable) {
        self.retired.fetch_max(retirable.number, Ordering::AcqRel);
        self.retired_repairs
            .fetch_max(retirable.repairs, Ordering::AcqRel);
    }

    /// Number below which all writes are retired; 0 for none yet.
    #[inline]
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.retired.load(Ordering::Acquire)
    }

    /// As [`retired`](Self::retired), for a message with a stamp of this epoch: 0 for another epoch than the session's.
    #[inline]
    #[must_use]
    pub fn retired_for(&self, epoch: u64) -> u64 {
        if epoch == self.epoch {
            self.retired()
        } else {
            0
        }
    }

    /// Epoch of all stamps of the session.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Version under which a target stores a chunk with this stamp that is made again. That of a write that is not retired stays as it is, because what it replaces
    /// may be needed. All others are retired with the first writes.
    pub(super) fn of_repair(&self, stamp: Stamp) -> Stamp {
        let is_retired = stamp.epoch < self.epoch || stamp.number < self.retired().max(FIRST);
        if is_retired {
            Stamp {
                epoch: self.epoch,
                number: REPAIR,
            }
        } else {
            stamp
        }
    }

    fn unretired(&self) -> u64 {
        let next = self.next.load(Ordering::Relaxed);
        next - self.retired.load(Ordering::Relaxed).max(FIRST)
    }

    /// Returns `true` if writes should be retired soon, or never were, and nothing does so yet.
    #[inline]
    pub(super) fn should_retire(&self) -> bool {
        // Versions of earlier epochs are retired at once.
        let is_due = self.retired.load(Ordering::Relaxed) == 0
            || self.unretired() + self.unretired_repairs() > self.limit / 2;
        is_due && !self.is_retiring.load(Ordering::Relaxed)
    }

    /// Starts a flush whose only purpose is to retire writes. Returns `false` if one is in progress.
    pub(super) fn begin_retiring(&self) -> bool {
        !self.is_retiring.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_retiring(&self) {
        self.is_retiring.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(stamp: Option<Stamp>) -> u64 {
        let stamp = stamp.expect("there are slots");
        assert_eq!(stamp.epoch, 7);
        stamp.number
    }

    #[test]
    fn writes_in_flight_are_not_retirable() {
        let versions = Versions::new(7, 2, 100);
        let (mut a, mut b) = (InFlight::new(0, 8), InFlight::new(1, 8));
        assert_eq!(versions.retirable().number, 2);
        let first = versions.begin(&mut a, false);
        let second = versions.begin(&mut b, false);
        let third = versions.begin(&mut a, false);
        assert_eq!([first, second, third].map(number), [2, 3, 4]);
        assert_eq!(versions.retirable().number, 2);
        versions.end(&mut a, first.expect("a stamp"));
        assert_eq!(versions.retirable().number, 3);
        versions.end(&mut a, third.expect("a stamp"));
        assert_eq!(versions.retirable().number, 3, "the second is in flight");
        versions.end(&mut b, second.expect("a stamp"));
        assert_eq!(versions.retirable().number, 5);
        versions.retire(versions.retirable());
        versions.retire(Retirable::default());
        assert_eq!(versions.retired(), 5);
    }

    #[test]
    fn oldest_write_in_flight_of_a_worker_is_not_retirable() {
        let versions = Versions::new(7, 1, 100);
        let mut in_flight = InFlight::new(0, 8);
        let stamps = [(); 3].map(|()| versions.begin(&mut in_flight, false).expect("a stamp"));
        versions.end(&mut in_flight, stamps[0]);
        assert_eq!(versions.retirable().number, stamps[1].number);
        versions.end(&mut in_flight, stamps[2]);
        assert_eq!(versions.retirable().number, stamps[1].number);
    }

    #[test]
    fn repaired_chunk_of_a_write_that_is_not_retired_keeps_its_stamp() {
        let versions = Versions::new(7, 1, 100);
        let stamp = |epoch, number| Stamp { epoch, number };
        versions.retire(Retirable {
            number: 5,
            repairs: 0,
        });
        assert_eq!(versions.of_repair(stamp(7, 5)), stamp(7, 5));
        assert_eq!(versions.of_repair(stamp(7, 6)), stamp(7, 6));
        assert_eq!(versions.of_repair(stamp(7, 4)), stamp(7, REPAIR));
        assert_eq!(versions.of_repair(stamp(6, 9)), stamp(7, REPAIR));
    }

    #[test]
    fn writes_wait_while_too_many_are_not_retired() {
        let versions = Versions::new(7, 1, 16);
        let mut in_flight = InFlight::new(0, 8);
        for _ in 0..4 {
            let stamp = versions
                .begin(&mut in_flight, false)
                .expect("within the limit");
            versions.end(&mut in_flight, stamp);
        }
        assert_eq!(versions.begin(&mut in_flight, false), None);
        let settling = versions
            .begin(&mut in_flight, true)
            .expect("more for settling");
        versions.end(&mut in_flight, settling);
        assert!(versions.should_retire());
        assert!(versions.begin_retiring() && !versions.begin_retiring());
        assert!(!versions.should_retire());
        versions.retire(versions.retirable());
        versions.end_retiring();
        assert!(!versions.should_retire());
        assert_eq!(number(versions.begin(&mut in_flight, false)), 7);
    }

    /// A number that was reported as retirable is never that of a write that begins later or is in flight.
    #[test]
    fn no_write_of_another_thread_is_retired_early() {
        let versions = Versions::new(7, 2, u32::MAX);
        std::thread::scope(|scope| {
            for worker in 0..2 {
                let versions = &versions;
                scope.spawn(move || {
                    let mut in_flight = InFlight::new(worker, 8);
                    for _ in 0..50_000 {
                        let stamp = versions.begin(&mut in_flight, false).expect("unlimited");
                        assert!(versions.retirable().number <= stamp.number);
                        versions.end(&mut in_flight, stamp);
                    }
                });
            }
        });
        assert_eq!(versions.retirable().number, 100_002);
    }
}
