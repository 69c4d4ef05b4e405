//! What the generator prints at the end.

use std::fmt;
use std::path::PathBuf;

use role_common::stored_block::{Checksum, MatrixType};
use serde::Serialize;

/// The files that were made.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Bytes of content per block.
    pub(crate) block_size: u32,
    /// Bytes that are stored per block; each file has half as many.
    pub(crate) stored_block_size: u32,
    pub(crate) block_count: u32,
    pub(crate) matrix_type: MatrixType,
    pub(crate) checksum: Checksum,
    pub(crate) data_1: PathBuf,
    pub(crate) data_2: PathBuf,
    pub(crate) data_p: PathBuf,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Output info:")?;
        writeln!(f, "\tBlock size: {}", self.block_size)?;
        if self.stored_block_size != self.block_size {
            writeln!(f, "\tStored block size: {}", self.stored_block_size)?;
        }
        writeln!(f, "\tOut block count: {}", self.block_count)?;
        for (name, path) in [
            ("1", &self.data_1),
            ("2", &self.data_2),
            ("p", &self.data_p),
        ] {
            writeln!(f, "\tData {name}({}) created successfully", path.display())?;
        }
        Ok(())
    }
}
