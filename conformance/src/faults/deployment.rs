//! The deployment of one case, from its start to the injection of the fault.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::implementation::Role;
use deployment::log::{self, LogEvent};
use deployment::process::{Exit, Process, Signal};
use deployment::sandbox::Sandbox;
use wire::control::MessageType;

use super::relay::{FaultyLine, Held, Moment};
use super::{Case, Fault, Interrupted, Mode, Part, Phase, Settings};
use crate::violation::{During as _, Violation};

/// Name of the file with the expected contents of the storage.
const CONTENT: &str = "content";
/// Timeout for a role to become ready for its peers, and for a session to reach a phase.
pub(super) const READY: Duration = Duration::from_secs(60);
/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(2);

/// A deployment. Its roles are in the order of their start: targets, service, initiator.
pub(super) struct Deployment<'a> {
    pub(super) settings: &'a Settings,
    pub(super) case: Case,
    /// Index of the case in the run, by which concurrent cases prefer different CPUs.
    pub(super) number: usize,
    pub(super) interrupted: Interrupted<'a>,
    pub(super) sandbox: Sandbox,
    pub(super) line: FaultyLine,
    /// Ports that the targets listen on.
    pub(super) ports: Vec<u16>,
    pub(super) running: Vec<Running>,
    /// `true` once the fault was injected: roles that are started afterwards are replacements.
    pub(super) is_struck: bool,
    /// `true` once no further fault will be injected: timeouts are then long.
    pub(super) is_calm: bool,
    /// Roles that have exited.
    pub(super) ended: Vec<Ended>,
    /// Number of sessions after the fault that did not do their work.
    pub(super) failed_sessions: usize,
}

impl<'a> Deployment<'a> {
    /// Starts targets, a relay before them, and a service, and waits until the service is connected to the targets.
    pub(super) fn set(
        settings: &'a Settings,
        case: Case,
        number: usize,
        interrupted: Interrupted<'a>,
    ) -> Result<Self, Violation> {
        let sandbox = Sandbox::new().during("a directory")?;
        sandbox.file(CONTENT, &plain()).during(CONTENT)?;
        let mut deployment = Self {
            settings,
            case,
            number,
            interrupted,
            sandbox,
            line: FaultyLine::start(&[]).during("a relay")?,
            ports: Vec::new(),
            running: Vec::new(),
            is_struck: false,
            is_calm: false,
            ended: Vec::new(),
            failed_sessions: 0,
        };
        for index in 0..case.layout.targets().len() {
            let port = deployment.port()?;
            deployment.start_target(index, port, 0)?;
            deployment.ports.push(port);
        }
        deployment.line = FaultyLine::start(&deployment.ports).during("a relay")?;
        deployment.start_service(deployment.sandbox.channel().to_owned())?;
        deployment.role(Part::Service)?.logs(
            LogEvent::WaitingForInitiator,
            1,
            default_deadline(),
        )?;
        Ok(deployment)
    }

    /// Reserves a port for a target.
    fn port(&self) -> Result<u16, Violation> {
        self.sandbox.port().during("a port")
    }

    fn start(
        &mut self,
        part: Part,
        command: std::process::Command,
    ) -> Result<&mut Running, Violation> {
        let role = Running::start(part, part.label(self.case.layout), command)?;
        self.running.push(role);
        self.role(part)
    }

    /// Starts a target and waits until it listens.
    pub(super) fn start_target(
        &mut self,
        index: usize,
        port: u16,
        generation: u32,
    ) -> Result<(), Violation> {
        let command = self.target(index, port, generation)?;
        let target = self.start(Part::Target(index), command)?;
        let listening = target.process.wait_until_listening(port, READY, || false);
        listening.map_err(|why| Violation::new(format!("{} {why}", target.label())))
    }

    /// Starts a service, whether or not its targets are running.
    pub(super) fn start_service(&mut self, channel: String) -> Result<(), Violation> {
        let command = self.service(self.line.ports(), &channel)?;
        self.start(Part::Service, command).map(drop)
    }

    pub(super) fn start_initiator(&mut self, work: Work, channel: &str) -> Result<(), Violation> {
        let command = self.initiator(work, channel)?;
        self.start(Part::Initiator, command).map(drop)
    }

    /// Current process of a role: the one that was started last.
    pub(super) fn role(&mut self, part: Part) -> Result<&mut Running, Violation> {
        self.running
            .iter_mut()
            .rev()
            .find(|role| role.part == part)
            .ok_or_else(|| Violation::new(format!("there is no {}", part.label(self.case.layout))))
    }

    /// Brings the session to the phase of the fault. Returns the held frame, if the phase is one.
    pub(super) fn reach(&mut self) -> Result<Option<Held>, Violation> {
        let trap = match self.case.phase {
            Phase::Waiting => return Ok(None),
            Phase::Io => None,
            Phase::Frame(message, after) => Some(self.line.hold(Moment {
                channel: self.case.channel(),
                message,
                after,
            })),
        };
        let work = match self.case.phase {
            Phase::Io => Work::Endless,
            _ => Work::WriteAndRead,
        };
        let channel = self.sandbox.channel().to_owned();
        self.start_initiator(work, &channel)?;
        let Some(trap) = trap else {
            return self.wait_until_written().map(|()| None);
        };
        let interrupted = self.interrupted;
        let initiator = &*self.role(Part::Initiator)?;
        let held = trap.wait(default_deadline(), || {
            interrupted() || initiator.has_ended()
        });
        held.map(Some)
            .ok_or_else(|| Violation::new(format!("the session did not reach {}", self.case.phase)))
    }

    /// Waits until every block has been written by an initiator that keeps writing and reading.
    fn wait_until_written(&mut self) -> Result<(), Violation> {
        let deadline = default_deadline();
        while !self.is_written()? {
            if self.role(Part::Initiator)?.has_ended() {
                return Err(Violation::new(
                    "the initiator ended before it had written all blocks",
                ));
            }
            if Instant::now() >= deadline || (self.interrupted)() {
                return Err(Violation::new("the blocks were not written in time"));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Returns `true` if each block was written. Each operation of the initiator is on the next block.
    fn is_written(&mut self) -> Result<bool, Violation> {
        let initiator = &self.role(Part::Initiator)?.process;
        Ok(initiator.count_events(is_past_all_blocks) != 0)
    }

    /// Injects the fault, and then passes a held frame on: after the exit of a killed role, without waiting for other events.
    pub(super) fn strike(&mut self, held: Option<Held>) -> Result<(), Violation> {
        let Case {
            faulty,
            fault,
            mode,
            ..
        } = self.case;
        self.is_struck = true;
        let role = self.role(faulty)?;
        role.signal(fault.signal());
        match fault {
            Fault::Kill if !role.ends(default_deadline()) => {
                return Err(Violation::new("SIGKILL does not end it"));
            }
            // It had completed its work, and has just exited.
            Fault::Stop
                if !role.process.wait_until_stopped(default_deadline()) && !role.has_ended() =>
            {
                return Err(Violation::new("SIGSTOP does not stop it"));
            }
            _ => {}
        }
        if let (Mode::Serving, Part::Target(index), Fault::Stop) = (mode, faulty, fault) {
            // The stopped target keeps its port and its file. The service may connect to the replacement as soon as
            // the frame is passed on.
            let port = self.port()?;
            self.start_target(index, port, 1)?;
            self.line.redirect(self.case.channel(), port);
        }
        drop(held);
        Ok(())
    }
}

/// Returns `true` if a run has visited all blocks twice.
fn is_past_all_blocks(event: LogEvent<'_>) -> bool {
    matches!(event, LogEvent::Progress { operations } if operations >= 2 * BLOCKS as u64)
}

/// Deadline for events that should occur at once.
pub(super) fn default_deadline() -> Instant {
    Instant::now() + READY
}

/// Prefix of the line in which every role reports the reason of its failure.
const ERROR: &str = "error: ";

/// A running role of the deployment.
pub(super) struct Running {
    pub(super) part: Part,
    process: Process,
}

impl Running {
    fn start(part: Part, label: &'static str, command: Command) -> Result<Self, Violation> {
        Ok(Self {
            part,
            process: Process::spawn(label, command)?,
        })
    }

    pub(super) fn label(&self) -> &'static str {
        self.process.role()
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for the process to exit; `false` if it is still running at `deadline`.
    pub(super) fn ends(&mut self, deadline: Instant) -> bool {
        self.process.wait(deadline).is_some()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    /// Returns `true` once it has exited with status 0.
    fn is_well(&mut self) -> bool {
        self.process.status().is_some_and(|status| status.success())
    }

    /// Waits until the role has logged the event at least `times` times.
    pub(super) fn logs(
        &self,
        event: LogEvent<'_>,
        times: usize,
        deadline: Instant,
    ) -> Result<(), Violation> {
        let logged = self.process.wait_for_event(event, times, deadline);
        // Without the output, which is in the report.
        logged.map_err(|failure| Violation::new(format!("{} {}", failure.role, failure.what)))
    }

    /// Waits until the role has logged an event for which `is_awaited` returns `true`. `what` describes it in the error.
    fn logs_any(
        &mut self,
        what: &str,
        deadline: Instant,
        is_awaited: impl Fn(LogEvent<'_>) -> bool,
    ) -> Result<(), Violation> {
        self.says_what(what, deadline, |text| {
            log::events(text).any(&is_awaited).then_some(())
        })
    }

    /// Waits until `find` returns a value for the role's log. `what` describes the value in the error.
    fn says_what<T>(
        &mut self,
        what: &str,
        deadline: Instant,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Violation> {
        let found = self.process.wait_for_output(what, deadline, find);
        found.map_err(Violation::new)
    }

    /// Exit status and output. Kills a process that is still running.
    pub(super) fn into_ended(self) -> Ended {
        Ended {
            part: self.part,
            exit: self.process.kill_into_exit(),
        }
    }
}

/// A role that has exited.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) part: Part,
    pub(super) exit: Exit,
}

impl Ended {
    /// Violation in its exit: still running, a crash, or a failure without an error message. `killed`: it was sent SIGKILL.
    fn complaint(&self, killed: bool) -> Option<String> {
        let label = self.exit.role;
        let Some(status) = self.exit.status else {
            return Some(format!("{label} has not ended"));
        };
        match status.code() {
            None if killed && status.signal() == Some(Signal::KILL.as_raw()) => None,
            None => Some(format!("{label} was killed ({status})")),
            Some(_) if self.exit.stderr.contains("panicked") => {
                Some(format!("{label} has panicked"))
            }
            Some(0) => None,
            Some(1) if self.exit.stderr.contains(ERROR) => None,
            Some(1) => Some(format!("{label} failed without reporting the cause")),
            Some(code) => Some(format!("{label} ended with {code}, expected was 0 or 1")),
        }
    }
}

/// Status and output, for a report.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit.status {
            Some(status) => writeln!(f, "{}: {status}", self.exit.role)?,
            None => writeln!(f, "{}: had to be killed", self.exit.role)?,
        }
        for line in self.exit.stderr.lines().chain(self.exit.stdout.lines()) {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

// Command lines of the roles.

/// Number of I/Os in flight of an initiator.
const TRANSACTIONS: &str = "32";
/// Operations of a finite run: each block is written and read at least twice.
const OPERATIONS: &str = "256";
/// Operations of an endless run.
const ENDLESS: &str = "2000000000";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Write all blocks and read them back, endlessly.
    Endless,
    /// Write all blocks and read them back, twice.
    WriteAndRead,
    /// Read all blocks, and compare them with an earlier write.
    Read,
}

impl Deployment<'_> {
    /// Control timeout of the roles in seconds.
    fn timeout(&self) -> Duration {
        match self.case.fault {
            Fault::Stop if !self.is_calm => self.settings.timeout,
            // A killed peer is detected by its closed connections, and not by a timeout.
            _ => self.settings.notice * 3,
        }
    }

    fn command(&self, role: Role, part: Part) -> Result<Command, Violation> {
        let implementation = &self.settings.implementation;
        let mut command = implementation.command(role)?;
        let cpus = &self.settings.cpus;
        let index = match part {
            Part::Initiator => self.number,
            Part::Service => self.number + 1,
            Part::Target(index) => self.number + 2 + index,
        };
        let cpu = cpus[index % cpus.len()];
        command.args(["--cpu", &cpu.to_string(), "--output", "json"]);
        Ok(command)
    }

    /// Backing file of a target; a replacement target has its own.
    fn backing_file(&self, index: usize, generation: u32) -> PathBuf {
        self.sandbox.path(&format!("blocks-{index}-{generation}"))
    }

    pub(super) fn target(
        &self,
        index: usize,
        port: u16,
        generation: u32,
    ) -> Result<Command, Violation> {
        let size = match self.case.mode {
            Mode::Degraded => self.case.layout.chunk_size(BLOCK_SIZE),
            Mode::Once | Mode::Serving => self.case.layout.target_block_size(BLOCK_SIZE),
        };
        let command = self.command(Role::Target, Part::Target(index))?;
        let mut command = self.sandbox.target(command, port);
        command
            .arg("--backing-file")
            .arg(self.backing_file(index, generation))
            .args(["--block-count", &BLOCKS.to_string()])
            .args(["--block-size", &size.to_string()]);
        if self.case.fault == Fault::Stop && !self.is_calm {
            let idle = 2 * self.settings.timeout.as_secs();
            command.args(["--idle-timeout", &idle.to_string()]);
        }
        self.add_sessions(&mut command, Part::Target(index));
        Ok(command)
    }

    /// Adds the flag for further sessions, unless the role is the faulty one.
    fn add_sessions(&self, command: &mut Command, part: Part) {
        let is_hit = part == self.case.faulty && !self.is_struck;
        if self.case.mode == Mode::Serving && !is_hit {
            command.args(["--sessions", "forever"]);
        }
    }

    pub(super) fn service(&self, ports: &[u16], channel: &str) -> Result<Command, Violation> {
        let layout = self.case.layout;
        let seconds = self.timeout().as_secs().to_string();
        let command = self.command(layout.service(), Part::Service)?;
        let mut command = self.sandbox.service(command, layout, ports, channel);
        command
            .args(["--control-timeout", &seconds])
            .args(["--io-timeout", &seconds]);
        if self.case.fault == Fault::Stop && !self.is_calm {
            let idle = 2 * self.settings.timeout.as_secs();
            command.args(["--idle-timeout", &idle.to_string()]);
        }
        if self.case.mode == Mode::Degraded {
            command.args(["--logical-block-size", &BLOCK_SIZE.to_string()]);
        }
        self.add_sessions(&mut command, Part::Service);
        Ok(command)
    }

    pub(super) fn initiator(&self, work: Work, channel: &str) -> Result<Command, Violation> {
        let seconds = self.timeout().as_secs().to_string();
        let strategy = match work {
            Work::Endless | Work::WriteAndRead => "read_write_data_validity_test",
            Work::Read => "read_only_data_validity_test",
        };
        let operations = match work {
            Work::Endless => ENDLESS,
            Work::WriteAndRead | Work::Read => OPERATIONS,
        };
        let command = self.command(Role::Initiator, Part::Initiator)?;
        let mut command = self.sandbox.initiator(command, channel);
        command
            .args(["--control-timeout", &seconds])
            .args(["--io-timeout", &seconds])
            .args(["--execution-strategy", strategy])
            .args(["--run-limit-operation-count", operations])
            .args(["--transaction-count", TRANSACTIONS])
            .arg("--storage-plain-content")
            .arg(self.sandbox.path(CONTENT));
        if work == Work::Endless {
            command.args(["--progress", "always"]);
        }
        Ok(command)
    }
}

// Contents of the storage.

/// Number of blocks of the storage, as presented to the initiator.
pub(super) const BLOCKS: usize = 64;
/// Block size in bytes, as presented to the initiator.
pub(super) const BLOCK_SIZE: usize = 4096;

/// Contents of the storage: compressible blocks that are all different, and not zero.
pub(super) fn plain() -> Vec<u8> {
    contents::text(1, BLOCKS * BLOCK_SIZE)
}

// Restart of the whole deployment after an unclean shutdown.

impl Deployment<'_> {
    /// Restarts all roles with the same ports, files and names, and runs one session. Returns the violations.
    pub(super) fn restart(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        self.is_calm = true;
        problems.extend(self.play_again().err().map(|why| format!("restart: {why}")));
        for mut role in std::mem::take(&mut self.running) {
            role.ends(default_deadline());
            let ended = role.into_ended();
            match ended.complaint(false) {
                Some(complaint) => problems.push(format!("restart: {complaint}")),
                None if !ended.exit.succeeded() => {
                    problems.push(format!("restart: {} failed", ended.exit.role));
                }
                None => {}
            }
            self.ended.push(ended);
        }
        problems
    }

    fn play_again(&mut self) -> Result<(), Violation> {
        for index in 0..self.ports.len() {
            self.start_target(index, self.ports[index], 0)?;
        }
        let channel = self.sandbox.channel().to_owned();
        self.start_service(channel.clone())?;
        self.role(Part::Service)?
            .logs(LogEvent::WaitingForInitiator, 1, default_deadline())?;
        let work = if self.case.phase.is_written() {
            Work::Read
        } else {
            Work::WriteAndRead
        };
        self.good_session(work, &channel)
    }

    /// Returns `true` if the case includes a restart; [`Mode::Serving`] already runs a further session.
    pub(super) fn is_restarted(&self) -> bool {
        self.case.mode != Mode::Serving
    }
}

// Behaviour of the other roles after a fault.

/// Returns `true` for the end of a target's client: of its session or, as a session begins with the first request, of its
/// connection before that.
fn is_end(event: LogEvent<'_>) -> bool {
    matches!(
        event,
        LogEvent::SessionCompleted(_)
            | LogEvent::SessionFailed(_)
            | LogEvent::ClosedWithoutRequest
            | LogEvent::FirstRequestTimedOut
    )
}

/// Reaction of the other roles to the fault.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    /// Time until all other roles had detected the fault.
    pub(super) noticed: Duration,
    pub(super) problems: Vec<String>,
}

impl Deployment<'_> {
    /// Waits until all other roles have detected the fault, and runs the sessions that are possible afterwards. An
    /// error ends the case.
    pub(super) fn watch(&mut self) -> Result<Aftermath, Violation> {
        let started = Instant::now();
        let mut aftermath = Aftermath::default();
        if self.case.phase == Phase::Waiting && self.case.fault == Fault::Stop {
            // A stopped role with no outstanding response is not detected.
            let channel = self.sandbox.channel().to_owned();
            self.start_initiator(Work::WriteAndRead, &channel)?;
        }
        if self.case.is_survived() {
            self.lose_and_regain()?;
        } else if self.case.mode == Mode::Serving {
            self.serve_on(&mut aftermath, started)?;
        } else {
            let others = |deployment: &Self, role: &Running| role.part != deployment.case.faulty;
            // The frame is one target's; the service may not have sent the request to the others yet.
            let first = [
                Phase::Waiting,
                Phase::Frame(MessageType::QueryStorageRequest, 0),
                Phase::Frame(MessageType::QueryStorageResponse, 0),
            ];
            if first.contains(&self.case.phase) {
                let is_target = |role: &Running| matches!(role.part, Part::Target(_));
                let askers = |deployment: &Self, role: &Running| {
                    others(deployment, role) && !is_target(role)
                };
                self.all_end(askers, &mut aftermath.problems);
                // Targets without a request have no session to end, and keep running.
                for role in self.running.iter().filter(|role| is_target(role)) {
                    role.signal(Signal::TERM);
                }
            }
            self.all_end(others, &mut aftermath.problems);
            aftermath.noticed = started.elapsed();
            self.wake_victim();
            self.all_end(|_, _| true, &mut aftermath.problems);
        }
        self.judge(&mut aftermath.problems);
        Ok(aftermath)
    }

    /// Waits for some roles to exit, and reports those that do not.
    fn all_end(&mut self, who: impl Fn(&Self, &Running) -> bool, problems: &mut Vec<String>) {
        let notice = self.settings.notice;
        let deadline = Instant::now() + notice;
        for index in 0..self.running.len() {
            if !who(self, &self.running[index]) {
                continue;
            }
            let role = &mut self.running[index];
            if !role.ends(deadline) {
                let seconds = notice.as_secs();
                problems.push(format!("{} still ran after {seconds} s", role.label()));
                role.signal(Signal::KILL);
                role.ends(default_deadline());
            }
        }
    }

    /// Continues the stopped role, which then detects that its peers have disconnected.
    fn wake_victim(&mut self) {
        let Self { running, case, .. } = self;
        if case.fault == Fault::Stop
            && let Some(role) = running.iter().find(|role| role.part == case.faulty)
        {
            role.signal(Signal::CONT);
        }
    }

    /// Checks the exit status of every role and moves it to `ended`.
    fn judge(&mut self, problems: &mut Vec<String>) {
        let case = self.case;
        // The first process of a role is the one that was running at the time of the fault.
        let mut seen = Vec::new();
        for role in std::mem::take(&mut self.running) {
            let ended = role.into_ended();
            let was_there = !seen.contains(&ended.part);
            seen.push(ended.part);
            let is_faulty = was_there && ended.part == case.faulty;
            problems.extend(ended.complaint(is_faulty && case.fault == Fault::Kill));
            if case.mode != Mode::Serving
                && was_there
                && !is_faulty
                && ended.exit.succeeded()
                && !case.may_end_well(ended.part)
            {
                problems.push(format!(
                    "{} exited with success, without noticing the fault",
                    ended.exit.role
                ));
            }
            self.ended.push(ended);
        }
    }

    /// Checks that the other roles serve the next session, with a replacement of the faulty role.
    fn serve_on(&mut self, aftermath: &mut Aftermath, started: Instant) -> Result<(), Violation> {
        let case = self.case;
        let is_initiator = |_: &Self, role: &Running| role.part == Part::Initiator;
        let targets = 0..self.ports.len();
        if case.faulty != Part::Initiator {
            self.all_end(is_initiator, &mut aftermath.problems);
        }
        let deadline = Instant::now() + self.settings.notice;
        for index in targets {
            let is_connected = case.phase != Phase::Waiting || case.faulty == Part::Service;
            if case.faulty != Part::Target(index) && is_connected {
                let target = self.role(Part::Target(index))?;
                target.logs_any("the end of its client", deadline, is_end)?;
            }
        }
        let mut channel = self.sandbox.channel().to_owned();
        let mut has_content = case.phase.is_written();
        let mut ready = 2;
        match (case.faulty, case.fault) {
            (Part::Initiator, _) => {}
            // The replacement has an empty storage.
            (Part::Target(_), Fault::Stop) => has_content = false,
            (Part::Target(index), _) => {
                self.start_target(index, self.ports[index], 0)?;
            }
            (Part::Service, fault) => {
                if fault == Fault::Stop {
                    // The stopped service still has its channel, too.
                    channel.push_str("-next");
                }
                self.start_service(channel.clone())?;
                ready = 1;
            }
        }
        self.wait_until_ready(ready, deadline)?;
        aftermath.noticed = started.elapsed();
        if case.fault == Fault::Stop {
            self.wake_in_a_session(&channel, &mut aftermath.problems)?;
            self.wait_until_ready(ready + 1, default_deadline())?;
            has_content = true;
        }
        let work = if has_content {
            Work::Read
        } else {
            Work::WriteAndRead
        };
        self.good_session(work, &channel)?;
        // They would otherwise wait for the next session indefinitely.
        for role in &self.running {
            role.signal(Signal::TERM);
        }
        self.all_end(|_, _| true, &mut aftermath.problems);
        Ok(())
    }

    /// Waits until the service has announced its readiness this many times, and each target has a client.
    fn wait_until_ready(&mut self, times: usize, deadline: Instant) -> Result<(), Violation> {
        self.role(Part::Service)?
            .logs(LogEvent::WaitingForInitiator, times, deadline)?;
        for index in 0..self.ports.len() {
            let target = self.role(Part::Target(index))?;
            target.says_what("the service connected", deadline, |text| {
                let count = |is_counted: fn(LogEvent<'_>) -> bool| {
                    log::events(text).filter(|&event| is_counted(event)).count()
                };
                let clients = count(|event| event == LogEvent::Connected);
                (clients > count(is_end)).then_some(())
            })?;
        }
        let service = self.role(Part::Service)?;
        service.says_what("it was ready", deadline, |text| {
            let is_state = |event: &LogEvent<'_>| {
                matches!(
                    event,
                    LogEvent::WaitingForInitiator | LogEvent::NotReady { .. }
                )
            };
            let state = log::events(text).filter(is_state).last();
            (state == Some(LogEvent::WaitingForInitiator)).then_some(())
        })
    }

    /// Continues the faulty role during the next session, which must not be affected.
    fn wake_in_a_session(
        &mut self,
        channel: &str,
        problems: &mut Vec<String>,
    ) -> Result<(), Violation> {
        self.start_initiator(Work::Endless, channel)?;
        let initiator = self.role(Part::Initiator)?;
        initiator.logs_any("all blocks were written", default_deadline(), |event| {
            matches!(event, LogEvent::Progress { operations } if operations >= 4 * BLOCKS as u64)
        })?;
        self.wake_victim();
        let faulty = self.case.faulty;
        let first = self
            .running
            .iter_mut()
            .find(|role| role.part == faulty)
            .ok_or_else(|| Violation::new("there is no faulty role"))?;
        if !first.ends(Instant::now() + self.settings.notice) {
            problems.push(format!("{} has woken up and does not end", first.label()));
        }
        let initiator = self.role(Part::Initiator)?;
        if initiator.has_ended() {
            return Err(self.failed_session("the next session ended when the faulty role woke up"));
        }
        initiator.signal(Signal::INT);
        if !initiator.ends(default_deadline()) {
            return Err(self.failed_session("the next session's initiator does not end"));
        }
        Ok(())
    }

    /// Counts a session that did not do its work, for this reason.
    fn failed_session(&mut self, why: &str) -> Violation {
        self.failed_sessions += 1;
        Violation::new(why)
    }

    /// Runs one session whose initiator must read the expected content.
    fn good_session(&mut self, work: Work, channel: &str) -> Result<(), Violation> {
        self.start_initiator(work, channel)?;
        let initiator = self.role(Part::Initiator)?;
        if !initiator.ends(default_deadline()) {
            return Err(self.failed_session("the next session does not end"));
        }
        if initiator.is_well() {
            Ok(())
        } else {
            Err(self.failed_session("the next session failed"))
        }
    }

    /// Checks that the session continues without the target, and with it after its rejoin.
    fn lose_and_regain(&mut self) -> Result<(), Violation> {
        let Part::Target(index) = self.case.faulty else {
            return Err(Violation::new("only a target may be offline in a session"));
        };
        let deadline = Instant::now() + self.settings.notice;
        let service = self.role(Part::Service)?;
        service.logs_any("a detached target", deadline, |event| {
            matches!(event, LogEvent::TargetDetached(_))
        })?;
        self.wake_victim();
        let faulty = self.role(self.case.faulty)?;
        if !faulty.ends(deadline) {
            return Err(Violation::new("the detached target does not end"));
        }
        self.start_target(index, self.ports[index], 0)?;
        let service = self.role(Part::Service)?;
        service.logs_any("a rebuilt target", default_deadline(), |event| {
            matches!(event, LogEvent::TargetUpToDate(_))
        })?;
        let initiator = self.role(Part::Initiator)?;
        if initiator.has_ended() {
            return Err(Violation::new("the session has ended with the target"));
        }
        initiator.signal(Signal::INT);
        let mut problems = Vec::new();
        self.all_end(|_, _| true, &mut problems);
        match problems.pop() {
            Some(problem) => Err(Violation::new(problem)),
            None => Ok(()),
        }
    }
}
