//! The table of offsets: the layout of all messages, as data.

use proc_macro2::TokenStream;
use quote::quote;

use super::names::{meaning, number};
use crate::model::{ByteOrder, Field, Form, Frame, Kind, Message, Module, Schema};

/// Generates one row for each message on the wire: a frame of each type, each view, each record.
pub(super) fn code(schema: &Schema) -> TokenStream {
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
            let constant = super::names::hexadecimal(*constant);
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
