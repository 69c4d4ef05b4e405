//! Stored blocks: the format in which the gga_offload service stores data on its three targets, also written by the
//! generator.
//!
//! A stored block is a header, the LZ4 data blocks of one block of data, zeros, and a trailer, with the layout of
//! [`wire::stored_block`]. Its first half is stored on data_1, its second half on data_2, and their parity, by a
//! [`MatrixType`], on data_p. [`Geometry`] has its sizes, [`Encoder`] creates it, and [`inspect`] checks it. All of
//! this works on bytes only; compression and erasure coding engines are the device's.

mod checksum;
mod decodes;
mod encoder;
mod geometry;
mod inspect;
mod matrix;

pub use checksum::{Checksum, Place, Verdict, bound_checksum_of, checksum_of};
pub use decodes::decodes;
pub use encoder::{Encoder, Incompressible};
pub use geometry::{Geometry, HALF_ALIGNMENT, STORED_ALIGNMENT, logical_block_size};
pub use inspect::{Defect, inspect};
pub use matrix::MatrixType;

use wire::stored_block::{Header, Trailer};

/// Maximum data per LZ4 data block in bytes, as the reference configures its compressor.
pub const PIECE: usize = 64 << 10;

/// Bytes of a stored block other than LZ4 data blocks: header and trailer.
pub const OVERHEAD: usize = Header::SIZE + Trailer::SIZE;

#[cfg(test)]
mod tests;
