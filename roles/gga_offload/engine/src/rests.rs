//! Pauses before a target may rejoin that was lost again after it had rejoined.

use std::time::{Duration, Instant};

use crate::set::{Candidate, Set};

/// First pause: short in comparison with the time for which I/Os wait for targets.
const FIRST_REST: Duration = Duration::from_millis(100);
/// Maximum pause before a target may rejoin that was lost again after it had rejoined: for example, a target with a
/// full disk can be connected to, but is lost with the next write.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// Pauses before targets may rejoin that were lost again after they had rejoined, each twice as long as the previous
/// one. Without a clock.
#[derive(Debug, Clone)]
pub struct RejoinRests {
    next: Duration,
    /// The target that was the last to rejoin, and the time from which it may rejoin again.
    last: Option<(usize, Instant)>,
}

impl Default for RejoinRests {
    fn default() -> Self {
        Self {
            next: FIRST_REST,
            last: None,
        }
    }
}

/// The next step for lost targets.
#[derive(Debug, Clone, Copy)]
pub enum NextRejoin {
    /// Full redundancy: all targets are online and up to date.
    Whole,
    /// Wait, until this time at most.
    Wait(Option<Instant>),
    /// Let this target rejoin.
    Candidate(Candidate),
}

impl RejoinRests {
    /// Returns the next step for the lost targets of a set.
    pub fn next(&mut self, set: &Set, now: Instant) -> NextRejoin {
        if set.is_healthy() {
            self.reset();
            return NextRejoin::Whole;
        }
        let Some(candidate) = set.rejoin_candidate() else {
            return NextRejoin::Wait(None);
        };
        match self.until(candidate.target.number(), now) {
            Some(until) => NextRejoin::Wait(Some(until)),
            None => NextRejoin::Candidate(candidate),
        }
    }

    /// Records that a target has rejoined.
    pub fn rejoined(&mut self, target: usize, now: Instant) {
        self.last = Some((target, now + self.next));
        self.next = (self.next * 2).min(LONGEST_REST);
    }

    /// The time from which this target may rejoin; `None` for immediately.
    fn until(&self, target: usize, now: Instant) -> Option<Instant> {
        let last = self.last.filter(|&(it, until)| it == target && now < until);
        last.map(|(_, until)| until)
    }

    /// Records that no target is lost.
    fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_that_is_lost_again_rests_longer_and_longer() {
        let now = Instant::now();
        let mut rests = RejoinRests::default();
        assert_eq!(rests.until(1, now), None);
        for rest in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            rests.rejoined(1, now);
            let until = now + Duration::from_millis(rest);
            assert_eq!(rests.until(1, now), Some(until));
            assert_eq!(rests.until(1, until), None);
            assert_eq!(rests.until(2, now), None, "another one does not wait");
        }
        rests.reset();
        rests.rejoined(1, now);
        assert_eq!(rests.until(1, now), Some(now + FIRST_REST));
    }
}
