//! I/Os that take too long.

use std::time::Instant;

use super::Transactions;
use crate::data_path::Failure;

impl Transactions {
    /// The I/O that has been in flight for longer than the timeout, if there is one. Looks at every slot.
    #[must_use]
    pub fn overdue(&self, now: Instant) -> Option<Failure> {
        let after = self.task.io_timeout;
        let slot = self.slots.iter().find(|slot| {
            slot.direction.is_some() && now.saturating_duration_since(slot.issued) >= after
        })?;
        slot.direction.map(|direction| Failure::Timeout {
            io: slot.io(direction),
            after,
        })
    }

    /// Gives up on what is overdue, so that the others can come to rest.
    pub fn abandon_overdue(&mut self, now: Instant) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.direction.is_some()
                && now.saturating_duration_since(slot.issued) >= self.task.io_timeout
            {
                self.abandon(index);
            }
        }
    }
}
