//! Runs the conversion: writes every block of the input to the three files.

use std::fmt;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use doca::{
    Access, BufInventory, Device, ErasureCoding, ErrorCode, Event, MemoryRegion, Mmap, Pe, Task,
};
use indicatif::ProgressBar;
use role_common::application::Environment;
use role_common::stored_block::{Checksum, Encoder, Geometry, Incompressible, MatrixType, Place};
use role_common::superblock::SetId;
use role_common::{Failure, errln};
use serde::Serialize;
use wire::sbc;

use super::cli::{Flags, ProgressMode};
use super::input::Input;
use super::output::FileSet;

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
    let mut encoder = Encoder::new(geometry, flags.checksum);
    for index in 0..block_count {
        if environment.shutdown.is_requested() {
            return Err(Failure::aborted("processing data; no file was written"));
        }
        // The first service that maintains superblocks writes them.
        let place = Place {
            set: SetId::NONE,
            stripe: index.into(),
        };
        let stored = encoder
            .encode(input.next_block()?, place)
            .map_err(|reason| no_room(&flags, geometry, index, reason))?;
        let (first, second) = stored.split_at(half as usize);
        files.append([first, second, parity.parity(stored)?])?;
        progress.show(index + 1);
    }
    drop(progress);
    files.finish()?;
    environment.console.report(&Report {
        block_size: geometry.logical_block_size,
        stored_block_size: geometry.stored_block_size,
        block_count,
        matrix_type: flags.matrix_type,
        checksum: flags.checksum,
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
pub(crate) struct Report {
    /// Size of a block of the input in bytes.
    pub(crate) block_size: u32,
    /// Size of a stored block in bytes; each file has half of it.
    pub(crate) stored_block_size: u32,
    pub(crate) block_count: u32,
    pub(crate) matrix_type: MatrixType,
    pub(crate) checksum: Checksum,
    pub(crate) data_1: PathBuf,
    pub(crate) data_2: PathBuf,
    pub(crate) data_p: PathBuf,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Output info:")?;
        writeln!(f, "\tBlock size: {}", self.block_size)?;
        if self.stored_block_size != self.block_size {
            writeln!(f, "\tStored block size: {}", self.stored_block_size)?;
        }
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
pub(crate) struct Progress {
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
    pub(crate) fn show(&mut self, done: u32) {
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
pub(crate) struct ParityEncoder {
    task: Task,
    data: Mmap,
    redundancy: doca::Buf,
    parity: Vec<u8>,
    // Used by the task; dropped after it.
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
        let matrix = coding.matrix(matrix_type.into(), DATA_BLOCKS, REDUNDANCY_BLOCKS)?;
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
    use super::*;

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
