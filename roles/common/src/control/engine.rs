//! A progress engine among the other event sources of the main thread.

use std::cell::Cell;
use std::os::fd::AsFd as _;
use std::time::Instant;

use doca::{Event, Pe};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Interest;

/// A progress engine that is waited for by its notification descriptor. Polling it does not sleep.
///
/// `doca_pe_progress` sleeps up to 50 ms when it has nothing to do, and for this engine only. The main thread also
/// waits for workers, sockets and signals: each of the few dozen steps of a session's init would take that long. So
/// the engine is armed before the thread waits, and progressed only when its descriptor is readable or its contexts
/// have been used since.
pub(super) struct Engine {
    pe: Pe,
    armed: Cell<bool>,
}

impl Engine {
    pub(super) fn new() -> doca::Result<Self> {
        Ok(Self {
            pe: Pe::new()?,
            armed: Cell::new(false),
        })
    }

    /// Returns the engine, for starting or using its contexts, and polls it afterwards.
    pub(super) fn touch(&self) -> &Pe {
        if self.armed.replace(false) {
            // Fails for an engine without notifications, which was not armed.
            let _ = self.pe.disarm();
        }
        &self.pe
    }

    /// Returns the next event, if there is one.
    pub(super) fn poll(&self) -> Option<Event> {
        if self.armed.get() && !self.is_readable() {
            return None;
        }
        self.touch().poll()
    }

    /// Registers interest in the next event.
    pub(super) fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        if !self.armed.get() {
            match self.pe.arm() {
                Ok(true) => self.armed.set(true),
                // There are pending events.
                Ok(false) => return interest.until(Instant::now()),
                // There are pending events, or the engine has no notifications.
                Err(_) => return interest.polled(),
            }
        }
        interest.readable(self.pe.as_fd());
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.pe, PollFlags::IN)];
        // Interrupted by a signal: treated as readable.
        poll(&mut fds, Some(&Timespec::default())) != Ok(0)
    }
}
