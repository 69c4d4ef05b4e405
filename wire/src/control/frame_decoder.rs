//! Frames out of a stream of bytes.

use bytes::{Buf, BytesMut};

use super::{Message, frame};
use crate::DecodeError;

/// Collects what a channel delivers, in pieces of any size, and returns the messages in it.
///
/// A frame whose announced length is out of bounds is refused as soon as its length is there, so a peer cannot make
/// this grow: after each round of [`next`](Self::next) until `None`, less than [`frame::MAX_SIZE`] bytes stay here.
///
/// An error is final: the beginning of the next frame is unknown after it. The same error comes again from every later
/// call, and what is pushed after it is dropped.
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
    /// The frame is not one of the protocol; see [`DecodeError`]. The channel is of no further use.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator is over when it returns None; this one goes on after the next push"
    )]
    pub fn next(&mut self) -> Result<Option<Message>, DecodeError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.decode_next().inspect_err(|failure| {
            self.failure = Some(failure.clone());
            self.buffer = BytesMut::new();
        })
    }

    /// Bytes of an unfinished frame. Not zero when a channel closes: the peer was cut off.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    fn decode_next(&mut self) -> Result<Option<Message>, DecodeError> {
        let Some(size) = frame::size(&self.buffer)? else {
            return Ok(None);
        };
        if self.buffer.len() < size {
            return Ok(None);
        }
        // Own allocation per frame only if a blob keeps a part of it.
        let frame = self.buffer.split_to(size).freeze();
        if !self.buffer.has_remaining() {
            // The blobs of a message may keep the old buffer alive; start a small one instead of growing it.
            self.buffer = BytesMut::new();
        }
        frame::decode(&frame).map(Some)
    }
}
