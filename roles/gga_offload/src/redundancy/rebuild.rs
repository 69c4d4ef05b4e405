//! The order of work of a rebuild.

use std::ops::Range;

use super::MissedStripes;

/// A rebuild: which stripes are handed out, which are done. A run of [`MissedStripes`] leaves the set when all its stripes are
/// done. What could not be rebuilt stays in the set, for the next pass.
#[derive(Debug)]
pub(super) struct Rebuild {
    /// Stripes that were missed at the beginning.
    total: u64,
    done: u64,
    /// Stripes to hand out of the last run in `open`.
    current: Range<u64>,
    /// Runs that were begun.
    open: Vec<OpenRun>,
    /// Where the search for the next run begins.
    next_run: u64,
    /// Stripes of this pass that could not be rebuilt.
    failed: u64,
}

#[derive(Debug)]
struct OpenRun {
    run: u64,
    /// Stripes that are not done.
    left: u64,
    has_failed: bool,
}

/// What a rebuild has to say when it is asked for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// This stripe is next.
    Stripe(u64),
    /// Nothing before stripes that were handed out are done.
    Wait,
    /// The pass has ended, and so many stripes could not be rebuilt.
    EndOfPass {
        /// They are tried again in the next pass.
        failed: u64,
    },
    /// Nothing is missed any more.
    Complete,
}

impl Rebuild {
    pub(super) fn new(missed: &MissedStripes) -> Self {
        Self {
            total: missed.len(),
            done: 0,
            current: 0..0,
            open: Vec::new(),
            next_run: 0,
            failed: 0,
        }
    }

    /// Stripes that are done, and those that were missed at the beginning.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// The next work. After the end of a pass, the next call begins the next one.
    pub(super) fn next(&mut self, missed: &MissedStripes) -> Work {
        if let Some(stripe) = self.current.next() {
            return Work::Stripe(stripe);
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
            return Work::Wait;
        }
        self.next_run = 0;
        match missed.next_run(0) {
            None => Work::Complete,
            Some(_) => Work::EndOfPass {
                failed: std::mem::take(&mut self.failed),
            },
        }
    }

    /// A stripe that was handed out is rebuilt, or could not be.
    pub(super) fn finish(&mut self, missed: &MissedStripes, stripe: u64, is_rebuilt: bool) {
        let run = missed.run_of(stripe);
        let Some(place) = self.open.iter().position(|open| open.run == run) else {
            return;
        };
        let open = &mut self.open[place];
        open.left -= 1;
        open.has_failed |= !is_rebuilt;
        if is_rebuilt {
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

    fn hand_out(rebuild: &mut Rebuild, missed: &MissedStripes) -> Vec<u64> {
        std::iter::from_fn(|| match rebuild.next(missed) {
            Work::Stripe(stripe) => Some(stripe),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn every_missed_stripe_is_handed_out_once_and_leaves_when_it_is_done() {
        let missed = MissedStripes::new(100);
        for stripe in [3, 64, 99] {
            missed.insert(stripe);
        }
        let mut rebuild = Rebuild::new(&missed);
        assert_eq!(hand_out(&mut rebuild, &missed), [3, 64, 99]);
        assert_eq!(rebuild.next(&missed), Work::Wait);
        rebuild.finish(&missed, 64, true);
        assert!(!missed.contains(64) && missed.contains(3));
        rebuild.finish(&missed, 3, false);
        assert_eq!(rebuild.next(&missed), Work::Wait);
        rebuild.finish(&missed, 99, true);
        assert_eq!(rebuild.next(&missed), Work::EndOfPass { failed: 1 });
        assert_eq!(hand_out(&mut rebuild, &missed), [3], "again");
        rebuild.finish(&missed, 3, true);
        assert_eq!(rebuild.next(&missed), Work::Complete);
        assert_eq!(rebuild.progress(), (3, 3));
        rebuild.finish(&missed, 3, true);
    }

    #[test]
    fn a_run_leaves_with_its_last_stripe() {
        let missed = MissedStripes::with_bits(40, 16);
        missed.insert(5);
        missed.insert(39);
        let mut rebuild = Rebuild::new(&missed);
        assert_eq!(
            hand_out(&mut rebuild, &missed),
            [4, 5, 6, 7, 36, 37, 38, 39]
        );
        for stripe in [4, 5, 7] {
            rebuild.finish(&missed, stripe, true);
            assert!(missed.contains(5));
        }
        rebuild.finish(&missed, 6, true);
        assert!(!missed.contains(5) && missed.contains(39));
        assert_eq!(rebuild.progress(), (4, 8));
    }

    #[test]
    fn what_is_missed_during_a_rebuild_is_not_forgotten() {
        let missed = MissedStripes::new(100);
        missed.insert(50);
        let mut rebuild = Rebuild::new(&missed);
        assert_eq!(hand_out(&mut rebuild, &missed), [50]);
        missed.insert(7);
        rebuild.finish(&missed, 50, true);
        assert_eq!(rebuild.next(&missed), Work::EndOfPass { failed: 0 });
        assert_eq!(hand_out(&mut rebuild, &missed), [7]);
    }
}
