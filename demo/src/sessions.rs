//! The demo's sessions, which run consecutively in one sandbox: processes, command lines and files.

use std::fmt;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use control::shutdown::Shutdown;
use deployment::process::{Failure, Process};
use deployment::sandbox::{DPU_DEVICE, Sandbox};
use deployment::{Deployment, Part};
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

/// Runs sessions in a sandbox.
pub struct Sessions<'a> {
    program: PathBuf,
    plan: &'a Plan,
    content: &'a Content,
    pub(super) roles: Deployment,
    cpus: Cpus,
    shutdown: Shutdown,
}

impl<'a> Sessions<'a> {
    pub fn new(
        plan: &'a Plan,
        content: &'a Content,
        sandbox: Sandbox,
        shutdown: Shutdown,
    ) -> Result<Self, Error> {
        let cpus = deployment::allowed_cpus().map_err(Error::io("ask for the allowed CPUs"))?;
        Ok(Self {
            program: std::env::current_exe().map_err(Error::io("find this program"))?,
            plan,
            content,
            roles: Deployment::new(sandbox, deployment::implementation::Layout::ZeroCopy, READY)?,
            cpus: Cpus(cpus),
            shutdown,
        })
    }

    /// Returns `true` if a shutdown was requested.
    pub fn interrupted(&self) -> bool {
        self.shutdown.is_requested()
    }

    /// Runs one session. The reference's roles serve one session, so each run has its own processes.
    pub fn run(&mut self, run: &Run) -> Result<Session, Failure> {
        self.make_files(run)?;
        self.set_commands(run, true)?;
        let Self {
            roles, shutdown, ..
        } = self;
        let deadline = Instant::now() + SESSION;
        roles.start_targets()?;
        roles.start(Part::Service)?;
        roles.spawn(Part::Initiator)?;

        let mut failures = Vec::new();
        let mut finish = |part, deadline| {
            let ended = roles.take(part).and_then(|process| {
                let role = process.role();
                let stdout = process.finish(deadline, || shutdown.is_requested())?;
                document(role, &stdout)
            });
            // After a failure, the other documents are not used.
            ended.unwrap_or_else(|failure| {
                failures.push(failure);
                Value::Null
            })
        };
        let initiator = finish(Part::Initiator, deadline);
        let farewell = Instant::now() + EXIT_TIMEOUT;
        let service = finish(Part::Service, farewell);
        let targets = 0..run.layout.kind().targets().len();
        let targets = targets.map(|index| finish(Part::Target(index), farewell));
        let targets = targets.collect();
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
        if run.plain == Plain::Noise && !self.noise().exists() {
            write_noise(&self.noise(), self.content.capacity)?;
        }
        match run.layout {
            Layout::Gga(gga) if gga.storage == Storage::Content => self.generate(),
            _ => Ok(()),
        }
    }

    /// Creates the `.sbc` files with the generator unless they exist.
    fn generate(&self) -> Result<(), Failure> {
        let sbc = self.sbc();
        if sbc.iter().all(|path| path.exists()) {
            return Ok(());
        }
        let mut command = self.role("sbc-generator", true);
        command
            .args(["--device", DPU_DEVICE])
            .arg("--original-input-data")
            .arg(&self.content.path)
            .args(["--block-size", &self.plan.block_size.to_string()])
            .args(["--matrix-type", self.plan.matrix_name()]);
        for (flag, path) in std::iter::zip(["--data-1", "--data-2", "--data-p"], &sbc) {
            command.arg(flag).arg(path);
        }
        self.roles.sandbox.place(&mut command);
        Process::spawn("generator", command)?
            .finish(Instant::now() + SESSION, || self.interrupted())
            .map(drop)
    }

    /// The `.sbc` files of the data: data_1, data_2 and data_p.
    fn sbc(&self) -> [PathBuf; 3] {
        ["data_1.sbc", "data_2.sbc", "data_p.sbc"].map(|name| self.roles.sandbox.path(name))
    }

    /// File with incompressible data of the storage's size.
    fn noise(&self) -> PathBuf {
        self.roles.sandbox.path("noise.bin")
    }

    /// Entries that the sessions left in the runtime directories.
    pub fn leftovers(&mut self) -> Result<Vec<PathBuf>, Error> {
        self.roles.reset(self.roles.layout())?;
        let leftovers = self.roles.sandbox.leftovers();
        leftovers.map_err(Error::io("the runtime directory"))
    }

    /// Description of the roles and addresses of the machines, if there are several.
    pub fn describe_machines(&self) -> Option<String> {
        let network = self.roles.sandbox.network()?;
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
}

fn document(role: &'static str, stdout: &str) -> Result<Value, Failure> {
    serde_json::from_str(stdout).map_err(|error| {
        let what = format!("printed no JSON document ({error}) but {stdout:?}");
        Failure::new(role, what)
    })
}

/// Writes incompressible data, which is the same in every run.
fn write_noise(path: &Path, length: u64) -> std::io::Result<()> {
    const PART: u64 = 1 << 20;
    let mut file = std::fs::File::create(path)?;
    for part in 0..length.div_ceil(PART) {
        let len = PART.min(length - part * PART);
        file.write_all(&contents::noise(part, len as usize))?;
    }
    Ok(())
}

// CPUs of the roles.

/// The CPUs that this process may use, distributed to the roles.
struct Cpus(Vec<usize>);

impl Cpus {
    /// One CPU per worker of role number `role` in a session with `roles` roles. A pipeline with one worker per role
    /// uses as many CPUs as roles; with fewer CPUs, the last roles share.
    fn of(&self, role: usize, roles: usize, workers: u32) -> impl Iterator<Item = usize> + use<'_> {
        (0..workers as usize).map(move |worker| self.0[(worker * roles + role) % self.0.len()])
    }
}

// A deployment that continues to run after the demo.

/// Instructions for a deployment that was left running.
pub struct Kept(String);

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Sessions<'_> {
    /// Starts the targets and the service of `run` and leaves them running, with their files and logs.
    pub fn keep(mut self, run: &Run) -> Result<Kept, Error> {
        self.set_commands(run, false)?;
        let targets = (0..self.roles.targets()).map(Part::Target);
        let (mut processes, mut running) = (Vec::new(), Vec::new());
        for part in targets.chain([Part::Service]) {
            let command = self.roles.command_line(part)?;
            running.push(table::shell_line(&command));
            processes.push(self.spawn_detached(part, command)?.to_string());
        }
        // The service is stopped first, because it would report an error if a target exited before it.
        processes.reverse();
        let initiator = table::shell_line(&self.roles.command_line(Part::Initiator)?);
        let directory = self.roles.keep();
        Ok(Kept(format!(
            "\nRunning (for one session, logs in {directory}):\n{running}\n\
             Start the initiator with:\n{initiator}\n\
             End without one: kill {processes}; afterwards: rm -r {quoted_directory}",
            directory = directory.display(),
            running = running.join("\n"),
            processes = processes.join(" "),
            quoted_directory = table::quoted(&directory.to_string_lossy()),
        )))
    }

    /// Starts a role that outlives this program; returns its process id.
    fn spawn_detached(&self, part: Part, mut command: Command) -> Result<u32, Error> {
        let name = part.name(self.roles.layout());
        let log = self.roles.sandbox.log(name);
        let log = log.map_err(Error::io("a log file"))?;
        let errors = log.try_clone().map_err(Error::io("a log file"))?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        // In a separate process group, so that Ctrl-C in this terminal does not stop it.
        command.process_group(0);
        let process = command
            .spawn()
            .map_err(Error::io(format!("start the {name}")))?;
        Ok(process.id())
    }
}

// Command lines of the roles.

/// Timeout of an I/O: hundreds of MiB may be queued before it, to be compressed by an unoptimised build.
const IO_TIMEOUT_SECONDS: &str = "60";
/// Timeout of a control operation, for a loaded machine.
const CONTROL_TIMEOUT_SECONDS: &str = "20";

impl Sessions<'_> {
    /// Sets the command lines of a session. `json`: the output is parsed by the demo, and not read by a person.
    fn set_commands(&mut self, run: &Run, json: bool) -> Result<(), Failure> {
        self.roles.reset(run.layout.kind())?;
        for index in 0..self.roles.targets() {
            let command = self.target(run, index, json);
            self.roles.set_command(Part::Target(index), command);
        }
        let command = self.service(run, json);
        self.roles.set_command(Part::Service, command);
        let command = self.initiator(run, json);
        self.roles.set_command(Part::Initiator, command);
        Ok(())
    }

    /// Command of a role of this program.
    pub(super) fn role(&self, role: &str, json: bool) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(role);
        if json {
            // Errors and announcements only; the demo does not use other log lines.
            command.args(["--output", "json", "--log-level", "40"]);
        }
        command
    }

    fn target(&self, run: &Run, index: usize, json: bool) -> Command {
        let plan = self.plan;
        let mut command = self.role("target", json);
        match run.layout {
            Layout::ZeroCopy => {
                add_sizes(&mut command, plan.block_count, plan.block_size);
                command.arg("--binary-content").arg(&self.content.path);
            }
            Layout::Gga(gga) => match gga.storage {
                Storage::Content => {
                    command.arg("--binary-content").arg(&self.sbc()[index]);
                }
                Storage::Empty => {
                    let half = gga.geometry.half_block_size();
                    add_sizes(&mut command, plan.block_count, half);
                }
            },
        }
        let (_, first) = run.layout.cpu_order();
        self.add_cpus(command, run, first + index)
    }

    fn service(&self, run: &Run, json: bool) -> Command {
        let mut command = self.role(run.layout.service(), json);
        command.args(["--control-timeout", CONTROL_TIMEOUT_SECONDS]);
        if let Layout::Gga(gga) = run.layout {
            let every = gga.recover_every.to_string();
            command
                .args(["--matrix-type", self.plan.matrix_name()])
                .args(["--trigger-recovery-read-every-n", &every]);
            if gga.is_set() {
                // Disables the scrub of a new set, whose I/Os would be counted.
                command
                    .args(["--logical-block-size", &self.plan.block_size.to_string()])
                    .args(["--scrub", "off"]);
            }
        }
        let (service, _) = run.layout.cpu_order();
        self.add_cpus(command, run, service)
    }

    fn initiator(&self, run: &Run, json: bool) -> Command {
        let plan = self.plan;
        let mut command = self.role("initiator", json);
        let numbers = [
            ("--run-limit-operation-count", u64::from(run.operations)),
            ("--transaction-count", plan.transactions.into()),
            ("--blocks-per-io", plan.blocks_per_io.into()),
            ("--local-io-region-size", plan.local_io_region_size),
        ];
        for (flag, number) in numbers {
            command.args([flag, &number.to_string()]);
        }
        command
            .args(["--execution-strategy", run.strategy.name()])
            .args(["--control-timeout", CONTROL_TIMEOUT_SECONDS])
            .args(["--io-timeout", IO_TIMEOUT_SECONDS]);
        let plain = match run.plain {
            Plain::Pattern => None,
            Plain::Content => Some(self.content.path.clone()),
            Plain::Noise => Some(self.noise()),
        };
        if let Some(plain) = plain {
            command.arg("--storage-plain-content").arg(plain);
        }
        self.add_cpus(command, run, 0)
    }

    fn add_cpus(&self, mut command: Command, run: &Run, role: usize) -> Command {
        let roles = 2 + run.layout.kind().targets().len();
        for cpu in self.cpus.of(role, roles, self.plan.workers) {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command
    }

    /// CPU for role number `role` of a session with three roles, as the value of `--cpu`.
    pub(super) fn cpu(&self, role: usize) -> String {
        let cpu = self.cpus.of(role, 3, 1).next();
        cpu.unwrap_or_default().to_string()
    }
}

fn add_sizes(command: &mut Command, blocks: u64, block_size: u32) {
    command
        .args(["--block-count", &blocks.to_string()])
        .args(["--block-size", &block_size.to_string()]);
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
}
