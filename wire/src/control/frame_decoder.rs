//! Frames out of a stream of bytes.

use bytes::BytesMut;

use super::Message;
use crate::DecodeError;

/// Collects what a channel delivers, in pieces of any size, and returns the messages in it.
///
/// Call [`next`](Self::next) until it returns `None` after each [`push`](Self::push): then less than
/// [`Message::MAX_FRAME_SIZE`] bytes stay here, whatever a peer sends, since a frame whose length is out of bounds is
/// refused as soon as the length is there.
///
/// An error is final, as nobody knows where the next frame begins: the same error comes from every later call, and
/// what is pushed is dropped.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: BytesMut,
    failure: Option<DecodeError>,
}

impl FrameDecoder {
    /// A decoder at the beginning of a frame.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failure.is_none() {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next complete message, or `None` while its last bytes have not arrived.
    ///
    /// # Errors
    ///
    /// The frame is not one of the protocol. Nothing more can be read from the channel.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator is over when it returns None; this one goes on after the next push"
    )]
    pub fn next(&mut self) -> Result<Option<Message>, DecodeError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let result = self.decode_next();
        if let Err(failure) = &result {
            self.failure = Some(failure.clone());
            self.buffer = BytesMut::new();
        }
        result
    }

    /// Bytes of a frame that is not complete. Not zero when a channel closes: it was cut off.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    fn decode_next(&mut self) -> Result<Option<Message>, DecodeError> {
        match Message::frame_size(&self.buffer)? {
            Some(size) if size <= self.buffer.len() => {
                let frame = self.buffer.split_to(size).freeze();
                Message::decode_frame(&frame).map(Some)
            }
            _ => Ok(None),
        }
    }
}
