//! Errors of decoding untrusted bytes.

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
        /// Field with the number, or with this length.
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
