//! Health of a medium: errors of single I/Os, and total failure.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The health of a medium, shared by its users. It never improves.
#[derive(Debug)]
pub struct Health {
    name: String,
    errors: AtomicU64,
    is_reported: AtomicBool,
    has_failed: AtomicBool,
}

impl Health {
    /// Health of a medium without errors, called `name` in the log.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            errors: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Counts an I/O that failed because of the medium. Only the first one is logged: a broken disk can fail millions.
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

    /// Records total failure: all I/Os fail from now on, and data that is not durable is lost. The reason is logged
    /// once.
    #[cold]
    pub fn fail(&self, why: impl fmt::Display) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            tracing::error!("{}: {why}; all I/Os fail from now on", self.name);
        }
    }

    /// Returns `true` after total failure.
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Number of I/Os that failed because of the medium.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns `true` if there were no errors.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.has_failed() && self.errors() == 0
    }
}
