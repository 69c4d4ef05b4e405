//! What the kernel does for rings: eventfds, and barriers in the threads of others.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::EventfdFlags;
use rustix::fs::FileType;
use rustix::thread::{MembarrierCommand, membarrier};

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
        membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok() && barrier_in_all_threads()
    })
}

/// Puts a full barrier into every thread of all processes that [use barriers](uses_barriers), this one included. False when the kernel
/// does not, any more.
pub(super) fn barrier_in_all_threads() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}
