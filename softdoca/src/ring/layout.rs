//! Where everything lives in a ring's shared memory.
//!
//! ```text
//!    0  u64 magic, u64 units                     written once by the creator
//!   64  u64 producer closed                      producer's line
//!  128  u64 units consumed, u64 receives posted,
//!       u64 consumer closed                      consumer's line
//!  192  u64 consumer sleeps                      written by the consumer, cleared by the producer
//!  256  u64 producer sleeps                      written by the producer, cleared by the consumer
//!  512  units x u64 descriptor words
//!   ..  units x 64 bytes of payload
//! ```
//!
//! A message takes whole units of 64 bytes, so a 64-byte message costs one cache line of payload and an eighth of a
//! line of descriptors. The descriptor of its first unit is written last: the consumer needs no index of the
//! producer's.

use super::Corrupt;

/// Bytes of one unit of payload: a cache line.
pub(super) const UNIT: usize = 64;
/// "SDRING" and the version of this layout; another version is another magic.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"SDRING\0\x01");

pub(super) const MAGIC_AT: usize = 0;
pub(super) const UNITS_AT: usize = 8;
pub(super) const PRODUCER_CLOSED_AT: usize = 64;
pub(super) const CONSUMED_AT: usize = 128;
pub(super) const POSTED_AT: usize = 136;
pub(super) const CONSUMER_CLOSED_AT: usize = 144;
pub(super) const CONSUMER_SLEEPS_AT: usize = 192;
pub(super) const PRODUCER_SLEEPS_AT: usize = 256;
const DESCRIPTORS_AT: usize = 512;

/// Largest immediate data of one message, in bytes.
pub(super) const MAX_IMMEDIATE: usize = 63;
/// Most units a ring may have: 16 MiB of payload.
const MAX_UNITS: u64 = 1 << 18;
const MIN_UNITS: u64 = 64;

/// Size of a ring: a power of two of 64-byte units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    units: u64,
}

impl Geometry {
    /// A ring that holds `messages` small messages, and at the same time twice `largest` bytes, within limits.
    pub(crate) fn for_messages(messages: usize, largest: usize) -> Self {
        let small = messages as u64;
        let large = (largest as u64).div_ceil(UNIT as u64).saturating_mul(2);
        let units = small.max(large).clamp(MIN_UNITS, MAX_UNITS);
        Self {
            units: units.next_power_of_two().min(MAX_UNITS),
        }
    }

    /// Checks a count of units that came from shared memory.
    pub(super) fn from_units(units: u64) -> Result<Self, Corrupt> {
        if units.is_power_of_two() && (MIN_UNITS..=MAX_UNITS).contains(&units) {
            Ok(Self { units })
        } else {
            Err(Corrupt {
                expected: "a power of two of 64 to 262144 units",
                found: units,
            })
        }
    }

    pub(super) fn units(self) -> u64 {
        self.units
    }

    /// Largest fragment that one descriptor describes, in bytes: a quarter of the ring, so that the two ends overlap.
    pub(super) fn max_fragment(self) -> usize {
        (self.units as usize / 4) * UNIT
    }

    pub(super) fn descriptor_at(self, position: u64) -> usize {
        DESCRIPTORS_AT + (position & (self.units - 1)) as usize * 8
    }

    pub(super) fn payload_at(self) -> usize {
        DESCRIPTORS_AT + self.units as usize * 8
    }

    /// Bytes of payload in the whole ring.
    pub(super) fn payload_len(self) -> usize {
        self.units as usize * UNIT
    }

    /// Byte offset within the payload area of the unit at `position`.
    pub(super) fn payload_offset(self, position: u64) -> usize {
        (position & (self.units - 1)) as usize * UNIT
    }

    /// Bytes of the whole mapping, in whole pages of 4 KiB.
    pub(super) fn mapping_len(self) -> usize {
        (self.payload_at() + self.payload_len()).next_multiple_of(4096)
    }

    /// Which lap around the ring the unit at `position` belongs to; never 0, which is what fresh memory holds, and never
    /// that of the lap before, which is what used memory holds.
    fn lap(self, position: u64) -> u32 {
        let lap = position >> self.units.trailing_zeros();
        (lap % u64::from(u32::MAX)) as u32 + 1
    }
}

/// What a descriptor word says about the fragment that starts at its unit.
///
/// Bits 0..24 length in bytes, 24..30 length of the immediate data, 30 more fragments follow, 31 has immediate data,
/// 32..64 lap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Bytes of payload in this fragment, immediate data excluded.
    pub len: usize,
    /// Immediate data in front of the payload; `None` when the message has none.
    pub immediate: Option<usize>,
    /// Another fragment of the same message follows.
    pub more: bool,
}

const LEN_MASK: u64 = (1 << 24) - 1;

impl Descriptor {
    pub(super) fn stored_len(&self) -> usize {
        self.len + self.immediate.unwrap_or(0)
    }

    /// Units that the fragment takes: at least one, so that an empty message has a place for its descriptor.
    pub(super) fn units(&self) -> u64 {
        (self.stored_len().div_ceil(UNIT) as u64).max(1)
    }

    pub(super) fn encode(&self, geometry: Geometry, position: u64) -> u64 {
        let (immediate, flag) = self.immediate.map_or((0, 0), |n| (n as u64, 1u64 << 31));
        (self.len as u64 & LEN_MASK)
            | (immediate << 24)
            | (u64::from(self.more) << 30)
            | flag
            | (u64::from(geometry.lap(position)) << 32)
    }

    /// The fragment at `position`, or `None` when the producer has not written it yet.
    pub(super) fn decode(
        word: u64,
        geometry: Geometry,
        position: u64,
    ) -> Result<Option<Self>, Corrupt> {
        if (word >> 32) as u32 != geometry.lap(position) {
            return Ok(None);
        }
        let descriptor = Self {
            len: (word & LEN_MASK) as usize,
            immediate: (word & (1 << 31) != 0).then_some((word >> 24) as usize & MAX_IMMEDIATE),
            more: word & (1 << 30) != 0,
        };
        if descriptor.stored_len() > geometry.max_fragment() {
            return Err(Corrupt {
                expected: "a fragment of at most a quarter of the ring",
                found: word,
            });
        }
        Ok(Some(descriptor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_differ_from_the_one_before_and_from_fresh_memory_however_long_a_ring_is_used() {
        let geometry = Geometry::from_units(MIN_UNITS).expect("a size");
        for lap in [0, 1, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32] {
            let (this, next) = (lap * MIN_UNITS, (lap + 1) * MIN_UNITS);
            assert_ne!(geometry.lap(this), 0, "lap {lap}");
            assert_ne!(geometry.lap(this), geometry.lap(next), "lap {lap}");
        }
    }
}
