//! The deployment of one case, from its start to the injection of the fault.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::Part;
use deployment::implementation::Role;
use deployment::log::{self, LogEvent};
use deployment::process::{Exit, Process, Signal};
use deployment::sandbox::Sandbox;
use wire::control::MessageType;

use super::relay::{FaultyLine, Held, Moment};
use super::{Case, Fault, Interrupted, Mode, Phase, Settings};
use crate::violation::{During as _, Violation};

/// Name of the file with the expected contents of the storage.
const CONTENT: &str = "content";
/// Timeout for a role to become ready for its peers, and for a session to reach a phase.
pub(super) const READY: Duration = Duration::from_secs(60);
/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(2);

/// A deployment, with a relay between its service and its targets.
pub(super) struct Deployment<'a> {
    pub(super) settings: &'a Settings,
    pub(super) case: Case,
    /// Index of the case in the run; it selects the CPUs, so that concurrent cases use different ones.
    pub(super) number: usize,
    pub(super) interrupted: Interrupted<'a>,
    /// The roles' current processes.
    pub(super) roles: deployment::Deployment,
    /// Processes that others have replaced, the oldest first.
    replaced: Vec<(Part, Process)>,
    pub(super) line: FaultyLine,
    /// Work of the next initiator.
    work: Work,
    /// `true` once the fault was injected: roles that are started afterwards are replacements.
    pub(super) is_struck: bool,
    /// `true` once no further fault will be injected: timeouts are then long.
    pub(super) is_calm: bool,
    /// Roles that have exited.
    pub(super) ended: Vec<Ended>,
    /// Number of sessions after the fault that failed or were incomplete.
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
            roles: deployment::Deployment::new(sandbox, case.layout, READY)?,
            replaced: Vec::new(),
            line: FaultyLine::start(&[]).during("a relay")?,
            work: Work::WriteAndRead,
            is_struck: false,
            is_calm: false,
            ended: Vec::new(),
            failed_sessions: 0,
        };
        deployment.line = FaultyLine::start(deployment.roles.ports()).during("a relay")?;
        let ports = deployment.line.ports().to_vec();
        deployment.roles.reach_targets_at(case.layout, ports);
        deployment.start_servers()?;
        Ok(deployment)
    }

    /// Starts targets and service, and waits until each is ready.
    fn start_servers(&mut self) -> Result<(), Violation> {
        for index in 0..self.roles.targets() {
            self.start_target(index)?;
        }
        self.start(Part::Service)?;
        Ok(self.roles.wait_until_ready(Part::Service)?)
    }

    /// Starts a role, and keeps its previous process, if there is one, for the final checks.
    fn start(&mut self, part: Part) -> Result<(), Violation> {
        if let Ok(former) = self.roles.take(part) {
            self.replaced.push((part, former));
        }
        let command = match part {
            Part::Target(index) => self.target(index)?,
            Part::Service => self.service()?,
            Part::Initiator | Part::FrontEnd => self.initiator()?,
        };
        self.roles.set_command(part, command);
        Ok(self.roles.spawn(part)?)
    }

    /// Starts a target and waits until it listens.
    fn start_target(&mut self, index: usize) -> Result<(), Violation> {
        self.start(Part::Target(index))?;
        Ok(self.roles.wait_until_ready(Part::Target(index))?)
    }

    fn start_initiator(&mut self, work: Work) -> Result<(), Violation> {
        self.work = work;
        self.start(Part::Initiator)
    }

    /// Current process of a role.
    fn role(&self, part: Part) -> Result<&Process, Violation> {
        let role = self.roles.process(part);
        role.ok_or_else(|| Violation::new(format!("there is no {}", part.name(self.case.layout))))
    }

    /// All processes, current ones last.
    fn all(&self) -> impl Iterator<Item = (Part, &Process)> {
        let replaced = self.replaced.iter().map(|(part, process)| (*part, process));
        let current = self.roles.started().into_iter();
        replaced.chain(current.filter_map(|part| Some((part, self.roles.process(part)?))))
    }

    /// The process into which the fault is injected.
    fn victim(&self) -> Result<&Process, Violation> {
        let mut all = self.all();
        let victim = all.find(|(part, _)| *part == self.case.faulty);
        let (_, victim) = victim.ok_or_else(|| Violation::new("there is no faulty role"))?;
        Ok(victim)
    }

    /// Exit status and output of all processes, replaced ones first. Kills those that are still running.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        let mut all = std::mem::take(&mut self.replaced);
        for part in self.roles.started() {
            all.extend(self.roles.take(part).map(|process| (part, process)));
        }
        let ended = all.into_iter().map(|(part, process)| Ended {
            part,
            exit: process.kill_into_exit(),
        });
        ended.collect()
    }

    /// Brings the session to the phase of the fault. Returns the held frame if the phase is defined by a frame.
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
        self.start_initiator(work)?;
        let Some(trap) = trap else {
            return self.wait_until_written().map(|()| None);
        };
        let interrupted = self.interrupted;
        let initiator = self.role(Part::Initiator)?;
        let held = trap.wait(default_deadline(), || {
            interrupted() || initiator.has_ended()
        });
        held.map(Some)
            .ok_or_else(|| Violation::new(format!("the session did not reach {}", self.case.phase)))
    }

    /// Waits until every block has been written by an initiator that keeps writing and reading.
    fn wait_until_written(&self) -> Result<(), Violation> {
        let deadline = default_deadline();
        let initiator = self.role(Part::Initiator)?;
        while initiator.count_events(is_past_all_blocks) == 0 {
            if initiator.has_ended() {
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
            Fault::Kill if !ends(role, default_deadline()) => {
                return Err(Violation::new("SIGKILL does not end it"));
            }
            // The role had completed its work, and has just exited.
            Fault::Stop if !role.wait_until_stopped(default_deadline()) && !role.has_ended() => {
                return Err(Violation::new("SIGSTOP does not stop it"));
            }
            _ => {}
        }
        if let (Mode::Serving, Part::Target(index), Fault::Stop) = (mode, faulty, fault) {
            // The stopped target keeps its port and its file. The service may connect to the replacement as soon as the
            // frame is forwarded.
            let port = self.roles.move_target(index)?;
            self.start_target(index)?;
            self.line.redirect(self.case.channel(), port);
        }
        drop(held);
        Ok(())
    }
}

/// Returns `true` if a run has visited all blocks twice: each operation of an initiator is on the next block.
fn is_past_all_blocks(event: LogEvent<'_>) -> bool {
    matches!(event, LogEvent::Progress { operations } if operations >= 2 * BLOCKS as u64)
}

/// Deadline for events that should occur immediately.
pub(super) fn default_deadline() -> Instant {
    Instant::now() + READY
}

/// Waits for a process to exit; `false` if it is still running at `deadline`.
fn ends(process: &Process, deadline: Instant) -> bool {
    process.wait_for_end(deadline);
    process.has_ended()
}

impl Deployment<'_> {
    /// Waits until a role has logged the event at least `times` times.
    fn logs(
        &self,
        part: Part,
        event: LogEvent<'_>,
        times: usize,
        deadline: Instant,
    ) -> Result<(), Violation> {
        let logged = self.role(part)?.wait_for_event(event, times, deadline);
        // Without the output, which the report contains separately.
        logged.map_err(|failure| Violation::new(format!("{} {}", failure.role, failure.what)))
    }

    /// Waits until a role has logged an event for which `is_awaited` returns `true`. `what` describes it in the error.
    fn logs_any(
        &self,
        part: Part,
        what: &str,
        deadline: Instant,
        is_awaited: impl Fn(LogEvent<'_>) -> bool,
    ) -> Result<(), Violation> {
        self.log_satisfies(part, what, deadline, |log| {
            log::events(log).any(&is_awaited)
        })
    }

    /// Waits until the log of a role fulfils a condition. `what` describes it in the error.
    fn log_satisfies(
        &self,
        part: Part,
        what: &str,
        deadline: Instant,
        is_satisfied: impl Fn(&str) -> bool,
    ) -> Result<(), Violation> {
        let find = |log: &str| is_satisfied(log).then_some(());
        let found = self.role(part)?.wait_for_output(what, deadline, find);
        found.map_err(Violation::new)
    }
}

/// Prefix of the line in which every role reports the reason of its failure.
const ERROR: &str = "error: ";

/// A role that has exited.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) part: Part,
    pub(super) exit: Exit,
}

impl Ended {
    /// Violation in a process's exit: still running, a crash, or a failure without an error message. `killed`: the
    /// process was sent SIGKILL.
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
            Part::Initiator | Part::FrontEnd => self.number,
            Part::Service => self.number + 1,
            Part::Target(index) => self.number + 2 + index,
        };
        let cpu = cpus[index % cpus.len()];
        command.args(["--cpu", &cpu.to_string(), "--output", "json"]);
        Ok(command)
    }

    fn target(&self, index: usize) -> Result<Command, Violation> {
        let size = match self.case.mode {
            Mode::Degraded => self.case.layout.chunk_size(BLOCK_SIZE),
            Mode::Once | Mode::Serving => self.case.layout.target_block_size(BLOCK_SIZE),
        };
        // A replacement at another port starts with an empty storage.
        let file = format!("blocks-{}", self.roles.ports()[index]);
        let mut command = self.command(Role::Target, Part::Target(index))?;
        command
            .arg("--backing-file")
            .arg(self.roles.sandbox.path(&file))
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

    fn service(&self) -> Result<Command, Violation> {
        let layout = self.case.layout;
        let seconds = self.timeout().as_secs().to_string();
        let mut command = self.command(layout.service(), Part::Service)?;
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

    fn initiator(&self) -> Result<Command, Violation> {
        let seconds = self.timeout().as_secs().to_string();
        let strategy = match self.work {
            Work::Endless | Work::WriteAndRead => "read_write_data_validity_test",
            Work::Read => "read_only_data_validity_test",
        };
        let operations = match self.work {
            Work::Endless => ENDLESS,
            Work::WriteAndRead | Work::Read => OPERATIONS,
        };
        let mut command = self.command(Role::Initiator, Part::Initiator)?;
        command
            .args(["--control-timeout", &seconds])
            .args(["--io-timeout", &seconds])
            .args(["--execution-strategy", strategy])
            .args(["--run-limit-operation-count", operations])
            .args(["--transaction-count", TRANSACTIONS])
            .arg("--storage-plain-content")
            .arg(self.roles.sandbox.path(CONTENT));
        if self.work == Work::Endless {
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
        for (_, process) in self.all() {
            process.wait_for_end(default_deadline());
        }
        for ended in self.take_ended() {
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
        self.start_servers()?;
        let work = if self.case.phase.is_written() {
            Work::Read
        } else {
            Work::WriteAndRead
        };
        self.good_session(work)
    }

    /// Returns `true` if the case includes a restart; [`Mode::Serving`] already runs a further session.
    pub(super) fn is_restarted(&self) -> bool {
        self.case.mode != Mode::Serving
    }
}

// Behaviour of the other roles after a fault.

/// Returns `true` for the event that a target's client has left: the end of its session or, before its first request,
/// of its connection.
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
            self.start_initiator(Work::WriteAndRead)?;
        }
        if self.case.is_survived() {
            self.lose_and_regain()?;
        } else if self.case.mode == Mode::Serving {
            self.serve_on(&mut aftermath, started)?;
        } else {
            let faulty = self.case.faulty;
            let others = |part: Part| part != faulty;
            // The frame belongs to one target; the service may not have sent the request to the others yet.
            let first = [
                Phase::Waiting,
                Phase::Frame(MessageType::QueryStorageRequest, 0),
                Phase::Frame(MessageType::QueryStorageResponse, 0),
            ];
            if first.contains(&self.case.phase) {
                let is_target = |part: Part| matches!(part, Part::Target(_));
                let askers = |part: Part| others(part) && !is_target(part);
                self.all_end(askers, &mut aftermath.problems);
                // Targets that have not received a request have no session to end, and keep running.
                for index in 0..self.roles.targets() {
                    self.roles.signal(Part::Target(index), Signal::TERM);
                }
            }
            self.all_end(others, &mut aftermath.problems);
            aftermath.noticed = started.elapsed();
            self.wake_victim()?;
            self.all_end(|_| true, &mut aftermath.problems);
        }
        self.judge(&mut aftermath.problems);
        Ok(aftermath)
    }

    /// Waits for the processes of some roles to exit, and reports those that do not.
    fn all_end(&self, is_awaited: impl Fn(Part) -> bool, problems: &mut Vec<String>) {
        let notice = self.settings.notice;
        let deadline = Instant::now() + notice;
        for (_, process) in self.all().filter(|(part, _)| is_awaited(*part)) {
            if !ends(process, deadline) {
                let seconds = notice.as_secs();
                problems.push(format!("{} still ran after {seconds} s", process.role()));
                process.signal(Signal::KILL);
                process.wait_for_end(default_deadline());
            }
        }
    }

    /// Continues the stopped role, which then detects that its peers have disconnected.
    fn wake_victim(&self) -> Result<(), Violation> {
        if self.case.fault == Fault::Stop {
            self.victim()?.signal(Signal::CONT);
        }
        Ok(())
    }

    /// Checks the exit status of every role and moves it to `ended`.
    fn judge(&mut self, problems: &mut Vec<String>) {
        let case = self.case;
        // The first process of a role is the one that was running at the time of the fault.
        let mut seen = Vec::new();
        for ended in self.take_ended() {
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
        if case.faulty != Part::Initiator {
            self.all_end(|part| part == Part::Initiator, &mut aftermath.problems);
        }
        let deadline = Instant::now() + self.settings.notice;
        for index in 0..self.roles.targets() {
            let is_connected = case.phase != Phase::Waiting || case.faulty == Part::Service;
            if case.faulty != Part::Target(index) && is_connected {
                let target = Part::Target(index);
                self.logs_any(target, "the end of its client", deadline, is_end)?;
            }
        }
        let mut has_content = case.phase.is_written();
        let mut ready = 2;
        match (case.faulty, case.fault) {
            (Part::Initiator | Part::FrontEnd, _) => {}
            // The replacement has an empty storage.
            (Part::Target(_), Fault::Stop) => has_content = false,
            (Part::Target(index), _) => self.start_target(index)?,
            (Part::Service, fault) => {
                if fault == Fault::Stop {
                    // The stopped service also still has its channel.
                    let next = format!("{}-next", self.roles.sandbox.channel());
                    self.roles.set_channel(next);
                }
                self.start(Part::Service)?;
                ready = 1;
            }
        }
        self.wait_until_ready(ready, deadline)?;
        aftermath.noticed = started.elapsed();
        if case.fault == Fault::Stop {
            self.wake_in_a_session(&mut aftermath.problems)?;
            self.wait_until_ready(ready + 1, default_deadline())?;
            has_content = true;
        }
        let work = if has_content {
            Work::Read
        } else {
            Work::WriteAndRead
        };
        self.good_session(work)?;
        // The processes would otherwise wait for the next session indefinitely.
        for (_, process) in self.all() {
            process.signal(Signal::TERM);
        }
        self.all_end(|_| true, &mut aftermath.problems);
        Ok(())
    }

    /// Waits until the service has announced its readiness this many times, and each target has a client.
    fn wait_until_ready(&self, times: usize, deadline: Instant) -> Result<(), Violation> {
        self.logs(
            Part::Service,
            LogEvent::WaitingForInitiator,
            times,
            deadline,
        )?;
        for index in 0..self.roles.targets() {
            let target = Part::Target(index);
            self.log_satisfies(target, "the service connected", deadline, |log| {
                let count = |is_counted: fn(LogEvent<'_>) -> bool| {
                    log::events(log).filter(|&event| is_counted(event)).count()
                };
                count(|event| event == LogEvent::Connected) > count(is_end)
            })?;
        }
        self.log_satisfies(Part::Service, "it was ready", deadline, |log| {
            let is_state = |event: &LogEvent<'_>| {
                matches!(
                    event,
                    LogEvent::WaitingForInitiator | LogEvent::NotReady { .. }
                )
            };
            let state = log::events(log).filter(is_state).last();
            state == Some(LogEvent::WaitingForInitiator)
        })
    }

    /// Continues the faulty role during the next session, which must not be affected.
    fn wake_in_a_session(&mut self, problems: &mut Vec<String>) -> Result<(), Violation> {
        self.start_initiator(Work::Endless)?;
        self.logs_any(
            Part::Initiator,
            "all blocks were written",
            default_deadline(),
            |event| matches!(event, LogEvent::Progress { operations } if operations >= 4 * BLOCKS as u64),
        )?;
        self.wake_victim()?;
        let victim = self.victim()?;
        if !ends(victim, Instant::now() + self.settings.notice) {
            problems.push(format!("{} has woken up and does not end", victim.role()));
        }
        let initiator = self.role(Part::Initiator)?;
        if initiator.has_ended() {
            return Err(self.failed_session("the next session ended when the faulty role woke up"));
        }
        initiator.signal(Signal::INT);
        if !ends(initiator, default_deadline()) {
            return Err(self.failed_session("the next session's initiator does not end"));
        }
        Ok(())
    }

    /// Counts a session that failed or was incomplete, with the reason.
    fn failed_session(&mut self, why: &str) -> Violation {
        self.failed_sessions += 1;
        Violation::new(why)
    }

    /// Runs one session whose initiator must read the expected content.
    fn good_session(&mut self, work: Work) -> Result<(), Violation> {
        self.start_initiator(work)?;
        let initiator = self.role(Part::Initiator)?;
        initiator.wait_for_end(default_deadline());
        match initiator.exit_status() {
            Some(status) if status.success() => Ok(()),
            Some(_) => Err(self.failed_session("the next session failed")),
            None => Err(self.failed_session("the next session does not end")),
        }
    }

    /// Checks that the session continues without the target, and with it after its rejoin.
    fn lose_and_regain(&mut self) -> Result<(), Violation> {
        let Part::Target(index) = self.case.faulty else {
            return Err(Violation::new("only a target may be offline in a session"));
        };
        let deadline = Instant::now() + self.settings.notice;
        self.logs_any(Part::Service, "a detached target", deadline, |event| {
            matches!(event, LogEvent::TargetDetached(_))
        })?;
        self.wake_victim()?;
        if !ends(self.victim()?, deadline) {
            return Err(Violation::new("the detached target does not end"));
        }
        self.start_target(index)?;
        self.logs_any(
            Part::Service,
            "a rebuilt target",
            default_deadline(),
            |event| matches!(event, LogEvent::TargetUpToDate(_)),
        )?;
        let initiator = self.role(Part::Initiator)?;
        if initiator.has_ended() {
            return Err(Violation::new("the session has ended with the target"));
        }
        initiator.signal(Signal::INT);
        let mut problems = Vec::new();
        self.all_end(|_| true, &mut problems);
        match problems.pop() {
            Some(problem) => Err(Violation::new(problem)),
            None => Ok(()),
        }
    }
}
