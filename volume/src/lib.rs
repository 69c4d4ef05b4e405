//! A block volume over a DOCA storage service: reads, writes, flushes, zeroing and discards of any byte range.
//!
//! A [`Volume`] is the initiator's side of the storage protocol: it connects to a service (`zero_copy` or
//! `gga_offload`) over Comch, exports memory, and maintains a session. Its [`Queue`]s do the I/O, one for each thread
//! and each worker of the service: I/Os are submitted with a tag and a [`Buffer`] of memory that the storage reads
//! and writes in place, and reaped in the order of their completion.
//!
//! ```no_run
//! use volume::{Config, Io, Operation, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut volume = Volume::open(Config { queues: 1, ..Config::default() })?;
//! let mut queue = volume.take_queues().remove(0);
//! let mut buffer = queue.buffer(4096).expect("nothing is in flight");
//! buffer.fill(7);
//! let write = Operation::Write { fua: volume.capabilities().fua };
//! queue.submit(Io { tag: 1, operation: write, offset: 0, len: 4096, buffer: Some(buffer) }).expect("nothing is in flight");
//! let mut done = 0;
//! while done == 0 {
//!     done = queue.poll(&mut |completion| println!("{}: {:?}", completion.tag, completion.result));
//! }
//! drop(queue);
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Queue::into_blocking`] provides blocking calls instead, and [`Queue::into_async`] provides futures. A thread that
//! also waits for sockets sleeps on [`Queue::descriptor`].
//!
//! # Guarantees
//!
//! * **Any range.** Whole blocks are transferred directly between the storage and the buffer. A write of a part of a block is a
//!   read-modify-write.
//! * **Order.** Overlapping I/Os, on any queues of one volume, are serialised: a read never returns a part of a
//!   write, and overlapping writes do not mix. The order of I/Os that are in flight at the same time is unspecified.
//!   Other volumes, and other initiators, of the same storage are not coordinated.
//! * **Durability.** When a [flush](Operation::Flush) has completed, all writes are durable whose completion was
//!   returned, by any queue, before the flush was submitted. If a storage cannot guarantee this, [`Capabilities`]
//!   reports it, and flushes fail.
//! * **Reconnection.** When the service disconnects, or does not answer for [`Config::io_timeout`], I/Os wait for the
//!   next session, with the next of [`Config::services`], and are sent again: they are idempotent, because their blocks
//!   remain locked. After
//!   [`Config::reconnect_timeout`], I/Os fail with [`IoError::Disconnected`] until a session is established. Another
//!   storage is refused ([`IoError::Replaced`]), as is a storage that is smaller than before, has another block size,
//!   or no longer supports flush ([`IoError::Changed`]): I/Os fail until the former storage is available again. A
//!   target of this project that keeps its blocks in memory is a different storage in every process; the reference's
//!   targets have no identity, and are accepted.
//! * **Lost writes.** A storage may lose unflushed writes if its machine loses power, or if a sync fails. If it had
//!   acknowledged writes that were not covered by a flush, the next flush of each queue fails with
//!   [`IoError::LostWrites`] (write verifiers, as in NFS). Restarting only a target's process loses no writes.
//! * **Cost.** An I/O of whole blocks takes no allocation, no mutex and, while the queue is polled and the storage
//!   busy, no system call: two atomic operations for each of its blocks, a message, and its answer.
//!
//! # Structure
//!
//! The control thread drives [`session`], a state machine without I/O, and creates an [`endpoint`] in each session for
//! each queue: its contexts, and submission and completion of its requests. A second state machine determines the
//! requests of a queue and their order; it is tested with events in random order against an array of bytes.
//!
//! Programs that must not wait for an unavailable service, or that manage the memory for blocks themselves, use session
//! and endpoints without a volume, as the initiator does.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod adapters;
mod block;
mod buffer;
mod control;
pub mod endpoint;
mod engine;
mod failover;
mod link;
mod queue;
mod range_lock;
pub mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unflushed;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ::control::Failure;
use ::control::shutdown::Shutdown;
use doca::{Device, ErrorCode};
use metrics::Metrics;
use thiserror::Error;

use crate::control::{Control, Opened, Storage};
use crate::link::{QueueState, Shared};
use crate::range_lock::RangeLocks;
use crate::session::SessionError;

pub use adapters::{AsyncQueue, BlockingQueue};
pub use block::{BlockQueue, ErrorLog};
pub use buffer::Buffer;
pub use engine::{IoError, Operation};
pub use queue::{Completion, Io, Queue};
pub use unflushed::WriteLosses;
pub use wire::release::Release;

/// A storage as an array of bytes.
///
/// It owns the control thread, which runs the session with the service, and starts a new session after a disconnection.
/// The [`Queue`]s perform the I/O. Dropping a volume closes it, as [`close`](Self::close) does.
#[derive(Debug)]
pub struct Volume {
    shared: Arc<Shared>,
    storage: Storage,
    read_only: bool,
    /// Queues that have not been taken. In a mutex, because a queue is not `Sync`.
    queues: Mutex<Vec<Queue>>,
    thread: Option<JoinHandle<Result<(), CloseError>>>,
}

impl Volume {
    /// Opens the storage of a service. Blocks until the session is running: at most [`Config::control_timeout`] for
    /// the connection, and for each step.
    ///
    /// # Errors
    /// The service does not exist or refuses the session, or this process lacks memory or threads.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        config.check()?;
        let device = match config.services.as_slice() {
            [service] => Some(service.open_device()?),
            // A device may be missing: see `Control`.
            _ => None,
        };
        let shutdown = Shutdown::new()?;
        let ios = config.depth as usize * config.queues as usize;
        let queues: std::io::Result<Vec<_>> = (0..config.queues)
            .map(|_| QueueState::new().map(Arc::new))
            .collect();
        let shared = Arc::new(Shared {
            queues: queues?,
            locks: Arc::new(RangeLocks::new(ios)),
            unflushed: Arc::default(),
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

    /// Publishes the number of losses of acknowledged writes.
    pub fn publish_losses(&self, metrics: &Metrics) {
        let unflushed = Arc::clone(&self.shared.unflushed);
        metrics.add_section(move |page| {
            let help = "Times that the storage has lost acknowledged writes which no flush had covered; the next flush of each client failed";
            page.counter("doca_storage_write_losses_total", help, unflushed.count())
        });
    }

    /// Takes the queues: [`Config::queues`] of them in the first call, none in later calls.
    pub fn take_queues(&mut self) -> Vec<Queue> {
        let queues = self.queues.get_mut();
        std::mem::take(queues.unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the session with the service. I/Os in flight are completed if their queues are polled; later ones fail with
    /// [`IoError::Closed`]. Does not flush.
    ///
    /// Drop the queues before, or continue to poll them on their threads during this call.
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

/// Address of a storage service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Device of this host that the service is reached through: PCI address, IB device name or interface name.
    pub device: String,
    /// Name of the service's Comch server.
    pub name: String,
}

impl Service {
    fn open_device(&self) -> Result<Device, OpenError> {
        Device::open(&self.device).map_err(|error| OpenError::Device {
            device: self.device.clone(),
            error,
        })
    }
}

impl Default for Service {
    fn default() -> Self {
        Self {
            device: "3b:00.0".to_owned(),
            name: "doca_storage_comch".to_owned(),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" on device {}", self.name, self.device)
    }
}

/// Configuration of a volume. Most programs set [`services`](Self::services) and [`queues`](Self::queues), and use
/// [`Default`] for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Services of the storage, in order of preference; at least one. The volume uses the first one that serves it. When
    /// a session fails, or cannot be established, it continues with the next one, and after the last one with the first
    /// one.
    pub services: Vec<Service>,
    /// Number of queues, one per thread that does I/O. The service must have at least as many workers.
    pub queues: u32,
    /// Maximum number of I/Os in flight per queue, 1 to 8192.
    pub depth: u32,
    /// Number of buffers of each queue. If it exceeds the depth, some buffers can be filled, or sent elsewhere, while
    /// others are in flight. Unused buffers take no physical memory.
    pub buffers: u32,
    /// Size of a buffer, and so maximum size of a read or write, in bytes: at most 1 GiB.
    pub largest_transfer: u32,
    /// Timeout of each step of a session that depends on the service. With several services, each has 1 s for the
    /// connection in the first round, 2 s in the second, then 4 s, up to this timeout.
    pub control_timeout: Duration,
    /// Timeout of a queue with I/Os in flight that receives no answer: the session is then abandoned, and another one
    /// started. 0 disables the timeout. Services have such a timeout for their targets, which should be shorter.
    pub io_timeout: Duration,
    /// Maximum time for which I/Os wait for a new session before they fail with
    /// [`IoError::Disconnected`].
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
            services: vec![Service::default()],
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
        if self.services.is_empty() {
            return Err(OpenError::Config(
                "services: expected at least one, got none".to_owned(),
            ));
        }
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
    /// [`Operation::Flush`] makes completed writes durable. If `false`, they may be lost
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
    /// The device does not exist.
    #[error("device {device}: {error}")]
    Device {
        /// Value of [`Service::device`].
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
    /// There was no session, or it ended with an error. I/Os whose completion has been returned are not affected.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// A queue did not return its contexts: its thread neither polls nor has dropped it.
    #[error(
        "{count} queues are neither polled nor dropped; the session with the service was cut off"
    )]
    Queues {
        /// Number of queues that did not return their contexts.
        count: usize,
    },
    /// The control thread has panicked.
    #[error("the control thread of the volume has panicked")]
    Panicked,
}
