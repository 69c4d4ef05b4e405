//! The end of a ring that receives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Corrupt;
use super::bell::Bell;
use super::kernel::EventFd;
use super::layout::{
    CONSUMER_CLOSED_AT, CONSUMER_SLEEPS_AT, Descriptor, POSTED_AT, PRODUCER_BARRIERS_AT,
    PRODUCER_CLOSED_AT, PRODUCER_SLEEPS_AT, SLOTS_AHEAD, SLOTS_CONSUMED_AT, UNIT,
    UNITS_CONSUMED_AT,
};
use super::mapping::Mapping;

/// The receiving end of a ring. One thread at a time uses it.
#[derive(Debug)]
pub(crate) struct RingConsumer {
    mapping: Arc<Mapping>,
    /// Wakes the producer when it waits for credits or room; known once a producer has attached.
    bell: Option<Bell>,
    /// Slots and units of payload that were let go.
    slots: u64,
    units: u64,
    posted: u64,
}

/// A fragment that has arrived: a token to read it and then let it go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    descriptor: Descriptor,
}

impl Message {
    /// Bytes of data in this fragment, immediate data excluded.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.descriptor.len()
    }

    /// Bytes of immediate data; `None` when the message has none.
    #[inline]
    pub(crate) fn immediate_len(&self) -> Option<usize> {
        self.descriptor.immediate()
    }

    /// Another fragment of the same message follows.
    #[inline]
    pub(crate) fn more(&self) -> bool {
        self.descriptor.more()
    }
}

impl RingConsumer {
    /// The consumer's end of a ring, which nobody has used yet.
    pub(super) fn over(mapping: Arc<Mapping>) -> Self {
        Self {
            mapping,
            bell: None,
            slots: 0,
            units: 0,
            posted: 0,
        }
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// A producer has attached, and is woken with `wake`.
    pub(super) fn attach(&mut self, wake: EventFd) {
        self.bell = Some(Bell::new(
            Arc::clone(&self.mapping),
            PRODUCER_SLEEPS_AT,
            PRODUCER_BARRIERS_AT,
            wake,
        ));
        // It may sleep since before its eventfd was known here.
        self.wake_producer();
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
    #[inline]
    pub(crate) fn peek(&self) -> std::result::Result<Option<Message>, Corrupt> {
        let geometry = self.mapping.geometry();
        let word = self
            .mapping
            .word(geometry.slot_at(self.slots))
            .load(Ordering::Acquire);
        Ok(
            Descriptor::decode(word, geometry, self.slots)?
                .map(|descriptor| Message { descriptor }),
        )
    }

    /// Copies the immediate data of `message` into `to`, as far as both reach.
    pub(crate) fn read_immediate(&self, message: &Message, to: &mut [u8]) {
        let len = message.descriptor.immediate().unwrap_or(0).min(to.len());
        // SAFETY: a mutable slice is writable for its length.
        unsafe { self.copy_out(message, 0, to.as_mut_ptr(), len) };
    }

    /// Copies `len` bytes of the data of `message`, from byte `from` of its data on, to `dst`.
    ///
    /// # Safety
    ///
    /// `dst` must be writable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn read(&self, message: &Message, from: usize, dst: *mut u8, len: usize) {
        if message.descriptor == Descriptor::LINE && from == 0 && len == UNIT {
            let slot = self.mapping.geometry().slot_at(self.slots);
            let bytes = self.mapping.read_slot(slot);
            // SAFETY: the caller vouches for `dst`.
            unsafe { dst.cast::<[u8; UNIT]>().write_unaligned(bytes) };
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.read_any(message, from, dst, len) };
    }

    /// As [`read`](Self::read), for every kind of message.
    unsafe fn read_any(&self, message: &Message, from: usize, dst: *mut u8, len: usize) {
        assert!(
            from.saturating_add(len) <= message.len(),
            "reads stay inside the fragment"
        );
        let from = from + message.immediate_len().unwrap_or(0);
        // SAFETY: the caller vouches for `dst`.
        unsafe { self.copy_out(message, from, dst, len) };
    }

    /// Copies stored bytes of `message`, of which there are `from + len` or more.
    ///
    /// # Safety
    ///
    /// As [`read`](Self::read).
    unsafe fn copy_out(&self, message: &Message, from: usize, dst: *mut u8, len: usize) {
        let geometry = self.mapping.geometry();
        if !message.descriptor.is_inline() {
            // SAFETY: the caller vouches for `dst`.
            unsafe {
                self.mapping
                    .copy_out(geometry.payload_offset(self.units) + from, dst, len);
            }
            return;
        }
        let bytes = self.mapping.read_slot(geometry.slot_at(self.slots));
        // SAFETY: the caller vouches for `dst`.
        unsafe { std::ptr::copy_nonoverlapping(bytes[from..from + len].as_ptr(), dst, len) };
    }

    /// Lets the fragment go: its room is the producer's again.
    #[inline]
    pub(crate) fn advance(&mut self, message: &Message) {
        let units = message.descriptor.units();
        if units != 0 {
            self.units += units;
            self.mapping
                .word(UNITS_CONSUMED_AT)
                .store(self.units, Ordering::Release);
        }
        self.slots += 1;
        let ahead = self.mapping.geometry().slot_at(self.slots + SLOTS_AHEAD);
        self.mapping.will_read_slot(ahead);
        self.mapping
            .word(SLOTS_CONSUMED_AT)
            .store(self.slots, Ordering::Release);
        self.wake_producer();
    }

    /// The producer has closed its end. What it sent before is still there to be read.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        self.mapping
            .word(PRODUCER_CLOSED_AT)
            .load(Ordering::Acquire)
            != 0
    }

    /// Announces that this end sleeps and wants to be woken. Before sleeping, have a [barrier](super::barrier_before_sleep) and look
    /// again.
    pub(crate) fn arm(&self) {
        self.mapping
            .word(CONSUMER_SLEEPS_AT)
            .store(1, Ordering::Relaxed);
    }

    /// Takes back [`arm`](Self::arm).
    pub(crate) fn disarm(&self) {
        self.mapping
            .word(CONSUMER_SLEEPS_AT)
            .store(0, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    #[inline]
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
