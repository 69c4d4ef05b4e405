//! I/Os of a volume, as submitted and reaped by its users.

use doca::ErrorCode;
use thiserror::Error;

use crate::buffer::Buffer;

/// An operation on a range of bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads into the I/O's buffer.
    Read,
    /// Writes the I/O's buffer.
    Write {
        /// Completes when the bytes are durable. Needs [`Capabilities::fua`](crate::Capabilities::fua).
        fua: bool,
    },
    /// Completes when all writes are durable that had completed, on any queue of the volume, before the flush was
    /// submitted. Offset and length are ignored. Needs [`Capabilities::flush`](crate::Capabilities::flush).
    Flush,
    /// Writes zeros; needs no buffer.
    WriteZeroes {
        /// As for [`Operation::Write`].
        fua: bool,
    },
    /// Declares the bytes unused. They read as zeros afterwards; needs no buffer.
    Discard,
}

impl Operation {
    /// Returns `true` for an operation that changes the volume's bytes.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::WriteZeroes { .. } | Self::Discard
        )
    }

    /// Returns `true` for an operation that transfers data between the volume and the I/O's buffer.
    #[must_use]
    pub const fn has_buffer(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }
}

/// An I/O to submit.
#[derive(Debug)]
pub struct Io {
    /// Returned in the [`Completion`].
    pub tag: u64,
    /// Operation.
    pub operation: Operation,
    /// Offset in the volume in bytes.
    pub offset: u64,
    /// Length in bytes. Reads and writes use as many bytes of the buffer, from its first byte on.
    pub len: u32,
    /// Data of a read or a write, from [`Queue::buffer`](crate::Queue::buffer) of the queue that it is submitted to.
    /// Other operations ignore and return it.
    pub buffer: Option<Buffer>,
}

/// A completed I/O.
#[derive(Debug)]
pub struct Completion {
    /// The I/O's tag.
    pub tag: u64,
    /// Result. After an error, the contents of a read's buffer are unspecified, and a write may have been performed partially.
    pub result: Result<(), IoError>,
    /// The I/O's buffer.
    pub buffer: Option<Buffer>,
}

/// Error of an I/O.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoError {
    /// The range exceeds the volume.
    #[error("{len} bytes at offset {offset} are not inside a volume of {size} bytes")]
    OutOfRange {
        /// Offset of the I/O in bytes.
        offset: u64,
        /// Length of the I/O in bytes.
        len: u32,
        /// Size of the volume in bytes.
        size: u64,
    },
    /// A read or a write without a buffer of at least its length, or with a buffer of another queue.
    #[error("expected a buffer of this queue with at least {expected} bytes, got {actual}")]
    Buffer {
        /// Length of the I/O in bytes.
        expected: u32,
        /// Length of the buffer in bytes; 0 without one, or with one of another queue.
        actual: u32,
    },
    /// A write to a volume that was opened read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The storage cannot make writes durable: it has not announced flushes.
    #[error(
        "the storage has no flush: nothing that is written to it is known to survive a power failure"
    )]
    Unsupported,
    /// The storage completed a request with an error.
    #[error("the storage failed the I/O: {} ({})", ErrorCode(*.code).name(), .code)]
    Failed {
        /// `doca_error_t` of the result.
        code: u32,
    },
    /// There has been no session with the service for longer than
    /// [`Config::reconnect_timeout`](crate::Config::reconnect_timeout). Writes may have been performed, completely or
    /// partially.
    #[error("the storage service is gone, and did not come back within the reconnect timeout")]
    Disconnected,
    /// The storage of the new session is smaller, or has another block size, or lacks flush, which the first one had.
    #[error("the storage service came back with another storage")]
    Changed,
    /// The volume was closed.
    #[error("the volume is closed")]
    Closed,
}
