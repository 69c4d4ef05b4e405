//! Finds the message and field of a compiler error.
//!
//! protox reports the byte offset of an error. For an option that cannot be resolved, the user needs the field that has
//! it, so the file is parsed again to find the declaration at that offset.

use std::path::Path;

use miette::Diagnostic;
use prost_reflect::prost_types::FileDescriptorProto;

use crate::{Error, Problem, SchemaError};

/// Field numbers of the descriptors, which make up the paths of source locations.
mod path {
    pub(super) const FILE_MESSAGE: i32 = 4;
    pub(super) const FILE_ENUM: i32 = 5;
    pub(super) const FILE_OPTIONS: i32 = 8;
    pub(super) const MESSAGE_FIELD: i32 = 2;
    pub(super) const ENUM_VALUE: i32 = 2;
}

/// Converts a compiler error to one that names file, message and field as far as they can be found.
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

/// The error and its causes: the reason for an invalid option is an error of its own.
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
