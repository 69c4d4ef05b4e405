//! Generates Rust code from the model: formatted token streams, one file per module and two for all modules.
//!
//! The generated code uses `crate::codec` for the steps of decoders and encoders, `crate::DecodeError`, and
//! `crate::layout` for the types of the table.

mod all_modules;
mod field;
mod fixed;
mod frame;

use std::path::Path;

use field::{camel, docs, expected_of, ident, number, snake};
use proc_macro2::{Ident, TokenStream};
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::FileDescriptorSet;
use quote::quote;

use crate::Error;
use crate::model::{Enum, Form, Module, Schema};

/// Directory of prost's files. They are named after packages, which may have the name of a module.
pub(crate) const PROST_DIR: &str = "prost";

/// Names and contents of the generated files.
pub(crate) fn files(schema: &Schema) -> Result<Vec<(String, String)>, Error> {
    let mut files = Vec::new();
    for module in &schema.modules {
        files.push((
            format!("{}.rs", module.name),
            text(&module.name, code(module))?,
        ));
    }
    for (name, tokens) in [
        ("layout_table", all_modules::layout_table(schema)),
        ("recording", all_modules::recording(schema)),
    ] {
        files.push((format!("{name}.rs"), text(name, tokens)?));
    }
    Ok(files)
}

/// Generates prost's types of the same messages, for recordings, and of `recorded`: files of the pool without a layout,
/// which import the others.
pub(crate) fn prost_types(
    pool: &DescriptorPool,
    schema: &Schema,
    recorded: &[&str],
    out_dir: &Path,
) -> Result<(), Error> {
    let files: Vec<&str> = schema
        .modules
        .iter()
        .map(|module| module.file.as_str())
        .chain(recorded.iter().copied())
        .collect();
    // Includes imports, because prost resolves them, but not the options, which are never recorded.
    let imported = |name: &str| {
        files.iter().any(|file| {
            pool.get_file_by_name(file)
                .is_some_and(|file| file.dependencies().any(|import| import.name() == name))
        })
    };
    let file = pool
        .file_descriptor_protos()
        .filter(|file| {
            files.contains(&file.name()) || (imported(file.name()) && file.extension.is_empty())
        })
        .cloned()
        .collect();
    let out_dir = out_dir.join(PROST_DIR);
    std::fs::create_dir_all(&out_dir).map_err(|source| Error::Write {
        path: out_dir.clone(),
        source,
    })?;
    prost_build::Config::new()
        .bytes(["."])
        .out_dir(out_dir)
        .compile_fds(FileDescriptorSet { file })
        .map_err(Error::Prost)
}

fn code(module: &Module) -> TokenStream {
    let enums = module.enums.iter().map(|item| enumeration(module, item));
    let messages = module.messages.iter().map(|message| match &message.form {
        Form::Frame(frame) => frame::code(module, message, frame),
        Form::Payload => frame::payload_code(message),
        Form::View => fixed::view(module, message),
        Form::Record { .. } => fixed::record(module, message),
    });
    quote! {
        #(#enums)*
        #(#messages)*
    }
}

fn text(module: &str, tokens: TokenStream) -> Result<String, Error> {
    let file = syn::parse2(tokens).map_err(|error| Error::Unparsable {
        module: module.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(prettyplease::unparse(&file))
}

/// Parts of a generated enumeration.
struct Enumeration<'a> {
    name: Ident,
    docs: String,
    /// Name in the schema, number and documentation of each value.
    values: Vec<(&'a str, u32, String)>,
    /// The accepted values, for error messages.
    expected: String,
    /// Message and field for the errors of the public conversion.
    place: (String, String),
}

/// An enumeration of the schema.
fn enumeration(module: &Module, item: &Enum) -> TokenStream {
    Enumeration {
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

impl Enumeration<'_> {
    fn tokens(&self) -> TokenStream {
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
