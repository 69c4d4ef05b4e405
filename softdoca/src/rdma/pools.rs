//! Task pools.

use super::task::Operation;
use crate::progress::TaskPool;

/// Task pools, one for each kind that the C API configures.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) receive: TaskPool,
    work: [TaskPool; Operation::COUNT],
}

impl Pools {
    /// The pool of tasks of this kind.
    pub(crate) fn of(&self, operation: Operation) -> &TaskPool {
        &self.work[operation as usize]
    }

    /// Maximum number of this side's tasks in flight.
    pub(super) fn work_limit(&self) -> usize {
        self.work.iter().map(|pool| pool.limit() as usize).sum()
    }
}
