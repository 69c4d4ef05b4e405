//! The wire formats of the DOCA storage protocol, generated from the schema in `proto/`.
//!
//! * [`control`]: messages over TCP and Comch, and their frame decoder
//! * [`io_message`]: the 64-byte messages for reads, writes and results; [`io_message_3_1`] and [`io_message_3_0`]:
//!   those of earlier releases
//! * [`release`]: the releases of the protocol, and their I/O messages behind one interface
//! * [`sbc`]: the header of `.sbc` content files
//! * [`stored_block`]: the format in which the gga_offload service stores a block
//! * [`backing`]: the header and superblock of the backing files of targets
//! * [`layout`]: the table of offsets of all formats
//! * [`recording`]: prost's types of the same messages, for recordings
//!
//! This crate does no I/O and knows nothing of DOCA. Decoding never panics, never reads past its input, and never
//! allocates more than the input justifies. serde is used for JSON output only.
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
    //! I/O messages of DOCA 3.0, with a correlation id, and addresses instead of offsets. The roles use them through
    //! [`crate::release::Release3_0`].

    include!(concat!(env!("OUT_DIR"), "/io_message_3_0.rs"));
}

pub mod io_message_3_1 {
    //! I/O messages of DOCA 3.1, with a correlation id in bytes that 3.2 reserves. The roles use them through
    //! [`crate::release::Release3_1`].

    include!(concat!(env!("OUT_DIR"), "/io_message_3_1.rs"));
}

pub mod stored_block {
    //! The format in which the gga_offload service stores a block: a [`Header`], LZ4 data blocks with a [`DataBlock`]
    //! each, zeros, and the [`Trailer`].

    include!(concat!(env!("OUT_DIR"), "/stored_block.rs"));
}

pub mod sbc {
    //! Storage binary content: `.sbc` files, a [`Header`] followed by the initial blocks of a target.

    include!(concat!(env!("OUT_DIR"), "/sbc.rs"));

    /// First word of every file.
    pub const MAGIC: u64 = Header::MAGIC;

    /// Length of the header in bytes; the content follows.
    pub const HEADER_SIZE: usize = Header::SIZE;

    /// Largest accepted content in bytes: 2 GiB.
    pub const MAX_CONTENT: u64 = Header::MAX_CONTENT_SIZE;
}
