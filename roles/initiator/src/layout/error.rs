//! Mismatch between a storage and the flags.

use role_common::Failure;
use thiserror::Error;

/// Mismatch between a storage and the flags.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// The service reports an impossible geometry.
    #[error(
        "the service reports a capacity of {total_size} bytes in blocks of {block_size} bytes; expected a whole, non-zero number of blocks"
    )]
    Geometry {
        /// Capacity, bytes.
        total_size: u64,
        /// Block size, bytes.
        block_size: u32,
    },
    /// The size of an I/O does not fit the protocol's field.
    #[error(
        "--blocks-per-io {blocks_per_io} makes I/Os of {blocks_per_io} * {block_size} bytes; expected at most {} bytes",
        u32::MAX
    )]
    IoSize {
        /// Value of the flag.
        blocks_per_io: u16,
        /// Block size, bytes.
        block_size: u32,
    },
    /// More I/Os than the address pools support.
    #[error(
        "the storage holds {count} I/Os of {io_size} bytes; expected at most {}; raise --blocks-per-io",
        u32::MAX
    )]
    TooManyIos {
        /// Number of I/Os.
        count: u64,
        /// Bytes per I/O.
        io_size: u32,
    },
    /// A worker would have no storage.
    #[error(
        "the storage holds {count} I/Os of {io_size} bytes; expected at least one for each of the {workers} --cpu; give fewer"
    )]
    StorageTooSmall {
        /// Number of I/Os.
        count: u32,
        /// Bytes per I/O.
        io_size: u32,
        /// Number of workers.
        workers: u32,
    },
    /// A worker would have no local memory.
    #[error(
        "--local-io-region-size {size} holds {slots} I/Os of {io_size} bytes; expected at least one for each of the {workers} --cpu, \
         {} bytes", u64::from(*.io_size) * u64::from(*.workers)
    )]
    RegionTooSmall {
        /// Value of the flag, bytes.
        size: u64,
        /// Number of I/Os that fit.
        slots: u32,
        /// Bytes per I/O.
        io_size: u32,
        /// Number of workers.
        workers: u32,
    },
    /// Expected data and storage differ in size.
    #[error(
        "--storage-plain-content has {content} bytes and the storage {capacity}; a validity test expects the same size"
    )]
    ContentSize {
        /// Size of the file, bytes.
        content: u64,
        /// Capacity of the storage, bytes.
        capacity: u64,
    },
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        Self::invalid(error.to_string())
    }
}
