//! A sender's side: takes receives.

use std::sync::atomic::Ordering;

use super::memory::Mapping;

/// A sender's side.
#[derive(Debug)]
pub(in super::super) struct SharedReceives {
    mapping: Mapping,
    slot: u32,
    generation: u32,
}

impl SharedReceives {
    /// Opens an existing slot; its connection has this generation.
    pub(super) fn over(mapping: Mapping, slot: u32, generation: u32) -> SharedReceives {
        SharedReceives {
            mapping,
            slot,
            generation,
        }
    }

    /// Takes a receive, if there is one.
    pub(in super::super) fn take(&self) -> bool {
        // Counted in the slot first: a receive counted twice is returned, one not counted would be lost.
        if self.available() == 0 || !self.count(1) {
            return false;
        }
        let taken = self.mapping.taken();
        while self.available() != 0 {
            // Receives taken by others were posted before: a process that sees them taken must also see them posted,
            // or it would take too many.
            let seen = taken.load(Ordering::Acquire);
            let posted = self.mapping.posted().load(Ordering::Acquire);
            if posted != seen
                && taken
                    .compare_exchange_weak(
                        seen,
                        seen.wrapping_add(1),
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return true;
            }
        }
        self.count(u32::MAX);
        false
    }

    /// Number of receives available. A count that runs backwards is treated as none.
    fn available(&self) -> u64 {
        let taken = self.mapping.taken().load(Ordering::Relaxed);
        let posted = self.mapping.posted().load(Ordering::Acquire);
        let available = posted.wrapping_sub(taken);
        if i64::try_from(available).is_ok() {
            available
        } else {
            0
        }
    }

    /// Adds to the slot's count, wrapping. Returns `false` if the connection has ended.
    fn count(&self, change: u32) -> bool {
        let slot = self.mapping.slot(self.slot);
        slot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            let (generation, count) = ((word >> 32) as u32, word as u32);
            (generation == self.generation)
                .then(|| u64::from(generation) << 32 | u64::from(count.wrapping_add(change)))
        })
        .is_ok()
    }
}
