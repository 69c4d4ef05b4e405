//! Generates the `wire` crate from the schema in `proto/`.
//!
//! The schema defines the position of every field of a message with the options of `options/layout.proto`. This library
//! compiles it, reads it into a [`model`] (`read`), refuses inconsistent layouts (`geometry`), and generates
//! types, encoders, decoders, views, and the table of offsets (`emit`). Every error names the file, the message and the
//! field: see [`SchemaError`].
//!
//! ```no_run
//! wire_codegen::generate(&["proto".as_ref()], &["control.proto"], &[], "out".as_ref())?;
//! # Ok::<(), wire_codegen::Error>(())
//! ```
#![forbid(unsafe_code)]

mod emit;
mod error;
mod geometry;
pub mod model;
mod read;

use std::path::Path;

pub use error::{
    Construct, Declaration, Error, FieldType, Problem, SchemaError, Unsupported, WrongAlternative,
    WrongExtension,
};
pub use model::Schema;
use prost_reflect::DescriptorPool;

/// Reads and checks the schema of `files`, which are paths relative to one of `proto_dirs`.
///
/// # Errors
///
/// The files do not compile, or their layout is invalid.
pub fn check(proto_dirs: &[&Path], files: &[&str]) -> Result<Schema, Error> {
    checked(&compile(proto_dirs, files)?, files)
}

/// Checks the schema of `files` and writes the files that the `wire` crate includes to `out_dir`: one per module,
/// `layout_table.rs`, `recording.rs`, and prost's file of each package under `prost/`. `recorded` are files used in
/// recordings only: they have no layout, and get only prost's types.
///
/// # Errors
///
/// The files do not compile, their layout is invalid, or a file cannot be written.
pub fn generate(
    proto_dirs: &[&Path],
    files: &[&str],
    recorded: &[&str],
    out_dir: &Path,
) -> Result<(), Error> {
    let pool = compile(proto_dirs, &[files, recorded].concat())?;
    let schema = checked(&pool, files)?;
    for (name, text) in emit::files(&schema)? {
        let path = out_dir.join(name);
        std::fs::write(&path, text).map_err(|source| Error::Write { path, source })?;
    }
    emit::prost_types(&pool, &schema, recorded, out_dir)
}

fn checked(pool: &prost_reflect::DescriptorPool, files: &[&str]) -> Result<Schema, Error> {
    let schema = read::schema(pool, files)?;
    geometry::check(&schema)?;
    Ok(schema)
}

/// Compiles `files`, relative to one of `proto_dirs`, with their comments and options.
pub(crate) fn compile(proto_dirs: &[&Path], files: &[&str]) -> Result<DescriptorPool, Error> {
    let mut compiler =
        protox::Compiler::new(proto_dirs).map_err(|error| Error::Compile(error.to_string()))?;
    compiler.include_imports(true).include_source_info(true);
    compiler
        .open_files(files)
        .map_err(|error| error::explain(&error, proto_dirs))?;
    Ok(compiler.descriptor_pool())
}
