//! The processes of one session.

mod cpus;
mod files;
mod kept;
mod lines;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ::deployment::network::Network;
use conformance::process::{Failure, Process};
use role_common::shutdown::Shutdown;
use role_common::stored_block::Geometry;
use serde_json::Value;

use super::Error;
use super::content::Content;
use super::layout::{Layout, Storage};
use super::plan::{Plain, Plan, Run};
use cpus::Cpus;
use files::Files;
use lines::CommandLines;

/// Time that a role gets to be ready for its peer.
const READY: Duration = Duration::from_secs(20);
/// Time that a whole session may take.
const SESSION: Duration = Duration::from_secs(300);
/// Time that service and targets get to end once the initiator has.
const FAREWELL: Duration = Duration::from_secs(15);

/// What the roles of one session reported.
#[derive(Debug)]
pub struct Session {
    pub initiator: Value,
    pub service: Value,
    pub targets: Vec<Value>,
}

/// Starts sessions in a private runtime directory.
pub struct Deployment<'a> {
    program: PathBuf,
    plan: &'a Plan,
    files: Files,
    runtime: PathBuf,
    /// Machines, if there are several.
    network: Option<Network>,
    cpus: Cpus,
    shutdown: Shutdown,
}

impl<'a> Deployment<'a> {
    pub fn new(
        plan: &'a Plan,
        content: &Content,
        directory: &Path,
        network: Option<Network>,
        shutdown: Shutdown,
    ) -> Result<Self, Error> {
        Ok(Self {
            program: std::env::current_exe().map_err(Error::io("find this program"))?,
            plan,
            files: Files::new(content, directory),
            runtime: directory.join("run"),
            network,
            cpus: Cpus::allowed()?,
            shutdown,
        })
    }

    /// The user has asked to end.
    pub fn interrupted(&self) -> bool {
        self.shutdown.is_requested()
    }

    /// Runs one session to its end. The reference's roles serve one session, so each run has its own processes.
    pub fn run(&self, run: &Run) -> Result<Session, Failure> {
        self.make_files(run)?;
        let lines = self.lines(run, true);
        let deadline = Instant::now() + SESSION;

        let mut targets = Vec::new();
        let mut ports = Vec::new();
        for (index, name) in run.layout.targets().iter().enumerate() {
            let line = lines.target(index, 0);
            let mut target = Process::spawn(name, self.target_command(index, &line))?;
            ports.push(target.wait_for("was listening", READY, listening_port)?);
            targets.push((*name, target));
        }
        let storages: Vec<String> = std::iter::zip(0.., &ports)
            .map(|(index, port)| self.storage(index, *port))
            .collect();
        let mut service = Process::spawn("service", self.command(&lines.service(&storages)))?;
        service.wait_for("was waiting for an initiator", READY, waits_for_initiator)?;
        let initiator = Process::spawn("initiator", self.command(&lines.initiator()))?;

        let mut failures = Vec::new();
        let mut finish = |role: &'static str, process: Process, deadline| {
            let ended = process
                .finish(deadline, || self.interrupted())
                .and_then(|stdout| document(role, &stdout));
            // After a failure nobody looks at the others' documents.
            ended.unwrap_or_else(|failure| {
                failures.push(failure);
                Value::Null
            })
        };
        let initiator = finish("initiator", initiator, deadline);
        let farewell = Instant::now() + FAREWELL;
        let service = finish("service", service, farewell);
        let targets = targets
            .into_iter()
            .map(|(name, target)| finish(name, target, farewell))
            .collect();
        if failures.is_empty() {
            Ok(Session {
                initiator,
                service,
                targets,
            })
        } else {
            Err(Failure::all(failures))
        }
    }

    /// Makes what the roles of this session read and earlier ones did not.
    fn make_files(&self, run: &Run) -> Result<(), Failure> {
        if run.plain == Plain::Noise {
            self.files.make_noise().map_err(|error| Failure {
                role: "demo",
                what: error.to_string(),
                stderr: String::new(),
            })?;
        }
        match run.layout {
            Layout::Gga(gga) if gga.storage == Storage::Content => self.generate(run, gga.geometry),
            _ => Ok(()),
        }
    }

    /// Makes the `.sbc` files of the content with the generator, unless they are there.
    fn generate(&self, run: &Run, geometry: Geometry) -> Result<(), Failure> {
        let sbc = self.files.sbc(geometry);
        if sbc.iter().all(|path| path.exists()) {
            return Ok(());
        }
        let line = self.lines(run, true).generator(geometry, &sbc);
        let generator = Process::spawn("generator", self.command(&line))?;
        generator
            .finish(Instant::now() + SESSION, || self.interrupted())
            .map(drop)
    }

    /// Entries that the sessions left in the runtime directories.
    pub fn leftovers(&self) -> Result<Vec<PathBuf>, Error> {
        let runtimes = match &self.network {
            Some(network) => (0..network.machines())
                .map(|machine| network.runtime(machine))
                .collect(),
            None => vec![self.runtime.clone()],
        };
        let mut left = Vec::new();
        for runtime in runtimes {
            match ::deployment::sandbox::entries(&runtime) {
                Ok(entries) => left.extend(entries),
                // No program has made it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io(runtime.display().to_string())(error)),
            }
        }
        Ok(left)
    }

    /// Roles and addresses of the machines, if there are several.
    pub fn describe_machines(&self) -> Option<String> {
        let network = self.network.as_ref()?;
        let targets: Vec<String> = (1..network.machines())
            .map(|machine| network.address(machine))
            .collect();
        Some(format!(
            "{} machines (network namespaces): initiator and service at {}, targets at {}, RDMA over TCP",
            network.machines(),
            network.addresses(0).join(", "),
            targets.join(", ")
        ))
    }

    /// The machine of target number `index`, if there are several.
    fn machine_of_target(&self, index: usize) -> Option<(&Network, usize)> {
        let network = self.network.as_ref()?;
        Some((network, 1 + index % (network.machines() - 1)))
    }

    /// The address of target number `index` that listens on `port`, for the service.
    pub(super) fn storage(&self, index: usize, port: u16) -> String {
        match self.machine_of_target(index) {
            Some((network, machine)) => format!("{}:{port}", network.address(machine)),
            None => format!("127.0.0.1:{port}"),
        }
    }

    fn lines<'b>(&'b self, run: &'b Run, json: bool) -> CommandLines<'b> {
        CommandLines {
            plan: self.plan,
            files: &self.files,
            cpus: &self.cpus,
            run,
            json,
        }
    }

    /// A CPU for role number `role` of a session with three of them.
    pub(super) fn cpu(&self, role: usize) -> usize {
        self.cpus.of(role, 3, 1).next().unwrap_or_default()
    }

    /// The command of a role on the machine of service and initiator.
    pub(super) fn command(&self, arguments: &[OsString]) -> Command {
        let command = self.plain_command(arguments);
        match &self.network {
            Some(network) => network.place(0, command),
            None => command,
        }
    }

    /// The command of target number `index` on its machine.
    pub(super) fn target_command(&self, index: usize, arguments: &[OsString]) -> Command {
        let command = self.plain_command(arguments);
        match self.machine_of_target(index) {
            Some((network, machine)) => network.place(machine, command),
            None => command,
        }
    }

    fn plain_command(&self, arguments: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("SOFTDOCA_RUNTIME_DIR", &self.runtime);
        command
    }
}

pub(super) fn listening_port(line: &str) -> Option<u16> {
    line.rsplit_once("listening on port ")?
        .1
        .trim()
        .parse()
        .ok()
}

pub(super) fn waits_for_initiator(line: &str) -> Option<()> {
    line.contains("waiting for the initiator").then_some(())
}

fn document(role: &'static str, stdout: &str) -> Result<Value, Failure> {
    serde_json::from_str(stdout).map_err(|error| Failure {
        role,
        what: format!("printed no JSON document ({error}) but {stdout:?}"),
        stderr: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_lines_are_recognised() {
        assert_eq!(listening_port("listening on port 40123"), Some(40123));
        assert_eq!(listening_port("listening on port x"), None);
        assert_eq!(
            waits_for_initiator("waiting for the initiator on \"doca_storage_comch\""),
            Some(())
        );
    }
}
