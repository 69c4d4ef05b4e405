//! Single-producer, single-consumer message rings in shared memory.
//!
//! A ring carries messages of up to a few megabytes from one process to another without a system call while both sides
//! are awake. The consumer creates the ring (a memfd, sealed so that it cannot shrink under a reader) and passes it to
//! the producer together with an eventfd that wakes the consumer.
//!
//! * [`layout`] defines the layout of the shared memory and the format of descriptors.
//! * [`mapping`] owns the shared memory and is the only module with raw pointers into it.
//! * [`kernel`] contains the other system calls: eventfds, and barriers in other threads.
//! * [`producer`] and [`consumer`] are the two endpoints.
//! * [`biased_lock`] lets several producers of a process send into one ring.
//! * [`bell`] wakes an endpoint that sleeps; it makes no system call if the endpoint is awake.
//!
//! The files `layout`, `producer`, `consumer`, `bell` and `biased_lock` are also compiled in `tests/model`, with loom's
//! memory and a model of the kernel: of the standard library's atomics they use only
//! [`Ordering`](std::sync::atomic::Ordering) and compiler fences.
//!
//! # Trust
//!
//! The other endpoint is another process and may write anything at any time. Words are atomics, payloads are copied
//! with raw copies, every index is masked into the ring, and an invalid descriptor is reported as [`Corrupt`] instead
//! of being followed.

mod bell;
mod biased_lock;
mod consumer;
mod exclusion;
mod kernel;
mod layout;
mod mapping;
mod producer;
#[cfg(test)]
mod tests;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub(crate) use bell::barrier_before_sleep;
pub(crate) use biased_lock::BiasedLock;
pub(crate) use consumer::{Message, RingConsumer};
pub(crate) use kernel::EventFd;
pub(crate) use layout::Geometry;
pub(crate) use producer::RingProducer;

use self::mapping::Mapping;
use crate::error::Result;

/// The peer wrote something into the ring that no correct peer writes; the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the shared ring holds {found}, expected {expected}: the peer is faulty or of another version"
)]
pub(crate) struct Corrupt {
    pub expected: &'static str,
    pub found: u64,
}

impl RingConsumer {
    /// Creates a ring.
    pub(crate) fn create(geometry: Geometry) -> Result<Self> {
        Ok(Self::over(Arc::new(Mapping::create(geometry)?)))
    }

    /// The file descriptor to hand to the producer.
    pub(crate) fn memfd(&self) -> BorrowedFd<'_> {
        self.mapping().memfd()
    }

    /// Sets the eventfd that wakes the producer.
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
