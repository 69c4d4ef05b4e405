//! System calls for rings: eventfds, and barriers in other threads.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::EventfdFlags;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::error::{Error, Result};
use crate::runtime::is_eventfd;

/// An eventfd that wakes one progress engine.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> Result<Self> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(|_| Error::OperatingSystem)
    }

    /// Accepts an eventfd received from a peer. Any other descriptor is refused: a write to a pipe or socket whose
    /// other end is closed raises SIGPIPE, which kills C programs, and a file system in user space may block a write
    /// for ever.
    pub(crate) fn from_peer(fd: OwnedFd) -> Result<Self> {
        if is_eventfd(&fd) {
            Ok(Self(fd))
        } else {
            Err(Error::InvalidValue
                .because("expected an eventfd from a peer, got another descriptor"))
        }
    }

    /// Adds 1 to the counter; never blocks.
    pub(crate) fn ring(&self) {
        // The flag is shared with the peer, which can clear it: a write to a full counter would then block.
        let Ok(flags) = fcntl_getfl(&self.0) else {
            return;
        };
        if !flags.contains(OFlags::NONBLOCK)
            && fcntl_setfl(&self.0, flags | OFlags::NONBLOCK).is_err()
        {
            return;
        }
        // A full counter (EAGAIN) is readable already; a dead peer needs no wake-up.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the counter; never blocks, whatever peers have done to the shared flags.
    pub(crate) fn drain(&self) {
        let mut count = [0u8; 8];
        let mut buffers = [IoSliceMut::new(&mut count)];
        let nowait = ReadWriteFlags::NOWAIT;
        match preadv2(&self.0, &mut buffers, u64::MAX, nowait) {
            // EAGAIN: the counter is 0.
            Ok(_) | Err(Errno::AGAIN) => {}
            // Linux before 5.8 refuses positioned reads of an eventfd; sandboxes and emulators may refuse or not know the
            // call. Then the flags are restored, which a peer may clear again.
            Err(_) => {
                let _ = fcntl_setfl(&self.0, OFlags::RDWR | OFlags::NONBLOCK);
                let _ = rustix::io::read(&self.0, &mut count);
            }
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `true` if this process is registered for the kernel's barriers and issues them.
pub(super) fn uses_barriers() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // Missing before Linux 4.16 and in some sandboxes. A process that can register can also issue the barrier.
        membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok() && barrier_in_all_threads()
    })
}

/// Executes a full barrier in every thread of all processes that [use barriers](uses_barriers), this one included.
/// Returns `false` if the kernel does not support it (any more).
pub(super) fn barrier_in_all_threads() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer has a duplicate of each eventfd and clears its O_NONBLOCK flag.
    #[test]
    fn a_peer_cannot_make_ringing_or_draining_block() {
        let (done, finished) = std::sync::mpsc::channel();
        let blocking = |initial: u32| {
            let fd = rustix::event::eventfd(initial, EventfdFlags::CLOEXEC).expect("an eventfd");
            EventFd(fd)
        };
        let thread = std::thread::spawn(move || {
            blocking(0).drain();
            let full = blocking(0);
            rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).expect("room for it");
            full.ring();
            done.send(()).expect("a listener");
        });
        finished
            .recv_timeout(std::time::Duration::from_secs(10))
            .expect("neither call blocks");
        thread.join().expect("no panic");
    }

    /// The kernel answers `preadv2` with ENOSYS, as sandboxes and QEMU's user emulation do. A counter that was not reset
    /// would keep its engine from sleeping.
    #[test]
    fn a_counter_is_drained_without_preadv2() {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

        let filter = SeccompFilter::new(
            [(libc::SYS_preadv2, Vec::new())].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::ENOSYS as u32),
            TargetArch::try_from(std::env::consts::ARCH).expect("a known machine"),
        )
        .expect("a filter");
        let program = BpfProgram::try_from(filter).expect("a program");
        let event = EventFd::new().expect("an eventfd");
        let ring_and_drain = || {
            // Of this thread only. The emulator knows no filters either; it fails the call by itself.
            let _ = seccompiler::apply_filter(&program);
            event.ring();
            let mut count = [0; 8];
            let read = preadv2(
                &event.0,
                &mut [IoSliceMut::new(&mut count)],
                u64::MAX,
                ReadWriteFlags::NOWAIT,
            );
            assert_eq!(read, Err(Errno::NOSYS));
            event.drain();
        };
        std::thread::scope(|scope| scope.spawn(ring_and_drain).join()).expect("no panic");
        assert_eq!(
            rustix::io::read(&event.0, &mut [0; 8]),
            Err(Errno::AGAIN),
            "the counter is 0"
        );
    }

    #[test]
    fn only_eventfds_are_rung() {
        let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
        let file: OwnedFd = tempfile::tempfile().expect("a file").into();
        let memfd = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC);
        for fd in [pipe, file, memfd.expect("a memfd")] {
            assert_eq!(EventFd::from_peer(fd).err(), Some(Error::InvalidValue));
        }
    }
}
