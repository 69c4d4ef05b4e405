//! Deployments of real processes: the storage roles of any implementation, started with their flags, observed and stopped.
//!
//! * [`Deployment`]: the processes of one deployment: started, restarted, inspected and stopped, with the logs of each
//! * [`Redundancy`]: state of the targets, according to the log of the service
//! * [`Resources`]: memory, descriptors and threads of a process
//! * [`implementation`]: programs of the roles, and their properties as reported by `--help`
//! * [`sandbox`]: a private runtime directory with files, a Comch channel name and TCP ports; the command line of each role in it,
//!   readiness of targets and services, and leftovers of processes
//! * [`process`]: one child process: output and log, signals, waiting, CPU time, exit
//! * [`log`]: events in the logs of the roles
//! * [`network`]: simulated machines (network namespaces), for deployments over several of them
//! * [`port`]: TCP ports that no other sandbox of the machine uses
//!
//! A scenario gives a [`Deployment`] those flags of each part that differ between scenarios, and starts the parts. For
//! other processes, a caller completes a command line with the [`Sandbox`](sandbox::Sandbox), starts it as a
//! [`Process`](process::Process), and waits until it [listens](process::Process::wait_until_listening) or
//! [serves](sandbox::Sandbox::wait_until_serving). Dropping a `Process` terminates it if it is still running.
#![forbid(unsafe_code)]

mod deployment;
pub mod implementation;
pub mod log;
pub mod network;
pub mod port;
pub mod process;
mod redundancy;
mod resources;
pub mod sandbox;

use std::process::Command;

pub use deployment::{Deployment, Form, Part, Placement};
pub use redundancy::Redundancy;
pub use resources::Resources;

/// CPUs that this process may run on, in ascending order.
///
/// # Errors
///
/// The errors of `sched_getaffinity`.
pub fn allowed_cpus() -> std::io::Result<Vec<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect())
}

/// Wraps a command in another program, whose arguments are `arguments`, the command's program and the command's arguments. The
/// environment and the working directory of the command are kept.
pub fn wrap(
    program: impl AsRef<std::ffi::OsStr>,
    arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
    command: &Command,
) -> Command {
    let mut wrapped = Command::new(program);
    wrapped.args(arguments).arg(command.get_program());
    with_parts_of(command, wrapped)
}

/// A command with the same program, arguments, environment and working directory.
pub(crate) fn copy(command: &Command) -> Command {
    with_parts_of(command, Command::new(command.get_program()))
}

/// Adds the arguments, environment and working directory of `command` to `other`.
fn with_parts_of(command: &Command, mut other: Command) -> Command {
    other.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        other.current_dir(directory);
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_command_keeps_arguments_environment_and_directory() {
        let mut command = Command::new("role");
        command
            .arg("--cpu")
            .env("A", "b")
            .env_remove("C")
            .current_dir("/");
        let wrapped = wrap("perf", ["stat", "--"], &command);
        assert_eq!(wrapped.get_program(), "perf");
        let words: Vec<_> = wrapped.get_args().collect();
        assert_eq!(words, ["stat", "--", "role", "--cpu"]);
        assert_eq!(wrapped.get_envs().count(), 2);
        assert_eq!(wrapped.get_current_dir(), Some("/".as_ref()));
    }

    #[test]
    fn at_least_one_cpu_is_allowed() {
        assert!(!allowed_cpus().expect("an affinity mask").is_empty());
    }
}
