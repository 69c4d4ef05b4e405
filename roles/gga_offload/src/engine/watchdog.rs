//! Targets that owe an answer for too long.
//!
//! Time is counted as the worker experiences it: a gap between two ticks counts for at most [`MAX_GAP`]. A worker that was itself not
//! scheduled, on an overloaded or suspended machine, extends what its targets have been given by that gap, and reads the answers that
//! came meanwhile before it judges anything.

use std::time::Duration;

/// Most time that counts between two ticks: twice what an idle worker may sleep.
const MAX_GAP: Duration = Duration::from_millis(100);

/// Number of checks within one timeout.
const CHECKS: u32 = 8;

/// Experienced time, and what is too much of it.
#[derive(Debug)]
pub(super) struct Watchdog {
    timeout: Duration,
    last_tick: Option<Duration>,
    now: Duration,
    next_check: Duration,
}

impl Watchdog {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            last_tick: None,
            now: Duration::ZERO,
            next_check: timeout / CHECKS,
        }
    }

    /// Experienced time.
    #[inline]
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Advances the time. Returns `true` when stalled targets are to be looked for.
    #[inline]
    pub(super) fn tick(&mut self, now: Duration) -> bool {
        let gap = now.saturating_sub(self.last_tick.unwrap_or(now));
        self.last_tick = Some(now);
        self.now += gap.min(MAX_GAP);
        if self.now < self.next_check {
            return false;
        }
        self.next_check = self.now + self.timeout / CHECKS;
        true
    }

    /// Returns `true` if a target that got a request at this (experienced) time has had enough time to answer.
    pub(super) fn is_stalled(&self, asked_at: Duration) -> bool {
        self.now.saturating_sub(asked_at) > self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_target_has_the_whole_timeout() {
        let mut watchdog = Watchdog::new(4 * SECOND);
        let mut now = SECOND;
        watchdog.tick(now);
        let asked_at = watchdog.now();
        let asked = now;
        loop {
            now += SECOND / 100;
            if watchdog.tick(now) && watchdog.is_stalled(asked_at) {
                break;
            }
        }
        assert!(now - asked > 4 * SECOND && now - asked <= 5 * SECOND);
    }

    #[test]
    fn a_worker_that_was_not_scheduled_blames_no_target() {
        let mut watchdog = Watchdog::new(4 * SECOND);
        watchdog.tick(SECOND);
        let asked_at = watchdog.now();
        for gap in 1..=30 {
            watchdog.tick(SECOND * (1 + gap * 100));
            assert!(!watchdog.is_stalled(asked_at), "{gap} gaps");
        }
    }
}
