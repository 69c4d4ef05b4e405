//! Parts of generated code for all forms of messages: names, documentation, literals, and the type, decoding and
//! encoding of a single field.

use heck::{ToShoutySnakeCase, ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use crate::model::{ByteOrder, Enum, Field, Kind, Message, Prefixed, Span};
use crate::read::largest_number;

/// An identifier; a keyword is converted to a raw identifier, as in prost's types.
pub(super) fn ident(name: &str) -> Ident {
    syn::parse_str::<Ident>(name)
        .unwrap_or_else(|_keyword| Ident::new_raw(name, proc_macro2::Span::call_site()))
}

/// A type or a variant.
pub(super) fn camel(name: &str) -> Ident {
    ident(&name.to_upper_camel_case())
}

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

/// The fields of a generated structure: all fields except constants.
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

/// The unsigned type of `width` bytes.
pub(super) fn unsigned(width: u32) -> Ident {
    format_ident!("u{}", width * 8)
}

/// An expression of `width` bytes as a `u64`.
pub(super) fn as_u64(expression: TokenStream, width: u32) -> TokenStream {
    match width {
        8 => expression,
        _ => quote!(u64::from(#expression)),
    }
}

/// The type of a field in a generated structure.
pub(super) fn rust_type(field: &Field) -> TokenStream {
    match &field.kind {
        Kind::Number { width, .. } => {
            let unsigned = unsigned(*width);
            quote!(#unsigned)
        }
        Kind::Enumeration { name, .. } => {
            let name = ident(name);
            quote!(#name)
        }
        Kind::Text(_) => quote!(::std::string::String),
        Kind::Blob(_) => quote!(::bytes::Bytes),
    }
}

/// Declarations of the fields of a generated structure.
pub(super) fn declarations(message: &Message) -> TokenStream {
    let fields = held(message).map(|field| {
        let docs = field_docs(field);
        let name = ident(&field.name);
        let rust_type = rust_type(field);
        let hex =
            matches!(field.kind, Kind::Blob(_)).then(|| quote!(#[serde(serialize_with = "crate::codec::serialize_hex", deserialize_with = "crate::codec::deserialize_hex")]));
        quote! {
            #docs
            #hex
            pub #name: #rust_type
        }
    });
    quote!(#(#fields,)*)
}

/// Fields with a constant value, as associated constants.
pub(super) fn constants(message: &Message) -> TokenStream {
    let constants = message.fields.iter().filter_map(|field| {
        let constant = hexadecimal(field.constant()?);
        let docs = field_docs(field);
        let (name, unsigned) = (shouty(&field.name), unsigned(field.fixed_width()));
        Some(quote!(#docs pub const #name: #unsigned = #constant;))
    });
    quote!(#(#constants)*)
}

/// The nom parser of a number.
pub(super) fn parser(width: u32, order: ByteOrder) -> TokenStream {
    let name = match order {
        ByteOrder::Big => format_ident!("be_u{}", width * 8),
        ByteOrder::Little => format_ident!("le_u{}", width * 8),
    };
    quote!(::nom::number::complete::#name)
}

/// The method of `bytes` that appends a number.
pub(super) fn putter(width: u32, order: ByteOrder) -> Ident {
    match order {
        ByteOrder::Little if width > 1 => format_ident!("put_u{}_le", width * 8),
        _ => format_ident!("put_u{}", width * 8),
    }
}

/// A field, or reserved bytes.
pub(super) enum Item<'a> {
    Field(&'a Field),
    Reserved(Span),
}

/// Fields and reserved bytes, in the order of their offsets.
pub(super) fn items(message: &Message) -> Vec<Item<'_>> {
    let mut items: Vec<_> = message
        .fields
        .iter()
        .map(Item::Field)
        .chain(message.reserved.iter().copied().map(Item::Reserved))
        .collect();
    items.sort_by_key(|item| match item {
        Item::Field(field) => field.offset,
        Item::Reserved(span) => span.offset,
    });
    items
}

/// Statements that read an item from `rest` into a variable with the field's name, and advance `rest`.
///
/// `place` is a function from a field's name to a `codec::Place`; `frame` is the `Bytes` that blobs share.
pub(super) fn decode(item: &Item<'_>) -> TokenStream {
    let field = match item {
        Item::Field(field) => field,
        Item::Reserved(span) => {
            let width = number(span.width);
            return quote! {
                let (rest, _reserved) = crate::codec::run(rest, place("reserved"), #width, #width)?;
            };
        }
    };
    let (name, text) = (ident(&field.name), &field.name);
    let width = number(field.fixed_width());
    let parser = parser(field.fixed_width(), field.byte_order);
    let read = |variable: &Ident| quote!(let (rest, #variable) = crate::codec::number(rest, place(#text), #width, #parser)?;);
    match &field.kind {
        Kind::Number {
            constant: Some(constant),
            ..
        } => {
            let read = read(&format_ident!("constant"));
            let found = as_u64(quote!(constant), field.fixed_width());
            let constant = hexadecimal(*constant);
            quote! {
                #read
                crate::codec::constant(place(#text), #found, #constant)?;
            }
        }
        Kind::Number {
            width, min, max, ..
        } => {
            let read = read(&name);
            let check = (min.is_some() || max.is_some()).then(|| {
                let min = number(min.unwrap_or(0));
                let max = number(max.unwrap_or(largest_number(*width)));
                let found = as_u64(quote!(#name), *width);
                quote!(crate::codec::in_range(place(#text), #found, #min, #max)?;)
            });
            quote!(#read #check)
        }
        Kind::Enumeration {
            name: enumeration, ..
        } => {
            let read = read(&name);
            let enumeration = ident(enumeration);
            quote! {
                #read
                let #name = #enumeration::decode(u64::from(#name), place(#text))?;
            }
        }
        Kind::Text(limit) => {
            let read = read_run(&read, &name, text, *limit);
            quote! {
                #read
                let #name = crate::codec::text(#name);
            }
        }
        Kind::Blob(limit) => {
            let read = read_run(&read, &name, text, *limit);
            quote! {
                #read
                let #name = crate::codec::share(frame, #name);
            }
        }
    }
}

fn read_run(
    read: &dyn Fn(&Ident) -> TokenStream,
    name: &Ident,
    text: &str,
    limit: Prefixed,
) -> TokenStream {
    let read = read(&format_ident!("length"));
    let max = number(limit.max);
    let length = as_u64(quote!(length), limit.prefix);
    quote! {
        #read
        let (rest, #name) = crate::codec::run(rest, place(#text), #length, #max)?;
    }
}

/// Statements that append an item of `self` to `out`.
pub(super) fn encode(item: &Item<'_>) -> TokenStream {
    let field = match item {
        Item::Field(field) => field,
        Item::Reserved(span) => {
            let width = number(span.width);
            return quote!(out.put_bytes(0, #width););
        }
    };
    let name = ident(&field.name);
    let width = field.fixed_width();
    let put = putter(width, field.byte_order);
    let unsigned = unsigned(width);
    match &field.kind {
        Kind::Number {
            constant: Some(_), ..
        } => {
            let constant = shouty(&field.name);
            quote!(out.#put(Self::#constant);)
        }
        Kind::Number { .. } => quote!(out.#put(self.#name);),
        Kind::Enumeration { .. } if width == 4 => quote!(out.#put(self.#name.number());),
        // The reader of the schema has checked that every value fits.
        Kind::Enumeration { .. } => quote!(out.#put(self.#name.number() as #unsigned);),
        Kind::Text(limit) => {
            let max = number(limit.max);
            quote! {
                let text = crate::codec::cut(&self.#name, #max);
                out.#put(#unsigned::try_from(text.len()).unwrap_or(#unsigned::MAX));
                out.put_slice(text);
            }
        }
        Kind::Blob(_) => quote! {
            out.#put(#unsigned::try_from(self.#name.len()).unwrap_or(#unsigned::MAX));
            out.put_slice(&self.#name);
        },
    }
}
