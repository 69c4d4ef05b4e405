//! `doca-storage up`: a redundant disk on this machine, from one command: three targets with backing files, a gga_offload service and a front
//! end, which are supervised until a signal ends them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{IsTerminal as _, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use control::network::HostPort;
use control::shutdown::Shutdown;
use control::verifier::derived;
use deployment::implementation::Layout;
use deployment::log::{listening_port, waits_for_initiator};
use deployment::process::{Process, Signal};
use deployment::sandbox::{DPU_DEVICE, HOST_DEVICE};
use deployment::{Part, Redundancy, allowed_cpus};
use role_common::flags::size;
use role_common::{errln, outln, signals};
use role_target::offline::OfflineFile;
use rustix::process::{Pid, kill_process};
use serde::{Deserialize, Serialize};

use crate::{Result, exit_code, usage};

mod units;

const EXAMPLES: &str = "\
Examples:
  10 GiB, over NBD at a socket below ~/.local/share/doca-storage:
    doca-storage up
  Another place, size and socket:
    doca-storage up --data /srv/disk --size 100G --nbd /run/disk.socket
  Only the command lines, for scripts and units of one's own:
    doca-storage up --data /srv/disk --size 100G --dry-run
  Units for systemd, to be started with systemctl start disk.target:
    doca-storage up --data /srv/disk --size 100G --systemd /etc/systemd/system
  For a virtual machine:
    doca-storage up --data /srv/disk --vhost-user /run/disk.socket
  Over targets of 10 GiB on other machines, each started there with
  doca-storage target -d 3b:00.0 --cpu 0 --listen-port 12345 --block-size 2112
    --block-count 2621440 --backing-file FILE --sessions forever:
    doca-storage up --targets storage1:12345,storage2:12345,storage3:12345

The data directory has a backing file for each target (data_1.blocks, data_2.blocks, data_p.blocks), each half as large as the disk, and a log of each
process in log/. With --targets it has logs and the socket only. Started again with the same directory, it serves the same disk. Any one of the files may be lost: the target is rebuilt.
A process that ends is started again, after 0.5 to 10 s. SIGINT or SIGTERM ends all of them in order; the exit status is 1 if one of them fails then.";

const LAYOUT: Layout = Layout::Gga;
/// Number of targets.
const TARGETS: usize = LAYOUT.targets().len();
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

    /// Targets on other machines instead of ones that are started here, in the order data_1, data_2, data_p
    #[arg(
        long,
        value_name = "HOST:PORT,HOST:PORT,HOST:PORT",
        value_delimiter = ',',
        conflicts_with = "size"
    )]
    targets: Vec<HostPort>,

    /// Unix socket of the NBD server, the default front end [default: nbd.socket in the data directory]
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath, conflicts_with = "vhost_user")]
    nbd: Option<PathBuf>,

    /// Serve virtual machines by vhost-user-blk at this Unix socket instead
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    vhost_user: Option<PathBuf>,

    /// Print the command lines instead of starting them
    #[arg(long, conflicts_with = "json")]
    dry_run: bool,

    /// Write units for systemd into this directory instead of starting anything: a service for each process, and a target with all of them
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["json", "dry_run"])]
    systemd: Option<PathBuf>,

    /// Print a JSON object in a line for each change of state, instead of the status line
    #[arg(long)]
    json: bool,
}

impl Options {
    /// `false` if the commands are only shown, or written.
    fn starts(&self) -> bool {
        !self.dry_run && self.systemd.is_none()
    }
}

pub fn run(options: &Options) -> ExitCode {
    let result = signals::shutdown()
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
    let mut parts = Parts {
        program: std::env::current_exe()?,
        cpus: allowed_cpus()?,
        disk,
        running: BTreeMap::new(),
        ports: BTreeMap::new(),
        address: String::new(),
        bytes: 0,
        service: Follow::default(),
    };
    if !options.starts() {
        parts.reserve_ports()?;
        match &options.systemd {
            Some(directory) => parts.write_units(directory)?,
            None => parts.print_commands(),
        }
        return Ok(true);
    }
    parts.disk.end_orphans()?;
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
    targets: Targets,
    front_end: FrontEnd,
    /// `None` if nothing is started.
    _lock: Option<File>,
}

#[derive(Debug)]
enum Targets {
    /// Started here, with this number of blocks.
    Local { block_count: u64 },
    /// On other machines.
    Remote([HostPort; TARGETS]),
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
        let (directory, lock) = if options.dry_run {
            // Nothing is created. The name of the channel results from the canonical path.
            let path = directory.canonicalize();
            (path.or_else(|_| std::path::absolute(&directory))?, None)
        } else {
            let mut create = DirBuilder::new();
            create.recursive(true).mode(0o700);
            create.create(&directory).map_err(context)?;
            let path = directory.canonicalize().map_err(context)?;
            create.create(path.join("log")).map_err(context)?;
            let lock = options.starts().then(|| lock(&path)).transpose()?;
            (path, lock)
        };
        let socket = |socket: &PathBuf| std::path::absolute(socket);
        let front_end = match (&options.nbd, &options.vhost_user) {
            (_, Some(path)) => FrontEnd::VhostUser(socket(path)?),
            (Some(path), None) => FrontEnd::Nbd(socket(path)?),
            (None, None) => FrontEnd::Nbd(directory.join("nbd.socket")),
        };
        let targets = match &options.targets[..] {
            [] => Targets::Local {
                block_count: local_block_count(&directory, options.size)?,
            },
            addresses => Targets::Remote(addresses.to_vec().try_into().map_err(
                |found: Vec<HostPort>| {
                    usage(format!(
                        "--targets: expected {TARGETS} addresses, got {}",
                        found.len()
                    ))
                },
            )?),
        };
        Ok(Self {
            directory,
            targets,
            front_end,
            _lock: lock,
        })
    }

    /// Name of the Comch channel: of this directory only, because all services of a user share a runtime directory.
    fn channel(&self) -> String {
        let id = derived(&[self.directory.as_os_str().as_encoded_bytes()]);
        format!("up-{:016x}", (id >> 64) as u64)
    }

    /// Processes, in the order in which they are started: each after those that it needs.
    fn parts(&self) -> impl DoubleEndedIterator<Item = Part> + use<> {
        let local = match self.targets {
            Targets::Local { .. } => TARGETS,
            Targets::Remote(_) => 0,
        };
        let targets = (0..local).map(Part::Target);
        targets.chain([Part::Service, Part::FrontEnd])
    }

    fn processes(&self) -> PathBuf {
        self.directory.join("processes.json")
    }

    /// Stops processes of a supervisor that was killed, because they serve the same files.
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

/// Locks the directory against other supervisors.
fn lock(directory: &Path) -> Result<File> {
    let context = |error: std::io::Error| format!("{}: {error}", directory.display());
    let lock = File::create(directory.join("lock")).map_err(context)?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => format!(
            "{}: expected a directory that no other `up` serves, found one in use; end the other one first",
            directory.display()
        ),
        TryLockError::Error(error) => context(error),
    })?;
    Ok(lock)
}

/// A process, by its identifier and the time at which it was started, in clock ticks since the machine's start.
#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    process: u32,
    started: u64,
}

/// Field 22 of `/proc/PID/stat`; `None` if the process does not exist, or has exited.
fn started_at(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    (state != "Z")
        .then(|| fields.nth(18)?.parse().ok())
        .flatten()
}

fn file_of(directory: &Path, target: usize) -> PathBuf {
    directory.join(format!("{}.blocks", LAYOUT.targets()[target]))
}

/// Number of blocks of the disk in a directory; `None` if there is none yet.
fn block_count_of(directory: &Path) -> Result<Option<u64>> {
    for target in 0..TARGETS {
        let file = file_of(directory, target);
        if file.exists() {
            match OfflineFile::open(&file) {
                Ok(file) => return Ok(Some(file.header().geometry.block_count.into())),
                // The other targets may be intact.
                Err(error) => errln!("{error}"),
            }
        }
    }
    Ok(None)
}

/// Number of blocks of a disk with local targets; `size` is that of the flag, in bytes.
fn local_block_count(directory: &Path, size: Option<u64>) -> Result<u64> {
    let wanted = size.map(|size| size / u64::from(BLOCK_SIZE));
    match (block_count_of(directory)?, wanted) {
        (Some(found), Some(wanted)) if found != wanted => Err(usage(format!(
            "--size: expected {} bytes, the size of the disk in {}, got {}; leave the flag out",
            found * u64::from(BLOCK_SIZE),
            directory.display(),
            wanted * u64::from(BLOCK_SIZE),
        ))),
        (Some(found), _) => Ok(found),
        (None, Some(0)) => Err(usage("--size: expected at least 4096 bytes")),
        (None, wanted) => Ok(wanted.unwrap_or((10 << 30) / u64::from(BLOCK_SIZE))),
    }
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

fn name(part: Part) -> &'static str {
    part.name(LAYOUT)
}

/// Name of a part in the names of files.
fn file_stem(part: Part) -> String {
    name(part).replace(' ', "-")
}

/// A process, or the time at which it is restarted.
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
    /// Address of the disk for clients, once the front end is ready.
    address: String,
    /// Size of the disk, once the front end is ready.
    bytes: u64,
    service: Follow,
}

impl Parts {
    /// Starts all processes, each as soon as the processes that it needs are ready.
    fn start_all(&mut self, shutdown: &Shutdown) -> Result<()> {
        for part in self.disk.parts() {
            let process = self.spawn(part)?;
            let ready = match part {
                Part::Target(number) => wait_for(&process, shutdown, listening_port).map(|port| {
                    self.ports.insert(number, port);
                }),
                Part::Service => wait_for(&process, shutdown, waits_for_initiator),
                // An initiator is never started here.
                Part::FrontEnd | Part::Initiator => {
                    let served = |line: &str| self.disk.front_end.served(line);
                    let served = wait_for(&process, shutdown, served);
                    served.map(|served| (self.bytes, self.address) = served)
                }
            };
            let lines = process.lines();
            let state = match process.exit_status() {
                Some(status) => format!("has ended ({status})"),
                None => format!("is not ready within {READY:?}"),
            };
            self.insert(part, process);
            if shutdown.is_requested() {
                break;
            }
            if ready.is_none() {
                let last = lines[lines.len().saturating_sub(REPORTED_LINES)..].join("\n  ");
                let (name, log) = (name(part), self.log(part));
                let text = format!(
                    "{name} {state}, see {}; its last lines:\n  {last}",
                    log.display()
                );
                return Err(text.into());
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

    /// Records the processes, so that a later supervisor can stop them if this one is killed.
    fn record(&self) {
        let recorded = self.disk.parts().filter_map(|part| {
            let process = self.process(part)?.id();
            let started = started_at(process)?;
            Some(Recorded { process, started })
        });
        let recorded: Vec<Recorded> = recorded.collect();
        if let Ok(text) = serde_json::to_string(&recorded)
            && let Err(error) = fs::write(self.disk.processes(), text)
        {
            errln!("{}: {error}", self.disk.processes().display());
        }
    }

    /// The process of a part; `None` while it waits to be restarted.
    fn process(&self, part: Part) -> Option<&Process> {
        match &self.running.get(&part)?.state {
            State::Runs(process) => Some(process),
            State::Rests(_) => None,
        }
    }

    fn log(&self, part: Part) -> PathBuf {
        let name = file_stem(part);
        self.disk.directory.join(format!("log/{name}.log"))
    }

    fn spawn(&mut self, part: Part) -> Result<Process> {
        let path = self.log(part);
        let context = |error: std::io::Error| format!("{}: {error}", path.display());
        let log = File::create(&path).map_err(context)?;
        if part == Part::Service {
            self.service = Follow {
                log: Some(File::open(&path).map_err(context)?),
                ..Follow::default()
            };
        }
        let mut command = self.command(part);
        // Ctrl-C at a terminal is sent only to the supervisor, which stops the processes in order.
        command.process_group(0);
        Ok(Process::spawn_logged(name(part), command, log)?)
    }

    fn command(&self, part: Part) -> Command {
        let mut command = Command::new(&self.program);
        let cpu = |index: usize| self.cpus[index % self.cpus.len()].to_string();
        let channel = self.disk.channel();
        let block_count = match self.disk.targets {
            Targets::Local { block_count } => block_count,
            // Remote targets are not started here.
            Targets::Remote(_) => 0,
        };
        match part {
            Part::Target(number) => {
                let port = self.ports.get(&number).copied().unwrap_or(0);
                let block_size = LAYOUT.chunk_size(BLOCK_SIZE as usize);
                command
                    .args(["target", "-d", HOST_DEVICE, "--cpu", &cpu(number + 1)])
                    .args(["--listen-address", "127.0.0.1"])
                    .args(["--listen-port", &port.to_string()])
                    .args(["--block-size", &block_size.to_string()])
                    .args(["--block-count", &block_count.to_string()])
                    .args(["--sessions", "forever", "--backing-file"])
                    .arg(file_of(&self.disk.directory, number));
            }
            Part::Service => {
                command
                    .args(["gga-offload", "-d", DPU_DEVICE, "-r", HOST_DEVICE])
                    .args(["--cpu", &cpu(0), "--sessions", "forever"])
                    .args(["--command-channel-name", &channel])
                    .args(["--logical-block-size", &BLOCK_SIZE.to_string()]);
                let addresses: Vec<String> = match &self.disk.targets {
                    Targets::Local { .. } => {
                        let ports = self.ports.values();
                        ports.map(|port| format!("127.0.0.1:{port}")).collect()
                    }
                    Targets::Remote(addresses) => {
                        addresses.iter().map(HostPort::to_string).collect()
                    }
                };
                for (flag, address) in LAYOUT.storage_flags().iter().zip(&addresses) {
                    command.args([*flag, address]);
                }
            }
            Part::FrontEnd | Part::Initiator => {
                let (role, socket) = match &self.disk.front_end {
                    FrontEnd::Nbd(socket) => ("nbd", socket),
                    FrontEnd::VhostUser(socket) => ("vhost-user-blk", socket),
                };
                command
                    .args([role, "-d", HOST_DEVICE, "--cpu", &cpu(0)])
                    .args(["--command-channel-name", &channel, "--socket"])
                    .arg(socket);
            }
        }
        // Announcements, such as the port of a target, are then written to standard error, which is logged.
        command.args(["--output", "json"]);
        command
    }

    /// Chooses ports for the targets that are free now.
    fn reserve_ports(&mut self) -> Result<()> {
        let is_target = |part: &Part| matches!(part, Part::Target(_));
        let local = self.disk.parts().filter(is_target).count();
        let sockets: Vec<TcpListener> = (0..local)
            .map(|_| TcpListener::bind("127.0.0.1:0"))
            .collect::<Result<_, _>>()?;
        for (number, socket) in sockets.iter().enumerate() {
            self.ports.insert(number, socket.local_addr()?.port());
        }
        Ok(())
    }

    /// Prints the commands in the order in which they have to be started, each when the one before is ready.
    fn print_commands(&self) {
        for part in self.disk.parts() {
            outln!("# {}", name(part));
            outln!("{}", table::shell_line(&self.command(part)));
        }
    }

    /// Writes a unit for each process, and one that starts all of them, named after the data directory.
    fn write_units(&self, directory: &Path) -> Result<()> {
        let disk = &self.disk.directory;
        let prefix = disk.file_name().unwrap_or_default().to_string_lossy();
        let prefix = prefix.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let unit = |part: Part| format!("{prefix}-{}.service", file_stem(part));
        let write = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        let target = format!("{prefix}.target");
        let mut before: Vec<String> = Vec::new();
        for part in self.disk.parts() {
            let text = units::service(
                &format!("{} of the disk in {}", name(part), disk.display()),
                &before,
                &target,
                disk,
                &self.command(part),
            );
            write(&unit(part), text)?;
            before.push(unit(part));
        }
        let text = units::target(&format!("The disk in {}", disk.display()), &before);
        write(&target, text)?;
        outln!(
            "{} units in {}; {target} starts and stops all of them",
            before.len() + 1,
            directory.display()
        );
        Ok(())
    }

    /// Starts processes again that have ended.
    fn restart_ended(&mut self, display: &mut Display) {
        for part in self.disk.parts() {
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
                    }
                }
                State::Rests(until) if *until <= Instant::now() => match self.spawn(part) {
                    Ok(process) => self.insert(part, process),
                    Err(error) => {
                        errln!("{}: {error}", name(part));
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
        let names = LAYOUT.targets().iter().enumerate();
        let targets: BTreeMap<_, _> = names
            .map(|(number, &name)| {
                let is_local = matches!(self.disk.targets, Targets::Local { .. });
                let runs = !is_local || self.process(Part::Target(number)).is_some();
                let state = if !runs || redundancy.is_offline(number) {
                    OFFLINE
                } else if redundancy.lacks(number) {
                    "rebuilding"
                } else {
                    "ok"
                };
                (name, state)
            })
            .collect();
        let is_lost = targets.values().any(|&state| state == OFFLINE);
        let state = if !redundancy.is_known() {
            "starting"
        } else if is_lost {
            "degraded"
        } else if redundancy.is_complete() {
            "healthy"
        } else {
            "rebuilding"
        };
        Status {
            state,
            targets,
            disk: self.address.clone(),
            bytes: self.bytes,
        }
    }

    /// Ends all processes, clients first. Returns `true` if all have ended with status 0.
    fn stop(&mut self) -> bool {
        let mut is_clean = true;
        for part in self.disk.parts().rev() {
            let Some(Running {
                state: State::Runs(mut process),
                ..
            }) = self.running.remove(&part)
            else {
                continue;
            };
            process.signal(Signal::TERM);
            let status = process.wait(Instant::now() + END);
            if !status.is_some_and(|status| status.success()) {
                is_clean = false;
                match status {
                    Some(status) => {
                        errln!("{}: {status}, see {}", name(part), self.log(part).display())
                    }
                    None => errln!(
                        "{}: not ended within {END:?} after SIGTERM: killed",
                        name(part)
                    ),
                }
            }
        }
        let _ = fs::remove_file(self.disk.processes());
        is_clean
    }
}

/// Waits until a process has logged a line for which `parse` returns a value; `None` on a timeout, if the process has
/// exited, or if a shutdown was requested.
fn wait_for<T>(
    process: &Process,
    shutdown: &Shutdown,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let deadline = Instant::now() + READY;
    while Instant::now() < deadline && !shutdown.is_requested() {
        let found = process.find_line(0, TICK, &parse);
        if found.is_some() || process.has_ended() {
            return found;
        }
    }
    None
}

impl FrontEnd {
    /// Size of the disk and its address for clients, if this line announces that it is served.
    fn served(&self, line: &str) -> Option<(u64, String)> {
        let mut words = line.strip_prefix("Serving ")?.split(' ');
        let (size, last) = (words.next()?.parse().ok()?, words.next_back()?);
        let address = match self {
            Self::Nbd(_) => last.to_owned(),
            Self::VhostUser(socket) => format!("vhost-user-blk at {}", socket.display()),
        };
        Some((size, address))
    }
}

/// Follows the log of the service.
#[derive(Default)]
struct Follow {
    log: Option<File>,
    /// The beginning of a line.
    unread: Vec<u8>,
    redundancy: Redundancy,
}

impl Follow {
    fn read(&mut self) {
        let Some(log) = &mut self.log else { return };
        // After a read error, the state is taken from the lines read so far.
        let _ = log.read_to_end(&mut self.unread);
        let end = self.unread.iter().rposition(|&byte| byte == b'\n');
        let lines: Vec<u8> = self.unread.drain(..end.map_or(0, |at| at + 1)).collect();
        self.redundancy
            .follow(&String::from_utf8_lossy(&lines), LAYOUT.targets());
    }
}

// Output.

/// State of a target whose process is not running, or without which the service continues.
const OFFLINE: &str = "offline";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Status {
    /// starting, healthy, degraded or rebuilding.
    state: &'static str,
    /// By target: ok, offline or rebuilding.
    targets: BTreeMap<&'static str, &'static str>,
    /// Address of the disk.
    disk: String,
    /// Size of the disk in bytes.
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
                    outln!("{text}");
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
            name(part),
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
