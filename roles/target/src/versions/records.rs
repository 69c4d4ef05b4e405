//! Slots and the tail of the log in a backing file: their bytes and places.

use control::Failure;
use crc_fast::{CrcAlgorithm, Digest};
use wire::backing::{TAIL_OFFSETS, VersionSlot, VersionTail};

use super::{Found, Tail, Version, slot_count};
use crate::content::Geometry;
use crate::metadata::{Record, checksum};

/// Alignment of slots in bytes: that of the strictest disks and file systems.
const ALIGNMENT: u64 = 4096;

/// Slots for versions in a backing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotArea {
    /// Offset of the first slot in the file: a multiple of 4096.
    pub offset: u64,
    /// Size of a slot in bytes: a multiple of 4096.
    pub slot_size: u32,
    /// Number of slots; 0 if blocks have no versions.
    pub count: u32,
}

impl SlotArea {
    /// The slots of a new file, whose blocks begin at `content_offset`.
    #[must_use]
    pub fn new(geometry: Geometry, content_offset: u64) -> Self {
        let slot_size =
            (u64::from(geometry.block_size) + VersionSlot::SIZE as u64).next_multiple_of(ALIGNMENT);
        let count = slot_count(geometry.block_size, geometry.block_count, slot_size);
        match u32::try_from(slot_size) {
            Ok(slot_size) if count != 0 => Self {
                offset: (content_offset + geometry.capacity()).next_multiple_of(ALIGNMENT),
                slot_size,
                count,
            },
            _ => Self::default(),
        }
    }

    /// `true` if these slots are after the blocks, and match their size.
    #[must_use]
    pub fn fits(self, geometry: Geometry, content_offset: u64) -> bool {
        let content_end = content_offset.saturating_add(geometry.capacity());
        let needed = u64::from(geometry.block_size) + VersionSlot::SIZE as u64;
        self == Self::default()
            || self.count != 0
                && self.offset >= content_end
                && self.offset.is_multiple_of(ALIGNMENT)
                && u64::from(self.slot_size) >= needed
                && u64::from(self.slot_size).is_multiple_of(ALIGNMENT)
                && self.end().is_some()
    }

    /// Offset of the first byte after the slots; `None` if it overflows.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        (u64::from(self.slot_size) * u64::from(self.count)).checked_add(self.offset)
    }

    /// Offset of a slot in the file.
    #[inline]
    #[must_use]
    pub fn offset_of(self, slot: u32) -> u64 {
        self.offset + u64::from(slot) * u64::from(self.slot_size)
    }
}

/// Checksum of a slot, computed incrementally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotChecksum(u64);

impl SlotChecksum {
    /// The checksum of no bytes.
    pub const NONE: Self = Self(0xFFFF_FFFF);

    /// Continues with the next bytes of the block.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, self.0);
        digest.update(bytes);
        self.0 = digest.get_state();
    }

    /// The record of a slot whose block has this checksum.
    #[inline]
    #[must_use]
    pub fn record(
        self,
        sequence: u64,
        block: u64,
        version: Version,
        retired: Version,
    ) -> [u8; VersionSlot::SIZE] {
        let mut record = VersionSlot {
            sequence,
            block,
            epoch: version.epoch,
            number: version.number,
            retired_epoch: retired.epoch,
            retired: retired.number,
            checksum: 0,
        }
        .emit();
        let before = VersionSlot::SIZE - size_of::<u32>();
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, self.0);
        digest.update(&record[..before]);
        record[before..].copy_from_slice(&(digest.finalize() as u32).to_be_bytes());
        record
    }
}

/// Parses a slot; `None` if it is incomplete. The block is the first `block_size` bytes.
#[must_use]
pub fn parse_slot(slot: u32, bytes: &[u8], block_size: usize) -> Option<Found> {
    let record = bytes.get(block_size..block_size + VersionSlot::SIZE)?;
    let parsed = VersionSlot::parse(record).ok()?;
    let version = Version {
        epoch: parsed.epoch,
        number: parsed.number,
    };
    let retired = Version {
        epoch: parsed.retired_epoch,
        number: parsed.retired,
    };
    let mut checksum = SlotChecksum::NONE;
    checksum.update(&bytes[..block_size]);
    let expected = checksum.record(parsed.sequence, parsed.block, version, retired);
    (expected == record).then_some(Found {
        slot,
        sequence: parsed.sequence,
        block: parsed.block,
        version,
        retired,
    })
}

impl Record for Tail {
    const OFFSETS: [u64; 2] = TAIL_OFFSETS;

    type Bytes = [u8; VersionTail::SIZE];

    const BLANK: Self::Bytes = [0; VersionTail::SIZE];

    fn emit(&self, sequence: u64) -> Self::Bytes {
        let mut bytes = VersionTail {
            sequence,
            tail: self.sequence,
            last_epoch: self.last.epoch,
            last_number: self.last.number,
            retired_epoch: self.retired.epoch,
            retired: self.retired.number,
            checksum: 0,
        }
        .emit();
        let checksum = checksum(&bytes).to_be_bytes();
        bytes[VersionTail::SIZE - checksum.len()..].copy_from_slice(&checksum);
        bytes
    }

    fn parse(bytes: &Self::Bytes) -> Result<Option<(u64, Self)>, Failure> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let record = VersionTail::parse(bytes)?;
        let expected = checksum(bytes);
        if record.checksum != expected {
            let found = record.checksum;
            return Err(Failure::invalid(format!(
                "expected the checksum {expected:#010x}, found {found:#010x}"
            )));
        }
        let tail = Self {
            sequence: record.tail,
            last: Version {
                epoch: record.last_epoch,
                number: record.last_number,
            },
            retired: Version {
                epoch: record.retired_epoch,
                number: record.retired,
            },
        };
        Ok(Some((record.sequence, tail)))
    }
}
