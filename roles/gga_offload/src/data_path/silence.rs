//! Targets that owe an answer for too long.
//!
//! Time is counted in periods, so that asking takes no look at a clock. A period is counted when it is over *and* the worker
//! looks: a worker that was itself stopped for a minute has counted one, and finds the answers that came meanwhile before it
//! counts the next.

use std::time::{Duration, Instant};

/// Periods that a target may take, but for the one in which it was asked.
const PATIENCE: u32 = 4;

/// Turns between two looks at the clock, while there is always something to do.
const BUSY_TURNS: u32 = 1024;

/// The periods of a worker.
#[derive(Debug)]
pub(super) struct Silence {
    length: Duration,
    ends: Instant,
    period: u32,
    turns: u32,
}

impl Silence {
    /// Targets may be silent for `patience`, and a quarter of it more.
    pub(super) fn new(patience: Duration, now: Instant) -> Self {
        let length = patience / PATIENCE;
        Self {
            length,
            ends: now + length,
            period: 0,
            turns: 0,
        }
    }

    /// The period at hand.
    pub(super) fn period(&self) -> u32 {
        self.period
    }

    /// Another turn of the worker, in which there may be nothing to do. True when it is time to look who is silent.
    #[inline]
    pub(super) fn turn(&mut self, idle: bool) -> bool {
        self.turns = self.turns.wrapping_add(1);
        (idle || self.turns.is_multiple_of(BUSY_TURNS)) && self.look(Instant::now())
    }

    fn look(&mut self, now: Instant) -> bool {
        let over = now >= self.ends;
        if over {
            self.ends = now + self.length;
            self.period = self.period.wrapping_add(1);
        }
        over
    }

    /// Whether who was asked in this period has had enough time.
    pub(super) fn is_too_long(&self, asked_in: u32) -> bool {
        self.period.wrapping_sub(asked_in) > PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn who_is_asked_has_the_whole_time() {
        let begin = Instant::now();
        let mut silence = Silence::new(4 * SECOND, begin);
        // Asked at the very end of a period.
        let asked_at = begin + SECOND - Duration::from_nanos(1);
        assert!(!silence.look(asked_at));
        let asked_in = silence.period();
        let mut now = asked_at;
        while !silence.is_too_long(asked_in) {
            now += SECOND / 100;
            silence.look(now);
        }
        assert!(now - asked_at >= 4 * SECOND && now - asked_at <= 5 * SECOND + SECOND / 10);
    }

    #[test]
    fn a_worker_that_was_stopped_itself_blames_nobody() {
        let begin = Instant::now();
        let mut silence = Silence::new(4 * SECOND, begin);
        let asked_in = silence.period();
        assert!(silence.look(begin + 1000 * SECOND));
        assert!(
            !silence.look(begin + 1000 * SECOND),
            "one period has passed"
        );
        assert!(!silence.is_too_long(asked_in));
    }
}
