//! Counters of a process for events that peers cause, which its metrics include.

use std::sync::atomic::{AtomicU64, Ordering};

/// A process-wide counter of events on cold paths.
#[derive(Debug)]
pub struct ProcessCount(AtomicU64);

impl ProcessCount {
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number of connections that were refused, or closed because they sent no valid request.
pub static REFUSED_CONNECTIONS: ProcessCount = ProcessCount::new();
/// Control requests answered with an error.
pub static REFUSED_REQUESTS: ProcessCount = ProcessCount::new();
