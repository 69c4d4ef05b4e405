//! Why a data path failed.

use std::fmt;
use std::time::Duration;

use doca::ErrorCode;
use serde::Serialize;
use thiserror::Error;
use volume::endpoint::EndpointError;

/// The first byte of a block that is not as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Number of the block in the storage.
    pub block: u64,
    /// Offset of the byte in the block.
    pub offset: u64,
    /// Offset of the byte in the storage.
    pub storage_offset: u64,
    /// The byte that should be there.
    pub expected: u8,
    /// The byte that is there.
    pub actual: u8,
    /// How often this run had written the block, where it writes.
    pub pass: Option<u32>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            block,
            offset,
            storage_offset,
            expected,
            actual,
            pass,
        } = self;
        write!(
            f,
            "block {block}, byte offset {offset}: expected 0x{expected:02x}, actual 0x{actual:02x} (storage offset {storage_offset}"
        )?;
        if let Some(pass) = pass {
            write!(f, ", pass {pass}")?;
        }
        f.write_str(")")
    }
}

/// What an I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the storage.
    Read,
    /// To the storage.
    Write,
    /// Makes durable what was written.
    Flush,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        })
    }
}

/// An I/O, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Whether it reads or writes.
    pub direction: Direction,
    /// Where it begins in the storage, bytes.
    pub storage_offset: u64,
    /// Its size, bytes.
    pub size: u32,
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.direction == Direction::Flush {
            return self.direction.fmt(f);
        }
        write!(
            f,
            "{} of {} bytes at storage offset {}",
            self.direction, self.size, self.storage_offset
        )
    }
}

/// Why a data path failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// A block does not hold what it should.
    #[error("the data read from the storage is not as expected: {0}")]
    Mismatch(Mismatch),
    /// The storage reported that an I/O failed.
    #[error("{io} failed: {} ({})", ErrorCode(*.code).name(), .code)]
    Io {
        /// The I/O.
        io: Io,
        /// `doca_error_t` in its result.
        code: u32,
    },
    /// An I/O was not answered in time.
    #[error("{io} was not answered within --io-timeout {} s", .after.as_secs_f64())]
    Timeout {
        /// The I/O.
        io: Io,
        /// The timeout.
        after: Duration,
    },
    /// The exchange of messages with the service failed.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The run was halted before all operations were done.
    #[error("halted after {completed} of {expected} operations")]
    Halted {
        /// Operations done.
        completed: u64,
        /// Operations to do.
        expected: u64,
    },
}

impl Failure {
    /// Returns `true` if this is a statement about the storage, rather than about the machinery or the consequence of something else.
    #[must_use]
    pub const fn is_verdict(&self) -> bool {
        matches!(
            self,
            Self::Mismatch(_)
                | Self::Io { .. }
                | Self::Timeout { .. }
                | Self::Endpoint(EndpointError::Answer(_))
        )
    }

    /// The first byte that was not as expected, where that is the failure.
    #[must_use]
    pub const fn mismatch(&self) -> Option<Mismatch> {
        match self {
            Self::Mismatch(mismatch) => Some(*mismatch),
            _ => None,
        }
    }
}

impl From<Failure> for role_common::Failure {
    fn from(failure: Failure) -> Self {
        let code = match &failure {
            Failure::Io { code, .. } => ErrorCode(*code),
            Failure::Endpoint(EndpointError::Doca { code, .. }) => *code,
            Failure::Timeout { .. } => ErrorCode::TIME_OUT,
            Failure::Mismatch(_) => ErrorCode::IO_FAILED,
            Failure::Endpoint(EndpointError::Answer(_)) => ErrorCode::UNEXPECTED,
            Failure::Halted { .. } => ErrorCode::CONNECTION_ABORTED,
        };
        Self::new(code, failure.to_string())
    }
}
