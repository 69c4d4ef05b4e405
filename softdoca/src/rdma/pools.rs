//! The pools that tasks come from.

use super::task::Operation;
use crate::progress::TaskPool;

/// Task pools, one for each kind that the C API configures.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) receive: TaskPool,
    pub(crate) send: TaskPool,
    pub(crate) send_immediate: TaskPool,
    pub(crate) read: TaskPool,
    pub(crate) write: TaskPool,
    pub(crate) write_immediate: TaskPool,
}

impl Pools {
    pub(super) fn of(&self, operation: Operation, immediate: bool) -> &TaskPool {
        match (operation, immediate) {
            (Operation::Send, false) => &self.send,
            (Operation::Send, true) => &self.send_immediate,
            (Operation::Read, _) => &self.read,
            (Operation::Write, false) => &self.write,
            (Operation::Write, true) => &self.write_immediate,
        }
    }

    /// Tasks of this side that can be in flight.
    pub(super) fn work_limit(&self) -> usize {
        [
            &self.send,
            &self.send_immediate,
            &self.read,
            &self.write,
            &self.write_immediate,
        ]
        .iter()
        .map(|pool| pool.limit() as usize)
        .sum()
    }
}
