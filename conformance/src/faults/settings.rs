//! What all cases of a run have in common.

use std::time::Duration;

use crate::implementation::Implementation;

/// Says that nobody waits for the result any longer.
pub type Interrupted<'a> = &'a (dyn Fn() -> bool + Sync);

/// How cases are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose programs.
    pub implementation: Implementation,
    /// Timeout of all roles where a peer is stopped: nothing else tells of it. Whole seconds.
    pub timeout: Duration,
    /// Time in which all others have to know of the fault, and to end, on a machine that does other things, too. Where nobody is stopped
    /// the roles' own timeouts are longer than this, so that none of them passes for having noticed.
    pub notice: Duration,
    /// CPUs for the roles' workers, at least one.
    pub cpus: Vec<usize>,
}
