//! What is known of a medium: errors of single I/Os, and whether it can be used at all.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The health of one medium, shared by all that use it. It never gets better.
#[derive(Debug)]
pub struct Health {
    name: String,
    errors: AtomicU64,
    is_reported: AtomicBool,
    has_failed: AtomicBool,
}

impl Health {
    /// Of a medium that is called `name` in the log, without errors.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            errors: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    /// An I/O failed because of the medium. Logs the first one only: a broken disk can fail millions.
    #[cold]
    pub fn io_failed(&self, why: impl fmt::Display) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if !self.has_failed() && !self.is_reported.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "{}: {why}; the I/O failed, and further ones will not be logged",
                self.name
            );
        }
    }

    /// The medium is not what it was: no I/O succeeds any more, and nothing that was not durable before will be. Logs why, once.
    #[cold]
    pub fn fail(&self, why: impl fmt::Display) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            tracing::error!("{}: {why}; all I/Os fail from now on", self.name);
        }
    }

    /// Returns `true` if no I/O succeeds any more.
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// I/Os that failed because of the medium.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns `true` if anything has gone wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.has_failed() && self.errors() == 0
    }
}
