//! Vectors as files.

use serde::{Deserialize, Serialize};

/// Bytes of a message, explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Vector {
    /// Name of the vector.
    pub name: String,
    /// Name of the message in the table of offsets, or `stored_block` for a whole one.
    pub message: String,
    /// What the message says.
    pub meaning: String,
    /// Its fields, in the order of their offsets and without gaps.
    pub fields: Vec<Field>,
}

/// A part of a vector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// Bytes before it.
    pub offset: usize,
    /// Its bytes.
    #[serde(serialize_with = "as_hex")]
    pub bytes: Vec<u8>,
    /// What they say: a number, the name of an enumeration's value, a text, bytes in hexadecimal; nothing for bytes without
    /// meaning.
    pub value: String,
    /// What it is for.
    pub meaning: String,
}

/// Why a file is no vector.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is no TOML, or has other keys.
    #[error(transparent)]
    Toml(#[from] Box<toml::de::Error>),
    /// Bytes are not what is said of them.
    #[error("field {field}: {what}")]
    Field {
        /// Name of the field.
        field: String,
        /// What is wrong.
        what: String,
    },
}

impl Vector {
    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let parts = self.fields.iter().map(|field| &field.bytes[..]);
        parts.collect::<Vec<_>>().concat()
    }

    /// The first field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// The vectors that come with this crate.
///
/// # Errors
///
/// One of them is no vector; its name, and why.
pub fn embedded() -> Result<Vec<Vector>, (&'static str, FileError)> {
    let files = include!(concat!(env!("OUT_DIR"), "/vectors.rs"));
    files
        .into_iter()
        .map(|(name, text)| parse(text).map_err(|error| (name, error)))
        .collect()
}

/// Reads the text of a vector file.
///
/// # Errors
///
/// It is no vector: other keys, bytes that are no bytes, or fields with gaps.
pub fn parse(text: &str) -> Result<Vector, FileError> {
    let file: VectorFile = toml::from_str(text).map_err(Box::new)?;
    let mut end = 0;
    let fields = file.fields.into_iter().map(|field| {
        let wrong = |what: String| FileError::Field {
            field: field.name.clone(),
            what,
        };
        if field.offset != end {
            let came = field.offset;
            return Err(wrong(format!("expected offset {end}, found {came}")));
        }
        let unit = from_hex(&field.bytes).ok_or_else(|| {
            wrong(format!(
                "expected bytes in hexadecimal, e.g. \"00 1f\", found {:?}",
                field.bytes
            ))
        })?;
        let bytes = unit.repeat(field.repeat);
        if bytes.len() != field.width {
            let (came, width) = (bytes.len(), field.width);
            return Err(wrong(format!("expected {width} bytes, found {came}")));
        }
        end += bytes.len();
        Ok(Field {
            name: field.name,
            offset: field.offset,
            bytes,
            value: field.value,
            meaning: field.meaning,
        })
    });
    Ok(Vector {
        fields: fields.collect::<Result<_, _>>()?,
        name: file.name,
        message: file.message,
        meaning: file.meaning,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorFile {
    name: String,
    message: String,
    meaning: String,
    fields: Vec<FieldOfFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldOfFile {
    name: String,
    offset: usize,
    width: usize,
    bytes: String,
    #[serde(default = "once")]
    repeat: usize,
    value: String,
    meaning: String,
}

fn once() -> usize {
    1
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    text.split_whitespace()
        .map(|byte| {
            let digits = byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
            digits.then(|| u8::from_str_radix(byte, 16).ok()).flatten()
        })
        .collect()
}

/// Bytes as vector files have them.
#[must_use]
pub(super) fn to_hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}

fn as_hex<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_hex(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        name = "a"
        message = "sbc_header"
        meaning = "b"
        [[fields]]
        name = "x"
        offset = 0
        width = 2
        bytes = "01 fF"
        value = "511"
        meaning = "c"
        [[fields]]
        name = "y"
        offset = 2
        width = 4
        bytes = "0a 0b"
        repeat = 2
        value = ""
        meaning = "d"
    "#;

    #[test]
    fn fields_are_read_and_joined() {
        let vector = parse(FILE).expect("a vector");
        assert_eq!(vector.bytes(), [1, 255, 10, 11, 10, 11]);
        assert_eq!(vector.field("y").map(|field| field.offset), Some(2));
    }

    #[test]
    fn gaps_wrong_widths_and_what_is_no_hexadecimal_are_named() {
        for (from, to, part) in [
            (
                "offset = 2",
                "offset = 3",
                "field y: expected offset 2, found 3",
            ),
            ("width = 4", "width = 5", "expected 5 bytes, found 4"),
            ("01 fF", "01 fG", "found \"01 fG\""),
            ("01 fF", "1 ff", "in hexadecimal"),
            ("meaning = \"d\"", "mean = \"d\"", "mean"),
        ] {
            let error = parse(&FILE.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(part), "{to}: {error}");
        }
    }
}
