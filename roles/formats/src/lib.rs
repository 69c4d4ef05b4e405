//! The formats that the storage roles store and check: stored blocks of the reference, superblocks of the targets of a
//! set, and the checksum of both. This crate processes bytes and control messages only, without I/O, clocks or DOCA.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod stored_block;
pub mod superblock;
pub mod superblocks;
