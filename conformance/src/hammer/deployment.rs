//! Roles of one deployment, which are started, restarted, and have faults injected.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use deployment::implementation::Role;
use deployment::log::{self, LogEvent, waits_for_initiator};
use deployment::network::Network;
use deployment::process::{Process, Signal};
use deployment::sandbox::Sandbox;

use super::Settings;
use super::plan::{FaultyRole, LoadKind};
use crate::faults::relay::FaultyLine;
use crate::matrix::Layout;
use crate::network::{Cable, Condition};
use crate::processes;
use crate::violation::Violation;

/// Block size of the initiator in bytes.
pub(super) const BLOCK_SIZE: usize = 4096;

/// Seconds without a response after which a service gives a peer up; half of it for a gga target.
const CONTROL_TIMEOUT: &str = "4";
/// Seconds after which a service gives up I/Os, and an idle initiator.
const IO_TIMEOUT: &str = "4";
const IDLE_TIMEOUT: &str = "6";
/// Seconds after which a target ends an idle session: later than the service ends its initiator's.
const TARGET_IDLE_TIMEOUT: &str = "8";
/// Interval of recovery reads of a gga service, in reads.
const RECOVER_EVERY: &str = "5";

/// A service, its targets, and the relay between them.
pub(super) struct Deployment<'a> {
    pub(super) layout: Layout,
    pub(super) settings: &'a Settings,
    pub(super) sandbox: Sandbox,
    pub(super) targets: Vec<Target>,
    /// Relay between the service and its targets.
    pub(super) line: FaultyLine,
    service: Option<Process>,
    /// Path of the service's log.
    service_log: PathBuf,
    starts: u32,
    /// Link of each target, with several machines.
    cables: Vec<Cable>,
}

pub(super) struct Target {
    name: &'static str,
    pub(super) port: u16,
    process: Option<Process>,
}

impl<'a> Deployment<'a> {
    /// Reserves ports and starts the relay, but no role yet.
    pub(super) fn new(layout: Layout, settings: &'a Settings) -> Result<Self, Violation> {
        let (sandbox, cables) = match &settings.cable {
            None => (Sandbox::new()?, Vec::new()),
            Some(program) => {
                let unavailable =
                    |error: deployment::network::Unavailable| Violation::new(error.to_string());
                let targets = layout.targets().len();
                let network = Network::without_cables(1 + targets).map_err(unavailable)?;
                let cables =
                    (1..=targets).map(|machine| Cable::connect(&network, machine, program));
                let cables = cables.collect::<Result<Vec<_>, _>>()?;
                (Sandbox::over(network)?, cables)
            }
        };
        let targets = layout.targets().iter().map(|&name| {
            Ok(Target {
                name,
                port: sandbox.port()?,
                process: None,
            })
        });
        let targets = targets.collect::<Result<Vec<_>, Violation>>()?;
        let ports: Vec<u16> = targets.iter().map(|target| target.port).collect();
        Ok(Self {
            layout,
            settings,
            line: FaultyLine::start(&ports)?,
            targets,
            service: None,
            service_log: sandbox.path("service.log"),
            starts: 0,
            sandbox,
            cables,
        })
    }

    /// Changes the conditions of the link to a target, in both directions. Has no effect on one machine.
    pub(super) fn set_link(
        &mut self,
        target: usize,
        conditions: [Condition; 2],
    ) -> Result<(), Violation> {
        let cable = self.cables.get_mut(target);
        cable.map_or(Ok(()), |cable| cable.set(conditions[0], conditions[1]))
    }

    /// Returns `true` for the path in `/proc` of a process that simulates a link.
    pub(super) fn is_cable(&self, path: &Path) -> bool {
        let mut processes = self.cables.iter().map(Cable::process);
        processes.any(|id| path == Path::new(&format!("/proc/{id}")))
    }

    /// Starts all roles that are not running. The service is then ready for an initiator, or about to be.
    pub(super) fn start(&mut self) -> Result<(), Violation> {
        self.start_targets()?;
        if self.service.is_none() {
            self.start_service()?;
        }
        Ok(())
    }

    /// Starts the targets that are not running.
    pub(super) fn start_targets(&mut self) -> Result<(), Violation> {
        for index in 0..self.targets.len() {
            if self.targets[index].process.is_none() {
                self.start_target(index)?;
            }
        }
        Ok(())
    }

    /// Starts a target on its previous port, with its previous blocks.
    pub(super) fn start_target(&mut self, index: usize) -> Result<(), Violation> {
        let block_size = self.layout.chunk_size(BLOCK_SIZE);
        let Target { name, port, .. } = self.targets[index];
        let command = self.settings.implementation.command(Role::Target)?;
        let mut command = self.sandbox.target(command, port);
        command
            .args(["--cpu", &self.settings.cpu(index + 1)])
            .args(["--listen-address", &self.sandbox.address_of_target(index)])
            .arg("--backing-file")
            .arg(self.sandbox.path(&format!("{name}.blocks")))
            .args(["--block-count", &self.settings.blocks.to_string()])
            .args(["--block-size", &block_size.to_string()])
            .args(["--idle-timeout", TARGET_IDLE_TIMEOUT])
            .args(["--sessions", "forever"]);
        let command = self.sandbox.on_machine_of_target(index, command);
        let log = self.sandbox.log(name)?;
        let process = Process::spawn_logged(name, command, log)?;
        if let Err(why) = process.wait_until_listening(port, self.settings.limit, || false) {
            return Err(process.failed(&why.to_string()).into());
        }
        self.targets[index].process = Some(process);
        Ok(())
    }

    /// Starts the service if it is not running, whether or not its targets are running.
    pub(super) fn start_service_again(&mut self) -> Result<(), Violation> {
        if self.service.is_none() {
            self.start_service()?;
        }
        Ok(())
    }

    fn start_service(&mut self) -> Result<(), Violation> {
        self.starts += 1;
        let command = self
            .settings
            .implementation
            .command(self.layout.service())?;
        let direct: Vec<u16> = self.targets.iter().map(|target| target.port).collect();
        // The relay accepts connections for an offline target, but a session that begins degraded must find them refused.
        let ports = match self.settings.load {
            LoadKind::Initiator if self.cables.is_empty() => self.line.ports(),
            LoadKind::Initiator | LoadKind::Nbd => &direct,
        };
        let channel = self.sandbox.channel();
        let mut command = self.sandbox.service(command, self.layout, ports, channel);
        command
            .args(["--cpu", &self.settings.cpu(0)])
            .args(["--control-timeout", CONTROL_TIMEOUT])
            .args(["--io-timeout", IO_TIMEOUT])
            .args(["--idle-timeout", IDLE_TIMEOUT])
            .args(["--sessions", "forever"])
            // So that announcements go to standard error, too.
            .args(["--output", "json"]);
        if self.layout == Layout::Gga {
            command
                .args(["--logical-block-size", &BLOCK_SIZE.to_string()])
                .args(["--trigger-recovery-read-every-n", RECOVER_EVERY]);
        }
        let name = format!("service-{}", self.starts);
        let log = self.sandbox.log(&name)?;
        self.service_log = self.sandbox.path(&format!("{name}.log"));
        let mut process = Process::spawn_logged("service", command, log)?;
        process.wait_for(
            "waited for the initiator",
            self.settings.limit,
            waits_for_initiator,
        )?;
        self.service = Some(process);
        Ok(())
    }

    pub(super) fn service(&self) -> Option<&Process> {
        self.service.as_ref()
    }

    /// Sends a signal to a service or a target, unless it has exited.
    pub(super) fn signal(&self, faulty: FaultyRole, target: usize, signal: Signal) {
        let process = match faulty {
            FaultyRole::Service => self.service.as_ref(),
            FaultyRole::Target => self.targets[target].process.as_ref(),
            FaultyRole::Load | FaultyRole::FrontEnd => None,
        };
        if let Some(process) = process {
            process.signal(signal);
        }
    }

    /// Waits for the exit of a service or a target that was sent SIGTERM.
    pub(super) fn expect_end(
        &mut self,
        faulty: FaultyRole,
        target: usize,
    ) -> Result<(), Violation> {
        let limit = self.settings.limit;
        let process = match faulty {
            FaultyRole::Service => self.service.take(),
            FaultyRole::Target => self.targets[target].process.take(),
            FaultyRole::Load | FaultyRole::FrontEnd => None,
        };
        process.map_or(Ok(()), |process| end_of(process, limit).map(drop))
    }

    /// Fails if a role that must serve the next session has exited.
    pub(super) fn inspect(&mut self) -> Result<(), Violation> {
        for target in &mut self.targets {
            let has_ended = target.process.as_ref().is_some_and(Process::has_ended);
            if has_ended && let Some(process) = target.process.take() {
                return Err(process
                    .failed("has exited, but has to serve the next session")
                    .into());
            }
        }
        let has_ended = self.service.as_ref().is_some_and(Process::has_ended);
        match self.service.take_if(|_| has_ended) {
            Some(service) => Err(service
                .failed("has exited, but has to serve the next session")
                .into()),
            None => Ok(()),
        }
    }

    /// State of redundancy, according to the service's log.
    pub(super) fn redundancy(&self) -> Redundancy {
        let log = fs::read_to_string(&self.service_log).unwrap_or_default();
        of_log(&log, self.layout.targets())
    }

    /// Waits until the redundancy that the service reports fulfils a condition.
    pub(super) fn wait_for(
        &self,
        what: &str,
        mut is: impl FnMut(Redundancy) -> bool,
    ) -> Result<(), Violation> {
        let (limit, service) = (self.settings.limit, self.service.as_ref());
        processes::wait_for_log(what, limit, service, || is(self.redundancy()))
    }

    /// Running targets, and the service if it is running.
    pub(super) fn processes(&self) -> impl Iterator<Item = (&'static str, &Process)> {
        let targets = self
            .targets
            .iter()
            .filter_map(|target| Some((target.name, target.process.as_ref()?)));
        targets.chain(self.service.as_ref().map(|service| ("service", service)))
    }

    /// Terminates all roles, which must exit cleanly and leave nothing behind.
    pub(super) fn end(&mut self) -> Result<(), Violation> {
        let limit = self.settings.limit;
        if let Some(service) = self.service.take() {
            service.signal(Signal::TERM);
            end_of(service, limit)?;
        }
        for target in &mut self.targets {
            if let Some(process) = target.process.take() {
                process.signal(Signal::TERM);
                end_of(process, limit)?;
            }
        }
        let mut left = self.sandbox.leftovers()?;
        left.retain(|path| !is_of_killed_agent(path));
        Violation::unless(
            left.is_empty(),
            "an empty runtime directory when all have ended",
            format!("{left:?}"),
        )
    }
}

/// Returns `true` for the socket of an agent whose process was killed: the next process that starts removes it.
fn is_of_killed_agent(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    name.is_some_and(|name| name.starts_with("a-") && name.ends_with(".sock"))
        && UnixStream::connect(path).is_err_and(refused)
}

/// Waits for the exit of a process, which must not have crashed. Returns `true` for success.
pub(super) fn end_of(process: Process, limit: Duration) -> Result<bool, Violation> {
    Ok(processes::exit_of(process, limit, Duration::ZERO)?.success())
}

/// State of redundancy of a gga service, according to its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redundancy {
    /// The current session has not reported it yet.
    Unknown,
    /// All targets are up to date.
    Whole,
    /// This target is detached.
    Without(usize),
    /// This target has rejoined and is being rebuilt.
    Rebuilding(usize),
    /// All targets are online, and a resync is in progress.
    Verifying,
}

/// Parses a service's log: returns the latest report of the current session. Each session of a gga service begins with
/// a report, because a session may end before a rebuild or resync is complete.
pub(crate) fn of_log(log: &str, targets: &[&str]) -> Redundancy {
    if targets.len() == 1 {
        return Redundancy::Whole;
    }
    let mut state = Redundancy::Unknown;
    for event in log::events(log) {
        let index = |name: &str| targets.iter().position(|target| *target == name);
        state = match event {
            // When too few targets are left, the one detached first has missed writes.
            LogEvent::TargetDetached(name) | LogEvent::TargetMissing(name) => {
                index(name).map_or(state, Redundancy::Without)
            }
            LogEvent::RebuildStarted { target, .. } => {
                index(target).map_or(state, Redundancy::Rebuilding)
            }
            // A set without one of its targets settles its stripes, too.
            LogEvent::ResyncStarted { .. }
                if matches!(state, Redundancy::Unknown | Redundancy::Whole) =>
            {
                Redundancy::Verifying
            }
            LogEvent::ResyncCompleted if state == Redundancy::Verifying => Redundancy::Whole,
            LogEvent::TargetUpToDate(_) | LogEvent::AllUpToDate => Redundancy::Whole,
            LogEvent::WaitingForInitiator => Redundancy::Unknown,
            _ => state,
        };
    }
    state
}

// Resources of a process, and the detection of leaks.

/// Memory in KiB that an allocator may retain from the largest session so far.
const MEMORY_SLACK: u64 = 8 * 1024;
/// Descriptors that softdoca keeps for the last few connections.
const DESCRIPTOR_SLACK: usize = 4 * 8;

/// Memory, descriptors and threads of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Resident memory in KiB.
    pub memory: u64,
    /// Number of open files, sockets and shared memory objects.
    pub descriptors: usize,
    /// Number of mapped shared memory objects.
    pub shared: usize,
    pub threads: usize,
}

impl Resources {
    /// Reads the resources of a running process.
    ///
    /// # Errors
    ///
    /// The process has exited.
    pub fn of(process: &Process) -> io::Result<Self> {
        Self::of_id(process.id())
    }

    /// Resources of the process with this id.
    pub(crate) fn of_id(id: u32) -> io::Result<Self> {
        let proc = format!("/proc/{id}");
        let entries =
            |name: &str| Ok::<_, io::Error>(fs::read_dir(format!("{proc}/{name}"))?.count());
        let status = fs::read_to_string(format!("{proc}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = resident.and_then(|text| text.trim().strip_suffix(" kB"));
        let maps = fs::read_to_string(format!("{proc}/maps"))?;
        Ok(Self {
            memory: memory
                .and_then(|text| text.trim().parse().ok())
                .ok_or_else(|| io::Error::other("a process without memory"))?,
            descriptors: entries("fd")?,
            shared: maps.matches("/memfd:").count(),
            threads: entries("task")?,
        })
    }

    /// Maximum of each field.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            descriptors: self.descriptors.max(other.descriptors),
            shared: self.shared.max(other.shared),
            threads: self.threads.max(other.threads),
        }
    }

    /// Returns `true` if nothing has grown since `before`, except for resources that are kept for the next session.
    pub fn is_flat_since(self, before: Self) -> bool {
        self.memory <= before.memory + MEMORY_SLACK
            && self.descriptors <= before.descriptors + DESCRIPTOR_SLACK
            && self.shared <= before.shared + DESCRIPTOR_SLACK
            && self.threads <= before.threads
    }
}

#[cfg(test)]
mod redundancy_tests {
    use super::*;

    const TARGETS: [&str; 3] = ["data_1", "data_2", "data_p"];

    #[test]
    fn latest_report_counts() {
        let lost = "WARN detached storage target data_2, going on without it: reset\n";
        let back = "INFO storage target data_2 is online: rebuilding 3 stripes, those that it has missed\n";
        let whole = "INFO storage target data_2 is up to date: 3 stripes rebuilt in 1ms\n";
        let doubt =
            "INFO the set was not shut down cleanly: settling 64 blocks that were written last\n";
        let fit = "INFO resync completed: 64 stripes settled in 1ms, 3 rewritten, 0 lost\n";
        let missing = "WARN storage target data_2 is missing: starting without it\n";
        let current = "INFO all storage targets are up to date\n";
        let next = "waiting for the initiator on Comch \"name\"\n";
        let second = "ERROR detached storage target data_p, with which too few are left: I/Os wait until it is back: reset\n";
        let restored = "INFO storage target data_p is online again, with its data\n";
        let cases = [
            (String::new(), Redundancy::Unknown),
            (current.to_owned(), Redundancy::Whole),
            (lost.to_owned(), Redundancy::Without(1)),
            ([lost, back].concat(), Redundancy::Rebuilding(1)),
            ([lost, back, whole].concat(), Redundancy::Whole),
            ([lost, second].concat(), Redundancy::Without(1)),
            ([lost, second, restored].concat(), Redundancy::Without(1)),
            (
                [lost, second, restored, back, whole].concat(),
                Redundancy::Whole,
            ),
            ([back, whole, doubt].concat(), Redundancy::Verifying),
            ([doubt, fit].concat(), Redundancy::Whole),
            ([missing, doubt, fit].concat(), Redundancy::Without(1)),
            ([back, doubt, fit].concat(), Redundancy::Rebuilding(1)),
            ([lost, next].concat(), Redundancy::Unknown),
            ([lost, back, next].concat(), Redundancy::Unknown),
            ([lost, back, next, back, whole].concat(), Redundancy::Whole),
            ([lost, next, current].concat(), Redundancy::Whole),
            ([next, missing].concat(), Redundancy::Without(1)),
            ([next, missing, back].concat(), Redundancy::Rebuilding(1)),
            ([lost, next, back].concat(), Redundancy::Rebuilding(1)),
        ];
        for (log, expected) in cases {
            assert_eq!(of_log(&log, &TARGETS), expected, "{log}");
        }
        assert_eq!(of_log(next, &["target"]), Redundancy::Whole);
    }
}

#[cfg(test)]
mod resources_tests {
    use super::*;

    #[test]
    fn growth_of_each_resource_is_detected() {
        let before = Resources {
            memory: 10_000,
            descriptors: 20,
            shared: 5,
            threads: 3,
        };
        assert!(before.is_flat_since(before));
        let grown = [
            Resources {
                memory: 20_000,
                ..before
            },
            Resources {
                descriptors: 60,
                ..before
            },
            Resources {
                shared: 50,
                ..before
            },
            Resources {
                threads: 4,
                ..before
            },
        ];
        for after in grown {
            assert!(!after.is_flat_since(before), "{after:?}");
        }
    }
}
