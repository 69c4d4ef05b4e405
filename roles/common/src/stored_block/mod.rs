//! Stored blocks: what the gga_offload service keeps on its three targets, and the generator makes.
//!
//! A stored block is a header, the LZ4 data blocks of one block of content, zeros, and a trailer: the layout is
//! [`wire::stored_block`]'s. Its first half lies on data_1, its second half on data_2, and their parity, by a
//! [`MatrixType`], on data_p. [`Geometry`] says how large it is, [`Encoder`] makes it, and [`inspect`] says what is wrong
//! with one. All of this is bytes only; compression engines and erasure coding are the device's.

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

/// Content of an LZ4 data block at most, as the reference configures its compressor.
pub const PIECE: usize = 64 << 10;

/// Bytes of a stored block that are not LZ4 data blocks: header and trailer.
pub const OVERHEAD: usize = Header::SIZE + Trailer::SIZE;

#[cfg(test)]
mod tests;
