//! Blobs in JSON: two hexadecimal digits per byte.

use std::fmt;

use bytes::Bytes;
use serde::{Deserializer, Serializer, de};

/// For serde's `with`.
pub(crate) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    // `Bytes` implements this format as lower hexadecimal.
    serializer.collect_str(&format_args!("{bytes:x}"))
}

/// For serde's `with`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
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
