//! Stored blocks of the gga_offload service: encoding of content, and verification of blocks read from targets.

use arbitrary::{Arbitrary, Result, Unstructured};
use role_common::stored_block::{
    Checksum, Defect, Encoder, Geometry, OVERHEAD, PIECE, Place, STORED_ALIGNMENT, Verdict,
    bound_checksum_of, checksum_of, inspect, logical_block_size,
};
use role_common::superblock::SetId;
use softdoca::engines::lz4::{Decompressor, StreamFormat};
use wire::stored_block::{DataBlock, Header, Trailer};

use super::control_frames::rest;
use super::harness::{self, Counting, Damage, spoil};

/// Position of all stored blocks of this module.
const PLACE: Place = Place {
    set: SetId(0x0123_4567_89ab_cdef_1020_3040_5060_7080),
    stripe: 5,
};

/// Content, a stored block, or bytes that look like one.
#[derive(Debug, Clone)]
pub enum Input {
    Raw {
        /// Expected content size in units of 64 bytes, minus 1; 0 for the number of bytes given.
        logical: u8,
        /// `true` to correct the checksum.
        checksum: bool,
        bytes: Vec<u8>,
    },
    /// Content, and damage to its stored block.
    Content {
        runs: Vec<Run>,
        /// `true` for a stored block of the same size as its content.
        compatible: bool,
        /// `true` for a stored block with a checksum.
        checksum: bool,
        /// Data size claimed by the header, relative to the available space, in bytes.
        claim: Option<i8>,
        damage: Vec<Damage>,
        /// `true` to correct the checksum afterwards.
        repair: bool,
    },
    /// Valid data blocks, whose total size may be invalid.
    DataBlocks {
        /// Their data, and `true` for blocks that are stored uncompressed.
        blocks: Vec<(bool, Run)>,
        /// Content size claimed by the header, relative to the actual size, in bytes.
        claim: i8,
    },
    /// Block sizes, with content if they are small enough.
    Sizes {
        /// Size of a stored block in bytes.
        stored: u32,
        /// Size of its content in bytes.
        logical: u32,
        /// A size as written by a user.
        text: String,
    },
}

/// A byte for the kind, two for the geometry, then the bytes, so that a stored block can be made an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=3)? {
            0 => Self::Raw {
                logical: u.arbitrary()?,
                checksum: u.arbitrary()?,
                bytes: rest(u)?,
            },
            1 => Self::Content {
                runs: u.arbitrary()?,
                compatible: u.arbitrary()?,
                checksum: u.arbitrary()?,
                claim: u.arbitrary()?,
                damage: u.arbitrary()?,
                repair: u.arbitrary()?,
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

/// Content round-trips, damage is detected, and a decompression of damaged data stays within its buffer.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    match input {
        Input::Raw {
            logical,
            checksum,
            bytes,
        } => {
            let mut bytes = bytes.clone();
            let stored = u32::try_from(bytes.len()).expect("inputs are small");
            let logical = match *logical {
                0 => stored,
                units => (u32::from(units) - 1) * 64,
            };
            let geometry = Geometry {
                stored_block_size: stored,
                logical_block_size: logical,
            };
            if *checksum {
                make_checksum_right(&mut bytes);
            }
            any_bytes(&bytes, geometry);
        }
        Input::Content {
            runs,
            compatible,
            checksum,
            claim,
            damage,
            repair,
        } => {
            let Some((mut stored, geometry)) = stored(runs, *compatible, *checksum, damage) else {
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
            if *repair {
                make_checksum_right(&mut stored);
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
    /// Its bytes, repeated up to a length of `most`.
    fn content(&self, most: usize) -> Vec<u8> {
        let times = most.checked_div(self.bytes.len()).unwrap_or(0);
        self.bytes.repeat(times.min(self.repeat.into()))
    }
}

/// Maximum length of content: a few pieces cover all cases.
const LONGEST: usize = 4 * PIECE;

/// Encodes content as a stored block, if possible, and damages it.
fn stored(
    runs: &[Run],
    compatible: bool,
    checksum: bool,
    damage: &[Damage],
) -> Option<(Vec<u8>, Geometry)> {
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
        Geometry::for_logical(logical).expect("not that much")
    };
    let kind = if checksum {
        Checksum::Crc32c
    } else {
        Checksum::Off
    };
    // The stored block and a copy of it, space for content that may turn out not to fit, and the compressor's table.
    let size = content.len() + content.len() / 50;
    let limit = 2 * size + (PIECE + PIECE / 50) + (1 << 16) + 4096;
    let stored = harness::within_memory(limit, "making a stored block", || {
        let mut encoder = Encoder::new(geometry, kind);
        encoder.encode(&content, PLACE).map(<[u8]>::to_vec)
    });
    let mut stored = match stored {
        Ok(stored) => stored,
        Err(refused) => {
            assert!(!geometry.holds_any_content(), "{refused}");
            assert!(refused.needed > refused.room);
            return None;
        }
    };
    assert_eq!(stored.len(), geometry.stored_block_size as usize);
    let (header, verdict) = inspect(&stored, geometry, PLACE).expect("as it was made");
    let expected = if checksum {
        Verdict::Bound
    } else {
        Verdict::Absent
    };
    assert_eq!(verdict, expected);
    let came = decompress(&stored, header, content.len()).expect("as it was made");
    assert!(came == content, "the content comes back");

    let written = stored.clone();
    spoil(&mut stored, damage);
    let as_read = inspect(&stored, geometry, PLACE);
    let changed = changed_bytes(&written, &stored);
    if checksum && stored.len() == written.len() && (1..=4).contains(&changed) {
        // CRC-32C detects any four bytes in a row and any three bits, unless a size in the header is found invalid
        // first.
        assert!(!matches!(
            as_read,
            Ok((_, Verdict::Bound | Verdict::Unbound))
        ));
    }
    Some((stored, geometry))
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
    make_checksum_right(&mut stored);
    let geometry = Geometry {
        stored_block_size: u32::try_from(stored.len()).expect("not that much"),
        logical_block_size: original_size,
    };
    any_bytes(&stored, geometry);
}

/// Length of the range from the first to the last differing byte.
fn changed_bytes(a: &[u8], b: &[u8]) -> usize {
    let differs = |(a, b): (&u8, &u8)| a != b;
    let first = a.iter().zip(b).position(differs);
    let last = a.iter().zip(b).rposition(differs);
    first.zip(last).map_or(0, |(first, last)| last - first + 1)
}

fn make_checksum_right(stored: &mut [u8]) {
    if let Some(end) = stored.len().checked_sub(Trailer::SIZE) {
        let (before, trailer) = stored.split_at_mut(end);
        let checksum = bound_checksum_of(before, PLACE);
        trailer.copy_from_slice(&Trailer { unused: checksum }.emit());
    }
}

// Verdict on a stored block, and its decompression.

/// An accepted block has valid sizes, and the device and this crate agree on its decompression.
fn any_bytes(bytes: &[u8], geometry: Geometry) {
    let counting = Counting::of("stored block: sizes and checksum");
    let sound = sizes_and_checksum(bytes, geometry);
    counting.done(matches!(
        sound,
        Some((_, Verdict::Bound | Verdict::Unbound | Verdict::Absent))
    ));
    if let Some((header, _)) = sound {
        let counting = Counting::of("stored block: LZ4 data blocks");
        let accepted = data_blocks_of(bytes, header, geometry);
        counting.done(accepted);
    }
}

/// Checks the header and the checksum, unless sizes are invalid.
fn sizes_and_checksum(bytes: &[u8], geometry: Geometry) -> Option<(Header, Verdict)> {
    let inspected = harness::within_memory(0, "looking at a stored block", || {
        inspect(bytes, geometry, PLACE)
    });
    let (header, verdict) = match inspected {
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
    let (before, trailer) = bytes.split_at(bytes.len() - Trailer::SIZE);
    let stored = Trailer::parse(trailer).expect("its size").unused;
    let calculated = bound_checksum_of(before, PLACE);
    let without_set = Place {
        set: SetId::NONE,
        ..PLACE
    };
    let expected = if stored == 0 {
        Verdict::Absent
    } else if stored == calculated {
        Verdict::Bound
    } else if [checksum_of(before), bound_checksum_of(before, without_set)].contains(&stored) {
        Verdict::Unbound
    } else {
        Verdict::Differs { stored, calculated }
    };
    assert_eq!(verdict, expected);
    Some((header, verdict))
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
    // A buffer for one block, of at least the usual size and up to three times as much while it grows, and a text.
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

/// The chosen sizes suffice and are not too large; the flag accepts the same ones.
fn sizes_property(stored: u32, logical: u32, text: &str) {
    match Geometry::for_logical(logical) {
        Some(geometry) => {
            assert!(geometry.holds_any_content());
            assert!(geometry.stored_block_size.is_multiple_of(STORED_ALIGNMENT));
            let smaller = Geometry {
                stored_block_size: geometry.stored_block_size - STORED_ALIGNMENT,
                ..geometry
            };
            assert!(!smaller.holds_any_content(), "{geometry:?} is too large");
            assert_eq!(geometry.half_block_size() * 2, geometry.stored_block_size);
        }
        None => assert!(u64::from(logical) + OVERHEAD as u64 > u64::from(u32::MAX) - (1 << 19)),
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
    match Encoder::new(geometry, Checksum::Crc32c).encode(&content, PLACE) {
        Ok(stored) => {
            let (header, verdict) = inspect(stored, geometry, PLACE).expect("as it was made");
            assert_eq!(verdict, Verdict::Bound);
            assert_eq!(decompress(stored, header, content.len()), Some(content));
        }
        Err(refused) => assert!(!refused.to_string().is_empty() && !geometry.holds_any_content()),
    }
}
