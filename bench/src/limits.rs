//! Limits of the machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::network::Network;
use deployment::process::Process;
use yardstick::ring::{Load, Measured, Pipeline};

use crate::Error;
use crate::first_ios::PAUSE;
use crate::series::{Figures, Latency, Operation, Point};

/// Time limit of a yardstick. With one I/O in flight on a machine whose CPUs are busy, each I/O takes tens of milliseconds.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Port of the bare connection: in a new network namespace, all are free.
const TCP_PORT: u16 = 12_000;

/// Runs the yardsticks, each as a process: this program with `yardstick STAGE ...`.
#[derive(Debug, Clone)]
pub struct Yardsticks {
    program: PathBuf,
}

impl Yardsticks {
    /// Uses the yardsticks in this program.
    pub fn of(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
        }
    }

    /// Bare ring through three processes, pinned to these CPUs like roles: initiator, service, target.
    ///
    /// # Errors
    ///
    /// One of the processes has failed.
    pub fn ring(&self, point: Point, operations: u64, cpus: [usize; 3]) -> Result<Figures, Error> {
        let load = Load {
            transactions: point.transactions as usize,
            block_size: point.block_size as usize,
            blocks: point.block_count() as usize,
            operations,
        };
        let pipeline = Pipeline::create(load)?;
        let path = pipeline.path();
        let start = |role: &'static str, cpu: usize| {
            let mut command = Command::new(&self.program);
            command
                .args(["yardstick", role, "--memory"])
                .arg(&path)
                .args(["--cpu", &cpu.to_string()])
                .args(["--transactions", &load.transactions.to_string()])
                .args(["--block-size", &load.block_size.to_string()])
                .args(["--blocks", &load.blocks.to_string()])
                .args(["--operations", &load.operations.to_string()]);
            Process::spawn(role, command)
        };
        let [initiator, service, target] = cpus;
        let target = start("target", target)?;
        let service = start("service", service)?;
        let initiator = start("initiator", initiator)?;
        let deadline = Instant::now() + TIMEOUT;
        let stdout = initiator.finish(deadline, || false)?;
        service.finish(deadline, || false)?;
        target.finish(deadline, || false)?;
        figures("the ring's initiator", point, stdout)
    }

    /// A bare TCP connection between machine 0 and machine 1, pinned to these CPUs like service and target.
    ///
    /// # Errors
    ///
    /// One of the processes has failed.
    pub fn tcp(
        &self,
        point: Point,
        operations: u64,
        cpus: [usize; 2],
        network: &Network,
    ) -> Result<Figures, Error> {
        let address = format!("{}:{TCP_PORT}", network.address(1));
        let start = |machine: usize, role: &'static str| {
            let mut command = Command::new(&self.program);
            command
                .args(["yardstick", role, "--address", &address])
                .args(["--cpu", &cpus[machine].to_string()])
                .args(["--transactions", &point.transactions.to_string()])
                .args(["--block-size", &point.block_size.to_string()])
                .args(["--blocks", &point.block_count().to_string()])
                .args(["--operations", &operations.to_string()]);
            Process::spawn(role, network.place(machine, command))
        };
        let server = start(1, "server")?;
        let deadline = Instant::now() + TIMEOUT;
        let stdout = start(0, "client")?.finish(deadline, || false)?;
        server.finish(deadline, || false)?;
        figures("the client of a bare connection", point, stdout)
    }

    /// memcpy between memories of the sizes that a deployment has at this point.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn copy(&self, point: Point, time: Duration) -> Result<Figures, Error> {
        let slots = (point.transactions * point.workers) as usize;
        let blocks = point.block_count() as usize;
        // Writes copy in the other direction: from the initiator's blocks to the storage.
        let (from, to) = match point.operation {
            Operation::Write => (slots, blocks),
            Operation::Read | Operation::RecoveryRead => (blocks, slots),
        };
        let bandwidth = yardstick::copy_bandwidth(point.block_size as usize, from, to, time)?;
        let rate = bandwidth / f64::from(point.block_size);
        Ok(Figures::of_rate(rate, point.block_size))
    }

    /// Latency of waking a thread on another, idle CPU.
    ///
    /// # Errors
    ///
    /// There is no such CPU.
    pub fn wake_up(&self, cpus: [usize; 2]) -> Result<Figures, Error> {
        // The same duration as the pause of a deployment: the longer a CPU has slept, the longer its wake-up takes.
        let latency = yardstick::wake_up_latency(cpus, PAUSE)?;
        Ok(Figures {
            wake_up_ns: Some(latency.as_nanos() as f64),
            ..Figures::without_rate()
        })
    }
}

/// Parses the figures that a yardstick has printed.
fn figures(program: &'static str, point: Point, stdout: String) -> Result<Figures, Error> {
    let measured: Measured = serde_json::from_str(&stdout).map_err(|_| Error::Output {
        program,
        expected: "its figures as JSON",
        got: stdout,
    })?;
    Ok(Figures {
        latency: Some(Latency {
            p50_ns: measured.p50_ns as f64,
            p99_ns: measured.p99_ns as f64,
            p99_9_ns: measured.p99_9_ns as f64,
            distribution: None,
        }),
        ..Figures::of_rate(measured.rate, point.block_size)
    })
}
