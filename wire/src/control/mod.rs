//! Control messages: what the roles tell each other over TCP and over Comch.
//!
//! A frame is a header of 16 bytes and a payload; its layout is in [`crate::layout::TABLE`]. Frames are written with
//! [`Message::encode`] and read with [`FrameDecoder`], which takes them in pieces or several at once.
//!
//! Decoding promises: no panic, no read past the input, no allocation that the input does not justify (blobs share
//! the frame's memory). Unknown message types and enum values, lengths over the stated limits, and bytes after the
//! last field are refused.

mod frame_decoder;
mod generated;

pub use frame_decoder::FrameDecoder;
pub use generated::*;

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

    /// The bytes of this message's frame. See [`Message::encode`].
    #[must_use]
    pub fn encode_to_vec(&self) -> Vec<u8> {
        let mut frame = bytes::BytesMut::new();
        self.encode(&mut frame);
        frame.into()
    }
}
