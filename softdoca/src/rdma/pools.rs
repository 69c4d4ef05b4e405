//! The pools that tasks come from.

use super::task::Operation;
use crate::progress::TaskPool;

/// Task pools, one for each kind that the C API configures.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) receive: TaskPool,
    work: [TaskPool; Operation::COUNT],
}

impl Pools {
    /// The pool of the tasks that do this.
    pub(crate) fn of(&self, operation: Operation) -> &TaskPool {
        &self.work[operation as usize]
    }

    /// Tasks of this side that can be in flight.
    pub(super) fn work_limit(&self) -> usize {
        self.work.iter().map(|pool| pool.limit() as usize).sum()
    }
}
