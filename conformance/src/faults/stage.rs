//! The deployment of one case, from its start to the moment of the fault.

use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use wire::backing::CONTENT_OFFSET;

use super::case::{Case, Fault, Mode, Part, Phase};
use super::relay::{FaultyLine, Held, Moment};
use super::sweep::{Interrupted, Settings};
use crate::implementation::Role;
use crate::matrix::Layout;
use crate::process::{Process, Signal};
use crate::scene::{DPU_DEVICE, HOST_DEVICE, Scene};

/// The file with what the storage should hold.
pub(super) const CONTENT: &str = "content";
/// What a target says when it can be connected to.
const LISTENING: &str = "listening on port ";
/// What a service says when it can serve.
pub(super) const WAITING: &str = "waiting for the initiator";
/// Time that a role gets to be ready for its peers, and a session to come to a place.
pub(super) const READY: Duration = Duration::from_secs(60);
/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(2);

/// A deployment. Its roles are in the order in which they are started: targets, service, initiator.
pub(super) struct Stage<'a> {
    pub(super) settings: &'a Settings,
    pub(super) case: Case,
    /// Which case of the run it is: neighbours use other CPUs first.
    pub(super) number: usize,
    pub(super) interrupted: Interrupted<'a>,
    pub(super) scene: Scene,
    pub(super) line: FaultyLine,
    /// The targets' own ports.
    pub(super) ports: Vec<u16>,
    pub(super) actors: Vec<Actor>,
    /// The fault is done: who is started from now on comes in somebody's place.
    pub(super) is_struck: bool,
    /// Nobody is hit any more: nobody needs to be impatient.
    pub(super) is_calm: bool,
    /// Roles of sessions that are over.
    pub(super) ended: Vec<Ended>,
}

impl<'a> Stage<'a> {
    /// Targets that listen, a line to them, and a service that has found them.
    pub(super) fn set(
        settings: &'a Settings,
        case: Case,
        number: usize,
        interrupted: Interrupted<'a>,
    ) -> Result<Self, String> {
        let scene = Scene::new().map_err(|error| format!("a directory: {error}"))?;
        scene
            .file(CONTENT, &plain())
            .map_err(|error| format!("{CONTENT}: {error}"))?;
        let mut stage = Self {
            settings,
            case,
            number,
            interrupted,
            scene,
            line: FaultyLine::start(&[]).map_err(|error| format!("a relay: {error}"))?,
            ports: Vec::new(),
            actors: Vec::new(),
            is_struck: false,
            is_calm: false,
            ended: Vec::new(),
        };
        for index in 0..case.layout.targets().len() {
            let port = stage.port()?;
            stage.start_target(index, port, 0)?;
            stage.ports.push(port);
        }
        stage.line =
            FaultyLine::start(&stage.ports).map_err(|error| format!("a relay: {error}"))?;
        stage.start_service(stage.scene.channel().to_owned())?;
        stage.actor(Part::Service)?.says(WAITING, 1, soon())?;
        Ok(stage)
    }

    /// A port for a target.
    fn port(&self) -> Result<u16, String> {
        self.scene
            .port()
            .map_err(|error| format!("a port: {error}"))
    }

    fn start(&mut self, part: Part, command: std::process::Command) -> Result<&mut Actor, String> {
        let actor = Actor::start(part, part.label(self.case.layout), command)?;
        self.actors.push(actor);
        self.actor(part)
    }

    /// Starts a target and waits until it listens.
    pub(super) fn start_target(
        &mut self,
        index: usize,
        port: u16,
        generation: u32,
    ) -> Result<(), String> {
        let command = self.target(index, port, generation)?;
        let target = self.start(Part::Target(index), command)?;
        target.says(LISTENING, 1, soon())
    }

    /// Starts a service, which may find nobody.
    pub(super) fn start_service(&mut self, channel: String) -> Result<(), String> {
        let command = self.service(self.line.ports(), &channel)?;
        self.start(Part::Service, command).map(drop)
    }

    pub(super) fn start_initiator(&mut self, work: Work, channel: &str) -> Result<(), String> {
        let command = self.initiator(work, channel)?;
        self.start(Part::Initiator, command).map(drop)
    }

    /// The one that plays this part now: the last that was started.
    pub(super) fn actor(&mut self, part: Part) -> Result<&mut Actor, String> {
        self.actors
            .iter_mut()
            .rev()
            .find(|actor| actor.part == part)
            .ok_or_else(|| format!("there is no {}", part.label(self.case.layout)))
    }

    /// Goes to the place of the fault; the frame that stands still there, if it is one.
    pub(super) fn reach(&mut self) -> Result<Option<Held>, String> {
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
        let channel = self.scene.channel().to_owned();
        self.start_initiator(work, &channel)?;
        let Some(trap) = trap else {
            return self.wait_until_written().map(|()| None);
        };
        let interrupted = self.interrupted;
        let initiator = self.actor(Part::Initiator)?;
        let held = trap.wait(soon(), || interrupted() || initiator.has_ended());
        held.map(Some)
            .ok_or_else(|| format!("the session did not come to {}", self.case.phase))
    }

    /// Waits until every block has been written by an initiator that goes on writing and reading them.
    fn wait_until_written(&mut self) -> Result<(), String> {
        let deadline = soon();
        while !self.is_written()? {
            if self.actor(Part::Initiator)?.has_ended() {
                return Err("the initiator ended before it had written all blocks".to_owned());
            }
            if Instant::now() >= deadline || (self.interrupted)() {
                return Err("the blocks were not written in time".to_owned());
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Whether each target has something in each block. A new file has zeros.
    fn is_written(&self) -> Result<bool, String> {
        let size = match self.case.layout {
            Layout::ZeroCopy => BLOCK_SIZE,
            Layout::Gga => BLOCK_SIZE / 2,
        };
        for index in 0..self.ports.len() {
            let path = self.backing_file(index, 0);
            let failed = |error| format!("{}: {error}", path.display());
            let mut blocks = vec![0; BLOCKS * size];
            let file = fs::File::open(&path).map_err(failed)?;
            file.read_exact_at(&mut blocks, CONTENT_OFFSET)
                .map_err(failed)?;
            let is_empty = |block: &[u8]| block.iter().all(|&byte| byte == 0);
            if blocks.chunks(size).any(is_empty) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does it. A frame that was held goes on afterwards: behind a death that is certain, and without waiting for another end.
    pub(super) fn strike(&mut self, held: Option<Held>) -> Result<(), String> {
        let Case {
            victim,
            fault,
            mode,
            ..
        } = self.case;
        self.is_struck = true;
        let actor = self.actor(victim)?;
        actor.signal(fault.signal());
        match fault {
            Fault::Kill if !actor.ends(soon()) => return Err("SIGKILL does not end it".to_owned()),
            // It has ended just before, where it had nothing left to do.
            Fault::Stop if !actor.stops(soon()) && !actor.has_ended() => {
                return Err("SIGSTOP does not stop it".to_owned());
            }
            _ => {}
        }
        if let (Mode::Serving, Part::Target(index), Fault::Stop) = (mode, victim, fault) {
            // It has its port and its file as long as it may wake up. The service may look for it as soon as the frame goes on.
            let port = self.port()?;
            self.start_target(index, port, 1)?;
            self.line.redirect(self.case.channel(), port);
        }
        drop(held);
        Ok(())
    }
}

/// When nobody waits any longer for what should come at once.
pub(super) fn soon() -> Instant {
    Instant::now() + READY
}

// A role that takes part.

/// Time that the system gets to take a process away.
const REAPED: Duration = Duration::from_secs(10);
/// What all roles say the reason of their end behind.
const ERROR: &str = "error: ";

/// A role's process.
pub(super) struct Actor {
    pub(super) part: Part,
    pub(super) label: &'static str,
    process: Process,
    status: Option<ExitStatus>,
}

impl Actor {
    pub(super) fn start(part: Part, label: &'static str, command: Command) -> Result<Self, String> {
        Ok(Self {
            part,
            label,
            process: Process::spawn(label, command).map_err(|failure| failure.to_string())?,
            status: None,
        })
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for the end; `false` when it has not come at `deadline`.
    pub(super) fn ends(&mut self, deadline: Instant) -> bool {
        if self.status.is_none() {
            self.status = self.process.wait(deadline);
        }
        self.status.is_some()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.ends(Instant::now())
    }

    /// Whether it has ended by itself, with exit status 0.
    pub(super) fn is_well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Waits until a SIGSTOP has come to it; `false` when it has not at `deadline`.
    pub(super) fn stops(&mut self, deadline: Instant) -> bool {
        let path = format!("/proc/{}/stat", self.process.id());
        while !fs::read_to_string(&path).is_ok_and(|stat| is_stopped(&stat)) {
            if self.has_ended() || Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(TICK);
        }
        true
    }

    /// Waits until it has said this so many times.
    pub(super) fn says(
        &mut self,
        what: &str,
        times: usize,
        deadline: Instant,
    ) -> Result<(), String> {
        self.says_what(&format!("{what:?}"), deadline, |text| {
            (text.matches(what).count() >= times).then_some(())
        })
    }

    /// Waits until it has said something of which `find` makes an answer.
    pub(super) fn says_what<T>(
        &mut self,
        what: &str,
        deadline: Instant,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        loop {
            let has_ended = self.has_ended();
            if let Some(found) = find(&self.process.stderr()) {
                return Ok(found);
            }
            if let Some(status) = self.status.filter(|_| has_ended) {
                return Err(format!(
                    "{} ended ({status}) before it said {what}",
                    self.label
                ));
            }
            if Instant::now() >= deadline {
                return Err(format!("{} has not said {what} in time", self.label));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Its end, with all that it has written. One that has not ended is killed.
    pub(super) fn into_ended(mut self) -> Ended {
        if !self.has_ended() {
            // One that is stopped takes no other signal.
            self.process.signal(Signal::KILL);
            self.process.wait(Instant::now() + REAPED);
        }
        let (stdout, stderr) = self.process.into_output();
        Ended {
            part: self.part,
            label: self.label,
            status: self.status,
            stdout,
            stderr,
        }
    }
}

/// Whether a line of `/proc/PID/stat` is that of a stopped process: field 3, behind the name, which may hold anything in parentheses.
fn is_stopped(stat: &str) -> bool {
    stat.rsplit_once(')')
        .is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
}

/// A role that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) part: Part,
    pub(super) label: &'static str,
    /// `None` when it had to be killed.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// It ended by itself, with exit status 0.
    pub(super) fn is_well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// What is wrong with its end, whoever it is: it has not come, it was a crash, or a failure without a word. `killed` says that
    /// somebody has sent it a SIGKILL.
    pub(super) fn complaint(&self, killed: bool) -> Option<String> {
        let label = self.label;
        let Some(status) = self.status else {
            return Some(format!("{label} has not ended"));
        };
        match status.code() {
            None if killed && status.signal() == Some(Signal::KILL.as_raw()) => None,
            None => Some(format!("{label} was killed ({status})")),
            Some(_) if self.stderr.contains("panicked") => Some(format!("{label} has panicked")),
            Some(0) => None,
            Some(1) if self.stderr.contains(ERROR) => None,
            Some(1) => Some(format!("{label} failed and did not say why")),
            Some(code) => Some(format!("{label} ended with {code}, expected was 0 or 1")),
        }
    }
}

/// What somebody reads who wants to know why.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => writeln!(f, "{}: {status}", self.label)?,
            None => writeln!(f, "{}: had to be killed", self.label)?,
        }
        for line in self.stderr.lines().chain(self.stdout.lines()) {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

// The command lines of the roles.

/// I/Os that an initiator has in flight.
const TRANSACTIONS: &str = "32";
/// Operations of a run that comes to an end: each block is written and read at least twice.
const OPERATIONS: &str = "256";
/// Operations of one that does not.
const ENDLESS: &str = "2000000000";

/// What an initiator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Write all blocks and read them back, for ever.
    Endless,
    /// The same, twice over.
    WriteAndRead,
    /// Read all blocks, and compare with what an earlier one wrote.
    Read,
}

impl Stage<'_> {
    /// Seconds that roles wait for each other.
    fn timeout(&self) -> Duration {
        match self.case.fault {
            Fault::Stop if !self.is_calm => self.settings.timeout,
            // Who is gone is noticed by its connections, and not because time has passed.
            _ => self.settings.notice * 3,
        }
    }

    fn command(&self, role: Role, part: Part) -> Result<Command, String> {
        let implementation = &self.settings.implementation;
        let mut command = implementation
            .command(role)
            .map_err(|error| error.to_string())?;
        let cpus = &self.settings.cpus;
        let index = match part {
            Part::Initiator => self.number,
            Part::Service => self.number + 1,
            Part::Target(index) => self.number + 2 + index,
        };
        let cpu = cpus[index % cpus.len()];
        command.args(["--cpu", &cpu.to_string(), "--output", "json"]);
        self.scene.place(&mut command);
        Ok(command)
    }

    /// The file that a target keeps its blocks in. A second one has its own.
    pub(super) fn backing_file(&self, index: usize, generation: u32) -> PathBuf {
        self.scene.path(&format!("blocks-{index}-{generation}"))
    }

    pub(super) fn target(
        &self,
        index: usize,
        port: u16,
        generation: u32,
    ) -> Result<Command, String> {
        let size = match self.case.layout {
            Layout::ZeroCopy => BLOCK_SIZE,
            Layout::Gga => BLOCK_SIZE / 2,
        };
        let mut command = self.command(Role::Target, Part::Target(index))?;
        command
            .args(["--device", HOST_DEVICE])
            .args(["--listen-port", &port.to_string()])
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

    /// Whoever is not hit may serve on; one who is hit has nothing left to serve.
    fn add_sessions(&self, command: &mut Command, part: Part) {
        let is_hit = part == self.case.victim && !self.is_struck;
        if self.case.mode == Mode::Serving && !is_hit {
            command.args(["--sessions", "forever"]);
        }
    }

    pub(super) fn service(&self, ports: &[u16], channel: &str) -> Result<Command, String> {
        let layout = self.case.layout;
        let seconds = self.timeout().as_secs().to_string();
        let mut command = self.command(layout.service(), Part::Service)?;
        command
            .args(["--device", DPU_DEVICE])
            .args(["--representor", HOST_DEVICE])
            .args(["--command-channel-name", channel])
            .args(["--control-timeout", &seconds])
            .args(["--io-timeout", &seconds]);
        for (flag, port) in std::iter::zip(layout.storage_flags(), ports) {
            command.args([flag, format!("127.0.0.1:{port}").as_str()]);
        }
        if self.case.fault == Fault::Stop && !self.is_calm {
            let idle = 2 * self.settings.timeout.as_secs();
            command.args(["--idle-timeout", &idle.to_string()]);
        }
        if self.case.mode == Mode::Degraded {
            command.args(["--degraded", "on"]);
        }
        self.add_sessions(&mut command, Part::Service);
        Ok(command)
    }

    pub(super) fn initiator(&self, work: Work, channel: &str) -> Result<Command, String> {
        let seconds = self.timeout().as_secs().to_string();
        let strategy = match work {
            Work::Endless | Work::WriteAndRead => "read_write_data_validity_test",
            Work::Read => "read_only_data_validity_test",
        };
        let operations = match work {
            Work::Endless => ENDLESS,
            Work::WriteAndRead | Work::Read => OPERATIONS,
        };
        let mut command = self.command(Role::Initiator, Part::Initiator)?;
        command
            .args(["--device", HOST_DEVICE])
            .args(["--command-channel-name", channel])
            .args(["--control-timeout", &seconds])
            .args(["--io-timeout", &seconds])
            .args(["--execution-strategy", strategy])
            .args(["--run-limit-operation-count", operations])
            .args(["--transaction-count", TRANSACTIONS])
            .arg("--storage-plain-content")
            .arg(self.scene.path(CONTENT));
        if work == Work::Endless {
            command.args(["--progress", "always"]);
        }
        Ok(command)
    }
}

// What is stored.

/// Blocks of the storage, as the initiator sees it.
pub(super) const BLOCKS: usize = 64;
/// Bytes of a block, as the initiator sees it.
pub(super) const BLOCK_SIZE: usize = 4096;

/// Blocks that are all different, that compress, and that no new file holds.
pub(super) fn plain() -> Vec<u8> {
    let mut content = Vec::with_capacity(BLOCKS * BLOCK_SIZE);
    let mut word = 1u64;
    for block in 0..BLOCKS {
        let end = (block + 1) * BLOCK_SIZE;
        while content.len() < end {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            content.extend(format!("block {block} says {word:x}, {word:x} and {word:x}\n").bytes());
        }
        content.truncate(end);
    }
    content
}

// The whole deployment once more, right behind a session that ended badly, at the same place.

impl Stage<'_> {
    /// Starts all roles with the ports, files and names that they had, and has one session; what is wrong with that.
    pub(super) fn restart(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        self.is_calm = true;
        problems.extend(self.play_again().err().map(|why| format!("restart: {why}")));
        for mut actor in std::mem::take(&mut self.actors) {
            actor.ends(soon());
            let ended = actor.into_ended();
            match ended.complaint(false) {
                Some(complaint) => problems.push(format!("restart: {complaint}")),
                None if !ended.is_well() => {
                    problems.push(format!("restart: {} failed", ended.label));
                }
                None => {}
            }
            self.ended.push(ended);
        }
        problems
    }

    fn play_again(&mut self) -> Result<(), String> {
        for index in 0..self.ports.len() {
            self.start_target(index, self.ports[index], 0)?;
        }
        let channel = self.scene.channel().to_owned();
        self.start_service(channel.clone())?;
        self.actor(Part::Service)?.says(WAITING, 1, soon())?;
        let work = if self.case.phase.is_written() {
            Work::Read
        } else {
            Work::WriteAndRead
        };
        self.good_session(work, &channel)
    }

    /// Those who serve on have shown it already.
    pub(super) fn is_restarted(&self) -> bool {
        self.case.mode != Mode::Serving
    }
}
