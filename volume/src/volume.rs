//! A volume: owner of its control thread and, until they are taken, its queues.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use doca::{Device, ErrorCode};
use role_common::Failure;
use role_common::shutdown::Shutdown;
use thiserror::Error;
use wire::release::Release;

use crate::control::{Control, Opened, Storage};
use crate::link::{QueueState, Shared};
use crate::queue::Queue;
use crate::range_lock::RangeLocks;
use crate::session::SessionError;

/// A storage as an array of bytes.
///
/// It owns the control thread, which runs the session with the service and begins another one after a disconnection. The
/// [`Queue`]s do the I/O. Dropping a volume closes it, as [`close`](Self::close) does.
#[derive(Debug)]
pub struct Volume {
    shared: Arc<Shared>,
    storage: Storage,
    read_only: bool,
    /// Queues that were not taken. In a mutex, because a queue is not `Sync`.
    queues: Mutex<Vec<Queue>>,
    thread: Option<JoinHandle<Result<(), CloseError>>>,
}

impl Volume {
    /// Opens the storage of a service. Blocks until the session is running: at most [`Config::control_timeout`] for
    /// the connection, and for each step.
    ///
    /// # Errors
    /// There is no such service, it refuses the session, or this process lacks memory or threads.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        config.check()?;
        let device = Device::open(&config.device).map_err(|error| OpenError::Device {
            device: config.device.clone(),
            error,
        })?;
        let shutdown = Shutdown::new()?;
        let ios = config.depth as usize * config.queues as usize;
        let queues: std::io::Result<Vec<_>> = (0..config.queues)
            .map(|_| QueueState::new().map(Arc::new))
            .collect();
        let shared = Arc::new(Shared {
            queues: queues?,
            locks: Arc::new(RangeLocks::new(ios)),
            control: shutdown.waker().clone(),
            is_closing: AtomicBool::new(false),
        });
        let (sender, receiver) = sync_channel(1);
        let read_only = config.read_only;
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("volume".to_owned())
                .spawn(move || Control::new(config, device, shared, shutdown, sender).run())?
        };
        let opened = receiver.recv();
        let Opened { storage, queues } = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                let _ = thread.join();
                return Err(error);
            }
            Err(_) => {
                let panicked = "the control thread of the volume has panicked";
                return Err(OpenError::System(panicked.to_owned()));
            }
        };
        Ok(Self {
            shared,
            storage,
            read_only,
            queues: Mutex::new(queues),
            thread: Some(thread),
        })
    }

    /// Size in bytes. It does not change while the volume is open.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.storage.size
    }

    /// Block size of the storage in bytes. I/Os of whole blocks need no read-modify-write.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.storage.block_size
    }

    /// Capabilities of the storage.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            flush: self.storage.flush,
            fua: self.storage.flush,
            read_only: self.read_only,
        }
    }

    /// Takes the queues: [`Config::queues`] of them in the first call, none in later ones.
    pub fn take_queues(&mut self) -> Vec<Queue> {
        let queues = self.queues.get_mut();
        std::mem::take(queues.unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the session with the service. I/Os in flight are completed if their queues are polled; later ones fail with
    /// [`IoError::Closed`](crate::IoError::Closed). Does not flush.
    ///
    /// Drop the queues before, or continue to poll them on their threads meanwhile.
    ///
    /// # Errors
    /// The session ended with an error. The volume is closed nevertheless.
    pub fn close(mut self) -> Result<(), CloseError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), CloseError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.take_queues().clear();
        self.shared.is_closing.store(true, Ordering::Release);
        self.shared.control.wake();
        thread.join().unwrap_or(Err(CloseError::Panicked))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("a volume was not closed in order: {error}");
        }
    }
}

/// Configuration of a volume. Most programs set [`device`](Self::device) and [`queues`](Self::queues), and use
/// [`Default`] for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Device of this host that the service is reached through: PCI address, IB device name or interface name.
    pub device: String,
    /// Name of the service's Comch server.
    pub service: String,
    /// Number of queues, one per thread that does I/O. The service must have at least as many workers.
    pub queues: u32,
    /// Maximum number of I/Os in flight per queue, 1 to 8192.
    pub depth: u32,
    /// Number of buffers of each queue. If it exceeds the depth, some can be filled, or sent elsewhere, while others
    /// are in flight. Unused buffers take no physical memory.
    pub buffers: u32,
    /// Size of a buffer, and so maximum size of a read or write, in bytes: at most 1 GiB.
    pub largest_transfer: u32,
    /// Timeout of each step of a session that depends on the service.
    pub control_timeout: Duration,
    /// Timeout of a queue with I/Os in flight that receives no answer: the session is then abandoned, and another one
    /// begun. 0 disables it. Services have such a timeout for their targets, which should be shorter.
    pub io_timeout: Duration,
    /// Maximum time for which I/Os wait for a new session before they fail with
    /// [`IoError::Disconnected`](crate::IoError::Disconnected).
    pub reconnect_timeout: Duration,
    /// Release of the reference whose message format the service uses. 3.0 is not supported: its clients need memory
    /// of the storage's size.
    pub release: Release,
    /// Refuse writes.
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

/// Maximum depth of a queue: the default limit of services.
const MOST_DEPTH: u32 = 8192;
/// Largest transfer that can be configured, in bytes.
const LARGEST_TRANSFER: u32 = 1 << 30;

impl Config {
    /// Checks the ranges of the values.
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
    /// [`Operation::Flush`](crate::Operation::Flush) makes completed writes durable. If `false`, they may be lost
    /// when a target's machine fails, and flushes fail.
    pub flush: bool,
    /// Writes can be durable on completion.
    pub fua: bool,
    /// Writes fail, because the volume was [opened](Config::read_only) read-only.
    pub read_only: bool,
}

/// Error of opening a volume.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A value of the [`Config`] is out of its range.
    #[error("volume configuration: {0}")]
    Config(String),
    /// There is no such device.
    #[error("device {device}: {error}")]
    Device {
        /// Value of [`Config::device`].
        device: String,
        /// Error of opening the device.
        error: doca::Error,
    },
    /// No service was found, or the session failed.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// The operating system could not create a thread or a descriptor.
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

/// Error of closing a volume, which is closed nevertheless.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum CloseError {
    /// There was no session, or it ended with an error. I/Os whose completion was returned are not affected.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// A queue did not return its contexts: its thread does not poll it, and has not dropped it.
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
