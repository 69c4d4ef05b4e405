//! Comparison with the usual software: nbdkit's memory plugin, read by fio.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::process::Process;

use super::fio::Times;
use super::point::{Operation, Point};
use super::series::Figures;
use super::{Error, fio};

/// Time limit beside the run itself.
const PATIENCE: Duration = Duration::from_secs(30);
/// fio rounds shorter times down to 0.
const SHORTEST: Duration = Duration::from_secs(1);
/// The programs, and the Debian packages that have them.
const PROGRAMS: [&str; 2] = ["nbdkit", "fio"];

/// Programs that are not installed, in words; `None` if all are.
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

/// Runs fio over a Unix socket, on a disk in nbdkit's memory of the size of the storage at this point.
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
    let server = Process::spawn("nbdkit", server)?;
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
    fio::figures(&stdout, point, Times::Completion)
}
