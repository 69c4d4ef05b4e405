//! Stored blocks: the format in which the gga_offload service stores data on its three targets, also written by the
//! generator.
//!
//! A stored block is a header, the LZ4 data blocks of one block of data, zeros, and a trailer, with the layout of
//! [`wire::stored_block`]. Its first half is stored on data_1, its second half on data_2, and their parity, by a
//! [`MatrixType`], on data_p. [`Geometry`] has its sizes, [`Encoder`] creates it, and [`inspect`] checks it. All of
//! this works on bytes only; compression and erasure coding engines are the device's.

use std::fmt;

use clap::ValueEnum;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use serde::Serialize;
use wire::stored_block::{DataBlock, Header, Trailer};

use crate::flags::size;
use crate::superblock::SetId;

/// Maximum data per LZ4 data block in bytes, as the reference configures its compressor.
pub const PIECE: usize = 64 << 10;

/// Bytes of a stored block other than LZ4 data blocks: header and trailer.
pub const OVERHEAD: usize = Header::SIZE + Trailer::SIZE;

// The checksum in the trailer.

/// Contents of a stored block's trailer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checksum {
    /// CRC-32C of the bytes before the trailer, bound to the block's place
    #[default]
    Crc32c,
    /// 0, as in the reference
    Off,
}

/// Place of a stored block. Its checksum is bound to it, so that a misdirected write is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The set of targets that the block is stored on; [`SetId::NONE`] where the targets have no superblocks.
    pub set: SetId,
    /// Number of the block in its storage.
    pub stripe: u64,
}

impl Place {
    /// The same stripe without a set: used by a service without superblocks and by the generator.
    const fn of_no_set(self) -> Self {
        Self {
            set: SetId::NONE,
            ..self
        }
    }

    /// XOR difference between the checksum of a block at this place and the block's CRC-32C.
    ///
    /// With all arithmetic on 32 bits, `^` the exclusive or, and `s3 s2 s1 s0` the 32-bit words of the set's identifier:
    ///
    /// ```text
    /// x    = (stripe mod 2^32) ^ ((stripe >> 32) * 0x9E3779B9) ^ s3 ^ s2 ^ s1 ^ s0
    /// x    = not x
    /// x    = (x ^ (x >> 16)) * 0x85EBCA6B
    /// x    = (x ^ (x >> 13)) * 0xC2B2AE35
    /// mask = x ^ (x >> 16)
    /// ```
    ///
    /// Each step is a bijection, so no two of 2^32 consecutive stripes of a set have the same mask. The mask is 0 for
    /// one of them; without a set, for stripe 2^32 - 1.
    #[must_use]
    #[inline]
    pub const fn mask(self) -> u32 {
        let set = self.set.0;
        let words = (set >> 96) as u32 ^ (set >> 64) as u32 ^ (set >> 32) as u32 ^ set as u32;
        let high = ((self.stripe >> 32) as u32).wrapping_mul(0x9E37_79B9);
        let mut x = !(self.stripe as u32 ^ high ^ words);
        x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
        x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
        x ^ (x >> 16)
    }
}

/// Trailer in the format of earlier versions for a stored block whose other bytes are `bytes_before`: their CRC-32C
/// (Castagnoli), or 1 if that is 0, because 0 means no checksum.
#[must_use]
pub fn checksum_of(bytes_before: &[u8]) -> u32 {
    crc32c_of(bytes_before).max(1)
}

/// Trailer for a stored block at `place` whose other bytes are `bytes_before`: their CRC-32C (Castagnoli) XOR
/// [`Place::mask`], or 1 if the result is 0.
#[must_use]
pub fn bound_checksum_of(bytes_before: &[u8], place: Place) -> u32 {
    bind(crc32c_of(bytes_before), place)
}

/// Builds the trailer from a CRC-32C.
#[inline]
fn bind(crc: u32, place: Place) -> u32 {
    (crc ^ place.mask()).max(1)
}

/// Result of comparing a stored block's trailer with the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// CRC-32C bound to this place: the bytes are unchanged and in the right place.
    Bound,
    /// CRC-32C in an earlier format: not bound to a place, or bound to a place without a set. The bytes are unchanged.
    Unbound,
    /// No checksum: the block was written without one, or the checksum was lost.
    Absent,
    /// The bytes or the trailer are corrupt, or belong to another place.
    Differs {
        /// The checksum in the trailer.
        stored: u32,
        /// The checksum of the bytes at this place.
        calculated: u32,
    },
}

impl Verdict {
    /// Compares the trailer of a block at `place` with the bytes before it. Computes at most one CRC-32C.
    #[must_use]
    #[inline]
    pub fn of(trailer: Trailer, bytes_before: &[u8], place: Place) -> Self {
        let stored = trailer.checksum;
        if stored == 0 {
            return Self::Absent;
        }
        // Loaded before the CRC, so that the CPU overlaps them.
        let expected = stored ^ place.mask();
        let crc = crc32c_of(bytes_before);
        if crc == expected {
            return Self::Bound;
        }
        Self::of_other_crc(stored, crc, place)
    }

    #[cold]
    fn of_other_crc(stored: u32, crc: u32, place: Place) -> Self {
        let calculated = bind(crc, place);
        if stored == calculated {
            // 1, because 0 means no checksum.
            Self::Bound
        } else if stored == bind(crc, place.of_no_set()) || stored == crc.max(1) {
            Self::Unbound
        } else {
            Self::Differs { stored, calculated }
        }
    }
}

/// Uses the faster library on this CPU.
#[inline]
fn crc32c_of(bytes: &[u8]) -> u32 {
    // Without VPCLMULQDQ on 512-bit vectors, three streams of the CPU's CRC instruction are faster.
    #[cfg(target_arch = "x86_64")]
    if !(std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("vpclmulqdq"))
    {
        return crc32c::crc32c(bytes);
    }
    crc_fast::crc32_iscsi(bytes)
}

// Recognition of stored blocks without a checksum.

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

// Encodes data as stored blocks.

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

    /// Replaces the trailer of a stored block that [`inspect`] has accepted by one bound to `place`,
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

// Sizes of stored blocks and of their data.

/// Alignment of half blocks in bytes, for erasure coding.
pub const HALF_ALIGNMENT: u32 = 64;

/// Alignment of stored blocks in bytes: two halves.
pub const STORED_ALIGNMENT: u32 = 2 * HALF_ALIGNMENT;

/// Sizes of a stored block and of its data, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Total of both halves, on data_1 and data_2.
    pub stored_block_size: u32,
    /// Data: a block of the initiator.
    pub logical_block_size: u32,
}

impl Geometry {
    /// The reference's geometry: data blocks are as large as stored blocks, so the data must compress.
    #[must_use]
    pub fn compatible(stored_block_size: u32) -> Self {
        Self {
            stored_block_size,
            logical_block_size: stored_block_size,
        }
    }

    /// The smallest stored blocks, a multiple of [`STORED_ALIGNMENT`], that hold any data of `logical_block_size`
    /// bytes. `None` if their size does not fit in 32 bits; [`logical_block_size`] refuses such sizes.
    #[must_use]
    pub fn for_logical(logical_block_size: u32) -> Option<Self> {
        let needed = worst_case(logical_block_size) + OVERHEAD as u64;
        let stored = needed.next_multiple_of(STORED_ALIGNMENT.into());
        Some(Self {
            stored_block_size: u32::try_from(stored).ok()?,
            logical_block_size,
        })
    }

    /// Returns `true` for stored blocks of the reference.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.stored_block_size == self.logical_block_size
    }

    /// Returns `true` if incompressible data fits in a stored block.
    #[must_use]
    pub fn holds_any_content(&self) -> bool {
        self.stored_block_size as usize >= OVERHEAD
            && self.room() as u64 >= worst_case(self.logical_block_size)
    }

    /// Space for LZ4 data blocks in a stored block, in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        (self.stored_block_size as usize).saturating_sub(OVERHEAD)
    }

    /// Bytes of a stored block on each target.
    #[must_use]
    pub fn half_block_size(&self) -> u32 {
        self.stored_block_size / 2
    }
}

/// Size of the LZ4 data blocks of incompressible data in bytes: each piece is stored raw.
fn worst_case(logical_block_size: u32) -> u64 {
    let content = u64::from(logical_block_size);
    content + content.div_ceil(PIECE as u64) * DataBlock::SIZE as u64
}

/// Parses the value of `--logical-block-size`: bytes, limited to sizes for which [`Geometry::for_logical`] returns
/// `Some`.
///
/// # Errors
///
/// Not a number, 0, or too large.
pub fn logical_block_size(text: &str) -> Result<u32, String> {
    match size(text).map(u32::try_from) {
        Ok(Ok(size @ 1..)) if Geometry::for_logical(size).is_some() => Ok(size),
        _ => {
            let largest = largest_logical();
            Err(format!(
                "expected bytes, or a size such as 4k, 1 to {largest}"
            ))
        }
    }
}

/// Largest data size whose stored block's size fits in 32 bits.
fn largest_logical() -> u32 {
    let stored = u32::MAX / STORED_ALIGNMENT * STORED_ALIGNMENT;
    // Each piece, including the last, is data plus its length field.
    let room = u64::from(stored) - OVERHEAD as u64;
    let pieces = room.div_ceil((PIECE + DataBlock::SIZE) as u64);
    let content = room - pieces * DataBlock::SIZE as u64;
    u32::try_from(content).expect("less than what holds it")
}

// Checks of a stored block without decompression.

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
fn check_sizes(stored: &[u8], geometry: Geometry) -> Result<Header, Defect> {
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

// Choice of the erasure coding matrix.

/// Type of the erasure coding matrix. A block must be recovered with the type it was written with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatrixType {
    /// Cauchy matrix
    Cauchy,
    /// Vandermonde matrix: the parity is the XOR of the halves
    #[default]
    Vandermonde,
}

impl From<MatrixType> for doca::EcMatrixType {
    fn from(matrix: MatrixType) -> Self {
        match matrix {
            MatrixType::Cauchy => Self::Cauchy,
            MatrixType::Vandermonde => Self::Vandermonde,
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod checksum_tests {
    #[test]
    fn both_crc_libraries_agree() {
        let bytes: Vec<u8> = (0..4200_u32)
            .map(|byte| ((byte * byte) >> 3) as u8)
            .collect();
        for length in (0..600).chain([4092, 4200]) {
            let bytes = &bytes[..length];
            assert_eq!(crc_fast::crc32_iscsi(bytes), crc32c::crc32c(bytes));
            assert_eq!(super::crc32c_of(bytes), crc32c::crc32c(bytes));
        }
    }
}
