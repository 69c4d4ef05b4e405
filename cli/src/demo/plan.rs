//! Sizes, sessions and operation counts derived from the options.

use role_common::stored_block::{Geometry, MatrixType, STORED_ALIGNMENT};

use super::content::Content;
use super::layout::{Gga, Layout, Storage};
use super::options::LayoutChoice;
use super::{Error, Options};

/// Number of I/Os of a throughput test of all workers, unless limited by [`THROUGHPUT_BYTES`].
const THROUGHPUT_OPERATIONS: u64 = 400_000;
/// Maximum data transferred by a throughput test, unless two passes over the storage are more.
const THROUGHPUT_BYTES: u64 = 4 << 30;

/// Sizes and counts of a demo.
#[derive(Debug)]
pub struct Plan {
    pub layout: LayoutChoice,
    pub block_size: u32,
    pub block_count: u64,
    pub blocks_per_io: u16,
    pub workers: u32,
    pub transactions: u32,
    pub local_io_region_size: u64,
    pub matrix_type: MatrixType,
    /// Geometry of stored blocks for the storage's data.
    content_geometry: Geometry,
    /// Geometry of stored blocks for any data.
    any_geometry: Geometry,
    /// Operations per worker in throughput tests.
    throughput_operations: u32,
    /// Operations per worker that visit every block of its share once.
    pass: u32,
}

/// Expected counts of a successful session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Operations of the initiator: a write that is read back is one.
    pub operations: u64,
    pub service_ios: u64,
    /// I/Os of all targets.
    pub target_ios: u64,
    /// Blocks that the service read without one of its targets.
    pub recoveries: u64,
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
        let block_size = options.block_size;
        if options.layout.has_gga() && !block_size.is_multiple_of(STORED_ALIGNMENT) {
            return Err(Error::Options(format!(
                "--block-size {block_size}: a gga deployment needs a multiple of {STORED_ALIGNMENT}; with other sizes, use \
                 --layout zero-copy"
            )));
        }
        let any_geometry = Geometry::for_logical(block_size).expect("block sizes have a limit");
        let pass = (content.capacity / io_size).div_ceil(workers);
        let throughput =
            (THROUGHPUT_OPERATIONS.min(THROUGHPUT_BYTES / io_size) / workers).max(2 * pass);
        let count = |n: u64| {
            u32::try_from(n).map_err(|_| {
                Error::Options(format!("{n} operations are more than a role can count: use larger blocks or less content"))
            })
        };
        Ok(Self {
            layout: options.layout,
            block_size,
            block_count: content.capacity / u64::from(block_size),
            blocks_per_io: options.blocks_per_io,
            workers: options.workers,
            transactions: options.transactions,
            local_io_region_size: options.local_io_region_size,
            matrix_type: options.matrix_type,
            content_geometry: if content.compresses {
                Geometry::compatible(block_size)
            } else {
                any_geometry
            },
            any_geometry,
            throughput_operations: options.operations.map_or_else(|| count(throughput), Ok)?,
            // Checked for the longest run, three passes.
            pass: count(pass * 3).map(|three| three / 3)?,
        })
    }

    /// Expected counts of this session.
    pub fn expected(&self, run: &Run) -> Expected {
        let operations = u64::from(run.operations) * u64::from(self.workers);
        let blocks = u64::from(self.blocks_per_io);
        let ios = run.layout.target_ios(blocks);
        let (reads, writes) = (
            u64::from(run.strategy.reads()),
            u64::from(run.strategy.writes()),
        );
        let recoveries = match run.layout {
            // Each worker counts its own reads.
            Layout::Gga(Gga {
                recover_every: every @ 1..,
                ..
            }) => {
                reads * u64::from(run.operations) * blocks / u64::from(every)
                    * u64::from(self.workers)
            }
            _ => 0,
        };
        Expected {
            operations,
            service_ios: operations * (reads + writes),
            target_ios: operations * (reads * ios.read + writes * ios.write),
            recoveries,
        }
    }

    pub fn describe(&self, content: &Content) -> String {
        let mut layouts = Vec::new();
        if self.layout.has_zero_copy() {
            layouts.push("initiator -> zero-copy service -> target".to_owned());
        }
        if self.layout.has_gga() {
            layouts.push(format!(
                "initiator -> gga_offload service -> data_1, data_2, data_p ({} parity)",
                self.matrix_name()
            ));
        }
        if self.layout.has_volume() {
            layouts.push("ext4 image -> NBD server -> zero-copy service -> target".to_owned());
        }
        let mut text = format!(
            "doca-storage demo: {}\n\
             {} worker{} each, {} transactions, {} block{} per I/O\n\
             content: {} ({} bytes) on {} blocks of {} bytes; software DOCA, no BlueField involved",
            layouts.join("\n                   "),
            self.workers,
            if self.workers == 1 { "" } else { "s" },
            self.transactions,
            self.blocks_per_io,
            if self.blocks_per_io == 1 { "" } else { "s" },
            content.source.display(),
            content.source_len,
            self.block_count,
            self.block_size,
        );
        if self.layout.has_gga() && !self.content_geometry.is_compatible() {
            text.push_str(&format!(
                "\nit does not compress: gga targets hold half blocks of {} bytes (--logical-block-size {})",
                self.content_geometry.half_block_size(),
                self.block_size
            ));
        }
        text
    }

    /// The value of `--matrix-type`.
    pub fn matrix_name(&self) -> &'static str {
        match self.matrix_type {
            MatrixType::Cauchy => "cauchy",
            MatrixType::Vandermonde => "vandermonde",
        }
    }
}

// Sessions of the demo.

/// A session of the demo.
#[derive(Debug, Clone)]
pub struct Run {
    pub layout: Layout,
    /// Name in the table.
    pub title: &'static str,
    /// Strategy of the initiator.
    pub strategy: Strategy,
    /// Data that the initiator compares with, or writes.
    pub plain: Plain,
    /// Operations per worker.
    pub operations: u32,
}

/// Strategy of an initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    ReadThroughput,
    WriteThroughput,
    ReadValidation,
    WriteReadValidation,
}

/// Data of an initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// Its own pattern, different in each pass.
    Pattern,
    /// Data of the storage.
    Content,
    /// Incompressible data.
    Noise,
}

impl Strategy {
    /// Value of the initiator's `--execution-strategy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadThroughput => "read_throughput_test",
            Self::WriteThroughput => "write_throughput_test",
            Self::ReadValidation => "read_only_data_validity_test",
            Self::WriteReadValidation => "read_write_data_validity_test",
        }
    }

    fn reads(self) -> bool {
        self != Self::WriteThroughput
    }

    fn writes(self) -> bool {
        matches!(self, Self::WriteThroughput | Self::WriteReadValidation)
    }
}

impl Plan {
    /// Sessions, grouped by layout. Each makes at least two passes over the storage, unless the user sets the length
    /// of throughput tests.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        if self.layout.has_zero_copy() {
            runs.extend(self.zero_copy_runs());
        }
        if self.layout.has_gga() {
            runs.extend(self.gga_runs());
        }
        runs
    }

    /// All strategies.
    fn zero_copy_runs(&self) -> [Run; 5] {
        let run = |title, strategy, plain, operations| Run {
            layout: Layout::ZeroCopy,
            title,
            strategy,
            plain,
            operations,
        };
        let throughput = self.throughput_operations;
        [
            run(
                "read the file, compare",
                Strategy::ReadValidation,
                Plain::Content,
                self.pass * 2,
            ),
            run(
                "read throughput",
                Strategy::ReadThroughput,
                Plain::Pattern,
                throughput,
            ),
            run(
                "write throughput",
                Strategy::WriteThroughput,
                Plain::Pattern,
                throughput,
            ),
            run(
                "write the file, read it back",
                Strategy::WriteReadValidation,
                Plain::Content,
                self.pass * 2,
            ),
            run(
                "write a pattern, read it back",
                Strategy::WriteReadValidation,
                Plain::Pattern,
                self.pass * 3,
            ),
        ]
    }

    /// Sessions for errors of three targets: each chunk of every block is read and recovered from the others, written
    /// by the generator or by the service.
    fn gga_runs(&self) -> [Run; 6] {
        let read = |title, recover_every| Run {
            layout: Layout::Gga(Gga {
                geometry: self.content_geometry,
                storage: Storage::Content,
                recover_every,
            }),
            title,
            strategy: Strategy::ReadValidation,
            plain: Plain::Content,
            operations: self.pass * 2,
        };
        let write = |title, geometry, storage, plain| Run {
            layout: Layout::Gga(Gga {
                geometry,
                storage,
                // Odd, so that a second pass recovers other blocks than the first.
                recover_every: 3,
            }),
            title,
            strategy: Strategy::WriteReadValidation,
            plain,
            operations: self.pass * 2,
        };
        [
            read("read the file, recover every block", 1),
            read("read the file, recover every 2nd", 2),
            read("read the file, recover every 10th", 10),
            write(
                "write the file, read it back",
                self.content_geometry,
                Storage::Empty,
                Plain::Content,
            ),
            write(
                "write a pattern, read it back",
                self.content_geometry,
                Storage::Content,
                Plain::Pattern,
            ),
            write(
                "write random bytes, read them back",
                self.any_geometry,
                Storage::Content,
                Plain::Noise,
            ),
        ]
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
            compresses: true,
        }
    }

    #[test]
    fn every_block_is_visited_at_least_twice() {
        for workers in [1, 2, 3] {
            for blocks_per_io in [1, 4] {
                let options = Options {
                    layout: LayoutChoice::All,
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
    fn region_smaller_than_one_io_per_worker_is_refused() {
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

    #[test]
    fn block_sizes_that_cannot_be_halved_are_refused() {
        let options = |layout| Options {
            layout,
            block_size: 576,
            ..Options::default()
        };
        Plan::new(&options(LayoutChoice::ZeroCopy), &content(576 * 100)).expect("a plan");
        for layout in [LayoutChoice::Gga, LayoutChoice::All] {
            let error = Plan::new(&options(layout), &content(576 * 100))
                .expect_err("refused")
                .to_string();
            assert!(error.contains("a multiple of 128"), "{error}");
        }
    }

    #[test]
    fn recoveries_are_counted_by_each_worker() {
        let options = Options {
            layout: LayoutChoice::Gga,
            workers: 2,
            blocks_per_io: 8,
            ..Options::default()
        };
        let plan = Plan::new(&options, &content(4096 * 8 * 2 * 5)).expect("a plan");
        let recoveries: Vec<u64> = plan
            .runs()
            .iter()
            .map(|run| plan.expected(run).recoveries)
            .collect();
        // Each worker reads 80 blocks: ten I/Os of eight.
        assert_eq!(recoveries, [160, 80, 16, 52, 52, 52]);
        let writes = plan.expected(&plan.runs()[3]);
        assert_eq!(writes.operations, 20);
        assert_eq!(writes.service_ios, 40);
        assert_eq!(writes.target_ios, 20 * 8 * 5);
    }

    #[test]
    fn incompressible_content_gets_larger_stored_blocks() {
        let options = Options {
            layout: LayoutChoice::Gga,
            ..Options::default()
        };
        let mut content = content(1 << 20);
        let sizes = |content: &Content| {
            let plan = Plan::new(&options, content).expect("a plan");
            let of = |run: Run| match run.layout {
                Layout::Gga(gga) => gga.geometry.half_block_size(),
                Layout::ZeroCopy => panic!("{run:?}"),
            };
            plan.runs().into_iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&content), [2048, 2048, 2048, 2048, 2048, 2112]);
        content.compresses = false;
        assert_eq!(sizes(&content), [2112; 6]);
    }
}
