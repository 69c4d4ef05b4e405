//! The memory of a ring, under loom: words are loom atomics, slots and payload units are loom cells, which detect
//! unordered reads and writes.

use super::kernel::uses_barriers;
use super::layout::{
    CONSUMER_BARRIERS_AT, CONSUMER_CLOSED_AT, CONSUMER_SLEEPS_AT, Geometry, INLINE, POSTED_AT,
    PRODUCER_BARRIERS_AT, PRODUCER_CLOSED_AT, PRODUCER_SLEEPS_AT, SLOTS_CONSUMED_AT, UNIT,
    UNITS_CONSUMED_AT,
};
use crate::words::Cell;
pub(super) use crate::words::{Word, fence};
use std::sync::atomic::Ordering;

/// Small enough to be full after a few messages.
pub(super) const FEWEST_UNITS: u64 = 2;

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

/// Sleep words, which are exchanged by the waker.
const SLEEPS: [(usize, &str); 2] = [
    (PRODUCER_SLEEPS_AT, "producer sleeps"),
    (CONSUMER_SLEEPS_AT, "consumer sleeps"),
];

#[derive(Debug)]
pub(super) struct Mapping {
    geometry: Geometry,
    header: Vec<(usize, Word)>,
    descriptors: Vec<Word>,
    slots: Vec<Cell<[u8; INLINE]>>,
    units: Vec<Cell<[u8; UNIT]>>,
}

impl Mapping {
    pub(super) fn create(geometry: Geometry) -> Self {
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

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn word(&self, at: usize) -> &Word {
        match self.header.iter().find(|(known, _)| *known == at) {
            Some((_, word)) => word,
            None => &self.descriptors[self.slot_of(at)],
        }
    }

    fn slot_of(&self, at: usize) -> usize {
        (at - self.geometry.slot_at(0)) / UNIT
    }

    /// Prefetches have no effect in the model.
    pub(super) fn will_read_slot(&self, _at: usize) {}

    pub(super) fn will_write_slot(&self, _at: usize) {}

    /// # Safety
    ///
    /// None is needed: loom detects writes to slots that the endpoint does not own.
    pub(super) unsafe fn write_slot(&self, at: usize, bytes: &[u8; INLINE]) {
        self.slots[self.slot_of(at)].write(|slot| *slot = *bytes);
    }

    pub(super) fn read_slot(&self, at: usize) -> [u8; UNIT] {
        let mut bytes = [0; UNIT];
        self.slots[self.slot_of(at)].read(|slot| bytes[..INLINE].copy_from_slice(slot));
        bytes
    }

    /// # Safety
    ///
    /// `src` must be readable for `len` bytes.
    pub(super) unsafe fn copy_in(&self, offset: usize, src: *const u8, len: usize) {
        // SAFETY: guaranteed by the caller.
        let src = unsafe { std::slice::from_raw_parts(src, len) };
        self.units_of(offset, len, |unit, at, done, part| {
            unit.write(|bytes| bytes[at..at + part].copy_from_slice(&src[done..done + part]));
        });
    }

    /// # Safety
    ///
    /// `dst` must be writable for `len` bytes.
    pub(super) unsafe fn copy_out(&self, offset: usize, dst: *mut u8, len: usize) {
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
