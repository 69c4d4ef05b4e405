//! The kernel, under loom.

use loom::sync::{Arc, Condvar, Mutex};

use crate::processors;
pub(super) use crate::processors::{barrier_in_all_threads, uses_barriers};

/// Like an eventfd in an engine's epoll set: a counter that can be waited for, incremented and reset.
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

    /// Resets the counter; `true` if it was not 0.
    pub(crate) fn drain(&self) -> bool {
        std::mem::take(&mut *self.0.0.lock().expect("nobody panics")) != 0
    }

    /// Sleeps until a wake-up. Without softdoca's timeout: a lost wake-up is a deadlock, which loom reports.
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
