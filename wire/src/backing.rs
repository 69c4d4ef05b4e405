//! Backing files, in which targets keep their blocks: a [`Header`], at [`RECORD_OFFSET`] a [`Superblock`], a [`SetRecord`] of an
//! earlier version, or zeros, and from [`CONTENT_OFFSET`] on the blocks.

include!(concat!(env!("OUT_DIR"), "/backing.rs"));

/// Bytes of the header.
pub const HEADER_SIZE: usize = Header::SIZE;

/// Bytes before the first block.
pub const CONTENT_OFFSET: u64 = Header::CONTENT_OFFSET as u64;

/// Offset of the superblock in bytes.
pub const RECORD_OFFSET: u64 = Header::RECORD_OFFSET as u64;

/// Bytes of the superblock.
pub const RECORD_SIZE: usize = Superblock::SIZE;
