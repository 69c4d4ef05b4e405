//! Views: messages that are read and written in place, like smoltcp's packets.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{
    field::{declarations, rust_type, unsigned},
    names::{docs, field_docs, ident, number, shouty},
};
use crate::model::{ByteOrder, Field, Kind, Message, Module};

pub(super) fn code(_module: &Module, message: &Message) -> TokenStream {
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
        "The values of [`{name}`], for who needs several of them or builds a message."
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
            /// There are not exactly [`SIZE`] bytes. Values are checked by the methods that read them.
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
