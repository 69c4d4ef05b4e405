//! The receiving endpoint of a ring.

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

/// The receiving endpoint of a ring. One thread at a time uses it.
#[derive(Debug)]
pub(crate) struct RingConsumer {
    mapping: Arc<Mapping>,
    /// Wakes the producer when it waits for credits or space; `None` until a producer has attached.
    bell: Option<Bell>,
    /// Number of slots and of payload units released.
    slots: u64,
    units: u64,
    posted: u64,
}

/// A received fragment: a token to read it and then release it.
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

    /// Length of the immediate data in bytes; `None` if the message has none.
    #[inline]
    pub(crate) fn immediate_len(&self) -> Option<usize> {
        self.descriptor.immediate()
    }

    /// `true` if another fragment of the same message follows.
    #[inline]
    pub(crate) fn more(&self) -> bool {
        self.descriptor.more()
    }
}

impl RingConsumer {
    /// The consumer's endpoint of a new ring.
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

    /// Attaches a producer, which is woken with `wake`.
    pub(super) fn attach(&mut self, wake: EventFd) {
        self.bell = Some(Bell::new(
            Arc::clone(&self.mapping),
            PRODUCER_SLEEPS_AT,
            PRODUCER_BARRIERS_AT,
            wake,
        ));
        // It may have gone to sleep before its eventfd was known here.
        self.wake_producer();
    }

    /// Posts `count` more receives: credits for the producer.
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

    /// Copies the immediate data of `message` to `to`, up to the length of the shorter one.
    pub(crate) fn read_immediate(&self, message: &Message, to: &mut [u8]) {
        let len = message.descriptor.immediate().unwrap_or(0).min(to.len());
        // SAFETY: a mutable slice is writable for its length.
        unsafe { self.copy_out(message, 0, to.as_mut_ptr(), len) };
    }

    /// Copies `len` bytes of the data of `message`, starting at byte `from`, to `dst`.
    ///
    /// # Safety
    ///
    /// `dst` must be writable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn read(&self, message: &Message, from: usize, dst: *mut u8, len: usize) {
        if message.descriptor == Descriptor::LINE && from == 0 && len == UNIT {
            let slot = self.mapping.geometry().slot_at(self.slots);
            let bytes = self.mapping.read_slot(slot);
            // SAFETY: the caller guarantees `dst`.
            unsafe { dst.cast::<[u8; UNIT]>().write_unaligned(bytes) };
            return;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.read_any(message, from, dst, len) };
    }

    /// As [`read`](Self::read), for every kind of message.
    unsafe fn read_any(&self, message: &Message, from: usize, dst: *mut u8, len: usize) {
        assert!(
            from.saturating_add(len) <= message.len(),
            "reads stay inside the fragment"
        );
        let from = from + message.immediate_len().unwrap_or(0);
        // SAFETY: the caller guarantees `dst`.
        unsafe { self.copy_out(message, from, dst, len) };
    }

    /// Copies stored bytes of `message`, of which there are at least `from + len`.
    ///
    /// # Safety
    ///
    /// As [`read`](Self::read).
    unsafe fn copy_out(&self, message: &Message, from: usize, dst: *mut u8, len: usize) {
        let geometry = self.mapping.geometry();
        if !message.descriptor.is_inline() {
            // SAFETY: the caller guarantees `dst`.
            unsafe {
                self.mapping
                    .copy_out(geometry.payload_offset(self.units) + from, dst, len);
            }
            return;
        }
        let bytes = self.mapping.read_slot(geometry.slot_at(self.slots));
        // SAFETY: the caller guarantees `dst`.
        unsafe { std::ptr::copy_nonoverlapping(bytes[from..from + len].as_ptr(), dst, len) };
    }

    /// Releases the fragment: its slot and payload units can be reused by the producer.
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

    /// `true` if the producer has closed its endpoint. Messages sent before can still be read.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        self.mapping
            .word(PRODUCER_CLOSED_AT)
            .load(Ordering::Acquire)
            != 0
    }

    /// Sets the sleep word: requests a wake-up. Before sleeping, execute the [barrier](super::barrier_before_sleep) and
    /// check the ring again.
    pub(crate) fn arm(&self) {
        self.mapping
            .word(CONSUMER_SLEEPS_AT)
            .store(1, Ordering::Relaxed);
    }

    /// Cancels [`arm`](Self::arm).
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
