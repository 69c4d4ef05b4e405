//! A measured point: layout, operation, sizes and depths; the points that are measured over two machines, network namespaces with a
//! veth pair between them.

use std::fmt;

use serde::Serialize;

pub use deployment::implementation::Layout;
use deployment::network::{Network, Unavailable};

/// Operation of the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reads.
    Read,
    /// Reads that recover one half through the parity: gga only.
    RecoveryRead,
    /// Writes.
    Write,
}

/// A measured point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Point {
    /// Layout of the deployment.
    pub layout: Layout,
    /// Operation of the initiator.
    pub operation: Operation,
    /// Size of an I/O, and of a block, in bytes.
    pub block_size: u32,
    /// I/Os in flight per worker.
    pub transactions: u32,
    /// Number of workers of every role.
    pub workers: u32,
}

impl Point {
    /// Point of the first threshold: 4 KiB reads, 64 in flight, one worker.
    pub const ZERO_COPY_READ: Self = Self {
        layout: Layout::ZeroCopy,
        operation: Operation::Read,
        block_size: 4096,
        transactions: 64,
        workers: 1,
    };

    /// Number of blocks of the storage: large blocks do not all fit into the caches, and there are at least two blocks per
    /// transaction.
    pub fn block_count(&self) -> u32 {
        const STORAGE: u32 = 16 << 20;
        let least = 2 * self.transactions * self.workers;
        (STORAGE / self.block_size).clamp(least, 4096)
    }

    /// Size of the storage in bytes.
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

/// Machines: one of service and initiator, one of the target.
pub const MACHINES: usize = 2;

/// Compared workloads: zero-copy reads, for the rate, the latency, and the bandwidth.
pub fn network_points() -> [Point; 4] {
    let base = Point::ZERO_COPY_READ;
    let of = |block_size, transactions| Point {
        block_size,
        transactions,
        ..base
    };
    [base, of(4096, 1), of(64 << 10, 64), of(1 << 20, 16)]
}

/// Two machines that exist as long as the value.
///
/// # Errors
///
/// This user may not make network namespaces, or a program is missing.
pub fn network() -> Result<Network, Unavailable> {
    Network::new(MACHINES)
}
