//! A volume: its sessions' owner.

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

/// A storage as one array of bytes.
///
/// It owns the control thread, which has the session with the service, and begins another one when the service is lost. I/O is done by
/// the [`Queue`]s. Dropping it closes it, as [`close`](Self::close) does.
#[derive(Debug)]
pub struct Volume {
    shared: Arc<Shared>,
    storage: Storage,
    read_only: bool,
    /// Those that were not taken. A queue is not `Sync`.
    queues: Mutex<Vec<Queue>>,
    thread: Option<JoinHandle<Result<(), CloseError>>>,
}

impl Volume {
    /// Opens the storage behind a service. Waits until the session runs: at most [`Config::control_timeout`] for the service, and for each step.
    ///
    /// # Errors
    /// There is no such service, it refuses the session, or this side has no memory or threads for it.
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

    /// Size in bytes. It stays what it was when the volume was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.storage.size
    }

    /// Bytes of a block of the storage. I/Os of whole blocks need no further block to be read.
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

    /// The queues, [`Config::queues`] of them the first time, and none afterwards.
    pub fn take_queues(&mut self) -> Vec<Queue> {
        let queues = self.queues.get_mut();
        std::mem::take(queues.unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the session with the service. I/Os in flight are waited for, as far as their queues are polled; later ones fail with
    /// [`IoError::Closed`](crate::IoError::Closed). It does not flush.
    ///
    /// Drop the queues before, or go on to poll them in their threads meanwhile.
    ///
    /// # Errors
    /// The session did not end in order. The volume is closed nevertheless.
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
