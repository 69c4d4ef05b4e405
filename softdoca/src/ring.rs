//! Single-producer, single-consumer message rings in shared memory.
//!
//! One ring carries messages of up to a few megabytes from one process to another without a system call while both
//! sides are awake. The consumer creates the ring (a sealed memfd, so that nobody can shrink it under a reader) and
//! hands it to the producer with an eventfd that wakes the consumer.
//!
//! * [`layout`] says where everything lives in the shared memory and what a descriptor word holds.
//! * [`mapping`] owns the shared memory and is the only place with raw pointers into it.
//! * [`kernel`] is what else the kernel is asked for: eventfds, and barriers in other threads.
//! * [`producer`] and [`consumer`] are the two ends; [`handover`] makes them of descriptors.
//! * [`bell`] wakes an end that sleeps, and is silent towards one that is awake.
//!
//! The files `layout`, `producer`, `consumer` and `bell` are compiled a second time in `tests/model`, over memory and a kernel that loom
//! watches: they name nothing of the standard library's atomics but [`Ordering`](std::sync::atomic::Ordering).
//!
//! # Trust
//!
//! The other end is another process and may write anything at any time. Words are atomics, payloads are copied with
//! raw copies, every index is masked into the ring, and a descriptor that cannot be right is reported as
//! [`Corrupt`] instead of being followed.

mod bell;
mod consumer;
mod kernel;
mod layout;
mod mapping;
mod producer;
#[cfg(test)]
mod tests;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub(crate) use bell::barrier_before_sleep;
pub(crate) use consumer::{Message, RingConsumer};
pub(crate) use kernel::EventFd;
pub(crate) use layout::Geometry;
pub(crate) use producer::RingProducer;

use self::mapping::Mapping;
use crate::error::Result;

/// The peer wrote something into the ring that no correct peer writes; the connection must end.
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
