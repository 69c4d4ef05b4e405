//! Control messages: what the roles tell each other, over TCP and over Comch alike.
//!
//! A frame is a header and a payload; [`crate::layout::TABLE`] has the layout of each. Frames are written with
//! [`Message::encode`] and read with [`FrameDecoder`], which takes them in pieces or several at once.
//!
//! Decoding promises: no panic, no read past the input, no allocation that the input does not justify (blobs share
//! the frame's memory). Unknown types and values, lengths over their limits, and bytes after the last field are
//! refused. A text that is not UTF-8 is not: the bytes at fault become U+FFFD, since the only text is the explanation
//! of an error, which must not be lost for an odd byte in it.

mod frame_decoder;

pub use frame_decoder::FrameDecoder;

include!(concat!(env!("OUT_DIR"), "/control.rs"));

/// The bit of [`FeatureQuery::features`] and [`AnnouncedStorage::features`] for flush and write_fua messages.
pub const FEATURE_FLUSH: u32 = 1;

impl Message {
    /// The answer to this request: its message id and correlation id with another payload.
    #[must_use]
    pub fn response(&self, payload: Payload) -> Message {
        Message {
            message_id: self.message_id,
            correlation_id: self.correlation_id,
            payload,
        }
    }

    /// The bytes of this message's frame; see [`encode`](Self::encode).
    #[must_use]
    pub fn encode_to_vec(&self) -> Vec<u8> {
        let mut frame = bytes::BytesMut::new();
        self.encode(&mut frame);
        frame.into()
    }
}
