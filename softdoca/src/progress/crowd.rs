//! Whether a thread shares its CPU with somebody who does not give it back.
//!
//! A peer that was yielded to does its work and yields in turn, within microseconds. Other threads, such as the main thread of a
//! program that polls a socket, keep the CPU for a whole time slice, milliseconds, and the kernel takes a yield for the end of the
//! yielder's own. Among such, a thread that has nothing to do had better nap: the timer that ends the nap takes the CPU from them. One that
//! has something to do had better go on.
//!
//! Such a thread moves from CPU to CPU, and only one yield in many meets it where peers share the CPU as well. So what was found out is
//! believed for some time, not for some occasions to yield: those pass in no time just when nobody is in the way.

use std::time::{Duration, Instant};

/// Who takes longer than this is no peer.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// How long a thread does not yield after a long yield. Short at first: a peer may have had much to do, or the machine itself may have been
/// away.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// The same when yields were long again and again: a yield in so much time takes less than a hundredth of it.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Pauses become so many times as long after a long yield.
const GROWTH: u32 = 4;
/// For as long as the pause before, and at least for this time, all yields have to be short for the next pause to be half as long: some of
/// them only come to a peer, though others wait.
const SHORTEST_TRIAL: Duration = Duration::from_millis(8);

/// What a thread has found out about the others on its CPU.
#[derive(Debug)]
pub(super) struct Crowd {
    /// How long the last pause was, or would be by what was found out since.
    pause: Duration,
    /// End of the last pause, or of the last time after it in which all yields were short. `None`: there is nobody to be found.
    since: Option<Instant>,
}

impl Crowd {
    pub(super) const NONE: Self = Self {
        pause: Duration::ZERO,
        since: None,
    };

    /// Whether the thread is not to yield now. Looks at the clock only when there was a long yield lately.
    pub(super) fn is_here(&self) -> bool {
        self.since.is_some() && self.is_here_at(Instant::now())
    }

    fn is_here_at(&self, now: Instant) -> bool {
        self.since.is_some_and(|end| now < end)
    }

    /// The thread has yielded, and has got the CPU back `now`, after `away`.
    pub(super) fn yielded(&mut self, now: Instant, away: Duration) {
        if away > LONG_YIELD {
            self.pause = (GROWTH * self.pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            self.since = Some(now + self.pause);
        } else if let Some(since) = self.since
            && now.saturating_duration_since(since) >= self.pause.max(SHORTEST_TRIAL)
        {
            self.pause /= 2;
            self.since = Some(now);
            if self.pause < SHORTEST_PAUSE {
                *self = Self::NONE;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(30);
    const LONG: Duration = Duration::from_millis(3);

    /// How long the thread does not yield after `now`, to the tenth of a millisecond.
    fn paused(crowd: &Crowd, now: Instant) -> Duration {
        let step = Duration::from_micros(100);
        let steps = (0..).take_while(|steps| crowd.is_here_at(now + *steps * step));
        step * steps.count() as u32
    }

    #[test]
    fn nobody_is_there_as_long_as_all_yields_are_short() {
        let (mut crowd, now) = (Crowd::NONE, Instant::now());
        assert!(!crowd.is_here());
        for milliseconds in 0..100 {
            crowd.yielded(now + Duration::from_millis(milliseconds), SHORT);
            assert_eq!(paused(&crowd, now), Duration::ZERO);
        }
    }

    #[test]
    fn pauses_grow_with_every_long_yield_up_to_a_second() {
        let (mut crowd, mut now) = (Crowd::NONE, Instant::now());
        for milliseconds in [1, 4, 16, 64, 256, 1000, 1000] {
            crowd.yielded(now, LONG);
            let pause = Duration::from_millis(milliseconds);
            assert_eq!(paused(&crowd, now), pause);
            now += pause;
            // The next one comes to a peer, who knows nothing of others.
            crowd.yielded(now, SHORT);
            assert_eq!(paused(&crowd, now), Duration::ZERO);
        }
    }

    #[test]
    fn one_long_yield_is_forgotten_soon_and_many_are_not() {
        let (mut crowd, mut now) = (Crowd::NONE, Instant::now());
        crowd.yielded(now, LONG);
        now += SHORTEST_PAUSE + SHORTEST_TRIAL;
        crowd.yielded(now, SHORT);
        assert!(crowd.since.is_none(), "a peer, or the machine was away");
        for _ in 0..5 {
            crowd.yielded(now, LONG);
        }
        let pause = paused(&crowd, now);
        assert_eq!(pause, Duration::from_millis(256));
        now += pause;
        let almost = now + pause - SHORT;
        crowd.yielded(almost, SHORT);
        crowd.yielded(almost, LONG);
        assert_eq!(paused(&crowd, almost), LONGEST_PAUSE, "it was elsewhere");
        now = almost + LONGEST_PAUSE;
        let mut halved = 0;
        while crowd.since.is_some() {
            now += crowd.pause.max(SHORTEST_TRIAL);
            crowd.yielded(now, SHORT);
            halved += 1;
        }
        assert_eq!(halved, 10, "1 s, 500 ms, ... 2 ms, 1 ms: it has left");
    }
}
