//! Frames and their payloads: the message, its payloads, its types, and the functions used by the frame decoder.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::field::{
    Item, constants, declarations, decode, encode, items, parser, putter, unsigned,
};
use super::field::{camel, docs, expected, held, ident, number, shouty};
use crate::model::{Frame, Kind, Message, Module, Span, Variant};

pub(super) fn code(module: &Module, message: &Message, frame: &Frame) -> TokenStream {
    let types = types(module, message, frame);
    let payload = payload(module, message, frame);
    let structure = structure(message, frame);
    let functions = functions(message, frame);
    quote!(#structure #payload #types #functions)
}

fn type_name(message: &Message) -> proc_macro2::Ident {
    format_ident!("{}Type", message.name)
}

fn types(module: &Module, message: &Message, frame: &Frame) -> TokenStream {
    let payload = camel(&frame.payload_name);
    let describe = |variant: &Variant| {
        let name = camel(&variant.name);
        format!("The type of [`{payload}::{name}`].")
    };
    super::Enumeration {
        name: type_name(message),
        docs: "The type of a message, as its frame states it.".to_owned(),
        values: frame
            .types()
            .map(|variant| (variant.name.as_str(), variant.number, describe(variant)))
            .collect(),
        expected: expected(
            frame
                .types()
                .map(|variant| (variant.number, variant.name.as_str())),
        ),
        place: (
            module.name.clone(),
            super::field::snake(&type_name(message).to_string()),
        ),
    }
    .tokens()
}

fn payload(module: &Module, message: &Message, frame: &Frame) -> TokenStream {
    let name = camel(&frame.payload_name);
    let type_name = type_name(message);
    let payload_docs = docs(&frame.payload_docs);
    let variants = frame.variants.iter().map(|variant| {
        let docs = docs(&variant.docs);
        let (schema_name, name) = (&variant.name, camel(&variant.name));
        let content = variant
            .payload
            .as_deref()
            .map(ident)
            .map(|content| quote!((#content)));
        quote!(#docs #[serde(rename = #schema_name)] #name #content)
    });
    let type_arms = frame.variants.iter().map(|variant| {
        let name = camel(&variant.name);
        let pattern = variant.payload.is_some().then(|| quote!((_)));
        let type_variant = camel(&frame.type_of(variant).name);
        quote!(Self::#name #pattern => #type_name::#type_variant)
    });
    let name_arms = frame.variants.iter().map(|variant| {
        let (schema_name, name) = (&variant.name, camel(&variant.name));
        let pattern = variant.payload.is_some().then(|| quote!((_)));
        quote!(Self::#name #pattern => #schema_name)
    });
    let decode_arms = frame.types().map(|variant| {
        let name = camel(&variant.name);
        let fields = |variant: &Variant| {
            let payload = variant.payload.as_ref();
            let mut messages = module.messages.iter();
            payload.and_then(|payload| messages.find(|message| message.name == *payload))
        };
        let skipped = fields(variant).map_or(0, Message::fixed_width);
        // The first form is also used for bytes that match none of them, and reports the error.
        let mut extensions: Vec<_> = frame.extensions_of(variant).collect();
        extensions.reverse();
        let count = extensions.len();
        let longer = extensions.into_iter().enumerate().map(|(index, longer)| {
            let message = fields(longer);
            let size = number(message.map_or(0, Message::fixed_width));
            let (wire_name, longer_name) = (&longer.name, camel(&longer.name));
            let content = longer.payload.as_deref().map(ident);
            let is_marked = (index + 1 < count).then(|| {
                let mark = message.and_then(|message| {
                    message.fields.iter().find(|field| field.offset == skipped)
                });
                let field = mark.map(|field| shouty(&field.name));
                let bytes = match mark.map(|field| field.byte_order) {
                    Some(crate::model::ByteOrder::Little) => ident("to_le_bytes"),
                    _ => ident("to_be_bytes"),
                };
                let (begin, end) = (number(skipped), number(skipped + 8));
                quote!(&& rest[#begin..#end] == #content::#field.#bytes())
            });
            quote! {
                #type_name::#name if rest.len() >= #size #is_marked => {
                    let (rest, content) = #content::decode(#wire_name, frame, rest)?;
                    (rest, Self::#longer_name(content))
                }
            }
        });
        let alternative = frame.alternative_of(variant).and_then(|alternative| {
            let content = alternative.payload.as_deref().map(ident)?;
            Some((&alternative.name, camel(&alternative.name), content))
        });
        let own = match (variant.payload.as_deref().map(ident), alternative) {
            (Some(content), Some((other_name, other, other_content))) => quote! {
                #type_name::#name => {
                    let own = #content::decode(message_type.name(), frame, rest)
                        .and_then(|(rest, content)| {
                            crate::codec::end(rest, message_type.name())?;
                            Ok((rest, Self::#name(content)))
                        });
                    match own {
                        Ok(own) => own,
                        // If the bytes match neither, the error is that of the first form.
                        Err(error) => match #other_content::decode(#other_name, frame, rest) {
                            Ok((rest @ [], content)) => (rest, Self::#other(content)),
                            _ => return Err(error),
                        },
                    }
                }
            },
            (None, _) => quote!(#type_name::#name => (rest, Self::#name)),
            (Some(content), None) => quote! {
                #type_name::#name => {
                    let (rest, content) = #content::decode(message_type.name(), frame, rest)?;
                    (rest, Self::#name(content))
                }
            },
        };
        quote!(#(#longer)* #own)
    });
    let with_content = frame
        .variants
        .iter()
        .filter(|variant| variant.payload.is_some())
        .map(|variant| {
            let name = camel(&variant.name);
            quote!(Self::#name(content) => content.encode(out))
        });
    let empty: Vec<_> = frame
        .variants
        .iter()
        .filter(|variant| variant.payload.is_none())
        .map(|variant| camel(&variant.name))
        .collect();
    let without_content = (!empty.is_empty()).then(|| quote!(#(Self::#empty)|* => {}));
    quote! {
        #payload_docs
        #[derive(Debug, Clone, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        pub enum #name {
            #(#variants,)*
        }

        impl #name {
            /// The type in the frame's header.
            #[must_use]
            pub const fn message_type(&self) -> #type_name {
                match self {
                    #(#type_arms,)*
                }
            }

            /// Name in the schema. Differs from the name of its type for another form of a payload.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    #(#name_arms,)*
                }
            }

            /// Decodes the payload of `frame`, which starts with `rest` and ends with the frame.
            fn decode(
                message_type: #type_name,
                frame: &::bytes::Bytes,
                rest: &[u8],
            ) -> Result<Self, crate::DecodeError> {
                let (rest, payload) = match message_type {
                    #(#decode_arms,)*
                };
                crate::codec::end(rest, message_type.name())?;
                Ok(payload)
            }

            fn encode(&self, out: &mut ::bytes::BytesMut) {
                match self {
                    #(#with_content,)*
                    #without_content
                }
            }
        }
    }
}

fn structure(message: &Message, frame: &Frame) -> TokenStream {
    let name = ident(&message.name);
    let message_docs = docs(&message.docs);
    let declarations = declarations(message);
    let payload_docs = docs(&frame.payload_docs);
    let payload_field = ident(&frame.payload_name);
    let payload_type = camel(&frame.payload_name);
    quote! {
        #message_docs
        #[derive(Debug, Clone, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        pub struct #name {
            #declarations
            #payload_docs
            pub #payload_field: #payload_type,
        }
    }
}

/// Parts of the header in the order of their offsets: its own fields, and the two fields that depend on the payload.
enum Header<'a> {
    Item(Item<'a>),
    Length,
    Type,
}

fn header<'a>(message: &'a Message, frame: &Frame) -> Vec<Header<'a>> {
    let offset = |part: &Header<'_>| match part {
        Header::Item(Item::Field(field)) => field.offset,
        Header::Item(Item::Reserved(span)) => span.offset,
        Header::Length => frame.length.offset,
        Header::Type => frame.discriminant.offset,
    };
    let mut header: Vec<_> = items(message).into_iter().map(Header::Item).collect();
    header.extend([Header::Length, Header::Type]);
    header.sort_by_key(offset);
    header
}

fn functions(message: &Message, frame: &Frame) -> TokenStream {
    let name = ident(&message.name);
    let type_name = type_name(message);
    let payload = camel(&frame.payload_name);
    let payload_field = ident(&frame.payload_name);
    let wire_name = &message.wire_name;
    let read = |span: Span, field: &str, variable: &str| {
        let (width, parser) = (number(span.width), parser(span.width, frame.byte_order));
        let variable = ident(variable);
        quote!(let (rest, #variable) = crate::codec::number(rest, place(#field), #width, #parser)?;)
    };
    let write = |span: Span, value: TokenStream| {
        let put = putter(span.width, frame.byte_order);
        quote!(out.#put(#value);)
    };
    let header = header(message, frame);
    let decodes = header.iter().map(|part| match part {
        Header::Item(item) => decode(item),
        Header::Length => read(frame.length, "length", "_length"),
        Header::Type => read(frame.discriminant, "type", "number"),
    });
    let type_unsigned = unsigned(frame.discriminant.width);
    let encodes = header.iter().map(|part| match part {
        Header::Item(item) => encode(item),
        Header::Length => write(frame.length, quote!(0)),
        Header::Type if frame.discriminant.width == 4 => write(
            frame.discriminant,
            quote!(self.#payload_field.message_type().number()),
        ),
        Header::Type => write(
            frame.discriminant,
            quote!(self.#payload_field.message_type().number() as #type_unsigned),
        ),
    });
    let held = held(message).map(|field| ident(&field.name));
    let length_end = frame.length.offset + frame.length.width;
    let header_rest = message.size.unwrap_or(0) - length_end;
    let (min, max) = (number(header_rest), number(frame.max_size - length_end));
    let (length_end, length_width) = (number(length_end), number(frame.length.width));
    let length_parser = parser(frame.length.width, frame.byte_order);
    let length_unsigned = unsigned(frame.length.width);
    let length_bytes = match frame.byte_order {
        crate::model::ByteOrder::Big => ident("to_be_bytes"),
        crate::model::ByteOrder::Little => ident("to_le_bytes"),
    };
    let constants = constants(message);
    let header_size = number(message.size.unwrap_or(0));
    let max_size = number(frame.max_size);
    quote! {
        impl #name {
            /// Length of a frame's header in bytes.
            pub const HEADER_SIZE: usize = #header_size;

            /// Length of the largest accepted frame in bytes.
            pub const MAX_FRAME_SIZE: usize = #max_size;

            #constants

            /// Appends the frame of this message.
            ///
            /// A text that exceeds its limit is truncated at a character boundary. A blob that exceeds its limit is
            /// written unchanged, so that the peer refuses it: a part of a blob would be useless.
            pub fn encode(&self, out: &mut ::bytes::BytesMut) {
                use ::bytes::BufMut as _;
                let begin = out.len();
                #(#encodes)*
                self.#payload_field.encode(out);
                // The length is known only after the payload was written.
                let rest = begin + #length_end;
                let length = #length_unsigned::try_from(out.len() - rest).unwrap_or(#length_unsigned::MAX);
                out[rest - #length_width..rest].copy_from_slice(&length.#length_bytes());
            }

            /// Length in bytes of the frame at the start of `input`; `None` while its length field is incomplete.
            ///
            /// # Errors
            ///
            /// The length is out of bounds, so the start of the next frame is unknown.
            pub fn frame_size(input: &[u8]) -> Result<Option<usize>, crate::DecodeError> {
                let place = crate::codec::Place { message: #wire_name, field: "length" };
                let Ok((_, length)) = crate::codec::number(input, place, #length_width, #length_parser) else {
                    return Ok(None);
                };
                crate::codec::in_range(place, u64::from(length), #min, #max)?;
                Ok(Some(#length_end + length as usize))
            }

            /// Decodes one whole frame of the length returned by [`frame_size`](Self::frame_size); blobs share its
            /// memory.
            ///
            /// # Errors
            ///
            /// The frame is not valid. The next frame can still be decoded.
            pub fn decode_frame(frame: &::bytes::Bytes) -> Result<Self, crate::DecodeError> {
                let place = |field| crate::codec::Place { message: #wire_name, field };
                let rest: &[u8] = frame;
                #(#decodes)*
                let message_type = #type_name::decode(u64::from(number), place("type"))?;
                let #payload_field = #payload::decode(message_type, frame, rest)?;
                Ok(Self { #(#held,)* #payload_field })
            }
        }
    }
}

/// The structure of a payload, with its decoder and encoder.
pub(super) fn payload_code(message: &Message) -> TokenStream {
    let name = ident(&message.name);
    let docs = docs(&message.docs);
    let declarations = declarations(message);
    let constants = constants(message);
    let items = items(message);
    let decodes = items.iter().map(decode);
    let encodes = items.iter().map(encode);
    let held = super::field::held(message).map(|field| ident(&field.name));
    let shares = items
        .iter()
        .any(|item| matches!(item, Item::Field(field) if matches!(field.kind, Kind::Blob(_))));
    let frame = ident(if shares { "frame" } else { "_frame" });
    quote! {
        #docs
        #[derive(Debug, Clone, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        pub struct #name {
            #declarations
        }

        impl #name {
            #constants

            /// Decodes the payload of `frame`, which starts with `rest`. Returns the remaining bytes.
            fn decode<'a>(
                message: &'static str,
                #frame: &::bytes::Bytes,
                rest: &'a [u8],
            ) -> Result<(&'a [u8], Self), crate::DecodeError> {
                let place = |field| crate::codec::Place { message, field };
                #(#decodes)*
                Ok((rest, Self { #(#held),* }))
            }

            fn encode(&self, out: &mut ::bytes::BytesMut) {
                use ::bytes::BufMut as _;
                #(#encodes)*
            }
        }
    }
}
