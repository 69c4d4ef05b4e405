//! Where every field lies, as data: what the codecs are generated from, for programs and people to check.

/// A message on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Module of this crate that reads and writes it.
    pub module: &'static str,
    /// Name, which errors use too. That of a control frame is the name of its type.
    pub name: &'static str,
    /// What it says.
    pub meaning: &'static str,
    /// Number of its type, if it is a control frame.
    pub message_type: Option<u32>,
    /// Bytes it has, without the content of a text or a blob in it.
    pub size: u32,
    /// Bytes it has with the longest content that is accepted.
    pub max_size: u32,
    /// Whether it ends what it is part of: its offsets count from `size` bytes before that end.
    pub at_end: bool,
    /// Its fields and the bytes that belong to none, in the order of their offsets, without gaps.
    pub fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Bytes before it, counted from the beginning of the message; in a control frame, of the frame.
    pub offset: u32,
    /// Bytes of its number; of a text or a blob, bytes of the length that precedes it.
    pub width: u32,
    /// Byte order of its number or its length.
    pub byte_order: ByteOrder,
    /// What it holds.
    pub kind: Kind,
    /// What it means.
    pub meaning: &'static str,
}

/// Which byte of a number comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// The most significant.
    Big,
    /// The least significant.
    Little,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned number.
    Number,
    /// Always this number.
    Constant(u64),
    /// One of these numbers, each with its name.
    Enumeration(&'static [(u32, &'static str)]),
    /// The number of bytes that follow this field.
    Length,
    /// UTF-8 text after its length.
    Text {
        /// Most bytes that are accepted, without the length.
        max: u32,
    },
    /// Bytes after their length.
    Blob {
        /// Most bytes that are accepted, without the length.
        max: u32,
    },
    /// No field: ignored when read, zeros when written.
    Reserved,
}

include!(concat!(env!("OUT_DIR"), "/layout_table.rs"));
