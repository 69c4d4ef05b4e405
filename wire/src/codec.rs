//! Errors of decoding untrusted bytes, and the steps of generated decoders and encoders: nom's parsers with these
//! errors, and blobs in JSON as two hexadecimal digits per byte.

use std::fmt;

use bytes::Bytes;
use nom::Parser;
use nom::bytes::complete::take;
use serde::{Deserializer, Serializer, de};
use thiserror::Error;

/// Reason why bytes were refused: the expected and the actual value.
///
/// `message` is the name in [`TABLE`](crate::layout::TABLE), or `frame` while the type of a control message is not
/// known; `field` is the name in the schema. Widths, sizes and lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends inside a field.
    #[error("{message}.{field}: expected {expected} bytes, got {found}")]
    Truncated {
        /// Message that was being read.
        message: &'static str,
        /// Field where the input ended.
        field: &'static str,
        /// Length of the field.
        expected: usize,
        /// Length of the remaining input.
        found: usize,
    },
    /// A message of fixed size has another length.
    #[error("{message}: expected exactly {expected} bytes, got {found}")]
    WrongSize {
        /// Message that was being read.
        message: &'static str,
        /// Size of the message.
        expected: usize,
        /// Length of the input.
        found: usize,
    },
    /// An enumeration holds a value that the protocol does not define.
    #[error("{message}.{field}: expected {expected}, got {found}")]
    UnknownValue {
        /// Message that was being read.
        message: &'static str,
        /// Field of the enumeration.
        field: &'static str,
        /// Values that the protocol defines.
        expected: &'static str,
        /// Actual value.
        found: u64,
    },
    /// A length or number is outside of its limits.
    #[error("{message}.{field}: expected {min} to {max}, got {found}")]
    OutOfRange {
        /// Message that was being read.
        message: &'static str,
        /// Field that contains the number, or whose length this is.
        field: &'static str,
        /// Smallest accepted value.
        min: u64,
        /// Largest accepted value.
        max: u64,
        /// Actual value.
        found: u64,
    },
    /// A constant field has another value.
    #[error("{message}.{field}: expected {expected:#x}, got {found:#x}")]
    WrongConstant {
        /// Message that was being read.
        message: &'static str,
        /// Field of the constant.
        field: &'static str,
        /// The constant.
        expected: u64,
        /// Actual value.
        found: u64,
    },
    /// Bytes follow the last field of a message.
    #[error("{message}: expected no bytes after the last field, got {found}")]
    TrailingBytes {
        /// Message that was being read.
        message: &'static str,
        /// Number of bytes after its last field.
        found: usize,
    },
    /// A recorded message lacks a required field.
    #[error("{message}.{field}: expected one, the recording has none")]
    Missing {
        /// Message that was being read.
        message: &'static str,
        /// Field that is missing.
        field: &'static str,
    },
}

/// nom's own error, which only reports that the input has ended; the functions of this module convert it.
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
    // Checked first: a length over the limit is refused even if the bytes are incomplete.
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

/// Fails for a message whose size differs from its fixed size.
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

/// Text of a peer. Invalid UTF-8 is replaced by U+FFFD, because a malformed error text must not end the session whose
/// error it explains.
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

/// For serde's `with`.
pub(crate) fn serialize_hex<S: Serializer>(
    bytes: &Bytes,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    // `Bytes` implements this format as lower hexadecimal.
    serializer.collect_str(&format_args!("{bytes:x}"))
}

/// For serde's `with`.
pub(crate) fn deserialize_hex<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Bytes, D::Error> {
    deserializer.deserialize_str(HexVisitor)
}

struct HexVisitor;

impl de::Visitor<'_> for HexVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an even number of hexadecimal digits")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let refused = || E::invalid_value(de::Unexpected::Str(text), &self);
        if !rest.is_empty() {
            return Err(refused());
        }
        pairs
            .iter()
            .map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?))
            .collect::<Option<Bytes>>()
            .ok_or_else(refused)
    }
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        b'A'..=b'F' => Some(character - b'A' + 10),
        _ => None,
    }
}
