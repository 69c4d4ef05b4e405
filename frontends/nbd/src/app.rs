//! Opens the storage, listens, and serves until a signal.

use std::sync::Arc;
use std::time::Duration;

use doca::ErrorCode;
use role_common::Failure;
use role_common::application::Environment;
use role_common::metrics::Count;
use volume::{CloseError, Config, Volume};

use crate::cli::Flags;
use crate::connection::Shared;
use crate::device::StorageQueue;
use crate::protocol::Export;
use crate::server::Server;
use crate::sockets::Listener;
use crate::transmission::{Limits, MAX_PAYLOAD};

/// Maximum number of I/Os in flight per queue.
const DEPTH: u32 = 128;

/// Buffers per queue: some are filled or sent while others are in flight.
const BUFFERS: u32 = 256;

/// Preferred block size announced to clients, in bytes, if the storage's block size is not a power of two or out of
/// the protocol's range.
const PREFERRED_BLOCK: u32 = 4096;

/// Serves the storage that the flags describe.
///
/// # Errors
///
/// The storage cannot be opened, an address cannot be listened at, or the server has failed.
pub fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let tls = flags.tls()?;
    let listeners = listen(&flags)?;
    let mut volume = Volume::open(Config {
        device: flags.device.clone(),
        service: flags.command_channel_name.clone(),
        queues: flags.cpu.len() as u32,
        depth: DEPTH,
        buffers: BUFFERS,
        largest_transfer: crate::MAX_SEGMENT,
        control_timeout: flags.control_timeout,
        reconnect_timeout: flags.reconnect_timeout,
        read_only: flags.read_only,
        ..Config::default()
    })?;
    let capabilities = volume.capabilities();
    let export = Export {
        name: flags.export.clone(),
        description: format!(
            "{} bytes behind {} of {}",
            volume.size(),
            flags.command_channel_name,
            flags.device
        ),
        size: volume.size(),
        preferred_block: preferred_block(volume.block_size()),
        max_payload: MAX_PAYLOAD,
        read_only: flags.read_only,
        flush: capabilities.flush,
    };
    let shared = Shared {
        export: Arc::new(export),
        native_fua: capabilities.fua,
        tls,
        handshake_timeout: (flags.client_timeout / 4).max(Duration::from_secs(1)),
        client_timeout: flags.client_timeout,
        limits: Limits::default(),
    };
    announce(&flags, &environment, &listeners, &shared);
    environment.metrics.declare(&[Count::Failed], false);
    let mut queues = volume.take_queues();
    for (queue, cpu) in queues.iter_mut().zip(&flags.cpu) {
        if let Some(metrics) = environment.metrics.worker(*cpu) {
            queue.publish_to(metrics);
        }
    }
    let queues = queues.into_iter().map(StorageQueue).collect();
    let system = |error: std::io::Error| {
        Failure::new(ErrorCode::OPERATING_SYSTEM, format!("NBD server: {error}"))
    };
    let server = Server::start(queues, &flags.cpu, shared, flags.max_connections as usize)
        .map_err(system)?;
    let served = server.serve(&listeners, &environment.shutdown);
    drop(listeners);
    let stopped = server.stop();
    // Queues are dropped before the volume.
    let queues = stopped.map(drop);
    let closed = volume.close();
    served.and(queues).map_err(system)?;
    match closed {
        Ok(()) => Ok(()),
        // A service that disconnected first is not a failure of the server.
        Err(error @ CloseError::Session(_)) => {
            tracing::warn!("the session was not closed in order: {error}");
            Ok(())
        }
        Err(error) => Err(Failure::new(
            ErrorCode::SHUTDOWN,
            format!("closing the volume: {error}"),
        )),
    }
}

fn listen(flags: &Flags) -> Result<Vec<Listener>, Failure> {
    let refused = |error: crate::sockets::ListenError| Failure::invalid(error.to_string());
    let mut listeners = Vec::new();
    if let Some(path) = &flags.socket {
        listeners.push(Listener::unix(path).map_err(refused)?);
    }
    if let Some(address) = &flags.listen {
        listeners.extend(Listener::tcp(address, flags.is_secure()).map_err(refused)?);
    }
    Ok(listeners)
}

/// Prints the URI of the export for each listening address.
fn announce(flags: &Flags, environment: &Environment, listeners: &[Listener], shared: &Shared) {
    let Export {
        size,
        flush,
        read_only,
        ..
    } = *shared.export;
    if !flush && !read_only {
        tracing::warn!(
            "the storage cannot flush: clients are not offered it, and a power failure may lose what they have written"
        );
    }
    for listener in listeners {
        let uri = listener.uri(&flags.export, shared.tls.is_some());
        environment
            .console
            .announce(format_args!("Serving {size} bytes at {uri}"));
    }
}

fn preferred_block(block_size: u32) -> u32 {
    let is_possible = block_size.is_power_of_two() && (512..=MAX_PAYLOAD).contains(&block_size);
    if is_possible {
        block_size
    } else {
        PREFERRED_BLOCK
    }
}
