//! How the two ends come to be: descriptors that go from process to process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::kernel::EventFd;
use super::layout::Geometry;
use super::mapping::Mapping;
use super::{RingConsumer, RingProducer};
use crate::error::Result;

impl RingConsumer {
    /// Creates a ring.
    pub(crate) fn create(geometry: Geometry) -> Result<Self> {
        Ok(Self::over(Arc::new(Mapping::create(geometry)?)))
    }

    /// The file descriptor to hand to the producer.
    pub(crate) fn memfd(&self) -> BorrowedFd<'_> {
        self.mapping().memfd()
    }

    /// Learns how to wake the producer.
    pub(crate) fn set_producer(&mut self, wake: OwnedFd) -> Result<()> {
        self.attach(EventFd::from_peer(wake)?);
        Ok(())
    }
}

impl RingProducer {
    /// Opens the ring that a peer created; `wake` is the eventfd of the peer's progress engine.
    pub(crate) fn open(memfd: OwnedFd, wake: EventFd) -> Result<Self> {
        Ok(Self::over(Arc::new(Mapping::open(memfd)?), wake))
    }
}
