//! Processes of one session, and their command lines.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::implementation::{Implementation, Role};
use deployment::process::Process;
use deployment::sandbox::{DPU_DEVICE, Sandbox};
use deployment::{Deployment, Part};

use super::{Mix, content};
use crate::series::{Figures, Layout, Operation, Point, SystemCalls};
use crate::{Error, file};

/// Time for a role to become ready for its peers.
const READY: Duration = Duration::from_secs(20);
/// Time limit of a session.
const SESSION: Duration = Duration::from_secs(300);
/// Time for service and targets to exit after the initiator.
const EXIT_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) struct Session<'a> {
    pub(super) mix: &'a Mix,
    pub(super) point: Point,
    pub(super) operations: u64,
    pub(super) cpus: &'a [usize],
    pub(super) roles: Deployment,
    /// File with the blocks of the only target, and whether every write is flushed.
    pub(super) backing: Option<(&'a Path, bool)>,
    /// Set to count the system calls of all roles.
    pub(super) tallies: Option<Tallies>,
}

/// Results of a session.
pub(super) struct Ended {
    /// Standard output of the initiator.
    pub(super) stdout: String,
    /// CPU times of the initiator in total, and of service and targets while it ran: their waits before and after it,
    /// during which the reference polls, are not a cost of I/Os.
    pub(super) cpu: [Duration; 3],
}

impl<'a> Session<'a> {
    /// Creates a session in a sandbox, with targets in memory.
    pub(super) fn new(
        sandbox: Sandbox,
        mix: &'a Mix,
        point: Point,
        operations: u64,
        cpus: &'a [usize],
    ) -> Result<Self, Error> {
        Ok(Self {
            mix,
            point,
            operations,
            cpus,
            roles: Deployment::new(sandbox, point.layout, READY)?,
            backing: None,
            tallies: None,
        })
    }

    /// Starts targets and service, and waits until they are ready for an initiator.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        for (index, content) in self.content()?.iter().enumerate() {
            let command = self.target(index, content)?;
            self.roles.set_command(Part::Target(index), command);
        }
        self.roles.start_targets()?;
        let command = self.service()?;
        self.roles.set_command(Part::Service, command);
        let before = self.roles.sandbox.servers()?;
        self.roles.spawn(Part::Service)?;
        // Services of the reference do not report when they are ready.
        if let Some(service) = self.roles.process(Part::Service) {
            let sandbox = &self.roles.sandbox;
            let serving = sandbox.wait_until_serving(service, &before, READY, || false);
            if let Err(why) = serving {
                let service = self.roles.take(Part::Service)?;
                return Err(service.failed(&why.to_string()).into());
            }
        }
        Ok(())
    }

    /// Starts the initiator, and returns its process.
    pub(super) fn start_initiator(&mut self) -> Result<Process, Error> {
        let command = self.initiator()?;
        self.roles.set_command(Part::Initiator, command);
        self.roles.spawn(Part::Initiator)?;
        Ok(self.roles.take(Part::Initiator)?)
    }

    pub(super) fn run(&mut self) -> Result<Ended, Error> {
        self.start()?;
        let initiator = self.start_initiator()?;
        self.finish(initiator)
    }

    /// CPU times of the service and of the targets so far.
    pub(super) fn cpu_times(&self) -> [Duration; 2] {
        let time = |part| self.roles.process(part).and_then(Process::cpu_time);
        let targets = (0..self.roles.targets()).map(Part::Target);
        [
            time(Part::Service).unwrap_or_default(),
            targets.filter_map(time).sum(),
        ]
    }

    /// Waits until all processes have exited successfully, the initiator first.
    pub(super) fn finish(&mut self, initiator: Process) -> Result<Ended, Error> {
        let before = self.cpu_times();
        let deadline = Instant::now() + SESSION;
        // Before the process is reaped: reaping discards its CPU time.
        initiator.wait_for_end(deadline);
        let initiator_cpu = initiator.cpu_time().unwrap_or_default();
        let [service_cpu, targets_cpu] = self.cpu_times();
        let stdout = initiator.finish(deadline, || false)?;
        let farewell = Instant::now() + EXIT_TIMEOUT;
        for part in self.roles.started() {
            self.roles.take(part)?.finish(farewell, || false)?;
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

    /// Number of operations of all workers; the initiator's limit is per worker.
    pub(super) fn all_operations(&self) -> u64 {
        self.operations.div_ceil(self.point.workers.into()) * u64::from(self.point.workers)
    }

    /// Creates the initial contents of the targets, one file each.
    fn content(&self) -> Result<Vec<PathBuf>, Error> {
        if self.backing.is_some() {
            return Ok(vec![PathBuf::new()]);
        }
        let plain = content(self.point.capacity() as usize);
        let plain = self.roles.sandbox.file("content", &plain)?;
        if self.point.layout == Layout::ZeroCopy {
            return Ok(vec![plain]);
        }
        let halves = ["1.sbc", "2.sbc", "p.sbc"].map(|name| self.roles.sandbox.path(name));
        let mut command = self.mix.generator.command(Role::SbcGenerator)?;
        self.roles
            .sandbox
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

    fn target(&self, index: usize, content: &PathBuf) -> Result<Command, Error> {
        let mut command = self.role(&self.mix.target, Role::Target, 2 + index)?;
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

    fn service(&self) -> Result<Command, Error> {
        let mut command = self.role(&self.mix.service, self.point.layout.service(), 1)?;
        if self.point.operation == Operation::RecoveryRead {
            command.args(["--trigger-recovery-read-every-n", "1"]);
        }
        Ok(command)
    }

    fn initiator(&self) -> Result<Command, Error> {
        let strategy = match self.point.operation {
            Operation::Read | Operation::RecoveryRead => "read_throughput_test",
            Operation::Write => "write_throughput_test",
        };
        let operations = self.operations.div_ceil(self.point.workers.into());
        let mut command = self.role(&self.mix.initiator, Role::Initiator, 0)?;
        command
            .args(["--execution-strategy", strategy])
            .args(["--run-limit-operation-count", &operations.to_string()])
            .args([
                self.mix.transactions_flag,
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
        if self.mix.prints_json {
            command.args(["--output", "json"]);
        }
        Ok(command)
    }

    /// Command line of a role with its CPUs: initiator 0, service 1, targets from 2 on.
    fn role(&self, whose: &Implementation, role: Role, number: usize) -> Result<Command, Error> {
        let mut command = whose.command(role)?;
        if let Some(tallies) = &self.tallies {
            let names = ["initiator", "service"].into_iter();
            let name = names
                .chain(self.point.layout.targets().iter().copied())
                .nth(number);
            command = tallies.around(name.unwrap_or_default(), &command);
        }
        for worker in 0..self.point.workers as usize {
            let cpu = self.cpus[cpu_of(self.point.layout, number, worker, self.cpus.len())];
            command.args(["--cpu", &cpu.to_string()]);
        }
        Ok(command)
    }
}

/// CPU of a worker of a role, given the number of CPUs. With fewer CPUs than roles, the role that touches the most data
/// has a CPU to itself and the others share: the target of zero copy, whose service touches no data, and the service of
/// gga.
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

/// Number of processes of a deployment.
fn roles(layout: Layout) -> usize {
    2 + layout.targets().len()
}

// System calls of a session's roles, counted by the kernel for `perf stat`: all of them, and separately those that
// only yield the CPU.

/// All system calls.
const ALL: &str = "raw_syscalls:sys_enter";
/// System calls that only yield the CPU.
const YIELDS: &str = "syscalls:sys_enter_sched_yield";
/// Operations of the short session, whose calls are subtracted: it starts, fills its pipeline and ends like the long one.
const FEW: u64 = 1000;
/// Factor between the operations of a normal run and of the long session: calls are rare.
const LONGER: u64 = 4;

/// Counts of one process with all its threads, over its lifetime.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Tally {
    all: f64,
    yields: f64,
}

/// Reason why system calls cannot be counted; `None` if they can.
pub fn cannot_count() -> Option<String> {
    let counted = || -> Result<Tally, Error> {
        let tallies = Tallies {
            directory: tempfile::tempdir()?,
        };
        let output = tallies.around("true", &Command::new("true")).output()?;
        tallies.of("true").map_err(|error| match error {
            // The program's standard error contains the reason.
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

/// Output files of `perf stat`, one per process.
#[derive(Debug)]
pub(super) struct Tallies {
    directory: tempfile::TempDir,
}

impl Tallies {
    fn file(&self, role: &str) -> PathBuf {
        self.directory.path().join(role)
    }

    /// Wraps a command so that its system calls are counted.
    pub(super) fn around(&self, role: &str, command: &Command) -> Command {
        let mut arguments: Vec<OsString> = ["stat", "-x", ",", "-e", ALL, "-e", YIELDS, "-o"]
            .map(OsString::from)
            .into();
        arguments.extend([self.file(role).into_os_string(), "--".into()]);
        deployment::wrap("perf", arguments, command)
    }

    /// Returns the counts of a process that has exited.
    fn of(&self, role: &str) -> Result<Tally, Error> {
        parse(&std::fs::read_to_string(self.file(role))?)
    }
}

/// Parses the output: lines of count, unit, event, time, percent of the time.
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

/// System calls per I/O of a longer session. The calls at its start and end are excluded, by subtracting those of a
/// short session.
///
/// # Errors
///
/// A role cannot be started or has failed, or perf does not count.
pub fn system_calls(
    mix: &Mix,
    point: Point,
    operations: u64,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let operations = LONGER * operations;
    let (short, _) = session(mix, point, FEW, cpus)?;
    let (long, mut figures) = session(mix, point, FEW + operations, cpus)?;
    figures.system_calls = Some(per_operation(&short, &long, operations as f64));
    Ok(figures)
}

/// Additional calls per operation in the longer session: initiator, service, targets.
fn per_operation(short: &[Tally; 3], long: &[Tally; 3], operations: f64) -> SystemCalls {
    let more = |of: fn(&Tally) -> f64, role: usize| {
        // May be slightly negative: the number of sleeps during start and end of a session varies.
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
    mix: &Mix,
    point: Point,
    operations: u64,
    cpus: &[usize],
) -> Result<([Tally; 3], Figures), Error> {
    let mut session = Session {
        tallies: Some(Tallies {
            directory: tempfile::tempdir()?,
        }),
        ..Session::new(Sandbox::new()?, mix, point, operations, cpus)?
    };
    let ended = session.run()?;
    let tally = |role| match &session.tallies {
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
    fn missing_count_is_an_error_and_not_zero() {
        let text = "# started on a day\n\n1024,,raw_syscalls:sys_enter,5000,100.00,,\n24,,syscalls:sys_enter_sched_yield,5000,100.00,,\n";
        let expected = Tally {
            all: 1024.0,
            yields: 24.0,
        };
        assert_eq!(parse(text).expect("counts"), expected);
        let text = text.replace("1024", "<not counted>");
        let error = parse(&text).expect_err("no count");
        assert!(
            matches!(&error, Error::Output { got, .. } if *got == text),
            "{error}"
        );
    }

    #[test]
    fn calls_of_the_short_session_are_subtracted() {
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
}
