//! Stored chunks: the part of a stripe that a target stores. Each chunk is judged individually, and two chunks of a
//! stripe belong together only if they have the same [`Stamp`]. This module processes bytes only, without I/O.
//!
//! The layout is that of [`wire::stored_block::ChunkRecord`]: the record comes first in chunks of data_1 and last in all others, so that the payloads of data_1
//! and data_2 are adjacent in a buffer of both chunks.

use std::fmt;
use std::ops::Range;

use role_formats::superblock::SetId;
use wire::stored_block::ChunkRecord;

use crate::Target;

/// Identifies one write of a stripe. A later write of the stripe has a higher stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Epoch in which the session of the write began.
    pub epoch: u64,
    /// Number of the write in that epoch, from 1 on.
    pub number: u64,
}

impl Stamp {
    /// The stamp of a stripe that was never written: its chunks are zeros.
    pub const UNWRITTEN: Self = Self {
        epoch: 0,
        number: 0,
    };

    /// The stamp of a placeholder for a lost chunk. It is older than any write and differs between members, so it never
    /// equals that of another chunk.
    #[must_use]
    pub const fn lost(member: Target) -> Self {
        Self {
            epoch: 0,
            number: member as u64 + 1,
        }
    }

    /// Returns `true` if the chunk is a placeholder for a lost one.
    #[must_use]
    pub fn is_lost(self) -> bool {
        self.epoch == 0 && self.number != 0
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.number)
    }
}

/// The chunk that is expected at some place of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub set: SetId,
    pub stripe: u64,
    pub member: Target,
}

/// Reason why bytes are not the chunk that is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The bytes contain no record, but are not zeros.
    #[error("is no chunk")]
    NoRecord,
    /// Payload or record were altered.
    #[error("has the checksum {stored:#010x}, expected {calculated:#010x}")]
    Checksum {
        /// The checksum in the record.
        stored: u32,
        /// The checksum of the bytes.
        calculated: u32,
    },
    /// A chunk of another set, stripe or member: a misdirected write, or a target at the wrong address.
    #[error("is the chunk of set {set}, block {stripe}, member {member}")]
    Misplaced {
        /// Set in the record.
        set: SetId,
        /// Stripe in the record.
        stripe: u64,
        /// Member in the record.
        member: u32,
    },
}

/// The stamp of a valid chunk, or the flaw that makes the chunk invalid.
pub type Judgement = Result<Stamp, Flaw>;

/// Size in bytes of a chunk's record.
pub const RECORD: usize = ChunkRecord::SIZE;

/// Range of the payload in a chunk of `len` bytes.
#[must_use]
pub fn payload_range(member: Target, len: usize) -> Range<usize> {
    match member {
        Target::Data1 => RECORD.min(len)..len,
        Target::Data2 | Target::DataP => 0..len.saturating_sub(RECORD),
    }
}

/// Alignment of payloads in bytes, for erasure coding.
const ALIGNMENT: u32 = 64;

/// Size in bytes of the chunks of blocks of this size; `None` if it does not fit in 32 bits.
#[must_use]
pub fn size_for(logical_block_size: u32) -> Option<u32> {
    let payload = logical_block_size.div_ceil(2);
    let payload = payload.checked_next_multiple_of(ALIGNMENT)?;
    payload.checked_add(RECORD as u32)
}

/// Returns `true` if chunks of `size` bytes have room for blocks of this size, and their payloads can be encoded.
#[must_use]
pub fn has_room(size: u32, logical_block_size: u32) -> bool {
    size.is_multiple_of(ALIGNMENT)
        && size_for(logical_block_size).is_some_and(|needed| needed <= size)
}

fn record_range(member: Target, len: usize) -> Range<usize> {
    match member {
        Target::Data1 => 0..RECORD,
        Target::Data2 | Target::DataP => len - RECORD..len,
    }
}

/// CRC-32C of a chunk's payload and of its record without the checksum.
fn checksum(payload: &[u8], record: &[u8]) -> u32 {
    let before = &record[..RECORD - size_of::<u32>()];
    role_formats::checksum::crc32c(payload, before)
}

/// Judges the bytes read from a place.
///
/// # Panics
///
/// If the chunk is shorter than a record.
pub fn judge(chunk: &[u8], place: Place) -> Judgement {
    let record = &chunk[record_range(place.member, chunk.len())];
    let Ok(parsed) = ChunkRecord::parse(record) else {
        return judge_without_record(chunk);
    };
    let payload = &chunk[payload_range(place.member, chunk.len())];
    let calculated = checksum(payload, record);
    if parsed.checksum != calculated {
        return Err(Flaw::Checksum {
            stored: parsed.checksum,
            calculated,
        });
    }
    let set = SetId(u128::from(parsed.set_high) << 64 | u128::from(parsed.set_low));
    if set != place.set || parsed.stripe != place.stripe || parsed.member != place.member as u32 {
        return Err(Flaw::Misplaced {
            set,
            stripe: parsed.stripe,
            member: parsed.member,
        });
    }
    Ok(Stamp {
        epoch: parsed.epoch,
        number: parsed.number,
    })
}

#[cold]
fn judge_without_record(chunk: &[u8]) -> Judgement {
    if chunk.iter().all(|&byte| byte == 0) {
        Ok(Stamp::UNWRITTEN)
    } else {
        Err(Flaw::NoRecord)
    }
}

/// Writes the record of a chunk whose payload is already in the buffer.
///
/// # Panics
///
/// If the chunk is shorter than a record.
pub fn seal(chunk: &mut [u8], place: Place, stamp: Stamp) {
    let mut record = ChunkRecord {
        member: place.member as u32,
        set_high: (place.set.0 >> 64) as u64,
        set_low: place.set.0 as u64,
        stripe: place.stripe,
        epoch: stamp.epoch,
        number: stamp.number,
        compressed_size: 0,
        checksum: 0,
    };
    let payload = payload_range(place.member, chunk.len());
    record.checksum = checksum(&chunk[payload], &record.emit());
    let range = record_range(place.member, chunk.len());
    chunk[range].copy_from_slice(&record.emit());
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: SetId = SetId(0x0123_4567_89ab_cdef_1020_3040_5060_7080);

    fn place(member: Target) -> Place {
        Place {
            set: SET,
            stripe: 0x1_0000_0005,
            member,
        }
    }

    const STAMP: Stamp = Stamp {
        epoch: 7,
        number: 0x1_0000_0000,
    };

    fn sealed(member: Target) -> Vec<u8> {
        let mut chunk: Vec<u8> = (0..192).map(|byte| byte as u8).collect();
        seal(&mut chunk, place(member), STAMP);
        chunk
    }

    #[test]
    fn sealed_chunk_has_its_stamp_and_payload() {
        for member in Target::ALL {
            let chunk = sealed(member);
            assert_eq!(judge(&chunk, place(member)), Ok(STAMP));
            let payload = payload_range(member, chunk.len());
            assert_eq!(payload.len(), 128);
            assert!(
                chunk[payload.clone()]
                    .iter()
                    .enumerate()
                    .all(|(at, &byte)| { usize::from(byte) == payload.start + at })
            );
        }
    }

    #[test]
    fn payloads_of_the_data_chunks_are_adjacent() {
        let (first, second) = (
            payload_range(Target::Data1, 192),
            payload_range(Target::Data2, 192),
        );
        assert_eq!((first.end, second.start), (192, 0));
    }

    #[test]
    fn every_flipped_bit_is_a_flaw() {
        for member in Target::ALL {
            let chunk = sealed(member);
            for bit in 0..8 * chunk.len() {
                let mut flipped = chunk.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(judge(&flipped, place(member)).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn chunk_of_another_place_is_misplaced() {
        let here = place(Target::Data2);
        let chunk = sealed(Target::Data2);
        for other in [
            Place {
                set: SetId(SET.0 + 1),
                ..here
            },
            Place { stripe: 5, ..here },
            Place {
                member: Target::DataP,
                ..here
            },
        ] {
            assert!(
                matches!(judge(&chunk, other), Err(Flaw::Misplaced { .. })),
                "{other:?}"
            );
        }
    }

    #[test]
    fn only_zeros_are_unwritten() {
        for member in Target::ALL {
            let mut chunk = vec![0; 192];
            assert_eq!(judge(&chunk, place(member)), Ok(Stamp::UNWRITTEN));
            let payload = payload_range(member, chunk.len());
            for at in [payload.start, payload.end - 1] {
                chunk[at] = 1;
                assert_eq!(judge(&chunk, place(member)), Err(Flaw::NoRecord));
                chunk[at] = 0;
            }
            // A lost sector at either end of a written chunk.
            let mut torn = sealed(member);
            torn[..96].fill(0);
            assert!(judge(&torn, place(member)).is_err());
            let mut torn = sealed(member);
            torn[96..].fill(0);
            assert!(judge(&torn, place(member)).is_err());
        }
    }

    #[test]
    fn chunks_have_half_a_block_and_a_record() {
        for (logical, size) in [
            (1, 128),
            (512, 320),
            (4096, 2112),
            (4097, 2176),
            (65536, 32832),
            (1 << 20, (1 << 19) + 64),
        ] {
            assert_eq!(size_for(logical), Some(size));
            assert!(has_room(size, logical) && has_room(size + 64, logical));
            assert!(!has_room(size - 64, logical) && !has_room(size + 1, logical));
        }
        assert_eq!(size_for(u32::MAX), Some((1 << 31) + 64));
    }

    #[test]
    fn stamps_are_ordered_by_epoch_first() {
        let stamp = |epoch, number| Stamp { epoch, number };
        assert!(Stamp::UNWRITTEN < stamp(1, 1));
        assert!(stamp(1, 9) < stamp(2, 1) && stamp(2, 1) < stamp(2, 2));
    }
}
