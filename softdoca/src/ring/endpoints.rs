//! The endpoints of a ring: [`RingProducer`] and [`RingConsumer`], the [`Bell`] that wakes the other endpoint if it
//! sleeps, and the [`BiasedLock`] with which several producers of a process share one ring.
//!
//! # Doorbells
//!
//! An endpoint that is about to sleep sets its sleep word in the ring, checks the ring once more, and waits on its
//! eventfd. The other endpoint checks that word after it has published data or credits. At least one of them must
//! observe the other's write, which takes a full barrier between write and check on both sides. Checks are frequent and
//! sleeps are rare, so the cost of both is moved to the endpoint that goes to sleep: [`barrier_before_sleep`] makes the
//! kernel execute a barrier in every thread that could be publishing. Where the kernel does not support this, each
//! check has its own fence; every ring records which of the two its endpoints use.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::layout::{
    CONSUMER_BARRIERS_AT, CONSUMER_CLOSED_AT, CONSUMER_SLEEPS_AT, Descriptor, INLINE,
    MAX_IMMEDIATE, POSTED_AT, PRODUCER_BARRIERS_AT, PRODUCER_CLOSED_AT, PRODUCER_SLEEPS_AT,
    SLOTS_AHEAD, SLOTS_CONSUMED_AT, UNIT, UNITS_CONSUMED_AT,
};
use super::{
    Contents, Corrupt, EventFd, Mapping, Mutex, Word, barrier_in_all_threads, fence, uses_barriers,
    word, yield_now,
};
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
    /// Number released so far, as last read: the shared word is read again only when the space seems to be full.
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
        // An invalid count (ahead of this side, or a whole ring behind) frees no space.
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
        // A peer whose count decreases grants no credits.
        if i64::try_from(credits).is_ok() {
            credits
        } else {
            0
        }
    }

    /// Maximum number of bytes, including immediate data, of one [`push`](Self::push).
    pub(crate) fn max_fragment(&self) -> usize {
        self.mapping.geometry().max_fragment()
    }

    /// Maximum number of bytes in the ring at a time, including immediate data.
    pub(crate) fn capacity(&self) -> usize {
        self.mapping.geometry().payload_len()
    }

    /// Appends a whole message of `len` contiguous bytes at `src`, without immediate data. The caller has checked that
    /// there is a credit. Returns [`Error::Again`], without writing any data, if the ring is full.
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
    /// `first` consumes a credit; the caller has checked that there is one. `more` means that another fragment of the
    /// same message follows. Returns [`Error::Again`], without writing any data, if the ring is full.
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

    /// `true` if a message of `bytes` bytes, including immediate data, can be pushed without [`Error::Again`], in the
    /// minimum number of fragments.
    #[inline]
    pub(crate) fn has_room_for(&mut self, bytes: usize) -> bool {
        if bytes <= INLINE {
            return self.slots.has(1, &self.mapping);
        }
        let fragments = bytes.div_ceil(self.max_fragment()) as u64;
        let units = bytes.div_ceil(UNIT) as u64;
        self.slots.has(fragments, &self.mapping) && self.units.has(units, &self.mapping)
    }

    /// `true` if the consumer has exited or no longer accepts messages.
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
        // The producer may have gone to sleep before its eventfd was attached.
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

    /// The next fragment, if it has arrived. It remains current until [`advance`](Self::advance).
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

/// Must be called after the sleep words of all rings were set, and before the last check of the rings.
pub(crate) fn barrier_before_sleep() {
    // The system call is also a barrier for this thread.
    if !uses_barriers() || !barrier_in_all_threads() {
        fence(Ordering::SeqCst);
    }
}

/// Wakes the other endpoint of one ring if it sleeps.
#[derive(Debug)]
struct Bell {
    mapping: Arc<Mapping>,
    /// Offset of the other endpoint's sleep word.
    sleeps_at: usize,
    wake: EventFd,
    /// `true` if either endpoint does not use the kernel's barriers.
    needs_fence: bool,
}

impl Bell {
    /// Creates the doorbell of the endpoint whose sleep word and "uses barriers" word are at these offsets.
    pub(super) fn new(
        mapping: Arc<Mapping>,
        sleeps_at: usize,
        barriers_at: usize,
        wake: EventFd,
    ) -> Self {
        let theirs = mapping.word(barriers_at).load(Ordering::Relaxed) == 1;
        Self {
            needs_fence: !(theirs && uses_barriers()),
            mapping,
            sleeps_at,
            wake,
        }
    }

    /// Wakes the other endpoint if it sleeps. Must follow the publication.
    #[inline]
    fn ring_if_asleep(&self) {
        if self.needs_fence {
            fence(Ordering::SeqCst);
        } else {
            // The endpoint that goes to sleep provides the processor's barrier; here, only the compiler must keep the
            // order.
            compiler_fence(Ordering::SeqCst);
        }
        let sleeps = self.mapping.word(self.sleeps_at);
        if sleeps.load(Ordering::Relaxed) != 0 {
            self.wake_sleeper(sleeps);
        }
    }

    #[cold]
    fn wake_sleeper(&self, sleeps: &Word) {
        if sleeps.swap(0, Ordering::Relaxed) != 0 {
            self.wake.ring();
        }
    }

    /// Sends a wake-up without checking the sleep word: for rare events that must not be missed, such as closing.
    fn ring_now(&self) {
        self.wake.ring();
    }
}

/// Value of [`BiasedLock::owner`] before the first use.
const NOBODY: u64 = 0;
/// Value of [`BiasedLock::owner`] after the bias was revoked.
const SHARED: u64 = u64::MAX;

/// A value for several users, optimised for a single user, who needs neither a mutex nor an atomic read-modify-write.
///
/// The first user gets the bias: from its second use on, it sets a flag, checks whether it still has the bias, uses the
/// value, and clears the flag. The second user permanently revokes the bias, and waits until the flag is cleared; from
/// then on, all users lock a mutex. As for the sleep words of rings, at least one of the two must observe the other's
/// write; the infrequent side, which revokes the bias, makes the kernel execute the barrier of the frequent side.
#[repr(C)]
pub(crate) struct BiasedLock<T> {
    /// The user that has the bias.
    owner: Word,
    /// 1 while that user uses the value without the mutex.
    busy: Word,
    value: Contents<T>,
    /// Held by every other use of the value, and while `owner` is changed.
    mutex: Mutex,
    /// The kernel does not execute barriers in other threads.
    needs_fence: bool,
}

// SAFETY: the value is used by one thread at a time, as `with` ensures.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

impl<T> BiasedLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            owner: word("owner of the bias"),
            busy: word("use by the owner"),
            value: Contents::new(value),
            mutex: Mutex::default(),
            needs_fence: !uses_barriers(),
        }
    }

    /// Runs `action` on the value. Fails without running it if another user has the bias and the kernel no longer
    /// executes barriers.
    ///
    /// # Safety
    ///
    /// `user` is not 0 and not `u64::MAX`; two calls with the same number never run at the same time, and the earlier
    /// one happens before the later one. `action` does not use the lock.
    #[inline(always)]
    pub(crate) unsafe fn with<R>(&self, user: u64, action: impl FnOnce(&mut T) -> R) -> Result<R> {
        if self.owner.load(Ordering::Relaxed) == user && self.enter(user) {
            // SAFETY: other users either observe the flag and wait, or have already revoked the bias, which this user
            // would have observed. Calls with the same number do not overlap.
            let result = unsafe { self.value.with(action) };
            self.busy.store(0, Ordering::Release);
            return Ok(result);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.with_mutex(user, action) }
    }

    /// Sets the flag, unless the bias has been revoked.
    #[inline(always)]
    fn enter(&self, user: u64) -> bool {
        self.busy.store(1, Ordering::Relaxed);
        if self.needs_fence {
            fence(Ordering::SeqCst);
        } else {
            // Revoking the bias executes the processor's barrier; here, only the compiler must keep the order.
            compiler_fence(Ordering::SeqCst);
        }
        let is_owner = self.owner.load(Ordering::Relaxed) == user;
        if !is_owner {
            self.busy.store(0, Ordering::Release);
        }
        is_owner
    }

    /// # Safety
    ///
    /// As [`with`](Self::with).
    #[cold]
    #[inline(never)]
    unsafe fn with_mutex<R>(&self, user: u64, action: impl FnOnce(&mut T) -> R) -> Result<R> {
        let _guard = self.mutex.lock();
        match self.owner.load(Ordering::Relaxed) {
            NOBODY => self.owner.store(user, Ordering::Relaxed),
            SHARED => {}
            _ => self.take_bias()?,
        }
        // SAFETY: either there is no user with the bias, or this user has it, and its calls do not overlap; all others
        // lock the mutex.
        Ok(unsafe { self.value.with(action) })
    }

    /// Revokes the owner's bias. The mutex must be held.
    fn take_bias(&self) -> Result<()> {
        let owner = self.owner.load(Ordering::Relaxed);
        self.owner.store(SHARED, Ordering::Relaxed);
        if self.needs_fence {
            fence(Ordering::SeqCst);
        } else if !barrier_in_all_threads() {
            self.owner.store(owner, Ordering::Relaxed);
            return Err(Error::OperatingSystem.because(
                "the kernel refuses memory barriers that it has executed before: \
                 a second producer cannot send to the same consumer",
            ));
        }
        while self.busy.load(Ordering::Acquire) != 0 {
            yield_now();
        }
        Ok(())
    }
}

impl<T> fmt::Debug for BiasedLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedLock")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
