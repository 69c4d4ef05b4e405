//! Erasure coding: redundancy is created, updated, and turned back into lost data by the device.

mod builder;
mod instance;
mod matrix;

pub use builder::ErasureCodingBuilder;
pub use instance::ErasureCoding;
pub use matrix::{EcMatrix, EcMatrixType};
