//! A measured point: layout, operation, sizes and depths.

use std::fmt;

use serde::Serialize;

pub use deployment::implementation::Layout;

/// The initiator's operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reads.
    Read,
    /// Reads of which each has to do without one half: gga only.
    RecoveryRead,
    /// Writes.
    Write,
}

/// A measured point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Point {
    /// The layout.
    pub layout: Layout,
    /// The operation.
    pub operation: Operation,
    /// Bytes of an I/O, and of a block.
    pub block_size: u32,
    /// I/Os on their way per worker.
    pub transactions: u32,
    /// Workers of every role.
    pub workers: u32,
}

impl Point {
    /// The point of the first bar: 4 KiB reads, 64 at a time, one worker.
    pub const ZERO_COPY_READ: Self = Self {
        layout: Layout::ZeroCopy,
        operation: Operation::Read,
        block_size: 4096,
        transactions: 64,
        workers: 1,
    };

    /// Blocks of the storage: enough that they are not all in the caches at once where blocks are large, and at least two for
    /// every transaction.
    pub fn block_count(&self) -> u32 {
        const STORAGE: u32 = 16 << 20;
        let least = 2 * self.transactions * self.workers;
        (STORAGE / self.block_size).clamp(least, 4096)
    }

    /// Bytes of the storage.
    pub fn capacity(&self) -> u64 {
        u64::from(self.block_count()) * u64::from(self.block_size)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::RecoveryRead => "recovery read",
            Self::Write => "write",
        })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            layout,
            operation,
            block_size,
            transactions,
            workers,
        } = self;
        let size = match block_size {
            size if size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
            size if size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
            size => format!("{size} B"),
        };
        write!(f, "{layout} {operation} {size} x{transactions}")?;
        if *workers > 1 {
            write!(f, ", {workers} workers")?;
        }
        Ok(())
    }
}
