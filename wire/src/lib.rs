//! The bytes of the DOCA storage protocol, generated from the schema in `proto/`.
//!
//! * [`control`]: messages over TCP and Comch, and the decoder of their frames
//! * [`io_message`]: the 64 bytes of a read, a write, or a result
//! * [`sbc`]: the header of `.sbc` content files
//!
//! This crate does no I/O and knows nothing of DOCA. Decoding never panics, never reads past its input, and never
//! allocates more than the input justifies.
#![forbid(unsafe_code)]

mod codec;
pub mod control;
mod error;
pub mod io_message;
pub mod sbc;

pub use error::DecodeError;
