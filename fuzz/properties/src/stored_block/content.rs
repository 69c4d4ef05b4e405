//! Stored blocks that are made: of content, or of data blocks.

use arbitrary::Arbitrary;
use role_common::stored_block::{
    Checksum, Encoder, Geometry, PIECE, Verdict, bound_checksum_of, inspect,
};
use wire::stored_block::{DataBlock, Header, Trailer};

use super::PLACE;
use super::judgement::{any_bytes, decompress};
use crate::damage::{Damage, spoil};
use crate::memory;

/// A part of the content.
#[derive(Debug, Clone, Arbitrary)]
pub struct Run {
    bytes: Vec<u8>,
    repeat: u16,
}

impl Run {
    /// Its bytes, over and over, at most `most`.
    fn content(&self, most: usize) -> Vec<u8> {
        let times = most.checked_div(self.bytes.len()).unwrap_or(0);
        self.bytes.repeat(times.min(self.repeat.into()))
    }
}

/// Bytes of content at most: a few pieces, as more of them are nothing new.
const LONGEST: usize = 4 * PIECE;

/// Makes a stored block of content, if that is possible, and spoils it.
pub(super) fn stored(
    runs: &[Run],
    compatible: bool,
    checksum: bool,
    damage: &[Damage],
) -> Option<(Vec<u8>, Geometry)> {
    let mut content = Vec::new();
    for run in runs {
        content.extend(run.content(LONGEST - content.len()));
    }
    if content.is_empty() {
        // No block is.
        return None;
    }
    let logical = u32::try_from(content.len()).expect("not that much");
    let geometry = if compatible {
        Geometry::compatible(logical)
    } else {
        Geometry::for_logical(logical).expect("not that much")
    };
    let kind = if checksum {
        Checksum::Crc32c
    } else {
        Checksum::Off
    };
    // The stored block and a copy of it, room for what may turn out not to fit, and the compressor's table.
    let size = content.len() + content.len() / 50;
    let limit = 2 * size + (PIECE + PIECE / 50) + (1 << 16) + 4096;
    let stored = memory::within(limit, "making a stored block", || {
        let mut encoder = Encoder::new(geometry, kind);
        encoder.encode(&content, PLACE).map(<[u8]>::to_vec)
    });
    let mut stored = match stored {
        Ok(stored) => stored,
        Err(refused) => {
            assert!(!geometry.holds_any_content(), "{refused}");
            assert!(refused.needed > refused.room);
            return None;
        }
    };
    assert_eq!(stored.len(), geometry.stored_block_size as usize);
    let (header, verdict) = inspect(&stored, geometry, PLACE).expect("as it was made");
    let expected = if checksum {
        Verdict::Bound
    } else {
        Verdict::Absent
    };
    assert_eq!(verdict, expected);
    let came = decompress(&stored, header, content.len()).expect("as it was made");
    assert!(came == content, "the content comes back");

    let written = stored.clone();
    spoil(&mut stored, damage);
    let as_read = inspect(&stored, geometry, PLACE);
    let changed = changed_bytes(&written, &stored);
    if checksum && stored.len() == written.len() && (1..=4).contains(&changed) {
        // CRC-32C finds any four bytes in a row, and any three bits; sizes in the header may be wrong before.
        assert!(!matches!(
            as_read,
            Ok((_, Verdict::Bound | Verdict::Unbound))
        ));
    }
    Some((stored, geometry))
}

/// A stored block with these data blocks in it, and nothing wrong but perhaps the size of its content.
pub(super) fn data_blocks(blocks: &[(bool, Run)], claim: i8) {
    let mut stored = vec![0; Header::SIZE];
    let mut length = 0;
    for (raw, run) in blocks {
        let content = run.content(LONGEST - length);
        length += content.len();
        let data = if *raw {
            content
        } else {
            lz4_flex::block::compress(&content)
        };
        let size = u32::try_from(data.len()).expect("not that much");
        let size_and_raw = size | u32::from(*raw) << 31;
        stored.extend(DataBlock { size_and_raw }.emit());
        stored.extend(data);
    }
    let compressed_size = u32::try_from(stored.len() - Header::SIZE).expect("not that much");
    let claim = i64::from(claim) + i64::try_from(length).expect("not that much");
    let original_size = u32::try_from(claim.max(0)).expect("not that much");
    let header = Header {
        original_size,
        compressed_size,
    };
    stored[..Header::SIZE].copy_from_slice(&header.emit());
    stored.extend([0; Trailer::SIZE]);
    make_checksum_right(&mut stored);
    let geometry = Geometry {
        stored_block_size: u32::try_from(stored.len()).expect("not that much"),
        logical_block_size: original_size,
    };
    any_bytes(&stored, geometry);
}

/// Bytes between the first and the last one that are different, with them.
fn changed_bytes(a: &[u8], b: &[u8]) -> usize {
    let differs = |(a, b): (&u8, &u8)| a != b;
    let first = a.iter().zip(b).position(differs);
    let last = a.iter().zip(b).rposition(differs);
    first.zip(last).map_or(0, |(first, last)| last - first + 1)
}

pub(super) fn make_checksum_right(stored: &mut [u8]) {
    if let Some(end) = stored.len().checked_sub(Trailer::SIZE) {
        let (before, trailer) = stored.split_at_mut(end);
        let checksum = bound_checksum_of(before, PLACE);
        trailer.copy_from_slice(&Trailer { checksum }.emit());
    }
}
