//! Records: a few fields at the start or end of a larger structure.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    field::{as_u64, constants, declarations, decode, encode, items},
    names::{docs, held, ident, number, shouty},
};
use crate::model::{Field, Form, Message, Module, Product};

pub(super) fn code(_module: &Module, message: &Message) -> TokenStream {
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
        .map(|limit| product(message, limit));
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
            /// There are fewer than [`SIZE`](Self::SIZE) bytes, or a field has a value that the schema does not allow.
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

fn product(message: &Message, product: &Product) -> TokenStream {
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
