//! Backing files, in which targets keep their blocks: a [`Header`], at [`RECORD_OFFSETS`] the two places of a [`Superblock`], and from
//! [`CONTENT_OFFSET`] on the blocks. [`SetRecord`] is the first layout of the superblock.

include!(concat!(env!("OUT_DIR"), "/backing.rs"));

/// Bytes of the header.
pub const HEADER_SIZE: usize = Header::SIZE;

/// Bytes before the first block.
pub const CONTENT_OFFSET: u64 = Header::CONTENT_OFFSET as u64;

/// The two places of the superblock, by its sequence modulo 2.
pub const RECORD_OFFSETS: [u64; 2] = [
    Header::RECORD_OFFSET as u64,
    Header::RECORD_OFFSET as u64 + 4096,
];

/// Bytes of a superblock, at least as many as those of the first layout.
pub const RECORD_SIZE: usize = Superblock::SIZE;
