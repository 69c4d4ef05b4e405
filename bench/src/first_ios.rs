//! An initiator that pauses, to measure the first I/Os of an idle deployment.
//!
//! No role's initiator can pause, so this initiator is a script that uses the peers of [`conformance`]. It is slower
//! than the real initiator, which does not affect the result: its first I/Os are compared with its later ones.

use std::time::{Duration, Instant};

use conformance::role::{ComchPeer, ControlPeer as _, IoChannel};
use conformance::violation::Violation;
use deployment::sandbox::HOST_DEVICE;
use doca::{Access, Device, MemoryRegion, Mmap};
use wire::control::{InitStorage, Message, Payload, StorageDetails};
use wire::io_message::{IoMessageType, Repr};

use crate::series::{AfterPause, median};

/// Duration of the pause: forty times the longest sleep of an idle thread.
pub(crate) const PAUSE: Duration = Duration::from_secs(2);
/// Repetitions of the measurement without a pause.
const STEADY: usize = 21;
/// Timeout of events that should occur immediately.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Load {
    /// Name of the service's channel.
    pub channel: String,
    /// Number of I/Os in flight.
    pub transactions: u32,
}

/// Runs the load: I/Os until all roles are warm, a pause, and the first I/Os after it.
///
/// # Errors
///
/// The service violates the protocol or does not answer.
pub fn run(load: &Load) -> Result<AfterPause, Violation> {
    let device = Device::open(HOST_DEVICE)?;
    let mut session = Session::open(&device, load)?;
    for _ in 0..STEADY {
        session.read(AfterPause::IOS, load.transactions)?;
    }
    let steady = session.steady(AfterPause::IOS, load.transactions)?;
    std::thread::sleep(PAUSE);
    let first = session.read(AfterPause::IOS, load.transactions)?;
    let steady_single = session.steady(1, 1)?;
    std::thread::sleep(PAUSE);
    let first_single = session.read(1, 1)?;
    session.close()?;
    Ok(AfterPause {
        pause_seconds: PAUSE.as_secs_f64(),
        first_rate: f64::from(AfterPause::IOS) / first.as_secs_f64(),
        steady_rate: f64::from(AfterPause::IOS) / steady,
        first_ns: first_single.as_secs_f64() * 1e9,
        steady_ns: steady_single * 1e9,
    })
}

struct Session {
    // Drop order: users of the connection before the connection.
    io: IoChannel,
    control: ComchPeer,
    /// Keeps the memory registered.
    _mmap: Mmap,
    details: StorageDetails,
    next_block: u64,
    next_id: u32,
}

impl Session {
    fn open(device: &Device, load: &Load) -> Result<Self, Violation> {
        let mut control = ComchPeer::connect(device, &load.channel, TIMEOUT)?;
        let mut next_id = 0;
        let query = ask(&mut control, &mut next_id, Payload::QueryStorageRequest)?;
        let Payload::QueryStorageResponse(details) = query else {
            return Err(Violation::expected("storage details", format!("{query:?}")));
        };
        let length = details.block_size as usize * load.transactions as usize;
        let access = Access::LOCAL_READ_WRITE
            | Access::PCI_READ_WRITE
            | Access::RDMA_READ
            | Access::RDMA_WRITE;
        let mmap = Mmap::register(device, MemoryRegion::new(length)?, access)?;
        let init = Payload::InitStorageRequest(InitStorage {
            transaction_count: load.transactions,
            core_count: 1,
            mmap_export_blob: mmap.export_pci(device)?.into(),
        });
        let answer = ask(&mut control, &mut next_id, init)?;
        expect(answer, Payload::InitStorageResponse)?;
        control.wait_until("the service's consumer", TIMEOUT, |control| {
            !control.consumers().is_empty()
        })?;
        let mut io = IoChannel::start(device, &control, load.transactions, TIMEOUT)?;
        io.send_to(control.consumers()[0])?;
        let answer = ask(&mut control, &mut next_id, Payload::StartStorageRequest)?;
        expect(answer, Payload::StartStorageResponse)?;
        Ok(Self {
            io,
            control,
            _mmap: mmap,
            details,
            next_block: 0,
            next_id,
        })
    }

    /// Reads `count` blocks with `transactions` I/Os in flight. Returns the time from the first request to the last result.
    fn read(&mut self, count: u32, transactions: u32) -> Result<Duration, Violation> {
        let started = Instant::now();
        let mut sent = 0;
        for slot in 0..transactions.min(count) {
            self.request(slot.into())?;
            sent += 1;
        }
        for _ in 0..count {
            let result = self.io.receive_message(TIMEOUT)?;
            Violation::unless(
                result.message_type == IoMessageType::Result && result.result == 0,
                "the result of a read that has succeeded",
                format!("{result:?}"),
            )?;
            if sent < count {
                self.request(result.user_data)?;
                sent += 1;
            }
        }
        Ok(started.elapsed())
    }

    /// Median duration of repeated reads, in seconds.
    fn steady(&mut self, count: u32, transactions: u32) -> Result<f64, Violation> {
        let mut times = Vec::with_capacity(STEADY);
        for _ in 0..STEADY {
            times.push(self.read(count, transactions)?.as_secs_f64());
        }
        Ok(median(times).unwrap_or(f64::NAN))
    }

    fn request(&mut self, slot: u64) -> Result<(), Violation> {
        let size = self.details.block_size;
        let blocks = self.details.total_size / u64::from(size);
        let block = self.next_block % blocks;
        self.next_block += 1;
        let request = Repr {
            message_type: IoMessageType::Read,
            user_data: slot,
            result: 0,
            size,
            requester_offset: slot * u64::from(size),
            storage_offset: block * u64::from(size),
        };
        self.io.send(&request, TIMEOUT)
    }

    fn close(self) -> Result<(), Violation> {
        let Self {
            io,
            mut control,
            mut next_id,
            ..
        } = self;
        let answer = ask(&mut control, &mut next_id, Payload::StopStorageRequest)?;
        expect(answer, Payload::StopStorageResponse)?;
        io.stop()?;
        let answer = ask(&mut control, &mut next_id, Payload::ShutdownRequest)?;
        expect(answer, Payload::ShutdownResponse)
    }
}

fn ask(control: &mut ComchPeer, next_id: &mut u32, payload: Payload) -> Result<Payload, Violation> {
    *next_id += 1;
    let request = Message {
        message_id: *next_id,
        correlation_id: *next_id,
        payload,
    };
    control.ask(&request, TIMEOUT)
}

fn expect(answer: Payload, expected: Payload) -> Result<(), Violation> {
    Violation::unless(
        answer == expected,
        format!("{expected:?}"),
        format!("{answer:?}"),
    )
}
