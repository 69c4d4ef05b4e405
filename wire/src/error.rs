//! What is wrong with bytes that came from outside.

use thiserror::Error;

/// Why bytes were refused: what the layout expects, and what came.
///
/// `message` is the name that [`TABLE`](crate::layout::TABLE) has for it, or `frame` while the type of a control
/// message is not known yet; `field` is the name in the schema. Widths, sizes and lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends inside a field.
    #[error("{message}.{field}: expected {expected} bytes, {came} came")]
    Truncated {
        /// Message that was being read.
        message: &'static str,
        /// Field in which the input ended.
        field: &'static str,
        /// Bytes that the field takes.
        expected: usize,
        /// Bytes that were left.
        came: usize,
    },
    /// A message of fixed size has another size.
    #[error("{message}: expected exactly {expected} bytes, {came} came")]
    WrongSize {
        /// Message that was being read.
        message: &'static str,
        /// Size of the message in bytes.
        expected: usize,
        /// Bytes that came.
        came: usize,
    },
    /// An enumeration holds a value that the protocol does not define.
    #[error("{message}.{field}: expected {expected}, {came} came")]
    UnknownValue {
        /// Message that was being read.
        message: &'static str,
        /// Field of the enumeration.
        field: &'static str,
        /// Values that the protocol defines.
        expected: &'static str,
        /// Value that came.
        came: u64,
    },
    /// A length or a number is outside of its stated limits.
    #[error("{message}.{field}: expected {min} to {max}, {came} came")]
    OutOfRange {
        /// Message that was being read.
        message: &'static str,
        /// Field with the number, or whose length it is.
        field: &'static str,
        /// Smallest value that is accepted.
        min: u64,
        /// Largest value that is accepted.
        max: u64,
        /// Value that came.
        came: u64,
    },
    /// A field that always holds one value holds another.
    #[error("{message}.{field}: expected {expected:#x}, {came:#x} came")]
    WrongConstant {
        /// Message that was being read.
        message: &'static str,
        /// Field of the constant.
        field: &'static str,
        /// The one value that is accepted.
        expected: u64,
        /// Value that came.
        came: u64,
    },
    /// Bytes follow the last field of a message.
    #[error("{message}: expected no bytes after the last field, {came} came")]
    TrailingBytes {
        /// Message that was being read.
        message: &'static str,
        /// Bytes after its last field.
        came: usize,
    },
    /// A recorded message lacks a part without which it is none.
    #[error("{message}.{field}: expected one, the recording has none")]
    Missing {
        /// Message that was being read.
        message: &'static str,
        /// Field that is missing.
        field: &'static str,
    },
}
