//! A volume: owner of its control thread and, until they are taken, its queues.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use doca::Device;
use role_common::shutdown::Shutdown;

use crate::config::{Capabilities, CloseError, Config, OpenError};
use crate::control::{Control, Opened, Storage};
use crate::queue::Queue;
use crate::range_lock::RangeLocks;
use crate::seat::{Seat, Shared};

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
        let seats: std::io::Result<Vec<_>> = (0..config.queues)
            .map(|_| Seat::new().map(Arc::new))
            .collect();
        let shared = Arc::new(Shared {
            seats: seats?,
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
