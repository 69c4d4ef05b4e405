//! A whole session of a well-behaved service, as a client that is served beside others.

use std::time::Duration;

use doca::Device;

use super::io::{read, write};
use super::plan::{Plan, Step};
use super::service::Service;
use crate::role::Wrong;
use crate::scene::DPU_DEVICE;

/// Bytes of an I/O.
const SIZE: usize = 4096;
/// Bytes of the storage that are written and read.
const AREA: usize = 16 * SIZE;

/// Connects to the target on `port`, writes `rounds` blocks and reads them back, and leaves in good order. Sets `begun` when the query has
/// been answered: from there on the session is this client's.
///
/// # Errors
///
/// The target refuses the session, which has not begun then, or does not answer as it should.
pub(crate) fn visit(
    port: u16,
    rounds: usize,
    patience: Duration,
    begun: &mut bool,
) -> Result<(), Wrong> {
    let device = Device::open(DPU_DEVICE)?;
    let mut service = Service::new(device, port, Plan::SMALL, patience)?;
    service.go_to(Step::Init)?;
    *begun = true;
    service.go_to(Step::Stop)?;
    for round in 0..rounds {
        let content = vec![fastrand::u8(1..); SIZE];
        let place = ((round * SIZE) % AREA) as u64;
        service.memory.write(0, &content)?;
        succeeds(service.io(0, &write(0, place, SIZE))?)?;
        service.memory.fill(0, SIZE, 0)?;
        succeeds(service.io(0, &read(0, place, SIZE))?)?;
        let mut came = vec![0; SIZE];
        service.memory.read(0, &mut came)?;
        Wrong::unless(
            came == content,
            "the block that was written",
            "another content",
        )?;
    }
    service.go_to(Step::End)
}

fn succeeds(code: u32) -> Result<(), Wrong> {
    Wrong::unless(code == 0, "an I/O to succeed", format!("result {code}"))
}
