//! Enumerations: those of the schema, and the one for the types of a frame.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::names::{camel, docs, expected_of, ident, number, snake};
use crate::model::{Enum, Module};

/// Parts of a generated enumeration.
pub(super) struct Code<'a> {
    /// Name of the type.
    pub(super) name: Ident,
    /// Documentation of the type.
    pub(super) docs: String,
    /// Name in the schema, number and documentation of each value.
    pub(super) values: Vec<(&'a str, u32, String)>,
    /// The accepted values, for error messages.
    pub(super) expected: String,
    /// Message and field for the errors of the public conversion.
    pub(super) place: (String, String),
}

/// An enumeration of the schema.
pub(super) fn code(module: &Module, item: &Enum) -> TokenStream {
    Code {
        name: ident(&item.name),
        docs: item.docs.clone(),
        values: item
            .values
            .iter()
            .map(|value| (value.name.as_str(), value.number, value.docs.clone()))
            .collect(),
        expected: expected_of(item),
        place: (module.name.clone(), snake(&item.name)),
    }
    .tokens()
}

impl Code<'_> {
    pub(super) fn tokens(&self) -> TokenStream {
        let Self { name, expected, .. } = self;
        let type_docs = docs(&self.docs);
        let (message, field) = &self.place;
        let count = number(self.values.len() as u64);
        let variants: Vec<_> = self.values.iter().map(|(name, ..)| camel(name)).collect();
        let names: Vec<_> = self.values.iter().map(|(name, ..)| name).collect();
        let numbers: Vec<_> = self
            .values
            .iter()
            .map(|(_, value, _)| number(*value))
            .collect();
        let value_docs = self
            .values
            .iter()
            .map(|(_, number, text)| docs(&format!("{text}\n\nNumber {number} on the wire.")));
        quote! {
            #type_docs
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[derive(::serde::Serialize, ::serde::Deserialize)]
            #[repr(u32)]
            pub enum #name {
                #(#value_docs #[serde(rename = #names)] #variants = #numbers,)*
            }

            impl #name {
                /// Every value, in the order of the schema.
                pub const ALL: [Self; #count] = [#(Self::#variants),*];

                /// Name in the schema.
                #[must_use]
                pub const fn name(self) -> &'static str {
                    match self {
                        #(Self::#variants => #names,)*
                    }
                }

                /// Number on the wire.
                #[inline]
                #[must_use]
                pub const fn number(self) -> u32 {
                    self as u32
                }

                #[inline]
                pub(crate) fn decode(
                    number: u64,
                    place: crate::codec::Place,
                ) -> Result<Self, crate::DecodeError> {
                    match number {
                        #(#numbers => Ok(Self::#variants),)*
                        found => Err(crate::codec::unknown(place, #expected, found)),
                    }
                }
            }

            impl ::std::fmt::Display for #name {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    f.pad(self.name())
                }
            }

            impl TryFrom<u32> for #name {
                type Error = crate::DecodeError;

                fn try_from(number: u32) -> Result<Self, crate::DecodeError> {
                    let place = crate::codec::Place { message: #message, field: #field };
                    Self::decode(u64::from(number), place)
                }
            }
        }
    }
}
