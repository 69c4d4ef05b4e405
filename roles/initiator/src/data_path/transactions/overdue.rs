//! I/Os that exceed their timeout.

use std::time::Instant;

use super::Transactions;
use crate::data_path::Failure;

impl Transactions {
    /// Returns the failure of an I/O that has been in flight for longer than the timeout, if any. Checks every slot.
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

    /// Abandons I/Os that have exceeded their timeout, so that the run can end once the others have completed.
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
