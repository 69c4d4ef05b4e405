//! The data path of one worker thread: submits requests, handles their completions, and keeps all transactions in flight.
//!
//! * [`Failure`], [`Mismatch`]: failures of a run
//! * [`Content`], [`Validator`]: expected contents of blocks, and the comparison of memory with them
//! * [`Transactions`]: the state of the transactions, without contexts
//! * [`Worker`]: the loop over the completions of its requests ([`volume::endpoint`])
//!
//! Per I/O there is no allocation, no lock, no log and no system call of this crate's; the clock is read once.

mod content;
mod transactions;
mod worker;

use std::fmt;
use std::time::Duration;

use doca::ErrorCode;
use serde::Serialize;
use thiserror::Error;
use volume::endpoint::EndpointError;

pub use content::{Content, Extent, Pattern, Validator};
pub use transactions::{Measurements, Task, Transactions};
pub use worker::{AnyWorker, Command, Messaging, Outcome, Worker, create};

/// First byte of a block that differs from the expected data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Number of the block in the storage.
    pub block: u64,
    /// Offset of the byte in the block, in bytes.
    pub offset: u64,
    /// Offset of the byte in the storage, in bytes.
    pub storage_offset: u64,
    /// Expected value of the byte.
    pub expected: u8,
    /// Actual value of the byte.
    pub actual: u8,
    /// Number of times that this run had written the block, in a test that writes.
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

/// Operation of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the storage.
    Read,
    /// To the storage.
    Write,
    /// Makes completed writes durable.
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

/// An I/O, for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Operation.
    pub direction: Direction,
    /// Offset in the storage in bytes.
    pub storage_offset: u64,
    /// Size in bytes.
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

/// Failure of a data path.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// The contents of a block differ from the expected data.
    #[error("the data read from the storage is not as expected: {0}")]
    Mismatch(Mismatch),
    /// The storage completed an I/O with an error.
    #[error("{io} failed: {} ({})", ErrorCode(*.code).name(), .code)]
    Io {
        /// Failed I/O.
        io: Io,
        /// `doca_error_t` of the result.
        code: u32,
    },
    /// An I/O has no result after the timeout.
    #[error("{io} was not answered within --io-timeout {} s", .after.as_secs_f64())]
    Timeout {
        /// Unanswered I/O.
        io: Io,
        /// Timeout.
        after: Duration,
    },
    /// The exchange of messages with the service failed.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The run was stopped before all operations had completed.
    #[error("halted after {completed} of {expected} operations")]
    Halted {
        /// Completed operations.
        completed: u64,
        /// Requested operations.
        expected: u64,
    },
}

impl Failure {
    /// Returns `true` for a result about the storage, rather than about the connection or a consequence of another failure.
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

    /// The first wrong byte, if the failure is a mismatch.
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

#[cfg(test)]
mod tests;
