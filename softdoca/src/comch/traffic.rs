//! Counters of the control messages of a connection.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of control messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Number of submitted messages.
    SentMessages,
    /// Bytes in submitted messages.
    SentBytes,
    /// Number of received messages.
    ReceivedMessages,
    /// Bytes in received messages.
    ReceivedBytes,
}

/// The counters, and their values at the program's last update.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    now: [AtomicU64; 4],
    seen: [AtomicU64; 4],
}

impl Traffic {
    /// Counts a submitted message.
    pub(super) fn sent(&self, bytes: usize) {
        self.count(Counter::SentMessages, 1);
        self.count(Counter::SentBytes, bytes as u64);
    }

    /// Counts a received message.
    pub(super) fn received(&self, bytes: usize) {
        self.count(Counter::ReceivedMessages, 1);
        self.count(Counter::ReceivedBytes, bytes as u64);
    }

    fn count(&self, counter: Counter, by: u64) {
        self.now[counter as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// Makes [`Self::seen`] return the current counts.
    pub(super) fn update(&self) {
        for (now, seen) in self.now.iter().zip(&self.seen) {
            seen.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The value at the last update; zero before the first.
    pub(crate) fn seen(&self, counter: Counter) -> u64 {
        self.seen[counter as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_last_update() {
        let traffic = Traffic::default();
        traffic.sent(10);
        traffic.sent(5);
        traffic.received(7);
        assert_eq!(traffic.seen(Counter::SentBytes), 0);
        traffic.update();
        traffic.received(1);
        assert_eq!(traffic.seen(Counter::SentMessages), 2);
        assert_eq!(traffic.seen(Counter::SentBytes), 15);
        assert_eq!(traffic.seen(Counter::ReceivedMessages), 1);
        assert_eq!(traffic.seen(Counter::ReceivedBytes), 7);
    }
}
