//! The program: its flags; opens the storage, listens, and serves until a signal.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use control::Failure;
use control::network::UnixServer;
use doca::ErrorCode;
use metrics::Count;
use role_common::application::Environment;
use role_common::console::counted;
use role_common::flags::{self, FrontEndFlags, GeneralFlags, OutputFlags, RoleFlags};
use volume::{CloseError, Config, Service, Volume};

use crate::device::{Device, ID_BYTES};
use crate::server::{BACKLOG, serve};
use crate::worker::Worker;

/// Maximum number of virtqueues: QEMU's limit.
const MAX_QUEUES: u32 = 256;

const EXAMPLES: &str = "Examples:
  A disk with two virtqueues. The service needs as many workers:
    doca-storage vhost-user-blk -d 3b:00.0 --queues 2 --socket /run/user/1000/disk

  Two services of the same targets: when the session with one fails, or it does not answer for 2 s, the other one is used:
    doca-storage vhost-user-blk -d 3b:00.0 --command-channel-name a -d 3b:00.0 --command-channel-name b --io-timeout 2 \\
        --socket /run/user/1000/disk

  A QEMU guest with it; its memory has to be shared:
    qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=memory,size=1G,share=on -numa node,memdev=memory \\
        -chardev socket,id=disk,path=/run/user/1000/disk,reconnect=1 \\
        -device vhost-user-blk-pci,chardev=disk,num-queues=2

  A cloud-hypervisor guest:
    cloud-hypervisor --memory size=1G,shared=on --disk vhost_user=true,socket=/run/user/1000/disk,num_queues=2 ...

  Without a guest, by a QEMU with libblkio:
    qemu-img bench --image-opts driver=virtio-blk-vhost-user,path=/run/user/1000/disk,cache.direct=on";

/// Serves a storage as a disk of virtual machines.
#[derive(Clone, Debug, Parser)]
#[command(about = "Serve a storage as a disk of virtual machines (vhost-user-blk)", after_help = EXAMPLES)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// Services of the storage, and timeouts.
    #[command(flatten)]
    pub storage: FrontEndFlags,

    /// Listen at a Unix socket with this path and mode 0600. A socket left by a back end that was killed is replaced
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,

    /// Virtqueues, each with a thread and a queue of the storage, 1 to 256
    #[arg(long, value_name = "N", default_value = "1", value_parser = queues)]
    pub queues: u32,

    /// CPU core that the thread of a virtqueue runs on; give it once for each virtqueue, or not at all
    #[arg(long, value_name = "CPU", value_parser = flags::cpu)]
    pub cpu: Vec<u32>,

    /// Refuse writes
    #[arg(long)]
    pub read_only: bool,

    /// Flags for output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

fn queues(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=MAX_QUEUES).contains(count))
        .ok_or_else(|| format!("expected a number, 1 to {MAX_QUEUES}"))
}

impl RoleFlags for Flags {
    fn general(&self) -> &GeneralFlags {
        &self.general
    }

    fn output(&self) -> &OutputFlags {
        &self.output
    }

    fn cpu(&self) -> &[u32] {
        &self.cpu
    }

    fn check(&self) -> Result<(), Failure> {
        self.storage.services()?;
        if self.cpu.is_empty() || self.cpu.len() == self.queues as usize {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "--cpu: expected it once for each of {} virtqueues, or not at all, got {}",
            self.queues,
            self.cpu.len()
        )))
    }
}

/// Maximum number of I/Os in flight per queue.
const DEPTH: u32 = 128;

/// Time for requests in flight to complete when the program shuts down.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves the storage that the flags describe.
///
/// # Errors
/// The storage cannot be opened, the socket cannot be listened on, or the system is out of threads or file descriptors.
pub fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let system = |error: std::io::Error| {
        Failure::new(ErrorCode::OPERATING_SYSTEM, format!("vhost-user: {error}"))
    };
    let listener = UnixServer::bind(&flags.socket, BACKLOG)
        .map_err(|error| Failure::invalid(error.to_string()))?;
    let services = flags.storage.services()?;
    let id = identifier(services.first().map_or("", |(_, name)| name));
    let service = |(device, name)| Service { device, name };
    let mut volume = Volume::open(Config {
        services: services.into_iter().map(service).collect(),
        queues: flags.queues,
        depth: DEPTH,
        buffers: DEPTH,
        largest_transfer: crate::MAX_TRANSFER,
        control_timeout: flags.storage.control_timeout,
        io_timeout: flags.storage.io_timeout.0.unwrap_or_default(),
        reconnect_timeout: flags.storage.reconnect_timeout,
        read_only: flags.read_only,
        ..Config::default()
    })?;
    let device = Device {
        size: volume.size(),
        block_size: volume.block_size(),
        flush: volume.capabilities().flush,
        read_only: flags.read_only,
        queues: flags.queues as u16,
        id,
    };
    if !device.flush && !device.read_only {
        tracing::warn!(
            "the storage cannot flush: guests are not offered it, and a power failure may lose what they have written"
        );
    }
    environment.metrics.declare(&[Count::Failed], false);
    volume.publish_losses(&environment.metrics);
    let workers: std::io::Result<Vec<Worker>> = volume
        .take_queues()
        .into_iter()
        .enumerate()
        .map(|(index, mut queue)| {
            // Queues without a CPU are distinguished by their numbers.
            let core = flags.cpu.get(index).copied().unwrap_or(index as u32);
            if let Some(metrics) = environment.metrics.worker(core) {
                queue.publish_to(metrics);
            }
            Worker::spawn(index, queue, flags.cpu.get(index).copied())
        })
        .collect();
    let workers: Arc<[Worker]> = workers.map_err(system)?.into();
    environment.console.announce(format_args!(
        "Serving {} bytes with {} at {}",
        device.size,
        counted(device.queues.into(), "virtqueue"),
        flags.socket.display()
    ));
    let ending = serve(&listener, device, &workers, &environment.shutdown).map_err(system)?;
    drop(listener);
    // The virtqueues complete the requests that they have taken. If the storage is offline, this may take too long: in
    // this case, the remaining requests stay in the inflight region, and the next back end executes them.
    let deadline = Instant::now() + DRAIN;
    while !ending.is_over() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut closed = None;
    let mut volume = Some(volume);
    if !ending.is_over() {
        tracing::warn!(
            "requests are in flight after {} s: the next back end has to do them",
            DRAIN.as_secs()
        );
        closed = volume.take().map(Volume::close);
    }
    ending.join();
    // Queues are dropped before the volume.
    drop(workers);
    match closed.or_else(|| volume.map(Volume::close)) {
        // A service that disconnected first is not a failure of the back end.
        Some(Err(error @ CloseError::Session(_))) => {
            tracing::warn!("the session with the service was not closed in order: {error}");
            Ok(())
        }
        Some(Err(error)) => Err(Failure::new(
            ErrorCode::SHUTDOWN,
            format!("closing the volume: {error}"),
        )),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Device identifier: the channel's name of the first service, truncated.
fn identifier(name: &str) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    for (to, from) in id.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(further: &[&str]) -> Option<Flags> {
        let arguments = [&["program", "-d", "3b:00.0", "--socket", "disk"], further].concat();
        flags::read(crate::NAME, arguments.into_iter().map(Into::into)).ok()
    }

    #[test]
    fn defaults_are_one_writable_virtqueue() {
        let flags = flags(&[]).expect("flags");
        assert_eq!(
            (
                flags.queues,
                flags.read_only,
                flags.storage.reconnect_timeout
            ),
            (1, false, Duration::from_secs(60))
        );
        assert!(flags.check().is_ok());
    }

    #[test]
    fn queues_are_counted() {
        for count in ["0", "257", "-1", "x"] {
            assert!(flags(&["--queues", count]).is_none(), "{count}");
        }
        let cpu = (0..4096)
            .map(|cpu| cpu.to_string())
            .find(|cpu| flags::cpu(cpu).is_ok())
            .expect("a CPU");
        assert!(
            flags(&["--queues", "2", "--cpu", &cpu])
                .expect("flags")
                .check()
                .is_err()
        );
        assert!(
            flags(&["--queues", "2", "--cpu", &cpu, "--cpu", &cpu])
                .expect("flags")
                .check()
                .is_ok()
        );
    }
}
