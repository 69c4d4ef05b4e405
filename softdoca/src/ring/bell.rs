//! Waking an end that sleeps.
//!
//! An end that is about to sleep sets its word in the ring, looks at the ring once more, and waits on its eventfd.
//! The other end looks at the word after it has published something. At least one of them must see the other's write, which
//! takes a full barrier between write and look on both sides. Looks are frequent and sleeps are rare, so the end that goes to sleep
//! pays for both: [`barrier_before_sleep`] has the kernel put a barrier into every thread that could publish just then. Where the
//! kernel cannot, each look has a fence of its own; every ring says which of the two its ends do.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::kernel::{EventFd, barrier_in_all_threads, uses_barriers};
use super::mapping::{Mapping, Word, fence};

/// Comes after the sleep words of all rings were set, and before the last look at the rings.
pub(crate) fn barrier_before_sleep() {
    // The system call is a barrier for this thread as well.
    if !uses_barriers() || !barrier_in_all_threads() {
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
    fn wake_sleeper(&self, sleeps: &Word) {
        if sleeps.swap(0, Ordering::Relaxed) != 0 {
            self.wake.ring();
        }
    }

    /// Rings without looking: for the rare events that the other end must not sleep through, such as closing.
    pub(super) fn ring_now(&self) {
        self.wake.ring();
    }
}
