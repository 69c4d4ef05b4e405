//! State of single stripes, shared by all workers: locks ([`StripeLocks`]), and stripes that a target has missed
//! ([`StripeBitmap`], in memory of bounded size), and those whose last write was interrupted ([`StripeSet`]).
//!
//! # Locks
//!
//! A write changes three chunks on three targets, in no particular order: a concurrent read would see chunks of
//! different writes, and a concurrent write could leave them. Therefore I/Os on one stripe are queued: each takes a
//! ticket, and they are served in the order of the tickets, consecutive reads concurrently. No call blocks: the owner
//! of a ticket polls until it is served. Without contention, this takes two atomic additions on a cache line that other
//! workers rarely use. With a single worker the additions are not atomic: an atomic addition waits until the core's
//! stores have completed, including those to the memory of other processes, which took 2 % of the time of a read
//! (measured).
//!
//! Stripes share a fixed number of locks. I/Os on two stripes of one lock wait for each other, which is slow but rare,
//! and an I/O never queues for two locks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::chunk::Stamp;

/// Locks for each slot of the engines: enough to make collisions rare.
const LOCKS_PER_TRANSACTION: u64 = 16;
/// Minimum and maximum number of locks: 16 KiB and 1 MiB.
const LOCKS: (u64, u64) = (1 << 10, 1 << 16);

/// Mode of a stripe lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Shared with other reads.
    Read,
    /// Exclusive.
    Write,
}

/// A place in the queue for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u32);

/// A ticket lock for readers and writers. Four locks share a cache line, and only as many as needed are allocated: I/Os
/// take locks at random, so all of them should fit in a core's cache, while two workers should rarely contend for the
/// same lock. Tickets may wrap around, because the number of outstanding tickets is far smaller.
#[repr(align(16))]
#[derive(Debug, Default)]
struct Lock {
    /// The next ticket to be issued.
    next: AtomicU32,
    /// A read with this ticket may proceed: all earlier writes have completed.
    readers: AtomicU32,
    /// A write with this ticket may proceed: all earlier reads and writes have completed.
    writers: AtomicU32,
}

/// The locks of all stripes.
#[derive(Debug)]
pub struct StripeLocks {
    /// The locks, whose number is a power of two.
    locks: Box<[Lock]>,
    /// `true` if there are several workers.
    is_shared: bool,
}

impl StripeLocks {
    /// Creates the locks for a session with this many workers and this many transactions in total.
    ///
    /// With one worker, only that worker's thread may use them.
    pub fn new(workers: u32, transactions: u64) -> Self {
        let wanted = transactions.saturating_mul(LOCKS_PER_TRANSACTION);
        Self::with_locks(workers, wanted.clamp(LOCKS.0, LOCKS.1))
    }

    /// Creates at least this number of locks, and two at least.
    pub fn with_locks(workers: u32, locks: u64) -> Self {
        let locks = locks.max(2).next_power_of_two();
        Self {
            locks: (0..locks).map(|_| Lock::default()).collect(),
            is_shared: workers > 1,
        }
    }

    /// The lock of a stripe; neighbouring stripes have different locks.
    #[inline]
    pub fn of(&self, stripe: u64) -> usize {
        // The multiplier spreads stripes that are a power of two apart, such as those of different workers.
        (stripe.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.locks.len().trailing_zeros()))
            as usize
    }

    /// Takes a ticket. The ticket must be locked and unlocked, because later tickets wait for it.
    #[inline]
    pub fn queue(&self, lock: usize) -> Ticket {
        Ticket(self.add_one(&self.locks[lock].next, Ordering::Relaxed))
    }

    /// Locks with a ticket, if all earlier tickets have been served.
    #[inline]
    pub fn try_lock(&self, lock: usize, ticket: Ticket, access: Access) -> bool {
        let lock = &self.locks[lock];
        match access {
            Access::Read => {
                let is_served = lock.readers.load(Ordering::Acquire) == ticket.0;
                if is_served {
                    // The next owner may read, too. Only the owner of this ticket changes the word now.
                    lock.readers
                        .store(ticket.0.wrapping_add(1), Ordering::Release);
                }
                is_served
            }
            Access::Write => lock.writers.load(Ordering::Acquire) == ticket.0,
        }
    }

    #[inline]
    pub fn unlock(&self, lock: usize, ticket: Ticket, access: Access) {
        let lock = &self.locks[lock];
        match access {
            Access::Read => {
                self.add_one(&lock.writers, Ordering::Release);
            }
            Access::Write => {
                // The readers' word first: the other word serves the next write, which must not complete before both
                // words are changed. It is added to instead of set, because concurrent reads may have completed and
                // added to it.
                lock.readers
                    .store(ticket.0.wrapping_add(1), Ordering::Release);
                self.add_one(&lock.writers, Ordering::Release);
            }
        }
    }

    /// Increments a word of a lock, and returns its previous value.
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

/// Maximum number of bits: 2 MiB of memory. In a larger storage, a bit represents several stripes.
const MAX_BITS: u64 = 1 << 24;

/// A set of stripes, shared by all threads. In a large storage, a bit represents a run of adjacent stripes, which are added and removed
/// together.
///
/// Stripe locks order the accesses of different threads to the bit of a stripe: the owner of a lock sees all changes made under it before.
#[derive(Debug)]
pub struct StripeBitmap {
    words: Box<[AtomicU64]>,
    /// Runs that are in the set.
    runs: AtomicU64,
    /// Binary logarithm of the number of stripes per run.
    shift: u32,
    stripes: u64,
}

impl StripeBitmap {
    /// Creates an empty set for this many stripes.
    pub fn new(stripes: u64) -> Self {
        Self::with_bits(stripes, MAX_BITS)
    }

    /// Creates an empty set with at most this many bits.
    pub fn with_bits(stripes: u64, most: u64) -> Self {
        let mut shift = 0;
        while stripes != 0 && ((stripes - 1) >> shift) + 1 > most {
            shift += 1;
        }
        let runs = stripes.div_ceil(1 << shift);
        Self {
            words: (0..runs.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            runs: AtomicU64::new(0),
            shift,
            stripes,
        }
    }

    /// Returns a set with the same contents.
    pub(super) fn copy(&self) -> Self {
        let word = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Acquire));
        let words: Box<[AtomicU64]> = self.words.iter().map(word).collect();
        let ones = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        Self {
            runs: AtomicU64::new(words.iter().map(ones).sum()),
            words,
            shift: self.shift,
            stripes: self.stripes,
        }
    }

    /// Number of stripes in the range of the set, whether or not it contains them.
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    fn place(run: u64) -> (usize, u64) {
        ((run / 64) as usize, 1 << (run % 64))
    }

    #[cold]
    pub fn insert(&self, stripe: u64) {
        let (word, bit) = Self::place(stripe >> self.shift);
        if self.words[word].fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.runs.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub fn insert_all(&self) {
        let runs = self.run_count();
        for run in 0..runs {
            let (word, bit) = Self::place(run);
            self.words[word].fetch_or(bit, Ordering::AcqRel);
        }
        self.runs.store(runs, Ordering::Release);
    }

    fn run_count(&self) -> u64 {
        self.stripes.div_ceil(1 << self.shift)
    }

    /// Returns `true` if the stripe, or another stripe of its run, is in the set.
    pub fn contains(&self, stripe: u64) -> bool {
        let (word, bit) = Self::place(stripe >> self.shift);
        self.words[word].load(Ordering::Acquire) & bit != 0
    }
}

/// Stripes in runs of adjacent stripes, which are removed together.
pub(super) trait Runs {
    /// Number of stripes, counting whole runs.
    fn len(&self) -> u64;

    /// Index of the run of a stripe.
    fn run_of(&self, stripe: u64) -> u64;

    /// All stripes of a run.
    fn stripes_of(&self, run: u64) -> Range<u64>;

    /// Returns the first run at or after `from`.
    fn next_run(&self, from: u64) -> Option<u64>;

    fn remove_run(&self, run: u64);
}

impl Runs for StripeBitmap {
    fn len(&self) -> u64 {
        let runs = self.runs.load(Ordering::Acquire);
        runs.saturating_mul(1 << self.shift).min(self.stripes)
    }

    fn run_of(&self, stripe: u64) -> u64 {
        stripe >> self.shift
    }

    fn stripes_of(&self, run: u64) -> Range<u64> {
        let begin = run << self.shift;
        begin..begin.saturating_add(1 << self.shift).min(self.stripes)
    }

    /// Returns the first run in the set at or after `from`.
    fn next_run(&self, from: u64) -> Option<u64> {
        let (first, _) = Self::place(from);
        let words = self.words.iter().enumerate().skip(first);
        words
            .map(|(index, word)| {
                let word = word.load(Ordering::Acquire);
                // In the first word, the runs before `from` are masked.
                let word = if index == first {
                    word & (u64::MAX << (from % 64))
                } else {
                    word
                };
                (index as u64 * 64 + u64::from(word.trailing_zeros()), word)
            })
            .find(|(_, word)| *word != 0)
            .map(|(run, _)| run)
    }

    fn remove_run(&self, run: u64) {
        let (word, bit) = Self::place(run);
        if self.words[word].fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
            self.runs.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// A small set of stripes, shared by all threads: those whose last write was interrupted. Unlike a [`StripeBitmap`], it
/// contains individual stripes in a storage of any size, because settling a stripe takes one of a limited number of
/// write numbers.
///
/// Stripe locks order the accesses of different threads to a stripe, as for the bitmap.
#[derive(Debug, Default)]
pub struct StripeSet {
    /// Number of stripes, so that the usual case of an empty set needs no lock.
    len: AtomicU64,
    /// Each with the stamp of the interrupted write, if that began in this session: writes with lower stamps had
    /// completed.
    stripes: Mutex<BTreeMap<u64, Option<Stamp>>>,
}

impl StripeSet {
    /// Returns `true` if the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Adds a stripe whose last write was interrupted, with the stamp of the write if it began in this session. Has no
    /// effect if an earlier interrupted write of the stripe has not been settled.
    #[cold]
    pub fn insert(&self, stripe: u64, write: Option<Stamp>) {
        let mut stripes = self.stripes();
        stripes.entry(stripe).or_insert(write);
        self.len.store(stripes.len() as u64, Ordering::Release);
    }

    #[cold]
    pub fn remove(&self, stripe: u64) {
        let mut stripes = self.stripes();
        stripes.remove(&stripe);
        self.len.store(stripes.len() as u64, Ordering::Release);
    }

    #[inline]
    pub fn contains(&self, stripe: u64) -> bool {
        !self.is_empty() && self.stripes().contains_key(&stripe)
    }

    /// The stamp of the write that was interrupted first, if it began in this session.
    pub fn interrupted(&self, stripe: u64) -> Option<Stamp> {
        if self.is_empty() {
            return None;
        }
        self.stripes().get(&stripe).copied().flatten()
    }

    fn stripes(&self) -> MutexGuard<'_, BTreeMap<u64, Option<Stamp>>> {
        // A set is complete after each change, so also after a panic.
        self.stripes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each stripe is a separate run.
impl Runs for StripeSet {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn run_of(&self, stripe: u64) -> u64 {
        stripe
    }

    fn stripes_of(&self, run: u64) -> Range<u64> {
        run..run.saturating_add(1)
    }

    fn next_run(&self, from: u64) -> Option<u64> {
        self.stripes()
            .range(from..)
            .next()
            .map(|(stripe, _)| *stripe)
    }

    fn remove_run(&self, run: u64) {
        self.remove(run);
    }
}

// The order in which stripes are rebuilt or verified.

/// A pass over a set of stripes: tracks stripes in progress and completed stripes. A run is removed from the set when
/// all its stripes have completed; runs with failed stripes remain for the next pass.
#[derive(Debug)]
pub(super) struct Pass {
    /// Number of stripes in the set at the beginning.
    total: u64,
    done: u64,
    /// Stripes of the last run in `open` that were not started.
    current: Range<u64>,
    /// Runs that were started.
    open: Vec<OpenRun>,
    /// Start of the search for the next run.
    next_run: u64,
    /// Number of failed stripes of this pass.
    failed: u64,
}

#[derive(Debug)]
struct OpenRun {
    run: u64,
    /// Number of stripes that have not completed yet.
    left: u64,
    has_failed: bool,
}

/// The next step of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Stripe(u64),
    /// Wait until stripes in progress have completed.
    Wait,
    /// The pass is complete, with this many failed stripes.
    EndOfPass {
        /// Retried in the next pass.
        failed: u64,
    },
    /// The set is empty.
    Complete,
}

impl Pass {
    pub(super) fn new(stripes: &dyn Runs) -> Self {
        Self {
            total: stripes.len(),
            done: 0,
            current: 0..0,
            open: Vec::new(),
            next_run: 0,
            failed: 0,
        }
    }

    /// Number of completed stripes, and number of stripes that were in the set at the start.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// Returns the next stripe. After the end of a pass, the next call starts another one.
    pub(super) fn next(&mut self, stripes: &dyn Runs) -> Next {
        if let Some(stripe) = self.current.next() {
            return Next::Stripe(stripe);
        }
        if let Some(run) = stripes.next_run(self.next_run) {
            self.next_run = run + 1;
            self.current = stripes.stripes_of(run);
            self.open.push(OpenRun {
                run,
                left: self.current.end - self.current.start,
                has_failed: false,
            });
            return self.next(stripes);
        }
        if !self.open.is_empty() {
            return Next::Wait;
        }
        self.next_run = 0;
        match stripes.next_run(0) {
            None => Next::Complete,
            Some(_) => Next::EndOfPass {
                failed: std::mem::take(&mut self.failed),
            },
        }
    }

    /// Records the completion or failure of a stripe.
    pub(super) fn finish(&mut self, stripes: &dyn Runs, stripe: u64, is_done: bool) {
        let run = stripes.run_of(stripe);
        let Some(place) = self.open.iter().position(|open| open.run == run) else {
            return;
        };
        let open = &mut self.open[place];
        open.left -= 1;
        open.has_failed |= !is_done;
        if is_done {
            self.done += 1;
        } else {
            self.failed += 1;
        }
        if open.left == 0 {
            if !open.has_failed {
                stripes.remove_run(run);
            }
            self.open.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
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

    /// Writes before the first interrupted one were complete, later ones were not.
    #[test]
    fn stamp_of_the_first_interrupted_write_is_kept() {
        let stamp = |number| Some(Stamp { epoch: 1, number });
        let set = StripeSet::default();
        set.insert(5, stamp(3));
        set.insert(5, stamp(4));
        set.insert(6, None);
        set.insert(6, stamp(4));
        assert_eq!([set.interrupted(5), set.interrupted(6)], [stamp(3), None]);
        set.remove(5);
        set.insert(5, stamp(7));
        assert_eq!(set.interrupted(5), stamp(7));
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

    /// Maximum number of rounds of a thread; fewer are executed if the lock is passed on slowly because other processes
    /// use the CPUs.
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
            let mut random = fastrand::Rng::with_seed(seed);
            let mut served = 0;
            for _ in rounds(50_000) {
                let access = if random.u8(..16) < 3 { Read } else { Write };
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

    #[test]
    fn small_storage_has_one_stripe_per_bit() {
        let missed = StripeBitmap::new(130);
        for stripe in [0, 63, 64, 129, 129] {
            missed.insert(stripe);
        }
        let there: Vec<u64> = (0..130).filter(|&stripe| missed.contains(stripe)).collect();
        assert_eq!((there, missed.len()), (vec![0, 63, 64, 129], 4));
    }

    #[test]
    fn a_large_storage_takes_no_more_memory() {
        let missed = StripeBitmap::new(1 << 40);
        assert_eq!(missed.words.len() as u64, MAX_BITS / 64);
        missed.insert((1 << 40) - 1);
        assert!(missed.contains((1 << 40) - 1) && missed.contains((1 << 40) - (1 << 16)));
        assert!(!missed.contains((1 << 40) - (1 << 16) - 1) && !missed.contains(0));
        assert_eq!(missed.len(), 1 << 16);
        assert_eq!(
            StripeBitmap::new(u64::MAX).words.len() as u64,
            MAX_BITS / 64
        );
    }

    #[test]
    fn runs_cover_the_storage_and_no_more() {
        for stripes in 1..200 {
            let missed = StripeBitmap::with_bits(stripes, 16);
            (0..stripes).for_each(|stripe| missed.insert(stripe));
            assert_eq!(missed.len(), stripes);
            assert!(missed.words.len() == 1, "{stripes}");
        }
        assert_eq!(StripeBitmap::new(0).len(), 0);
    }

    #[test]
    fn runs_are_found_and_removed() {
        for stripes in [1, 63, 64, 65, 1000, 1025] {
            let missed = StripeBitmap::with_bits(stripes, 128);
            missed.insert_all();
            assert_eq!(missed.len(), stripes);
            let mut found = Vec::new();
            while let Some(run) = missed.next_run(0) {
                assert_eq!(missed.next_run(run), Some(run));
                found.extend(missed.stripes_of(run));
                missed.remove_run(run);
                missed.remove_run(run);
            }
            assert!(found.into_iter().eq(0..stripes), "{stripes}");
            assert_eq!(missed.len(), 0);
        }
        let missed = StripeBitmap::new(300);
        missed.insert(200);
        assert_eq!(
            (
                missed.next_run(200),
                missed.next_run(201),
                missed.next_run(299)
            ),
            (Some(200), None, None)
        );
        assert_eq!(missed.next_run(10_000), None);
    }

    fn hand_out(pass: &mut Pass, missed: &StripeBitmap) -> Vec<u64> {
        std::iter::from_fn(|| match pass.next(missed) {
            Next::Stripe(stripe) => Some(stripe),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn every_missed_stripe_is_handed_out_once_and_leaves_when_it_is_done() {
        let missed = StripeBitmap::new(100);
        for stripe in [3, 64, 99] {
            missed.insert(stripe);
        }
        let mut pass = Pass::new(&missed);
        assert_eq!(hand_out(&mut pass, &missed), [3, 64, 99]);
        assert_eq!(pass.next(&missed), Next::Wait);
        pass.finish(&missed, 64, true);
        assert!(!missed.contains(64) && missed.contains(3));
        pass.finish(&missed, 3, false);
        assert_eq!(pass.next(&missed), Next::Wait);
        pass.finish(&missed, 99, true);
        assert_eq!(pass.next(&missed), Next::EndOfPass { failed: 1 });
        assert_eq!(hand_out(&mut pass, &missed), [3], "again");
        pass.finish(&missed, 3, true);
        assert_eq!(pass.next(&missed), Next::Complete);
        assert_eq!(pass.progress(), (3, 3));
        pass.finish(&missed, 3, true);
    }

    #[test]
    fn a_run_leaves_with_its_last_stripe() {
        let missed = StripeBitmap::with_bits(40, 16);
        missed.insert(5);
        missed.insert(39);
        let mut pass = Pass::new(&missed);
        assert_eq!(hand_out(&mut pass, &missed), [4, 5, 6, 7, 36, 37, 38, 39]);
        for stripe in [4, 5, 7] {
            pass.finish(&missed, stripe, true);
            assert!(missed.contains(5));
        }
        pass.finish(&missed, 6, true);
        assert!(!missed.contains(5) && missed.contains(39));
        assert_eq!(pass.progress(), (4, 8));
    }

    #[test]
    fn run_with_a_failed_stripe_is_kept_though_its_last_one_has_succeeded() {
        let missed = StripeBitmap::with_bits(32, 16);
        missed.insert(6);
        let mut pass = Pass::new(&missed);
        assert_eq!(hand_out(&mut pass, &missed), [6, 7]);
        pass.finish(&missed, 6, false);
        pass.finish(&missed, 7, true);
        assert!(missed.contains(6));
        assert_eq!(pass.next(&missed), Next::EndOfPass { failed: 1 });
    }

    #[test]
    fn pass_over_single_stripes_hands_out_no_others() {
        let unsettled = StripeSet::default();
        assert!(unsettled.is_empty() && !unsettled.contains(0));
        let far = u64::MAX - 1;
        for stripe in [far, 7, 1 << 40, 7] {
            unsettled.insert(stripe, None);
        }
        assert_eq!(unsettled.len(), 3);
        let mut pass = Pass::new(&unsettled);
        let next = |pass: &mut Pass| pass.next(&unsettled);
        assert_eq!(next(&mut pass), Next::Stripe(7));
        // An I/O settles the stripe, and another one is interrupted.
        unsettled.remove(7);
        unsettled.insert(9, None);
        assert_eq!(next(&mut pass), Next::Stripe(9));
        assert_eq!(next(&mut pass), Next::Stripe(1 << 40));
        for (stripe, is_done) in [(7, true), (9, true), (1 << 40, false)] {
            pass.finish(&unsettled, stripe, is_done);
        }
        assert!(!unsettled.contains(9) && unsettled.contains(1 << 40));
    }

    #[test]
    fn stripes_missed_during_a_rebuild_are_kept() {
        let missed = StripeBitmap::new(100);
        missed.insert(50);
        let mut pass = Pass::new(&missed);
        assert_eq!(hand_out(&mut pass, &missed), [50]);
        missed.insert(7);
        pass.finish(&missed, 50, true);
        assert_eq!(pass.next(&missed), Next::EndOfPass { failed: 0 });
        assert_eq!(hand_out(&mut pass, &missed), [7]);
    }
}
