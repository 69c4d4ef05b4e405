//! Content to stored blocks.

use std::fmt;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use wire::stored_block::{DataBlock, Header, Trailer};

use super::{Checksum, Geometry, OVERHEAD, PIECE, Place, bound_checksum_of};

/// Marks an LZ4 data block that is stored as it is.
const RAW: u32 = 1 << 31;

/// Makes stored blocks; keeps its working memory from one to the next.
pub struct Encoder {
    geometry: Geometry,
    checksum: Checksum,
    /// The stored block, and behind it room for what is compressed before it is known whether it fits.
    buffer: Vec<u8>,
    table: CompressTable,
}

/// The content of a block has no room in a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incompressible {
    /// Bytes that its LZ4 data blocks have.
    pub needed: usize,
    /// Bytes that a stored block has for them.
    pub room: usize,
    /// The sizes of both.
    pub geometry: Geometry,
}

impl std::error::Error for Incompressible {}

impl fmt::Display for Incompressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            needed,
            room,
            geometry,
        } = self;
        write!(
            f,
            "compresses to {needed} bytes, {} more than the {room} that a stored block has room for",
            needed.saturating_sub(*room)
        )?;
        let logical = geometry.logical_block_size;
        match Geometry::for_logical(logical) {
            Some(enough) if geometry.is_compatible() => write!(
                f,
                "; --logical-block-size {logical}, for the generator and the service, has room for any content, in half blocks \
                 of {} bytes instead of {}",
                enough.half_block_size(),
                geometry.half_block_size()
            ),
            Some(enough) => write!(
                f,
                "; half blocks of {} bytes instead of {} have room for any content of {logical} bytes",
                enough.half_block_size(),
                geometry.half_block_size()
            ),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("geometry", &self.geometry)
            .field("checksum", &self.checksum)
            .finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder for stored blocks of these sizes, with this in their trailers.
    #[must_use]
    pub fn new(geometry: Geometry, checksum: Checksum) -> Self {
        Self {
            geometry,
            checksum,
            buffer: Vec::new(),
            table: CompressTable::default(),
        }
    }

    /// The stored block for `content` at `place`: header, LZ4 data blocks, zeros and trailer. Allocates for the first block only.
    ///
    /// # Errors
    ///
    /// The content does not compress enough for the geometry; where that [holds any
    /// content](Geometry::holds_any_content), never.
    ///
    /// # Panics
    ///
    /// If `content` does not have the geometry's logical block size.
    pub fn encode(&mut self, content: &[u8], place: Place) -> Result<&[u8], Incompressible> {
        assert_eq!(
            content.len(),
            self.geometry.logical_block_size as usize,
            "bytes of content"
        );
        let size = self.geometry.stored_block_size as usize;
        if self.buffer.is_empty() {
            self.buffer = vec![0; size.max(working_size(content.len()))];
        }
        let mut end = Header::SIZE;
        for piece in content.chunks(PIECE) {
            end = self.append(end, piece);
        }
        let needed = end - Header::SIZE;
        let room = self.geometry.room();
        if needed > room || size < OVERHEAD {
            return Err(Incompressible {
                needed,
                room,
                geometry: self.geometry,
            });
        }
        let header = Header {
            original_size: self.geometry.logical_block_size,
            compressed_size: u32::try_from(needed).expect("less than the stored block size"),
        };
        self.buffer[..Header::SIZE].copy_from_slice(&header.emit());
        let (before, rest) = self.buffer.split_at_mut(size - Trailer::SIZE);
        before[end..].fill(0);
        rest[..Trailer::SIZE].copy_from_slice(&trailer(self.checksum, before, place).emit());
        Ok(&self.buffer[..size])
    }

    /// Replaces the trailer of a stored block, which [`inspect`](super::inspect) has found good, by one that is bound to `place`, or
    /// by 0 with [`Checksum::Off`].
    ///
    /// # Panics
    ///
    /// If `stored` does not have the geometry's stored block size.
    pub fn reseal(&self, stored: &mut [u8], place: Place) {
        let size = self.geometry.stored_block_size as usize;
        assert_eq!(stored.len(), size, "bytes of a stored block");
        let (before, end) = stored.split_at_mut(size - Trailer::SIZE);
        end.copy_from_slice(&trailer(self.checksum, before, place).emit());
    }

    /// Puts an LZ4 data block at `begin`: compressed, or raw when that is no longer. Says where it ends.
    fn append(&mut self, begin: usize, content: &[u8]) -> usize {
        let (prefix, bytes) = self.buffer[begin..].split_at_mut(DataBlock::SIZE);
        let compressed = compress_into_with_table(content, bytes, &mut self.table)
            .expect("room for the worst case");
        let (length, flag) = if compressed < content.len() {
            (compressed, 0)
        } else {
            bytes[..content.len()].copy_from_slice(content);
            (content.len(), RAW)
        };
        let size = u32::try_from(length).expect("at most 64 KiB");
        prefix.copy_from_slice(
            &DataBlock {
                size_and_raw: size | flag,
            }
            .emit(),
        );
        begin + DataBlock::SIZE + length
    }
}

fn trailer(kind: Checksum, bytes_before: &[u8], place: Place) -> Trailer {
    let checksum = match kind {
        Checksum::Crc32c => bound_checksum_of(bytes_before, place),
        Checksum::Off => 0,
    };
    Trailer { checksum }
}

/// Bytes that are enough while `content` bytes are compressed: all pieces before the last as they are, and for the last
/// what LZ4 may need before it is known to be longer than raw.
fn working_size(content: usize) -> usize {
    let last = get_maximum_output_size(content.min(PIECE));
    Header::SIZE + content + content.div_ceil(PIECE) * DataBlock::SIZE + last
}
