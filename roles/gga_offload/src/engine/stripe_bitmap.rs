//! Sets of stripes in memory of bounded size: stripes that a target has missed, stripes to verify.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of bits, 2 MiB. In a larger storage, a bit stands for several stripes.
const MAX_BITS: u64 = 1 << 24;

/// A set of stripes that all threads share. In a large storage, a bit stands for a run of neighbouring stripes, which are in the set
/// together.
///
/// The locks of stripes order what different threads do about one stripe: the owner of a lock sees what was set and cleared under it
/// before.
#[derive(Debug)]
pub(crate) struct StripeBitmap {
    words: Box<[AtomicU64]>,
    /// Runs that are in the set.
    runs: AtomicU64,
    /// Each run has this power of two of stripes.
    shift: u32,
    stripes: u64,
}

impl StripeBitmap {
    /// An empty set for this many stripes.
    pub(crate) fn new(stripes: u64) -> Self {
        Self::with_bits(stripes, MAX_BITS)
    }

    pub(super) fn with_bits(stripes: u64, most: u64) -> Self {
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

    fn place(run: u64) -> (usize, u64) {
        ((run / 64) as usize, 1 << (run % 64))
    }

    /// Adds a stripe.
    #[cold]
    pub(crate) fn insert(&self, stripe: u64) {
        let (word, bit) = Self::place(stripe >> self.shift);
        if self.words[word].fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.runs.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Adds all stripes.
    pub(crate) fn insert_all(&self) {
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

    /// The run of a stripe.
    pub(super) fn run_of(&self, stripe: u64) -> u64 {
        stripe >> self.shift
    }

    /// The stripes of a run.
    pub(super) fn stripes_of(&self, run: u64) -> Range<u64> {
        let begin = run << self.shift;
        begin..begin.saturating_add(1 << self.shift).min(self.stripes)
    }

    /// The first run in the set from this one on.
    pub(super) fn next_run(&self, from: u64) -> Option<u64> {
        let (first, _) = Self::place(from);
        let words = self.words.iter().enumerate().skip(first);
        words
            .map(|(index, word)| {
                let word = word.load(Ordering::Acquire);
                // Of the first word, the runs before `from` do not count.
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

    /// Removes a run.
    pub(super) fn remove_run(&self, run: u64) {
        let (word, bit) = Self::place(run);
        if self.words[word].fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
            self.runs.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Removes all stripes.
    pub(super) fn clear(&self) {
        for word in &self.words {
            word.store(0, Ordering::Release);
        }
        self.runs.store(0, Ordering::Release);
    }

    /// Returns `true` if a stripe, or another one of its run, is in the set.
    pub(crate) fn contains(&self, stripe: u64) -> bool {
        let (word, bit) = Self::place(stripe >> self.shift);
        self.words[word].load(Ordering::Acquire) & bit != 0
    }

    /// Number of stripes, counting whole runs.
    pub(crate) fn len(&self) -> u64 {
        let runs = self.runs.load(Ordering::Acquire);
        runs.saturating_mul(1 << self.shift).min(self.stripes)
    }
}

// The order in which stripes are rebuilt or verified.

/// A pass over a [`StripeBitmap`]: stripes that are handed out, and those that are done. A run leaves the bitmap when all its stripes are
/// done; failed ones stay for the next pass.
#[derive(Debug)]
pub(super) struct Pass {
    /// Stripes in the bitmap at the beginning.
    total: u64,
    done: u64,
    /// Stripes to hand out of the last run in `open`.
    current: Range<u64>,
    /// Runs that were started.
    open: Vec<OpenRun>,
    /// Start of the search for the next run.
    next_run: u64,
    /// Stripes of this pass that failed.
    failed: u64,
}

#[derive(Debug)]
struct OpenRun {
    run: u64,
    /// Stripes that are not done.
    left: u64,
    has_failed: bool,
}

/// The answer to a request for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// This stripe is next.
    Stripe(u64),
    /// None, until stripes that were handed out are done.
    Wait,
    /// No stripe: all were handed out once, and this many of them failed.
    EndOfPass {
        /// They are tried again in the next pass.
        failed: u64,
    },
    /// None: the bitmap is empty.
    Complete,
}

impl Pass {
    pub(super) fn new(missed: &StripeBitmap) -> Self {
        Self {
            total: missed.len(),
            done: 0,
            current: 0..0,
            open: Vec::new(),
            next_run: 0,
            failed: 0,
        }
    }

    /// Stripes that are done, and all that were in the bitmap at the beginning.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// The next stripe. After the end of a pass, the next call starts another one.
    pub(super) fn next(&mut self, missed: &StripeBitmap) -> Next {
        if let Some(stripe) = self.current.next() {
            return Next::Stripe(stripe);
        }
        if let Some(run) = missed.next_run(self.next_run) {
            self.next_run = run + 1;
            self.current = missed.stripes_of(run);
            self.open.push(OpenRun {
                run,
                left: self.current.end - self.current.start,
                has_failed: false,
            });
            return self.next(missed);
        }
        if !self.open.is_empty() {
            return Next::Wait;
        }
        self.next_run = 0;
        match missed.next_run(0) {
            None => Next::Complete,
            Some(_) => Next::EndOfPass {
                failed: std::mem::take(&mut self.failed),
            },
        }
    }

    /// A stripe that was handed out is done, or has failed.
    pub(super) fn finish(&mut self, missed: &StripeBitmap, stripe: u64, is_done: bool) {
        let run = missed.run_of(stripe);
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
                missed.remove_run(run);
            }
            self.open.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

#[cfg(test)]
mod pass_tests {
    use super::*;

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
