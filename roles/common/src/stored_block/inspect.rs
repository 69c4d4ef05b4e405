//! What can be said about a stored block without decompressing it.

use wire::stored_block::{DataBlock, Header, Trailer};

use super::{Geometry, OVERHEAD, checksum_of};

/// What the trailer of a stored block says about the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are as they were written.
    Matches,
    /// Nothing: the block was written without a checksum, or lost it.
    Absent,
    /// They, or the trailer, are not what was written.
    Differs {
        /// The checksum in the trailer.
        stored: u32,
        /// The checksum of the bytes.
        calculated: u32,
    },
}

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

/// Checks the sizes in the header of a stored block, and its checksum.
///
/// # Errors
///
/// The sizes cannot be right. A block that the checksum finds damaged may have right ones.
pub fn inspect(stored: &[u8], geometry: Geometry) -> Result<(Header, Verdict), Defect> {
    let size = geometry.stored_block_size as usize;
    if stored.len() != size || size < OVERHEAD {
        return Err(Defect::Size {
            expected: geometry.stored_block_size,
            found: stored.len(),
        });
    }
    let (before, trailer) = stored.split_at(size - Trailer::SIZE);
    let header = Header::parse(&before[..Header::SIZE]).expect("as long as a header");
    let trailer = Trailer::parse(trailer).expect("as long as a trailer");
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
    Ok((header, Verdict::of(trailer, before)))
}

impl Verdict {
    /// Compares a trailer with the bytes before it.
    #[must_use]
    pub fn of(trailer: Trailer, bytes_before: &[u8]) -> Self {
        if trailer.checksum == 0 {
            return Self::Absent;
        }
        let (stored, calculated) = (trailer.checksum, checksum_of(bytes_before));
        if stored == calculated {
            Self::Matches
        } else {
            Self::Differs { stored, calculated }
        }
    }
}
