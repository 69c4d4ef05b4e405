//! One session's processes, and their command lines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use conformance::implementation::{Implementation, Role};
use conformance::port::wait_for_listener;
use conformance::process::Process;
use conformance::scene::{DPU_DEVICE, HOST_DEVICE, Scene};

use super::{Cast, content};
use crate::point::{Layout, Operation, Point};
use crate::series::{Figures, SystemCalls};
use crate::{Error, file};

/// Time that a role gets to be ready for its peers.
const READY: Duration = Duration::from_secs(20);
/// Time that a session may take.
const SESSION: Duration = Duration::from_secs(300);
/// Time that service and targets get to end once the initiator has.
const FAREWELL: Duration = Duration::from_secs(15);
/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(2);

/// What a session is made of.
pub(super) struct Stage<'a> {
    pub(super) cast: &'a Cast,
    pub(super) point: Point,
    pub(super) operations: u64,
    pub(super) cpus: &'a [usize],
    pub(super) scene: Scene,
    /// The file that the only target has its blocks in, and whether every write is flushed.
    pub(super) backing: Option<(&'a Path, bool)>,
    /// Counts the system calls of all roles, where that is what is measured.
    pub(super) tallies: Option<Tallies>,
}

/// What a session left behind.
pub(super) struct Ended {
    /// What the initiator has printed.
    pub(super) stdout: String,
    /// CPU times of the initiator as a whole, and of service and all targets while it was there: how the reference waits
    /// before and after that is none of the I/Os' costs.
    pub(super) cpu: [Duration; 3],
}

impl Stage<'_> {
    /// Targets and service, ready for an initiator.
    pub(super) fn start(&self) -> Result<(Process, Vec<Process>), Error> {
        let names = self.point.layout.targets();
        let files = self.content()?;
        let mut targets = Vec::new();
        let mut ports = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let port = self.scene.port()?;
            let mut target = self.placed(name, self.target(index, port, &files[index])?)?;
            let deadline = Instant::now() + READY;
            if !wait_for_listener(port, deadline, || target.has_ended())? {
                return Err(target.failed("has not listened on its port").into());
            }
            targets.push(target);
            ports.push(port);
        }
        let before = self.scene.leftovers()?;
        let mut service = self.placed("service", self.service(&ports)?)?;
        // softdoca makes the socket of a server when it can be connected to.
        let deadline = Instant::now() + READY;
        while self
            .scene
            .leftovers()?
            .iter()
            .all(|path| before.contains(path))
        {
            if Instant::now() > deadline || service.has_ended() {
                return Err(service.failed("has not waited for an initiator").into());
            }
            std::thread::sleep(TICK);
        }
        Ok((service, targets))
    }

    /// The whole session.
    pub(super) fn run(&self) -> Result<Ended, Error> {
        let (service, targets) = self.start()?;
        let initiator = self.placed("initiator", self.initiator()?)?;
        self.finish(initiator, service, targets)
    }

    /// Waits for all to end well, after whoever plays the initiator.
    pub(super) fn finish(
        &self,
        initiator: Process,
        service: Process,
        targets: Vec<Process>,
    ) -> Result<Ended, Error> {
        let times = || [cpu_of_all([&service]), cpu_of_all(&targets)];
        let before = times();
        let deadline = Instant::now() + SESSION;
        // Before the end is taken from the system, which forgets the time with it.
        initiator.wait_for_end(deadline);
        let initiator_cpu = cpu_of_all([&initiator]);
        let [service_cpu, targets_cpu] = times();
        let stdout = initiator.finish(deadline, || false)?;
        let farewell = Instant::now() + FAREWELL;
        service.finish(farewell, || false)?;
        for target in targets {
            target.finish(farewell, || false)?;
        }
        Ok(Ended {
            stdout,
            cpu: [
                initiator_cpu,
                service_cpu.saturating_sub(before[0]),
                targets_cpu.saturating_sub(before[1]),
            ],
        })
    }

    /// The initiator's limit is one of each worker.
    pub(super) fn all_operations(&self) -> u64 {
        self.operations.div_ceil(self.point.workers.into()) * u64::from(self.point.workers)
    }

    /// What the targets begin with, one file each.
    fn content(&self) -> Result<Vec<PathBuf>, Error> {
        if self.backing.is_some() {
            return Ok(vec![PathBuf::new()]);
        }
        let plain = content(self.point.capacity() as usize);
        let plain = self.scene.file("content", &plain)?;
        if self.point.layout == Layout::ZeroCopy {
            return Ok(vec![plain]);
        }
        let halves = ["1.sbc", "2.sbc", "p.sbc"].map(|name| self.scene.path(name));
        let mut command = self.cast.generator.command(Role::SbcGenerator)?;
        self.scene
            .place(&mut command)
            .args(["-d", DPU_DEVICE, "--original-input-data"])
            .arg(&plain)
            .args(["--block-size", &self.point.block_size.to_string()]);
        for (flag, path) in ["--data-1", "--data-2", "--data-p"].iter().zip(&halves) {
            command.arg(flag).arg(path);
        }
        Process::spawn("generator", command)?.finish(Instant::now() + SESSION, || false)?;
        Ok(halves.into())
    }

    fn target(&self, index: usize, port: u16, content: &PathBuf) -> Result<Command, Error> {
        let mut command = self.role(&self.cast.target, Role::Target, 2 + index)?;
        command.args(["-d", HOST_DEVICE, "--listen-port", &port.to_string()]);
        if let Some((file, _)) = self.backing {
            command
                .arg("--backing-file")
                .arg(file)
                .args(["--backing-io", "direct"])
                .args(["--block-size", &file::BLOCK_SIZE.to_string()])
                .args(["--block-count", &file::BLOCK_COUNT.to_string()]);
            return Ok(command);
        }
        command.arg("--binary-content").arg(content);
        if self.point.layout == Layout::ZeroCopy {
            command
                .args(["--block-count", &self.point.block_count().to_string()])
                .args(["--block-size", &self.point.block_size.to_string()]);
        }
        Ok(command)
    }

    fn service(&self, ports: &[u16]) -> Result<Command, Error> {
        let (role, flags): (_, &[&str]) = match self.point.layout {
            Layout::ZeroCopy => (Role::ZeroCopy, &["--storage-server"]),
            Layout::Gga => (
                Role::GgaOffload,
                &["--data-1-storage", "--data-2-storage", "--data-p-storage"],
            ),
        };
        let mut command = self.role(&self.cast.service, role, 1)?;
        command
            .args(["-d", DPU_DEVICE, "-r", HOST_DEVICE])
            .args(["--command-channel-name", self.scene.channel()]);
        for (flag, port) in flags.iter().zip(ports) {
            command.args([flag, format!("127.0.0.1:{port}").as_str()]);
        }
        if self.point.operation == Operation::RecoveryRead {
            command.args(["--trigger-recovery-read-every-n", "1"]);
        }
        Ok(command)
    }

    pub(super) fn initiator(&self) -> Result<Command, Error> {
        let strategy = match self.point.operation {
            Operation::Read | Operation::RecoveryRead => "read_throughput_test",
            Operation::Write => "write_throughput_test",
        };
        let operations = self.operations.div_ceil(self.point.workers.into());
        let mut command = self.role(&self.cast.initiator, Role::Initiator, 0)?;
        command
            .args(["-d", HOST_DEVICE, "--execution-strategy", strategy])
            .args(["--command-channel-name", self.scene.channel()])
            .args(["--run-limit-operation-count", &operations.to_string()])
            .args([
                self.cast.transactions_flag,
                &self.point.transactions.to_string(),
            ]);
        if let Some((_, flush)) = self.backing {
            let blocks = self.point.block_size / file::BLOCK_SIZE;
            command
                .args(["--blocks-per-io", &blocks.to_string()])
                .args(["--local-io-region-size", &(64 << 20).to_string()]);
            if flush {
                command.args(["--flush-every", "1"]);
            }
            if blocks == 1 && !flush {
                command.args(["--access-order", "scattered"]);
            }
        }
        if self.cast.prints_json {
            command.args(["--output", "json"]);
        }
        Ok(command)
    }

    /// A role's command line with its CPUs: initiator 0, service 1, targets from 2 on.
    fn role(&self, whose: &Implementation, role: Role, number: usize) -> Result<Command, Error> {
        let mut command = whose.command(role)?;
        self.scene.place(&mut command);
        for worker in 0..self.point.workers as usize {
            let cpu = self.cpus[cpu_of(self.point.layout, number, worker, self.cpus.len())];
            command.args(["--cpu", &cpu.to_string()]);
        }
        Ok(command)
    }

    /// The command as it is started.
    fn placed(&self, role: &'static str, command: Command) -> Result<Process, Error> {
        let command = match &self.tallies {
            Some(tallies) => tallies.around(role, &command),
            None => command,
        };
        Ok(Process::spawn(role, command)?)
    }
}

/// Which of so many CPUs a worker of a role gets. Where there are fewer CPUs than roles, who touches most data has one alone and the
/// others share: the target of zero copy, whose service touches none, and the service of gga, which does most of all.
pub fn cpu_of(layout: Layout, role: usize, worker: usize, cpus: usize) -> usize {
    let roles = roles(layout);
    let place = match (layout, role) {
        (Layout::ZeroCopy, 1) => 2,
        (Layout::ZeroCopy, 2) => 1,
        (Layout::Gga, 2..) if cpus == 2 => 0,
        _ => role,
    };
    (worker * roles + place) % cpus
}

/// Processes of a deployment.
fn roles(layout: Layout) -> usize {
    2 + layout.targets().len()
}

/// CPU time of these processes so far.
fn cpu_of_all<'a>(processes: impl IntoIterator<Item = &'a Process>) -> Duration {
    processes.into_iter().filter_map(Process::cpu_time).sum()
}

// System calls of a session's roles, counted by the kernel for `perf stat`: all of them, and apart from the others those that
// only give the CPU away.

/// All system calls, of whatever name.
const ALL: &str = "raw_syscalls:sys_enter";
/// Those that only give the CPU away.
const YIELDS: &str = "syscalls:sys_enter_sched_yield";
/// Operations of the session whose calls are subtracted: it starts, fills its pipeline and ends as the long one does.
const FEW: u64 = 1000;
/// The long one has so many times what takes the time of a run: few calls are found among many operations.
const LONGER: u64 = 4;

/// Counts of one process and all its threads, from its start to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Tally {
    all: f64,
    yields: f64,
}

/// Why system calls cannot be counted here, in words; nothing when they can.
pub fn cannot_count() -> Option<String> {
    let counted = || -> Result<Tally, Error> {
        let tallies = Tallies {
            directory: tempfile::tempdir()?,
        };
        let output = tallies.around("true", &Command::new("true")).output()?;
        tallies.of("true").map_err(|error| match error {
            // What it could not do is on its standard error.
            Error::Io(_) => Error::Output {
                program: "perf",
                expected: "its counts",
                got: String::from_utf8_lossy(&output.stderr).into_owned(),
            },
            other => other,
        })
    };
    match counted() {
        Ok(_) => None,
        Err(error) => Some(format!(
            "system calls per I/O: `perf stat -e {ALL}` does not count here ({}); Debian's package is linux-perf, and tracepoints \
             are for root, or for kernel.perf_event_paranoid=-1 and a tracefs that may be read",
            error.to_string().trim_end()
        )),
    }
}

/// Files that `perf stat` writes its counts to, one for each process.
#[derive(Debug)]
pub(super) struct Tallies {
    directory: tempfile::TempDir,
}

impl Tallies {
    fn file(&self, role: &str) -> PathBuf {
        self.directory.path().join(role)
    }

    /// The same command, counted from its first system call to its last.
    pub(super) fn around(&self, role: &str, command: &Command) -> Command {
        let mut counted = Command::new("perf");
        counted
            .args(["stat", "-x", ",", "-e", ALL, "-e", YIELDS, "-o"])
            .arg(self.file(role))
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => counted.env(name, value),
                None => counted.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            counted.current_dir(directory);
        }
        counted
    }

    /// What was counted of a process that has ended.
    fn of(&self, role: &str) -> Result<Tally, Error> {
        parse(&std::fs::read_to_string(self.file(role))?)
    }
}

/// Lines are: count, unit, event, time, percent of the time.
fn parse(text: &str) -> Result<Tally, Error> {
    let count = |event: &str| {
        text.lines().find_map(|line| {
            let mut fields = line.split(',');
            let count = fields.next()?.trim().parse().ok()?;
            (fields.nth(1)?.trim() == event).then_some(count)
        })
    };
    count(ALL)
        .zip(count(YIELDS))
        .map(|(all, yields)| Tally { all, yields })
        .ok_or_else(|| Error::Output {
            program: "perf",
            expected: "counts of system calls",
            got: text.to_owned(),
        })
}

/// System calls per I/O of a session of some times as many operations. Those of start and end are not among them: a short session's calls
/// are subtracted.
///
/// # Errors
///
/// A role cannot be started or has failed, or perf does not count.
pub fn system_calls(
    cast: &Cast,
    point: Point,
    operations: u64,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let operations = LONGER * operations;
    let (short, _) = session(cast, point, FEW, cpus)?;
    let (long, mut figures) = session(cast, point, FEW + operations, cpus)?;
    figures.system_calls = Some(per_operation(&short, &long, operations as f64));
    Ok(figures)
}

/// What each role calls more in a longer session: initiator, service, targets.
fn per_operation(short: &[Tally; 3], long: &[Tally; 3], operations: f64) -> SystemCalls {
    let more = |of: fn(&Tally) -> f64, role: usize| {
        // May be below nothing by a little: roles sleep more or less often while sessions begin and end.
        (of(&long[role]) - of(&short[role])) / operations
    };
    let working = |tally: &Tally| tally.all - tally.yields;
    SystemCalls {
        initiator: more(working, 0),
        service: more(working, 1),
        targets: more(working, 2),
        yields: (0..3).map(|role| more(|tally| tally.yields, role)).sum(),
    }
}

fn session(
    cast: &Cast,
    point: Point,
    operations: u64,
    cpus: &[usize],
) -> Result<([Tally; 3], Figures), Error> {
    let stage = Stage {
        cast,
        point,
        operations,
        cpus,
        scene: Scene::new()?,
        backing: None,
        tallies: Some(Tallies {
            directory: tempfile::tempdir()?,
        }),
    };
    let ended = stage.run()?;
    let tally = |role| match &stage.tallies {
        Some(tallies) => tallies.of(role),
        None => Ok(Tally::default()),
    };
    let mut targets = Tally::default();
    for name in point.layout.targets() {
        let target = tally(name)?;
        targets.all += target.all;
        targets.yields += target.yields;
    }
    let figures = super::parse(&ended.stdout, point)?;
    Ok(([tally("initiator")?, tally("service")?, targets], figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_what_was_not_counted_is_no_zero() {
        let text = "# started on a day\n\n1024,,raw_syscalls:sys_enter,5000,100.00,,\n24,,syscalls:sys_enter_sched_yield,5000,100.00,,\n";
        let expected = Tally {
            all: 1024.0,
            yields: 24.0,
        };
        assert_eq!(parse(text).expect("counts"), expected);
        let error = parse(&text.replace("1024", "<not counted>")).expect_err("no count");
        assert!(error.to_string().contains("<not counted>"), "{error}");
    }

    #[test]
    fn what_a_session_calls_anyway_is_not_counted_per_operation() {
        let tally = |all, yields| Tally { all, yields };
        let short = [tally(500.0, 100.0); 3];
        let long = [
            tally(900.0, 200.0),
            tally(700.0, 300.0),
            tally(490.0, 100.0),
        ];
        let calls = per_operation(&short, &long, 1000.0);
        let calls = [
            calls.initiator,
            calls.service,
            calls.targets,
            calls.yields,
            calls.total(),
        ];
        let expected = [0.3, 0.0, -0.01, 0.3, 0.29];
        for (came, expected) in calls.into_iter().zip(expected) {
            assert!((came - expected).abs() < 1e-9, "{calls:?}");
        }
    }

    #[test]
    fn a_command_keeps_its_arguments_and_surroundings() {
        let tallies = Tallies {
            directory: tempfile::tempdir().expect("a directory"),
        };
        let mut command = Command::new("role");
        command
            .arg("--cpu")
            .env("A", "b")
            .env_remove("C")
            .current_dir("/");
        let counted = tallies.around("service", &command);
        let words: Vec<_> = counted.get_args().collect();
        assert!(
            words.ends_with(&["--".as_ref(), "role".as_ref(), "--cpu".as_ref()]),
            "{words:?}"
        );
        assert_eq!(counted.get_envs().count(), 2);
        assert_eq!(counted.get_current_dir(), Some("/".as_ref()));
    }
}
