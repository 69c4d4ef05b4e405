//! Payloads of frames: structures of values.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    field::{Item, constants, declarations, decode, encode, items},
    names::{docs, ident},
};
use crate::model::{Kind, Message, Module};

/// The structure of a payload, with its decoder and encoder for the frame's.
pub(super) fn code(_module: &Module, message: &Message) -> TokenStream {
    let name = ident(&message.name);
    let docs = docs(&message.docs);
    let declarations = declarations(message);
    let constants = constants(message);
    let items = items(message);
    let decodes = items.iter().map(decode);
    let encodes = items.iter().map(encode);
    let held = super::names::held(message).map(|field| ident(&field.name));
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

            /// Reads the payload of `frame` that begins with `rest`; returns what follows.
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
