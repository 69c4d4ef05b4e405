//! Encodes data as stored blocks.

use std::fmt;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use wire::stored_block::{DataBlock, Header, Trailer};

use super::{Checksum, Geometry, OVERHEAD, PIECE, Place, bound_checksum_of};

/// Marks an LZ4 data block stored uncompressed.
const RAW: u32 = 1 << 31;

/// Encodes stored blocks; reuses its working memory.
pub struct Encoder {
    geometry: Geometry,
    checksum: Checksum,
    /// The stored block, followed by space for compressed data whose size is not known to fit yet.
    buffer: Vec<u8>,
    table: CompressTable,
}

/// The data of a block does not fit in a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incompressible {
    /// Size of its LZ4 data blocks in bytes.
    pub needed: usize,
    /// Space for LZ4 data blocks in a stored block, in bytes.
    pub room: usize,
    /// Sizes of the block.
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
    /// Creates an encoder for stored blocks of these sizes and this kind of trailer.
    #[must_use]
    pub fn new(geometry: Geometry, checksum: Checksum) -> Self {
        Self {
            geometry,
            checksum,
            buffer: Vec::new(),
            table: CompressTable::default(),
        }
    }

    /// Encodes `content` for `place`: header, LZ4 data blocks, zeros and trailer. Only the first call allocates.
    ///
    /// # Errors
    ///
    /// The data does not compress enough for the geometry; never if that [holds any
    /// content](Geometry::holds_any_content).
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

    /// Replaces the trailer of a stored block that [`inspect`](super::inspect) has accepted by one bound to `place`,
    /// or by 0 with [`Checksum::Off`].
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

    /// Appends an LZ4 data block at `begin`: compressed, or raw if that is not longer. Returns its end.
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

/// Working memory in bytes for compressing `content` bytes: all pieces before the last stored raw, and for the last
/// LZ4's worst case.
fn working_size(content: usize) -> usize {
    let last = get_maximum_output_size(content.min(PIECE));
    Header::SIZE + content + content.div_ceil(PIECE) * DataBlock::SIZE + last
}
