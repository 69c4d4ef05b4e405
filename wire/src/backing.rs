//! Backing files, in which targets keep their blocks: a [`Header`], zeros, and from [`CONTENT_OFFSET`] on the blocks.

include!(concat!(env!("OUT_DIR"), "/backing.rs"));

/// Bytes of the header.
pub const HEADER_SIZE: usize = Header::SIZE;

/// Bytes before the first block.
pub const CONTENT_OFFSET: u64 = Header::CONTENT_OFFSET as u64;
