//! Processes of one session.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ::deployment::log::{listening_port, waits_for_initiator};
use ::deployment::network::Network;
use ::deployment::port::Port;
use ::deployment::process::{Failure, Process};
use ::deployment::sandbox::{DPU_DEVICE, HOST_DEVICE};
use role_common::shutdown::Shutdown;
use serde_json::Value;

use super::Error;
use super::plan::{Content, Layout, Plain, Plan, Run, Storage};

/// Time for a role to become ready.
const READY: Duration = Duration::from_secs(20);
/// Timeout of a session.
const SESSION: Duration = Duration::from_secs(300);
/// Time for service and targets to exit after the initiator.
const EXIT_TIMEOUT: Duration = Duration::from_secs(15);

/// Reports of the roles of one session.
#[derive(Debug)]
pub struct Session {
    pub initiator: Value,
    pub service: Value,
    pub targets: Vec<Value>,
}

/// Runs sessions in a private runtime directory.
pub struct Deployment<'a> {
    program: PathBuf,
    plan: &'a Plan,
    files: Files,
    runtime: PathBuf,
    /// Simulated machines that the roles run on; `None` to run all of them on this one.
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

    /// Returns `true` if a shutdown was requested.
    pub fn interrupted(&self) -> bool {
        self.shutdown.is_requested()
    }

    /// Runs one session. The reference's roles serve one session, so each run has its own processes.
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
            // After a failure, the other documents are not used.
            ended.unwrap_or_else(|failure| {
                failures.push(failure);
                Value::Null
            })
        };
        let initiator = finish("initiator", initiator, deadline);
        let farewell = Instant::now() + EXIT_TIMEOUT;
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

    /// Creates the input files of this session's roles unless they exist.
    fn make_files(&self, run: &Run) -> Result<(), Failure> {
        if run.plain == Plain::Noise {
            self.files.make_noise().map_err(|error| Failure {
                role: "demo",
                what: error.to_string(),
                stderr: String::new(),
            })?;
        }
        match run.layout {
            Layout::Gga(gga) if gga.storage == Storage::Content => self.generate(run),
            _ => Ok(()),
        }
    }

    /// Creates the `.sbc` files with the generator unless they exist.
    fn generate(&self, run: &Run) -> Result<(), Failure> {
        let sbc = self.files.sbc();
        if sbc.iter().all(|path| path.exists()) {
            return Ok(());
        }
        let line = self.lines(run, true).generator(&sbc);
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
                // Nothing has created it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io(runtime.display().to_string())(error)),
            }
        }
        Ok(left)
    }

    /// Description of the roles and addresses of the machines, if there are several.
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

    /// Machine of target number `index`, if there are several.
    fn machine_of_target(&self, index: usize) -> Option<(&Network, usize)> {
        let network = self.network.as_ref()?;
        Some((network, 1 + index % (network.machines() - 1)))
    }

    /// Address for the service of target number `index`, which listens on `port`.
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

    /// CPU for role number `role` of a session with three roles.
    pub(super) fn cpu(&self, role: usize) -> usize {
        self.cpus.of(role, 3, 1).next().unwrap_or_default()
    }

    /// Command of a role on the machine of service and initiator.
    pub(super) fn command(&self, arguments: &[OsString]) -> Command {
        let command = self.plain_command(arguments);
        match &self.network {
            Some(network) => network.place(0, command),
            None => command,
        }
    }

    /// Command of target number `index` on its machine.
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

fn document(role: &'static str, stdout: &str) -> Result<Value, Failure> {
    serde_json::from_str(stdout).map_err(|error| Failure {
        role,
        what: format!("printed no JSON document ({error}) but {stdout:?}"),
        stderr: String::new(),
    })
}

// CPUs of the roles.

/// The CPUs that this process may use, distributed to the roles.
struct Cpus(Vec<usize>);

impl Cpus {
    /// CPUs of this process's affinity mask.
    fn allowed() -> Result<Self, Error> {
        let cpus = deployment::allowed_cpus().map_err(Error::io("ask for the allowed CPUs"))?;
        Ok(Self(cpus))
    }

    /// One CPU per worker of role number `role` in a session with `roles` roles. A pipeline with one worker per role
    /// uses as many CPUs as roles; with fewer CPUs, the last roles share.
    fn of(&self, role: usize, roles: usize, workers: u32) -> impl Iterator<Item = usize> + use<'_> {
        (0..workers as usize).map(move |worker| self.0[(worker * roles + role) % self.0.len()])
    }
}

// Input files of the roles.

/// Input files of a deployment. Files needed by some sessions only are created on demand.
#[derive(Debug)]
struct Files {
    /// File with the initial contents of the storage.
    content: PathBuf,
    directory: PathBuf,
    capacity: u64,
}

impl Files {
    fn new(content: &Content, directory: &Path) -> Self {
        Self {
            content: content.path.clone(),
            directory: directory.to_owned(),
            capacity: content.capacity,
        }
    }

    /// The `.sbc` files of the data: data_1, data_2 and data_p.
    fn sbc(&self) -> [PathBuf; 3] {
        ["data_1", "data_2", "data_p"].map(|name| self.directory.join(format!("{name}.sbc")))
    }

    /// Incompressible data of the storage's size.
    fn noise(&self) -> PathBuf {
        self.directory.join("noise.bin")
    }

    /// Writes [`noise`](Self::noise) unless it exists.
    fn make_noise(&self) -> Result<(), Error> {
        let path = self.noise();
        if path.exists() {
            return Ok(());
        }
        write_noise(&path, self.capacity).map_err(Error::io(format!("write {}", path.display())))
    }
}

/// Writes incompressible data, the same in every run.
fn write_noise(path: &Path, length: u64) -> std::io::Result<()> {
    const PART: u64 = 1 << 20;
    let mut file = std::fs::File::create(path)?;
    for part in 0..length.div_ceil(PART) {
        let len = PART.min(length - part * PART);
        file.write_all(&contents::noise(part, len as usize))?;
    }
    Ok(())
}

// A deployment that continues to run after the demo.

/// Instructions for a deployment that was left running.
pub struct Kept(String);

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Deployment<'_> {
    /// Starts the targets and the service of `run` and leaves them running. Their logs are written to `directory`,
    /// which must persist.
    pub fn keep(&self, run: &Run, directory: &Path) -> Result<Kept, Error> {
        let lines = self.lines(run, false);
        let names = run.layout.targets();
        // Ports are chosen here, so that the printed command lines match the running processes.
        let reserved: Vec<Port> = names
            .iter()
            .map(|_| Port::reserve())
            .collect::<Result<_, _>>()
            .map_err(Error::io("a free port"))?;
        let ports: Vec<u16> = reserved.iter().map(Port::number).collect();
        let mut started: Vec<(&str, Vec<OsString>)> = std::iter::zip(names, &ports)
            .enumerate()
            .map(|(index, (name, port))| (*name, lines.target(index, *port)))
            .collect();
        let storages: Vec<String> = std::iter::zip(0.., &ports)
            .map(|(index, port)| self.storage(index, *port))
            .collect();
        started.push(("service", lines.service(&storages)));
        let mut processes = Vec::new();
        for (name, line) in &started {
            processes.push(self.spawn_detached(name, line, directory)?.to_string());
        }
        // The service is stopped first: it would report an error if a target exited before it.
        processes.reverse();
        let running: Vec<String> = started
            .iter()
            .map(|(_, line)| self.shell_line(line))
            .collect();
        Ok(Kept(format!(
            "\nRunning (for one session, logs in {directory}):\n{running}\n\
             Start the initiator with:\n{initiator}\n\
             End without one: kill {processes}; afterwards: rm -r {quoted_directory}",
            directory = directory.display(),
            running = running.join("\n"),
            initiator = self.shell_line(&lines.initiator()),
            processes = processes.join(" "),
            quoted_directory = quoted(&directory.to_string_lossy()),
        )))
    }

    /// Starts a role that outlives this program; returns its process id.
    fn spawn_detached(
        &self,
        name: &str,
        arguments: &[OsString],
        directory: &Path,
    ) -> Result<u32, Error> {
        let log = std::fs::File::create(directory.join(format!("{name}.log")))
            .map_err(Error::io("a log file"))?;
        let errors = log.try_clone().map_err(Error::io("a log file"))?;
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        // In its own process group, so that Ctrl-C in this terminal does not stop it.
        command.process_group(0);
        let process = command
            .spawn()
            .map_err(Error::io(format!("start the {name}")))?;
        Ok(process.id())
    }

    /// Shell command that starts a role of this deployment.
    fn shell_line(&self, arguments: &[OsString]) -> String {
        let words = std::iter::once(self.program.as_os_str())
            .chain(arguments.iter().map(OsString::as_os_str));
        let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
        format!(
            "  SOFTDOCA_RUNTIME_DIR={} {}",
            quoted(&self.runtime.to_string_lossy()),
            words.join(" ")
        )
    }
}

// Command lines of the roles.

/// Timeout of an I/O: hundreds of MiB may be queued before it, to be compressed by an unoptimised build.
const IO_TIMEOUT_SECONDS: u32 = 60;
/// Timeout of a control operation, for a loaded machine.
const CONTROL_TIMEOUT_SECONDS: u32 = 20;

/// Arguments of `doca-storage` for the roles of one session.
struct CommandLines<'a> {
    plan: &'a Plan,
    files: &'a Files,
    cpus: &'a Cpus,
    run: &'a Run,
    /// `true` if the output is parsed by the demo, `false` if it is read by a person.
    json: bool,
}

impl CommandLines<'_> {
    /// Generator of the gga targets' `.sbc` files.
    fn generator(&self, sbc: &[PathBuf; 3]) -> Vec<OsString> {
        let [data_1, data_2, data_p] = sbc.each_ref().map(|path| path.as_os_str());
        self.line("sbc-generator")
            .with("--device", DPU_DEVICE)
            .with("--original-input-data", self.files.content.as_os_str())
            .with("--block-size", self.plan.block_size)
            .with("--matrix-type", self.plan.matrix_name())
            .with("--data-1", data_1)
            .with("--data-2", data_2)
            .with("--data-p", data_p)
            .0
    }

    /// Command line of target number `index`; port 0 lets it choose one.
    fn target(&self, index: usize, port: u16) -> Vec<OsString> {
        let line = self
            .line("target")
            .with("--device", HOST_DEVICE)
            .with("--listen-port", port);
        let sized = |line: Line, block_size: u32| {
            line.with("--block-count", self.plan.block_count)
                .with("--block-size", block_size)
        };
        let line = match self.run.layout {
            Layout::ZeroCopy => sized(line, self.plan.block_size)
                .with("--binary-content", self.files.content.as_os_str()),
            Layout::Gga(gga) => match gga.storage {
                Storage::Content => {
                    line.with("--binary-content", self.files.sbc()[index].as_os_str())
                }
                Storage::Empty => sized(line, gga.geometry.half_block_size()),
            },
        };
        let (_, first) = self.run.layout.cpu_order();
        self.cpus(line, first + index)
    }

    /// Command line of the service for targets at these addresses.
    fn service(&self, storages: &[String]) -> Vec<OsString> {
        let line = self
            .line(self.run.layout.service())
            .with("--device", DPU_DEVICE)
            .with("--representor", HOST_DEVICE)
            .with("--control-timeout", CONTROL_TIMEOUT_SECONDS);
        let mut line = std::iter::zip(self.run.layout.storage_flags(), storages)
            .fold(line, |line, (flag, storage)| {
                line.with(flag, storage.as_str())
            });
        if let Layout::Gga(gga) = self.run.layout {
            line = line
                .with("--matrix-type", self.plan.matrix_name())
                .with("--trigger-recovery-read-every-n", gga.recover_every);
            if gga.is_set() {
                // Without the scrub of a new set, whose I/Os would be counted.
                line = line
                    .with("--logical-block-size", self.plan.block_size)
                    .with("--scrub", "off");
            }
        }
        let (service, _) = self.run.layout.cpu_order();
        self.cpus(line, service)
    }

    /// Command line of the initiator.
    fn initiator(&self) -> Vec<OsString> {
        let plan = self.plan;
        let mut line = self
            .line("initiator")
            .with("--device", HOST_DEVICE)
            .with("--execution-strategy", self.run.strategy.name())
            .with("--run-limit-operation-count", self.run.operations)
            .with("--transaction-count", plan.transactions)
            .with("--blocks-per-io", plan.blocks_per_io)
            .with("--local-io-region-size", plan.local_io_region_size)
            .with("--control-timeout", CONTROL_TIMEOUT_SECONDS)
            .with("--io-timeout", IO_TIMEOUT_SECONDS);
        line = match self.run.plain {
            Plain::Pattern => line,
            Plain::Content => line.with("--storage-plain-content", self.files.content.as_os_str()),
            Plain::Noise => line.with("--storage-plain-content", self.files.noise().as_os_str()),
        };
        self.cpus(line, 0)
    }

    fn line(&self, role: &str) -> Line {
        let line = Line(vec![role.into()]);
        // Errors and announcements only; the demo does not use other log lines.
        if self.json {
            line.with("--output", "json").with("--log-level", 40)
        } else {
            line
        }
    }

    fn cpus(&self, line: Line, role: usize) -> Vec<OsString> {
        let roles = 2 + self.run.layout.targets().len();
        self.cpus
            .of(role, roles, self.plan.workers)
            .fold(line, |line, cpu| line.with("--cpu", cpu as u64))
            .0
    }
}

/// A command line under construction.
struct Line(Vec<OsString>);

impl Line {
    fn with(mut self, flag: &str, value: impl IntoArgument) -> Self {
        self.0.extend([flag.into(), value.into_argument()]);
        self
    }
}

trait IntoArgument {
    fn into_argument(self) -> OsString;
}

impl IntoArgument for &OsStr {
    fn into_argument(self) -> OsString {
        self.to_owned()
    }
}

macro_rules! arguments {
    ($($ty:ty)*) => { $(impl IntoArgument for $ty {
        fn into_argument(self) -> OsString {
            self.to_string().into()
        }
    })* };
}
arguments!(&str String u16 u32 u64 i32);

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use role_formats::stored_block::{Encoder, Geometry};

    use super::*;

    #[test]
    fn workers_are_spread_over_the_cpus() {
        let cpus = Cpus(vec![4, 6]);
        let of = |role, roles, workers| cpus.of(role, roles, workers).collect::<Vec<_>>();
        assert_eq!(of(0, 3, 2), [4, 6]);
        assert_eq!(of(1, 3, 2), [6, 4]);
        assert_eq!(of(2, 3, 1), [4]);
        assert_eq!(of(4, 5, 2), [4, 6]);
    }

    #[test]
    fn noise_has_the_size_of_the_storage_and_does_not_compress() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("noise");
        write_noise(&path, 8199).expect("written");
        let noise = std::fs::read(&path).expect("the file");
        assert_eq!(noise.len(), 8199);
        let mut encoder = Encoder::new(Geometry::compatible(4096));
        for block in noise.chunks_exact(4096) {
            let refused = encoder.encode(block).expect_err("does not compress");
            assert_eq!(refused.needed, 4100);
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("--cpu"), "--cpu");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
        assert_eq!(quoted(""), "''");
    }
}
