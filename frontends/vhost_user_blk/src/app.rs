//! Opens the storage, listens, and serves until a signal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use role_common::Failure;
use role_common::application::Environment;
use role_common::metrics::Count;
use role_common::network::UnixServer;
use volume::{CloseError, Config, Volume};

use crate::cli::Flags;
use crate::device::{Device, ID_BYTES};
use crate::server::{BACKLOG, serve};
use crate::storage::VolumeQueue;
use crate::worker::Worker;

/// Maximum number of I/Os in flight per queue.
const DEPTH: u32 = 128;

/// Time for requests in flight to complete when the program shuts down.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves the storage that the flags describe.
///
/// # Errors
/// The storage cannot be opened, the socket cannot be listened at, or the system has no threads or descriptors.
pub fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let system = |error: std::io::Error| {
        Failure::new(ErrorCode::OPERATING_SYSTEM, format!("vhost-user: {error}"))
    };
    let listener = UnixServer::bind(&flags.socket, BACKLOG)
        .map_err(|error| Failure::invalid(error.to_string()))?;
    let mut volume = Volume::open(Config {
        device: flags.device.clone(),
        service: flags.command_channel_name.clone(),
        queues: flags.queues,
        depth: DEPTH,
        buffers: DEPTH,
        largest_transfer: crate::MAX_TRANSFER,
        control_timeout: flags.control_timeout,
        reconnect_timeout: flags.reconnect_timeout,
        read_only: flags.read_only,
        ..Config::default()
    })?;
    let device = Device {
        size: volume.size(),
        block_size: volume.block_size(),
        flush: volume.capabilities().flush,
        read_only: flags.read_only,
        queues: flags.queues as u16,
        id: identifier(&flags.command_channel_name),
    };
    if !device.flush && !device.read_only {
        tracing::warn!(
            "the storage cannot flush: guests are not offered it, and a power failure may lose what they have written"
        );
    }
    environment.metrics.declare(&[Count::Failed], false);
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
            Worker::spawn(index, VolumeQueue(queue), flags.cpu.get(index).copied())
        })
        .collect();
    let workers: Arc<[Worker]> = workers.map_err(system)?.into();
    environment.console.announce(format_args!(
        "Serving {} bytes with {} virtqueues at {}",
        device.size,
        device.queues,
        flags.socket.display()
    ));
    let ending = serve(&listener, device, &workers, &environment.shutdown).map_err(system)?;
    drop(listener);
    // The virtqueues complete the requests they have taken. If the storage is offline, that takes too long: the
    // remaining requests stay in the inflight region, and the next back end executes them.
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

/// Device identifier: the channel's name, truncated.
fn identifier(name: &str) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    for (to, from) in id.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    id
}
