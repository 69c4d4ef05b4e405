//! One session's processes, and their command lines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use conformance::implementation::{Implementation, Role};
use conformance::port::wait_for_listener;
use conformance::process::Process;
use conformance::scene::{DPU_DEVICE, HOST_DEVICE, Scene};

use super::Cast;
use super::content::content;
use super::counted::Tallies;
use crate::Error;
use crate::file;
use crate::point::{Layout, Operation, Point};

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
