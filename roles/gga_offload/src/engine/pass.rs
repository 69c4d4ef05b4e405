//! The order in which stripes are rebuilt or verified.

use std::ops::Range;

use super::stripe_bitmap::StripeBitmap;

/// Which of the stripes of a [`StripeBitmap`] are handed out, and which are done. A run leaves the bitmap when all its stripes are done;
/// what failed stays, for the next pass.
#[derive(Debug)]
pub(super) struct Pass {
    /// Stripes in the bitmap at the beginning.
    total: u64,
    done: u64,
    /// Stripes to hand out of the last run in `open`.
    current: Range<u64>,
    /// Runs that were begun.
    open: Vec<OpenRun>,
    /// Where the search for the next run begins.
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
    /// None: all were handed out once, and so many of them failed.
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

    /// The next stripe. After the end of a pass, the next call begins another one.
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
    fn what_is_missed_during_a_rebuild_is_not_forgotten() {
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
