//! Primitives of the [biased lock](super::biased_lock). In `tests/model`, loom's types replace them.

use std::cell::UnsafeCell;
use std::sync::{MutexGuard, PoisonError};

use super::mapping::Word;

pub(super) use std::thread::yield_now;

/// A mutex without a value.
#[derive(Debug, Default)]
pub(super) struct Mutex(std::sync::Mutex<()>);

impl Mutex {
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        // There is no value that a panic could have left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new word of this process. The model names words in its messages.
pub(super) const fn word(_name: &'static str) -> Word {
    Word::new(0)
}

/// A value that one thread at a time uses.
#[derive(Debug)]
pub(super) struct Contents<T>(UnsafeCell<T>);

impl<T> Contents<T> {
    pub(super) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    ///
    /// No other call for the same value is active, in any thread.
    #[inline(always)]
    pub(super) unsafe fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: guaranteed by the caller.
        action(unsafe { &mut *self.0.get() })
    }
}
