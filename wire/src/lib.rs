//! The bytes of the DOCA storage protocol, generated from the schema in `proto/`.
//!
//! * [`control`]: messages over TCP and Comch, and the decoder of their frames
//! * [`io_message`]: the 64 bytes of a read, a write, or a result
//! * [`sbc`]: the header of `.sbc` content files
//! * [`stored_block`]: what the gga_offload service stores for a block
//! * [`layout`]: the table of offsets that all of them are made from
//! * [`recording`]: prost's types of the same messages, for files
//!
//! This crate does no I/O and knows nothing of DOCA. Decoding never panics, never reads past its input, and never
//! allocates more than the input justifies. serde's form of the types is for JSON that people and tests read.
#![forbid(unsafe_code)]

mod codec;
pub mod control;
mod error;
mod hex;
pub mod io_message;
pub mod layout;
pub mod recording;
pub mod sbc;
pub mod stored_block;

pub use error::DecodeError;
