//! From `.proto` files to descriptors, without a `protoc` binary.

use std::path::Path;

use prost_reflect::DescriptorPool;

use crate::{Error, locate};

/// Compiles `files`, relative to one of `proto_dirs`, with their comments and options.
pub(crate) fn compile(proto_dirs: &[&Path], files: &[&str]) -> Result<DescriptorPool, Error> {
    let mut compiler =
        protox::Compiler::new(proto_dirs).map_err(|error| Error::Compile(error.to_string()))?;
    compiler.include_imports(true).include_source_info(true);
    compiler
        .open_files(files)
        .map_err(|error| locate::explain(&error, proto_dirs))?;
    Ok(compiler.descriptor_pool())
}
