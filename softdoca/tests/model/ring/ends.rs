//! Both endpoints of a ring in one model, and a program that uses them.

use std::sync::Arc;

use softdoca::error::Error;

use super::kernel::EventFd;
use super::layout::Geometry;
use super::mapping::Mapping;
use super::{RingConsumer, RingProducer};

/// A new ring with these numbers of slots and payload units. The eventfd wakes the consumer.
pub(crate) fn pair(
    slots: u64,
    units: u64,
    consumer_wake: &EventFd,
) -> (RingProducer, RingConsumer) {
    let geometry = Geometry::from_counts(slots, units).expect("powers of two");
    let mapping = Arc::new(Mapping::create(geometry));
    let consumer = RingConsumer::over(Arc::clone(&mapping));
    let producer = RingProducer::over(mapping, consumer_wake.duplicate());
    (producer, consumer)
}

/// An endpoint that can sleep.
pub(crate) trait End {
    fn arm(&self);
    fn disarm(&self);
}

impl End for RingProducer {
    fn arm(&self) {
        Self::arm(self);
    }

    fn disarm(&self) {
        Self::disarm(self);
    }
}

impl End for RingConsumer {
    fn arm(&self) {
        Self::arm(self);
    }

    fn disarm(&self) {
        Self::disarm(self);
    }
}

impl RingProducer {
    /// Sends `data`, in its slot or in payload units. Returns `false` if the ring is full.
    pub(crate) fn send(&mut self, data: &[u8]) -> bool {
        // SAFETY: a slice is readable for its length.
        match unsafe { self.push_run(data.as_ptr(), data.len()) } {
            Ok(()) => true,
            Err(Error::Again) => false,
            Err(error) => panic!("a message that fits: {error}"),
        }
    }
}

impl RingConsumer {
    /// Sets the eventfd that wakes the producer.
    pub(crate) fn learn(&mut self, producer_wake: &EventFd) {
        self.attach(producer_wake.duplicate());
    }

    /// Takes the next message, if there is one.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let message = self.peek().expect("the ring is sound")?;
        let mut data = vec![0; message.len()];
        // SAFETY: the vector is writable for its length.
        unsafe { self.read(&message, 0, data.as_mut_ptr(), data.len()) };
        self.advance(&message);
        Some(data)
    }
}
