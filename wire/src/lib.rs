//! The wire formats of the DOCA storage protocol, generated from the schema in `proto/`.
//!
//! * [`control`]: messages over TCP and Comch, and their frame decoder
//! * [`io_message`]: the 64-byte messages for reads, writes and results; [`io_message_3_1`] and [`io_message_3_0`]:
//!   those of earlier releases
//! * [`release`]: the releases of the protocol, and their I/O messages behind one interface
//! * [`sbc`]: the header of `.sbc` content files
//! * [`stored_block`]: the forms in which the gga_offload service stores a block
//! * [`backing`]: the header, superblock and versions of blocks in the backing files of targets
//! * [`layout`]: the table of offsets of all formats
//! * [`recording`]: prost's types of the same messages, for recordings
//!
//! This crate does no I/O and does not depend on DOCA. Decoding never panics, never reads past its input, and allocates
//! memory only in proportion to its input. serde is used only for JSON output.
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
#![warn(missing_docs)]

mod codec;
pub mod control;
pub mod io_message;
pub mod layout;
#[cfg(test)]
mod odd;
pub mod release;

pub use codec::DecodeError;

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
    //! The forms in which the gga_offload service stores a block: the reference's, a [`Header`], LZ4 data blocks with a
    //! [`DataBlock`] each, zeros, and the [`Trailer`]; and stored chunks, each with a [`ChunkRecord`].

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

pub mod backing {
    //! Backing files of targets: a [`Header`], two slots for a [`Superblock`] at [`RECORD_OFFSETS`], two for a [`VersionTail`] at [`TAIL_OFFSETS`],
    //! a [`Loss`] at [`LOSS_OFFSET`], two for a [`Reservation`] at [`RESERVATION_OFFSETS`], the blocks from [`CONTENT_OFFSET`] on, and slots for versions of blocks, each described by a [`VersionSlot`].

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

    /// Length of a superblock in bytes.
    pub const RECORD_SIZE: usize = Superblock::SIZE;

    /// Offsets of the two places of the version tail, indexed by its sequence modulo 2.
    pub const TAIL_OFFSETS: [u64; 2] = [RECORD_OFFSETS[1] + 4096, RECORD_OFFSETS[1] + 8192];

    /// Offset of the [`Loss`].
    pub const LOSS_OFFSET: u64 = RECORD_OFFSETS[1] + 12288;

    /// Offsets of the two places of the [`Reservation`], indexed by its sequence modulo 2.
    pub const RESERVATION_OFFSETS: [u64; 2] = [LOSS_OFFSET + 4096, LOSS_OFFSET + 8192];

    /// Bytes of a reservation, with its holder's name.
    pub const RESERVATION_SIZE: usize = Reservation::SIZE + crate::control::MAX_HOLDER_NAME;
}

pub mod recording {
    //! prost's types of the same messages, for recordings of sessions.
    //!
    //! Their protobuf encoding is used only in files of this project, and never on the wire between roles. `From` and
    //! `TryFrom` convert between them and [`crate::control::Message`] and [`crate::io_message::Repr`].

    include!(concat!(env!("OUT_DIR"), "/recording.rs"));

    /// Control transcripts: recorded control messages with their times.
    pub mod transcript {
        include!(concat!(
            env!("OUT_DIR"),
            "/prost/doca_storage.transcript.rs"
        ));
    }
}
