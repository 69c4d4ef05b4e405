//! Steps that deployments under test have in common: starting the front end, waiting for a log and for exits.

use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use deployment::implementation::{Implementation, Layout};
use deployment::process::Process;
use deployment::sandbox::Sandbox;
use deployment::{Deployment, Form, Part};

use crate::violation::Violation;

/// Block size of the initiators of [`faulty`] deployments, in bytes.
pub(crate) const BLOCK_SIZE: usize = 4096;

/// Polling interval of all waits.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Time for the last output of a process that has exited.
const DRAIN: Duration = Duration::from_secs(2);

/// Timeouts of a front end, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrontEndTimeouts {
    pub(crate) control: &'static str,
    /// Time for which I/Os wait for an offline service.
    pub(crate) reconnect: &'static str,
}

/// Number of the CPU of the worker of role `index`, as the value of `--cpu`.
pub(crate) fn cpu(cpus: &[usize], index: usize) -> String {
    let cpu = cpus.get(index % cpus.len().max(1));
    cpu.copied().unwrap_or(0).to_string()
}

/// A [serving](Deployment::serving) deployment for faults: its service detects a peer that does not answer within
/// seconds, and its targets end sessions without a service. The service runs on CPU 0, the targets on the following
/// CPUs.
pub(crate) fn faulty(
    sandbox: Sandbox,
    implementation: &Implementation,
    (layout, blocks): (Layout, u64),
    cpus: &[usize],
    limit: Duration,
) -> Result<Deployment, Violation> {
    let form = Form {
        layout,
        block_size: BLOCK_SIZE,
        blocks,
    };
    let placement = |part: Part| match part {
        Part::Target(target) => vec![cpus[(target + 1) % cpus.len()]],
        Part::Initiator | Part::FrontEnd | Part::Service => vec![cpus[0]],
    };
    let mut deployment = Deployment::serving(sandbox, implementation, form, &placement, limit)?;
    for target in 0..deployment.targets() {
        // Longer than the service's timeout for the session of its initiator.
        deployment.add_flags(Part::Target(target), ["--idle-timeout", "8"]);
    }
    deployment.add_flags(
        Part::Service,
        ["--control-timeout", "4", "--io-timeout", "4"],
    );
    if layout == Layout::Gga {
        deployment.add_flags(Part::Service, ["--trigger-recovery-read-every-n", "5"]);
    }
    Ok(deployment)
}

/// Adds the flags of an NBD server to its command, without those of its deployment.
pub(crate) fn complete_front_end(
    command: &mut Command,
    cpu: &str,
    timeouts: FrontEndTimeouts,
    socket: &Path,
) {
    command
        .args(["--cpu", cpu])
        .args(["--control-timeout", timeouts.control])
        .args(["--reconnect-timeout", timeouts.reconnect])
        .args(["--output", "json", "--socket"])
        .arg(socket);
}

/// Waits for the exit of a process of the test, which must not have crashed. Returns `true` for success.
pub(crate) fn end_of(process: Process, limit: Duration) -> Result<bool, Violation> {
    Ok(process.expect_exit(limit, DRAIN)?.succeeded())
}

/// Waits for a client, and returns its result.
pub(crate) fn joined<T>(client: JoinHandle<Result<T, Violation>>) -> Result<T, Violation> {
    client
        .join()
        .unwrap_or_else(|_| Err(Violation::new("a client has panicked")))
}

/// Waits for all clients, and returns the first violation.
pub(crate) fn all_joined(
    clients: impl Iterator<Item = JoinHandle<Result<(), Violation>>>,
) -> Result<(), Violation> {
    let results: Vec<_> = clients.map(joined).collect();
    results.into_iter().collect()
}
