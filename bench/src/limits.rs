//! Limits of the machine: yardsticks as processes, and the kernels of gga alone.

#[cfg(not(doca_sdk))]
pub(crate) mod engines;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::network::Network;
use deployment::process::Process;
use role_formats::stored_block::{Encoder, Geometry};
use serde::Serialize;
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

    /// A bare ring through three processes
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

    /// memcpy between buffers of the sizes that a deployment uses at this point.
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
    /// A CPU does not exist.
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

// Kernels of gga in isolation: compression, decompression and erasure coding of cached blocks, and the verification of
// blocks.
//
// Erasure coding is softdoca's own: a program that is linked to NVIDIA's SDK does not contain it, and does not measure it.

/// Throughput of a kernel, and its time per block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    /// Bytes of content per second.
    pub bandwidth: f64,
    pub block_ns: f64,
}

/// Calls `work` repeatedly for about `time`.
fn speed(block_size: usize, time: Duration, mut work: impl FnMut()) -> Speed {
    let started = Instant::now();
    let mut blocks = 0_u64;
    loop {
        // The clock is read once per 32 blocks.
        for _ in 0..32 {
            work();
        }
        blocks += 32;
        let passed = started.elapsed();
        if passed >= time {
            let block_ns = passed.as_nanos() as f64 / blocks as f64;
            return Speed {
                bandwidth: block_size as f64 * 1e9 / block_ns,
                block_ns,
            };
        }
    }
}

/// Erasure coding of two halves: creation of the parity, and recovery of a half from the other half and the parity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ErasureCoding {
    /// Parity from two halves.
    pub create: Speed,
    /// Recovery of a half from the other half and the parity.
    pub recover: Speed,
}

/// Compression and decompression of blocks as gga stores them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lz4 {
    /// From content to a stored block.
    pub compress: Speed,
    /// From LZ4 data to content.
    pub decompress: Speed,
}

/// LZ4 of blocks of the initiator's content; `None` if it does not compress.
pub fn lz4(content: &[u8], time: Duration) -> Option<Lz4> {
    let size = u32::try_from(content.len()).ok()?;
    let mut encoder = Encoder::new(Geometry::compatible(size));
    encoder.encode(content).ok()?;
    let compress = speed(content.len(), time, || {
        black_box(encoder.encode(black_box(content)).is_ok());
    });
    let compressed: Vec<Vec<u8>> = content
        .chunks(64 << 10)
        .map(lz4_flex::block::compress)
        .collect();
    let mut plain = vec![0; content.len()];
    let decompress = speed(content.len(), time, || {
        for (piece, to) in compressed.iter().zip(plain.chunks_mut(64 << 10)) {
            let len = lz4_flex::block::decompress_into(black_box(piece), to);
            assert_eq!(len.ok(), Some(to.len()), "what was compressed here");
        }
        black_box(&mut plain);
    });
    Some(Lz4 {
        compress,
        decompress,
    })
}
