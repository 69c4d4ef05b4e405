//! Doorbells: waking an endpoint that sleeps.
//!
//! An endpoint that is about to sleep sets its sleep word in the ring, checks the ring once more, and waits on its
//! eventfd. The other endpoint checks that word after it has published something. At least one of them must see the
//! other's write, which takes a full barrier between write and check on both sides. Checks are frequent and sleeps are
//! rare, so the endpoint that goes to sleep pays for both: [`barrier_before_sleep`] makes the kernel execute a barrier
//! in every thread that could be publishing. Where the kernel does not support this, each check has its own fence;
//! every ring records which of the two its endpoints use.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::kernel::{EventFd, barrier_in_all_threads, uses_barriers};
use super::mapping::{Mapping, Word, fence};

/// Must be called after the sleep words of all rings were set, and before the last check of the rings.
pub(crate) fn barrier_before_sleep() {
    // The system call is a barrier for this thread as well.
    if !uses_barriers() || !barrier_in_all_threads() {
        fence(Ordering::SeqCst);
    }
}

/// Wakes the other endpoint of one ring if it sleeps.
#[derive(Debug)]
pub(super) struct Bell {
    mapping: Arc<Mapping>,
    /// Offset of the other endpoint's sleep word.
    sleeps_at: usize,
    wake: EventFd,
    /// `true` if either endpoint does not use the kernel's barriers.
    needs_fence: bool,
}

impl Bell {
    /// Creates the doorbell of the endpoint that has its sleep word and its "uses barriers" word at these offsets.
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

    /// Wakes the other endpoint if it sleeps. Must follow the publication.
    #[inline]
    pub(super) fn ring_if_asleep(&self) {
        if self.needs_fence {
            fence(Ordering::SeqCst);
        } else {
            // The endpoint that falls asleep provides the processor's barrier; the compiler must keep the order.
            compiler_fence(Ordering::SeqCst);
        }
        let sleeps = self.mapping.word(self.sleeps_at);
        if sleeps.load(Ordering::Relaxed) != 0 {
            self.wake_sleeper(sleeps);
        }
    }

    #[cold]
    fn wake_sleeper(&self, sleeps: &Word) {
        if sleeps.swap(0, Ordering::Relaxed) != 0 {
            self.wake.ring();
        }
    }

    /// Sends a wake-up without checking the sleep word: for rare events that must not be missed, such as closing.
    pub(super) fn ring_now(&self) {
        self.wake.ring();
    }
}
