//! Storage binary content: `.sbc` files, which are a [`Header`] and the blocks that a target begins with.

include!(concat!(env!("OUT_DIR"), "/sbc.rs"));

/// What every file begins with.
pub const MAGIC: u64 = Header::MAGIC;

/// Bytes of the header, after which the content begins.
pub const HEADER_SIZE: usize = Header::SIZE;

/// Largest content that is accepted, in bytes: 2 GiB.
pub const MAX_CONTENT: u64 = Header::MAX_CONTENT_SIZE;
