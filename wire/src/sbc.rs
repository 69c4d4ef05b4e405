//! `.sbc` files: a header of 16 bytes, then the blocks that a storage starts with.

use nom::number::complete::{be_u32, be_u64};

use crate::DecodeError;
use crate::codec::{self, Place};

/// The first eight bytes of every file.
pub const MAGIC: u64 = 0xDEAD_F00D_1337_FADE;

/// Bytes of the header.
pub const HEADER_SIZE: usize = 16;

/// Largest content, in bytes.
pub const MAX_CONTENT: u64 = 2 << 30;

/// The header of a `.sbc` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes per block.
    pub block_size: u32,
    /// Blocks in the file.
    pub block_count: u32,
}

impl Header {
    /// Reads the header at the beginning of `bytes`; the content may follow.
    ///
    /// # Errors
    ///
    /// Another magic, fewer than [`HEADER_SIZE`] bytes, or more than [`MAX_CONTENT`] bytes of content announced.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let at = |field| Place {
            message: "sbc_header",
            field,
        };
        let (rest, magic) = codec::number(bytes, at("magic"), 8, be_u64)?;
        if magic != MAGIC {
            return Err(DecodeError::WrongConstant {
                message: "sbc_header",
                field: "magic",
                expected: MAGIC,
                came: magic,
            });
        }
        let (rest, block_size) = codec::number(rest, at("block_size"), 4, be_u32)?;
        let (_, block_count) = codec::number(rest, at("block_count"), 4, be_u32)?;
        let header = Self {
            block_size,
            block_count,
        };
        codec::in_range(at("block_count"), header.content_size(), 0, MAX_CONTENT)?;
        Ok(header)
    }

    /// The bytes of the header.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..8].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.block_size.to_be_bytes());
        bytes[12..].copy_from_slice(&self.block_count.to_be_bytes());
        bytes
    }

    /// Bytes of content that follow the header.
    #[must_use]
    pub fn content_size(&self) -> u64 {
        u64::from(self.block_size) * u64::from(self.block_count)
    }
}
