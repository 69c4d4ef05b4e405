//! Stored blocks: what the gga_offload service makes of content, and what it finds on its targets.

mod content;
mod judgement;
mod sizes;

use arbitrary::{Arbitrary, Result, Unstructured};
use role_common::stored_block::{Geometry, Place};
use role_common::superblock::SetId;

use crate::control_frames::rest;
use crate::damage::Damage;

pub use content::Run;
use content::make_checksum_right;
use judgement::any_bytes;

/// The place of all stored blocks here.
const PLACE: Place = Place {
    set: SetId(0x0123_4567_89ab_cdef_1020_3040_5060_7080),
    stripe: 5,
};

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
    /// Data blocks, each of which is sound, but for what they come to together.
    DataBlocks {
        /// What they hold, and whether that is stored as it is.
        blocks: Vec<(bool, Run)>,
        /// Bytes of content that are claimed, less those that there are.
        claim: i8,
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

/// A number for the kind, two for how it is to be read, and the bytes, so that a stored block is easily made an input.
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
            let Some((mut stored, geometry)) =
                content::stored(runs, *compatible, *checksum, damage)
            else {
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
        Input::DataBlocks { blocks, claim } => content::data_blocks(blocks, *claim),
        Input::Sizes {
            stored,
            logical,
            text,
        } => sizes::property(*stored, *logical, text),
    }
}
