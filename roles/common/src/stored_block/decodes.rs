//! Recognition of stored blocks without a checksum.

use wire::stored_block::{DataBlock, Header, Trailer};

use super::inspect::check_sizes;
use super::{Geometry, PIECE};

/// Returns `true` if these bytes decompress to as much data as their header says, and contain nothing else. Two halves
/// of different blocks rarely do, except blocks that are stored uncompressed.
///
/// `content` is scratch space of a logical block's size; its contents are unspecified afterwards.
#[must_use]
pub fn decodes(stored: &[u8], geometry: Geometry, content: &mut [u8]) -> bool {
    let Ok(header) = check_sizes(stored, geometry) else {
        return false;
    };
    let rest = &stored[Header::SIZE..stored.len() - Trailer::SIZE];
    let Some((mut data, padding)) = rest.split_at_checked(header.compressed_size as usize) else {
        return false;
    };
    let mut free = content;
    while !data.is_empty() {
        let Ok(block) = DataBlock::parse(data) else {
            return false;
        };
        let (is_raw, size) = (
            block.size_and_raw >> 31 != 0,
            (block.size_and_raw & !(1 << 31)) as usize,
        );
        let Some((piece, others)) = data[DataBlock::SIZE..].split_at_checked(size) else {
            return false;
        };
        let room = free.len().min(PIECE);
        let written = if is_raw {
            free.get_mut(..size.min(room + 1)).map(|to| {
                to.copy_from_slice(&piece[..to.len()]);
                to.len()
            })
        } else {
            lz4_flex::block::decompress_into(piece, &mut free[..room]).ok()
        };
        let Some(written) = written.filter(|&written| written != 0 && written <= room) else {
            return false;
        };
        free = &mut free[written..];
        data = others;
    }
    free.is_empty() && padding.iter().all(|&byte| byte == 0)
}
