//! Checks of a stored block without decompression.

use wire::stored_block::{DataBlock, Header, Trailer};

use super::{Geometry, OVERHEAD, Place, Verdict};

/// Reason why bytes are not a stored block, whatever their checksum. They must not be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Wrong size for the geometry, or too small for header and trailer.
    #[error(
        "expected a stored block of {expected} bytes (at least {OVERHEAD}), found {found} bytes"
    )]
    Size {
        /// The stored block size.
        expected: u32,
        /// Actual size.
        found: usize,
    },
    /// The block's data has another size.
    #[error(
        "its header says that it holds {found} bytes of content, expected {expected}: it was never written, written with \
         another block size, or is damaged"
    )]
    OriginalSize {
        /// The logical block size.
        expected: u32,
        /// Size in the header.
        found: u32,
    },
    /// There are no LZ4 data blocks, or they do not fit in the block.
    #[error(
        "its header says that it holds {found} bytes of LZ4 data, expected {} to {room}: it is damaged",
        DataBlock::SIZE
    )]
    CompressedSize {
        /// Space for LZ4 data blocks, in bytes.
        room: usize,
        /// Size in the header.
        found: u32,
    },
}

/// Checks the sizes in the header of a stored block, and its checksum for this place.
///
/// # Errors
///
/// A size is invalid. A block with a wrong checksum may have valid sizes.
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

/// Returns the header of a stored block after checking its sizes.
///
/// # Errors
///
/// A size is invalid.
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
