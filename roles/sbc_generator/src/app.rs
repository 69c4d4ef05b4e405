//! Drives a run: every block of the input into the three files.

use doca::Device;
use role_common::Failure;
use role_common::application::Environment;
use role_common::stored_block::{Encoder, Geometry, Incompressible, Place};
use role_common::superblock::SetId;
use wire::sbc;

use crate::cli::Flags;
use crate::input::Input;
use crate::output::FileSet;
use crate::parity::ParityEncoder;
use crate::progress::Progress;
use crate::report::Report;

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
        // Targets get their superblocks later, with the first service that maintains them.
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
