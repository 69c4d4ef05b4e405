//! Comparison with the usual software: QEMU's export of a null disk by vhost-user-blk under libblkio, and our back end in front of a deployment
//! under the same load.

use std::mem::MaybeUninit;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ::deployment::process::Process;
use blkio::{Blkio, Blkioq, Completion, ReqFlags};

use super::Error;
use super::deployment::{self, Mix, wait_for_socket};
use super::point::{Operation, Point};
use super::series::Figures;

/// QEMU's program that exports disks, in Debian's package qemu-system-common.
const STORAGE_DAEMON: &str = "qemu-storage-daemon";
/// Time for the first completion, and limit of a wait for further ones.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Completions between two readings of the clock.
const BATCH: usize = 64;

/// Description of the missing program; `None` if it is installed.
pub fn missing() -> Option<String> {
    (!deployment::is_installed(STORAGE_DAEMON)).then(|| {
        format!(
            "the comparison with vhost-user-blk: expected {STORAGE_DAEMON} to be installed (Debian package qemu-system-common)"
        )
    })
}

/// Compared workloads: 4 KiB random, with 64 I/Os in flight. Larger ones would compare a copy with none.
pub fn points() -> [Point; 2] {
    [Operation::Read, Operation::Write].map(|operation| Point {
        operation,
        ..Point::ZERO_COPY_READ
    })
}

/// Loads a disk of qemu-storage-daemon that has no content: its requests are completed without a transfer of data.
///
/// # Errors
///
/// The program does not do its part, or an I/O fails.
pub fn measure(point: Point, time: Duration, cpus: &[usize]) -> Result<Figures, Error> {
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
    let figures = load(&socket, point, time, cpus);
    drop(server);
    figures
}

/// Loads our back end in the same way, which `program` is with `vhost-user-blk`, in front of a deployment.
///
/// # Errors
///
/// A process does not do its part, or an I/O fails.
pub fn measure_ours(
    program: &Path,
    mix: &Mix,
    point: Point,
    time: Duration,
    cpus: &[usize],
) -> Result<Figures, Error> {
    deployment::with_front_end(program, "vhost-user-blk", mix, point, cpus, |socket| {
        load(socket, point, time, cpus)
    })
}

/// Runs the client, on a thread of its own that is bound to the first CPU.
fn load(socket: &Path, point: Point, time: Duration, cpus: &[usize]) -> Result<Figures, Error> {
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

/// Rate of I/Os at random offsets, each with memory of its own.
fn random_ios(socket: &Path, point: Point, time: Duration) -> Result<f64, Error> {
    let mut blkio = Blkio::new("virtio-blk-vhost-user").map_err(failed)?;
    let path = socket.to_string_lossy();
    blkio.set_str("path", &path).map_err(failed)?;
    // Its socket may exist before the server listens.
    let deadline = Instant::now() + TIMEOUT;
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
    // Until both ends are awake.
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
    /// Has all I/Os in flight until this many more have completed, and returns how many have.
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
        let mut timeout = TIMEOUT;
        let count = self.queue.do_io(&mut done, 1, Some(&mut timeout), None);
        let count = count.map_err(failed)?;
        for completion in &done[..count] {
            // SAFETY: the call has initialised as many as it has returned.
            let completion = unsafe { completion.assume_init_ref() };
            if completion.ret != 0 {
                return Err(std::io::Error::from_raw_os_error(-completion.ret).into());
            }
            self.idle.push(completion.user_data);
        }
        Ok(count)
    }
}
