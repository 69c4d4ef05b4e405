//! Backing files of targets: a [`Header`], two slots for a [`Superblock`] at [`RECORD_OFFSETS`], and the blocks from
//! [`CONTENT_OFFSET`] on. [`SetRecord`] is the first layout of the superblock.

include!(concat!(env!("OUT_DIR"), "/backing.rs"));

/// Length of the header in bytes.
pub const HEADER_SIZE: usize = Header::SIZE;

/// Offset of the first block in bytes.
pub const CONTENT_OFFSET: u64 = Header::CONTENT_OFFSET as u64;

/// Offsets of the two slots of the superblock, indexed by its sequence modulo 2.
pub const RECORD_OFFSETS: [u64; 2] = [
    Header::RECORD_OFFSET as u64,
    Header::RECORD_OFFSET as u64 + 4096,
];

/// Length of a superblock in bytes; the first layout is not longer.
pub const RECORD_SIZE: usize = Superblock::SIZE;
