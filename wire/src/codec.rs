//! The steps of generated decoders and encoders: nom's parsers with this crate's errors.

use bytes::Bytes;
use nom::{Parser, bytes::complete::take};

use crate::DecodeError;

/// nom's own error, which only says that the input has ended; the functions of this module convert it.
type Ended<'a> = nom::error::Error<&'a [u8]>;

/// Position of a decoder in the schema, for its errors.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Name of the message.
    pub(crate) message: &'static str,
    /// Name of the field.
    pub(crate) field: &'static str,
}

/// Reads a number of `width` bytes with its nom parser. Returns the remaining input and the number.
pub(crate) fn number<'a, T>(
    input: &'a [u8],
    place: Place,
    width: usize,
    mut parser: impl Parser<&'a [u8], Output = T, Error = Ended<'a>>,
) -> Result<(&'a [u8], T), DecodeError> {
    parser
        .parse(input)
        .map_err(|_ended| truncated(place, width, input))
}

/// Reads `length` bytes, at most `limit`. Returns the remaining input and the bytes.
pub(crate) fn run(
    input: &[u8],
    place: Place,
    length: u64,
    limit: u64,
) -> Result<(&[u8], &[u8]), DecodeError> {
    // Checked first: a length over the limit is refused even if the bytes are not all there.
    in_range(place, length, 0, limit)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut parser = take::<_, _, Ended<'_>>(length);
    parser
        .parse(input)
        .map_err(|_ended| truncated(place, length, input))
}

fn truncated(place: Place, expected: usize, input: &[u8]) -> DecodeError {
    DecodeError::Truncated {
        message: place.message,
        field: place.field,
        expected,
        found: input.len(),
    }
}

/// Refuses a number outside of `min..=max`.
#[inline]
pub(crate) fn in_range(place: Place, found: u64, min: u64, max: u64) -> Result<(), DecodeError> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    Err(DecodeError::OutOfRange {
        message: place.message,
        field: place.field,
        min,
        max,
        found,
    })
}

/// Refuses a number that differs from the field's constant.
pub(crate) fn constant(place: Place, found: u64, expected: u64) -> Result<(), DecodeError> {
    if found == expected {
        return Ok(());
    }
    Err(DecodeError::WrongConstant {
        message: place.message,
        field: place.field,
        expected,
        found,
    })
}

/// The error for a number that is not in an enumeration.
#[cold]
pub(crate) fn unknown(place: Place, expected: &'static str, found: u64) -> DecodeError {
    DecodeError::UnknownValue {
        message: place.message,
        field: place.field,
        expected,
        found,
    }
}

/// Refuses bytes after the last field.
pub(crate) fn end(input: &[u8], message: &'static str) -> Result<(), DecodeError> {
    if input.is_empty() {
        return Ok(());
    }
    Err(DecodeError::TrailingBytes {
        message,
        found: input.len(),
    })
}

/// Refuses a message of another size than its fixed one.
#[inline]
pub(crate) fn exact_size(
    bytes: &[u8],
    message: &'static str,
    expected: usize,
) -> Result<(), DecodeError> {
    if bytes.len() == expected {
        return Ok(());
    }
    Err(DecodeError::WrongSize {
        message,
        expected,
        found: bytes.len(),
    })
}

/// Text of a peer. Invalid UTF-8 becomes U+FFFD: a malformed error text must not end the session that it explains.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A part of a frame, sharing the frame's memory.
pub(crate) fn share(frame: &Bytes, part: &[u8]) -> Bytes {
    frame.slice_ref(part)
}

/// The longest prefix of `text` that has at most `limit` bytes and ends at a character boundary.
pub(crate) fn cut(text: &str, limit: usize) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(limit)]
}
