//! What can be said about a stored block without decompressing it.

use wire::stored_block::{DataBlock, Header, Trailer};

use super::{Geometry, OVERHEAD, Place, Verdict};

/// Why bytes are no stored block, whatever their checksum says. Nothing of them may be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// They are not as many as the geometry says, or too few for header and trailer.
    #[error(
        "expected a stored block of {expected} bytes (at least {OVERHEAD}), found {found} bytes"
    )]
    Size {
        /// The stored block size.
        expected: u32,
        /// Bytes there are.
        found: usize,
    },
    /// The content of the block has another size.
    #[error(
        "its header says that it holds {found} bytes of content, expected {expected}: it was never written, written with \
         another block size, or is damaged"
    )]
    OriginalSize {
        /// The logical block size.
        expected: u32,
        /// What the header says.
        found: u32,
    },
    /// The block has no room for its LZ4 data blocks, or there are none.
    #[error(
        "its header says that it holds {found} bytes of LZ4 data, expected {} to {room}: it is damaged",
        DataBlock::SIZE
    )]
    CompressedSize {
        /// Bytes for LZ4 data blocks.
        room: usize,
        /// What the header says.
        found: u32,
    },
}

/// Checks the sizes in the header of a stored block, and its checksum at this place.
///
/// # Errors
///
/// The sizes cannot be right. A block that the checksum finds damaged may have right ones.
pub fn inspect(
    stored: &[u8],
    geometry: Geometry,
    place: Place,
) -> Result<(Header, Verdict), Defect> {
    let header = check_sizes(stored, geometry)?;
    let (before, trailer) = stored.split_at(stored.len() - Trailer::SIZE);
    let trailer = Trailer::parse(trailer).expect("as long as a trailer");
    Ok((header, Verdict::of(trailer, before, place)))
}

/// The header of a stored block, whose sizes are checked.
///
/// # Errors
///
/// They cannot be right.
pub(super) fn check_sizes(stored: &[u8], geometry: Geometry) -> Result<Header, Defect> {
    let size = geometry.stored_block_size as usize;
    if stored.len() != size || size < OVERHEAD {
        return Err(Defect::Size {
            expected: geometry.stored_block_size,
            found: stored.len(),
        });
    }
    let header = Header::parse(&stored[..Header::SIZE]).expect("as long as a header");
    if header.original_size != geometry.logical_block_size {
        return Err(Defect::OriginalSize {
            expected: geometry.logical_block_size,
            found: header.original_size,
        });
    }
    let room = geometry.room();
    if !(DataBlock::SIZE..=room).contains(&(header.compressed_size as usize)) {
        return Err(Defect::CompressedSize {
            room,
            found: header.compressed_size,
        });
    }
    Ok(header)
}
