//! What the gga_offload service stores for a block: [`Header`], LZ4 data blocks with a [`DataBlock`] each, zeros, and
//! the [`Trailer`] at the end.

include!(concat!(env!("OUT_DIR"), "/stored_block.rs"));
