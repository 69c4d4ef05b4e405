//! The ring modules that define memory orders: softdoca's sources with the model's memory and kernel.

#![allow(dead_code, reason = "the models use a part of the ring")]

#[path = "../../src/ring/endpoints.rs"]
mod endpoints;
#[path = "../../src/ring/layout.rs"]
mod layout;

pub(crate) use endpoints::{BiasedLock, RingConsumer, RingProducer, barrier_before_sleep};

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::{self, Condvar, MutexGuard};
use loom::thread::yield_now;
use softdoca::error::Error;

use crate::machine::{self, Cell, Word, barrier_in_all_threads, fence, uses_barriers};
use layout::{
    CONSUMER_BARRIERS_AT, CONSUMER_CLOSED_AT, CONSUMER_SLEEPS_AT, Geometry, INLINE, POSTED_AT,
    PRODUCER_BARRIERS_AT, PRODUCER_CLOSED_AT, PRODUCER_SLEEPS_AT, SLOTS_CONSUMED_AT, UNIT,
    UNITS_CONSUMED_AT,
};

/// Same as in softdoca.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Corrupt {
    pub expected: &'static str,
    pub found: u64,
}

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

/// Ring size: small enough to fill up after a few messages.
const FEWEST_UNITS: u64 = 2;

/// Words before the first slot.
const HEADER: [(usize, &str); 7] = [
    (CONSUMER_BARRIERS_AT, "consumer uses barriers"),
    (PRODUCER_CLOSED_AT, "producer closed"),
    (PRODUCER_BARRIERS_AT, "producer uses barriers"),
    (SLOTS_CONSUMED_AT, "slots consumed"),
    (UNITS_CONSUMED_AT, "units consumed"),
    (POSTED_AT, "receives posted"),
    (CONSUMER_CLOSED_AT, "consumer closed"),
];

/// Sleep words, which are also exchanged by the endpoint that sends the wake-up.
const SLEEPS: [(usize, &str); 2] = [
    (PRODUCER_SLEEPS_AT, "producer sleeps"),
    (CONSUMER_SLEEPS_AT, "consumer sleeps"),
];

#[derive(Debug)]
struct Mapping {
    geometry: Geometry,
    header: Vec<(usize, Word)>,
    descriptors: Vec<Word>,
    slots: Vec<Cell<[u8; INLINE]>>,
    units: Vec<Cell<[u8; UNIT]>>,
}

impl Mapping {
    fn create(geometry: Geometry) -> Self {
        let mapping = Self {
            geometry,
            header: HEADER
                .map(|(at, name)| (at, Word::new(name)))
                .into_iter()
                .chain(SLEEPS.map(|(at, name)| (at, Word::exchanged(name))))
                .collect(),
            descriptors: (0..geometry.slots())
                .map(|_| Word::new("descriptor"))
                .collect(),
            slots: (0..geometry.slots())
                .map(|_| Cell::new([0; INLINE]))
                .collect(),
            units: (0..geometry.units())
                .map(|_| Cell::new([0; UNIT]))
                .collect(),
        };
        mapping
            .word(CONSUMER_BARRIERS_AT)
            .store(u64::from(uses_barriers()), Ordering::Relaxed);
        mapping
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn word(&self, at: usize) -> &Word {
        match self.header.iter().find(|(known, _)| *known == at) {
            Some((_, word)) => word,
            None => &self.descriptors[self.slot_of(at)],
        }
    }

    fn slot_of(&self, at: usize) -> usize {
        (at - self.geometry.slot_at(0)) / UNIT
    }

    /// Prefetches have no effect in the model.
    fn will_read_slot(&self, _at: usize) {}

    fn will_write_slot(&self, _at: usize) {}

    /// # Safety
    ///
    /// None is needed: loom detects writes to slots that the endpoint does not own.
    unsafe fn write_slot(&self, at: usize, bytes: &[u8; INLINE]) {
        self.slots[self.slot_of(at)].write(|slot| *slot = *bytes);
    }

    fn read_slot(&self, at: usize) -> [u8; UNIT] {
        let mut bytes = [0; UNIT];
        self.slots[self.slot_of(at)].read(|slot| bytes[..INLINE].copy_from_slice(slot));
        bytes
    }

    /// # Safety
    ///
    /// `src` must be readable for `len` bytes.
    unsafe fn copy_in(&self, offset: usize, src: *const u8, len: usize) {
        // SAFETY: guaranteed by the caller.
        let src = unsafe { std::slice::from_raw_parts(src, len) };
        self.units_of(offset, len, |unit, at, done, part| {
            unit.write(|bytes| bytes[at..at + part].copy_from_slice(&src[done..done + part]));
        });
    }

    /// # Safety
    ///
    /// `dst` must be writable for `len` bytes.
    unsafe fn copy_out(&self, offset: usize, dst: *mut u8, len: usize) {
        // SAFETY: guaranteed by the caller.
        let dst = unsafe { std::slice::from_raw_parts_mut(dst, len) };
        self.units_of(offset, len, |unit, at, done, part| {
            unit.read(|bytes| dst[done..done + part].copy_from_slice(&bytes[at..at + part]));
        });
    }

    /// Calls `copy(unit, offset in it, bytes done, bytes of this part)`.
    fn units_of(
        &self,
        offset: usize,
        len: usize,
        mut copy: impl FnMut(&Cell<[u8; UNIT]>, usize, usize, usize),
    ) {
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let part = (UNIT - at % UNIT).min(len - done);
            copy(
                &self.units[at / UNIT % self.units.len()],
                at % UNIT,
                done,
                part,
            );
            done += part;
        }
    }
}

/// Like an eventfd in an engine's epoll set: a counter that can be waited for, incremented and reset.
#[derive(Debug)]
pub(crate) struct EventFd(sync::Arc<(sync::Mutex<u64>, Condvar)>);

impl EventFd {
    pub(crate) fn new() -> Self {
        Self(sync::Arc::new((sync::Mutex::new(0), Condvar::new())))
    }

    pub(crate) fn duplicate(&self) -> Self {
        Self(sync::Arc::clone(&self.0))
    }

    pub(crate) fn ring(&self) {
        let (count, rung) = &*self.0;
        *count.lock().expect("no thread panics") += 1;
        rung.notify_all();
    }

    /// Resets the counter; `true` if it was not 0.
    pub(crate) fn drain(&self) -> bool {
        std::mem::take(&mut *self.0.0.lock().expect("no thread panics")) != 0
    }

    /// Sleeps until a wake-up, without softdoca's timeout: a lost wake-up is a deadlock, which loom reports.
    pub(crate) fn wait(&self) {
        machine::leave_while(|| {
            let (count, rung) = &*self.0;
            let mut count = count.lock().expect("no thread panics");
            while *count == 0 {
                count = rung.wait(count).expect("no thread panics");
            }
        });
    }
}

#[derive(Debug)]
struct Mutex(sync::Mutex<()>);

impl Default for Mutex {
    fn default() -> Self {
        Self(sync::Mutex::new(()))
    }
}

impl Mutex {
    /// A waiting thread does not occupy its processor.
    fn lock(&self) -> MutexGuard<'_, ()> {
        let mut guard = None;
        machine::leave_while(|| guard = self.0.lock().ok());
        guard.expect("no thread panics")
    }
}

fn word(name: &'static str) -> Word {
    Word::new(name)
}

/// Loom detects unordered uses.
#[derive(Debug)]
struct Contents<T>(Cell<T>);

impl<T> Contents<T> {
    fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    /// # Safety
    ///
    /// None is needed.
    unsafe fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        self.0.write(action)
    }
}
