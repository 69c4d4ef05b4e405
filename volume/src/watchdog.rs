//! Detects a queue that receives no answers. Does not read a clock.

use std::time::{Duration, Instant};

use crate::seat::Progress;

/// Watches one queue in one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watchdog {
    timeout: Duration,
    /// Begin of the time without answers that is the service's fault.
    since: Instant,
    last: Progress,
}

impl Watchdog {
    pub(crate) fn new(timeout: Duration, now: Instant) -> Self {
        Self {
            timeout,
            since: now,
            last: Progress::default(),
        }
    }

    /// Interval between checks.
    pub(crate) fn interval(timeout: Duration) -> Duration {
        (timeout / 4).clamp(Duration::from_millis(1), Duration::from_secs(1))
    }

    /// Returns `true` if requests have been outstanding for the timeout without an answer, while the queue was polled
    /// or its thread slept on it. A queue that is not polled receives no answers either, which is not the service's
    /// fault.
    pub(crate) fn check(&mut self, progress: Progress, now: Instant) -> bool {
        let is_waiting = progress.has_requests
            && progress.answers == self.last.answers
            && (progress.is_asleep || progress.polls != self.last.polls);
        self.last = progress;
        if !is_waiting {
            self.since = now;
        }
        now.saturating_duration_since(self.since) >= self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(8);

    /// Calls the watchdog once per second, with `progress` of the number of seconds; returns the second in which it
    /// reports a stall.
    fn barks(progress: impl Fn(u32) -> Progress) -> Option<u32> {
        let begin = Instant::now();
        let mut watchdog = Watchdog::new(TIMEOUT, begin);
        (1..100).find(|&second| {
            watchdog.check(progress(second), begin + Duration::from_secs(second.into()))
        })
    }

    const BUSY: Progress = Progress {
        polls: 0,
        answers: 0,
        has_requests: true,
        is_asleep: false,
    };

    #[test]
    fn requests_without_an_answer_time_out_while_they_are_polled_or_slept_for() {
        let polled = |second| Progress {
            polls: second,
            ..BUSY
        };
        assert_eq!(barks(polled), Some(8));
        let slept = |_| Progress {
            is_asleep: true,
            ..BUSY
        };
        assert_eq!(barks(slept), Some(8));
        let answered_until_20 = |second: u32| Progress {
            answers: second.min(20),
            ..polled(second)
        };
        assert_eq!(barks(answered_until_20), Some(28));
    }

    #[test]
    fn queues_that_are_idle_or_left_alone_do_not_time_out() {
        assert_eq!(barks(|_| BUSY), None);
        let idle = |second| Progress {
            polls: second,
            has_requests: false,
            ..BUSY
        };
        assert_eq!(barks(idle), None);
        let left_alone_in_between = |second: u32| Progress {
            polls: second - second % 6 / 5,
            ..BUSY
        };
        assert_eq!(barks(left_alone_in_between), None);
    }
}
