//! Waking an end that sleeps.
//!
//! An end that is about to sleep sets its word in the ring, looks at the ring once more, and waits on its eventfd.
//! The other end looks at the word after it has published something. Both sides have a full fence between their
//! write and their look, so at least one of them sees the other's write.
//!
//! Inside `doca_pe_progress` a first look goes without a fence; the sure ones are deferred to its end and share one.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use rustix::event::EventfdFlags;
use rustix::fs::FileType;

use super::mapping::Mapping;
use crate::error::{Error, Result};

/// An eventfd that wakes one progress engine.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> Result<Self> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(|_| Error::OperatingSystem)
    }

    /// Takes an eventfd that a peer sent. Whatever it is, ringing it is only a non-blocking write of 8 bytes. Pipes and
    /// sockets are refused: a write to one whose other end is closed raises SIGPIPE, which ends C programs.
    pub(crate) fn from_peer(fd: OwnedFd) -> Result<Self> {
        let stat = rustix::fs::fstat(&fd).map_err(|_| Error::InvalidValue)?;
        if matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::Fifo | FileType::Socket
        ) {
            return Err(Error::InvalidValue);
        }
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|_| Error::InvalidValue)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)
            .map_err(|_| Error::InvalidValue)?;
        Ok(Self(fd))
    }

    pub(crate) fn ring(&self) {
        // A full counter (EAGAIN) means that it rings already; a dead peer needs no waking.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn drain(&self) {
        let mut count = [0u8; 8];
        // EAGAIN: nobody rang.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes the other end of one ring if it sleeps.
#[derive(Debug)]
pub(crate) struct Bell {
    mapping: Arc<Mapping>,
    /// Offset of the word in which the other end says that it sleeps.
    sleeps_at: usize,
    wake: EventFd,
    /// The thread that has last put the bell into its list; 0 when that one has looked.
    queued_by: AtomicUsize,
}

impl Bell {
    pub(super) fn new(mapping: Arc<Mapping>, sleeps_at: usize, wake: EventFd) -> Arc<Self> {
        Arc::new(Self {
            mapping,
            sleeps_at,
            wake,
            queued_by: AtomicUsize::new(0),
        })
    }

    /// Wakes the other end if it sleeps: now, or, if it only falls asleep, at the end of the progress call that this thread is in.
    pub(super) fn ring_if_asleep(self: &Arc<Self>) {
        let deferred = DEFERRED.with_borrow_mut(|deferred| {
            if deferred.depth == 0 {
                return false;
            }
            // Producers of several threads share a bell. Each thread looks for itself: the callback that another one is in
            // may take long.
            let thread = std::ptr::from_ref(deferred).addr();
            if self.queued_by.load(Ordering::Relaxed) != thread {
                self.queued_by.store(thread, Ordering::Relaxed);
                deferred.bells.push(Arc::clone(self));
            }
            true
        });
        if !deferred {
            fence(Ordering::SeqCst);
        }
        // Without the fence this look may miss an end that falls asleep just now; the deferred one finds it. An end that has slept
        // for a while is rung before the program's callback goes on, which may take long.
        self.look();
    }

    /// Rings without looking: for the rare events that the other end must not sleep through, such as closing.
    pub(super) fn ring_now(&self) {
        self.wake.ring();
    }

    /// Sure to find a sleeper only after a sequentially consistent fence that follows the publication.
    fn look(&self) {
        let sleeps = self.mapping.word(self.sleeps_at);
        if sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0 {
            self.wake.ring();
        }
    }
}

#[derive(Default)]
struct Deferred {
    depth: u32,
    bells: Vec<Arc<Bell>>,
}

thread_local! {
    static DEFERRED: RefCell<Deferred> = RefCell::default();
}

/// While it lives, this thread's sure looks wait; dropping it makes them.
pub(crate) struct Deferral(());

impl Deferral {
    pub(crate) fn begin() -> Self {
        DEFERRED.with_borrow_mut(|deferred| deferred.depth += 1);
        Self(())
    }
}

impl Deferral {
    /// Rings what is needed now, in the middle of it: before waiting for a peer that may sleep.
    pub(crate) fn ring_waiting() {
        DEFERRED.with_borrow_mut(Deferred::ring);
    }
}

impl Deferred {
    fn ring(&mut self) {
        if self.bells.is_empty() {
            return;
        }
        for bell in &self.bells {
            bell.queued_by.store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        for bell in self.bells.drain(..) {
            bell.look();
        }
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        DEFERRED.with_borrow_mut(|deferred| {
            deferred.depth -= 1;
            deferred.ring();
        });
    }
}
