//! The kernel, under loom.

use loom::sync::{Arc, Condvar, Mutex};

use crate::processors;
pub(super) use crate::processors::{barrier_in_all_threads, uses_barriers};

/// As an eventfd in an engine's epoll descriptor: a count that can be waited for, added to and taken.
#[derive(Debug)]
pub(crate) struct EventFd(Arc<(Mutex<u64>, Condvar)>);

impl EventFd {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Mutex::new(0), Condvar::new())))
    }

    pub(crate) fn duplicate(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    pub(crate) fn ring(&self) {
        let (count, rung) = &*self.0;
        *count.lock().expect("nobody panics") += 1;
        rung.notify_all();
    }

    /// Whether somebody rang.
    pub(crate) fn drain(&self) -> bool {
        std::mem::take(&mut *self.0.0.lock().expect("nobody panics")) != 0
    }

    /// Sleeps until somebody rings. Without the bound that softdoca's sleeps have: whoever is not woken sleeps for ever, and loom says so.
    pub(crate) fn wait(&self) {
        processors::leave_while(|| {
            let (count, rung) = &*self.0;
            let mut count = count.lock().expect("nobody panics");
            while *count == 0 {
                count = rung.wait(count).expect("nobody panics");
            }
        });
    }
}
