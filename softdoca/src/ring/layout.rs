//! Layout of a ring's shared memory.
//!
//! ```text
//!    0  u64 magic, u64 slots, u64 units,
//!       u64 consumer uses barriers               written once by the creator
//!   64  u64 producer closed, u64 producer sleeps,
//!       u64 producer uses barriers               producer's line, rarely written
//!  128  u64 slots consumed, u64 units consumed,
//!       u64 receives posted                      consumer's line, written with every message
//!  192  u64 consumer closed, u64 consumer sleeps consumer's other line, rarely written
//!  512  slots x 64 bytes                         u64 descriptor, 56 bytes
//!   ..  units x 64 bytes of payload
//! ```
//!
//! Every fragment takes a slot. Up to 56 bytes are stored in the slot, and up to 64 if the bytes after the 56th are
//! zeros: a message of the storage protocol takes one cache line. Longer fragments are stored in whole units of
//! payload. The descriptor of a slot is written last, so the consumer needs no producer index. A sleep word is set by
//! the endpoint after which it is named, and cleared by the other one.

use super::{Corrupt, FEWEST_UNITS};

/// Size of a slot and of a unit of payload in bytes: a cache line.
pub(super) const UNIT: usize = 64;
/// Bytes of a slot after its descriptor.
pub(super) const INLINE: usize = UNIT - 8;
/// Number of slots that either endpoint prefetches: transferring a cache line from another core takes the time of
/// several messages, and a producer that stalls on one delays all later writes.
pub(super) const SLOTS_AHEAD: u64 = 4;
/// "SDRING" and the layout version; an incompatible version has another magic.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"SDRING\0\x02");

pub(super) const MAGIC_AT: usize = 0;
pub(super) const SLOTS_AT: usize = 8;
pub(super) const UNITS_AT: usize = 16;
pub(super) const CONSUMER_BARRIERS_AT: usize = 24;
pub(super) const PRODUCER_CLOSED_AT: usize = 64;
pub(super) const PRODUCER_SLEEPS_AT: usize = 72;
pub(super) const PRODUCER_BARRIERS_AT: usize = 80;
pub(super) const SLOTS_CONSUMED_AT: usize = 128;
pub(super) const UNITS_CONSUMED_AT: usize = 136;
pub(super) const POSTED_AT: usize = 144;
pub(super) const CONSUMER_CLOSED_AT: usize = 192;
pub(super) const CONSUMER_SLEEPS_AT: usize = 200;
const RING_AT: usize = 512;

/// Largest immediate data of one message, in bytes.
pub(super) const MAX_IMMEDIATE: usize = 63;
/// Maximum number of slots, and of units of payload, of a ring: 16 MiB of each.
const MAX_UNITS: u64 = 1 << 18;

/// Size of a ring: powers of two of slots and of 64-byte units of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    slots: u64,
    units: u64,
    /// Binary logarithm of the number of slots; needed for every message, so it is precomputed.
    slot_bits: u32,
}

impl Geometry {
    /// A ring for `messages` small messages with immediate data, with a payload area of twice `largest` bytes, within
    /// limits.
    pub(crate) fn for_messages(messages: usize, largest: usize) -> Self {
        let round = |count: u64| count.clamp(FEWEST_UNITS, MAX_UNITS).next_power_of_two();
        let small = (messages as u64).saturating_mul(2);
        let large = (largest as u64).div_ceil(UNIT as u64).saturating_mul(2);
        Self::of(round(messages as u64), round(small.max(large)))
    }

    fn of(slots: u64, units: u64) -> Self {
        Self {
            slots,
            units,
            slot_bits: slots.trailing_zeros(),
        }
    }

    /// Checks the two counts read from shared memory.
    pub(super) fn from_counts(slots: u64, units: u64) -> Result<Self, Corrupt> {
        for count in [slots, units] {
            if !count.is_power_of_two() || !(FEWEST_UNITS..=MAX_UNITS).contains(&count) {
                return Err(Corrupt {
                    expected: "a power of two of 64 to 262144 slots and units",
                    found: count,
                });
            }
        }
        Ok(Self::of(slots, units))
    }

    pub(super) fn slots(self) -> u64 {
        self.slots
    }

    pub(super) fn units(self) -> u64 {
        self.units
    }

    /// Largest fragment of one descriptor, in bytes: a quarter of the payload, so that both endpoints can work at the
    /// same time.
    pub(super) fn max_fragment(self) -> usize {
        (self.units as usize / 4) * UNIT
    }

    /// Byte offset in the mapping of the slot at `position`.
    #[inline]
    pub(super) fn slot_at(self, position: u64) -> usize {
        RING_AT + (position & (self.slots - 1)) as usize * UNIT
    }

    pub(super) fn payload_at(self) -> usize {
        RING_AT + self.slots as usize * UNIT
    }

    /// Size of the payload area in bytes.
    pub(super) fn payload_len(self) -> usize {
        self.units as usize * UNIT
    }

    /// Byte offset within the payload area of the unit at `position`.
    pub(super) fn payload_offset(self, position: u64) -> usize {
        (position & (self.units - 1)) as usize * UNIT
    }

    /// Size of the whole mapping in bytes, in whole pages of 4 KiB.
    pub(super) fn mapping_len(self) -> usize {
        (self.payload_at() + self.payload_len()).next_multiple_of(4096)
    }

    /// Lap of the slot at `position`; never 0, which is the content of unused memory, and never that of the previous
    /// lap, which is the content of used memory.
    #[inline]
    fn lap(self, position: u64) -> u32 {
        let lap = position >> self.slot_bits;
        // A mask instead of a remainder, because this is computed twice per message. The lowest bit is always set, and
        // the other bits are the counter.
        (lap as u32) << 1 | 1
    }
}

/// The low half of a descriptor word: description of the slot's fragment. The high half is the lap.
///
/// Bits 0..23 length in bytes, 23 stored in the slot, 24..30 length of the immediate data, 30 more fragments follow, 31
/// has immediate data, 32..64 lap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor(u32);

const LEN_MASK: u32 = (1 << 23) - 1;
const IS_INLINE: u32 = 1 << 23;
const HAS_MORE: u32 = 1 << 30;
const HAS_IMMEDIATE: u32 = 1 << 31;

impl Descriptor {
    /// A whole 64-byte message without immediate data, stored in the slot: the format of storage requests and results.
    pub(super) const LINE: Self = Self(IS_INLINE | UNIT as u32);

    /// `len` bytes of data, preceded by `immediate` bytes, if any. `inline` is `true` if the data is stored in the
    /// slot, with zeros beyond it. The lengths are within the limits of the ring.
    #[inline]
    pub(super) fn new(len: usize, immediate: Option<usize>, more: bool, inline: bool) -> Self {
        let immediate = immediate.map_or(0, |len| (len as u32) << 24 | HAS_IMMEDIATE);
        let more = if more { HAS_MORE } else { 0 };
        let inline = if inline { IS_INLINE } else { 0 };
        Self(len as u32 & LEN_MASK | immediate | more | inline)
    }

    /// Bytes of data in this fragment, immediate data excluded.
    #[inline]
    pub(super) fn len(self) -> usize {
        (self.0 & LEN_MASK) as usize
    }

    /// Length of the immediate data before the data; `None` if the message has none.
    #[inline]
    pub(super) fn immediate(self) -> Option<usize> {
        (self.0 & HAS_IMMEDIATE != 0).then_some((self.0 >> 24) as usize & MAX_IMMEDIATE)
    }

    /// `true` if another fragment of the same message follows.
    #[inline]
    pub(super) fn more(self) -> bool {
        self.0 & HAS_MORE != 0
    }

    /// `true` if stored in the slot; bytes beyond the slot are zeros.
    #[inline]
    pub(super) fn is_inline(self) -> bool {
        self.0 & IS_INLINE != 0
    }

    #[inline]
    fn stored_len(self) -> usize {
        self.len() + self.immediate().unwrap_or(0)
    }

    /// Number of payload units of the fragment.
    #[inline]
    pub(super) fn units(self) -> u64 {
        if self.is_inline() {
            0
        } else {
            self.stored_len().div_ceil(UNIT) as u64
        }
    }

    #[inline]
    pub(super) fn encode(self, geometry: Geometry, position: u64) -> u64 {
        u64::from(self.0) | u64::from(geometry.lap(position)) << 32
    }

    /// Decodes the descriptor of the fragment at `position`; `None` if the producer has not written it yet.
    #[inline]
    pub(super) fn decode(
        word: u64,
        geometry: Geometry,
        position: u64,
    ) -> Result<Option<Self>, Corrupt> {
        if (word >> 32) as u32 != geometry.lap(position) {
            return Ok(None);
        }
        let descriptor = Self(word as u32);
        if descriptor != Self::LINE {
            descriptor.check(word, geometry)?;
        }
        Ok(Some(descriptor))
    }

    /// Checks the lengths, which the peer controls.
    fn check(self, word: u64, geometry: Geometry) -> Result<(), Corrupt> {
        let most = if self.is_inline() {
            UNIT
        } else {
            geometry.max_fragment()
        };
        if self.stored_len() > most {
            return Err(Corrupt {
                expected: "a fragment of at most a quarter of the ring, or of a slot",
                found: word,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_differ_from_the_previous_lap_and_from_fresh_memory() {
        let geometry = Geometry::from_counts(FEWEST_UNITS, FEWEST_UNITS).expect("a size");
        for lap in [0, 1, (1 << 31) - 1, 1 << 31, u64::from(u32::MAX), 1 << 32] {
            let (this, next) = (lap * FEWEST_UNITS, (lap + 1) * FEWEST_UNITS);
            assert_ne!(geometry.lap(this), 0, "lap {lap}");
            assert_ne!(geometry.lap(this), geometry.lap(next), "lap {lap}");
        }
    }

    #[test]
    fn the_longest_fragments_of_the_largest_ring_fit_their_descriptor() {
        let geometry = Geometry::for_messages(1 << 30, 1 << 40);
        for (len, inline) in [(geometry.max_fragment(), false), (UNIT, true), (0, true)] {
            let descriptor = Descriptor::new(len, None, false, inline);
            assert_eq!((descriptor.len(), descriptor.is_inline()), (len, inline));
            let word = descriptor.encode(geometry, 5);
            assert_eq!(Descriptor::decode(word, geometry, 5), Ok(Some(descriptor)));
        }
        let beyond = Descriptor::new(UNIT, Some(1), false, true);
        let word = beyond.encode(geometry, 5);
        assert!(Descriptor::decode(word, geometry, 5).is_err());
    }
}
