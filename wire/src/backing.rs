//! Backing files, in which targets keep their blocks: a [`Header`], at [`RECORD_OFFSETS`] the places of a [`SequencedRecord`], and from
//! [`CONTENT_OFFSET`] on the blocks.

include!(concat!(env!("OUT_DIR"), "/backing.rs"));

/// Bytes of the header.
pub const HEADER_SIZE: usize = Header::SIZE;

/// Bytes before the first block.
pub const CONTENT_OFFSET: u64 = Header::CONTENT_OFFSET as u64;

/// The two places of the record, by its sequence modulo 2.
pub const RECORD_OFFSETS: [u64; 2] = [
    Header::RECORD_OFFSET as u64,
    Header::RECORD_OFFSET as u64 + 4096,
];

/// Bytes of a record.
pub const RECORD_SIZE: usize = SequencedRecord::SIZE;

/// Bytes of a record that was written by versions that knew one place.
pub const OLD_RECORD_SIZE: usize = SetRecord::SIZE;
