//! Waiting for a value.

use std::time::Duration;

use super::value::Value;
use crate::error::{Error, Result};
use crate::progress::yield_before_retry;

/// What is waited for, of the masked value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It equals.
    Equal(u64),
    /// It differs.
    Different(u64),
    /// It is greater.
    Greater(u64),
}

impl Condition {
    /// Whether a value fulfils it.
    pub(crate) fn holds(self, value: u64) -> bool {
        match self {
            Condition::Equal(other) => value == other,
            Condition::Different(other) => value != other,
            Condition::Greater(other) => value > other,
        }
    }
}

/// Looks in vain that are spent spinning: a peer on another core answers within a microsecond.
const SPINS: u32 = 64;
/// Looks in vain after which the thread sleeps; those after the spins yield, as the peer may need this core.
const YIELDS: u32 = 400;
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);
/// Sleeps after which the wait asks whether anybody is left who could end it.
const SLEEPS_TO_DOUBT: u32 = 100;

/// Blocks until the masked value fulfils the condition.
///
/// # Errors
/// [`Error::ConnectionReset`] when the value is another process's and that has gone; what reading it answers.
pub(super) fn until(value: &Value, condition: Condition, mask: u64) -> Result<()> {
    let (mut looks, mut sleeps, mut sleep) = (0_u32, 0_u32, SHORTEST_SLEEP);
    loop {
        if condition.holds(value.get()? & mask) {
            return Ok(());
        }
        looks = looks.saturating_add(1);
        if looks < SPINS {
            std::hint::spin_loop();
        } else if looks < YIELDS {
            // Also rings for what a callback has sent before it waits.
            yield_before_retry();
        } else {
            std::thread::sleep(sleep);
            sleep = (sleep * 2).min(LONGEST_SLEEP);
            sleeps = sleeps.wrapping_add(1);
            if sleeps.is_multiple_of(SLEEPS_TO_DOUBT) && value.is_orphaned() {
                return Err(Error::ConnectionReset
                    .because("the process that the sync event belongs to has gone"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        for (condition, below, same, above) in [
            (Condition::Equal(5), false, true, false),
            (Condition::Different(5), true, false, true),
            (Condition::Greater(5), false, false, true),
        ] {
            assert_eq!(
                [4, 5, 6].map(|value| condition.holds(value)),
                [below, same, above],
                "{condition:?}"
            );
        }
        assert!(!Condition::Greater(u64::MAX).holds(u64::MAX));
    }
}
