//! Configuration of a volume, its capabilities, and errors of opening it.

use std::time::Duration;

use doca::ErrorCode;
use role_common::Failure;
use thiserror::Error;
use wire::release::Release;

use crate::session::SessionError;

/// Configuration of a volume. Most programs set [`device`](Self::device) and [`queues`](Self::queues), and leave the rest to [`Default`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The device that the service is behind, of this host: PCI address, IB device name or interface name.
    pub device: String,
    /// Name of the service's Comch server.
    pub service: String,
    /// Number of queues, one for each thread that does I/O. The service needs as many workers.
    pub queues: u32,
    /// I/Os that may be in flight in each queue, 1 to 8192.
    pub depth: u32,
    /// Buffers of each queue. With more than the depth, some can be filled, or sent elsewhere, while others are in flight. Memory that is
    /// never used takes no room.
    pub buffers: u32,
    /// Most bytes of a buffer, and so of one read or write, up to 1 GiB.
    pub largest_transfer: u32,
    /// How long each step of a session that depends on the service may take.
    pub control_timeout: Duration,
    /// How long a queue whose I/Os are in flight may get no answer before the session is given up, and another one begun; 0 for any time.
    /// Services have such a timeout for their targets, which should be shorter.
    pub io_timeout: Duration,
    /// How long I/Os wait for the service to come back before they fail with [`IoError::Disconnected`](crate::IoError::Disconnected).
    pub reconnect_timeout: Duration,
    /// The release of the reference whose messages the service speaks. Not 3.0, whose clients need memory of the storage's size.
    pub release: Release,
    /// Refuses writes.
    pub read_only: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device: "3b:00.0".to_owned(),
            service: "doca_storage_comch".to_owned(),
            queues: 1,
            depth: 64,
            buffers: 96,
            largest_transfer: 1 << 20,
            control_timeout: Duration::from_secs(5),
            io_timeout: Duration::from_secs(60),
            reconnect_timeout: Duration::from_secs(30),
            release: Release::default(),
            read_only: false,
        }
    }
}

/// Most I/Os in flight in a queue: what services allow if they are not told otherwise.
const MOST_DEPTH: u32 = 8192;
/// Largest transfer that can be configured.
const LARGEST_TRANSFER: u32 = 1 << 30;

impl Config {
    /// Checks the numbers.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let within = |what, value: u32, most: u32| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            Err(OpenError::Config(format!(
                "{what}: expected 1 to {most}, got {value}"
            )))
        };
        within("queues", self.queues, 1024)?;
        within("depth", self.depth, MOST_DEPTH)?;
        within("buffers", self.buffers, 1 << 16)?;
        within("largest_transfer", self.largest_transfer, LARGEST_TRANSFER)?;
        if self.release == Release::V3_0 {
            return Err(OpenError::Config(
                "release: expected 3.1 or later: in 3.0 each block has its own place in the client's memory".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Capabilities of the storage of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// [`Operation::Flush`](crate::Operation::Flush) makes completed writes durable. Without, they may be lost when a target's machine fails, and flushes are refused.
    pub flush: bool,
    /// Writes can be made durable one by one.
    pub fua: bool,
    /// Writes are refused, because the volume was [opened](Config::read_only) so.
    pub read_only: bool,
}

/// Why a volume could not be opened.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A value of the [`Config`] is out of its range.
    #[error("volume configuration: {0}")]
    Config(String),
    /// There is no such device.
    #[error("device {device}: {error}")]
    Device {
        /// [`Config::device`].
        device: String,
        /// Why it cannot be opened.
        error: doca::Error,
    },
    /// There is no service, or the session with it failed.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// The operating system has no thread, or no descriptors.
    #[error("threads and descriptors of the volume: {0}")]
    System(String),
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        Self::System(error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Session(error) => error.into(),
            OpenError::Config(_) => Self::invalid(error.to_string()),
            OpenError::Device { error: ref why, .. } => Self::new(why.code, error.to_string()),
            OpenError::System(_) => Self::new(ErrorCode::OPERATING_SYSTEM, error.to_string()),
        }
    }
}

/// Why a volume was not closed in order. It is closed nevertheless.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum CloseError {
    /// There was no session with the service, or it ended with an error. All I/Os whose completion was seen are done.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// A queue did not return its contexts: its thread neither polls nor has dropped it.
    #[error(
        "{count} queues are neither polled nor dropped; the session with the service was cut off"
    )]
    Queues {
        /// Number of such queues.
        count: usize,
    },
    /// The control thread has panicked.
    #[error("the control thread of the volume has panicked")]
    Panicked,
}
