//! Shutdown of a program: a flag, and a wake-up for the main thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

/// Wakes the main thread from [`Waiter::wait`](crate::Waiter::wait). Inexpensive to clone, and usable from any thread.
#[derive(Debug, Clone)]
pub struct Waker {
    pipe: Arc<(OwnedFd, OwnedFd)>,
}

impl Waker {
    /// Creates a waker with its own pipe.
    ///
    /// # Errors
    ///
    /// The process or the system has too many open files.
    pub fn new() -> std::io::Result<Self> {
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self {
            pipe: Arc::new(pipe),
        })
    }

    /// Makes the current or the next wait return. If the pipe is full, a wake-up is already pending.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.pipe.1, &[1]);
    }

    /// Discards pending wake-ups.
    pub fn clear(&self) {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.pipe.0, &mut bytes).is_ok_and(|count| count == bytes.len()) {}
    }

    /// Descriptor that is readable after a wake-up, for threads that also wait for other descriptors.
    #[must_use]
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.pipe.0.as_fd()
    }
}

/// Shutdown request of the program, and the waker of its main thread.
#[derive(Debug, Clone)]
pub struct Shutdown {
    requested: Arc<AtomicBool>,
    waker: Waker,
}

impl Shutdown {
    /// Creates a shutdown that only [`request`](Self::request) triggers.
    ///
    /// # Errors
    ///
    /// As [`Waker::new`].
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            requested: Arc::default(),
            waker: Waker::new()?,
        })
    }

    pub fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Returns `true` if shutdown was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Flag of [`is_requested`](Self::is_requested), for signal handlers. Setting it does not wake the main thread.
    #[must_use]
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.requested
    }

    /// Waker of the main thread, for worker threads to clone.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}
