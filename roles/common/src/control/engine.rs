//! A progress engine beside other things that the main thread waits for.

use std::cell::Cell;
use std::os::fd::AsFd as _;
use std::time::Instant;

use doca::{Event, Pe};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Interest;

/// A progress engine that is waited for by its descriptor. Polling it does not sleep.
///
/// `doca_pe_progress` waits up to 50 ms when there is nothing to do, and for nothing but this engine. The main thread has workers, sockets and
/// signals to react to meanwhile: in the init of a session each of a few dozen steps would take that long. So the engine is armed before the
/// thread waits, and makes progress only when its descriptor is readable, or when something was done with its contexts since.
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

    /// The engine, for contexts that are started on it or used: what comes of that is polled for.
    pub(super) fn touch(&self) -> &Pe {
        if self.armed.replace(false) {
            // It fails for an engine without notifications, which was not armed.
            let _ = self.pe.disarm();
        }
        &self.pe
    }

    /// The next event, if there is any.
    pub(super) fn poll(&self) -> Option<Event> {
        if self.armed.get() && !self.is_readable() {
            return None;
        }
        self.touch().poll()
    }

    /// Waits for the next event.
    pub(super) fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        if !self.armed.get() {
            match self.pe.arm() {
                Ok(true) => self.armed.set(true),
                // Events wait already.
                Ok(false) => return interest.until(Instant::now()),
                // There are some, or the engine has no notifications.
                Err(_) => return interest.polled(),
            }
        }
        interest.readable(self.pe.as_fd());
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.pe, PollFlags::IN)];
        // Interrupted by a signal: it is looked at.
        poll(&mut fds, Some(&Timespec::default())) != Ok(0)
    }
}
