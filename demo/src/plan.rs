//! Sessions of the demo, derived from the options: deployments, sizes, operation counts, and the initial data, made from a real file.

use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use role_common::console::counted;
use role_formats::stored_block::{Encoder, Geometry, MatrixType, STORED_ALIGNMENT};

use super::{Error, LayoutChoice, Options};

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
    /// Operations of the initiator: a write that is read back is one operation.
    pub operations: u64,
    pub service_ios: u64,
    /// I/Os of all targets. Targets of a set may have additional I/Os: flushes, after which the targets may reuse the
    /// space of earlier versions of blocks.
    pub target_ios: u64,
    pub has_further_target_ios: bool,
    /// Number of blocks that the service read without one of its targets.
    pub recoveries: u64,
}

impl Plan {
    pub fn new(options: &Options, content: &Content) -> Result<Self, Error> {
        let io_size = u64::from(options.block_size) * u64::from(options.blocks_per_io);
        let workers = u64::from(options.workers);
        let smallest_region = io_size * workers;
        if options.local_io_region_size != 0 && options.local_io_region_size < smallest_region {
            return Err(Error::Options(format!(
                "--local-io-region-size: expected 0 or at least {smallest_region} bytes for {} with I/Os of {io_size} bytes, got {}",
                counted(workers, "worker"),
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
            has_further_target_ios: matches!(run.layout, Layout::Gga(gga) if gga.is_set()),
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
                "\nit does not compress: gga targets hold chunks of {} bytes (--logical-block-size {})",
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
    pub strategy: Strategy,
    /// Data that the initiator compares with, or writes.
    pub plain: Plain,
    /// Operations per worker.
    pub operations: u32,
}

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
    /// A separate pattern for each pass.
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

    /// Sessions for errors of three targets: each chunk of every block is read, and recovered from the other chunks,
    /// after it was written by the generator or by the service. Compressible content is stored in the reference's form;
    /// patterns, random bytes and other content are stored as chunks of a new set.
    fn gga_runs(&self) -> [Run; 6] {
        let run = |title, strategy, plain, gga| Run {
            layout: Layout::Gga(gga),
            title,
            strategy,
            plain,
            operations: self.pass * 2,
        };
        let read = |title, recover_every| {
            let gga = Gga {
                geometry: self.content_geometry,
                storage: Storage::Content,
                recover_every,
            };
            run(title, Strategy::ReadValidation, Plain::Content, gga)
        };
        let write = |title, plain, geometry, recover_every| {
            let gga = Gga {
                geometry,
                storage: Storage::Empty,
                recover_every,
            };
            run(title, Strategy::WriteReadValidation, plain, gga)
        };
        // Odd, so that a second pass recovers different blocks than the first.
        const ODD: u32 = 3;
        let [first, second, third] = if self.content_geometry.is_compatible() {
            [
                read("read the file, recover every block", 1),
                read("read the file, recover every 2nd", 2),
                read("read the file, recover every 10th", 10),
            ]
        } else {
            [
                ("write the file, recover every block", 1),
                ("write the file, recover every 2nd", 2),
                ("write the file, recover every 10th", 10),
            ]
            .map(|(title, every)| write(title, Plain::Content, self.any_geometry, every))
        };
        [
            first,
            second,
            third,
            write(
                "write the file, read it back",
                Plain::Content,
                self.content_geometry,
                ODD,
            ),
            write(
                "write a pattern, read it back",
                Plain::Pattern,
                self.any_geometry,
                ODD,
            ),
            write(
                "write random bytes, read them back",
                Plain::Noise,
                self.any_geometry,
                ODD,
            ),
        ]
    }
}

// Deployments of the demo: a service and its targets.

/// A deployment of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The zero-copy service, and a target with the content.
    ZeroCopy,
    /// The gga_offload service, and three targets.
    Gga(Gga),
}

/// Parameters of a gga deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gga {
    /// Sizes of the blocks on the targets.
    pub geometry: Geometry,
    /// Initial data of the targets.
    pub storage: Storage,
    /// Interval of recovery reads, `--trigger-recovery-read-every-n`; 0 for none.
    pub recover_every: u32,
}

impl Gga {
    /// Returns `true` if blocks are stored as chunks of a set.
    pub fn is_set(&self) -> bool {
        !self.geometry.is_compatible()
    }
}

/// Initial data of gga targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// The data, in the generator's files.
    Content,
    /// Zeros: blocks that were never written, which the reference's form cannot represent.
    Empty,
}

impl Layout {
    /// Name as a value of `--layout`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ZeroCopy => "zero-copy",
            Self::Gga(_) => "gga",
        }
    }

    /// Subcommand of the layout's service.
    pub fn service(&self) -> &'static str {
        match self {
            Self::ZeroCopy => "zero-copy",
            Self::Gga(_) => "gga-offload",
        }
    }

    /// The services and targets of the layout.
    pub fn kind(&self) -> deployment::implementation::Layout {
        match self {
            Self::ZeroCopy => deployment::implementation::Layout::ZeroCopy,
            Self::Gga(_) => deployment::implementation::Layout::Gga,
        }
    }

    /// Positions of the service and of the first target in the order of CPU allocation, after the initiator. With few
    /// CPUs, the last positions share them: zero-copy services handle no data, gga services the most.
    pub fn cpu_order(&self) -> (usize, usize) {
        match self {
            Self::ZeroCopy => (2, 1),
            Self::Gga(_) => (1, 2),
        }
    }

    /// I/Os of all targets for one I/O of the initiator with this number of blocks.
    pub fn target_ios(&self, blocks_per_io: u64) -> TargetIos {
        match self {
            // The service forwards the initiator's I/O.
            Self::ZeroCopy => TargetIos { read: 1, write: 1 },
            // Per block: two chunks, or all three.
            Self::Gga(_) => TargetIos {
                read: 2 * blocks_per_io,
                write: 3 * blocks_per_io,
            },
        }
    }
}

/// I/Os of all targets for one I/O of the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetIos {
    pub read: u64,
    pub write: u64,
}

// Initial data of the storage, made from a real file.

/// Smallest storage worth measuring, in bytes.
const SMALLEST_STORAGE: u64 = 1 << 20;
/// Minimum number of I/Os per worker.
const IOS_PER_WORKER: u64 = 8;
/// The same for gga deployments with large I/Os, which compress all data in every session.
const LARGE_IOS_PER_WORKER: u64 = 2;
/// Total size in bytes of one I/O per worker from which on I/Os count as large.
const LARGE_IOS: u64 = 4 << 20;
/// Maximum size of a `.sbc` file's data, and so of the demo's storage.
const LARGEST_STORAGE: u64 = 2 << 30;

/// Default for `--content`: a real file of about 100 KB, embedded in the program.
const BUNDLED: &[u8] = include_bytes!("../../Cargo.lock");
const BUNDLED_NAME: &str = "the bundled text";

/// File with the data of the storage.
#[derive(Debug)]
pub struct Content {
    /// Name of the source file, or of the embedded file.
    pub source: PathBuf,
    /// Size of the source in bytes.
    pub source_len: u64,
    /// File loaded by target and initiator: the source, repeated and padded to whole I/Os.
    pub path: PathBuf,
    /// Size of the storage in bytes.
    pub capacity: u64,
    /// `true` if each block fits in a stored block of the same size. Checked for gga deployments only.
    pub compresses: bool,
}

impl Content {
    /// Writes the storage's data to `path`.
    ///
    /// A short source is repeated, each copy after a distinct line, so that no two blocks are equal.
    pub fn prepare(options: &Options, path: PathBuf) -> Result<Self, Error> {
        let (source, bytes) = match &options.content {
            None => (PathBuf::from(BUNDLED_NAME), BUNDLED.to_vec()),
            Some(source) => {
                let mut bytes = Vec::new();
                std::fs::File::open(source)
                    .and_then(|file| file.take(LARGEST_STORAGE + 1).read_to_end(&mut bytes))
                    .map_err(Error::io(format!("--content {}", source.display())))?;
                (source.clone(), bytes)
            }
        };
        if bytes.is_empty() {
            return Err(Error::Options(format!(
                "--content {}: expected a file with content, it is empty",
                source.display()
            )));
        }

        let io_size = u64::from(options.block_size) * u64::from(options.blocks_per_io);
        let source_len = bytes.len() as u64;
        let one_each = io_size * u64::from(options.workers);
        let for_workers = match one_each * IOS_PER_WORKER {
            large if large > LARGE_IOS && options.layout.has_gga() => {
                one_each * LARGE_IOS_PER_WORKER
            }
            enough => enough,
        };
        let at_least = source_len.max(SMALLEST_STORAGE).max(for_workers);
        let capacity = at_least.next_multiple_of(io_size);
        if capacity > LARGEST_STORAGE {
            return Err(Error::Options(format!(
                "{source_len} bytes of content in I/Os of {io_size} bytes for {} need a storage of {capacity} bytes; \
                 at most {LARGEST_STORAGE} are supported: use a smaller file, smaller blocks or fewer workers",
                counted(options.workers.into(), "worker")
            )));
        }
        write_repeated(&path, &bytes, capacity)
            .map_err(Error::io(format!("write {}", path.display())))?;
        let compresses = !options.layout.has_gga()
            || compresses(&path, options.block_size)
                .map_err(Error::io(format!("read {}", path.display())))?;
        Ok(Self {
            source,
            source_len,
            path,
            capacity,
            compresses,
        })
    }
}

/// Returns `true` if each block of the file, whose size is a multiple of the block size, fits in a stored block of the
/// same size.
fn compresses(path: &Path, block_size: u32) -> std::io::Result<bool> {
    let mut file = std::fs::File::open(path)?;
    let mut block = vec![0; block_size as usize];
    let mut encoder = Encoder::new(Geometry::compatible(block_size));
    let blocks = file.metadata()?.len() / u64::from(block_size);
    for _ in 0..blocks {
        file.read_exact(&mut block)?;
        if encoder.encode(&block).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn write_repeated(path: &Path, source: &[u8], capacity: u64) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let mut left = capacity;
    let mut write = |bytes: &[u8]| {
        let part = &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        left -= part.len() as u64;
        file.write_all(part).map(|()| left)
    };
    let mut copies = 1u64;
    while write(source)? > 0 {
        copies += 1;
        write(format!("\n==== copy {copies} ====\n").as_bytes())?;
    }
    file.flush()
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

    /// Returns `true` for a usage error that names this value.
    fn is_usage(error: &Error, value: &str) -> bool {
        matches!(error, Error::Options(text) if text.contains(value))
    }

    #[test]
    fn region_smaller_than_one_io_per_worker_is_refused() {
        let options = Options {
            workers: 2,
            local_io_region_size: 4096,
            ..Options::default()
        };
        let error = Plan::new(&options, &content(1 << 20)).expect_err("refused");
        assert!(is_usage(&error, "8192"), "{error}");
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
            let error = Plan::new(&options(layout), &content(576 * 100)).expect_err("refused");
            assert!(is_usage(&error, "128"), "{error}");
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
    fn content_that_does_not_compress_is_stored_as_chunks() {
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
        assert_eq!(sizes(&content), [2048, 2048, 2048, 2048, 2112, 2112]);
        content.compresses = false;
        assert_eq!(sizes(&content), [2112; 6]);
    }

    #[test]
    fn content_is_repeated_to_whole_ios_with_distinct_blocks() {
        let directory = tempfile::tempdir().expect("a directory");
        let source = directory.path().join("source");
        std::fs::write(&source, [7; 4096]).expect("a file");
        let options = Options {
            content: Some(source),
            blocks_per_io: 3,
            ..Options::default()
        };
        let content =
            Content::prepare(&options, directory.path().join("content")).expect("content");
        let bytes = std::fs::read(&content.path).expect("the file");
        assert_eq!(bytes.len() as u64, content.capacity);
        assert_eq!(content.capacity % (3 * 4096), 0);
        assert!(content.capacity >= SMALLEST_STORAGE);
        assert_eq!(bytes[..4096], [7; 4096]);
        let blocks: std::collections::HashSet<&[u8]> = bytes.chunks(4096).collect();
        assert_eq!(blocks.len(), bytes.len() / 4096);
    }

    #[test]
    fn missing_empty_and_oversized_content_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let empty = directory.path().join("empty");
        std::fs::write(&empty, []).expect("a file");
        let prepare = |options: Options| {
            Content::prepare(&options, directory.path().join("content")).expect_err("refused")
        };
        let with = |content: &Path| Options {
            content: Some(content.to_owned()),
            ..Options::default()
        };
        assert!(is_usage(
            &prepare(with(&empty)),
            &empty.display().to_string()
        ));
        let missing = prepare(with(Path::new("/no/such/file")));
        assert!(
            matches!(&missing, Error::Io { what, .. } if what.contains("/no/such/file")),
            "{missing}"
        );
        let huge = Options {
            block_size: 64 << 20,
            blocks_per_io: 255,
            ..Options::default()
        };
        assert!(is_usage(&prepare(huge), &LARGEST_STORAGE.to_string()));
    }

    #[test]
    fn single_incompressible_block_is_detected() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("content");
        let mut bytes = vec![b' '; 3 * 1024];
        std::fs::write(&path, &bytes).expect("a file");
        assert!(compresses(&path, 1024).expect("read"));
        bytes[2048..].copy_from_slice(&contents::noise(1, 1024));
        std::fs::write(&path, &bytes).expect("a file");
        assert!(!compresses(&path, 1024).expect("read"));
    }
}
