//! Checks of an initiator with a scripted service, which holds the storage itself.

mod data_path;
mod service;
mod sessions;
mod strategies;

use wire::control::StorageDetails;

use super::Check;
use deployment::implementation::Usage;

/// Names of the checks with a local region that is smaller than the storage.
pub(super) const NEED_SMALL_REGIONS: [&str; 2] = ["small-local-region", "storage-beyond-4-gib"];

/// All checks, regular sessions first.
pub(super) fn checks() -> Vec<Check> {
    [
        strategies::CHECKS,
        sessions::CHECKS,
        strategies::GEOMETRY_CHECKS,
        data_path::RESULT_CHECKS,
        sessions::CONTROL_FAULT_CHECKS,
        sessions::DEPARTURE_CHECKS,
    ]
    .concat()
}

// Parameters of an initiator under test.

/// Flags of the initiator, and the storage that is presented to it.
#[derive(Debug, Clone)]
struct Plan {
    strategy: &'static str,
    flags: Vec<String>,
    workers: u32,
    operations: u32,
    transactions: u32,
    blocks_per_io: u32,
    details: StorageDetails,
    storage: Vec<u8>,
}

/// Default block size in bytes.
const BLOCK: u32 = 4096;

/// Default number of blocks.
const BLOCKS: u32 = 16;

impl Plan {
    /// One worker that submits one I/O for each block of the storage, with four in flight.
    fn new(strategy: &'static str) -> Self {
        Self {
            strategy,
            flags: Vec::new(),
            workers: 1,
            operations: BLOCKS,
            transactions: 4,
            blocks_per_io: 1,
            details: StorageDetails {
                total_size: u64::from(BLOCKS * BLOCK),
                block_size: BLOCK,
            },
            storage: content(BLOCKS * BLOCK, 0x5a),
        }
    }

    /// Adds flags.
    fn flags(mut self, flags: &[&str]) -> Self {
        self.flags
            .extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// Flags in addition to those of the fixture, as spelled by a program with this usage.
    fn arguments(&self, usage: &Usage) -> Vec<String> {
        let mut counts = vec![
            ("--run-limit-operation-count", self.operations),
            (usage.transactions_flag(), self.transactions),
        ];
        // Up to version 3.1 of the reference, an I/O is one block.
        if self.blocks_per_io != 1 || usage.has("--blocks-per-io") {
            counts.push(("--blocks-per-io", self.blocks_per_io));
        }
        let counts = counts
            .into_iter()
            .map(|(flag, count)| [flag.to_owned(), count.to_string()]);
        let mut arguments: Vec<_> = counts.flatten().collect();
        // The fixture adds the first.
        for _ in 1..self.workers {
            arguments.extend(["--cpu".to_owned(), "0".to_owned()]);
        }
        arguments.extend_from_slice(&self.flags);
        arguments
    }

    /// Sets a control timeout of 1 s.
    fn impatient(self) -> Self {
        self.flags(&["--control-timeout", "1"])
    }

    fn workers(mut self, count: u32) -> Self {
        self.workers = count;
        self
    }

    fn operations(mut self, count: u32) -> Self {
        self.operations = count;
        self
    }

    fn transactions(mut self, count: u32) -> Self {
        self.transactions = count;
        self
    }

    fn blocks_per_io(mut self, count: u32) -> Self {
        self.blocks_per_io = count;
        self
    }

    /// Reports a storage of this size, without contents: no data may be transferred.
    fn claiming(mut self, total_size: u64, block_size: u32) -> Self {
        self.details = StorageDetails {
            total_size,
            block_size,
        };
        self.storage = Vec::new();
        self
    }

    fn block_size(mut self, size: u32) -> Self {
        self.details.block_size = size;
        self
    }

    /// Sets the contents of the storage.
    fn holding(mut self, storage: Vec<u8>) -> Self {
        self.details.total_size = storage.len() as u64;
        self.storage = storage;
        self
    }
}

/// Bytes that differ between blocks, within a block, and from those with another `salt`.
fn content(len: u32, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i / BLOCK * 31 + i * 7 + i / 251) as u8 ^ salt)
        .collect()
}
