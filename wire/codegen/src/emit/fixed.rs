//! Messages of fixed size: views, and records.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::field::{
    as_u64, constants, declarations, decode, docs, encode, field_docs, held, ident, items, number,
    rust_type, shouty, unsigned,
};
use crate::model::{ByteOrder, Field, Form, Kind, Message, Module, Product};

pub(super) fn view(_module: &Module, message: &Message) -> TokenStream {
    let name = ident(&message.name);
    let view_docs = docs(&message.docs);
    let wire_name = &message.wire_name;
    let size = number(message.size.unwrap_or(0));
    let ranges = message.fields.iter().map(|field| {
        let name = shouty(&field.name);
        let (begin, end) = (
            number(field.offset),
            number(field.offset + field.fixed_width()),
        );
        quote!(pub(super) const #name: ::std::ops::Range<usize> = #begin..#end;)
    });
    let getters = message.fields.iter().map(|field| getter(field, wire_name));
    let setters = message.fields.iter().map(setter);
    let declarations = declarations(message);
    let names: Vec<_> = message
        .fields
        .iter()
        .map(|field| ident(&field.name))
        .collect();
    let parses = message.fields.iter().map(|field| {
        let name = ident(&field.name);
        let question = is_checked(field).then(|| quote!(?));
        quote!(#name: message.#name() #question)
    });
    let set_names = message
        .fields
        .iter()
        .map(|field| format_ident!("set_{}", field.name));
    let size_docs = docs(&format!(
        "Bytes of the message: a view has exactly {size} of them."
    ));
    let repr_docs = docs(&format!(
        "The values of [`{name}`], to read several of them or to build a message."
    ));
    quote! {
        #size_docs
        pub const SIZE: usize = #size;

        /// Byte ranges of the fields.
        mod field {
            #(#ranges)*
        }

        #view_docs
        ///
        /// This is a view over its bytes, read and written in place. Its methods panic only if the underlying buffer
        /// shrinks, which slices, arrays and vectors inside a view cannot do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct #name<T: AsRef<[u8]>> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> #name<T> {
            /// Creates a view over untrusted bytes.
            ///
            /// # Errors
            ///
            /// The number of bytes is not [`SIZE`]. Values are checked by the methods that read them.
            #[inline]
            pub fn new_checked(buffer: T) -> Result<Self, crate::DecodeError> {
                crate::codec::exact_size(buffer.as_ref(), #wire_name, SIZE)?;
                Ok(Self { buffer })
            }

            /// Creates a view over a type with [`SIZE`] bytes: an array, or a reference to one.
            #[inline]
            #[must_use]
            pub fn new_unchecked_len(buffer: T) -> Self
            where
                T: ::std::borrow::Borrow<[u8; SIZE]>,
            {
                Self { buffer }
            }

            /// Returns the underlying buffer.
            #[inline]
            #[must_use]
            pub fn into_inner(self) -> T {
                self.buffer
            }

            #[inline]
            fn get<const N: usize>(&self, range: ::std::ops::Range<usize>) -> [u8; N] {
                let mut bytes = [0; N];
                bytes.copy_from_slice(&self.buffer.as_ref()[range]);
                bytes
            }

            #(#getters)*
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> #name<T> {
            #[inline]
            fn set(&mut self, range: ::std::ops::Range<usize>, bytes: &[u8]) {
                self.buffer.as_mut()[range].copy_from_slice(bytes);
            }

            #(#setters)*
        }

        impl<T: AsRef<[u8]>> AsRef<[u8]> for #name<T> {
            #[inline]
            fn as_ref(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }

        #repr_docs
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub struct Repr {
            #declarations
        }

        impl Repr {
            /// Reads the values of a message. Reserved bytes are ignored.
            ///
            /// # Errors
            ///
            /// A field has a value that the protocol does not define.
            #[inline]
            pub fn parse<T: AsRef<[u8]>>(message: &#name<T>) -> Result<Self, crate::DecodeError> {
                Ok(Self { #(#parses),* })
            }

            /// Writes a message: these values, and zeros for reserved bytes.
            #[inline]
            pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, message: &mut #name<T>) {
                message.buffer.as_mut().fill(0);
                #(message.#set_names(self.#names);)*
            }
        }
    }
}

/// `true` if reading a field can fail.
fn is_checked(field: &Field) -> bool {
    matches!(field.kind, Kind::Enumeration { .. })
}

fn getter(field: &Field, wire_name: &str) -> TokenStream {
    let docs = field_docs(field);
    let (name, text) = (ident(&field.name), &field.name);
    let (range, rust_type) = (shouty(&field.name), rust_type(field));
    let unsigned = unsigned(field.fixed_width());
    let from = match field.byte_order {
        ByteOrder::Big => ident("from_be_bytes"),
        ByteOrder::Little => ident("from_le_bytes"),
    };
    let value = quote!(#unsigned::#from(self.get(field::#range)));
    if is_checked(field) {
        return quote! {
            #docs
            ///
            /// # Errors
            ///
            /// The protocol does not define the value.
            #[inline]
            pub fn #name(&self) -> Result<#rust_type, crate::DecodeError> {
                let place = crate::codec::Place { message: #wire_name, field: #text };
                #rust_type::decode(u64::from(#value), place)
            }
        };
    }
    quote! {
        #docs
        #[inline]
        #[must_use]
        pub fn #name(&self) -> #rust_type {
            #value
        }
    }
}

fn setter(field: &Field) -> TokenStream {
    let docs = field_docs(field);
    let (name, range) = (ident(&field.name), shouty(&field.name));
    let (set, rust_type) = (format_ident!("set_{}", field.name), rust_type(field));
    let to = match field.byte_order {
        ByteOrder::Big => ident("to_be_bytes"),
        ByteOrder::Little => ident("to_le_bytes"),
    };
    let unsigned = unsigned(field.fixed_width());
    let value = match field.kind {
        Kind::Enumeration { width: 4, .. } => quote!(#name.number()),
        Kind::Enumeration { .. } => quote!((#name.number() as #unsigned)),
        _ => quote!(#name),
    };
    quote! {
        #docs
        #[inline]
        pub fn #set(&mut self, #name: #rust_type) {
            self.set(field::#range, &#value.#to());
        }
    }
}

pub(super) fn record(_module: &Module, message: &Message) -> TokenStream {
    let name = ident(&message.name);
    let record_docs = docs(&message.docs);
    let wire_name = &message.wire_name;
    let size = number(message.size.unwrap_or(0));
    let declarations = declarations(message);
    let constants = constants(message);
    let items = items(message);
    let decodes = items.iter().map(decode);
    let encodes = items.iter().map(encode);
    let held = held(message).map(|field| ident(&field.name));
    let product = message
        .product
        .as_ref()
        .map(|limit| product_limit(message, limit));
    let product_check = message.product.as_ref().map(|product| {
        let (text, name) = (&product.name, ident(&product.name));
        let max = number(product.max);
        quote!(crate::codec::in_range(place(#text), record.#name(), 0, #max)?;)
    });
    let at_end = message.form == Form::Record { at_end: true };
    let parse_docs = docs(&if at_end {
        "Reads the record from `bytes`, the last [`SIZE`](Self::SIZE) bytes of the structure that it ends."
            .to_owned()
    } else {
        "Reads the record at the start of `bytes`; bytes after it are ignored.".to_owned()
    });
    quote! {
        #record_docs
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub struct #name {
            #declarations
        }

        impl #name {
            /// Length of the record in bytes.
            pub const SIZE: usize = #size;

            #constants

            #product

            #parse_docs
            ///
            /// # Errors
            ///
            /// There are fewer than [`SIZE`](Self::SIZE) bytes, or a field has a value that the schema does not permit.
            pub fn parse(bytes: &[u8]) -> Result<Self, crate::DecodeError> {
                let place = |field| crate::codec::Place { message: #wire_name, field };
                let rest = bytes;
                #(#decodes)*
                let _ = rest;
                let record = Self { #(#held),* };
                #product_check
                Ok(record)
            }

            /// The bytes of the record, with zeros for reserved bytes.
            #[must_use]
            pub fn emit(&self) -> [u8; Self::SIZE] {
                use ::bytes::BufMut as _;
                let mut bytes = [0; Self::SIZE];
                let mut out = bytes.as_mut_slice();
                #(#encodes)*
                bytes
            }
        }
    }
}

fn product_limit(message: &Message, product: &Product) -> TokenStream {
    let name = ident(&product.name);
    let constant = shouty(&format!("MAX_{}", product.name));
    let max = number(product.max);
    let factors = product.factors.iter().map(|factor| {
        let name = ident(factor);
        let width = message
            .fields
            .iter()
            .find(|field| field.name == *factor)
            .map_or(4, Field::fixed_width);
        as_u64(quote!(self.#name), width)
    });
    let text = product.factors.join(" * ");
    let constant_docs = docs(&format!("Largest accepted {text}."));
    let method_docs = docs(&format!(
        "{text}, or the largest number there is if that is larger."
    ));
    quote! {
        #constant_docs
        pub const #constant: u64 = #max;

        #method_docs
        #[must_use]
        pub fn #name(&self) -> u64 {
            [#(#factors),*].into_iter().fold(1, u64::saturating_mul)
        }
    }
}
