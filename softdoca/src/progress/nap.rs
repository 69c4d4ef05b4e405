//! Giving the CPU away for a moment, and getting it back whoever has it meanwhile.

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// What a peer needs for its work, more or less. Shorter ones are over before the CPU was given away.
const NAP: Duration = Duration::from_micros(20);
/// How much later the kernel may end it, in nanoseconds. Usually that is 50 us, for which it takes all of them.
const SLACK: NonZeroU64 = NonZeroU64::new(1000).unwrap();

/// Sleeps for [`NAP`]. Afterwards the thread's timer slack is what it was: other sleeps are the program's own.
pub(super) fn nap() {
    let usual = current_timer_slack().ok().and_then(NonZeroU64::new);
    let is_precise = usual.is_some() && set_current_timer_slack(Some(SLACK)).is_ok();
    std::thread::sleep(NAP);
    if is_precise {
        // It was accepted before.
        let _ = set_current_timer_slack(usual);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_leaves_the_timer_slack_as_it_was() {
        let slack = NonZeroU64::new(70_000);
        set_current_timer_slack(slack).expect("a thread may set its own");
        nap();
        assert_eq!(current_timer_slack().ok().and_then(NonZeroU64::new), slack);
    }
}
