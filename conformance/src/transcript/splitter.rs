//! Frames in a stream of bytes, with everything that is no frame.

use bytes::{Bytes, BytesMut};
use wire::control::Message;

use super::Frame;

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A frame.
    Frame(Frame),
    /// Bytes that are none.
    Raw(Bytes),
}

impl Piece {
    /// Its bytes, as they came.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Frame(frame) => frame.to_bytes(),
            Self::Raw(bytes) => bytes.clone(),
        }
    }
}

/// Splits the bytes of one direction. Nothing is lost: the pieces' bytes, one after the other, are what was pushed.
///
/// Unlike [`wire::control::FrameDecoder`] it goes on after a frame that it does not understand, as long as the length of the frame
/// is one; after that everything is raw, for nobody knows where a frame begins.
#[derive(Debug, Default)]
pub struct Splitter {
    buffer: BytesMut,
    lost: bool,
}

impl Splitter {
    /// One at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that came. Call [`next`](Self::next) until it has no more: less than one frame stays here then.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next piece that is complete.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator is over when it returns None; this one goes on after the next push"
    )]
    pub fn next(&mut self) -> Option<Piece> {
        if !self.lost {
            match Message::frame_size(&self.buffer) {
                Ok(Some(size)) if size <= self.buffer.len() => {
                    return Some(piece(self.buffer.split_to(size).freeze()));
                }
                Ok(_) => return None,
                Err(_) => self.lost = true,
            }
        }
        self.rest().map(Piece::Raw)
    }

    /// The bytes of a frame that is not complete: what is left when the stream has ended.
    pub fn rest(&mut self) -> Option<Bytes> {
        (!self.buffer.is_empty()).then(|| self.buffer.split().freeze())
    }
}

fn piece(bytes: Bytes) -> Piece {
    match Message::decode_frame(&bytes) {
        Ok(message) => {
            let bytes = (message.encode_to_vec() != bytes).then_some(bytes);
            Piece::Frame(Frame { message, bytes })
        }
        Err(_) => Piece::Raw(bytes),
    }
}

#[cfg(test)]
mod tests {
    use wire::control::{ErrorResponse, Payload};

    use super::*;

    fn query(id: u32) -> Message {
        Message {
            message_id: id,
            correlation_id: 7,
            payload: Payload::QueryStorageRequest,
        }
    }

    fn pieces(stream: &[u8], step: usize) -> Vec<Piece> {
        let mut splitter = Splitter::new();
        let mut pieces = Vec::new();
        for part in stream.chunks(step) {
            splitter.push(part);
            pieces.extend(std::iter::from_fn(|| splitter.next()));
        }
        pieces.extend(splitter.rest().map(Piece::Raw));
        pieces
    }

    #[test]
    fn frames_are_found_in_pieces_of_any_size_and_the_rest_is_raw() {
        let mut stream = query(1).encode_to_vec();
        // A type that nobody knows, in a frame of a good length.
        let mut unknown = query(2).encode_to_vec();
        unknown[7] = 99;
        stream.extend(&unknown);
        stream.extend(query(3).encode_to_vec());
        stream.extend(&query(4).encode_to_vec()[..9]);
        let expected = [
            Piece::Frame(Frame::of(query(1))),
            Piece::Raw(unknown.into()),
            Piece::Frame(Frame::of(query(3))),
            Piece::Raw(query(4).encode_to_vec()[..9].to_vec().into()),
        ];
        for step in 1..=stream.len() {
            assert_eq!(pieces(&stream, step), expected, "{step} bytes at a time");
        }
    }

    #[test]
    fn after_a_length_that_is_none_all_is_raw() {
        let mut stream = query(1).encode_to_vec();
        stream.extend(b"\0\0\0\0");
        stream.extend(query(2).encode_to_vec());
        let found = pieces(&stream, 5);
        assert_eq!(found[0], Piece::Frame(Frame::of(query(1))));
        let raw = |piece: &Piece| matches!(piece, Piece::Raw(_));
        assert!(found.len() > 1 && found[1..].iter().all(raw), "{found:?}");
        let joined: Vec<u8> = found.iter().flat_map(Piece::to_bytes).collect();
        assert_eq!(joined, stream);
    }

    #[test]
    fn a_frame_that_would_be_written_otherwise_keeps_its_bytes() {
        let response = query(1).response(Payload::ErrorResponse(ErrorResponse {
            error_code: 6,
            message: "?".to_owned(),
        }));
        let mut odd = response.encode_to_vec();
        // Not UTF-8: decoded as U+FFFD, which has three bytes.
        *odd.last_mut().expect("a text") = 0xff;
        let [Piece::Frame(frame)] = &pieces(&odd, 4)[..] else {
            panic!("a frame");
        };
        assert_eq!(frame.bytes.as_deref(), Some(&odd[..]));
        assert_eq!(frame.to_bytes(), odd);
    }
}
