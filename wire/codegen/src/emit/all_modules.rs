//! The two files for all modules: the table of offsets, and the conversions between the generated types and prost's.

use proc_macro2::TokenStream;
use quote::quote;

use super::field::{camel, docs, held, ident, meaning, number, shouty, snake};
use crate::model::{ByteOrder, Field, Form, Frame, Kind, Message, Module, Schema};

/// Generates one row for each message on the wire: a frame of each type, each view, each record.
pub(super) fn layout_table(schema: &Schema) -> TokenStream {
    let messages = schema.modules.iter().flat_map(|module| {
        module
            .messages
            .iter()
            .flat_map(move |message| match &message.form {
                Form::Frame(frame) => frames(module, message, frame),
                Form::Payload => Vec::new(),
                Form::View => vec![fixed(module, message, false)],
                Form::Record { at_end } => vec![fixed(module, message, *at_end)],
            })
    });
    quote! {
        /// Every message of the schema, in schema order; one entry for each type of control frame.
        pub static TABLE: &[Message] = &[#(#messages),*];
    }
}

/// A row with its sort key.
struct Row {
    offset: u32,
    tokens: TokenStream,
}

fn frames(module: &Module, message: &Message, frame: &Frame) -> Vec<TokenStream> {
    let header_size = message.size.unwrap_or(0);
    let describe = |variant: &crate::model::Variant| {
        let mut rows = rows(module, message, 0);
        let length = row(
            "length",
            frame.length.offset,
            frame.length.width,
            frame.byte_order,
            quote!(Kind::Length),
            "Bytes that follow this field, up to the end of the frame.",
        );
        let type_number = number(variant.number);
        let kind = quote!(Kind::Constant(#type_number));
        let type_row = row(
            "type",
            frame.discriminant.offset,
            frame.discriminant.width,
            frame.byte_order,
            kind,
            "Type of the message.",
        );
        rows.extend([length, type_row]);
        rows.sort_by_key(|row| row.offset);
        let payload = variant
            .payload
            .as_ref()
            .and_then(|name| module.messages.iter().find(|message| message.name == *name));
        let (mut size, mut variable) = (header_size, 0);
        if let Some(payload) = payload {
            rows.extend(self::rows(module, payload, header_size));
            size += payload.fixed_width();
            variable = payload.variable_width();
        }
        Entry {
            name: &variant.name,
            docs: &variant.docs,
            message_type: Some(variant.number),
            size,
            max_size: size + variable,
            at_end: false,
            rows,
        }
        .tokens(module)
    };
    frame.variants.iter().map(describe).collect()
}

fn fixed(module: &Module, message: &Message, at_end: bool) -> TokenStream {
    Entry {
        name: &message.wire_name,
        docs: &message.docs,
        message_type: None,
        size: message.fixed_width(),
        max_size: message.fixed_width(),
        at_end,
        rows: rows(module, message, 0),
    }
    .tokens(module)
}

/// One message of the table.
struct Entry<'a> {
    name: &'a str,
    docs: &'a str,
    message_type: Option<u32>,
    size: u32,
    max_size: u32,
    at_end: bool,
    rows: Vec<Row>,
}

impl Entry<'_> {
    fn tokens(&self, module: &Module) -> TokenStream {
        let (name, at_end) = (self.name, self.at_end);
        let module = &module.name;
        let meaning = meaning(self.docs);
        let message_type = option(self.message_type);
        let (size, max_size) = (number(self.size), number(self.max_size));
        let rows = self.rows.iter().map(|row| &row.tokens);
        quote! {
            Message {
                module: #module,
                name: #name,
                meaning: #meaning,
                message_type: #message_type,
                size: #size,
                max_size: #max_size,
                at_end: #at_end,
                fields: &[#(#rows),*],
            }
        }
    }
}

fn option(value: Option<u32>) -> TokenStream {
    match value {
        Some(value) => {
            let value = number(value);
            quote!(Some(#value))
        }
        None => quote!(None),
    }
}

fn rows(module: &Module, message: &Message, base: u32) -> Vec<Row> {
    let fields = message.fields.iter().map(|field| {
        let kind = kind(module, field);
        row(
            &field.name,
            base + field.offset,
            field.fixed_width(),
            field.byte_order,
            kind,
            &meaning(&field.docs),
        )
    });
    let reserved = message.reserved.iter().map(|span| {
        let kind = quote!(Kind::Reserved);
        row(
            "reserved",
            base + span.offset,
            span.width,
            ByteOrder::Big,
            kind,
            "Ignored when read, zeros when written.",
        )
    });
    let mut rows: Vec<_> = fields.chain(reserved).collect();
    rows.sort_by_key(|row| row.offset);
    rows
}

fn row(
    name: &str,
    offset: u32,
    width: u32,
    order: ByteOrder,
    kind: TokenStream,
    meaning: &str,
) -> Row {
    let (offset_number, width) = (number(offset), number(width));
    let order = match order {
        ByteOrder::Big => quote!(ByteOrder::Big),
        ByteOrder::Little => quote!(ByteOrder::Little),
    };
    Row {
        offset,
        tokens: quote! {
            Field {
                name: #name,
                offset: #offset_number,
                width: #width,
                byte_order: #order,
                kind: #kind,
                meaning: #meaning,
            }
        },
    }
}

fn kind(module: &Module, field: &Field) -> TokenStream {
    match &field.kind {
        Kind::Number {
            constant: Some(constant),
            ..
        } => {
            let constant = super::field::hexadecimal(*constant);
            quote!(Kind::Constant(#constant))
        }
        Kind::Number { .. } => quote!(Kind::Number),
        Kind::Enumeration { name, .. } => {
            let values = module
                .enums
                .iter()
                .filter(|item| item.name == *name)
                .flat_map(|item| &item.values);
            let values = values.map(|value| {
                let (number, name) = (number(value.number), &value.name);
                quote!((#number, #name))
            });
            quote!(Kind::Enumeration(&[#(#values),*]))
        }
        Kind::Text(limit) => {
            let max = number(limit.max);
            quote!(Kind::Text { max: #max })
        }
        Kind::Blob(limit) => {
            let max = number(limit.max);
            quote!(Kind::Blob { max: #max })
        }
    }
}

pub(super) fn recording(schema: &Schema) -> TokenStream {
    let modules = schema.modules.iter().map(|module| {
        let name = ident(&module.name);
        let docs = docs(&format!(
            "The messages of [`crate::{}`] as prost's types.",
            module.name
        ));
        let file = format!("{}/{}.rs", super::PROST_DIR, module.package);
        quote! {
            #docs
            pub mod #name {
                include!(#file);
            }
        }
    });
    let conversions = schema.modules.iter().flat_map(|module| {
        module
            .messages
            .iter()
            .map(move |message| match &message.form {
                Form::Frame(frame) => of_frame(module, message, frame),
                Form::Payload => of_values(module, message, &message.name),
                Form::View => of_values(module, message, "Repr"),
                Form::Record { .. } => TokenStream::new(),
            })
    });
    quote! {
        #(#modules)*
        #(#conversions)*
    }
}

/// Expression that converts a field of `value` to prost's type.
fn to_prost(ours: &TokenStream, field: &Field) -> TokenStream {
    let name = ident(&field.name);
    let constant = shouty(&field.name);
    match &field.kind {
        Kind::Number {
            width: 4 | 8,
            constant: Some(_),
            ..
        } => quote!(#ours::#constant),
        Kind::Number {
            constant: Some(_), ..
        } => quote!(#ours::#constant.into()),
        Kind::Number { width: 4 | 8, .. } => quote!(value.#name),
        Kind::Number { .. } => quote!(value.#name.into()),
        Kind::Enumeration { .. } => quote!(value.#name.number() as i32),
        Kind::Text(_) | Kind::Blob(_) => quote!(value.#name.clone()),
    }
}

/// Expression that converts a field of prost's `value`, refusing values that the wire format would refuse.
fn from_prost(module: &Module, message: &Message, field: &Field) -> TokenStream {
    let (module, wire_name) = (ident(&module.name), &message.wire_name);
    let (name, text) = (ident(&field.name), &field.name);
    let place = quote!(crate::codec::Place { message: #wire_name, field: #text });
    match &field.kind {
        Kind::Number { width: 4 | 8, .. } => quote!(value.#name),
        Kind::Number { width, .. } => {
            let (max, unsigned) = (
                super::field::number(crate::read::largest_number(*width)),
                super::field::unsigned(*width),
            );
            quote! {{
                crate::codec::in_range(#place, u64::from(value.#name), 0, #max)?;
                value.#name as #unsigned
            }}
        }
        Kind::Enumeration {
            name: enumeration, ..
        } => {
            let enumeration = ident(enumeration);
            // A negative number is converted to a number that is not in any enumeration.
            quote!(crate::#module::#enumeration::decode(u64::from(value.#name as u32), #place)?)
        }
        Kind::Text(_) | Kind::Blob(_) => quote!(value.#name),
    }
}

fn of_values(module: &Module, message: &Message, our_name: &str) -> TokenStream {
    let module_name = ident(&module.name);
    let (ours, prosts) = (ident(our_name), ident(&message.name));
    let names: Vec<_> = message
        .fields
        .iter()
        .map(|field| ident(&field.name))
        .collect();
    let path = quote!(crate::#module_name::#ours);
    let to = message.fields.iter().map(|field| to_prost(&path, field));
    let held_names: Vec<_> = held(message).map(|field| ident(&field.name)).collect();
    let from = held(message).map(|field| from_prost(module, message, field));
    // A message that contains only constants does not depend on the recorded one.
    let value = ident(if held_names.is_empty() {
        "_value"
    } else {
        "value"
    });
    quote! {
        impl From<&crate::#module_name::#ours> for #module_name::#prosts {
            fn from(#value: &crate::#module_name::#ours) -> Self {
                Self { #(#names: #to),* }
            }
        }

        impl TryFrom<#module_name::#prosts> for crate::#module_name::#ours {
            type Error = crate::DecodeError;

            fn try_from(#value: #module_name::#prosts) -> Result<Self, crate::DecodeError> {
                Ok(Self { #(#held_names: #from),* })
            }
        }
    }
}

fn of_frame(module: &Module, message: &Message, frame: &Frame) -> TokenStream {
    let module_name = ident(&module.name);
    let name = ident(&message.name);
    let inner = ident(&snake(&message.name));
    let payload = camel(&frame.payload_name);
    let (payload_field, payload_text) = (ident(&frame.payload_name), &frame.payload_name);
    let wire_name = &message.wire_name;
    let names: Vec<_> = message
        .fields
        .iter()
        .map(|field| ident(&field.name))
        .collect();
    let path = quote!(crate::#module_name::#name);
    let to = message.fields.iter().map(|field| to_prost(&path, field));
    let held_names: Vec<_> = held(message).map(|field| ident(&field.name)).collect();
    let from = held(message).map(|field| from_prost(module, message, field));
    let to_arms = frame.variants.iter().map(|variant| {
        let name = camel(&variant.name);
        match variant.payload {
            None => quote!(Ours::#name => Recorded::#name(())),
            Some(_) => quote!(Ours::#name(content) => Recorded::#name(content.into())),
        }
    });
    let from_arms = frame.variants.iter().map(|variant| {
        let name = camel(&variant.name);
        match variant.payload {
            None => quote!(Some(Recorded::#name(())) => Ours::#name),
            Some(_) => quote!(Some(Recorded::#name(content)) => Ours::#name(content.try_into()?)),
        }
    });
    quote! {
        impl From<&crate::#module_name::#name> for #module_name::#name {
            fn from(value: &crate::#module_name::#name) -> Self {
                use crate::#module_name::#payload as Ours;
                use #module_name::#inner::#payload as Recorded;
                let #payload_field = match &value.#payload_field {
                    #(#to_arms,)*
                };
                Self { #(#names: #to,)* #payload_field: Some(#payload_field) }
            }
        }

        impl TryFrom<#module_name::#name> for crate::#module_name::#name {
            type Error = crate::DecodeError;

            fn try_from(value: #module_name::#name) -> Result<Self, crate::DecodeError> {
                use crate::#module_name::#payload as Ours;
                use #module_name::#inner::#payload as Recorded;
                let #payload_field = match value.#payload_field {
                    #(#from_arms,)*
                    None => {
                        return Err(crate::DecodeError::Missing {
                            message: #wire_name,
                            field: #payload_text,
                        });
                    }
                };
                Ok(Self { #(#held_names: #from,)* #payload_field })
            }
        }
    }
}
