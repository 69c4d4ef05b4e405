//! Back ends: where messages go.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::limits::Limits;
use super::{Level, Record};
use crate::error::{Error, Result};

/// Whose messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// softdoca's own.
    Sdk,
    /// The program's, from `doca_log`.
    Program,
}

/// Where messages go. Called without a lock held: an implementation may be a C callback that logs itself.
pub trait Sink: Send + Sync {
    /// Takes one message.
    fn accept(&self, record: &Record<'_>);
}

/// A registered sink with its own limits.
pub struct Backend {
    origin: Origin,
    limits: Limits,
    /// Global limits do not reach it: the user asked for this level outside of the program.
    independent: bool,
    sink: Box<dyn Sink>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("origin", &self.origin)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Backend {
    /// Sets the least severe level that this back end takes.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] when the back end is for messages of the other origin.
    pub fn set_lower(&self, origin: Origin, level: Level) -> Result<()> {
        self.expect(origin)?.set_lower(level);
        refresh_threshold();
        Ok(())
    }

    /// Sets the most severe level that this back end takes.
    ///
    /// # Errors
    /// As [`set_lower`](Self::set_lower).
    pub fn set_upper(&self, origin: Origin, level: Level) -> Result<()> {
        self.expect(origin)?.set_upper(level);
        Ok(())
    }

    /// Keeps the lower limit from moving outwards.
    ///
    /// # Errors
    /// As [`set_lower`](Self::set_lower).
    pub fn fix_lower(&self, origin: Origin) -> Result<()> {
        self.expect(origin)?.fix_lower();
        Ok(())
    }

    /// Keeps the upper limit from moving outwards.
    ///
    /// # Errors
    /// As [`set_lower`](Self::set_lower).
    pub fn fix_upper(&self, origin: Origin) -> Result<()> {
        self.expect(origin)?.fix_upper();
        Ok(())
    }

    fn expect(&self, origin: Origin) -> Result<&Limits> {
        if self.origin == origin {
            return Ok(&self.limits);
        }
        Err(Error::InvalidValue.because(format_args!(
            "expected a log back end for messages of origin {origin:?}, this one is for {:?}",
            self.origin
        )))
    }
}

/// The back ends for the messages of one origin, and the limits that new ones begin with.
#[derive(Debug)]
struct Registry {
    backends: Mutex<Vec<Arc<Backend>>>,
    lower: AtomicU32,
    upper: AtomicU32,
    /// The least severe level that any back end takes: lets a silent call site cost one load.
    threshold: AtomicU32,
}

impl Registry {
    const fn new() -> Self {
        Self {
            backends: Mutex::new(Vec::new()),
            lower: AtomicU32::new(Level::Info as u32),
            upper: AtomicU32::new(Level::Critical as u32),
            threshold: AtomicU32::new(Level::Disable as u32),
        }
    }

    fn snapshot(&self) -> Vec<Arc<Backend>> {
        self.backends
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

static SDK: Registry = Registry::new();
static PROGRAM: Registry = Registry::new();

fn registry(origin: Origin) -> &'static Registry {
    match origin {
        Origin::Sdk => &SDK,
        Origin::Program => &PROGRAM,
    }
}

fn refresh_threshold() {
    for registry in [&SDK, &PROGRAM] {
        let lowest = registry
            .snapshot()
            .iter()
            .map(|backend| backend.limits.lower())
            .max();
        registry
            .threshold
            .store(lowest.unwrap_or(Level::Disable as u32), Ordering::Relaxed);
    }
}

fn add(origin: Origin, limits: Limits, independent: bool, sink: Box<dyn Sink>) -> Arc<Backend> {
    let backend = Arc::new(Backend {
        origin,
        limits,
        independent,
        sink,
    });
    registry(origin)
        .backends
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Arc::clone(&backend));
    refresh_threshold();
    backend
}

/// Registers a sink, with the global limits. It stays for the life of the process, as DOCA's do.
pub fn add_backend(origin: Origin, sink: Box<dyn Sink>) -> Arc<Backend> {
    let limits = Limits::new(global_lower(origin), global_upper(origin));
    add(origin, limits, false, sink)
}

/// Registers a sink for softdoca's own messages that global limits do not reach.
pub(super) fn add_independent(level: Level, sink: Box<dyn Sink>) {
    add(Origin::Sdk, Limits::new(level, Level::Critical), true, sink);
}

/// The lower limit that new back ends begin with; at first [`Level::Info`].
pub fn global_lower(origin: Origin) -> Level {
    Level::from_value(registry(origin).lower.load(Ordering::Relaxed)).unwrap_or(Level::Info)
}

/// The upper limit that new back ends begin with; at first [`Level::Critical`].
pub fn global_upper(origin: Origin) -> Level {
    Level::from_value(registry(origin).upper.load(Ordering::Relaxed)).unwrap_or(Level::Critical)
}

/// Sets the lower limit of all back ends for messages of this origin, and of those to come.
pub fn set_global_lower(origin: Origin, level: Level) {
    let registry = registry(origin);
    registry.lower.store(level as u32, Ordering::Relaxed);
    for backend in registry.snapshot() {
        if !backend.independent {
            backend.limits.set_lower(level);
        }
    }
    refresh_threshold();
}

/// Sets the upper limit of all back ends for messages of this origin, and of those to come.
pub fn set_global_upper(origin: Origin, level: Level) {
    let registry = registry(origin);
    registry.upper.store(level as u32, Ordering::Relaxed);
    for backend in registry.snapshot() {
        if !backend.independent {
            backend.limits.set_upper(level);
        }
    }
}

/// Whether a message of this level may reach a back end.
pub(super) fn may_reach(origin: Origin, level: Level) -> bool {
    level as u32 <= registry(origin).threshold.load(Ordering::Relaxed)
}

/// Hands a message to every back end that takes its level.
pub(super) fn deliver(record: &Record<'_>) {
    // Cloned out of the lock: a sink may be a C callback, which may call back into DOCA.
    for backend in registry(record.origin).snapshot() {
        if backend.limits.take(record.level) {
            backend.sink.accept(record);
        }
    }
}
