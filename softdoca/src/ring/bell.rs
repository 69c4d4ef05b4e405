//! Waking an end that sleeps.
//!
//! An end that is about to sleep sets its word in the ring, looks at the ring once more, and waits on its eventfd.
//! The other end looks at the word after it has published something. At least one of them must see the other's write, which
//! takes a full barrier between write and look on both sides. Looks are frequent and sleeps are rare, so the end that goes to sleep
//! pays for both: [`barrier_before_sleep`] has the kernel put a barrier into every thread that could publish just then. Where the
//! kernel cannot, each look has a fence of its own; every ring says which of the two its ends do.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Arc, OnceLock};

use rustix::event::EventfdFlags;
use rustix::fs::FileType;
use rustix::thread::{MembarrierCommand, membarrier};

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

/// Whether this process has barriers put into its threads by others, and does so to them.
pub(super) fn uses_barriers() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // Missing before Linux 4.16 and in some sandboxes. A process that can register can also ask for the barrier.
        membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    })
}

/// Comes after the sleep words of all rings were set, and before the last look at the rings.
pub(crate) fn barrier_before_sleep() {
    // The system call is a barrier for this thread as well.
    if !uses_barriers() || membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        fence(Ordering::SeqCst);
    }
}

/// Wakes the other end of one ring if it sleeps.
#[derive(Debug)]
pub(super) struct Bell {
    mapping: Arc<Mapping>,
    /// Offset of the word in which the other end says that it sleeps.
    sleeps_at: usize,
    wake: EventFd,
    /// Either end does without barriers.
    needs_fence: bool,
}

impl Bell {
    /// For the end whose words are at these offsets: in which it says that it sleeps, and that it uses barriers.
    pub(super) fn new(
        mapping: Arc<Mapping>,
        sleeps_at: usize,
        barriers_at: usize,
        wake: EventFd,
    ) -> Self {
        let theirs = mapping.word(barriers_at).load(Ordering::Relaxed) == 1;
        Self {
            needs_fence: !(theirs && uses_barriers()),
            mapping,
            sleeps_at,
            wake,
        }
    }

    /// Wakes the other end if it sleeps. Comes after the publication that it is to see.
    #[inline]
    pub(super) fn ring_if_asleep(&self) {
        if self.needs_fence {
            fence(Ordering::SeqCst);
        } else {
            // The processor's barrier comes from whoever falls asleep; the compiler has to keep the order for it.
            compiler_fence(Ordering::SeqCst);
        }
        let sleeps = self.mapping.word(self.sleeps_at);
        if sleeps.load(Ordering::Relaxed) != 0 {
            self.wake_sleeper(sleeps);
        }
    }

    #[cold]
    fn wake_sleeper(&self, sleeps: &AtomicU64) {
        if sleeps.swap(0, Ordering::Relaxed) != 0 {
            self.wake.ring();
        }
    }

    /// Rings without looking: for the rare events that the other end must not sleep through, such as closing.
    pub(super) fn ring_now(&self) {
        self.wake.ring();
    }
}
