//! Stored blocks of the gga_offload service: encoding of content, and verification of blocks read from targets.

use arbitrary::{Arbitrary, Result, Unstructured};
use role_common::flags::logical_block_size;
use role_formats::stored_block::{
    Defect, Encoder, Geometry, HALF_ALIGNMENT, OVERHEAD, PIECE, inspect,
};
use softdoca::engines::lz4::{Decompressor, StreamFormat};
use wire::stored_block::{ChunkRecord, DataBlock, Header, Trailer};

use super::control_frames::rest;
use super::harness::{self, Counting, Damage, spoil};

/// Content, a stored block, or bytes that look like one.
#[derive(Debug, Clone)]
pub enum Input {
    Raw {
        /// Expected content size in units of 64 bytes, minus 1; 0 for the actual number of bytes.
        logical: u8,
        bytes: Vec<u8>,
    },
    /// Content, and damage to its stored block.
    Content {
        runs: Vec<Run>,
        /// `true` for a stored block of the same size as its content, `false` for one with space for any content.
        compatible: bool,
        /// Data size claimed by the header, relative to the available space, in bytes.
        claim: Option<i8>,
        damage: Vec<Damage>,
    },
    /// Valid data blocks, whose total size may be invalid.
    DataBlocks {
        /// Data of the blocks, and `true` for blocks that are stored uncompressed.
        blocks: Vec<(bool, Run)>,
        /// Content size claimed by the header, relative to the actual size, in bytes.
        claim: i8,
    },
    /// Block sizes, with content unless they are too large.
    Sizes {
        /// Size of a stored block in bytes.
        stored: u32,
        /// Size of its content in bytes.
        logical: u32,
        /// A size as written by a user.
        text: String,
    },
}

/// One byte selects the kind, two the geometry, and the remaining bytes are the content, so that a stored block can be
/// used as an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=3)? {
            0 => Self::Raw {
                logical: u.arbitrary()?,
                bytes: rest(u)?,
            },
            1 => Self::Content {
                runs: u.arbitrary()?,
                compatible: u.arbitrary()?,
                claim: u.arbitrary()?,
                damage: u.arbitrary()?,
            },
            2 => Self::DataBlocks {
                blocks: u.arbitrary()?,
                claim: u.arbitrary()?,
            },
            _ => Self::Sizes {
                stored: u.arbitrary()?,
                logical: u.arbitrary()?,
                text: u.arbitrary()?,
            },
        })
    }
}

/// Content round-trips, and a decompression of damaged data stays within its buffer.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    match input {
        Input::Raw { logical, bytes } => {
            let stored = u32::try_from(bytes.len()).expect("inputs are small");
            let logical = match *logical {
                0 => stored,
                units => (u32::from(units) - 1) * 64,
            };
            let geometry = Geometry {
                stored_block_size: stored,
                logical_block_size: logical,
            };
            any_bytes(bytes, geometry);
        }
        Input::Content {
            runs,
            compatible,
            claim,
            damage,
        } => {
            let Some((mut stored, geometry)) = stored(runs, *compatible, damage) else {
                return;
            };
            if let Some(claim) = *claim {
                let room = u32::try_from(geometry.room()).expect("not that much");
                // Usually near the available space.
                let claim = if claim < 100 { claim % 8 } else { claim };
                let claim = room.wrapping_add_signed(claim.into()).to_be_bytes();
                stored
                    .iter_mut()
                    .skip(4)
                    .zip(claim)
                    .for_each(|(place, byte)| *place = byte);
            }
            any_bytes(&stored, geometry);
        }
        Input::DataBlocks { blocks, claim } => data_blocks(blocks, *claim),
        Input::Sizes {
            stored,
            logical,
            text,
        } => sizes_property(*stored, *logical, text),
    }
}

// Generated stored blocks: of content, or of data blocks.

/// A part of the content.
#[derive(Debug, Clone, Arbitrary)]
pub struct Run {
    bytes: Vec<u8>,
    repeat: u16,
}

impl Run {
    /// The bytes of the run, repeated up to a length of `most`.
    fn content(&self, most: usize) -> Vec<u8> {
        let times = most.checked_div(self.bytes.len()).unwrap_or(0);
        self.bytes.repeat(times.min(self.repeat.into()))
    }
}

/// Maximum length of content: a few pieces cover all cases.
const LONGEST: usize = 4 * PIECE;

/// Encodes content as a stored block, if possible, and damages it.
fn stored(runs: &[Run], compatible: bool, damage: &[Damage]) -> Option<(Vec<u8>, Geometry)> {
    let mut content = Vec::new();
    for run in runs {
        content.extend(run.content(LONGEST - content.len()));
    }
    if content.is_empty() {
        // The content is empty.
        return None;
    }
    let logical = u32::try_from(content.len()).expect("not that much");
    let geometry = if compatible {
        Geometry::compatible(logical)
    } else {
        Geometry {
            stored_block_size: u32::try_from(worst_case(content.len()) + OVERHEAD).expect("small"),
            logical_block_size: logical,
        }
    };
    // The stored block and a copy of it, space for content that may turn out not to fit, and the compressor's table.
    let size = content.len() + content.len() / 50;
    let limit = 2 * size + (PIECE + PIECE / 50) + (1 << 16) + 4096;
    let stored = harness::within_memory(limit, "making a stored block", || {
        let mut encoder = Encoder::new(geometry);
        encoder.encode(&content).map(<[u8]>::to_vec)
    });
    let mut stored = match stored {
        Ok(stored) => stored,
        Err(refused) => {
            assert!(compatible, "{refused}");
            assert!(refused.needed > refused.room);
            return None;
        }
    };
    assert_eq!(stored.len(), geometry.stored_block_size as usize);
    let header = inspect(&stored, geometry).expect("as it was made");
    assert_eq!(stored[stored.len() - Trailer::SIZE..], [0; Trailer::SIZE]);
    let came = decompress(&stored, header, content.len()).expect("as it was made");
    assert!(came == content, "the content comes back");

    spoil(&mut stored, damage);
    Some((stored, geometry))
}

/// Size in bytes of the data blocks of this much content, if none compresses.
fn worst_case(content: usize) -> usize {
    content + content.div_ceil(PIECE) * DataBlock::SIZE
}

/// A stored block of these data blocks, valid except possibly for the content size.
fn data_blocks(blocks: &[(bool, Run)], claim: i8) {
    let mut stored = vec![0; Header::SIZE];
    let mut length = 0;
    for (raw, run) in blocks {
        let content = run.content(LONGEST - length);
        length += content.len();
        let data = if *raw {
            content
        } else {
            lz4_flex::block::compress(&content)
        };
        let size = u32::try_from(data.len()).expect("not that much");
        let size_and_raw = size | u32::from(*raw) << 31;
        stored.extend(DataBlock { size_and_raw }.emit());
        stored.extend(data);
    }
    let compressed_size = u32::try_from(stored.len() - Header::SIZE).expect("not that much");
    let claim = i64::from(claim) + i64::try_from(length).expect("not that much");
    let original_size = u32::try_from(claim.max(0)).expect("not that much");
    let header = Header {
        original_size,
        compressed_size,
    };
    stored[..Header::SIZE].copy_from_slice(&header.emit());
    stored.extend([0; Trailer::SIZE]);
    let geometry = Geometry {
        stored_block_size: u32::try_from(stored.len()).expect("not that much"),
        logical_block_size: original_size,
    };
    any_bytes(&stored, geometry);
}

// Sizes of a stored block, and its decompression.

/// An accepted block has valid sizes, and the device and this crate agree on its decompression.
fn any_bytes(bytes: &[u8], geometry: Geometry) {
    let counting = Counting::of("stored block: sizes");
    let sound = sizes_in_header(bytes, geometry);
    counting.done(sound.is_some());
    if let Some(header) = sound {
        let counting = Counting::of("stored block: LZ4 data blocks");
        let accepted = data_blocks_of(bytes, header, geometry);
        counting.done(accepted);
    }
}

/// Header of a stored block with valid sizes.
fn sizes_in_header(bytes: &[u8], geometry: Geometry) -> Option<Header> {
    let inspected =
        harness::within_memory(0, "inspecting a stored block", || inspect(bytes, geometry));
    let header = match inspected {
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
    Some(header)
}

/// Returns `true` if both the device and this crate decompress the data.
fn data_blocks_of(bytes: &[u8], header: Header, geometry: Geometry) -> bool {
    let room = geometry.logical_block_size as usize;
    let ours = decompress(bytes, header, room);
    let data = &bytes[Header::SIZE..][..header.compressed_size as usize];
    let format = StreamFormat {
        block_checksums: false,
        independent_blocks: true,
    };
    let mut came = Vec::with_capacity(room);
    // A buffer for one block, which has at least the usual size and needs up to three times that size while it grows,
    // and a text.
    let limit = 3 * room.max(PIECE) + 4096;
    let done = harness::within_memory(limit, "decompressing", || {
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

/// The content of a stored block, by LZ4 decompression of single blocks; `None` if the data is malformed or the content
/// is longer than `room`.
fn decompress(stored: &[u8], header: Header, room: usize) -> Option<Vec<u8>> {
    /// Maximum size of a block of an LZ4 frame in bytes.
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

// Sizes of stored blocks.

/// Checks that the chosen sizes suffice and are not too large, and that the flag accepts the same sizes.
fn sizes_property(stored: u32, logical: u32, text: &str) {
    match Geometry::for_logical(logical) {
        Some(geometry) => {
            let chunk = geometry.half_block_size();
            assert!(chunk.is_multiple_of(HALF_ALIGNMENT));
            assert_eq!(chunk * 2, geometry.stored_block_size);
            let room = 2 * (u64::from(chunk) - ChunkRecord::SIZE as u64);
            let spare = room - u64::from(logical);
            assert!(
                spare < 2 * u64::from(HALF_ALIGNMENT),
                "{geometry:?} is too large"
            );
        }
        None => assert!(logical > u32::MAX - 4 * HALF_ALIGNMENT),
    }
    for text in [text, &logical.to_string()] {
        if let Ok(accepted) = logical_block_size(text) {
            assert_ne!(accepted, 0);
            assert!(Geometry::for_logical(accepted).is_some());
            // A plain number is parsed as it is; with a unit, it is a multiple of the unit.
            match text.parse::<u32>() {
                Ok(number) => assert_eq!(number, accepted),
                Err(_) => assert!(text.ends_with(|last: char| last.is_ascii_alphabetic())),
            }
        }
    }
    let refused = logical_block_size(&logical.to_string()).is_err();
    assert_eq!(
        refused,
        logical == 0 || Geometry::for_logical(logical).is_none()
    );

    // Unusual sizes must not cause writes beyond a buffer.
    let geometry = Geometry {
        stored_block_size: stored % 4096,
        logical_block_size: logical % 4096 + 1,
    };
    let content = vec![0x5a; geometry.logical_block_size as usize];
    match Encoder::new(geometry).encode(&content) {
        Ok(stored) => {
            let header = inspect(stored, geometry).expect("as it was made");
            assert_eq!(decompress(stored, header, content.len()), Some(content));
        }
        Err(refused) => {
            assert!(!refused.to_string().is_empty());
            let stored = geometry.stored_block_size as usize;
            assert!(stored < worst_case(content.len()) + OVERHEAD, "{refused}");
        }
    }
}
