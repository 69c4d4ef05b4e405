//! A mutex and a value that it protects, under loom.

use loom::sync::MutexGuard;
pub(super) use loom::thread::yield_now;

use crate::processors;
use crate::words::{Cell, Word};

#[derive(Debug)]
pub(super) struct Mutex(loom::sync::Mutex<()>);

impl Default for Mutex {
    fn default() -> Self {
        Self(loom::sync::Mutex::new(()))
    }
}

impl Mutex {
    /// A waiting thread leaves its processor.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        let mut guard = None;
        processors::leave_while(|| guard = self.0.lock().ok());
        guard.expect("no thread panics")
    }
}

pub(super) fn word(name: &'static str) -> Word {
    Word::new(name)
}

/// Loom detects unordered uses.
#[derive(Debug)]
pub(super) struct Contents<T>(Cell<T>);

impl<T> Contents<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    /// # Safety
    ///
    /// None is needed.
    pub(super) unsafe fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        self.0.write(action)
    }
}
