//! Generates Rust code from the model: formatted token streams, one file per module and two for all modules.
//!
//! The generated code uses `crate::codec` for the steps of decoders and encoders, `crate::DecodeError`, `crate::hex`
//! for blobs in JSON, and `crate::layout` for the types of the table.

mod enumeration;
mod field;
mod frame;
mod names;
mod record;
mod recording;
mod table;
mod view;

use std::path::Path;

use proc_macro2::TokenStream;
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::FileDescriptorSet;
use quote::quote;

use crate::Error;
use crate::model::{Form, Module, Schema};

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
        ("layout_table", table::code(schema)),
        ("recording", recording::code(schema)),
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
    let enums = module
        .enums
        .iter()
        .map(|item| enumeration::code(module, item));
    let messages = module.messages.iter().map(|message| match &message.form {
        Form::Frame(frame) => frame::code(module, message, frame),
        Form::Payload => frame::payload_code(message),
        Form::View => view::code(module, message),
        Form::Record { .. } => record::code(module, message),
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
