//! Options of one field.

use prost_reflect::{FieldDescriptor, Kind as ProtoKind};

use super::{Context, Place, byte_order};
use crate::{
    Problem, SchemaError,
    model::{Field, Kind, Prefixed},
    options::Options,
};

/// Reads a field that has a place of its own.
pub(super) fn read(
    context: &Context,
    place: &Place,
    descriptor: &FieldDescriptor,
) -> Result<Field, SchemaError> {
    let docs = context.docs(place, descriptor.path())?;
    read_undocumented(context, descriptor, docs).map_err(|problem| place.error(problem))
}

fn read_undocumented(
    context: &Context,
    descriptor: &FieldDescriptor,
    docs: String,
) -> Result<Field, Problem> {
    if descriptor.is_list() || descriptor.is_map() {
        return Err(Problem::UnsupportedType("a repeated field".to_owned()));
    }
    if descriptor.supports_presence() && descriptor.kind().as_message().is_none() {
        return Err(Problem::UnsupportedType("an optional field".to_owned()));
    }
    let Some(mut options) = Options::of(&descriptor.options(), "field")? else {
        return Err(Problem::Missing {
            option: "(layout.field)",
            what: "where the field lies",
        });
    };
    let offset = options.number32("offset").ok_or(Problem::Missing {
        option: "offset",
        what: "the bytes before the field",
    })?;
    let byte_order = byte_order(&mut options)
        .or(context.byte_order)
        .ok_or(Problem::Missing {
            option: "byte_order",
            what: "which byte of the number comes first, here or for the file",
        })?;
    options.refuse("message_type", "a field outside of a frame's `oneof`")?;
    let kind = kind(&mut options, descriptor)?;
    options.finish()?;
    Ok(Field {
        name: descriptor.name().to_owned(),
        docs,
        offset,
        byte_order,
        kind,
    })
}

fn kind(options: &mut Options, descriptor: &FieldDescriptor) -> Result<Kind, Problem> {
    match descriptor.kind() {
        ProtoKind::Uint32 | ProtoKind::Fixed32 => number(options, Widths::UpTo4),
        ProtoKind::Uint64 | ProtoKind::Fixed64 => number(options, Widths::Just8),
        ProtoKind::Enum(enumeration) => {
            for option in ["constant", "min", "max"] {
                options.refuse(option, "an enumeration")?;
            }
            if enumeration.parent_file() != descriptor.parent_file() {
                return Err(Problem::UnsupportedType(
                    "an enumeration of another file".to_owned(),
                ));
            }
            let width = width(options, Widths::UpTo4, "an enumeration")?;
            let largest = enumeration.values().map(|value| value.number()).max();
            let largest = u64::try_from(largest.unwrap_or(0)).unwrap_or(0);
            if largest > largest_number(width) {
                return Err(Problem::TooLarge {
                    option: "width",
                    max: largest_number(width),
                    came: largest,
                });
            }
            Ok(Kind::Enumeration {
                width,
                name: enumeration.name().to_owned(),
            })
        }
        ProtoKind::String => prefixed(options, "a text").map(Kind::Text),
        ProtoKind::Bytes => prefixed(options, "a blob").map(Kind::Blob),
        other => Err(Problem::UnsupportedType(format!("{other:?}"))),
    }
}

fn number(options: &mut Options, widths: Widths) -> Result<Kind, Problem> {
    let width = width(options, widths, "a number")?;
    let mut bounded = |option| match options.number(option) {
        Some(came) if came > largest_number(width) => Err(Problem::TooLarge {
            option,
            max: largest_number(width),
            came,
        }),
        accepted => Ok(accepted),
    };
    let (constant, min, max) = (bounded("constant")?, bounded("min")?, bounded("max")?);
    if constant.is_some() && (min.is_some() || max.is_some()) {
        let option = if min.is_some() { "min" } else { "max" };
        return Err(Problem::DoesNotApply {
            option,
            to: "a constant".to_owned(),
        });
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(Problem::EmptyRange { min, max });
    }
    Ok(Kind::Number {
        width,
        constant,
        min,
        max,
    })
}

fn prefixed(options: &mut Options, what: &str) -> Result<Prefixed, Problem> {
    for option in ["width", "constant", "min", "max"] {
        options.refuse(option, what)?;
    }
    let prefix = options.number("length_prefix").ok_or(Problem::Missing {
        option: "length_prefix",
        what: "the bytes of the length before it",
    })?;
    let prefix = checked_width(prefix, Widths::UpTo8)?;
    let max = options.number32("max_length").ok_or(Problem::Missing {
        option: "max_length",
        what: "the longest that is accepted",
    })?;
    if u64::from(max) > largest_number(prefix) {
        return Err(Problem::TooLarge {
            option: "max_length",
            max: largest_number(prefix),
            came: u64::from(max),
        });
    }
    Ok(Prefixed { prefix, max })
}

fn width(options: &mut Options, widths: Widths, what: &str) -> Result<u32, Problem> {
    for option in ["length_prefix", "max_length"] {
        options.refuse(option, what)?;
    }
    let came = options.number("width").ok_or(Problem::Missing {
        option: "width",
        what: "the bytes of the number",
    })?;
    checked_width(came, widths)
}

/// The widths that a number can have.
#[derive(Clone, Copy)]
pub(super) enum Widths {
    /// A 32-bit number, or fewer bits of one.
    UpTo4,
    /// A 64-bit number. Fewer bits of one are a 32-bit number in the schema too.
    Just8,
    /// A length.
    UpTo8,
}

/// Refuses what is not the width of a number.
pub(super) fn checked_width(came: u64, widths: Widths) -> Result<u32, Problem> {
    let (accepted, expected): (&[u32], _) = match widths {
        Widths::UpTo4 => (&[1, 2, 4], "1, 2 or 4"),
        Widths::Just8 => (&[8], "8"),
        Widths::UpTo8 => (&[1, 2, 4, 8], "1, 2, 4 or 8"),
    };
    accepted
        .iter()
        .copied()
        .find(|&width| u64::from(width) == came)
        .ok_or(Problem::Width { expected, came })
}

/// Largest number in so many bytes.
pub(crate) fn largest_number(width: u32) -> u64 {
    u64::MAX >> (64 - 8 * width.clamp(1, 8))
}
