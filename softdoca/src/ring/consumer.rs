//! The end of a ring that receives.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::Corrupt;
use super::bell::{Bell, EventFd};
use super::layout::{
    CONSUMED_AT, CONSUMER_CLOSED_AT, CONSUMER_SLEEPS_AT, Descriptor, Geometry, POSTED_AT,
    PRODUCER_CLOSED_AT, PRODUCER_SLEEPS_AT,
};
use super::mapping::Mapping;
use crate::error::Result;

/// The receiving end of a ring. One thread at a time uses it.
#[derive(Debug)]
pub(crate) struct RingConsumer {
    mapping: Arc<Mapping>,
    /// Wakes the producer when it waits for credits or room; known once a producer has attached.
    bell: Option<Arc<Bell>>,
    consumed: u64,
    posted: u64,
}

/// A fragment that has arrived: a token to read it and then let it go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    descriptor: Descriptor,
}

impl Message {
    /// Bytes of data in this fragment, immediate data excluded.
    pub(crate) fn len(&self) -> usize {
        self.descriptor.len
    }

    /// Bytes of immediate data; `None` when the message has none.
    pub(crate) fn immediate_len(&self) -> Option<usize> {
        self.descriptor.immediate
    }

    /// Another fragment of the same message follows.
    pub(crate) fn more(&self) -> bool {
        self.descriptor.more
    }
}

impl RingConsumer {
    /// Creates a ring.
    pub(crate) fn create(geometry: Geometry) -> Result<Self> {
        Ok(Self {
            mapping: Arc::new(Mapping::create(geometry)?),
            bell: None,
            consumed: 0,
            posted: 0,
        })
    }

    /// The file descriptor to hand to the producer.
    pub(crate) fn memfd(&self) -> BorrowedFd<'_> {
        self.mapping.memfd()
    }

    /// Learns how to wake the producer.
    pub(crate) fn set_producer(&mut self, wake: OwnedFd) -> Result<()> {
        let wake = EventFd::from_peer(wake)?;
        self.bell = Some(Bell::new(
            Arc::clone(&self.mapping),
            PRODUCER_SLEEPS_AT,
            wake,
        ));
        // It may sleep since before its eventfd was known here.
        self.wake_producer();
        Ok(())
    }

    /// Gives the producer `count` more receives.
    pub(crate) fn post(&mut self, count: u64) {
        self.posted = self.posted.wrapping_add(count);
        self.mapping
            .word(POSTED_AT)
            .store(self.posted, Ordering::Release);
        self.wake_producer();
    }

    /// The next fragment, if it has arrived. It stays until [`advance`](Self::advance).
    pub(crate) fn peek(&self) -> std::result::Result<Option<Message>, Corrupt> {
        let geometry = self.mapping.geometry();
        let word = self
            .mapping
            .word(geometry.descriptor_at(self.consumed))
            .load(Ordering::Acquire);
        Ok(Descriptor::decode(word, geometry, self.consumed)?
            .map(|descriptor| Message { descriptor }))
    }

    /// Copies the immediate data of `message` into `to`, as far as both reach.
    pub(crate) fn read_immediate(&self, message: &Message, to: &mut [u8]) {
        let len = message.descriptor.immediate.unwrap_or(0).min(to.len());
        let at = self.mapping.geometry().payload_offset(self.consumed);
        // SAFETY: a mutable slice is writable for its length.
        unsafe { self.mapping.copy_out(at, to.as_mut_ptr(), len) };
    }

    /// Copies `len` bytes of the data of `message`, from byte `from` of its data on, to `dst`.
    ///
    /// # Safety
    ///
    /// `dst` must be writable for `len` bytes.
    pub(crate) unsafe fn read(&self, message: &Message, from: usize, dst: *mut u8, len: usize) {
        assert!(
            from.saturating_add(len) <= message.len(),
            "reads stay inside the fragment"
        );
        let data = self.mapping.geometry().payload_offset(self.consumed)
            + message.immediate_len().unwrap_or(0);
        // SAFETY: the caller vouches for `dst`.
        unsafe { self.mapping.copy_out(data + from, dst, len) };
    }

    /// Lets the fragment go: its room is the producer's again.
    pub(crate) fn advance(&mut self, message: &Message) {
        self.consumed += message.descriptor.units();
        self.mapping
            .word(CONSUMED_AT)
            .store(self.consumed, Ordering::Release);
        self.wake_producer();
    }

    /// The producer has closed its end. What it sent before is still there to be read.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        self.mapping
            .word(PRODUCER_CLOSED_AT)
            .load(Ordering::Acquire)
            != 0
    }

    /// Announces that this end sleeps and wants to be woken. Look again before sleeping.
    pub(crate) fn arm(&self) {
        self.mapping
            .word(CONSUMER_SLEEPS_AT)
            .store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes back [`arm`](Self::arm).
    pub(crate) fn disarm(&self) {
        self.mapping
            .word(CONSUMER_SLEEPS_AT)
            .store(0, Ordering::Relaxed);
    }

    fn wake_producer(&self) {
        if let Some(bell) = &self.bell {
            bell.ring_if_asleep();
        }
    }
}

impl Drop for RingConsumer {
    fn drop(&mut self) {
        self.mapping
            .word(CONSUMER_CLOSED_AT)
            .store(1, Ordering::Release);
        if let Some(bell) = &self.bell {
            bell.ring_now();
        }
    }
}
