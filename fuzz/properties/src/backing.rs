//! The header of a target's backing file.

use arbitrary::{Arbitrary, Result, Unstructured};
use role_target::backing::{FileHeader, Identity, check, emit};
use role_target::content::Geometry;
use role_target::versions::SlotArea;
use wire::backing::{CONTENT_OFFSET, HEADER_SIZE};

use super::control_frames::rest;
use super::harness::{self, Counting, Damage, spoil};

/// Start of a file, the file's length, and the storage that it is opened for.
#[derive(Debug, Clone)]
pub struct Input {
    expected: Geometry,
    length: u64,
    start: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
struct Parts {
    expected: (u16, u16),
    /// A geometry other than the expected one.
    other: Option<(u32, u32)>,
    identity: [u8; 16],
    /// Slots for versions; `None` for the slots of a new file.
    slots: Option<(u64, u32, u32)>,
    damage: Vec<Damage>,
    /// `true` to correct the checksum afterwards.
    repair: bool,
    /// Bytes that the file is longer than necessary; negative if it is too short.
    excess: i8,
}

/// One byte selects the kind and the remaining bytes are the content, so that a file can be used as an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=1)? {
            0 => Self {
                expected: Geometry {
                    block_size: 512,
                    block_count: 3,
                },
                length: u.arbitrary()?,
                start: rest(u)?,
            },
            _ => u.arbitrary::<Parts>()?.input(),
        })
    }
}

impl Parts {
    fn input(&self) -> Input {
        let expected = Geometry {
            block_size: u32::from(self.expected.0).max(1),
            block_count: u32::from(self.expected.1).max(1),
        };
        let said = self
            .other
            .map_or(expected, |(block_size, block_count)| Geometry {
                block_size,
                block_count,
            });
        let slots = self.slots.map_or_else(
            || SlotArea::new(said, CONTENT_OFFSET),
            |(offset, slot_size, count)| SlotArea {
                offset,
                slot_size,
                count,
            },
        );
        let mut start = emit(FileHeader {
            geometry: said,
            identity: Identity(self.identity),
            slots,
        })
        .to_vec();
        spoil(&mut start, &self.damage);
        if self.repair
            && let Some((before, checksum)) = start.split_last_chunk_mut::<4>()
        {
            *checksum = crc32c::crc32c(before).to_be_bytes();
        }
        let content_end = CONTENT_OFFSET + expected.capacity();
        let needed = content_end.max(slots.end().unwrap_or(u64::MAX));
        Input {
            expected,
            length: needed.saturating_add_signed(self.excess.max(-3).into()),
            start,
        }
    }
}

/// A header is accepted if and only if it equals the header written for this storage and its identity, and the file is
/// long enough.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    let Input {
        expected,
        length,
        ref start,
    } = *input;
    let counting = Counting::of("backing file's header");
    // A target reads only this part of a file.
    let start = &start[..start.len().min(HEADER_SIZE)];
    let checked =
        harness::within_memory(4096, "checking a header", || check(start, length, expected));
    let right = start.len() == HEADER_SIZE && {
        let number = |at: usize| u32::from_be_bytes(start[at..at + 4].try_into().expect("4"));
        let header = FileHeader {
            geometry: expected,
            identity: Identity(start[28..44].try_into().expect("its size")),
            slots: SlotArea {
                count: number(44),
                slot_size: number(48),
                offset: u64::from_be_bytes(start[52..60].try_into().expect("8")),
            },
        };
        let content_end = CONTENT_OFFSET + expected.capacity();
        let slots = u64::from(header.slots.slot_size) * u64::from(header.slots.count);
        let end = u128::from(header.slots.offset) + u128::from(slots);
        let is_aligned = header.slots.offset.is_multiple_of(4096)
            && header.slots.slot_size.is_multiple_of(4096)
            && u64::from(header.slots.slot_size) >= u64::from(expected.block_size) + 64
            && (1..=6144).contains(&header.slots.count);
        let has_slots = is_aligned && header.slots.offset >= content_end;
        u128::from(length) >= end.max(content_end.into())
            && (has_slots || header.slots == SlotArea::default())
            && emit(header) == start
    };
    match &checked {
        Ok(header) => {
            assert!(right, "{input:?}");
            assert_eq!(header.identity.0, start[28..44]);
        }
        Err(refused) => {
            assert!(!right, "{refused}");
            assert!(!refused.message.is_empty());
        }
    }
    counting.done(checked.is_ok());
}
