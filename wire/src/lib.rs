//! The bytes of the DOCA storage protocol, generated from the schema in `proto/`.
//!
//! * [`control`]: messages over TCP and Comch, and the decoder of their frames
//! * [`io_message`]: the 64 bytes of a read, a write, or a result; [`io_message_3_1`] and [`io_message_3_0`]: those of earlier releases
//! * [`release`]: the releases of the protocol, and their I/O messages behind one interface
//! * [`sbc`]: the header of `.sbc` content files
//! * [`stored_block`]: what the gga_offload service stores for a block
//! * [`backing`]: the header of the files that targets keep their blocks in
//! * [`layout`]: the table of offsets that all of them are made from
//! * [`recording`]: prost's types of the same messages, for files
//!
//! This crate does no I/O and knows nothing of DOCA. Decoding never panics, never reads past its input, and never
//! allocates more than the input justifies. serde's form of the types is for JSON that people and tests read.
//!
//! ```
//! use wire::control::{FrameDecoder, Message, Payload, StorageDetails};
//!
//! let request = Message { message_id: 1, correlation_id: 7, payload: Payload::QueryStorageRequest };
//! let details = StorageDetails { total_size: 1 << 30, block_size: 4096 };
//! let frame = request.response(Payload::QueryStorageResponse(details)).encode_to_vec();
//!
//! let mut decoder = FrameDecoder::new();
//! decoder.push(&frame[..10]);
//! assert_eq!(decoder.next()?, None);
//! decoder.push(&frame[10..]);
//! let response = decoder.next()?.expect("the frame is complete");
//! assert_eq!(response.correlation_id, 7);
//! # Ok::<(), wire::DecodeError>(())
//! ```
#![forbid(unsafe_code)]

pub mod backing;
mod codec;
pub mod control;
mod error;
mod hex;
pub mod io_message;
pub mod layout;
#[cfg(test)]
mod odd;
pub mod recording;
pub mod release;

pub use error::DecodeError;

pub mod io_message_3_0 {
    //! I/O messages of DOCA 3.0: a correlation id, and addresses instead of offsets. [`crate::release::Release3_0`] reads and writes them for roles.

    include!(concat!(env!("OUT_DIR"), "/io_message_3_0.rs"));
}

pub mod io_message_3_1 {
    //! I/O messages of DOCA 3.1: a correlation id where those of 3.2 have nothing. [`crate::release::Release3_1`] reads and writes them for roles.

    include!(concat!(env!("OUT_DIR"), "/io_message_3_1.rs"));
}

pub mod stored_block {
    //! What the gga_offload service stores for a block: [`Header`], LZ4 data blocks with a [`DataBlock`] each, zeros, and
    //! the [`Trailer`] at the end.

    include!(concat!(env!("OUT_DIR"), "/stored_block.rs"));
}

pub mod sbc {
    //! Storage binary content: `.sbc` files, which are a [`Header`] and the blocks that a target begins with.

    include!(concat!(env!("OUT_DIR"), "/sbc.rs"));

    /// What every file begins with.
    pub const MAGIC: u64 = Header::MAGIC;

    /// Bytes of the header, after which the content begins.
    pub const HEADER_SIZE: usize = Header::SIZE;

    /// Largest content that is accepted, in bytes: 2 GiB.
    pub const MAX_CONTENT: u64 = Header::MAX_CONTENT_SIZE;
}
