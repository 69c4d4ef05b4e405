//! Errors in a schema, with their location.
//!
//! protox reports the byte offset of an error. For an option that cannot be resolved, the user needs the field with the
//! option, so the file is parsed again to find the declaration at that offset.

use std::fmt;
use std::path::{Path, PathBuf};

use miette::Diagnostic;
use prost_reflect::prost_types::FileDescriptorProto;
use thiserror::Error;

/// Reason why no code was generated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// An option of the schema is missing, unknown, or contradicts another.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A file is not protobuf, or is missing.
    #[error("the schema does not compile: {0}")]
    Compile(String),
    /// The generated code cannot be parsed: a bug in this library.
    #[error("the code generated for module {module} is not Rust: {reason}")]
    Unparsable {
        /// Module of the wire crate.
        module: String,
        /// The parser's error.
        reason: String,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// prost refused the schema, or could not write its files.
    #[error("prost cannot generate its types: {0}")]
    Prost(std::io::Error),
}

/// An error in the schema, with its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// File, as passed to the generator.
    pub file: String,
    /// Message or enumeration; `None` for the whole file.
    pub message: Option<String>,
    /// Field or value; `None` for the whole message.
    pub field: Option<String>,
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

/// A problem of a message or field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file uses an undefined option, or an invalid value of an option.
    #[error("{0}")]
    BadOption(String),
    /// The options file defines an option that this generator does not support.
    #[error(
        "option `{0}` is unknown to the generator: correct its name, or add it to wire-codegen"
    )]
    UnknownOption(String),
    /// An option that this kind of message or field cannot have.
    #[error("option `{option}` does not apply to {to}")]
    DoesNotApply {
        option: &'static str,
        /// The construct with the option.
        to: Construct,
    },
    /// A required option is missing.
    #[error("option `{option}` is missing: specify {what}")]
    Missing {
        option: &'static str,
        what: &'static str,
    },
    /// The declaration lacks the comment from which documentation and table are generated.
    #[error("there is no comment above it: document its meaning")]
    NoComment,
    /// A protobuf type without a wire format.
    #[error("{0} has no layout: use uint32, uint64, an enumeration, string or bytes")]
    UnsupportedType(FieldType),
    /// A construct that the layout options do not support.
    #[error("{0}")]
    Unsupported(Unsupported),
    /// A width that the number cannot have.
    #[error("expected a width of {} bytes, got {found}", choices(expected))]
    Width {
        /// Possible widths in bytes.
        expected: &'static [u32],
        /// Stated width in bytes.
        found: u64,
    },
    /// A number in an option that exceeds its field.
    #[error("option `{option}`: expected at most {max}, got {found}")]
    TooLarge {
        option: &'static str,
        max: u64,
        found: u64,
    },
    /// The minimum exceeds the maximum.
    #[error("option `min` ({min}) exceeds `max` ({max})")]
    EmptyRange { min: u64, max: u64 },
    /// A field whose offset is lower than that of the field declared above it.
    #[error(
        "lies at offset {offset}, before {previous}: declare fields in the order of their offsets"
    )]
    OutOfOrder {
        offset: u32,
        /// Name of the field declared above it.
        previous: String,
    },
    /// Two fields on one byte.
    #[error("overlaps {previous}: begins at offset {offset}, where {previous} ends at {end}")]
    Overlap {
        offset: u32,
        previous: String,
        /// First byte after that field.
        end: u32,
    },
    /// Bytes covered by no field and no reserved span.
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
        size: u32,
    },
    /// A text or blob followed by another field.
    #[error("is of variable length, so nothing can follow it at a fixed offset; {next} does")]
    VariableNotLast { next: String },
    /// A text or blob in a message of fixed size.
    #[error("is of variable length, in a message of fixed size")]
    VariableInFixedSize,
    /// Two payloads of the same type.
    #[error("message type {number} is already that of {other}")]
    DuplicateType { number: u32, other: String },
    /// A payload that cannot be distinguished from the payload to which it is an alternative.
    #[error("is an alternative to another payload, and has {0}")]
    WrongAlternative(WrongAlternative),
    /// A payload that is not a longer form of the payload that it extends.
    #[error("extends another payload, and has {0}")]
    WrongExtension(WrongExtension),
    /// Two declarations of the same name.
    #[error("the name `{name}` is already that of {other}")]
    DuplicateName { name: String, other: String },
    /// A payload that exceeds the largest frame.
    #[error("makes a frame of up to {found} bytes, over the frame's `max_size` of {max}")]
    FrameTooLarge {
        max: u32,
        /// Length of the largest frame with this payload.
        found: u64,
    },
    /// A frame that does not start with its length.
    #[error(
        "expected the frame's length at offset 0, from which it counts what follows; it lies at {0}"
    )]
    LengthNotFirst(u32),
    /// A name that is not a field, message or enumeration of the schema.
    #[error("expected {what}, got `{found}`")]
    NotFound { what: Declaration, found: String },
}

/// Constructs to which some options do not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Construct {
    #[error("a number")]
    Number,
    #[error("a constant")]
    Constant,
    #[error("an enumeration")]
    Enumeration,
    #[error("a text")]
    Text,
    #[error("a blob")]
    Blob,
    #[error("a field of a view")]
    ViewField,
    #[error("a field outside of a frame's `oneof`")]
    FieldOutsideOneof,
    #[error("a payload, which lies after the frame's header")]
    FramePayload,
    #[error("anything but a record")]
    OtherThanRecord,
    #[error("anything but a frame")]
    OtherThanFrame,
}

/// Field types without a wire format.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FieldType {
    #[error("a repeated field")]
    Repeated,
    #[error("an optional field")]
    Optional,
    #[error("an enumeration of another file")]
    ForeignEnumeration,
    /// Another protobuf type, by its name.
    #[error("{0}")]
    Named(String),
}

/// Constructs that the layout options do not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unsupported {
    #[error("a negative value has no layout")]
    NegativeValue,
    #[error("nested declarations have no layout: declare them in the file")]
    NestedDeclaration,
    #[error("only a frame has a `oneof`, of its payloads")]
    OneofOutsideFrame,
    #[error("a frame has exactly one `oneof`, of its payloads")]
    NotOneOneof,
    #[error("a payload is a message, or google.protobuf.Empty")]
    PayloadIsNoMessage,
    #[error("a payload is a message of the frame's package")]
    PayloadOfOtherPackage,
}

/// Properties that an alternative to another payload cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WrongAlternative {
    #[error("another type than that")]
    OtherType,
    #[error("a longer form beside it")]
    HasLongerForm,
    #[error("another alternative beside it")]
    SecondAlternative,
    #[error("no bytes that distinguish them")]
    NoBytes,
}

/// Properties that a longer form of another payload cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WrongExtension {
    #[error("another type than what it extends")]
    OtherType,
    #[error("what it extends has no fixed size")]
    VariableSize,
    #[error("other fields at its beginning than what it extends, or no more")]
    OtherFields,
    #[error(
        "no constant of 8 bytes as its first field that distinguishes it from the other longer forms"
    )]
    NotDistinguished,
}

/// Kinds of declarations that an option refers to by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Declaration {
    #[error("a field of this message as a factor")]
    Factor,
    #[error("a payload of this frame that extends no other")]
    ExtendedPayload,
    #[error("a payload of this frame that is no other form of one")]
    AlternativePayload,
    #[error("a message of the form FORM_PAYLOAD")]
    PayloadMessage,
}

/// Numbers as "1, 2 or 4".
fn choices(numbers: &[u32]) -> String {
    let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
    match numbers.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Field numbers of the descriptors, which make up the paths of source locations.
mod path {
    pub(super) const FILE_MESSAGE: i32 = 4;
    pub(super) const FILE_ENUM: i32 = 5;
    pub(super) const FILE_OPTIONS: i32 = 8;
    pub(super) const MESSAGE_FIELD: i32 = 2;
    pub(super) const ENUM_VALUE: i32 = 2;
}

/// Converts a compiler error to an error that names file, message and field if they can be found.
pub(crate) fn explain(error: &protox::Error, proto_dirs: &[&Path]) -> Error {
    let reason = reasons(error);
    let Some(file) = error.file() else {
        return Error::Compile(reason);
    };
    let found = read(proto_dirs, file).and_then(|text| {
        let offset = error.labels()?.next()?.offset();
        let parsed = protox_parse::parse(file, &text).ok()?;
        enclosing(&parsed, line_and_column(&text, offset)?)
    });
    let Some((message, field)) = found else {
        return Error::Compile(format!("{file}: {reason}"));
    };
    Error::Schema(SchemaError {
        file: file.to_owned(),
        message,
        field,
        problem: Problem::BadOption(reason),
    })
}

fn read(proto_dirs: &[&Path], file: &str) -> Option<String> {
    let mut texts = proto_dirs
        .iter()
        .map(|dir| std::fs::read_to_string(dir.join(file)));
    texts.find_map(Result::ok)
}

/// The error and its causes, because the reason for an invalid option is a separate error.
fn reasons(error: &protox::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.diagnostic_source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.diagnostic_source();
    }
    text
}

/// Line and column of an offset, zero-based and in bytes, as in descriptors.
fn line_and_column(text: &str, offset: usize) -> Option<(i32, i32)> {
    let before = text.get(..offset)?;
    let line = before.matches('\n').count();
    let column = before.len() - before.rfind('\n').map_or(0, |end| end + 1);
    Some((i32::try_from(line).ok()?, i32::try_from(column).ok()?))
}

/// Message and field, or enumeration and value, whose declaration contains a position.
fn enclosing(
    file: &FileDescriptorProto,
    place: (i32, i32),
) -> Option<(Option<String>, Option<String>)> {
    let innermost = file
        .source_code_info
        .as_ref()?
        .location
        .iter()
        .filter(|location| contains(&location.span, place))
        .filter(|location| {
            matches!(
                location.path.first(),
                Some(&path::FILE_MESSAGE | &path::FILE_ENUM | &path::FILE_OPTIONS)
            )
        })
        .max_by_key(|location| location.path.len())?;
    let index = |at: usize| {
        innermost
            .path
            .get(at)
            .and_then(|&index| usize::try_from(index).ok())
    };
    match *innermost.path.first()? {
        path::FILE_MESSAGE => {
            let message = file.message_type.get(index(1)?)?;
            let field = (innermost.path.get(2) == Some(&path::MESSAGE_FIELD))
                .then(|| {
                    message
                        .field
                        .get(index(3)?)
                        .map(|field| field.name().to_owned())
                })
                .flatten();
            Some((Some(message.name().to_owned()), field))
        }
        path::FILE_ENUM => {
            let enumeration = file.enum_type.get(index(1)?)?;
            let value = (innermost.path.get(2) == Some(&path::ENUM_VALUE))
                .then(|| {
                    enumeration
                        .value
                        .get(index(3)?)
                        .map(|value| value.name().to_owned())
                })
                .flatten();
            Some((Some(enumeration.name().to_owned()), value))
        }
        _ => Some((None, None)),
    }
}

/// `true` if a span of a descriptor (start line, start column, end line if different, end column) contains a position.
fn contains(span: &[i32], place: (i32, i32)) -> bool {
    let (begin, end) = match *span {
        [line, from, to] => ((line, from), (line, to)),
        [line, from, end_line, to] => ((line, from), (end_line, to)),
        _ => return false,
    };
    begin <= place && place < end
}
