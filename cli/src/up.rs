//! `doca-storage up`: a redundant disk on this machine, from one command: three targets with backing files, a gga_offload service and a front
//! end, which are supervised until a signal ends them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use deployment::log::{listening_port, waits_for_initiator};
use deployment::process::{Process, Signal};
use deployment::sandbox::{DPU_DEVICE, HOST_DEVICE};
use deployment::{Redundancy, allowed_cpus};
use gga_engine::Target;
use role_common::errln;
use role_common::flags::size;
use role_common::shutdown::Shutdown;
use role_common::verifier::derived;
use role_formats::stored_block::Geometry;
use role_target::offline::OfflineFile;
use rustix::process::{Pid, kill_process};
use serde::{Deserialize, Serialize};

use crate::{Result, exit_code, usage};

const EXAMPLES: &str = "\
Examples:
  10 GiB, over NBD at a socket below ~/.local/share/doca-storage:
    doca-storage up
  Another place, size and socket:
    doca-storage up --data /srv/disk --size 100G --nbd /run/disk.socket
  For a virtual machine:
    doca-storage up --data /srv/disk --vhost-user /run/disk.socket

The data directory has a backing file for each target (data_1.blocks, data_2.blocks, data_p.blocks), each half as large as the disk, and a log of each
process in log/. Started again with the same directory, it serves the same disk. Any one of the files may be lost: the target is rebuilt.
A process that ends is started again, after 0.5 to 10 s. SIGINT or SIGTERM ends all of them in order; the exit status is 1 if one of them fails then.";

/// Size of the disk's blocks in bytes.
const BLOCK_SIZE: u32 = 4096;
/// Pause before a process that has ended is started again, after the first time in succession, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Time after which a process that runs is not considered to have ended in succession.
const STABLE: Duration = Duration::from_secs(30);
/// Time for a process to become ready.
const READY: Duration = Duration::from_secs(60);
/// Time for a process to end after SIGTERM: targets copy versions to their places, and sync.
const END: Duration = Duration::from_secs(60);
/// Number of lines of a process's log that are shown if it does not become ready.
const REPORTED_LINES: usize = 5;
/// Interval of the supervision.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Directory of the disk, which is created if it is missing [default: doca-storage in XDG_DATA_HOME or in ~/.local/share]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,

    /// Size of a new disk, with a unit such as 500M or 10G [default: 10G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,

    /// Unix socket of the NBD server, the default front end [default: nbd.socket in the data directory]
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath, conflicts_with = "vhost_user")]
    nbd: Option<PathBuf>,

    /// Serve virtual machines by vhost-user-blk at this Unix socket instead
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    vhost_user: Option<PathBuf>,

    /// Print a JSON object in a line for each change of state, instead of the status line
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> ExitCode {
    let result = Shutdown::on_signals()
        .map_err(Into::into)
        .and_then(|shutdown| supervise(options, &shutdown));
    match result {
        Ok(is_clean) => exit_code(is_clean),
        Err(error) => crate::conclude("up", &*error),
    }
}

/// Returns `true` if all processes have ended with status 0.
fn supervise(options: &Options, shutdown: &Shutdown) -> Result<bool> {
    let disk = Disk::of(options)?;
    disk.end_orphans()?;
    let mut parts = Parts {
        program: std::env::current_exe()?,
        cpus: allowed_cpus()?,
        disk,
        running: BTreeMap::new(),
        ports: BTreeMap::new(),
        service: Follow::default(),
    };
    let mut display = Display::new(options.json);
    let began = parts.start_all(shutdown);
    if began.is_ok() {
        while !shutdown.is_requested() {
            parts.restart_ended(&mut display);
            display.show(&parts.status());
            std::thread::sleep(TICK);
        }
    }
    let is_clean = parts.stop();
    display.end();
    began.map(|()| is_clean)
}

/// A directory with a disk, locked against other supervisors.
struct Disk {
    directory: PathBuf,
    block_count: u64,
    front_end: FrontEnd,
    _lock: File,
}

#[derive(Debug)]
enum FrontEnd {
    Nbd(PathBuf),
    VhostUser(PathBuf),
}

impl Disk {
    fn of(options: &Options) -> Result<Self> {
        let directory = match &options.data {
            Some(directory) => directory.clone(),
            None => default_directory()?,
        };
        let context = |error: std::io::Error| format!("{}: {error}", directory.display());
        let mut create = DirBuilder::new();
        create.recursive(true).mode(0o700);
        create.create(&directory).map_err(context)?;
        let directory = directory.canonicalize().map_err(context)?;
        create.create(directory.join("log")).map_err(context)?;
        let lock = File::create(directory.join("lock")).map_err(context)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => format!(
                "{}: expected a directory that no other `up` serves, found one in use; end the other one first",
                directory.display()
            ),
            TryLockError::Error(error) => context(error),
        })?;
        let socket = |socket: &PathBuf| std::path::absolute(socket);
        let front_end = match (&options.nbd, &options.vhost_user) {
            (_, Some(path)) => FrontEnd::VhostUser(socket(path)?),
            (Some(path), None) => FrontEnd::Nbd(socket(path)?),
            (None, None) => FrontEnd::Nbd(directory.join("nbd.socket")),
        };
        let wanted = options.size.map(|size| size / u64::from(BLOCK_SIZE));
        let block_count = match (block_count_of(&directory)?, wanted) {
            (Some(found), Some(wanted)) if found != wanted => {
                return Err(usage(format!(
                    "--size: expected {} bytes, the size of the disk in {}, got {}; leave the flag out",
                    found * u64::from(BLOCK_SIZE),
                    directory.display(),
                    wanted * u64::from(BLOCK_SIZE),
                )));
            }
            (Some(found), _) => found,
            (None, Some(0)) => return Err(usage("--size: expected at least 4096 bytes")),
            (None, wanted) => wanted.unwrap_or((10 << 30) / u64::from(BLOCK_SIZE)),
        };
        Ok(Self {
            directory,
            block_count,
            front_end,
            _lock: lock,
        })
    }

    fn file(&self, target: Target) -> PathBuf {
        file_of(&self.directory, target)
    }

    /// Name of the Comch channel: of this directory only, because all services of a user share a runtime directory.
    fn channel(&self) -> String {
        let id = derived(&[self.directory.as_os_str().as_encoded_bytes()]);
        format!("up-{:016x}", (id >> 64) as u64)
    }

    fn size(&self) -> u64 {
        self.block_count * u64::from(BLOCK_SIZE)
    }

    fn processes(&self) -> PathBuf {
        self.directory.join("processes.json")
    }

    /// Ends processes of a supervisor that was killed: they serve the same files.
    fn end_orphans(&self) -> Result<()> {
        let Ok(text) = fs::read_to_string(self.processes()) else {
            return Ok(());
        };
        let recorded: Vec<Recorded> = serde_json::from_str(&text).unwrap_or_default();
        let is_alive = |it: &Recorded| started_at(it.process) == Some(it.started);
        for orphan in recorded.iter().rev().filter(|it| is_alive(it)) {
            errln!(
                "ending process {}, which an earlier `up` has left",
                orphan.process
            );
            if let Some(id) = i32::try_from(orphan.process).ok().and_then(Pid::from_raw) {
                let _ = kill_process(id, Signal::TERM);
            }
            let deadline = Instant::now() + END;
            while is_alive(orphan) && Instant::now() < deadline {
                std::thread::sleep(TICK);
            }
        }
        fs::remove_file(self.processes())?;
        Ok(())
    }
}

/// A process, by its identifier and the time at which it was started, in clock ticks since the machine's start.
#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    process: u32,
    started: u64,
}

/// Field 22 of `/proc/PID/stat`; `None` if there is no such process, or it has ended.
fn started_at(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    (state != "Z")
        .then(|| fields.nth(18)?.parse().ok())
        .flatten()
}

fn file_of(directory: &Path, target: Target) -> PathBuf {
    directory.join(format!("{}.blocks", target.name()))
}

/// Number of blocks of the disk in a directory; `None` if there is none yet.
fn block_count_of(directory: &Path) -> Result<Option<u64>> {
    for target in Target::ALL {
        let file = file_of(directory, target);
        if file.exists() {
            match OfflineFile::open(&file) {
                Ok(file) => return Ok(Some(file.header().geometry.block_count.into())),
                // The others may be intact.
                Err(error) => errln!("{error}"),
            }
        }
    }
    Ok(None)
}

fn default_directory() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let data = set("XDG_DATA_HOME").map(PathBuf::from);
    let data = data.or_else(|| set("HOME").map(|home| Path::new(&home).join(".local/share")));
    data.map(|data| data.join("doca-storage")).ok_or_else(|| {
        usage("--data: expected a directory, because neither XDG_DATA_HOME nor HOME is set")
    })
}

// Processes.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Target(usize),
    Service,
    FrontEnd,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Target(0),
        Self::Target(1),
        Self::Target(2),
        Self::Service,
        Self::FrontEnd,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Target(number) => Target::ALL[number].name(),
            Self::Service => "service",
            Self::FrontEnd => "front end",
        }
    }

    /// Name of its log.
    fn log(self) -> &'static str {
        match self {
            Self::FrontEnd => "front-end",
            other => other.name(),
        }
    }
}

/// A process, or the time at which it is started again.
struct Running {
    state: State,
    pause: Duration,
    since: Instant,
}

enum State {
    Runs(Process),
    Rests(Instant),
}

struct Parts {
    program: PathBuf,
    cpus: Vec<usize>,
    disk: Disk,
    running: BTreeMap<Part, Running>,
    /// Ports of the targets, by number.
    ports: BTreeMap<usize, u16>,
    service: Follow,
}

impl Parts {
    /// Starts all processes, each when those that it needs are ready.
    fn start_all(&mut self, shutdown: &Shutdown) -> Result<()> {
        for part in Part::ALL {
            let process = self.spawn(part)?;
            let ready = wait_until_ready(&process, part, shutdown);
            if let (Part::Target(number), Some(Some(port))) = (part, ready) {
                self.ports.insert(number, port);
            }
            let failed = ready.is_none() && !shutdown.is_requested();
            let lines = process.lines();
            let last = lines[lines.len().saturating_sub(REPORTED_LINES)..].join("\n  ");
            self.insert(part, process);
            if failed {
                return Err(format!(
                    "{} is not ready within {READY:?}, see {}; its last lines:\n  {last}",
                    part.name(),
                    self.log(part).display()
                )
                .into());
            }
            if shutdown.is_requested() {
                break;
            }
        }
        Ok(())
    }

    fn insert(&mut self, part: Part, process: Process) {
        let pause = self.running.get(&part).map_or(FIRST_PAUSE, |it| it.pause);
        let running = Running {
            state: State::Runs(process),
            pause,
            since: Instant::now(),
        };
        self.running.insert(part, running);
        self.record();
    }

    /// Records the processes for a supervisor that comes after this one was killed.
    fn record(&self) {
        let recorded = self.running.values().filter_map(|it| match &it.state {
            State::Runs(process) => Some(Recorded {
                process: process.id(),
                started: started_at(process.id())?,
            }),
            State::Rests(_) => None,
        });
        let recorded: Vec<Recorded> = recorded.collect();
        if let Ok(text) = serde_json::to_string(&recorded)
            && let Err(error) = fs::write(self.disk.processes(), text)
        {
            errln!("{}: {error}", self.disk.processes().display());
        }
    }

    fn log(&self, part: Part) -> PathBuf {
        self.disk.directory.join(format!("log/{}.log", part.log()))
    }

    fn spawn(&mut self, part: Part) -> Result<Process> {
        let log = self.log(part);
        if part == Part::Service {
            self.service = Follow::new(log.clone());
        }
        let log = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = self.command(part)?;
        // Ctrl-C at a terminal is for the supervisor, which ends the others in order.
        command.process_group(0);
        Ok(Process::spawn_logged(part.name(), command, log)?)
    }

    fn command(&self, part: Part) -> Result<Command> {
        let mut command = Command::new(&self.program);
        let cpu = |index: usize| self.cpus[index % self.cpus.len()].to_string();
        let channel = self.disk.channel();
        match part {
            Part::Target(number) => {
                let port = self.ports.get(&number).copied().unwrap_or(0);
                let geometry = Geometry::for_logical(BLOCK_SIZE).ok_or("no geometry")?;
                command
                    .args(["target", "-d", HOST_DEVICE, "--cpu", &cpu(number + 1)])
                    .args([
                        "--listen-address",
                        "127.0.0.1",
                        "--listen-port",
                        &port.to_string(),
                    ])
                    .args(["--block-size", &geometry.half_block_size().to_string()])
                    .args(["--block-count", &self.disk.block_count.to_string()])
                    .args(["--sessions", "forever", "--backing-file"])
                    .arg(self.disk.file(Target::ALL[number]));
            }
            Part::Service => {
                command
                    .args([
                        "gga-offload",
                        "-d",
                        DPU_DEVICE,
                        "-r",
                        HOST_DEVICE,
                        "--cpu",
                        &cpu(0),
                    ])
                    .args(["--command-channel-name", &channel, "--sessions", "forever"])
                    .args(["--logical-block-size", &BLOCK_SIZE.to_string()]);
                for (flag, port) in ["--data-1-storage", "--data-2-storage", "--data-p-storage"]
                    .iter()
                    .zip(self.ports.values())
                {
                    command.args([*flag, &format!("127.0.0.1:{port}")]);
                }
            }
            Part::FrontEnd => {
                let (name, socket) = match &self.disk.front_end {
                    FrontEnd::Nbd(socket) => ("nbd", socket),
                    FrontEnd::VhostUser(socket) => ("vhost-user-blk", socket),
                };
                command
                    .args([name, "-d", HOST_DEVICE, "--cpu", &cpu(0)])
                    .args(["--command-channel-name", &channel, "--socket"])
                    .arg(socket);
            }
        }
        // What says that a process is ready is in its log then, too.
        command.args(["--output", "json"]);
        Ok(command)
    }

    /// Starts processes again that have ended.
    fn restart_ended(&mut self, display: &mut Display) {
        for part in Part::ALL {
            let Some(running) = self.running.get_mut(&part) else {
                continue;
            };
            match &mut running.state {
                State::Runs(process) => {
                    if let Some(status) = process.status() {
                        if running.since.elapsed() > STABLE {
                            running.pause = FIRST_PAUSE;
                        }
                        let pause = running.pause;
                        running.state = State::Rests(Instant::now() + pause);
                        running.pause = (pause * 2).min(LONGEST_PAUSE);
                        display.ended(part, status, pause, &self.log(part));
                    } else if running.since.elapsed() > STABLE {
                        running.pause = FIRST_PAUSE;
                    }
                }
                State::Rests(until) if *until <= Instant::now() => match self.spawn(part) {
                    Ok(process) => self.insert(part, process),
                    Err(error) => {
                        errln!("{}: {error}", part.name());
                        if let Some(running) = self.running.get_mut(&part) {
                            running.state = State::Rests(Instant::now() + running.pause);
                        }
                    }
                },
                State::Rests(_) => {}
            }
        }
    }

    fn status(&mut self) -> Status {
        self.service.read();
        let redundancy = &self.service.redundancy;
        let targets = [0, 1, 2].map(|number| {
            let runs = matches!(
                self.running.get(&Part::Target(number)),
                Some(Running {
                    state: State::Runs(_),
                    ..
                })
            );
            let state = match () {
                () if !runs || redundancy.is_offline(number) => "offline",
                () if redundancy.lacks(number) => "rebuilding",
                () => "ok",
            };
            (Target::ALL[number].name(), state)
        });
        let is_lost = targets.iter().any(|(_, state)| *state == "offline");
        let state = match () {
            () if !redundancy.is_known() => "starting",
            () if redundancy.is_complete() && !is_lost => "healthy",
            () if is_lost => "degraded",
            () => "rebuilding",
        };
        Status {
            state,
            targets: targets.into(),
            disk: self.disk.front_end.to_string(),
            bytes: self.disk.size(),
        }
    }

    /// Ends all processes, clients first. Returns `true` if all have ended with status 0.
    fn stop(&mut self) -> bool {
        let mut is_clean = true;
        for part in Part::ALL.into_iter().rev() {
            let Some(Running {
                state: State::Runs(mut process),
                ..
            }) = self.running.remove(&part)
            else {
                continue;
            };
            process.signal(Signal::TERM);
            let status = process.wait(Instant::now() + END);
            // Sessions of a target that a service has left unclean, or that were interrupted, are part of its exit status.
            let is_expected =
                |status: ExitStatus| status.success() || matches!(part, Part::Target(_));
            if !status.is_some_and(is_expected) {
                is_clean = false;
                match status {
                    Some(status) => errln!(
                        "{}: {status}, see {}",
                        part.name(),
                        self.log(part).display()
                    ),
                    None => errln!(
                        "{}: not ended within {END:?} after SIGTERM: killed",
                        part.name()
                    ),
                }
            }
        }
        let _ = fs::remove_file(self.disk.processes());
        is_clean
    }
}

/// Waits until a process is ready; returns the port of a target. `None` if it is not in time, or if the supervisor is to end.
fn wait_until_ready(process: &Process, part: Part, shutdown: &Shutdown) -> Option<Option<u16>> {
    let deadline = Instant::now() + READY;
    while Instant::now() < deadline && !shutdown.is_requested() {
        let found = process.find_line(0, TICK, |line| match part {
            Part::Target(_) => listening_port(line).map(Some),
            Part::Service => waits_for_initiator(line).map(|()| None),
            Part::FrontEnd => line.starts_with("Serving ").then_some(None),
        });
        if found.is_some() || process.has_ended() {
            return found;
        }
    }
    None
}

impl fmt::Display for FrontEnd {
    /// Where clients find the disk.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nbd(socket) => write!(f, "nbd+unix:///?socket={}", socket.display()),
            Self::VhostUser(socket) => write!(f, "vhost-user-blk at {}", socket.display()),
        }
    }
}

/// Follows the log of the service.
#[derive(Default)]
struct Follow {
    log: PathBuf,
    /// Number of bytes read so far: whole lines.
    at: u64,
    redundancy: Redundancy,
}

impl Follow {
    fn new(log: PathBuf) -> Self {
        Self {
            log,
            ..Self::default()
        }
    }

    fn read(&mut self) {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.at))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let Ok(bytes) = read() else { return };
        let whole = bytes
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        self.at += whole as u64;
        let names = Target::ALL.map(Target::name);
        self.redundancy
            .follow(&String::from_utf8_lossy(&bytes[..whole]), &names);
    }
}

// Output.

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Status {
    /// starting, healthy, degraded or rebuilding.
    state: &'static str,
    /// By target: ok, offline or rebuilding.
    targets: BTreeMap<&'static str, &'static str>,
    /// Address of the disk.
    disk: String,
    /// Its size.
    bytes: u64,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = indicatif::BinaryBytes(self.bytes);
        write!(f, "{}: {size}, {}", self.disk, self.state)?;
        let wrong = self.targets.iter().filter(|(_, state)| **state != "ok");
        wrong
            .into_iter()
            .try_for_each(|(name, state)| write!(f, ", {name} {state}"))
    }
}

struct Display {
    is_json: bool,
    is_terminal: bool,
    shown: Option<Status>,
}

impl Display {
    fn new(is_json: bool) -> Self {
        Self {
            is_json,
            is_terminal: std::io::stderr().is_terminal() && !is_json,
            shown: None,
        }
    }

    fn show(&mut self, status: &Status) {
        if self.shown.as_ref() == Some(status) {
            return;
        }
        match (self.is_json, self.is_terminal) {
            (true, _) => {
                if let Ok(text) = serde_json::to_string(status) {
                    role_common::outln!("{text}");
                }
            }
            (false, true) => role_common::console::print_error(format_args!("\r\u{1b}[K{status}")),
            (false, false) => errln!("{status}"),
        }
        self.shown = Some(status.clone());
    }

    fn ended(&mut self, part: Part, status: ExitStatus, pause: Duration, log: &Path) {
        self.end();
        errln!(
            "{} has ended ({status}), see {}; started again in {pause:?}",
            part.name(),
            log.display()
        );
        self.shown = None;
    }

    /// Ends the status line.
    fn end(&mut self) {
        if self.is_terminal && self.shown.take().is_some() {
            errln!("");
        }
    }
}
