//! Whether a thread shares its CPU with somebody who does not give it back.
//!
//! A peer that was yielded to does its work and yields in turn, within microseconds. Other threads, such as the main thread of a
//! program that polls a socket, keep the CPU for a whole time slice, milliseconds, and the kernel takes a yield for the end of the
//! yielder's own. Among such, a thread that has nothing to do had better sleep, and one that has had better go on.

use std::time::Duration;

/// Who takes longer than this is no peer.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// Occasions to yield that are passed over after a long one. Few at first: a peer may have had much to do, or the machine itself may
/// have been away.
const FEWEST_PASSED: u32 = 16;
/// The same when all yields before were long, too: a thread that yields so seldom loses a few per cent of its time by it.
const MOST_PASSED: u32 = 4096;
/// One yield in so many is timed while all are short: the clock costs a tenth of a yield.
const TIMED: u32 = 8;

/// What a thread has found out about the others on its CPU.
#[derive(Debug)]
pub(super) struct Crowd {
    /// Occasions that are still to be passed over.
    left: u32,
    /// Occasions that were to be passed over after the last timed yield.
    passed: u32,
    /// Yields since the last timed one.
    untimed: u32,
}

impl Crowd {
    pub(super) const NONE: Self = Self {
        left: 0,
        passed: 0,
        untimed: 0,
    };

    /// There is an occasion to yield. True when it is to be passed over.
    pub(super) fn is_here(&mut self) -> bool {
        let here = self.left > 0;
        self.left = self.left.saturating_sub(1);
        here
    }

    /// The thread is about to yield. Whether it is to find out for how long.
    pub(super) fn is_timed(&mut self) -> bool {
        self.untimed += 1;
        self.passed > 0 || self.untimed >= TIMED
    }

    /// The thread has yielded, and got the CPU back after `away`.
    pub(super) fn yielded(&mut self, away: Duration) {
        self.untimed = 0;
        self.passed = if away > LONG_YIELD {
            (2 * self.passed).clamp(FEWEST_PASSED, MOST_PASSED)
        } else if self.passed > FEWEST_PASSED {
            // Whoever it was may be on another CPU for a moment.
            self.passed / 2
        } else {
            0
        };
        self.left = self.passed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Occasions that are passed over before the next yield.
    fn passed(crowd: &mut Crowd) -> u32 {
        (0..).take_while(|_| crowd.is_here()).count() as u32
    }

    #[test]
    fn one_in_a_few_yields_is_timed_and_all_after_a_long_one() {
        let mut crowd = Crowd::NONE;
        let untimed = |crowd: &mut Crowd| (0..).take_while(|_| !crowd.is_timed()).count() as u32;
        assert_eq!(untimed(&mut crowd), TIMED - 1);
        crowd.yielded(Duration::ZERO);
        assert_eq!(untimed(&mut crowd), TIMED - 1);
        crowd.yielded(Duration::from_millis(3));
        assert_eq!(untimed(&mut crowd), 0);
    }

    #[test]
    fn yields_become_rare_while_they_are_long_and_only_then() {
        let mut crowd = Crowd::NONE;
        assert_eq!(passed(&mut crowd), 0);
        crowd.yielded(Duration::from_micros(30));
        assert_eq!(passed(&mut crowd), 0, "a peer");
        let mut expected = FEWEST_PASSED;
        for _ in 0..20 {
            crowd.yielded(Duration::from_millis(3));
            assert_eq!(passed(&mut crowd), expected);
            expected = (2 * expected).min(MOST_PASSED);
        }
        let mut expected = MOST_PASSED;
        while expected > FEWEST_PASSED {
            expected /= 2;
            crowd.yielded(LONG_YIELD);
            assert_eq!(passed(&mut crowd), expected, "it seems to have left");
        }
        crowd.yielded(LONG_YIELD);
        assert_eq!(passed(&mut crowd), 0, "it has left");
        crowd.yielded(Duration::from_millis(3));
        assert_eq!(
            passed(&mut crowd),
            FEWEST_PASSED,
            "and another one has come"
        );
    }
}
