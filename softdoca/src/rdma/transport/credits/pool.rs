//! Both sides of a pool of receives: the receiver posts receives and returns unused ones that a sender has taken to the
//! pool; senders take them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use super::Mapping;
use crate::error::{Error, Result};

/// The receiver's side.
#[derive(Debug)]
pub(in super::super) struct ReceivePool {
    mapping: Mapping,
    /// By slot number: `true` while a connection has the slot.
    used: Mutex<Vec<bool>>,
}

impl ReceivePool {
    /// Creates a pool for as many concurrent senders as there are slots in `mapping`, which must be unused.
    pub(super) fn over(mapping: Mapping) -> ReceivePool {
        let used = Mutex::new(vec![false; mapping.slots() as usize]);
        ReceivePool { mapping, used }
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Allocates a slot for a new connection.
    ///
    /// # Errors
    /// [`Error::Full`] if all slots are in use.
    pub(in super::super) fn slot(self: &Arc<Self>) -> Result<Slot> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let number = used.iter().position(|used| !used).ok_or(Error::Full)?;
        used[number] = true;
        // The number of slots is at most 65535.
        let number = number as u32;
        let word = self.mapping.slot(number).load(Ordering::Relaxed);
        Ok(Slot {
            pool: Arc::clone(self),
            number,
            generation: (word >> 32) as u32,
            received: 0,
        })
    }

    pub(in super::super) fn post(&self, count: u64) {
        self.mapping.posted().fetch_add(count, Ordering::Release);
    }
}

/// A connection's slot in the pool of its instance; freed when dropped.
#[derive(Debug)]
pub(in super::super) struct Slot {
    pool: Arc<ReceivePool>,
    number: u32,
    generation: u32,
    /// Number of messages received, wrapping.
    received: u32,
}

impl Slot {
    pub(in super::super) fn pool(&self) -> &ReceivePool {
        &self.pool
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    pub(in super::super) fn count_message(&mut self) {
        self.received = self.received.wrapping_add(1);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = u64::from(self.generation.wrapping_add(1)) << 32;
        let word = self
            .pool
            .mapping
            .slot(self.number)
            .swap(next, Ordering::AcqRel);
        let unused = (word as u32).wrapping_sub(self.received);
        // A faulty sender can write any value, but must not take more receives than there are; in that case, none are
        // returned.
        if (word >> 32) as u32 == self.generation && i32::try_from(unused).is_ok() {
            self.pool.post(u64::from(unused));
        }
        let mut used = self
            .pool
            .used
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        used[self.number as usize] = false;
    }
}

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
        // Counted in the slot first: a receive that is counted twice is returned, but a receive that is not counted
        // would be lost.
        if self.available() == 0 || !self.count(1) {
            return false;
        }
        let taken = self.mapping.taken();
        while self.available() != 0 {
            // Receives taken by others were posted before: a process that observes that they are taken must also
            // observe that they are posted, because otherwise it would take too many.
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
