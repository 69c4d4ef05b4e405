//! What is measured.

use std::fmt;

use serde::Serialize;

/// Which service, over which targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// `zero_copy`, over one target.
    ZeroCopy,
    /// `gga_offload`, over three.
    Gga,
}

/// What the initiator asks for.
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

/// One point of the axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Point {
    /// Which service.
    pub layout: Layout,
    /// What it is asked for.
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

impl Layout {
    /// What its targets are called.
    pub fn targets(self) -> &'static [&'static str] {
        match self {
            Self::ZeroCopy => &["target"],
            Self::Gga => &["data_1", "data_2", "data_p"],
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroCopy => "zero copy",
            Self::Gga => "gga",
        })
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
