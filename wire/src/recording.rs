//! prost's types of the same messages, for recordings of sessions.
//!
//! Their protobuf encoding is used in files of this project only, never on the wire between roles. `From` and `TryFrom`
//! convert between them and [`crate::control::Message`] and [`crate::io_message::Repr`].

include!(concat!(env!("OUT_DIR"), "/recording.rs"));

/// Control transcripts: recorded control messages with their times.
pub mod transcript {
    include!(concat!(
        env!("OUT_DIR"),
        "/prost/doca_storage.transcript.rs"
    ));
}
