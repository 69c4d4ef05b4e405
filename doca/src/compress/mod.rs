//! Compression: deflate both ways and LZ4 back, done by the device.

mod builder;
mod instance;
mod task;

pub use builder::CompressBuilder;
pub use instance::{Compress, Lz4Stream};
pub use task::{CompressTask, DeflateChecksums, Lz4Checksums};
