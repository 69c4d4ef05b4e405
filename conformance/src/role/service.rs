//! Checks of a service: `zero_copy` with one target, or `gga_offload` with three.

mod answers;
use wire::release::Release;
mod course;
mod io;
mod peers;
mod refusals;
mod stored;

use std::sync::Arc;
use std::time::Duration;

use doca::{Access, Device, MemoryRegion, Mmap};
use wire::control::{InitStorage, Message, Payload, StorageDetails};
use wire::io_message::{IoMessageType, Repr};

use super::{Check, ComchPeer, ControlPeer as _, Fixture, IoChannel, REMOTE, Step, Violation};
use crate::target::{Fault, Script};
use deployment::implementation::Role;
use deployment::sandbox::HOST_DEVICE;
use peers::expect_answer;

/// All checks of this service.
pub(super) fn checks(role: Role) -> Vec<Check> {
    let mut checks = course::CHECKS.to_vec();
    checks.extend(refusals::CHECKS);
    checks.extend(refusals::FRAME_CHECKS);
    checks.extend(answers::checks());
    checks.extend(course::checks());
    checks.extend(io::checks(role));
    checks
}

// Storage of the targets, and as presented to the initiator.

/// Block size in bytes, as presented to the initiator.
const BLOCK: usize = 4096;
/// Number of blocks of the storage.
const BLOCKS: usize = 16;
/// Scripts of a check's targets: one for a zero-copy service, three with half blocks for gga_offload.
fn scripts(fixture: &Fixture<'_>) -> Vec<Script> {
    let (targets, block_size) = match fixture.subject().role {
        Role::GgaOffload => (3, BLOCK / 2),
        _ => (1, BLOCK),
    };
    let script = |_| Script {
        device: fixture.subject().devices.host.clone(),
        block_size: block_size as u32,
        content: vec![0; BLOCKS * block_size],
        fault: Fault::None,
        features: 0,
        records: None,
        release: Release::default(),
    };
    (0..targets).map(script).collect()
}

/// Storage details that the service must report for these targets.
fn presented(scripts: &[Script]) -> StorageDetails {
    let factor = if scripts.len() == 3 { 2 } else { 1 };
    StorageDetails {
        total_size: scripts[0].content.len() as u64 * factor,
        block_size: scripts[0].block_size * factor as u32,
    }
}

// Complete session of a correct initiator, as a second client of a service under test.

const TRANSACTIONS: u32 = 4;
/// Number of blocks that are written and read.
const SESSION_BLOCKS: u64 = 8;

/// Connects to the service, writes `rounds` blocks and reads them back, and disconnects cleanly. Sets `begun` when the query was
/// answered: from then on the session is this client's.
///
/// # Errors
///
/// The service refuses the session, which has not begun then, or does not answer correctly.
pub(crate) fn run_session(
    channel: &str,
    rounds: usize,
    timeout: Duration,
    begun: &mut bool,
) -> Result<(), Violation> {
    let host = Device::open(HOST_DEVICE)?;
    let mut control = ComchPeer::connect(&host, channel, timeout)?;
    let mut id = 0;
    let mut ask = |control: &mut ComchPeer, payload| {
        id += 1;
        let request = Message {
            message_id: id,
            correlation_id: 7,
            payload,
        };
        control.ask(&request, timeout)
    };
    let size = match ask(&mut control, Payload::QueryStorageRequest)? {
        Payload::QueryStorageResponse(details) => details.block_size as usize,
        other => {
            return Err(Violation::expected(
                "query_storage_response",
                other.message_type(),
            ));
        }
    };
    *begun = true;
    let memory = MemoryRegion::new(size)?;
    let map = Mmap::register(
        &host,
        Arc::clone(&memory),
        REMOTE.union(Access::PCI_READ_WRITE),
    )?;
    let init = InitStorage {
        transaction_count: TRANSACTIONS,
        core_count: 1,
        mmap_export_blob: map.export_pci(&host)?.into(),
    };
    expect_answer(
        Step::Init,
        &ask(&mut control, Payload::InitStorageRequest(init))?,
    )?;
    control.wait_until("the service's consumer", timeout, |control| {
        !control.consumers().is_empty()
    })?;
    let mut io = IoChannel::start(&host, &control, TRANSACTIONS, timeout)?;
    io.send_to(control.consumers()[0])?;
    expect_answer(
        Step::Start,
        &ask(&mut control, Payload::StartStorageRequest)?,
    )?;
    for round in 0..rounds as u64 {
        let content = vec![fastrand::u8(1..); size];
        memory.write(0, &content)?;
        let place = round % SESSION_BLOCKS * size as u64;
        succeeds(&mut io, IoMessageType::Write, place, size, timeout)?;
        memory.fill(0, size, 0)?;
        succeeds(&mut io, IoMessageType::Read, place, size, timeout)?;
        let mut came = vec![0; size];
        memory.read(0, &mut came)?;
        Violation::unless(
            came == content,
            "the block that was written",
            "another content",
        )?;
    }
    expect_answer(Step::Stop, &ask(&mut control, Payload::StopStorageRequest)?)?;
    io.stop()?;
    expect_answer(
        Step::Shutdown,
        &ask(&mut control, Payload::ShutdownRequest)?,
    )
}

fn succeeds(
    io: &mut IoChannel,
    message_type: IoMessageType,
    storage_offset: u64,
    size: usize,
    timeout: Duration,
) -> Result<(), Violation> {
    let request = Repr {
        message_type,
        user_data: storage_offset,
        result: 0,
        size: u32::try_from(size).unwrap_or(u32::MAX),
        requester_offset: 0,
        storage_offset,
    };
    io.send(&request, timeout)?;
    let result = io.receive_message(timeout)?;
    Violation::unless(
        result == request.answer(0),
        format!("{request:?} to succeed"),
        format!("{result:?}"),
    )
}
