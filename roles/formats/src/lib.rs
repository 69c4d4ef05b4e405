//! The formats that the storage roles store and check: stored blocks of the reference, superblocks of the targets of a set, and the
//! checksum of both. On bytes and control messages only: without I/O, without a clock, and without DOCA.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod stored_block;
pub mod superblock;
pub mod superblocks;
