//! What is wrong with a schema, and where.

use std::{fmt, path::PathBuf};

use thiserror::Error;

/// Why nothing was generated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A statement of the schema is missing, unknown, or contradicts another.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A file is not protobuf, or is missing.
    #[error("the schema does not compile: {0}")]
    Compile(String),
    /// The generated code does not parse; a fault of this library.
    #[error("the code generated for module {module} is not Rust: {reason}")]
    Unparsable {
        /// Module of the wire crate.
        module: String,
        /// What the parser found.
        reason: String,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// prost refused the schema, or could not write its files.
    #[error("prost cannot generate its types: {0}")]
    Prost(std::io::Error),
}

/// A refused schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// File, as it was named to the generator.
    pub file: String,
    /// Message or enumeration; `None` if the file itself is meant.
    pub message: Option<String>,
    /// Field or value; `None` if the whole message is meant.
    pub field: Option<String>,
    /// What is wrong with it.
    pub problem: Problem,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if let Some(message) = &self.message {
            write!(f, "{message}")?;
            if let Some(field) = &self.field {
                write!(f, ".{field}")?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.problem)
    }
}

impl std::error::Error for SchemaError {}

/// What is wrong with a message or a field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file uses an option that does not exist, or gives one a value that it cannot have.
    #[error("{0}")]
    BadOption(String),
    /// The options file defines an option that this generator does not know.
    #[error(
        "option `{0}` is unknown to the generator: correct its name, or teach it to wire-codegen"
    )]
    UnknownOption(String),
    /// An option that this kind of message or field cannot have.
    #[error("option `{option}` does not apply to {to}")]
    DoesNotApply {
        /// The option.
        option: &'static str,
        /// What it was given to.
        to: String,
    },
    /// An option without which the layout is incomplete.
    #[error("option `{option}` is missing: state {what}")]
    Missing {
        /// The option.
        option: &'static str,
        /// What it says.
        what: &'static str,
    },
    /// No comment, from which the documentation and the table of offsets are made.
    #[error("there is no comment above it: say what it means")]
    NoComment,
    /// A protobuf type without a form on the wire.
    #[error("{0} has no layout: use uint32, uint64, an enumeration, string or bytes")]
    UnsupportedType(String),
    /// A construct that layouts do not cover.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A number of bytes that the field's number cannot have.
    #[error("expected a width of {expected} bytes, {came} came")]
    Width {
        /// Bytes that it can have.
        expected: &'static str,
        /// Bytes that were stated.
        came: u64,
    },
    /// A number in an option that its field cannot hold.
    #[error("option `{option}`: expected at most {max}, {came} came")]
    TooLarge {
        /// The option.
        option: &'static str,
        /// Largest possible number.
        max: u64,
        /// Number that came.
        came: u64,
    },
    /// The smallest accepted value is over the largest.
    #[error("option `min` ({min}) is over `max` ({max})")]
    EmptyRange {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// A field that lies before the one declared above it.
    #[error(
        "lies at offset {offset}, before {previous}: declare fields in the order of their offsets"
    )]
    OutOfOrder {
        /// Its offset.
        offset: u32,
        /// The field declared above it.
        previous: String,
    },
    /// Two fields on one byte.
    #[error("overlaps {previous}: begins at offset {offset}, where {previous} ends at {end}")]
    Overlap {
        /// Its offset.
        offset: u32,
        /// The field before it.
        previous: String,
        /// First byte after that field.
        end: u32,
    },
    /// Bytes that no field and no reserved span covers.
    #[error(
        "leaves a gap: nothing covers bytes {from} to {to}; move a field or state them as `reserved`"
    )]
    Gap {
        /// First byte of the gap.
        from: u32,
        /// First byte after the gap.
        to: u32,
    },
    /// A field that ends after its message.
    #[error("ends at {end}, beyond the message's size of {size} bytes")]
    BeyondSize {
        /// First byte after the field.
        end: u64,
        /// Size of the message.
        size: u32,
    },
    /// A text or blob that another field follows.
    #[error("is of variable length, so nothing can follow it at a fixed offset; {next} does")]
    VariableNotLast {
        /// The field that follows.
        next: String,
    },
    /// A text or blob in a message of fixed size.
    #[error("is of variable length, in a message of fixed size")]
    VariableInFixedSize,
    /// Two payloads of one type.
    #[error("message type {number} is already that of {other}")]
    DuplicateType {
        /// The number.
        number: u32,
        /// The payload that has it.
        other: String,
    },
    /// A payload that cannot be told from the one that it is an alternative to.
    #[error("is an alternative to another payload, and has {0}")]
    WrongAlternative(&'static str),
    /// A payload that is no longer form of the one that it extends.
    #[error("extends another payload, and has {0}")]
    WrongExtension(&'static str),
    /// Two things of one name.
    #[error("the name `{name}` is already that of {other}")]
    DuplicateName {
        /// The name.
        name: String,
        /// What has it.
        other: String,
    },
    /// A payload that does not fit into the largest frame.
    #[error("makes a frame of up to {came} bytes, over the frame's `max_size` of {max}")]
    FrameTooLarge {
        /// Largest frame that is accepted.
        max: u32,
        /// Largest frame with this payload.
        came: u64,
    },
    /// A frame whose length does not come first.
    #[error(
        "expected the frame's length at offset 0, from which it counts what follows; it lies at {0}"
    )]
    LengthNotFirst(u32),
    /// A name that is no field, message or enumeration of the schema.
    #[error("expected {what}, `{came}` is none")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// The name.
        came: String,
    },
}
