//! What is said of a stored block, and what is made of it.

use role_common::stored_block::{
    Defect, Geometry, OVERHEAD, PIECE, Place, Verdict, bound_checksum_of, checksum_of, inspect,
};
use role_common::superblock::SetId;
use softdoca::engines::lz4::{Decompressor, StreamFormat};
use wire::stored_block::{DataBlock, Header, Trailer};

use super::PLACE;
use crate::memory;
use crate::tally::Judging;

/// What is accepted has the sizes that it should have, and is decompressed by the device as by this, or refused by both.
pub(super) fn any_bytes(bytes: &[u8], geometry: Geometry) {
    let judging = Judging::by("stored block: sizes and checksum");
    let sound = sizes_and_checksum(bytes, geometry);
    judging.done(matches!(
        sound,
        Some((_, Verdict::Bound | Verdict::Unbound | Verdict::Absent))
    ));
    if let Some((header, _)) = sound {
        let judging = Judging::by("stored block: LZ4 data blocks");
        let accepted = data_blocks(bytes, header, geometry);
        judging.done(accepted);
    }
}

/// The header and what is said of the checksum, unless sizes are wrong.
fn sizes_and_checksum(bytes: &[u8], geometry: Geometry) -> Option<(Header, Verdict)> {
    let inspected = memory::within(0, "looking at a stored block", || {
        inspect(bytes, geometry, PLACE)
    });
    let (header, verdict) = match inspected {
        Ok(accepted) => accepted,
        Err(Defect::Size { .. }) => {
            let right = bytes.len() == geometry.stored_block_size as usize;
            assert!(!right || bytes.len() < OVERHEAD);
            return None;
        }
        Err(Defect::OriginalSize { expected, found }) => {
            assert_ne!(expected, found);
            return None;
        }
        Err(Defect::CompressedSize { room, found }) => {
            let end = Header::SIZE + found as usize;
            assert_eq!(room, bytes.len() - OVERHEAD);
            assert!(end < Header::SIZE + DataBlock::SIZE || end > bytes.len() - Trailer::SIZE);
            return None;
        }
    };
    assert_eq!(header.original_size, geometry.logical_block_size);
    let data = Header::SIZE + header.compressed_size as usize;
    assert!(data >= Header::SIZE + DataBlock::SIZE && data <= bytes.len() - Trailer::SIZE);
    let (before, trailer) = bytes.split_at(bytes.len() - Trailer::SIZE);
    let stored = Trailer::parse(trailer).expect("its size").checksum;
    let calculated = bound_checksum_of(before, PLACE);
    let without_set = Place {
        set: SetId::NONE,
        ..PLACE
    };
    let expected = if stored == 0 {
        Verdict::Absent
    } else if stored == calculated {
        Verdict::Bound
    } else if [checksum_of(before), bound_checksum_of(before, without_set)].contains(&stored) {
        Verdict::Unbound
    } else {
        Verdict::Differs { stored, calculated }
    };
    assert_eq!(verdict, expected);
    Some((header, verdict))
}

/// Whether the data is decompressed, by the device as by this.
fn data_blocks(bytes: &[u8], header: Header, geometry: Geometry) -> bool {
    let room = geometry.logical_block_size as usize;
    let ours = decompress(bytes, header, room);
    let data = &bytes[Header::SIZE..][..header.compressed_size as usize];
    let format = StreamFormat {
        block_checksums: false,
        independent_blocks: true,
    };
    let mut came = Vec::with_capacity(room);
    // A buffer for one of the blocks, of at least the usual size; up to three times as much while it grows; a text.
    let limit = 3 * room.max(PIECE) + 4096;
    let done = memory::within(limit, "decompressing", || {
        Decompressor::default().stream(data, format, room, |piece| {
            assert!(
                piece.len() <= room - came.len(),
                "more than there is room for"
            );
            came.extend_from_slice(piece);
            Ok(())
        })
    });
    match (done, ours) {
        (Ok(done), Some(ours)) => {
            assert_eq!(done, ours.len());
            assert!(came == ours, "the device decompresses something else");
            true
        }
        (Err(_), None) => false,
        (done, ours) => panic!(
            "the device says {done:?}, expected {:?} bytes",
            ours.map(|content| content.len())
        ),
    }
}

/// The content of a stored block, by LZ4 of single blocks; none when its data is malformed, or longer than `room`.
pub(super) fn decompress(stored: &[u8], header: Header, room: usize) -> Option<Vec<u8>> {
    /// The longest that a block of an LZ4 frame can be.
    const LARGEST_BLOCK: usize = 4 << 20;
    let mut data = &stored[Header::SIZE..][..header.compressed_size as usize];
    let mut content = Vec::new();
    while !data.is_empty() {
        let (prefix, rest) = data.split_first_chunk()?;
        let prefix = u32::from_le_bytes(*prefix);
        let length = (prefix & !(1 << 31)) as usize;
        let (block, rest) = rest.split_at_checked(length).filter(|_| length != 0)?;
        let left = (room - content.len()).min(LARGEST_BLOCK);
        if prefix >> 31 == 0 {
            content.extend(lz4_flex::block::decompress(block, left).ok()?);
        } else {
            content.extend(block.get(..length).filter(|_| length <= left)?);
        }
        data = rest;
    }
    Some(content)
}
