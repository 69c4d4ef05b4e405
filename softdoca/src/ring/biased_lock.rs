//! A lock whose only user pays for neither a mutex nor an atomic read-modify-write.
//!
//! The first user gets the bias: from its second use on it sets a flag, looks whether it still has the bias, uses the
//! value, and clears the flag. The second user takes the bias away, once and for all, and waits until the flag is
//! cleared; from then on all users take a mutex. As for the [sleep words](super::bell) of rings, one of the two must see
//! the other's write, and the rare side, which takes the bias away, has the kernel execute the frequent side's barrier.

use std::fmt;
use std::sync::atomic::{Ordering, compiler_fence};

use super::exclusion::{Contents, Mutex, word, yield_now};
use super::kernel::{barrier_in_all_threads, uses_barriers};
use super::mapping::{Word, fence};
use crate::error::{Error, Result};

/// Value of [`BiasedLock::owner`] before the first use.
const NOBODY: u64 = 0;
/// Value of [`BiasedLock::owner`] when the bias was taken away.
const SHARED: u64 = u64::MAX;

/// A value for several users, most often for one.
#[repr(C)]
pub(crate) struct BiasedLock<T> {
    /// The user that has the bias.
    owner: Word,
    /// 1 while that user uses the value without the mutex.
    busy: Word,
    value: Contents<T>,
    /// Held by every other use of the value, and while `owner` is changed.
    mutex: Mutex,
    /// The kernel does not execute barriers in other threads.
    needs_fence: bool,
}

// SAFETY: the value is used by one thread at a time, as `with` ensures.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

impl<T> BiasedLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            owner: word("owner of the bias"),
            busy: word("use by the owner"),
            value: Contents::new(value),
            mutex: Mutex::default(),
            needs_fence: !uses_barriers(),
        }
    }

    /// Runs `action` on the value. Fails without running it if another user has the bias and the kernel no longer
    /// executes barriers.
    ///
    /// # Safety
    ///
    /// `user` is not 0 and not `u64::MAX`; two calls with the same number never run at the same time, and the earlier
    /// one happens before the later one. `action` does not use the lock.
    #[inline(always)]
    pub(crate) unsafe fn with<R>(&self, user: u64, action: impl FnOnce(&mut T) -> R) -> Result<R> {
        if self.owner.load(Ordering::Relaxed) == user && self.enter(user) {
            // SAFETY: other users see either the flag, and wait, or have taken the bias away before, which this one
            // would have seen. Calls with the same number do not overlap.
            let result = unsafe { self.value.with(action) };
            self.busy.store(0, Ordering::Release);
            return Ok(result);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.with_mutex(user, action) }
    }

    /// Sets the flag, unless the bias was taken away.
    #[inline(always)]
    fn enter(&self, user: u64) -> bool {
        self.busy.store(1, Ordering::Relaxed);
        if self.needs_fence {
            fence(Ordering::SeqCst);
        } else {
            // Taking the bias away executes the processor's barrier; the compiler must keep the order.
            compiler_fence(Ordering::SeqCst);
        }
        let is_owner = self.owner.load(Ordering::Relaxed) == user;
        if !is_owner {
            self.busy.store(0, Ordering::Release);
        }
        is_owner
    }

    /// # Safety
    ///
    /// As [`with`](Self::with).
    #[cold]
    #[inline(never)]
    unsafe fn with_mutex<R>(&self, user: u64, action: impl FnOnce(&mut T) -> R) -> Result<R> {
        let _guard = self.mutex.lock();
        match self.owner.load(Ordering::Relaxed) {
            NOBODY => self.owner.store(user, Ordering::Relaxed),
            SHARED => {}
            _ => self.take_bias()?,
        }
        // SAFETY: either no user has the bias, or this one, whose calls do not overlap; all others take the mutex.
        Ok(unsafe { self.value.with(action) })
    }

    /// Takes the bias from its owner. The mutex is held.
    fn take_bias(&self) -> Result<()> {
        let owner = self.owner.load(Ordering::Relaxed);
        self.owner.store(SHARED, Ordering::Relaxed);
        if self.needs_fence {
            fence(Ordering::SeqCst);
        } else if !barrier_in_all_threads() {
            self.owner.store(owner, Ordering::Relaxed);
            return Err(Error::OperatingSystem.because(
                "the kernel refuses memory barriers that it has executed before: \
                 a second producer cannot send to the same consumer",
            ));
        }
        while self.busy.load(Ordering::Acquire) != 0 {
            yield_now();
        }
        Ok(())
    }
}

impl<T> fmt::Debug for BiasedLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedLock")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
