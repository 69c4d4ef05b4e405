//! prost's types of the same messages, in which captured sessions are stored.
//!
//! Their protobuf encoding is for files of this project alone: it is never on the wire between roles. `From` and
//! `TryFrom` lead from [`crate::control::Message`] and [`crate::io_message::Repr`] to them and back.

include!(concat!(env!("OUT_DIR"), "/recording.rs"));

/// Control transcripts: what was said on control connections, and when.
pub mod transcript {
    include!(concat!(
        env!("OUT_DIR"),
        "/prost/doca_storage.transcript.rs"
    ));
}
