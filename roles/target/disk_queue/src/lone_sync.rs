//! Where a sync that is the only operation of its queue is executed.
//!
//! On the calling thread it saves two thread switches, but holds up operations that are pushed meanwhile. That is worth
//! it only if the sync takes about as long as the switches.

use std::time::Duration;

/// Longest duration of a sync after which the next is executed on the calling thread.
const FAST: Duration = Duration::from_millis(1);

/// Where the next lone sync is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Execution {
    /// By the kernel, as other operations.
    Asynchronous,
    /// On the thread that submits it.
    Inline,
}

/// Chooses the execution of lone syncs by the duration of the last one. A device that becomes slow holds its thread up
/// once.
#[derive(Debug, Default)]
pub(crate) struct LoneSyncs {
    is_fast: bool,
}

impl LoneSyncs {
    /// Where the next one is executed. The first is asynchronous.
    pub(crate) fn next(&self) -> Execution {
        if self.is_fast {
            Execution::Inline
        } else {
            Execution::Asynchronous
        }
    }

    /// A lone sync has completed after this time.
    pub(crate) fn completed(&mut self, after: Duration) {
        self.is_fast = after < FAST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_after_a_fast_sync_is_the_next_one_inline() {
        let mut syncs = LoneSyncs::default();
        assert_eq!(syncs.next(), Execution::Asynchronous);
        for (after, expected) in [
            (FAST, Execution::Asynchronous),
            (Duration::from_micros(30), Execution::Inline),
            (Duration::from_micros(999), Execution::Inline),
            (Duration::from_secs(1), Execution::Asynchronous),
        ] {
            syncs.completed(after);
            assert_eq!(syncs.next(), expected, "{after:?}");
        }
    }
}
