//! Steps that deployments under test have in common: starting the front end, waiting for a log and for exits.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deployment::implementation::{Implementation, Layout};
use deployment::process::{Process, Signal, is_orderly};
use deployment::sandbox::Sandbox;
use deployment::{Deployment, Part, Storage};

use crate::violation::Violation;

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

/// A [serving](Deployment::serving) deployment for faults: its service detects a peer that does not answer within seconds, and its targets
/// end sessions without a service. The service has CPU 0, each target the next one.
pub(crate) fn faulty(
    sandbox: Sandbox,
    implementation: &Implementation,
    storage: Storage,
    cpus: &[usize],
    limit: Duration,
) -> Result<Deployment, Violation> {
    let placement = |part: Part| match part {
        Part::Target(target) => vec![cpus[(target + 1) % cpus.len()]],
        Part::Initiator | Part::FrontEnd | Part::Service => vec![cpus[0]],
    };
    let mut deployment = Deployment::serving(sandbox, implementation, storage, &placement, limit)?;
    for target in 0..deployment.targets() {
        // Later than the service ends the session of its initiator.
        deployment.add_flags(Part::Target(target), ["--idle-timeout", "8"]);
    }
    deployment.add_flags(
        Part::Service,
        ["--control-timeout", "4", "--io-timeout", "4"],
    );
    if storage.layout == Layout::Gga {
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

/// Starts a front end without waiting until it is ready.
pub(crate) fn spawn_front_end(sandbox: &Sandbox, command: Command) -> Result<Process, Violation> {
    let log = sandbox.log("front_end")?;
    Ok(Process::spawn_logged("front end", command, log)?)
}

/// Starts a front end, and waits until it is ready.
pub(crate) fn start_front_end(
    sandbox: &Sandbox,
    command: Command,
    limit: Duration,
) -> Result<Process, Violation> {
    let mut process = spawn_front_end(sandbox, command)?;
    process.wait_for("was listening", limit, |line| {
        line.contains("Serving ").then_some(())
    })?;
    Ok(process)
}

/// Waits until `is_fulfilled`, which inspects the log of the service. Fails if the service exits first.
pub(crate) fn wait_for_log(
    what: &str,
    limit: Duration,
    service: Option<&Process>,
    mut is_fulfilled: impl FnMut() -> bool,
) -> Result<(), Violation> {
    let deadline = Instant::now() + limit;
    while !is_fulfilled() {
        let has_ended = service.is_none_or(Process::has_ended);
        if has_ended || Instant::now() > deadline {
            let state = if has_ended {
                "its end"
            } else {
                "nothing in time"
            };
            return Err(Violation::expected(
                format!("the service to log that {what}"),
                state,
            ));
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// Waits for the exit of a process, which must not have crashed; SIGKILL is sent by the test only. Its last output is awaited for at most
/// `drain`.
pub(crate) fn exit_of(
    mut process: Process,
    limit: Duration,
    drain: Duration,
) -> Result<ExitStatus, Violation> {
    let Some(status) = process.wait(Instant::now() + limit) else {
        return Err(process.failed("has not ended in time").into());
    };
    let is_killed = status.signal() == Some(Signal::KILL.as_raw());
    process.drain(drain);
    if !is_killed && !is_orderly(status) || process.stderr().contains("panicked at") {
        return Err(process.failed(&format!("has crashed ({status})")).into());
    }
    Ok(status)
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
