//! What people would use instead: nbdkit's memory plugin, read by fio.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use conformance::process::Process;
use serde::Deserialize;

use crate::Error;
use crate::point::{Operation, Point};
use crate::series::{Figures, Latency};

/// Time beside the run itself.
const PATIENCE: Duration = Duration::from_secs(30);
/// fio rounds shorter times down to nothing.
const SHORTEST: Duration = Duration::from_secs(1);
/// The programs, and the Debian packages that have them.
const PROGRAMS: [&str; 2] = ["nbdkit", "fio"];

/// What is not installed, in words; nothing when all is.
pub fn missing() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |program: &&str| {
        std::env::split_paths(&path).any(|directory: PathBuf| directory.join(program).is_file())
    };
    let missing: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|program| !has(program))
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the comparison with NBD: expected {} to be installed (Debian packages of the same names)",
            missing.join(" and ")
        )
    })
}

#[derive(Deserialize)]
struct Document {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    iops: f64,
    bw_bytes: f64,
    clat_ns: Completion,
}

#[derive(Deserialize, Default)]
struct Completion {
    #[serde(default)]
    percentile: std::collections::BTreeMap<String, f64>,
}

/// One run of fio over a Unix socket, on a disk in nbdkit's memory of the same size as the storage at this point.
///
/// # Errors
///
/// One of the two does not do its part.
pub fn measure(point: Point, time: Duration, cpus: &[usize]) -> Result<Figures, Error> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("nbd.sock");
    let mut server = Command::new("nbdkit");
    server
        .args(["--foreground", "--newstyle", "--unix"])
        .arg(&socket)
        .args(["memory", &format!("size={}", point.capacity())]);
    let mut server = Process::spawn("nbdkit", server)?;
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() {
        if Instant::now() > deadline || server.has_ended() {
            return Err(server.failed("has not made its socket").into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let operation = match point.operation {
        Operation::Read | Operation::RecoveryRead => "read",
        Operation::Write => "write",
    };
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let job = |rw: &str, time: Option<Duration>| {
        let mut fio = Command::new("fio");
        fio.args(["--name=bench", "--ioengine=nbd", "--output-format=json"])
            .arg(format!("--uri={uri}"))
            .arg(format!("--rw={rw}"))
            .arg(format!("--bs={}", point.block_size))
            .arg(format!("--iodepth={}", point.transactions))
            .arg(format!("--size={}", point.capacity()))
            .arg(format!("--cpus_allowed={}", cpus[0]));
        if let Some(time) = time {
            fio.arg("--time_based")
                .arg(format!("--runtime={}ms", time.as_millis()));
        }
        Process::spawn("fio", fio)
    };
    // nbdkit's memory is sparse: what was never written is not even copied.
    let fill = job("write", None)?;
    fill.finish(Instant::now() + PATIENCE, || false)?;
    let stdout = job(operation, Some(time.max(SHORTEST)))?
        .finish(Instant::now() + time + PATIENCE, || false)?;
    let wrong = || Error::Output {
        program: "fio",
        expected: "its figures as JSON",
        got: stdout.clone(),
    };
    // Notes may stand before the document.
    let begin = stdout.find('{').ok_or_else(wrong)?;
    let document: Document = serde_json::from_str(&stdout[begin..]).map_err(|_| wrong())?;
    let job = document.jobs.into_iter().next().ok_or_else(wrong)?;
    let direction = if operation == "write" {
        job.write
    } else {
        job.read
    };
    let quantile = |name: &str| direction.clat_ns.percentile.get(name).copied();
    let latency = || {
        Some(Latency {
            p50_ns: quantile("50.000000")?,
            p99_ns: quantile("99.000000")?,
            p99_9_ns: quantile("99.900000")?,
            distribution: None,
        })
    };
    Ok(Figures {
        bandwidth: direction.bw_bytes,
        latency: latency(),
        ..Figures::of_rate(direction.iops, point.block_size)
    })
}
