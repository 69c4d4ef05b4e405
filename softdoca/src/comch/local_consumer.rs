//! A consumer of this process, as seen by the connection's thread: a mailbox.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::ring::EventFd;

/// Passes the peer's frames about a consumer from the connection's thread to the consumer's.
#[derive(Debug)]
pub(super) struct LocalConsumer {
    id: u32,
    /// The eventfd of the consumer's engine.
    wake: Arc<EventFd>,
    has_mail: AtomicBool,
    /// Wakes the peer's producers.
    producer: Mutex<Option<OwnedFd>>,
}

impl LocalConsumer {
    pub(super) fn new(id: u32, wake: Arc<EventFd>) -> Arc<Self> {
        Arc::new(Self {
            id,
            wake,
            has_mail: AtomicBool::new(false),
            producer: Mutex::new(None),
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Stores the eventfd that wakes the peer's producers.
    pub(super) fn producer_attached(&self, wake: OwnedFd) {
        *self.producer.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
        self.has_mail.store(true, Ordering::Release);
        self.wake.ring();
    }

    /// Takes the descriptor passed to [`Self::producer_attached`]; `None` after the first call.
    pub(super) fn take_producer(&self) -> Option<OwnedFd> {
        if !self.has_mail.load(Ordering::Relaxed) {
            return None;
        }
        self.has_mail.store(false, Ordering::Relaxed);
        self.producer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
