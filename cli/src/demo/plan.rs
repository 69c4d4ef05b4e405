//! What the options mean: how many blocks, which runs, how many operations in each.

use super::content::Content;
use super::{Error, Options};

/// I/Os of a throughput test, all workers together, unless its bytes are more than [`THROUGHPUT_BYTES`].
const THROUGHPUT_OPERATIONS: u64 = 400_000;
/// Bytes that a throughput test moves at most, unless two passes over the storage are more.
const THROUGHPUT_BYTES: u64 = 4 << 30;

/// Sizes and counts of a demo.
#[derive(Debug)]
pub struct Plan {
    pub block_size: u32,
    pub block_count: u64,
    pub blocks_per_io: u16,
    pub workers: u32,
    pub transactions: u32,
    pub local_io_region_size: u64,
    /// The throughput tests' operations of each worker.
    throughput_operations: u32,
    /// Operations of each worker that visit every block of its share once.
    pass: u32,
}

/// One session of the demo.
#[derive(Debug, Clone)]
pub struct Run {
    /// What the table calls it.
    pub title: &'static str,
    /// Value of the initiator's `--execution-strategy`.
    pub strategy: &'static str,
    /// The initiator compares with, or writes, the content file.
    pub plain_content: bool,
    /// Operations of each worker.
    pub operations: u32,
    /// I/Os that target and service see for one operation of the initiator.
    pub ios_per_operation: u64,
}

impl Plan {
    pub fn new(options: &Options, content: &Content) -> Result<Self, Error> {
        let io_size = u64::from(options.block_size) * u64::from(options.blocks_per_io);
        let workers = u64::from(options.workers);
        let smallest_region = io_size * workers;
        if options.local_io_region_size != 0 && options.local_io_region_size < smallest_region {
            return Err(Error::Options(format!(
                "--local-io-region-size {}: {workers} workers with I/Os of {io_size} bytes need at least {smallest_region} bytes, or 0",
                options.local_io_region_size
            )));
        }
        let pass = (content.capacity / io_size).div_ceil(workers);
        let throughput =
            (THROUGHPUT_OPERATIONS.min(THROUGHPUT_BYTES / io_size) / workers).max(2 * pass);
        let count = |n: u64| {
            u32::try_from(n).map_err(|_| {
                Error::Options(format!("{n} operations are more than a role can count: use larger blocks or less content"))
            })
        };
        Ok(Self {
            block_size: options.block_size,
            block_count: content.capacity / u64::from(options.block_size),
            blocks_per_io: options.blocks_per_io,
            workers: options.workers,
            transactions: options.transactions,
            local_io_region_size: options.local_io_region_size,
            throughput_operations: options.operations.map_or_else(|| count(throughput), Ok)?,
            // Checked for the longest run, three passes.
            pass: count(pass * 3).map(|three| three / 3)?,
        })
    }

    /// The sessions: every strategy, every block at least twice.
    pub fn runs(&self) -> Vec<Run> {
        let run = |title, strategy, plain_content, operations, ios_per_operation| Run {
            title,
            strategy,
            plain_content,
            operations,
            ios_per_operation,
        };
        vec![
            run(
                "read the file, compare",
                "read_only_data_validity_test",
                true,
                self.pass * 2,
                1,
            ),
            run(
                "read throughput",
                "read_throughput_test",
                false,
                self.throughput_operations,
                1,
            ),
            run(
                "write throughput",
                "write_throughput_test",
                false,
                self.throughput_operations,
                1,
            ),
            run(
                "write the file, read it back",
                "read_write_data_validity_test",
                true,
                self.pass * 2,
                2,
            ),
            run(
                "write a pattern, read it back",
                "read_write_data_validity_test",
                false,
                self.pass * 3,
                2,
            ),
        ]
    }

    pub fn describe(&self, content: &Content) -> String {
        format!(
            "doca-storage demo: initiator -> zero-copy service -> target, {} worker{} each, {} transactions, {} block{} per I/O\n\
             content: {} ({} bytes) on {} blocks of {} bytes; software DOCA, no BlueField involved",
            self.workers,
            if self.workers == 1 { "" } else { "s" },
            self.transactions,
            self.blocks_per_io,
            if self.blocks_per_io == 1 { "" } else { "s" },
            content.source.display(),
            content.source_len,
            self.block_count,
            self.block_size,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(capacity: u64) -> Content {
        Content {
            source: "source".into(),
            source_len: 1,
            path: "path".into(),
            capacity,
        }
    }

    #[test]
    fn every_block_is_visited_at_least_twice() {
        for workers in [1, 2, 3] {
            for blocks_per_io in [1, 4] {
                let options = Options {
                    workers,
                    blocks_per_io,
                    ..Options::default()
                };
                let plan = Plan::new(&options, &content(4096 * 4 * 100)).expect("a plan");
                for run in plan.runs() {
                    let blocks =
                        u64::from(run.operations) * u64::from(workers) * u64::from(blocks_per_io);
                    assert!(blocks >= 2 * plan.block_count, "{run:?}");
                }
            }
        }
    }

    #[test]
    fn a_region_without_room_for_one_io_per_worker_is_refused() {
        let options = Options {
            workers: 2,
            local_io_region_size: 4096,
            ..Options::default()
        };
        let error = Plan::new(&options, &content(1 << 20))
            .expect_err("refused")
            .to_string();
        assert!(error.contains("at least 8192 bytes"), "{error}");
    }
}
