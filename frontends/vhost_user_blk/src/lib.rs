//! A vhost-user-blk back end in front of the storage.
#![forbid(unsafe_code)]

pub mod device;
#[cfg(test)]
mod guest;
pub mod inflight;
pub mod request;
pub mod ring;

/// An operation on a range of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads into the I/O's buffer.
    Read,
    /// Writes from the I/O's buffer.
    Write {
        /// Completes when the bytes are durable.
        fua: bool,
    },
    /// Makes all writes durable that have completed.
    Flush,
    /// Writes zeros.
    WriteZeroes {
        /// Completes when the zeros are durable.
        fua: bool,
    },
    /// The bytes are not needed any more.
    Discard,
}
