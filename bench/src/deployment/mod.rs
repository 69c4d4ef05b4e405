//! One session of real roles.

mod content;
mod figures;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use conformance::implementation::{Implementation, Role};
use conformance::process::{Failure, Process, Signal};
use conformance::scene::{DPU_DEVICE, HOST_DEVICE, Scene, free_port, wait_for_listener};

use crate::Error;
use crate::point::{Layout, Operation, Point};
use crate::series::{CpuTime, Figures};

pub use content::content;

/// Time that a role gets to be ready for its peers.
const READY: Duration = Duration::from_secs(20);
/// Time that a session may take.
const SESSION: Duration = Duration::from_secs(300);
/// Time that service and targets get to end once the initiator has.
const FAREWELL: Duration = Duration::from_secs(15);
/// Time after which a session is in the middle of its work, and after which processes without work have calmed down.
const SETTLED: Duration = Duration::from_millis(500);
/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(2);

/// Whose programs play which role.
#[derive(Debug, Clone)]
pub struct Cast {
    /// The initiator.
    pub initiator: Implementation,
    /// The service.
    pub service: Implementation,
    /// All targets.
    pub target: Implementation,
    /// Makes the gga targets' content.
    pub generator: Implementation,
    /// The initiator is one of ours, which prints JSON when it is told to.
    pub prints_json: bool,
    /// All are ours.
    pub is_ours: bool,
}

impl Cast {
    /// One implementation in all roles.
    pub fn of(implementation: &Implementation, is_ours: bool) -> Self {
        Self {
            prints_json: is_ours,
            is_ours,
            initiator: implementation.clone(),
            service: implementation.clone(),
            target: implementation.clone(),
            generator: implementation.clone(),
        }
    }
}

/// Runs one session of this many operations on these CPUs.
///
/// # Errors
///
/// A role cannot be started, has failed, or has printed no figures.
pub fn measure(
    cast: &Cast,
    point: Point,
    operations: u64,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let stage = Stage {
        cast,
        point,
        operations,
        cpus,
        scene: Scene::new()?,
    };
    stage.run()
}

/// CPU time that service and target of a session in progress take while nothing is asked of them, in percent of one CPU, over
/// `time`. The initiator is stopped (SIGSTOP) in the middle of its work for that.
///
/// # Errors
///
/// A role cannot be started, or has ended early.
pub fn idle(cast: &Cast, cpus: &[usize], time: Duration) -> Result<f64, Error> {
    let stage = Stage {
        cast,
        point: Point::ZERO_COPY_READ,
        operations: u32::MAX.into(),
        cpus,
        scene: Scene::new()?,
    };
    let (mut service, mut targets) = stage.start()?;
    let initiator = Process::spawn("initiator", stage.initiator()?)?;
    std::thread::sleep(SETTLED);
    initiator.signal(Signal::STOP);
    std::thread::sleep(SETTLED);
    let all = |service: &Process, targets: &[Process]| -> Duration {
        let roles = std::iter::once(service).chain(targets);
        roles.filter_map(Process::cpu_time).sum()
    };
    let (before, started) = (all(&service, &targets), Instant::now());
    std::thread::sleep(time);
    let used = all(&service, &targets).saturating_sub(before);
    let percent = used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
    initiator.signal(Signal::KILL);
    if service.has_ended() {
        return Err(service.failed("ended while nothing happened").into());
    }
    if let Some(at) = targets.iter_mut().position(Process::has_ended) {
        return Err(targets
            .swap_remove(at)
            .failed("ended while nothing happened")
            .into());
    }
    Ok(percent)
}

struct Stage<'a> {
    cast: &'a Cast,
    point: Point,
    operations: u64,
    cpus: &'a [usize],
    scene: Scene,
}

impl Stage<'_> {
    /// Targets and service, ready for an initiator.
    fn start(&self) -> Result<(Process, Vec<Process>), Error> {
        let names: &[&'static str] = match self.point.layout {
            Layout::ZeroCopy => &["target"],
            Layout::Gga => &["data_1", "data_2", "data_p"],
        };
        let files = self.content()?;
        let mut targets = Vec::new();
        let mut ports = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let port = free_port()?;
            let mut target = Process::spawn(name, self.target(index, port, &files[index])?)?;
            let deadline = Instant::now() + READY;
            if !wait_for_listener(port, deadline, || target.has_ended())? {
                return Err(target.failed("has not listened on its port").into());
            }
            targets.push(target);
            ports.push(port);
        }
        let before = self.scene.leftovers()?;
        let mut service = Process::spawn("service", self.service(&ports)?)?;
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

    fn run(&self) -> Result<Figures, Error> {
        let (service, targets) = self.start()?;
        let initiator = Process::spawn("initiator", self.initiator()?)?;
        let (stdout, initiator_cpu) = finish(initiator, Instant::now() + SESSION)?;
        let farewell = Instant::now() + FAREWELL;
        let (_, service_cpu) = finish(service, farewell)?;
        let mut targets_cpu = Duration::ZERO;
        for target in targets {
            targets_cpu += finish(target, farewell)?.1;
        }
        let mut figures = figures::parse(&stdout, self.point)?;
        let per_operation = |time: Duration| time.as_nanos() as f64 / self.all_operations() as f64;
        figures.cpu_ns = Some(CpuTime {
            initiator: per_operation(initiator_cpu),
            service: per_operation(service_cpu),
            targets: per_operation(targets_cpu),
        });
        Ok(figures)
    }

    /// The initiator's limit is one of each worker.
    fn all_operations(&self) -> u64 {
        self.operations.div_ceil(self.point.workers.into()) * u64::from(self.point.workers)
    }

    /// What the targets begin with, one file each.
    fn content(&self) -> Result<Vec<PathBuf>, Error> {
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
        command
            .args(["-d", HOST_DEVICE, "--listen-port", &port.to_string()])
            .arg("--binary-content")
            .arg(content);
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

    fn initiator(&self) -> Result<Command, Error> {
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
            .args(["--transaction-count", &self.point.transactions.to_string()]);
        if self.cast.prints_json {
            command.args(["--output", "json"]);
        }
        Ok(command)
    }

    /// A role's command line with its CPUs: initiator 0, service 1, targets from 2 on.
    fn role(&self, whose: &Implementation, role: Role, number: usize) -> Result<Command, Error> {
        let mut command = whose.command(role)?;
        self.scene.place(&mut command);
        let roles = match self.point.layout {
            Layout::ZeroCopy => 3,
            Layout::Gga => 5,
        };
        for worker in 0..self.point.workers as usize {
            let cpu = self.cpus[cpu_of(self.point.layout, number, worker, roles) % self.cpus.len()];
            command.args(["--cpu", &cpu.to_string()]);
        }
        Ok(command)
    }
}

/// Which of the CPUs a worker of a role gets. On few CPUs those at the end share: the zero-copy service, which touches no data, and
/// the targets of gga.
pub fn cpu_of(layout: Layout, role: usize, worker: usize, roles: usize) -> usize {
    let place = match (layout, role) {
        (Layout::ZeroCopy, 1) => 2,
        (Layout::ZeroCopy, 2) => 1,
        _ => role,
    };
    worker * roles + place
}

/// Waits for a role to end well; its output and CPU time.
fn finish(process: Process, deadline: Instant) -> Result<(String, Duration), Failure> {
    // Before the end is taken from the system, which forgets the time with it.
    process.wait_for_end(deadline);
    let cpu = process.cpu_time().unwrap_or_default();
    Ok((process.finish(deadline, || false)?, cpu))
}
