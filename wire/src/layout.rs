//! The position of every field, as data: generated from the same schema as the codecs, for programs and people to
//! check.

/// A message on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Module of this crate with its codec.
    pub module: &'static str,
    /// Name, also used in errors; for a control frame, the name of its type.
    pub name: &'static str,
    /// Meaning of the message.
    pub meaning: &'static str,
    /// Number of the type of a control frame.
    pub message_type: Option<u32>,
    /// Size in bytes, without the content of a text or blob.
    pub size: u32,
    /// Size in bytes with the longest accepted content.
    pub max_size: u32,
    /// `true` if the message is at the end of a larger structure: its offsets are relative to `size` bytes before that
    /// end.
    pub at_end: bool,
    /// Fields and reserved bytes in the order of their offsets, without gaps.
    pub fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name in the schema (`proto/`).
    pub name: &'static str,
    /// Offset in bytes from the start of the message; for a control frame, of the frame.
    pub offset: u32,
    /// Width in bytes of its number, or of the length prefix of a text or blob.
    pub width: u32,
    /// Byte order of its number or its length.
    pub byte_order: ByteOrder,
    /// Kind of value.
    pub kind: Kind,
    /// Meaning of the field.
    pub meaning: &'static str,
}

/// Byte order of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// Most significant byte first.
    Big,
    /// Least significant byte first.
    Little,
}

/// Kind of value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned number.
    Number,
    /// Always this number.
    Constant(u64),
    /// One of these numbers, with their names.
    Enumeration(&'static [(u32, &'static str)]),
    /// The number of bytes after this field.
    Length,
    /// UTF-8 text preceded by its length.
    Text {
        /// Maximum length in bytes.
        max: u32,
    },
    /// A blob preceded by its length.
    Blob {
        /// Maximum length in bytes.
        max: u32,
    },
    /// Reserved bytes: ignored when read, zeros when written.
    Reserved,
}

include!(concat!(env!("OUT_DIR"), "/layout_table.rs"));
