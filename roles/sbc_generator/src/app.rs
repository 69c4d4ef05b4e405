//! The program: its flags, and the conversion, which writes every block of the input to the three files.

use std::fmt;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use control::Failure;
use doca::{
    Access, BufInventory, Device, ErasureCoding, ErrorCode, Event, MemoryRegion, Mmap, Pe, Task,
};
use indicatif::ProgressBar;
use role_common::application::Environment;
use role_common::flags::{GeneralFlags, OutputFlags, RoleFlags, size_u32};
use role_common::{errln, matrix};
use role_formats::stored_block::{
    Encoder, Geometry, HALF_ALIGNMENT, Incompressible, MatrixType, STORED_ALIGNMENT,
};
use serde::Serialize;
use wire::sbc;

use super::files::{FileSet, Input};

const EXAMPLES: &str = "\
Examples:
  Three files for three targets with half blocks of 2048 bytes:
    doca_storage_gga_offload_sbc_generator -d 03:00.0 --original-input-data data.txt \\
        --data-1 data_1.sbc --data-2 data_2.sbc --data-p data_p.sbc
  Larger blocks, and parity by a Cauchy matrix; the service needs the same --matrix-type:
    doca_storage_gga_offload_sbc_generator -d 03:00.0 --original-input-data data.txt \\
        --block-size 65536 --matrix-type cauchy \\
        --data-1 data_1.sbc --data-2 data_2.sbc --data-p data_p.sbc
Data that does not compress, such as photos, is written through a service with --logical-block-size instead.";

/// Creates the initial data of the three targets of a gga_offload deployment from a file
#[derive(Debug, Clone, Parser)]
#[command(after_help = EXAMPLES)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// DOCA device that computes the parity: PCI address, RDMA device name or network interface name
    #[arg(short, long, value_name = "DEVICE")]
    pub device: String,

    /// File with the data to store
    #[arg(long, value_name = "FILE")]
    pub original_input_data: PathBuf,

    /// Size of each block, both stored and of the data, in bytes or with a unit such as 4k: a multiple of 128. The data must compress;
    /// its last block is padded with zeros
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = block_size)]
    block_size: u32,

    /// Type of the erasure coding matrix
    #[arg(long, value_enum, value_name = "TYPE", default_value = "vandermonde")]
    pub matrix_type: MatrixType,

    /// .sbc file to create with the data_1 chunks
    #[arg(long = "data-1", value_name = "FILE")]
    pub data_1: PathBuf,

    /// .sbc file to create with the data_2 chunks
    #[arg(long = "data-2", value_name = "FILE")]
    pub data_2: PathBuf,

    /// .sbc file to create with the parity chunks
    #[arg(long, value_name = "FILE")]
    pub data_p: PathBuf,

    /// Show a progress line on standard error: auto shows it on a terminal
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub progress: ProgressMode,

    /// Flags for output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Condition for showing the progress line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// If standard error is a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Flags {
    /// Sizes of data blocks and stored blocks.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry::compatible(self.block_size)
    }
}

impl RoleFlags for Flags {
    fn general(&self) -> &GeneralFlags {
        &self.general
    }

    fn output(&self) -> &OutputFlags {
        &self.output
    }
}

fn block_size(text: &str) -> Result<u32, String> {
    match size_u32(text) {
        Ok(size) if size != 0 && size.is_multiple_of(STORED_ALIGNMENT) => Ok(size),
        _ => Err(format!(
            "expected bytes or a size such as 4k, a multiple of {STORED_ALIGNMENT}: erasure coding needs half blocks that are multiples of \
             {HALF_ALIGNMENT}"
        )),
    }
}

pub(crate) fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let device = Device::open(&flags.device)
        .map_err(|error| Failure::from(error).context(format_args!("--device {}", flags.device)))?;
    let geometry = flags.geometry();
    let half = geometry.half_block_size();
    let mut parity = ParityEncoder::new(&device, flags.matrix_type, geometry.stored_block_size)?;
    let mut input = Input::open(&flags.original_input_data, geometry)?;
    let block_count = input.block_count();
    let mut files = FileSet::create(
        [
            ("--data-1", &flags.data_1),
            ("--data-2", &flags.data_2),
            ("--data-p", &flags.data_p),
        ],
        ("--original-input-data", &flags.original_input_data),
        sbc::Header {
            block_size: half,
            block_count,
        },
    )?;
    environment.console.announce("Processing data...");
    let mut progress = Progress::new(flags.progress, block_count);
    let mut encoder = Encoder::new(geometry);
    for index in 0..block_count {
        if environment.shutdown.is_requested() {
            return Err(Failure::aborted("processing data; no file was written"));
        }
        let stored = encoder
            .encode(input.next_block()?)
            .map_err(|reason| no_room(&flags, geometry, index, reason))?;
        let (first, second) = stored.split_at(half as usize);
        files.append([first, second, parity.parity(stored)?])?;
        progress.show(index + 1);
    }
    drop(progress);
    files.finish()?;
    environment.console.report(&Report {
        block_size: geometry.logical_block_size,
        block_count,
        matrix_type: flags.matrix_type,
        data_1: flags.data_1,
        data_2: flags.data_2,
        data_p: flags.data_p,
    });
    Ok(())
}

fn no_room(flags: &Flags, geometry: Geometry, index: u32, reason: Incompressible) -> Failure {
    let size = u64::from(geometry.logical_block_size);
    let begin = u64::from(index) * size;
    Failure::invalid(format!(
        "block {index} of {} (bytes {begin} to {}) {reason}; no file was written",
        flags.original_input_data.display(),
        begin + size - 1
    ))
}

// The summary that the generator prints at the end.

/// The generated files.
#[derive(Debug, Serialize)]
struct Report {
    /// Size of a block of the input and of a stored block in bytes; each file has half of it.
    pub(crate) block_size: u32,
    pub(crate) block_count: u32,
    matrix_type: MatrixType,
    data_1: PathBuf,
    data_2: PathBuf,
    data_p: PathBuf,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Output info:")?;
        writeln!(f, "\tBlock size: {}", self.block_size)?;
        writeln!(f, "\tOut block count: {}", self.block_count)?;
        for (name, path) in [
            ("1", &self.data_1),
            ("2", &self.data_2),
            ("p", &self.data_p),
        ] {
            writeln!(f, "\tData {name}({}) created successfully", path.display())?;
        }
        Ok(())
    }
}

// Progress output of the generator.

/// Interval between progress lines if lines cannot be overwritten, and minimum duration of a run before a bar is shown.
const INTERVAL: Duration = Duration::from_secs(1);

/// Progress output, for runs of more than a second.
#[derive(Debug)]
struct Progress {
    total: u32,
    begin: Instant,
    next: Instant,
    display: Display,
}

#[derive(Debug)]
enum Display {
    None,
    Bar(ProgressBar),
    Lines,
}

impl Progress {
    /// Creates a display of progress towards `total` blocks on standard error: one overwritten line on a terminal,
    /// otherwise, if requested, a line per second.
    pub(crate) fn new(mode: ProgressMode, total: u32) -> Self {
        let display = match (mode, std::io::stderr().is_terminal()) {
            (ProgressMode::Never, _) | (ProgressMode::Auto, false) => Display::None,
            (ProgressMode::Always | ProgressMode::Auto, true) => {
                Display::Bar(role_common::console::progress_bar(total.into(), "blocks"))
            }
            (ProgressMode::Always, false) => Display::Lines,
        };
        let begin = Instant::now();
        Self {
            total,
            begin,
            next: begin + INTERVAL,
            display,
        }
    }

    /// Shows the number of completed blocks, at most a few times per second.
    fn show(&mut self, done: u32) {
        if matches!(self.display, Display::None) {
            return;
        }
        let now = Instant::now();
        if now < self.next {
            return;
        }
        match &self.display {
            Display::None => {}
            Display::Bar(bar) => {
                self.next = now + INTERVAL / 10;
                bar.set_position(done.into());
            }
            Display::Lines => {
                self.next = now + INTERVAL;
                errln!("{}", line(done, self.total, now - self.begin));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

fn line(done: u32, total: u32, elapsed: Duration) -> String {
    let percent = f64::from(done) * 100.0 / f64::from(total.max(1));
    let rate = f64::from(done) / elapsed.as_secs_f64().max(f64::EPSILON);
    format!("{done} of {total} blocks ({percent:.0} %), {rate:.0} per second")
}

// Parity of two half blocks, computed by the device.

/// Data chunks of a stored block.
const DATA_BLOCKS: usize = 2;
/// Parity chunks of a stored block.
const REDUNDANCY_BLOCKS: usize = 1;

/// Computes the parity of stored blocks of one size.
struct ParityEncoder {
    task: Task,
    data: Mmap,
    redundancy: doca::Buf,
    parity: Vec<u8>,
    // Used by the task, and dropped after it.
    _coding: ErasureCoding,
    pe: Pe,
}

impl ParityEncoder {
    /// Creates an encoder for stored blocks of `stored_block_size` bytes, a multiple of 128.
    pub(crate) fn new(
        device: &Device,
        matrix_type: MatrixType,
        stored_block_size: u32,
    ) -> Result<Self, Failure> {
        let size = stored_block_size as usize;
        let half = size / DATA_BLOCKS;
        let pe = Pe::new()?;
        let coding = ErasureCoding::builder(device).create_tasks(1).start(&pe)?;
        let matrix = coding.matrix(
            matrix::of_device(matrix_type),
            DATA_BLOCKS,
            REDUNDANCY_BLOCKS,
        )?;
        let memory = |len| -> doca::Result<Mmap> {
            Mmap::register(device, MemoryRegion::new(len)?, Access::LOCAL_READ_WRITE)
        };
        let (data, parity) = (memory(size)?, memory(half)?);
        let inventory = BufInventory::new(2)?;
        let source = inventory.buf_with_data(&data, 0, size)?;
        let redundancy = inventory.buf(&parity, 0, half)?;
        let task = coding.create_task(&matrix, &source, &redundancy, 0)?;
        Ok(Self {
            task,
            data,
            redundancy,
            parity: vec![0; half],
            _coding: coding,
            pe,
        })
    }

    /// Returns the parity of the two halves of `stored`.
    pub(crate) fn parity(&mut self, stored: &[u8]) -> Result<&[u8], Failure> {
        let region = self.data.region().expect("registered here");
        region.write(0, stored)?;
        self.redundancy.reset_data()?;
        self.task.submit().map_err(refused("submit the parity"))?;
        loop {
            if let Some(Event::Task(done)) = self.pe.poll() {
                done.result.map_err(refused("calculate the parity"))?;
                break;
            }
        }
        let length = self.redundancy.read_data(&mut self.parity)?;
        if length != self.parity.len() {
            return Err(Failure::unexpected(format!(
                "the device made {length} bytes of parity, expected {}",
                self.parity.len()
            )));
        }
        Ok(&self.parity)
    }
}

fn refused(what: &'static str) -> impl Fn(ErrorCode) -> Failure {
    move |code| Failure::new(code, format!("cannot {what}: {}", code.description()))
}

#[cfg(test)]
mod tests {
    use role_common::flags::{self, FlagsError};

    use super::*;

    const MANDATORY: &str = "-d 03:00.0 --original-input-data in --data-1 a --data-2 b --data-p p";

    fn parse(args: &str) -> Result<Flags, FlagsError> {
        flags::read(
            crate::NAME,
            std::iter::once("x")
                .chain(args.split_whitespace())
                .map(Into::into),
        )
    }

    fn refusal(args: &str) -> String {
        match parse(args) {
            Err(FlagsError::Usage(text)) => text,
            other => panic!("{args}: {other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let flags = parse(MANDATORY).expect("flags");
        assert_eq!(flags.geometry(), Geometry::compatible(4096));
        assert_eq!(flags.matrix_type, MatrixType::Vandermonde);
        assert_eq!(flags.data_p, PathBuf::from("p"));
        let flags = parse(&format!("{MANDATORY} --matrix-type cauchy --block-size 4k"));
        let flags = flags.expect("flags");
        assert_eq!(flags.geometry(), Geometry::compatible(4096));
        assert_eq!(flags.matrix_type, MatrixType::Cauchy);
    }

    #[test]
    fn errors_name_each_missing_mandatory_flag() {
        for flag in [
            "-d",
            "--original-input-data",
            "--data-1",
            "--data-2",
            "--data-p",
        ] {
            let mut words: Vec<&str> = MANDATORY.split(' ').collect();
            let at = words.iter().position(|word| *word == flag).expect("there");
            words.drain(at..at + 2);
            let name = if flag == "-d" { "--device" } else { flag };
            let text = refusal(&words.join(" "));
            assert!(text.contains(name), "{flag}: {text}");
        }
    }

    #[test]
    fn block_sizes_that_cannot_be_halved_and_encoded_are_refused() {
        for wrong in ["0", "64", "4160", "100", "-4096", "4294967296", "4q"] {
            let text = refusal(&format!("{MANDATORY} --block-size {wrong}"));
            for value in ["--block-size", wrong, "128"] {
                assert!(text.contains(value), "{wrong}: {text}");
            }
        }
    }

    #[test]
    fn unknown_matrices_are_refused_with_the_known_ones() {
        let text = refusal(&format!("{MANDATORY} --matrix-type reed-solomon"));
        assert!(
            text.contains("cauchy") && text.contains("vandermonde"),
            "{text}"
        );
    }

    #[test]
    fn progress_line_has_position_and_rate() {
        assert_eq!(
            line(250, 1000, Duration::from_secs(2)),
            "250 of 1000 blocks (25 %), 125 per second"
        );
        assert_eq!(
            line(0, 0, Duration::ZERO),
            "0 of 0 blocks (0 %), 0 per second"
        );
    }

    #[test]
    fn the_next_line_is_due_a_second_after_the_last() {
        let mut progress = Progress::new(ProgressMode::Never, 10);
        progress.display = Display::Lines;
        let due = progress.next;
        progress.show(1);
        assert_eq!(progress.next, due, "not yet");
        progress.next = progress.begin;
        progress.show(2);
        assert!(progress.next >= due);
    }
}
