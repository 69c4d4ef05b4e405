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
        let stored = trailer.unused;
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
    Trailer { unused: checksum }
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

    /// Size in bytes of the half of a stored block that each data target stores.
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
        found: usize,
    },
    /// The block's data has another size.
    #[error(
        "its header claims {found} bytes of content, expected {expected}: it was never written, written with \
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
        "its header claims {found} bytes of LZ4 data, expected {} to {room}: it is corrupt",
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::stored_block::{Header, Trailer};

    use super::*;
    use crate::stored_block::{Checksum, Encoder, Geometry, PIECE, Verdict, inspect};
    use crate::superblock::SetId;

    /// A random set identifier, as real ones are.
    const SET: SetId = SetId(0x0123_4567_89ab_cdef_1020_3040_5060_7080);

    const PLACE: Place = Place {
        set: SET,
        stripe: 5,
    };

    /// Incompressible bytes: the high bytes of a linear congruential generator.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(len)
        .collect()
    }

    fn compatible(size: u32) -> Encoder {
        Encoder::new(Geometry::compatible(size), Checksum::Off)
    }

    fn logical(size: u32) -> Geometry {
        Geometry::for_logical(size).expect("not too large")
    }

    #[test]
    fn geometry_too_small_for_header_and_trailer_holds_no_data() {
        // Found by fuzzing: in these sizes no data fits, yet a stored block is larger than its data.
        for stored_block_size in [0, 11, 12] {
            let geometry = Geometry {
                stored_block_size,
                logical_block_size: 0,
            };
            let made = Encoder::new(geometry, Checksum::Off)
                .encode(&[], PLACE)
                .is_ok();
            assert_eq!(geometry.holds_any_content(), made, "{stored_block_size}");
        }
    }

    #[test]
    fn geometry_for_any_content_is_the_smallest_possible() {
        assert_eq!(logical(4096).stored_block_size, 4224);
        assert_eq!(logical(4096).half_block_size(), 2112);
        assert_eq!(logical(4096).room(), 4212);
        // 64 KiB are one piece; a byte more is two.
        assert_eq!(logical(65536).stored_block_size, 65664);
        assert_eq!(logical(1 << 20).stored_block_size, 1_048_704);
        for size in [1, 111, 112, 113, 4096, 65535, 65536, 65537, 1 << 20] {
            let geometry = logical(size);
            assert_eq!(geometry.logical_block_size, size);
            assert!(geometry.stored_block_size.is_multiple_of(STORED_ALIGNMENT));
            assert!(geometry.holds_any_content() && !geometry.is_compatible());
            let smaller = Geometry {
                stored_block_size: geometry.stored_block_size - STORED_ALIGNMENT,
                ..geometry
            };
            assert!(!smaller.holds_any_content(), "{size}");
        }
        // 112 + 4 + 12 is 128.
        assert_eq!(logical(112).stored_block_size, 128);
        assert_eq!(logical(113).stored_block_size, 256);
        assert!(Geometry::compatible(4096).is_compatible());
        assert!(!Geometry::compatible(4096).holds_any_content());
    }

    #[test]
    fn sizes_whose_stored_blocks_are_too_large_are_refused() {
        assert_eq!(Geometry::for_logical(u32::MAX), None);
        let text = logical_block_size("0").expect_err("zero");
        let largest: u32 = text
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number");
        assert!(Geometry::for_logical(largest).is_some());
        assert!(Geometry::for_logical(largest + 1).is_none());
        assert_eq!(logical_block_size(&largest.to_string()), Ok(largest));
        assert_eq!(logical_block_size("4096"), Ok(4096));
        assert_eq!(logical_block_size("4k"), Ok(4096));
        for wrong in ["", "-1", "4q", "4294967295", "4294967296"] {
            assert_eq!(logical_block_size(wrong), Err(text.clone()), "{wrong}");
        }
    }

    #[test]
    fn zeros_make_a_block_of_mostly_padding() {
        let mut encoder = compatible(256);
        let stored = encoder
            .encode(&[0; 256], PLACE)
            .expect("compresses")
            .to_vec();
        assert_eq!(stored.len(), 256);
        assert_eq!(stored[..4], [0, 0, 1, 0]);
        let compressed = u32::from_be_bytes(stored[4..8].try_into().expect("4")) as usize;
        let length = u32::from_le_bytes(stored[8..12].try_into().expect("4")) as usize;
        assert_eq!(compressed, 4 + length);
        assert!(compressed < 32, "{compressed}");
        assert!(stored[8 + compressed..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn incompressible_error_has_missing_bytes_and_flag() {
        let refused = compatible(4096)
            .encode(&noise(4096), PLACE)
            .expect_err("noise");
        // Raw: its length and itself; 12 bytes are used for header and trailer.
        assert_eq!((refused.needed, refused.room), (4100, 4084));
        assert_eq!(
            refused.to_string(),
            "compresses to 4100 bytes, 16 more than the 4084 that a stored block has room for; --logical-block-size 4096, for \
         the generator and the service, has room for any content, in half blocks of 2112 bytes instead of 2048"
        );
        let tight = Geometry {
            stored_block_size: 4096,
            logical_block_size: 8192,
        };
        let refused = Encoder::new(tight, Checksum::Off)
            .encode(&noise(8192), PLACE)
            .expect_err("noise");
        let text = refused.to_string();
        assert!(text.contains("4160") && text.contains("2048"), "{text}");
        assert!(!text.contains("--logical-block-size"), "{text}");
    }

    #[test]
    fn noise_fits_in_a_logical_geometry() {
        for size in [1, 112, 4096, 65536, 65537, 200_000] {
            let content = noise(size as usize);
            let geometry = logical(size);
            let mut encoder = Encoder::new(geometry, Checksum::Crc32c);
            let stored = encoder.encode(&content, PLACE).expect("any content");
            assert_eq!(stored.len(), geometry.stored_block_size as usize);
            let (header, verdict) = inspect(stored, geometry, PLACE).expect("whole");
            assert_eq!(header.original_size, size);
            assert_eq!(
                header.compressed_size as usize,
                content.len() + 4 * content.len().div_ceil(PIECE)
            );
            assert_eq!(verdict, Verdict::Bound);
            assert_eq!(
                stored[12..12 + content.len().min(PIECE)],
                content[..content.len().min(PIECE)]
            );
        }
    }

    #[test]
    fn noise_between_zeros_is_stored_raw() {
        let mut content = vec![0; 3 * PIECE];
        content[PIECE..2 * PIECE].copy_from_slice(&noise(PIECE));
        let mut encoder = compatible(3 * PIECE as u32);
        let stored = encoder
            .encode(&content, PLACE)
            .expect("two thirds are zeros");
        let first = u32::from_le_bytes(stored[8..12].try_into().expect("4")) as usize;
        let second = 12 + first;
        assert_eq!(stored[second..second + 4], 0x8001_0000_u32.to_le_bytes());
        assert_eq!(
            stored[second + 4..second + 4 + PIECE],
            content[PIECE..2 * PIECE]
        );
    }

    #[test]
    fn last_byte_of_the_block_is_used() {
        // Noise followed by zeros: each additional byte of noise adds about one byte of LZ4 data.
        let size = 1024;
        let noise = noise(size);
        let outcome = |random: usize| {
            let mut content = vec![0; size];
            content[..random].copy_from_slice(&noise[..random]);
            compatible(1024)
                .encode(&content, PLACE)
                .map(|stored| u32::from_be_bytes(stored[4..8].try_into().expect("4")) as usize)
        };
        let last = (0..size)
            .take_while(|&random| outcome(random).is_ok())
            .last()
            .expect("zeros compress");
        assert!(outcome(last).expect("fits") >= size - OVERHEAD - 1);
        let refused = outcome(last + 1).expect_err("one more byte of noise");
        assert!(refused.needed > size - OVERHEAD && refused.room == size - OVERHEAD);
    }

    #[test]
    fn encoder_leaves_no_data_of_the_previous_block() {
        let text: Vec<u8> = b"a stored block "
            .iter()
            .copied()
            .cycle()
            .take(512)
            .collect();
        let mut used = compatible(512);
        assert!(used.encode(&noise(512), PLACE).is_err());
        used.encode(&text, PLACE).expect("compresses");
        let stored = used.encode(&[7; 512], PLACE).expect("compresses").to_vec();
        assert_eq!(
            stored,
            compatible(512).encode(&[7; 512], PLACE).expect("same")
        );
    }

    #[test]
    fn invalid_sizes_do_not_panic() {
        for geometry in [
            Geometry::compatible(0),
            Geometry::compatible(8),
            Geometry {
                stored_block_size: 4,
                logical_block_size: 0,
            },
            Geometry {
                stored_block_size: 12,
                logical_block_size: 0,
            },
        ] {
            let content = vec![0; geometry.logical_block_size as usize];
            let outcome = Encoder::new(geometry, Checksum::Crc32c)
                .encode(&content, PLACE)
                .map(<[u8]>::len);
            if geometry.stored_block_size < OVERHEAD as u32 {
                assert_eq!(outcome.expect_err("no room").room, 0);
            } else {
                assert_eq!(outcome, Ok(12));
            }
            for length in [0, 4, 8, 11, 12, 13] {
                assert!(inspect(&vec![0; length], geometry, PLACE).is_err());
            }
        }
    }

    #[test]
    fn checksum_is_crc32c_and_never_0() {
        assert_eq!(checksum_of(b"123456789"), 0xE306_9283);
        // RFC 3720, B.4.
        assert_eq!(checksum_of(&[0; 32]), 0x8A91_36AA);
        assert_eq!(checksum_of(&[0xFF; 32]), 0x62A8_AB43);
        // Bytes whose CRC is 0: the last four bytes set the register to all ones; found by running it backwards.
        let mut register = u32::MAX;
        for _ in 0..32 {
            register = match register >> 31 {
                0 => register << 1,
                _ => (register ^ 0x82F6_3B78) << 1 | 1,
            };
        }
        let mut bytes = b"four more bytes: ".to_vec();
        bytes.extend((register ^ !crc32c::crc32c(&bytes)).to_le_bytes());
        assert_eq!(crc32c::crc32c(&bytes), 0);
        assert_eq!(checksum_of(&bytes), 1);
    }

    #[test]
    fn checksum_changes_only_the_trailer() {
        let with = Encoder::new(Geometry::compatible(512), Checksum::Crc32c)
            .encode(&[7; 512], PLACE)
            .expect("compresses")
            .to_vec();
        let mut without = compatible(512)
            .encode(&[7; 512], PLACE)
            .expect("compresses")
            .to_vec();
        assert_eq!(without[508..], [0; 4]);
        assert_eq!(
            with[508..],
            bound_checksum_of(&with[..508], PLACE).to_be_bytes()
        );
        without[508..].copy_from_slice(&with[508..]);
        assert_eq!(with, without);
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let geometry = Geometry::compatible(128);
        let mut encoder = Encoder::new(geometry, Checksum::Crc32c);
        let stored = encoder
            .encode(&[7; 128], PLACE)
            .expect("compresses")
            .to_vec();
        assert!(matches!(
            inspect(&stored, geometry, PLACE),
            Ok((_, Verdict::Bound))
        ));
        for bit in 0..8 * stored.len() {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match inspect(&flipped, geometry, PLACE) {
                Ok((_, Verdict::Differs { stored, calculated })) => assert_ne!(stored, calculated),
                Err(Defect::OriginalSize { .. } | Defect::CompressedSize { .. }) => {
                    assert!(bit / 8 < Header::SIZE, "bit {bit}");
                }
                other => panic!("bit {bit}: {other:?}"),
            }
        }
        let mut lost = stored;
        lost[124..].fill(0);
        assert!(matches!(
            inspect(&lost, geometry, PLACE),
            Ok((_, Verdict::Absent))
        ));
    }

    #[test]
    fn impossible_sizes_are_defects() {
        let geometry = logical(4096);
        let with = |original_size, compressed_size| {
            let mut stored = vec![0; 4224];
            let header = Header {
                original_size,
                compressed_size,
            };
            stored[..8].copy_from_slice(&header.emit());
            let checksum = bound_checksum_of(&stored[..4220], PLACE);
            stored[4220..].copy_from_slice(&Trailer { unused: checksum }.emit());
            inspect(&stored, geometry, PLACE).map(|(header, _)| header.compressed_size)
        };
        assert_eq!(with(4096, 4), Ok(4));
        assert_eq!(with(4096, 4212), Ok(4212));
        for wrong in [0, 3, 4213, u32::MAX] {
            let defect = with(4096, wrong).expect_err("a size");
            assert_eq!(
                defect,
                Defect::CompressedSize {
                    room: 4212,
                    found: wrong
                }
            );
        }
        for wrong in [0, 4095, 4224] {
            let defect = with(wrong, 100).expect_err("a size");
            assert_eq!(
                defect,
                Defect::OriginalSize {
                    expected: 4096,
                    found: wrong
                }
            );
        }
        let defect = inspect(&[0; 4096], geometry, PLACE).expect_err("short");
        assert_eq!(
            defect,
            Defect::Size {
                expected: 4224,
                found: 4096
            }
        );
    }

    /// A valid block with a trailer for this place.
    fn block_at(place: Place) -> Vec<u8> {
        Encoder::new(Geometry::compatible(128), Checksum::Crc32c)
            .encode(&[7; 128], place)
            .expect("compresses")
            .to_vec()
    }

    fn verdict(stored: &[u8], place: Place) -> Verdict {
        let (_, verdict) = inspect(stored, Geometry::compatible(128), place).expect("sizes");
        verdict
    }

    fn at(set: SetId, stripe: u64) -> Place {
        Place { set, stripe }
    }

    #[test]
    fn masks_are_as_documented() {
        // Set, stripe, mask, and the trailer of a block whose other bytes are "123456789"; calculated by another program.
        for (set, stripe, mask, trailer) in [
            (0, 0, 0x81f16f39, 0x62f7fdba),
            (0, 1, 0x7995c304, 0x9a935187),
            (0, 5, 0xc24094c8, 0x2146064b),
            (0, 0xffffffff, 0x00000000, 0xe3069283),
            (0, 0x100000000, 0x3b66b2aa, 0xd8602029),
            (0x123456789abcdef1020304050607080, 0, 0x0524fb21, 0xe62269a2),
            (0x123456789abcdef1020304050607080, 5, 0xa5bccdaa, 0x46ba5f29),
            (
                0x123456789abcdef1020304050607080,
                0x700000005,
                0x9a3ac06b,
                0x793c52e8,
            ),
        ] {
            let place = at(SetId(set), stripe);
            assert_eq!(place.mask(), mask, "{place:?}");
            assert_eq!(bound_checksum_of(b"123456789", place), trailer, "{place:?}");
        }
        // The one place without a set whose mask is 0; a checksum of 0 is replaced by 1 there, too.
        let unmasked = at(SetId::NONE, u64::from(u32::MAX));
        assert_eq!(
            bound_checksum_of(b"123456789", unmasked),
            checksum_of(b"123456789")
        );
    }

    #[test]
    fn misplaced_block_differs() {
        let sets = [SetId::NONE, SET, SetId(SET.0 + 1)];
        let stripes = (0..300).chain([
            u64::from(u32::MAX) - 1,
            1 << 32,
            (1 << 32) + 1,
            u64::MAX - 1,
        ]);
        for stripe in stripes {
            for set in sets {
                let stored = block_at(at(set, stripe));
                assert_eq!(verdict(&stored, at(set, stripe)), Verdict::Bound);
                for neighbour in [stripe.wrapping_sub(1), stripe + 1, stripe ^ 1 << 32] {
                    let misplaced = verdict(&stored, at(set, neighbour));
                    assert!(
                        matches!(misplaced, Verdict::Differs { stored, calculated } if stored != calculated),
                        "{set} {stripe} at {neighbour}: {misplaced:?}"
                    );
                }
            }
            // Of another set, at its own stripe.
            let foreign = verdict(&block_at(at(SET, stripe)), at(sets[2], stripe));
            assert!(matches!(foreign, Verdict::Differs { .. }), "{foreign:?}");
        }
    }

    #[test]
    fn masks_of_many_stripes_differ() {
        for set in [SetId::NONE, SET] {
            let mut masks: Vec<u32> = (0..1 << 20).map(|stripe| at(set, stripe).mask()).collect();
            masks.sort_unstable();
            masks.dedup();
            assert_eq!(masks.len(), 1 << 20);
        }
    }

    #[test]
    fn block_of_an_earlier_form_is_unbound() {
        let mut plain = block_at(PLACE);
        let checksum = checksum_of(&plain[..124]);
        plain[124..].copy_from_slice(&Trailer { unused: checksum }.emit());
        let without_set = block_at(at(SetId::NONE, PLACE.stripe));
        assert_eq!(verdict(&plain, PLACE), Verdict::Unbound);
        assert_eq!(verdict(&without_set, PLACE), Verdict::Unbound);
        // A service without superblocks reads a block written with superblocks only as another set's.
        let of_set = verdict(&block_at(PLACE), at(SetId::NONE, PLACE.stripe));
        assert!(matches!(of_set, Verdict::Differs { .. }), "{of_set:?}");
        for mut stored in [plain, without_set] {
            stored[40] ^= 1;
            assert!(matches!(verdict(&stored, PLACE), Verdict::Differs { .. }));
        }
    }

    #[test]
    fn resealed_block_is_bound_to_its_new_place() {
        let geometry = Geometry::compatible(128);
        let other = at(SET, 6);
        let mut stored = block_at(PLACE);
        Encoder::new(geometry, Checksum::Crc32c).reseal(&mut stored, other);
        assert_eq!(stored, block_at(other));
        Encoder::new(geometry, Checksum::Off).reseal(&mut stored, other);
        assert_eq!(verdict(&stored, other), Verdict::Absent);
        assert_eq!(stored[..124], block_at(PLACE)[..124]);
    }

    #[test]
    fn checksum_that_would_be_0_is_1_and_bound() {
        let mut stored = block_at(PLACE);
        // The last four bytes before the trailer are padding: they set the register to any value, here to the mask; found
        // by running it backwards.
        let crc = crc32c::crc32c(&stored[..120]);
        let mut register = !PLACE.mask();
        for _ in 0..32 {
            register = match register >> 31 {
                0 => register << 1,
                _ => (register ^ 0x82F6_3B78) << 1 | 1,
            };
        }
        stored[120..124].copy_from_slice(&(register ^ !crc).to_le_bytes());
        assert_eq!(crc32c::crc32c(&stored[..124]), PLACE.mask());
        stored[124..].copy_from_slice(&Trailer { unused: 1 }.emit());
        assert_eq!(verdict(&stored, PLACE), Verdict::Bound);
        stored[124..].fill(0);
        assert_eq!(verdict(&stored, PLACE), Verdict::Absent);
    }

    // Properties of any data and any bytes.

    /// Decodes the data of a stored block with an LZ4 block decoder.
    fn decode(stored: &[u8], header: Header) -> Vec<u8> {
        let mut data = &stored[data_range(header)];
        let mut content = Vec::new();
        while let Some((prefix, rest)) = data.split_first_chunk() {
            let prefix = u32::from_le_bytes(*prefix);
            let (block, rest) = rest.split_at((prefix & 0x7FFF_FFFF) as usize);
            let expected = (header.original_size as usize - content.len()).min(PIECE);
            match prefix >> 31 {
                0 => content.extend(lz4_flex::block::decompress(block, expected).expect("LZ4")),
                _ => content.extend(block),
            }
            data = rest;
        }
        content
    }

    /// Runs of one byte, and noise, in any order.
    fn any_content() -> impl Strategy<Value = Vec<u8>> {
        let run = (any::<u8>(), 1..40_000usize).prop_map(|(byte, len)| vec![byte; len]);
        let noisy = (0..100usize, 1..40_000usize)
            .prop_map(|(skip, len)| noise(skip + len)[skip..].to_vec());
        proptest::collection::vec(prop_oneof![run, noisy], 1..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn any_content_round_trips(content in any_content()) {
            let geometry = logical(u32::try_from(content.len()).expect("small"));
            let mut encoder = Encoder::new(geometry, Checksum::Crc32c);
            let stored = encoder.encode(&content, PLACE).expect("any content");
            let (header, verdict) = inspect(stored, geometry, PLACE).expect("whole");
            prop_assert_eq!(verdict, Verdict::Bound);
            prop_assert!(decode(stored, header) == content);
        }

        #[test]
        fn inspection_of_any_bytes_does_not_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            plausible in any::<Option<u16>>(),
        ) {
            let size = u32::try_from(bytes.len()).expect("small");
            if let (Some(compressed), Some(header)) = (plausible, bytes.first_chunk_mut()) {
                *header = Header {
                    original_size: size,
                    compressed_size: u32::from(compressed) % 400,
                }
                .emit();
            }
            // No panic, and no size out of bounds.
            if let Ok((header, _)) = inspect(&bytes, Geometry::compatible(size), PLACE) {
                prop_assert_eq!(header.original_size, size);
                prop_assert!(data_range(header).end <= bytes.len() - Trailer::SIZE);
            }
        }
    }

    fn data_range(header: Header) -> std::ops::Range<usize> {
        Header::SIZE..Header::SIZE + header.compressed_size as usize
    }
}
