//! What all checks of a run have in common.

use std::ffi::OsString;
use std::time::Duration;

/// Says that nobody waits for the result any longer.
pub type Interrupted<'a> = &'a (dyn Fn() -> bool + Sync);

/// How checks are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Operations of an initiator; a strategy that validates makes at least two passes over the storage.
    pub operations: u32,
    /// Time that a session may take.
    pub timeout: Duration,
    /// How often a session that ended in a start race is repeated.
    pub retries: u32,
    /// `--protocol` of the programs that know it, if any.
    pub protocol: Option<String>,
    /// CPUs for the roles' workers, at least one.
    pub cpus: Vec<usize>,
    /// Program and first arguments of a [`ScriptedTarget`](crate::target::ScriptedTarget) as a process:
    /// `doca-storage conformance faulty-target`.
    pub scripted_target: Vec<OsString>,
}
