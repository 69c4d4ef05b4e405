//! The end of a ring that sends.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::bell::{Bell, EventFd};
use super::layout::{
    CONSUMED_AT, CONSUMER_CLOSED_AT, CONSUMER_SLEEPS_AT, Descriptor, MAX_IMMEDIATE, POSTED_AT,
    PRODUCER_CLOSED_AT, PRODUCER_SLEEPS_AT, UNIT,
};
use super::mapping::Mapping;
use crate::error::{Error, Result};

/// The sending end of a ring. One thread at a time uses it.
#[derive(Debug)]
pub(crate) struct RingProducer {
    mapping: Arc<Mapping>,
    bell: Arc<Bell>,
    /// Units written so far.
    produced: u64,
    /// Units consumed, as last read: the shared word is only looked at again when this says "full".
    consumed_seen: u64,
    /// Whole messages started so far: each takes one posted receive.
    started: u64,
    /// Receives posted, as last read.
    posted_seen: u64,
}

impl RingProducer {
    /// Opens the ring that a peer created; `wake` is the eventfd of the peer's progress engine.
    pub(crate) fn open(memfd: OwnedFd, wake: EventFd) -> Result<Self> {
        let mapping = Arc::new(Mapping::open(memfd)?);
        let bell = Bell::new(Arc::clone(&mapping), CONSUMER_SLEEPS_AT, wake);
        Ok(Self {
            mapping,
            bell,
            produced: 0,
            consumed_seen: 0,
            started: 0,
            posted_seen: 0,
        })
    }

    /// Receives that the peer has posted and no message has taken yet.
    pub(crate) fn credits(&mut self) -> u64 {
        if self.posted_seen == self.started {
            self.posted_seen = self.mapping.word(POSTED_AT).load(Ordering::Acquire);
        }
        let credits = self.posted_seen.wrapping_sub(self.started);
        // A peer whose count runs backwards has no credits to give.
        if i64::try_from(credits).is_ok() {
            credits
        } else {
            0
        }
    }

    /// Largest number of bytes, immediate data included, that one call of [`push`](Self::push) takes.
    pub(crate) fn max_fragment(&self) -> usize {
        self.mapping.geometry().max_fragment()
    }

    /// Bytes that the ring holds at once, immediate data included.
    pub(crate) fn capacity(&self) -> usize {
        self.mapping.geometry().payload_len()
    }

    /// Appends one fragment of a message. `fill(offset, write)` is called once and must call `write(src, len)` for
    /// consecutive pieces that add up to `len` bytes.
    ///
    /// `first` takes a credit; the caller has checked that there is one. `more` says that another fragment of the
    /// same message follows. Answers [`Error::Again`] when the ring has no room, with nothing written.
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
        let geometry = self.mapping.geometry();
        let immediate_len = immediate.map_or(0, <[u8]>::len);
        if immediate_len > MAX_IMMEDIATE || len + immediate_len > geometry.max_fragment() {
            return Err(Error::InvalidValue);
        }
        let descriptor = Descriptor {
            len,
            immediate: immediate.map(<[u8]>::len),
            more,
        };
        if !self.has_room(descriptor.units()) {
            return Err(Error::Again);
        }
        let start = geometry.payload_offset(self.produced);
        let mut at = start;
        if let Some(bytes) = immediate {
            // SAFETY: a slice is readable for its length; the units are ours until the descriptor is published.
            unsafe { self.mapping.copy_in(at, bytes.as_ptr(), bytes.len()) };
            at += bytes.len();
        }
        let end = at + len;
        fill(&mut |src, part| {
            let part = part.min(end - at);
            // SAFETY: the caller vouches for `src`; `part` never leaves the fragment, whose units are ours.
            unsafe { self.mapping.copy_in(at, src, part) };
            at += part;
        })?;
        if at != end {
            return Err(Error::Unexpected);
        }
        self.mapping
            .word(geometry.descriptor_at(self.produced))
            .store(
                descriptor.encode(geometry, self.produced),
                Ordering::Release,
            );
        self.produced += descriptor.units();
        self.started += u64::from(first);
        self.bell.ring_if_asleep();
        Ok(())
    }

    /// Whether a message of `bytes`, immediate data included, can be pushed without [`Error::Again`], in as many fragments
    /// as it needs when all but the last are full.
    pub(crate) fn has_room_for(&mut self, bytes: usize) -> bool {
        self.has_room((bytes.div_ceil(UNIT) as u64).max(1))
    }

    fn has_room(&mut self, units: u64) -> bool {
        let size = self.mapping.geometry().units();
        let free = |consumed: u64| size.saturating_sub(self.produced.wrapping_sub(consumed));
        if free(self.consumed_seen) >= units {
            return true;
        }
        let consumed = self.mapping.word(CONSUMED_AT).load(Ordering::Acquire);
        // A count outside what can be true (ahead of us, or a whole ring behind) frees nothing.
        if self.produced.wrapping_sub(consumed) <= size {
            self.consumed_seen = consumed;
        }
        let consumed_seen = self.consumed_seen;
        size.saturating_sub(self.produced.wrapping_sub(consumed_seen)) >= units
    }

    /// The consumer has gone or will take no more.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        self.mapping
            .word(CONSUMER_CLOSED_AT)
            .load(Ordering::Acquire)
            != 0
    }

    /// Announces that this end waits for credits or room and wants to be woken. Look again before sleeping.
    pub(crate) fn arm(&self) {
        self.mapping
            .word(PRODUCER_SLEEPS_AT)
            .store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes back [`arm`](Self::arm).
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
