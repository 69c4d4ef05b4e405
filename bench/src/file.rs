//! Blocks in a file on a disk: a deployment whose target stores its blocks in the file, compared with fio's io_uring
//! engine with direct I/O on the same file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::process::Process;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::deployment::{Mix, measure_file};
use crate::series::{Figures, Latency, Operation, Point};

/// Block size of the file in bytes.
pub const BLOCK_SIZE: u32 = 4096;
/// Number of blocks of the file: 512 MiB.
pub const BLOCK_COUNT: u32 = 128 << 10;
/// Offset of the first block in the file in bytes.
const CONTENT_OFFSET: u32 = 64 << 10;
/// Time limit in addition to the run itself.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A workload on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Work {
    /// Operation, size and depth: random I/O if an I/O is one block, otherwise sequential.
    pub point: Point,
    /// Flush every write before the next one; the reported latency is that of the flushes.
    pub flush: bool,
}

impl Work {
    pub fn all() -> [Self; 5] {
        let point = |operation, block_size| Self {
            point: Point {
                operation,
                block_size,
                ..Point::ZERO_COPY_READ
            },
            flush: false,
        };
        let single = Point {
            operation: Operation::Write,
            transactions: 1,
            ..Point::ZERO_COPY_READ
        };
        [
            point(Operation::Read, BLOCK_SIZE),
            point(Operation::Write, BLOCK_SIZE),
            point(Operation::Read, 128 << 10),
            point(Operation::Write, 128 << 10),
            Self {
                point: single,
                flush: true,
            },
        ]
    }

    fn is_scattered(self) -> bool {
        self.point.block_size == BLOCK_SIZE && !self.flush
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, flush } = self;
        let how = match (self.is_scattered(), flush) {
            (true, _) => "scattered",
            (false, true) => "with a flush each",
            (false, false) => "sequential",
        };
        write!(f, "file {point} {how}")
    }
}

/// Runs a deployment with its blocks in the file, which is created and filled if it does not exist.
///
/// # Errors
///
/// A role cannot be started, has failed, or has printed no figures.
pub fn deployment(
    mix: &Mix,
    file: &Path,
    work: Work,
    operations: u64,
    cpus: &[usize],
) -> Result<Figures, Error> {
    if !file.exists() {
        let point = Point {
            operation: Operation::Write,
            block_size: 128 << 10,
            ..Point::ZERO_COPY_READ
        };
        let all = u64::from(BLOCK_COUNT) / u64::from(point.block_size / BLOCK_SIZE);
        measure_file(mix, point, all, cpus, (file, false))?;
    }
    measure_file(mix, work.point, operations, cpus, (file, work.flush))
}

/// Runs fio on the blocks of the file, for about `time`.
///
/// # Errors
///
/// fio is not installed, has failed, or has printed no figures.
pub fn fio(file: &Path, work: Work, time: Duration, cpus: &[usize]) -> Result<Figures, Error> {
    let Work { point, flush } = work;
    let is_write = point.operation == Operation::Write;
    let kind = match (is_write, work.is_scattered()) {
        (false, true) => "randread",
        (true, true) => "randwrite",
        (false, false) => "read",
        (true, false) => "write",
    };
    let size = u64::from(BLOCK_COUNT) * u64::from(BLOCK_SIZE);
    let cpus: Vec<_> = cpus.iter().map(ToString::to_string).collect();
    let mut fio = Command::new("fio");
    fio.args(["--name=bench", "--ioengine=io_uring", "--direct=1"])
        .args(["--fixedbufs=1", "--registerfiles=1", "--output-format=json"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--offset={CONTENT_OFFSET}"))
        .arg(format!("--size={size}"))
        .arg(format!("--rw={kind}"))
        .arg(format!("--bs={}", point.block_size))
        .arg(format!("--iodepth={}", point.transactions))
        .arg(format!("--cpus_allowed={}", cpus.join(",")))
        .arg("--time_based")
        // fio rounds times below a second down to 0.
        .arg(format!("--runtime={}ms", time.as_millis().max(1000)));
    if flush {
        fio.arg("--fdatasync=1");
    }
    let stdout = Process::spawn("fio", fio)?.finish(Instant::now() + time + TIMEOUT, || false)?;
    let times = if flush {
        Times::Sync
    } else {
        Times::Completion
    };
    fio_figures(&stdout, point, times)
}

/// Names of the missing programs, for a message; `None` if all are installed.
pub fn missing() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has =
        std::env::split_paths(&path).any(|directory: PathBuf| directory.join("fio").is_file());
    (!has).then(|| {
        "a file beside fio: expected fio to be installed (Debian's package has the same name)"
            .to_owned()
    })
}

// Parser of fio's JSON output.

/// Times reported as latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// From the submission of an I/O to its completion.
    Completion,
    /// From one sync between writes to the next.
    Sync,
}

#[derive(Deserialize)]
struct Document {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Direction,
    write: Direction,
    #[serde(default)]
    sync: Option<Sync>,
}

#[derive(Deserialize)]
struct Direction {
    iops: f64,
    bw_bytes: f64,
    clat_ns: Quantiles,
}

#[derive(Deserialize)]
struct Sync {
    lat_ns: Quantiles,
}

#[derive(Deserialize)]
struct Quantiles {
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

/// Figures of the single job in fio's JSON document.
///
/// # Errors
///
/// The output is not such a document.
pub(crate) fn fio_figures(stdout: &str, point: Point, times: Times) -> Result<Figures, Error> {
    let wrong = || Error::Output {
        program: "fio",
        expected: "its figures as JSON",
        got: stdout.to_owned(),
    };
    // Messages may precede the document.
    let begin = stdout.find('{').ok_or_else(wrong)?;
    let document: Document = serde_json::from_str(&stdout[begin..]).map_err(|_| wrong())?;
    let job = document.jobs.into_iter().next().ok_or_else(wrong)?;
    let direction = match point.operation {
        Operation::Read | Operation::RecoveryRead => job.read,
        Operation::Write => job.write,
    };
    let quantiles = match times {
        Times::Completion => Some(direction.clat_ns),
        Times::Sync => job.sync.map(|sync| sync.lat_ns),
    };
    let quantile = |name: &str| quantiles.as_ref()?.percentile.get(name).copied();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_taken_from_the_requested_direction_and_times() {
        let times = |p50: u32| {
            format!(
                r#"{{"percentile":{{"50.000000":{p50},"99.000000":{},"99.900000":{}}}}}"#,
                p50 + 1,
                p50 + 2
            )
        };
        let direction = |iops: u32| {
            let clat = times(iops * 10);
            format!(
                r#"{{"iops":{iops},"bw_bytes":{},"clat_ns":{clat}}}"#,
                iops * 4096
            )
        };
        let text = format!(
            r#"a note
            {{"jobs":[{{"read":{},"write":{},"sync":{{"lat_ns":{}}}}}]}}"#,
            direction(5),
            direction(7),
            times(900)
        );
        let read = Point::ZERO_COPY_READ;
        let write = Point {
            operation: Operation::Write,
            ..read
        };
        for (point, of, rate, p50) in [
            (read, Times::Completion, 5.0, 50.0),
            (write, Times::Completion, 7.0, 70.0),
            (write, Times::Sync, 7.0, 900.0),
        ] {
            let figures = fio_figures(&text, point, of).expect("figures");
            assert_eq!((figures.rate, figures.bandwidth), (rate, rate * 4096.0));
            assert_eq!(figures.latency.map(|it| it.p50_ns), Some(p50));
        }
        assert!(fio_figures("nothing", read, Times::Completion).is_err());
    }
}
