//! Processes of one deployment, with their files: started, restarted, signalled, and inspected.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use deployment::implementation::Role;
use deployment::log::{self, LogEvent, waits_for_initiator};
use deployment::process::{Process, Signal};
use deployment::sandbox::{Sandbox, entries};

use super::Settings;
use crate::matrix::Layout;
use crate::processes::{self, FrontEndTimeouts};
use crate::violation::Violation;

/// Seconds without a response after which a service gives a peer up.
const CONTROL_TIMEOUT: &str = "8";
/// Seconds after which a service gives up I/Os.
pub(super) const IO_TIMEOUT: u64 = 20;
const FRONT_END_TIMEOUTS: FrontEndTimeouts = FrontEndTimeouts {
    control: "30",
    reconnect: "60",
};
/// Time for the last output of a process that has exited.
const DRAIN: Duration = Duration::from_secs(2);
/// softdoca's environment variables for the runtime directory and the address of a machine.
const RUNTIME_DIR: &str = "SOFTDOCA_RUNTIME_DIR";
const ADDRESS: (&str, &str) = ("SOFTDOCA_ADDRESS", "127.0.0.1");
/// Mounts a file over the machine's boot identifier, and becomes the program that follows.
const BOOT: &str = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";

/// Sizes of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) layout: Layout,
    /// Block size of the clients in bytes.
    pub(super) block_size: usize,
    pub(super) blocks: u64,
}

impl Form {
    /// Block size of the targets.
    pub(super) fn chunk_size(self) -> usize {
        match self.layout {
            Layout::ZeroCopy => self.block_size,
            // Half a block and 64 bytes, with which blocks may have any content.
            Layout::Gga => self.block_size / 2 + 64,
        }
    }

    pub(super) fn targets(self) -> usize {
        self.layout.targets().len()
    }
}

/// A process of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Target(usize),
    Service,
    FrontEnd,
}

struct Target {
    port: u16,
    process: Option<Process>,
    /// Boot identifier of its machine.
    boot: u128,
}

/// The processes of one deployment.
pub(super) struct Deployment<'a> {
    settings: &'a Settings,
    pub(super) sandbox: Sandbox,
    pub(super) form: Form,
    targets: Vec<Target>,
    service: Option<Process>,
    front_end: Option<Process>,
    /// Flags of the service besides those of the form.
    pub(super) service_flags: Vec<String>,
    /// Order in which the service is told the targets.
    pub(super) order: Vec<usize>,
    /// Layout of the service, if it is not that of the targets.
    pub(super) service_layout: Option<Layout>,
    /// Value of `--logical-block-size`.
    pub(super) logical_block_size: Option<usize>,
    /// Script that becomes the target, as `sh -c SCRIPT sh PROGRAM ...`.
    pub(super) target_script: Option<String>,
    /// `true` if the script adds the flag for the backing file.
    pub(super) has_disk_of_script: bool,
    /// `true` if each target is on a machine of its own: with its boot identifier and its runtime directory, and RDMA over loopback.
    has_machines: bool,
    starts: u32,
    service_log: PathBuf,
}

impl<'a> Deployment<'a> {
    /// Reserves ports; starts no process.
    pub(super) fn new(
        settings: &'a Settings,
        form: Form,
        has_machines: bool,
    ) -> Result<Self, Violation> {
        let sandbox = Sandbox::new()?;
        let targets = (0..form.targets()).map(|index| {
            Ok(Target {
                port: sandbox.port()?,
                process: None,
                boot: 0xb007 << 64 | index as u128,
            })
        });
        let is_set = form.layout == Layout::Gga;
        Ok(Self {
            targets: targets.collect::<Result<_, Violation>>()?,
            service_log: sandbox.path("service-0.log"),
            sandbox,
            form,
            service: None,
            front_end: None,
            service_flags: Vec::new(),
            order: (0..form.targets()).collect(),
            service_layout: None,
            logical_block_size: is_set.then_some(form.block_size),
            target_script: None,
            has_disk_of_script: false,
            has_machines,
            starts: 0,
            settings,
        })
    }

    /// Backing file of a target.
    pub(super) fn disk(&self, target: usize) -> PathBuf {
        self.sandbox
            .path(&format!("{}.disk", self.form.layout.targets()[target]))
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.sandbox.path("nbd.socket")
    }

    /// Runtime directory of a target's machine.
    fn runtime_of(&self, target: usize) -> PathBuf {
        let name = self.form.layout.targets()[target];
        self.sandbox.path(&format!("run-{name}"))
    }

    /// Runs a command on the machine of service and front end.
    fn on_machine_of_service(&self, command: &mut Command) {
        if self.has_machines {
            command.env(ADDRESS.0, ADDRESS.1);
        }
    }

    fn limit(&self) -> Duration {
        self.settings.limit
    }

    /// Starts all processes that are not running: targets, the service, the front end.
    pub(super) fn start(&mut self) -> Result<(), Violation> {
        for target in 0..self.targets.len() {
            self.start_target(target)?;
        }
        self.start_service()?;
        self.start_front_end()
    }

    /// Starts a target, unless it is running.
    pub(super) fn start_target(&mut self, target: usize) -> Result<(), Violation> {
        if self.targets[target].process.is_some() {
            return Ok(());
        }
        let process = self.spawn_target(target)?;
        let port = self.targets[target].port;
        if let Err(why) = process.wait_until_listening(port, self.limit(), || false) {
            return Err(process.failed(&why.to_string()).into());
        }
        self.targets[target].process = Some(process);
        Ok(())
    }

    /// Starts a target that is expected to refuse its backing file, and returns its exit status.
    pub(super) fn refused_target(&mut self, target: usize) -> Result<ExitStatus, Violation> {
        let mut process = self.spawn_target(target)?;
        match process.wait(Instant::now() + self.limit()) {
            Some(status) => Ok(status),
            None => Err(process.failed("is running, expected a refusal").into()),
        }
    }

    fn spawn_target(&self, target: usize) -> Result<Process, Violation> {
        let name = self.form.layout.targets()[target];
        let Target { port, boot, .. } = self.targets[target];
        let command = self.settings.implementation.command(Role::Target)?;
        let mut command = self.sandbox.target(command, port);
        command
            .args(["--cpu", &self.settings.cpu(target)])
            .args(["--listen-address", "127.0.0.1"])
            .args(["--block-count", &self.form.blocks.to_string()])
            .args(["--block-size", &self.form.chunk_size().to_string()])
            .args(["--sessions", "forever", "--output", "json"]);
        if !self.has_disk_of_script {
            command.arg("--backing-file").arg(self.disk(target));
        }
        if let Some(script) = &self.target_script {
            command = deployment::wrap("sh", ["-c", script, "sh"], &command);
        }
        if self.has_machines {
            let runtime = self.runtime_of(target);
            if !runtime.exists() {
                fs::DirBuilder::new().mode(0o700).create(&runtime)?;
            }
            command.env(RUNTIME_DIR, runtime).env(ADDRESS.0, ADDRESS.1);
            let text = uuid(boot);
            let file = self
                .sandbox
                .file(&format!("{name}.boot"), text.as_bytes())?;
            let file = file.to_string_lossy().into_owned();
            command = deployment::wrap("unshare", ["-m", "sh", "-c", BOOT, &file], &command);
        }
        Ok(Process::spawn_logged(
            name,
            command,
            self.sandbox.log(name)?,
        )?)
    }

    /// Gives a target's machine another boot identifier, from its next start on.
    pub(super) fn restart_machine(&mut self, target: usize) {
        self.targets[target].boot += 1 << 32;
    }

    /// Starts the service, unless it is running, and waits until it is ready.
    pub(super) fn start_service(&mut self) -> Result<(), Violation> {
        if self.service.is_some() {
            return Ok(());
        }
        self.spawn_service()?;
        let limit = self.limit();
        let mut service = self.service.take().expect("started");
        service.wait_for("waited for the initiator", limit, waits_for_initiator)?;
        self.service = Some(service);
        Ok(())
    }

    /// Starts the service without waiting until it is ready.
    pub(super) fn spawn_service(&mut self) -> Result<(), Violation> {
        self.starts += 1;
        let layout = self.service_layout.unwrap_or(self.form.layout);
        let command = self.settings.implementation.command(layout.service())?;
        let ports: Vec<u16> = self.order.iter().map(|&it| self.targets[it].port).collect();
        let ports = &ports[..layout.targets().len()];
        let channel = self.sandbox.channel();
        let mut command = self.sandbox.service(command, layout, ports, channel);
        command
            .args(["--cpu", &self.settings.cpu(1)])
            .args(["--control-timeout", CONTROL_TIMEOUT])
            .args(["--io-timeout", &IO_TIMEOUT.to_string()])
            .args(["--sessions", "forever", "--output", "json"])
            .args(&self.service_flags);
        if layout == Layout::Gga
            && let Some(size) = self.logical_block_size
        {
            command.args(["--logical-block-size", &size.to_string()]);
        }
        self.on_machine_of_service(&mut command);
        let name = format!("service-{}", self.starts);
        let log = self.sandbox.log(&name)?;
        self.service_log = self.sandbox.path(&format!("{name}.log"));
        self.service = Some(Process::spawn_logged("service", command, log)?);
        Ok(())
    }

    fn front_end_command(&self) -> Command {
        let mut command = Command::new(&self.settings.front_end);
        command.arg("nbd");
        let (cpu, socket) = (self.settings.cpu(0), self.socket());
        let timeouts = FRONT_END_TIMEOUTS;
        processes::complete_front_end(&mut command, &cpu, timeouts, &socket);
        let mut command = self.sandbox.initiator(command, self.sandbox.channel());
        self.on_machine_of_service(&mut command);
        command
    }

    /// Starts the front end, unless it is running.
    pub(super) fn start_front_end(&mut self) -> Result<(), Violation> {
        if self.front_end.is_some() {
            return Ok(());
        }
        let command = self.front_end_command();
        let process = processes::start_front_end(&self.sandbox, command, self.limit())?;
        self.front_end = Some(process);
        Ok(())
    }

    /// Starts the front end of a service that is expected not to serve it, without waiting until it is ready.
    pub(super) fn spawn_front_end(&mut self) -> Result<(), Violation> {
        let command = self.front_end_command();
        self.front_end = Some(processes::spawn_front_end(&self.sandbox, command)?);
        Ok(())
    }

    /// Command of an initiator with the execution strategy and the expected content.
    pub(super) fn initiator(&self, strategy: &str, content: &Path) -> Result<Command, Violation> {
        let command = self.settings.implementation.command(Role::Initiator)?;
        let mut command = self.sandbox.initiator(command, self.sandbox.channel());
        command
            .args(["--cpu", &self.settings.cpu(0)])
            .args(["--control-timeout", "30", "--io-timeout", "30"])
            .args(["--execution-strategy", strategy])
            .arg("--storage-plain-content")
            .arg(content)
            .args(["--run-limit-operation-count", &self.form.blocks.to_string()]);
        self.on_machine_of_service(&mut command);
        Ok(command)
    }

    fn slot(&mut self, part: Part) -> &mut Option<Process> {
        match part {
            Part::Target(target) => &mut self.targets[target].process,
            Part::Service => &mut self.service,
            Part::FrontEnd => &mut self.front_end,
        }
    }

    /// Process identifier of a process that was started.
    pub(super) fn id(&mut self, part: Part) -> Result<u32, Violation> {
        let process = self.slot(part).as_ref();
        let id = process.map(Process::id);
        id.ok_or_else(|| Violation::new(format!("{part:?} was not started")))
    }

    /// Sends a signal to a process, if it was started.
    pub(super) fn signal(&mut self, part: Part, signal: Signal) {
        if let Some(process) = self.slot(part) {
            process.signal(signal);
        }
    }

    /// Kills processes at once, and waits until they have exited.
    pub(super) fn kill(&mut self, parts: &[Part]) -> Result<(), Violation> {
        for &part in parts {
            self.signal(part, Signal::KILL);
        }
        for &part in parts {
            if self.slot(part).is_some() {
                self.wait(part)?;
            }
        }
        Ok(())
    }

    /// Sends SIGTERM, and waits for the exit.
    pub(super) fn terminate(&mut self, part: Part) -> Result<ExitStatus, Violation> {
        self.signal(part, Signal::TERM);
        self.wait(part)
    }

    /// Waits for the exit of a process, which must not crash.
    pub(super) fn wait(&mut self, part: Part) -> Result<ExitStatus, Violation> {
        let process = self.slot(part).take();
        let process = process.ok_or_else(|| Violation::new(format!("{part:?} was not started")))?;
        processes::exit_of(process, self.limit(), DRAIN)
    }

    /// Stops all processes in order; a target's exit status tells about its earlier sessions, too.
    pub(super) fn stop(&mut self) -> Result<(), Violation> {
        for part in self.running() {
            let status = self.terminate(part)?;
            Violation::unless(
                status.success() || matches!(part, Part::Target(_)),
                format!("{part:?} to exit with status 0 after SIGTERM"),
                status,
            )?;
        }
        Ok(())
    }

    /// Started processes, in the order in which they are stopped.
    pub(super) fn running(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        if self.front_end.is_some() {
            parts.push(Part::FrontEnd);
        }
        if self.service.is_some() {
            parts.push(Part::Service);
        }
        for (index, target) in self.targets.iter().enumerate() {
            if target.process.is_some() {
                parts.push(Part::Target(index));
            }
        }
        parts
    }

    /// Removes the content of the runtime directories, as a restart of all machines does.
    pub(super) fn clear_runtime_directories(&self) -> Result<(), Violation> {
        let mut left = self.sandbox.leftovers()?;
        for target in 0..self.targets.len() {
            let runtime = self.runtime_of(target);
            if runtime.exists() {
                left.extend(entries(&runtime)?);
            }
        }
        // Sockets and files only.
        left.iter().try_for_each(fs::remove_file)?;
        Ok(())
    }

    /// The service's log since its start.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.service_log).unwrap_or_default()
    }

    /// The log of all starts of a process.
    pub(super) fn log_of(&self, name: &str) -> String {
        fs::read_to_string(self.sandbox.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Number of lines of the service's log that report an event.
    pub(super) fn events(&self, is_counted: impl Fn(LogEvent<'_>) -> bool) -> usize {
        log::events(&self.log())
            .filter(|it| is_counted(*it))
            .count()
    }

    /// State of the set in the current session, according to the service's log.
    pub(super) fn set_state(&self) -> SetState {
        SetState::of(&self.log(), self.form.layout.targets())
    }

    /// Waits until the service's log fulfils a condition.
    pub(super) fn wait_for_log(
        &self,
        what: &str,
        limit: Duration,
        is: impl Fn(&Self) -> bool,
    ) -> Result<(), Violation> {
        processes::wait_for_log(what, limit, self.service.as_ref(), || is(self))
    }

    /// Waits until the service has reported that all targets are up to date.
    pub(super) fn wait_until_whole(&self) -> Result<(), Violation> {
        let limit = self.limit();
        self.wait_for_log("all targets are up to date", limit, |it| {
            it.set_state().is_whole()
        })
    }

    /// Waits until the service has detached a target.
    pub(super) fn wait_until_detached(&self, target: usize) -> Result<(), Violation> {
        let limit = self.limit();
        self.wait_for_log("it goes on without a target", limit, |it| {
            it.set_state().lacks(target)
        })
    }
}

/// State of a set in one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SetState {
    /// `true` if the session has reported a state.
    is_known: bool,
    /// Targets that are offline, or not current yet.
    missing: BTreeSet<usize>,
    is_resyncing: bool,
}

impl SetState {
    fn of(log: &str, targets: &[&str]) -> Self {
        let mut state = Self::default();
        for event in log::events(log) {
            let mut report = |name: &str, is_missing: bool| {
                let index = targets.iter().position(|target| *target == name);
                state.is_known = true;
                if let Some(index) = index {
                    if is_missing {
                        state.missing.insert(index);
                    } else {
                        state.missing.remove(&index);
                    }
                }
            };
            match event {
                LogEvent::TargetDetached(name)
                | LogEvent::SetFailed(name)
                | LogEvent::TargetMissing(name)
                | LogEvent::RebuildStarted { target: name, .. } => report(name, true),
                LogEvent::TargetUpToDate(name) | LogEvent::TargetRestored(name) => {
                    report(name, false);
                }
                LogEvent::AllUpToDate => {
                    state.missing.clear();
                    state.is_known = true;
                }
                LogEvent::ResyncStarted { .. } => {
                    state.is_resyncing = true;
                    state.is_known = true;
                }
                LogEvent::ResyncCompleted => {
                    state.is_resyncing = false;
                    state.is_known = true;
                }
                LogEvent::WaitingForInitiator => state = Self::default(),
                _ => {}
            }
        }
        state
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_known && !self.is_resyncing && self.missing.is_empty()
    }

    pub(super) fn lacks(&self, target: usize) -> bool {
        self.missing.contains(&target)
    }
}

fn uuid(value: u128) -> String {
    let digits = format!("{value:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
    parts.join("-") + "\n"
}

/// Returns `true` if processes can be started with a boot identifier of their own.
pub(super) fn has_machines() -> bool {
    let Ok(file) = tempfile::NamedTempFile::new() else {
        return false;
    };
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", BOOT]).arg(file.path());
    command
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_is_whole_when_no_target_is_missing_and_nothing_is_verified() {
        let targets = Layout::Gga.targets();
        let waits = "waiting for the initiator on Comch\n";
        let current = "INFO all storage targets are up to date\n";
        let missing = "WARN storage target data_p is missing: starting without it\n";
        let lost = "WARN detached storage target data_2, going on without it: reset\n";
        let back = "INFO storage target data_2 is up to date: 3 stripes rebuilt in 1ms\n";
        let resynced = "INFO resync completed: 4 stripes\n";
        let second = "ERROR detached storage target data_p, with which too few are left: I/Os wait until it is back: reset\n";
        let restored = "INFO storage target data_p is online again, with its data\n";
        let cases = [
            (vec![waits], false),
            (vec![waits, current], true),
            (vec![current, waits], false),
            (vec![waits, missing, resynced], false),
            (vec![waits, resynced], true),
            (vec![current, lost], false),
            (vec![current, lost, back], true),
            (vec![current, lost, second, back], false),
            (vec![current, lost, second, restored], false),
            (vec![current, lost, second, restored, back], true),
        ];
        for (lines, expected) in cases {
            let log = lines.concat();
            assert_eq!(SetState::of(&log, targets).is_whole(), expected, "{log}");
        }
        assert!(SetState::of(&[current, lost].concat(), targets).lacks(1));
    }
}
