//! The sending endpoint of a ring.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::bell::Bell;
use super::kernel::{EventFd, uses_barriers};
use super::layout::{
    CONSUMER_BARRIERS_AT, CONSUMER_CLOSED_AT, CONSUMER_SLEEPS_AT, Descriptor, INLINE,
    MAX_IMMEDIATE, POSTED_AT, PRODUCER_BARRIERS_AT, PRODUCER_CLOSED_AT, PRODUCER_SLEEPS_AT,
    SLOTS_AHEAD, SLOTS_CONSUMED_AT, UNIT, UNITS_CONSUMED_AT,
};
use super::mapping::Mapping;
use crate::error::{Error, Result};

/// The sending endpoint of a ring. One thread at a time uses it.
#[derive(Debug)]
pub(crate) struct RingProducer {
    mapping: Arc<Mapping>,
    bell: Bell,
    slots: Room,
    units: Room,
    /// Whole messages started so far: each consumes one posted receive.
    started: u64,
    /// Receives posted, as last read.
    posted_seen: u64,
}

/// Space of one kind, slots or units.
#[derive(Debug)]
struct Room {
    size: u64,
    /// Number used so far.
    produced: u64,
    /// Number released so far, as last read: the shared word is read again only when the space looks full.
    consumed_seen: u64,
    consumed_at: usize,
}

impl Room {
    fn new(size: u64, consumed_at: usize) -> Self {
        Self {
            size,
            produced: 0,
            consumed_seen: 0,
            consumed_at,
        }
    }

    fn free(&self) -> u64 {
        self.size
            .saturating_sub(self.produced.wrapping_sub(self.consumed_seen))
    }

    #[inline(always)]
    fn has(&mut self, count: u64, mapping: &Mapping) -> bool {
        self.free() >= count || self.has_now(count, mapping)
    }

    #[cold]
    fn has_now(&mut self, count: u64, mapping: &Mapping) -> bool {
        let consumed = mapping.word(self.consumed_at).load(Ordering::Acquire);
        // An impossible count (ahead of us, or a whole ring behind) frees nothing.
        if self.produced.wrapping_sub(consumed) <= self.size {
            self.consumed_seen = consumed;
        }
        self.free() >= count
    }
}

impl RingProducer {
    /// The producer's endpoint of a ring; `wake` wakes the consumer.
    pub(super) fn over(mapping: Arc<Mapping>, wake: EventFd) -> Self {
        mapping
            .word(PRODUCER_BARRIERS_AT)
            .store(u64::from(uses_barriers()), Ordering::Relaxed);
        let bell = Bell::new(
            Arc::clone(&mapping),
            CONSUMER_SLEEPS_AT,
            CONSUMER_BARRIERS_AT,
            wake,
        );
        let geometry = mapping.geometry();
        Self {
            mapping,
            bell,
            slots: Room::new(geometry.slots(), SLOTS_CONSUMED_AT),
            units: Room::new(geometry.units(), UNITS_CONSUMED_AT),
            started: 0,
            posted_seen: 0,
        }
    }

    /// Number of posted receives that no message has consumed yet.
    #[inline]
    pub(crate) fn credits(&mut self) -> u64 {
        if self.posted_seen == self.started {
            self.posted_seen = self.mapping.word(POSTED_AT).load(Ordering::Acquire);
        }
        let credits = self.posted_seen.wrapping_sub(self.started);
        // A peer whose count runs backwards grants no credits.
        if i64::try_from(credits).is_ok() {
            credits
        } else {
            0
        }
    }

    /// Largest number of bytes, immediate data included, of one [`push`](Self::push).
    pub(crate) fn max_fragment(&self) -> usize {
        self.mapping.geometry().max_fragment()
    }

    /// Number of bytes that the ring holds at once, immediate data included.
    pub(crate) fn capacity(&self) -> usize {
        self.mapping.geometry().payload_len()
    }

    /// Appends a whole message of `len` contiguous bytes at `src`, without immediate data. The caller has checked that
    /// there is a credit. Returns [`Error::Again`], with nothing written, if the ring is full.
    ///
    /// # Safety
    ///
    /// `src` must be readable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn push_run(&mut self, src: *const u8, len: usize) -> Result<()> {
        if len == UNIT {
            // SAFETY: guaranteed by the caller. The length is a constant: a few moves.
            let bytes = unsafe { src.cast::<[u8; UNIT]>().read_unaligned() };
            if let Some((line, [0, 0, 0, 0, 0, 0, 0, 0])) = bytes.split_first_chunk() {
                return self.push_inline(line, Descriptor::LINE, true);
            }
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.push(None, len, true, false, |write| {
                write(src, len);
                Ok(())
            })
        }
    }

    /// Appends one fragment of a message. `fill(write)` is called once and must call `write(src, len)` for consecutive
    /// pieces that add up to `len` bytes.
    ///
    /// `first` consumes a credit; the caller has checked that there is one. `more` says that another fragment of the
    /// same message follows. Returns [`Error::Again`], with nothing written, if the ring is full.
    ///
    /// # Safety
    ///
    /// Every `src` given to the writer must be readable for its length.
    pub(crate) unsafe fn push(
        &mut self,
        immediate: Option<&[u8]>,
        len: usize,
        first: bool,
        more: bool,
        fill: impl FnOnce(&mut dyn FnMut(*const u8, usize)) -> Result<()>,
    ) -> Result<()> {
        let immediate_len = immediate.map_or(0, <[u8]>::len);
        let stored = len + immediate_len;
        if immediate_len > MAX_IMMEDIATE || stored > self.max_fragment() {
            return Err(Error::InvalidValue);
        }
        if stored > UNIT {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.push_large(immediate, len, first, more, fill) };
        }
        let mut bytes = [0; UNIT];
        let mut at = immediate_len;
        bytes[..at].copy_from_slice(immediate.unwrap_or_default());
        fill(&mut |src, part| {
            let part = part.min(stored - at);
            // SAFETY: the caller guarantees `src`; `part` is within the fragment, which fits the array.
            unsafe { std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr().add(at), part) };
            at += part;
        })?;
        if at != stored {
            return Err(Error::Unexpected);
        }
        self.push_small(immediate.map(<[u8]>::len), &bytes, len, first, more)
    }

    /// Appends a fragment of at most 64 bytes, immediate data included: in its slot if all bytes beyond the slot are
    /// zeros.
    fn push_small(
        &mut self,
        immediate: Option<usize>,
        bytes: &[u8; UNIT],
        len: usize,
        first: bool,
        more: bool,
    ) -> Result<()> {
        if let Some((inline, [0, 0, 0, 0, 0, 0, 0, 0])) = bytes.split_first_chunk() {
            let descriptor = Descriptor::new(len, immediate, more, true);
            return self.push_inline(inline, descriptor, first);
        }
        let stored = immediate.unwrap_or(0) + len;
        let (head, data) = bytes[..stored].split_at(stored - len);
        let immediate = immediate.map(|_| head);
        // SAFETY: a slice is readable for its length.
        unsafe {
            self.push_large(immediate, len, first, more, |write| {
                write(data.as_ptr(), data.len());
                Ok(())
            })
        }
    }

    /// Appends a fragment stored in its slot.
    #[inline]
    fn push_inline(
        &mut self,
        bytes: &[u8; INLINE],
        descriptor: Descriptor,
        first: bool,
    ) -> Result<()> {
        if !self.slots.has(1, &self.mapping) {
            return Err(Error::Again);
        }
        let at = self.mapping.geometry().slot_at(self.slots.produced);
        // SAFETY: the slot is ours until its descriptor is published.
        unsafe { self.mapping.write_slot(at, bytes) };
        self.publish(descriptor, first);
        Ok(())
    }

    /// Appends a fragment stored in units of payload.
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push).
    unsafe fn push_large(
        &mut self,
        immediate: Option<&[u8]>,
        len: usize,
        first: bool,
        more: bool,
        fill: impl FnOnce(&mut dyn FnMut(*const u8, usize)) -> Result<()>,
    ) -> Result<()> {
        let descriptor = Descriptor::new(len, immediate.map(<[u8]>::len), more, false);
        if !self.slots.has(1, &self.mapping) || !self.units.has(descriptor.units(), &self.mapping) {
            return Err(Error::Again);
        }
        let mut at = self.mapping.geometry().payload_offset(self.units.produced);
        if let Some(bytes) = immediate {
            // SAFETY: a slice is readable for its length; the units are ours until the descriptor is published.
            unsafe { self.mapping.copy_in(at, bytes.as_ptr(), bytes.len()) };
            at += bytes.len();
        }
        let end = at + len;
        fill(&mut |src, part| {
            let part = part.min(end - at);
            // SAFETY: the caller guarantees `src`; `part` is within the fragment, whose units are ours.
            unsafe { self.mapping.copy_in(at, src, part) };
            at += part;
        })?;
        if at != end {
            return Err(Error::Unexpected);
        }
        self.publish(descriptor, first);
        Ok(())
    }

    #[inline]
    fn publish(&mut self, descriptor: Descriptor, first: bool) {
        let geometry = self.mapping.geometry();
        let position = self.slots.produced;
        self.mapping
            .word(geometry.slot_at(position))
            .store(descriptor.encode(geometry, position), Ordering::Release);
        let ahead = geometry.slot_at(position + SLOTS_AHEAD);
        self.mapping.will_write_slot(ahead);
        self.slots.produced += 1;
        self.units.produced += descriptor.units();
        self.started += u64::from(first);
        self.bell.ring_if_asleep();
    }

    /// `true` if a message of `bytes`, immediate data included, can be pushed without [`Error::Again`], in as many
    /// fragments as it needs if all but the last are full.
    #[inline]
    pub(crate) fn has_room_for(&mut self, bytes: usize) -> bool {
        if bytes <= INLINE {
            return self.slots.has(1, &self.mapping);
        }
        let fragments = bytes.div_ceil(self.max_fragment()) as u64;
        let units = bytes.div_ceil(UNIT) as u64;
        self.slots.has(fragments, &self.mapping) && self.units.has(units, &self.mapping)
    }

    /// `true` if the consumer is gone or accepts no more messages.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        self.mapping
            .word(CONSUMER_CLOSED_AT)
            .load(Ordering::Acquire)
            != 0
    }

    /// Sets the sleep word: requests a wake-up for credits or space. Before sleeping, execute the
    /// [barrier](super::barrier_before_sleep) and check again.
    pub(crate) fn arm(&self) {
        self.mapping
            .word(PRODUCER_SLEEPS_AT)
            .store(1, Ordering::Relaxed);
    }

    /// Cancels [`arm`](Self::arm).
    pub(crate) fn disarm(&self) {
        self.mapping
            .word(PRODUCER_SLEEPS_AT)
            .store(0, Ordering::Relaxed);
    }
}

impl Drop for RingProducer {
    fn drop(&mut self) {
        self.mapping
            .word(PRODUCER_CLOSED_AT)
            .store(1, Ordering::Release);
        self.bell.ring_now();
    }
}
