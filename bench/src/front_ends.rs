//! Comparisons of our front ends with the usual software: our NBD server with nbdkit's memory plugin under fio, and our vhost-user-blk back end with
//! QEMU's export of a null disk under libblkio; each in front of a deployment, under the same load.

use std::mem::MaybeUninit;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ::deployment::network::Network;
use ::deployment::process::Process;
use blkio::{Blkio, Blkioq, Completion, ReqFlags};

use crate::deployment::{Mix, wait_for_socket};
use crate::file::Times;
use crate::series::{Figures, Operation, Point};
use crate::{Error, deployment, file};

/// Time allowed in addition to the duration of the run.
const EXTRA_TIME: Duration = Duration::from_secs(30);
/// Port of nbdkit, which runs on a separate machine.
const TCP_PORT: u16 = 10_809;
/// fio rounds shorter times down to 0.
const SHORTEST: Duration = Duration::from_secs(1);
/// The required programs, and the Debian packages that contain them.
const PROGRAMS: [&str; 2] = ["nbdkit", "fio"];

/// Description of the missing programs; `None` if all are installed.
pub fn nbdkit_missing() -> Option<String> {
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
pub fn nbd_points() -> [Point; 4] {
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

/// Runs fio over a Unix socket against nbdkit's memory plugin, with a disk as large as the storage at this point.
///
/// # Errors
///
/// nbdkit or fio could not be started, or failed.
pub fn measure_nbdkit(point: Point, time: Duration, cpus: &[usize]) -> Result<Figures, Error> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("nbd.sock");
    let mut server = Command::new("nbdkit");
    server
        .args(["--foreground", "--newstyle", "--unix"])
        .arg(&socket)
        .args(["memory", &format!("size={}", point.capacity())]);
    let server = Process::spawn("nbdkit", server)?;
    let server = wait_for_socket(server, &socket)?;
    let figures = load_nbd(&of_socket(&socket), point, time, cpus, |fio| fio);
    drop(server);
    figures
}

/// Runs fio on machine 0 on a disk in the memory of nbdkit on machine 1, over TCP.
///
/// # Errors
///
/// nbdkit or fio could not be started, or failed.
pub fn measure_nbdkit_over(
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
    if let Err(why) = server.wait_until_listening(TCP_PORT, EXTRA_TIME, || false) {
        return Err(server.failed(&why.to_string()).into());
    }
    let uri = format!("nbd://{address}:{TCP_PORT}");
    let figures = load_nbd(&uri, point, time, cpus, |fio| network.place(0, fio));
    drop(server);
    figures
}

/// Runs fio in the same way on our NBD server, started as `program nbd`, in front of a deployment.
///
/// # Errors
///
/// A process cannot be started or has failed.
pub fn measure_nbd(
    program: &Path,
    mix: &Mix,
    point: Point,
    time: Duration,
    cpus: &[usize],
) -> Result<Figures, Error> {
    deployment::with_front_end(program, "nbd", mix, point, cpus, |socket| {
        load_nbd(&of_socket(socket), point, time, cpus, |fio| fio)
    })
}

fn of_socket(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

/// fio's figures: random I/O where blocks are of 4 KiB, else sequential. `place` chooses its machine.
fn load_nbd(
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
    // nbdkit's memory is sparse: without this write, reads would not even copy data.
    let fill = job("write", None)?;
    fill.finish(Instant::now() + EXTRA_TIME, || false)?;
    let stdout = job(kind, Some(time.max(SHORTEST)))?
        .finish(Instant::now() + time + EXTRA_TIME, || false)?;
    file::fio_figures(&stdout, point, Times::Completion)
}

// Disks of virtual machines by vhost-user-blk.

/// QEMU's program that exports disks, in Debian's package qemu-system-common.
const STORAGE_DAEMON: &str = "qemu-storage-daemon";
/// Time limit for the first completion, and for each further one.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(30);
/// Completions between two readings of the clock.
const BATCH: usize = 64;

/// Description of the missing program; `None` if it is installed.
pub fn storage_daemon_missing() -> Option<String> {
    (!deployment::is_installed(STORAGE_DAEMON)).then(|| {
        format!(
            "the comparison with vhost-user-blk: expected {STORAGE_DAEMON} to be installed (Debian package qemu-system-common)"
        )
    })
}

/// Compared workloads: 4 KiB random, with 64 I/Os in flight. With larger I/Os, the comparison would be between copying
/// and not copying the data.
pub fn vhost_user_blk_points() -> [Point; 2] {
    [Operation::Read, Operation::Write].map(|operation| Point {
        operation,
        ..Point::ZERO_COPY_READ
    })
}

/// Loads a disk of qemu-storage-daemon that has no content: its requests are completed without a transfer of data.
///
/// # Errors
///
/// The program cannot be started or has failed, or an I/O fails.
pub fn measure_storage_daemon(
    point: Point,
    time: Duration,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("disk.sock");
    let mut server = Command::new("taskset");
    server
        .args(["-c", &cpus[1 % cpus.len()].to_string(), STORAGE_DAEMON])
        .arg("--blockdev")
        .arg(format!(
            "driver=null-co,node-name=disk,size={},read-zeroes=off",
            point.capacity()
        ))
        .arg("--export")
        .arg(format!(
            "type=vhost-user-blk,id=export,node-name=disk,writable=on,addr.type=unix,addr.path={}",
            socket.display()
        ));
    let server = Process::spawn(STORAGE_DAEMON, server)?;
    let server = wait_for_socket(server, &socket)?;
    let figures = load_vhost_user_blk(&socket, point, time, cpus);
    drop(server);
    figures
}

/// Loads our back end in the same way, started as `program vhost-user-blk`, in front of a deployment.
///
/// # Errors
///
/// A process cannot be started or has failed, or an I/O fails.
pub fn measure_vhost_user_blk(
    program: &Path,
    mix: &Mix,
    point: Point,
    time: Duration,
    cpus: &[usize],
) -> Result<Figures, Error> {
    deployment::with_front_end(program, "vhost-user-blk", mix, point, cpus, |socket| {
        load_vhost_user_blk(socket, point, time, cpus)
    })
}

/// Runs the client, on a separate thread that is bound to the first CPU.
fn load_vhost_user_blk(
    socket: &Path,
    point: Point,
    time: Duration,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let cpu = cpus[0];
    let run = || {
        yardstick::pin(cpu)?;
        let rate = random_ios(socket, point, time)?;
        Ok(Figures::of_rate(rate, point.block_size))
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: blkio::Error) -> Error {
    std::io::Error::other(format!("libblkio: {}", error.message())).into()
}

/// Rate of I/Os at random offsets, each with its own memory.
fn random_ios(socket: &Path, point: Point, time: Duration) -> Result<f64, Error> {
    let mut blkio = Blkio::new("virtio-blk-vhost-user").map_err(failed)?;
    let path = socket.to_string_lossy();
    blkio.set_str("path", &path).map_err(failed)?;
    // The socket may exist before the server listens on it.
    let deadline = Instant::now() + COMPLETION_TIMEOUT;
    while let Err(error) = blkio.connect() {
        if Instant::now() > deadline {
            return Err(failed(error));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    blkio.set_i32("num-queues", 1).map_err(failed)?;
    let mut queues = blkio.start().map_err(failed)?.queues;
    let depth = point.transactions as usize;
    let len = depth * point.block_size as usize;
    let memory = blkio.alloc_mem_region(len).map_err(failed)?;
    blkio.map_mem_region(&memory).map_err(failed)?;
    let mut client = Client {
        queue: &mut queues[0],
        memory: memory.addr as *mut u8,
        point,
        random: fastrand::Rng::with_seed(1),
        idle: (0..depth).collect(),
    };
    // Runs until both ends are awake, before the measurement.
    client.run(BATCH)?;
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < time {
        count += client.run(BATCH)?;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    while client.idle.len() < depth {
        client.reap()?;
    }
    Ok(rate)
}

struct Client<'a> {
    queue: &'a mut Blkioq,
    /// A block for each I/O.
    memory: *mut u8,
    point: Point,
    random: fastrand::Rng,
    /// I/Os that are not in flight.
    idle: Vec<usize>,
}

impl Client<'_> {
    /// Keeps all I/Os in flight until at least `count` have completed, and returns the number of completed ones.
    fn run(&mut self, count: usize) -> Result<usize, Error> {
        let mut completed = 0;
        while completed < count {
            while let Some(io) = self.idle.pop() {
                self.submit(io);
            }
            completed += self.reap()?;
        }
        Ok(completed)
    }

    fn submit(&mut self, io: usize) {
        let size = self.point.block_size as usize;
        let block = self.random.u32(..self.point.block_count());
        let offset = u64::from(block) * u64::from(self.point.block_size);
        let (address, flags) = (self.memory.wrapping_add(io * size), ReqFlags::empty());
        if self.point.operation == Operation::Write {
            self.queue.write(offset, address, size, io, flags);
        } else {
            self.queue.read(offset, address, size, io, flags);
        }
    }

    /// Waits for at least one completion.
    fn reap(&mut self) -> Result<usize, Error> {
        let mut done = [const { MaybeUninit::<Completion>::uninit() }; BATCH];
        let mut timeout = COMPLETION_TIMEOUT;
        let count = self.queue.do_io(&mut done, 1, Some(&mut timeout), None);
        let count = count.map_err(failed)?;
        for completion in &done[..count] {
            // SAFETY: the call has initialised as many elements as it has returned.
            let completion = unsafe { completion.assume_init_ref() };
            if completion.ret != 0 {
                return Err(std::io::Error::from_raw_os_error(-completion.ret).into());
            }
            self.idle.push(completion.user_data);
        }
        Ok(count)
    }
}
