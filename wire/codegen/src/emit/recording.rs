//! Conversions between the generated types and prost's, for all recorded messages.

use proc_macro2::TokenStream;
use quote::quote;

use super::names::{camel, docs, held, ident, shouty, snake};
use crate::model::{Field, Form, Frame, Kind, Message, Module, Schema};

pub(super) fn code(schema: &Schema) -> TokenStream {
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
                super::names::number(crate::read::largest_number(*width)),
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
            // A negative number becomes one that is in no enumeration.
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
    // A message with constants only does not depend on the recorded one.
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
