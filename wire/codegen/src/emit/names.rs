//! Names, documentation and small literals of generated code.

use heck::{ToShoutySnakeCase, ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;

use crate::model::{ByteOrder, Enum, Field, Message};

/// An identifier; a keyword becomes a raw one, as in prost's types.
pub(super) fn ident(name: &str) -> Ident {
    syn::parse_str::<Ident>(name).unwrap_or_else(|_keyword| Ident::new_raw(name, Span::call_site()))
}

/// A type or a variant.
pub(super) fn camel(name: &str) -> Ident {
    ident(&name.to_upper_camel_case())
}

/// A constant.
pub(super) fn shouty(name: &str) -> Ident {
    ident(&name.to_shouty_snake_case())
}

/// A number without a type.
pub(super) fn number(value: impl Into<u64>) -> Literal {
    Literal::u64_unsuffixed(value.into())
}

/// A number in hexadecimal, for magic numbers that are compared with hex dumps.
pub(super) fn hexadecimal(value: u64) -> TokenStream {
    let digits = format!("0x{value:X}");
    digits.parse().unwrap_or_else(|_impossible| {
        let value = number(value);
        quote!(#value)
    })
}

/// Documentation of one paragraph or more.
pub(super) fn docs(text: &str) -> TokenStream {
    let lines = text.lines().map(|line| {
        if line.is_empty() {
            String::new()
        } else {
            format!(" {line}")
        }
    });
    quote!(#(#[doc = #lines])*)
}

/// Documentation of a field: its meaning and its position.
pub(super) fn field_docs(field: &Field) -> TokenStream {
    docs(&format!("{}\n\n{}", field.docs, whereabouts(field)))
}

/// Position of a field, for the documentation.
fn whereabouts(field: &Field) -> String {
    let order = match field.byte_order {
        ByteOrder::Big => "big endian",
        ByteOrder::Little => "little endian",
    };
    let (offset, width) = (field.offset, field.fixed_width());
    match field.variable_width() {
        0 if width == 1 => format!("At offset {offset}, 1 byte."),
        0 => format!("At offset {offset}, {width} bytes, {order}."),
        max => format!(
            "At offset {offset}, a length of {width} bytes, {order}, then at most {max} bytes."
        ),
    }
}

/// The first sentence of a comment, for the table of offsets.
pub(super) fn meaning(docs: &str) -> String {
    docs.lines()
        .take_while(|line| !line.trim().is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The values of an enumeration, for error messages.
pub(super) fn expected<'a>(values: impl Iterator<Item = (u32, &'a str)>) -> String {
    let values: Vec<_> = values
        .map(|(number, name)| format!("{number} ({name})"))
        .collect();
    match values.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, [first, .., _])) if values.len() > 4 => {
            format!("one of {} values from {first} to {last}", values.len())
        }
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}

/// As [`expected`], for an enumeration of the schema.
pub(super) fn expected_of(item: &Enum) -> String {
    expected(
        item.values
            .iter()
            .map(|value| (value.number, value.name.as_str())),
    )
}

/// The fields of a generated structure: all but constants.
pub(super) fn held(message: &Message) -> impl Iterator<Item = &Field> {
    message
        .fields
        .iter()
        .filter(|field| field.constant().is_none())
}

/// Name of an enumeration's field in errors without a message.
pub(super) fn snake(name: &str) -> String {
    name.to_snake_case()
}
