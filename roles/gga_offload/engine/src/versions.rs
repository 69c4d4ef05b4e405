//! Numbers of writes, and the set of complete and durable writes, whose previous versions the targets can discard.
//!
//! Targets keep earlier versions of a stripe's chunks in addition to the newest one, in a limited number of slots. Each
//! write takes the next number of the session. A flush of all targets in use *retires* the writes that had completed
//! when it started: they are durable on all members, and their chunks, or newer ones, survive any later crash. Writes
//! in flight are not retired: they may not have reached all targets.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use super::chunk::Stamp;

/// Version number of rewritten chunks; writes have higher numbers.
const REPAIR: u64 = 1;

/// Number of the first write of a session.
pub(super) const FIRST: u64 = REPAIR + 1;

/// Maximum number of writes that are not retired, regardless of the number of slots of the targets.
const MOST: u64 = 1 << 14;

/// No write in flight.
const NONE: u64 = u64::MAX;

/// Numbers of a session's writes, shared by its workers.
#[derive(Debug)]
pub struct Versions {
    /// Epoch of all stamps of the session.
    epoch: u64,
    /// The next number.
    next: AtomicU64,
    /// For each worker, a lower bound of the numbers of its writes in flight; [`NONE`] if it has none.
    oldest: Box<[AtomicU64]>,
    /// Writes with lower numbers, and all of earlier epochs, are retired; 0 if none is retired yet.
    retired: AtomicU64,
    /// Number of rewritten chunks.
    repairs: AtomicU64,
    /// Number of these that are retired.
    retired_repairs: AtomicU64,
    /// Durable rewritten chunks, which are retired as soon as all writes that had begun before the flush are retired:
    /// targets free their slots in the order of the log.
    durable_repairs: Mutex<Option<Retirable>>,
    /// `true` if there are durable rewritten chunks.
    has_durable_repairs: AtomicBool,
    /// Maximum number of writes that are not retired; settling may use twice as many in addition.
    limit: u64,
    /// The stripes of the latest writes, at index number modulo length; covers all writes that are not retired.
    stripes: Box<[AtomicU64]>,
    /// `true` while a flush is in progress for the only purpose of retiring writes.
    is_retiring: AtomicBool,
}

/// Writes that a flush retires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Retirable {
    /// Writes with lower numbers; 0 for none.
    number: u64,
    /// The number of the next write when the flush started.
    next: u64,
    /// Number of rewritten chunks.
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
        // The remaining slots are for settling, for versions of earlier epochs and for rewritten chunks.
        let limit = u64::from(slots / 4).clamp(1, MOST);
        // Workers that take numbers concurrently may exceed the limit.
        let most = (limit * 3 + u64::from(workers)).next_power_of_two();
        Self {
            epoch,
            next: AtomicU64::new(FIRST),
            oldest: (0..workers).map(|_| AtomicU64::new(NONE)).collect(),
            retired: AtomicU64::new(0),
            repairs: AtomicU64::new(0),
            retired_repairs: AtomicU64::new(0),
            durable_repairs: Mutex::new(None),
            has_durable_repairs: AtomicBool::new(false),
            limit,
            stripes: (0..most).map(|_| AtomicU64::new(NONE)).collect(),
            is_retiring: AtomicBool::new(false),
        }
    }

    /// Returns the stamp of a new write of this stripe, or of chunks that settle it; `None` while too many writes are
    /// not retired; the caller retries later.
    ///
    /// No write begins before the first flush has retired the writes of earlier epochs. Therefore, in an epoch in which
    /// no write was retired, stripes were only settled.
    #[inline]
    pub(super) fn begin(
        &self,
        in_flight: &mut InFlight,
        stripe: u64,
        is_settling: bool,
    ) -> Option<Stamp> {
        if !is_settling && self.retired() == 0 {
            return None;
        }
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
            // Published before the number is taken, with the same memory order as in `retirable`: either `retirable`
            // sees this bound, or the number taken here is not lower than its result.
            oldest.store(self.next.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        in_flight.numbers.push_back((number, false));
        self.stripe_of(number).store(stripe, Ordering::Release);
        // Before the worker checks which targets are detached: either it sees a detached target, or `recent_stripes`
        // sees this write.
        fence(Ordering::SeqCst);
        Some(Stamp {
            epoch: self.epoch,
            number,
        })
    }

    /// Records that a write has completed on all targets to which it was sent and that are still attached.
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

    fn stripe_of(&self, number: u64) -> &AtomicU64 {
        &self.stripes[number as usize & (self.stripes.len() - 1)]
    }

    /// The stripes of all writes that have begun and are not retired, and of at least as many before them as may have been
    /// in flight at the same time. Targets store writes in any order, so a copy of a target's disk that has the last
    /// write may lack one of these, even if that is retired.
    pub(super) fn recent_stripes(&self) -> impl Iterator<Item = u64> {
        let next = self.next.load(Ordering::SeqCst);
        let first = next
            .saturating_sub(self.limit)
            .min(self.retired())
            .max(FIRST);
        // An entry whose number was just taken may still contain an older stripe; that write has not been sent to any
        // target yet.
        let stripes = (first..next).map(|number| self.stripe_of(number).load(Ordering::Acquire));
        stripes.filter(|&stripe| stripe != NONE)
    }

    /// Records that a chunk was rewritten.
    #[cold]
    pub(super) fn repaired(&self) {
        self.repairs.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns `true` if no further chunks should be rewritten until some of them are retired.
    pub(super) fn has_many_repairs(&self) -> bool {
        self.unretired_repairs() >= self.limit
    }

    fn unretired_repairs(&self) -> u64 {
        let repairs = self.repairs.load(Ordering::Relaxed);
        repairs.saturating_sub(self.retired_repairs.load(Ordering::Relaxed))
    }

    /// Returns the writes that a flush that starts now makes durable if it succeeds on all members.
    pub(super) fn retirable(&self) -> Retirable {
        let repairs = self.repairs.load(Ordering::Acquire);
        let next = self.next.load(Ordering::SeqCst);
        Retirable {
            number: self.retirable_number(),
            next,
            repairs,
        }
    }

    /// All writes with numbers lower than this have completed.
    fn retirable_number(&self) -> u64 {
        let next = self.next.load(Ordering::SeqCst);
        let oldest = self.oldest.iter().map(|it| it.load(Ordering::SeqCst));
        oldest.fold(next, u64::min)
    }

    /// Records that this is durable on all members.
    pub(super) fn retire(&self, retirable: Retirable) {
        self.retired.fetch_max(retirable.number, Ordering::AcqRel);
        if retirable.number == 0 {
            return;
        }
        let retired = self.retired();
        let apply = |it: Retirable| {
            let is_due = it.next <= retired;
            if is_due {
                self.retired_repairs.fetch_max(it.repairs, Ordering::AcqRel);
            }
            is_due
        };
        let mut durable = self
            .durable_repairs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        durable.take_if(|earlier| apply(*earlier));
        if !apply(retirable) {
            durable.get_or_insert(retirable);
        }
        let is_some = durable.is_some();
        self.has_durable_repairs.store(is_some, Ordering::Relaxed);
    }

    /// Number below which all writes are retired; 0 if none is retired yet.
    #[inline]
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.retired.load(Ordering::Acquire)
    }

    /// The stamp below which all writes are retired; its number is 0 if none of this session is retired.
    pub(super) fn retired_stamp(&self) -> Stamp {
        Stamp {
            epoch: self.epoch,
            number: self.retired(),
        }
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

    /// Version under which a target stores a rewritten chunk with this stamp. The version of a write that is not
    /// retired is unchanged, because its previous version may be needed. All other rewritten chunks are retired with
    /// the first writes.
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
        // Other threads may have progressed between the two loads.
        next.saturating_sub(self.retired.load(Ordering::Relaxed).max(FIRST))
    }

    /// Returns `true` if writes should be retired soon, or have never been retired, and no flush for this is in
    /// progress.
    #[inline]
    pub(super) fn should_retire(&self) -> bool {
        // Versions of earlier epochs are retired immediately.
        let is_due = self.retired.load(Ordering::Relaxed) == 0
            || self.unretired() + self.unretired_repairs() > self.limit / 2;
        is_due && !self.is_retiring.load(Ordering::Relaxed) && !self.is_blocked()
    }

    /// Returns `true` if a flush would not retire any write: repairs wait for a write in flight.
    #[cold]
    fn is_blocked(&self) -> bool {
        self.has_durable_repairs.load(Ordering::Relaxed)
            && self.retirable_number() <= self.retired()
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

    /// Numbers of a session that has retired the writes of earlier epochs.
    fn versions(workers: u32, slots: u32) -> Versions {
        let versions = Versions::new(7, workers, slots);
        versions.retire(versions.retirable());
        versions
    }

    #[test]
    fn writes_in_flight_are_not_retirable() {
        let versions = versions(2, 100);
        let (mut a, mut b) = (InFlight::new(0, 8), InFlight::new(1, 8));
        assert_eq!(versions.retirable().number, 2);
        let first = versions.begin(&mut a, 0, false);
        let second = versions.begin(&mut b, 0, false);
        let third = versions.begin(&mut a, 0, false);
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
        let versions = versions(1, 100);
        let mut in_flight = InFlight::new(0, 8);
        let stamps = [(); 3].map(|()| versions.begin(&mut in_flight, 0, false).expect("a stamp"));
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
            ..Retirable::default()
        });
        assert_eq!(versions.of_repair(stamp(7, 5)), stamp(7, 5));
        assert_eq!(versions.of_repair(stamp(7, 6)), stamp(7, 6));
        assert_eq!(versions.of_repair(stamp(7, 4)), stamp(7, REPAIR));
        assert_eq!(versions.of_repair(stamp(6, 9)), stamp(7, REPAIR));
    }

    #[test]
    fn writes_wait_while_too_many_are_not_retired() {
        let versions = versions(1, 16);
        let mut in_flight = InFlight::new(0, 8);
        for _ in 0..4 {
            let stamp = versions
                .begin(&mut in_flight, 0, false)
                .expect("within the limit");
            versions.end(&mut in_flight, stamp);
        }
        assert_eq!(versions.begin(&mut in_flight, 0, false), None);
        let settling = versions
            .begin(&mut in_flight, 0, true)
            .expect("more for settling");
        versions.end(&mut in_flight, settling);
        assert!(versions.should_retire());
        assert!(versions.begin_retiring() && !versions.begin_retiring());
        assert!(!versions.should_retire());
        versions.retire(versions.retirable());
        versions.end_retiring();
        assert!(!versions.should_retire());
        assert_eq!(number(versions.begin(&mut in_flight, 0, false)), 7);
    }

    /// A number that was reported as retirable never belongs to a write that begins later or is in flight.
    #[test]
    fn no_write_of_another_thread_is_retired_early() {
        let versions = versions(2, u32::MAX);
        std::thread::scope(|scope| {
            for worker in 0..2 {
                let versions = &versions;
                scope.spawn(move || {
                    let mut in_flight = InFlight::new(worker, 8);
                    for _ in 0..50_000 {
                        let stamp = loop {
                            match versions.begin(&mut in_flight, 0, false) {
                                Some(stamp) => break stamp,
                                None => versions.retire(versions.retirable()),
                            }
                        };
                        assert!(versions.retirable().number <= stamp.number);
                        versions.end(&mut in_flight, stamp);
                    }
                });
            }
        });
        assert_eq!(versions.retirable().number, 100_002);
    }

    #[test]
    fn no_write_begins_before_those_of_earlier_epochs_are_retired() {
        let versions = Versions::new(7, 1, 16);
        let mut in_flight = InFlight::new(0, 8);
        assert_eq!(versions.begin(&mut in_flight, 0, false), None);
        let settling = versions.begin(&mut in_flight, 0, true);
        versions.end(&mut in_flight, settling.expect("a stamp"));
        assert_eq!(versions.begin(&mut in_flight, 0, false), None);
        versions.retire(versions.retirable());
        assert_eq!(number(versions.begin(&mut in_flight, 0, false)), 3);
    }

    #[test]
    fn stripes_of_recent_writes_are_known() {
        let versions = versions(2, 16);
        let (mut a, mut b) = (InFlight::new(0, 8), InFlight::new(1, 8));
        let stripes = || Vec::from_iter(versions.recent_stripes());
        assert_eq!(stripes(), [0; 0]);
        let first = versions.begin(&mut a, 40, false).expect("a stamp");
        let second = versions.begin(&mut b, 50, false).expect("a stamp");
        assert_eq!(stripes(), [40, 50], "in flight");
        versions.end(&mut a, first);
        versions.end(&mut b, second);
        assert_eq!(stripes(), [40, 50], "complete, and not flushed");
        let retirable = versions.retirable();
        let third = versions.begin(&mut a, 60, false).expect("a stamp");
        versions.retire(retirable);
        // The first two are retired, and may have been in flight beside the third.
        assert_eq!(stripes(), [40, 50, 60]);
        let settling = Vec::from_iter((0..11).map(|_| versions.begin(&mut b, 70, true)));
        assert!(settling.iter().all(Option::is_some));
        assert_eq!(versions.begin(&mut b, 70, true), None);
        assert_eq!(
            stripes(),
            [vec![60], vec![70; 11]].concat(),
            "all that are not retired"
        );
        settling
            .into_iter()
            .flatten()
            .for_each(|stamp| versions.end(&mut b, stamp));
        versions.end(&mut a, third);
        versions.retire(versions.retirable());
        // The list wraps around many times.
        for stripe in 0..100 {
            let stamp = versions.begin(&mut b, stripe, false).expect("a stamp");
            versions.end(&mut b, stamp);
            assert_eq!(stripes().last(), Some(&stripe));
            versions.retire(Retirable {
                number: stamp.number + 1,
                ..Retirable::default()
            });
            let retired = stripes();
            assert_eq!((retired.len(), retired.last()), (4, Some(&stripe)));
        }
    }

    /// Targets free the slots of their logs in order, so a rewritten chunk keeps its slot until the writes before it
    /// are retired.
    #[test]
    fn repairs_are_retired_with_the_writes_that_began_before_them() {
        let versions = versions(1, 16);
        let mut in_flight = InFlight::new(0, 8);
        let flush = || versions.retire(versions.retirable());
        let repair = || (0..4).for_each(|_| versions.repaired());
        repair();
        assert!(versions.has_many_repairs());
        flush();
        assert!(!versions.has_many_repairs(), "no write is in flight");
        let slow = versions.begin(&mut in_flight, 0, false).expect("a stamp");
        repair();
        flush();
        flush();
        assert!(versions.has_many_repairs());
        versions.end(&mut in_flight, slow);
        let next = versions.begin(&mut in_flight, 0, false).expect("a stamp");
        flush();
        assert!(
            !versions.has_many_repairs(),
            "the next one began after them"
        );
        versions.end(&mut in_flight, next);
    }
}
