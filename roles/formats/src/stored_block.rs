//! Stored blocks: the form in which the reference's gga_offload service stores data on its three targets, also written by
//! the generator.
//!
//! A stored block is a header, the LZ4 data blocks of one block of data, zeros, and an unused trailer, with the layout
//! of [`wire::stored_block`]. Its first half is stored on data_1, its second half on data_2, and their parity, by a
//! [`MatrixType`], on data_p. [`Geometry`] defines its sizes, [`Encoder`] creates it, and [`inspect`] checks its sizes.
//! It identifies neither its block nor its write; stored chunks do. This module processes bytes only; compression and
//! erasure coding are done by the device.

use std::fmt;

use clap::ValueEnum;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use serde::Serialize;
use wire::stored_block::{ChunkRecord, DataBlock, Header, Trailer};

/// Maximum data per LZ4 data block in bytes, as the reference configures its compressor.
pub const PIECE: usize = 64 << 10;

/// Bytes of a stored block that are not LZ4 data blocks: header and trailer.
pub const OVERHEAD: usize = Header::SIZE + Trailer::SIZE;

// Encodes data as stored blocks.

/// Marks an LZ4 data block stored uncompressed.
const RAW: u32 = 1 << 31;

/// Encodes stored blocks; reuses its working memory.
pub struct Encoder {
    geometry: Geometry,
    /// The stored block, followed by space for compressed data whose final size is unknown.
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
        write!(
            f,
            "; targets on which a service with --logical-block-size {} creates a set have room for any content",
            geometry.logical_block_size
        )
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

impl Encoder {
    /// Creates an encoder for stored blocks of these sizes.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            buffer: Vec::new(),
            table: CompressTable::default(),
        }
    }

    /// Encodes `content`: header, LZ4 data blocks, and zeros up to the end. Only the first call allocates.
    ///
    /// # Errors
    ///
    /// The data does not compress enough for the geometry.
    ///
    /// # Panics
    ///
    /// If `content` does not have the geometry's logical block size.
    pub fn encode(&mut self, content: &[u8]) -> Result<&[u8], Incompressible> {
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
        self.buffer[end..size].fill(0);
        Ok(&self.buffer[..size])
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

/// Working memory in bytes for compressing `content` bytes: all pieces but the last stored raw, and LZ4's worst case
/// for the last one.
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
    /// Largest data size in bytes for which [`for_logical`](Self::for_logical) returns `Some`: the sizes of its chunks fit in 32 bits together.
    pub const LARGEST_LOGICAL: u32 =
        u32::MAX / STORED_ALIGNMENT * STORED_ALIGNMENT - 2 * ChunkRecord::SIZE as u32;

    /// The reference's geometry: data blocks are as large as stored blocks, so the data must compress.
    #[must_use]
    pub fn compatible(stored_block_size: u32) -> Self {
        Self {
            stored_block_size,
            logical_block_size: stored_block_size,
        }
    }

    /// The sizes of a set with stored chunks for data of `logical_block_size` bytes: half of the data, which may have
    /// any content, and a record in each chunk. `None` if the sum of two chunks does not fit in 32 bits; the flag's
    /// parser refuses such sizes.
    #[must_use]
    pub fn for_logical(logical_block_size: u32) -> Option<Self> {
        let payload = u64::from(logical_block_size.div_ceil(2));
        let chunk = payload.next_multiple_of(HALF_ALIGNMENT.into()) + ChunkRecord::SIZE as u64;
        Some(Self {
            stored_block_size: u32::try_from(2 * chunk).ok()?,
            logical_block_size,
        })
    }

    /// Returns `true` for stored blocks of the reference.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.stored_block_size == self.logical_block_size
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

// Checks of a stored block without decompression.

/// Reason why bytes are not a stored block. They must not be decompressed.
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

/// Returns the header of a stored block after checking its sizes.
///
/// # Errors
///
/// A size is invalid.
pub fn inspect(stored: &[u8], geometry: Geometry) -> Result<Header, Defect> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compatible(size: u32) -> Encoder {
        Encoder::new(Geometry::compatible(size))
    }

    fn logical(size: u32) -> Geometry {
        Geometry::for_logical(size).expect("not too large")
    }

    /// Stored blocks with space for any content of this size.
    fn roomy(size: u32) -> Geometry {
        let worst_case = size as usize + (size as usize).div_ceil(PIECE) * DataBlock::SIZE;
        let stored = (worst_case + OVERHEAD).next_multiple_of(STORED_ALIGNMENT as usize);
        Geometry {
            stored_block_size: u32::try_from(stored).expect("small"),
            logical_block_size: size,
        }
    }

    #[test]
    fn chunks_have_room_for_half_of_any_content_and_a_record() {
        for (size, chunk) in [
            (1, 64 + 64),
            (128, 64 + 64),
            (129, 128 + 64),
            (4096, 2048 + 64),
            (1 << 20, (1 << 19) + 64),
        ] {
            let geometry = logical(size);
            assert_eq!(geometry.half_block_size(), chunk);
            assert_eq!(geometry.logical_block_size, size);
            assert!(!geometry.is_compatible());
        }
        assert!(Geometry::compatible(4096).is_compatible());
    }

    #[test]
    fn zeros_make_a_block_of_mostly_padding() {
        let mut encoder = compatible(256);
        let stored = encoder.encode(&[0; 256]).expect("compresses").to_vec();
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
            .encode(&contents::noise(1, 4096))
            .expect_err("noise");
        // Raw data: its length field and the data; 12 bytes are used for header and trailer.
        assert_eq!((refused.needed, refused.room), (4100, 4084));
        assert_eq!(
            refused.to_string(),
            "compresses to 4100 bytes, 16 more than the 4084 that a stored block has room for; targets on which a service \
             with --logical-block-size 4096 creates a set have room for any content"
        );
    }

    #[test]
    fn noise_fits_if_there_is_room_for_raw_data_blocks() {
        for size in [1, 112, 4096, 65536, 65537, 200_000] {
            let content = contents::noise(1, size as usize);
            let geometry = roomy(size);
            let mut encoder = Encoder::new(geometry);
            let stored = encoder.encode(&content).expect("any content");
            assert_eq!(stored.len(), geometry.stored_block_size as usize);
            let header = inspect(stored, geometry).expect("whole");
            assert_eq!(header.original_size, size);
            assert_eq!(
                header.compressed_size as usize,
                content.len() + 4 * content.len().div_ceil(PIECE)
            );
            assert_eq!(
                stored[12..12 + content.len().min(PIECE)],
                content[..content.len().min(PIECE)]
            );
        }
    }

    #[test]
    fn noise_between_zeros_is_stored_raw() {
        let mut content = vec![0; 3 * PIECE];
        content[PIECE..2 * PIECE].copy_from_slice(&contents::noise(1, PIECE));
        let mut encoder = compatible(3 * PIECE as u32);
        let stored = encoder.encode(&content).expect("two thirds are zeros");
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
        let noise = contents::noise(1, size);
        let outcome = |random: usize| {
            let mut content = vec![0; size];
            content[..random].copy_from_slice(&noise[..random]);
            compatible(1024)
                .encode(&content)
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
        assert!(used.encode(&contents::noise(1, 512)).is_err());
        used.encode(&text).expect("compresses");
        let stored = used.encode(&[7; 512]).expect("compresses").to_vec();
        assert_eq!(stored, compatible(512).encode(&[7; 512]).expect("same"));
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
            let outcome = Encoder::new(geometry).encode(&content).map(<[u8]>::len);
            if geometry.stored_block_size < OVERHEAD as u32 {
                assert_eq!(outcome.expect_err("no room").room, 0);
            } else {
                assert_eq!(outcome, Ok(12));
            }
            for length in [0, 4, 8, 11, 12, 13] {
                assert!(inspect(&vec![0; length], geometry).is_err());
            }
        }
    }

    #[test]
    fn impossible_sizes_are_defects() {
        let geometry = roomy(4096);
        let with = |original_size, compressed_size| {
            let mut stored = vec![0; 4224];
            let header = Header {
                original_size,
                compressed_size,
            };
            stored[..8].copy_from_slice(&header.emit());
            // The trailer is ignored.
            stored[4220..].fill(0xee);
            inspect(&stored, geometry).map(|header| header.compressed_size)
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
        let defect = inspect(&[0; 4096], geometry).expect_err("short");
        assert_eq!(
            defect,
            Defect::Size {
                expected: 4224,
                found: 4096
            }
        );
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
            .prop_map(|(skip, len)| contents::noise(1, skip + len)[skip..].to_vec());
        proptest::collection::vec(prop_oneof![run, noisy], 1..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn any_content_round_trips(content in any_content()) {
            let geometry = roomy(u32::try_from(content.len()).expect("small"));
            let mut encoder = Encoder::new(geometry);
            let stored = encoder.encode(&content).expect("any content");
            let header = inspect(stored, geometry).expect("whole");
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
            // Checks that there is no panic, and no size out of bounds.
            if let Ok(header) = inspect(&bytes, Geometry::compatible(size)) {
                prop_assert_eq!(header.original_size, size);
                prop_assert!(data_range(header).end <= bytes.len() - Trailer::SIZE);
            }
        }
    }

    fn data_range(header: Header) -> std::ops::Range<usize> {
        Header::SIZE..Header::SIZE + header.compressed_size as usize
    }
}
