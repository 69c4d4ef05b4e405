//! Stored blocks: what the gga_offload service makes of content, and what it finds on its targets.

use arbitrary::{Arbitrary, Result, Unstructured};
use role_common::stored_block::{
    Checksum, Defect, Encoder, Geometry, OVERHEAD, PIECE, STORED_ALIGNMENT, Verdict, checksum_of,
    inspect, logical_block_size,
};
use softdoca::engines::lz4::{Decompressor, StreamFormat};
use wire::stored_block::{DataBlock, Header, Trailer};

use crate::control_frames::rest;
use crate::damage::{Damage, spoil};
use crate::memory;

/// Content, a stored block, or what claims to be one.
#[derive(Debug, Clone)]
pub enum Input {
    /// Any bytes.
    Raw {
        /// Bytes of content that they should have, less one, in units of 64; 0 for as many as they are.
        logical: u8,
        /// Whether they are made to have the right checksum.
        checksum: bool,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Content, and what happens to the stored block.
    Content {
        /// The content.
        runs: Vec<Run>,
        /// Whether the stored block is as large as its content.
        compatible: bool,
        /// Whether it has a checksum.
        checksum: bool,
        /// Bytes of data that its header claims, less the room that there is for them.
        claim: Option<i8>,
        /// What happens to it.
        damage: Vec<Damage>,
        /// Whether it has the right checksum afterwards.
        repair: bool,
    },
    /// Sizes of blocks, with content where they are small enough.
    Sizes {
        /// Bytes of a stored block.
        stored: u32,
        /// Bytes of content.
        logical: u32,
        /// What somebody wrote as a size.
        text: String,
    },
}

/// A part of the content.
#[derive(Debug, Clone, Arbitrary)]
pub struct Run {
    bytes: Vec<u8>,
    repeat: u16,
}

/// A number for the kind, two for how it is to be read, and the bytes, so that a stored block is easily made an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=2)? {
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
            _ => Self::Sizes {
                stored: u.arbitrary()?,
                logical: u.arbitrary()?,
                text: u.arbitrary()?,
            },
        })
    }
}

/// Content comes back; what is not what was written is noticed; what is decompressed nevertheless stays in its place.
///
/// # Panics
///
/// If that does not hold.
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
            let Some((mut stored, geometry)) = content(runs, *compatible, *checksum, damage) else {
                return;
            };
            if let Some(claim) = *claim {
                let room = u32::try_from(geometry.room()).expect("not that much");
                // Mostly about the room, seldom far from it.
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
        Input::Sizes {
            stored,
            logical,
            text,
        } => sizes(*stored, *logical, text),
    }
}

/// Bytes of content at most: a few pieces, as more of them are nothing new.
const LONGEST: usize = 4 * PIECE;

/// Makes a stored block of content, if that is possible, and spoils it.
fn content(
    runs: &[Run],
    compatible: bool,
    checksum: bool,
    damage: &[Damage],
) -> Option<(Vec<u8>, Geometry)> {
    let mut content = Vec::new();
    for Run { bytes, repeat } in runs {
        let most = (LONGEST - content.len()).checked_div(bytes.len());
        let times = usize::from(*repeat).min(most.unwrap_or(0));
        content.extend(bytes.repeat(times));
    }
    if content.is_empty() {
        // No block is.
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
    // The stored block and a copy of it, room for what may turn out not to fit, and the compressor's table.
    let size = content.len() + content.len() / 50;
    let limit = 2 * size + (PIECE + PIECE / 50) + (1 << 16) + 4096;
    let stored = memory::within(limit, "making a stored block", || {
        let mut encoder = Encoder::new(geometry, kind);
        encoder.encode(&content).map(<[u8]>::to_vec)
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
    let (header, verdict) = inspect(&stored, geometry).expect("as it was made");
    let expected = if checksum {
        Verdict::Matches
    } else {
        Verdict::Absent
    };
    assert_eq!(verdict, expected);
    let came = decompress(&stored, header, content.len()).expect("as it was made");
    assert!(came == content, "the content comes back");

    let written = stored.clone();
    spoil(&mut stored, damage);
    let as_read = inspect(&stored, geometry);
    let changed = changed_bytes(&written, &stored);
    if checksum && stored.len() == written.len() && (1..=4).contains(&changed) {
        // CRC-32C finds any four bytes in a row, and any three bits; sizes in the header may be wrong before.
        assert_ne!(as_read.map(|(_, verdict)| verdict), Ok(Verdict::Matches));
    }
    Some((stored, geometry))
}

/// Bytes between the first and the last one that are different, with them.
fn changed_bytes(a: &[u8], b: &[u8]) -> usize {
    let differs = |(a, b): (&u8, &u8)| a != b;
    let first = a.iter().zip(b).position(differs);
    let last = a.iter().zip(b).rposition(differs);
    first.zip(last).map_or(0, |(first, last)| last - first + 1)
}

fn make_checksum_right(stored: &mut [u8]) {
    if let Some(end) = stored.len().checked_sub(Trailer::SIZE) {
        let (before, trailer) = stored.split_at_mut(end);
        let checksum = checksum_of(before);
        trailer.copy_from_slice(&Trailer { checksum }.emit());
    }
}

/// What is accepted has the sizes that it should have, and is decompressed by the device as by this, or refused by both.
fn any_bytes(bytes: &[u8], geometry: Geometry) {
    let inspected = memory::within(0, "looking at a stored block", || inspect(bytes, geometry));
    let (header, verdict) = match inspected {
        Ok(accepted) => accepted,
        Err(Defect::Size { .. }) => {
            let right = bytes.len() == geometry.stored_block_size as usize;
            return assert!(!right || bytes.len() < OVERHEAD);
        }
        Err(Defect::OriginalSize { expected, found }) => return assert_ne!(expected, found),
        Err(Defect::CompressedSize { room, found }) => {
            let end = Header::SIZE + found as usize;
            assert_eq!(room, bytes.len() - OVERHEAD);
            return assert!(
                end < Header::SIZE + DataBlock::SIZE || end > bytes.len() - Trailer::SIZE
            );
        }
    };
    assert_eq!(header.original_size, geometry.logical_block_size);
    let data = Header::SIZE + header.compressed_size as usize;
    assert!(data >= Header::SIZE + DataBlock::SIZE && data <= bytes.len() - Trailer::SIZE);
    let (before, trailer) = bytes.split_at(bytes.len() - Trailer::SIZE);
    let stored = Trailer::parse(trailer).expect("its size").checksum;
    let expected = match (stored, checksum_of(before)) {
        (0, _) => Verdict::Absent,
        (stored, calculated) if stored == calculated => Verdict::Matches,
        (stored, calculated) => Verdict::Differs { stored, calculated },
    };
    assert_eq!(verdict, expected);

    let room = geometry.logical_block_size as usize;
    let ours = decompress(bytes, header, room);
    let data = &bytes[Header::SIZE..][..header.compressed_size as usize];
    let format = StreamFormat {
        block_checksums: false,
        independent_blocks: true,
    };
    let mut came = Vec::with_capacity(room);
    // A buffer for one of the blocks, of at least the usual size and twice while it grows, and the text of an error.
    let limit = 2 * room.max(PIECE) + 4096;
    let done = memory::within(limit, "decompressing", || {
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
            assert_eq!(done.len, ours.len());
            assert!(came == ours, "the device decompresses something else");
        }
        (Err(_), None) => {}
        (done, ours) => panic!(
            "the device says {done:?}, expected {:?} bytes",
            ours.map(|content| content.len())
        ),
    }
}

/// The content of a stored block, by LZ4 of single blocks; none when its data is malformed, or longer than `room`.
fn decompress(stored: &[u8], header: Header, room: usize) -> Option<Vec<u8>> {
    /// The longest that a block of an LZ4 frame can be.
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

/// The sizes that are chosen are enough, and not too much; the flag accepts the same.
fn sizes(stored: u32, logical: u32, text: &str) {
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
            assert_eq!(text.parse(), Ok(accepted));
        }
    }
    let refused = logical_block_size(&logical.to_string()).is_err();
    assert_eq!(
        refused,
        logical == 0 || Geometry::for_logical(logical).is_none()
    );

    // Nobody chooses such sizes. That they are odd is no reason to write behind the end of something.
    let geometry = Geometry {
        stored_block_size: stored % 4096,
        logical_block_size: logical % 4096 + 1,
    };
    let content = vec![0x5a; geometry.logical_block_size as usize];
    match Encoder::new(geometry, Checksum::Crc32c).encode(&content) {
        Ok(stored) => {
            let (header, verdict) = inspect(stored, geometry).expect("as it was made");
            assert_eq!(verdict, Verdict::Matches);
            assert_eq!(decompress(stored, header, content.len()), Some(content));
        }
        Err(refused) => assert!(!refused.to_string().is_empty() && !geometry.holds_any_content()),
    }
}
