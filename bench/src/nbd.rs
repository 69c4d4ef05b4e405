//! Comparison with the usual software: nbdkit's memory plugin under fio, and our NBD server in front of a deployment under the same load.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ::deployment::network::Network;
use ::deployment::process::Process;

use super::deployment::{self, Mix, wait_for_socket};
use super::fio::Times;
use super::point::{Operation, Point};
use super::series::Figures;
use super::{Error, fio};

/// Time limit beside the run itself.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Port of nbdkit on a machine of its own.
const TCP_PORT: u16 = 10_809;
/// fio rounds shorter times down to 0.
const SHORTEST: Duration = Duration::from_secs(1);
/// The programs, and the Debian packages that have them.
const PROGRAMS: [&str; 2] = ["nbdkit", "fio"];

/// Description of the missing programs; `None` if all are installed.
pub fn missing() -> Option<String> {
    let missing: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|program| !deployment::is_installed(program))
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the comparison with NBD: expected {} to be installed (Debian packages of the same names)",
            missing.join(" and ")
        )
    })
}

/// Compared workloads: 4 KiB random, 128 KiB sequential, with 64 I/Os in flight.
pub fn points() -> [Point; 4] {
    let point = |operation, block_size| Point {
        operation,
        block_size,
        ..Point::ZERO_COPY_READ
    };
    [
        point(Operation::Read, 4096),
        point(Operation::Write, 4096),
        point(Operation::Read, 128 << 10),
        point(Operation::Write, 128 << 10),
    ]
}

/// Runs fio over a Unix socket, on a disk in nbdkit's memory of the size of the storage at this point.
///
/// # Errors
///
/// nbdkit or fio could not be started, or failed.
pub fn measure(point: Point, time: Duration, cpus: &[usize]) -> Result<Figures, Error> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("nbd.sock");
    let mut server = Command::new("nbdkit");
    server
        .args(["--foreground", "--newstyle", "--unix"])
        .arg(&socket)
        .args(["memory", &format!("size={}", point.capacity())]);
    let server = Process::spawn("nbdkit", server)?;
    let server = wait_for_socket(server, &socket)?;
    let figures = load(&of_socket(&socket), point, time, cpus, |fio| fio);
    drop(server);
    figures
}

/// Runs fio on machine 0 on a disk in the memory of nbdkit on machine 1, over TCP.
///
/// # Errors
///
/// nbdkit or fio could not be started, or failed.
pub fn measure_over(
    network: &Network,
    point: Point,
    time: Duration,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let address = network.address(1);
    let mut server = Command::new("nbdkit");
    server
        .args(["--foreground", "--newstyle", "--ipaddr", &address])
        .args(["--port", &TCP_PORT.to_string()])
        .args(["memory", &format!("size={}", point.capacity())]);
    let server = Process::spawn("nbdkit", network.place(1, server))?;
    if let Err(why) = server.wait_until_listening(TCP_PORT, TIMEOUT, || false) {
        return Err(server.failed(&why.to_string()).into());
    }
    let uri = format!("nbd://{address}:{TCP_PORT}");
    let figures = load(&uri, point, time, cpus, |fio| network.place(0, fio));
    drop(server);
    figures
}

/// Runs fio in the same way on our NBD server, which `program` is with `nbd`, in front of a deployment.
///
/// # Errors
///
/// A process does not do its part.
pub fn measure_ours(
    program: &Path,
    mix: &Mix,
    point: Point,
    time: Duration,
    cpus: &[usize],
) -> Result<Figures, Error> {
    deployment::with_front_end(program, "nbd", mix, point, cpus, |socket| {
        load(&of_socket(socket), point, time, cpus, |fio| fio)
    })
}

fn of_socket(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

/// fio's figures: random I/O where blocks are of 4 KiB, else sequential. `place` chooses its machine.
fn load(
    uri: &str,
    point: Point,
    time: Duration,
    cpus: &[usize],
    place: impl Fn(Command) -> Command,
) -> Result<Figures, Error> {
    let is_write = point.operation == Operation::Write;
    let kind = match (is_write, point.block_size) {
        (false, 4096) => "randread",
        (true, 4096) => "randwrite",
        (false, _) => "read",
        (true, _) => "write",
    };
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
        Process::spawn("fio", place(fio))
    };
    // nbdkit's memory is sparse: what was never written is not even copied.
    let fill = job("write", None)?;
    fill.finish(Instant::now() + TIMEOUT, || false)?;
    let stdout =
        job(kind, Some(time.max(SHORTEST)))?.finish(Instant::now() + time + TIMEOUT, || false)?;
    fio::figures(&stdout, point, Times::Completion)
}
