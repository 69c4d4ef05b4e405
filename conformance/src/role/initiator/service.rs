//! The scripted service: correct by default; a check may replace any step.

use std::time::{Duration, Instant};

use doca::{Access, Buf, BufInventory, Device, Dma, Event, MemoryRegion, Mmap, Pe, Task};
use wire::control::{InitStorage, Message, Payload};
use wire::release::Release;

use super::Plan;
use super::data_path::{Bounds, DataPath, Io};
use crate::role::{ComchPeer, ControlPeer as _, Fixture, IoChannel, Polled, Running, Step};
use crate::violation::{During as _, Violation};

/// A service and its initiator.
pub(super) struct Service {
    plan: Plan,
    device: Device,
    /// Consumers and producers are dropped before their connection.
    pub(super) data: Option<DataPath>,
    control: Option<ComchPeer>,
    pub(super) initiator: Running,
    timeout: Duration,
    /// Release of the initiator's protocol.
    release: Release,
    pub(super) requests: Vec<Message>,
    /// Size of the segments of answers in bytes.
    pub(super) piece: usize,
    /// Delay of answers.
    pub(super) delay: Duration,
}

/// Contents of an init_storage_request of any release, and the batch size of one of 3.0.
fn init_of(request: &Payload) -> Result<(InitStorage, Option<u32>), Violation> {
    let init = request.as_init_storage();
    init.ok_or_else(|| Violation::expected("memory", request.message_type()))
}

impl Service {
    /// Starts an initiator with this plan, and waits for its connection.
    pub(super) fn begin(fixture: &Fixture<'_>, plan: Plan) -> Result<Self, Violation> {
        let device = Device::open(&fixture.subject().devices.dpu)?;
        let representor = device.open_representor(&fixture.subject().devices.representor)?;
        let listening = ComchPeer::serve(&device, &representor, fixture.sandbox().channel())?;
        let mut initiator = Self::start(fixture, &plan)?;
        let timeout = fixture.timeout();
        let control = listening
            .accept(timeout, || initiator.is_running())
            .during("the initiator's start")?;
        Ok(Self {
            plan,
            device,
            data: None,
            control: Some(control),
            initiator,
            timeout,
            release: fixture.subject().release,
            requests: Vec::new(),
            piece: usize::MAX,
            delay: Duration::ZERO,
        })
    }

    /// Starts the initiator of a plan, even if no service is running.
    pub(super) fn start(fixture: &Fixture<'_>, plan: &Plan) -> Result<Running, Violation> {
        let arguments = plan.arguments(&fixture.subject().usage);
        let flags: Vec<&str> = arguments.iter().map(String::as_str).collect();
        fixture.start_initiator(plan.strategy, &flags)
    }

    pub(super) fn control(&mut self) -> Result<&mut ComchPeer, Violation> {
        self.control
            .as_mut()
            .ok_or_else(|| Violation::new("the check has closed the channel"))
    }

    pub(super) fn data(&mut self) -> Result<&mut DataPath, Violation> {
        self.data
            .as_mut()
            .ok_or_else(|| Violation::new("the check has not come to a data path"))
    }

    /// Acts as a correct service until the request of `step` is received, and returns that.
    pub(super) fn until(&mut self, step: Step) -> Result<Message, Violation> {
        self.until_with(step, |data, io| data.serve(&io))
    }

    /// As [`Service::until`], with `each` instead of the correct data path.
    pub(super) fn until_with(
        &mut self,
        step: Step,
        each: impl FnMut(&mut DataPath, Io) -> Result<(), Violation>,
    ) -> Result<Message, Violation> {
        let mut each = each;
        loop {
            let Some(next) = Step::ALL.get(self.requests.len()).copied() else {
                return Err(Violation::new(
                    "the check has come to the end of the session",
                ));
            };
            let request = self.next_request(next, &mut each)?;
            self.requests.push(request.clone());
            if next == step {
                return Ok(request);
            }
            self.answer(&request)?;
        }
    }

    /// Waits for the request of `step`, and serves I/O until then.
    fn next_request(
        &mut self,
        step: Step,
        each: &mut impl FnMut(&mut DataPath, Io) -> Result<(), Violation>,
    ) -> Result<Message, Violation> {
        let what = step.request().to_string();
        let mut deadline = Instant::now() + self.timeout;
        loop {
            if step == Step::Stop
                && let Some(data) = &mut self.data
                && let Some(io) = data.next()?
            {
                each(data, io)?;
                deadline = Instant::now() + self.timeout;
                continue;
            }
            match self.control()?.poll()? {
                Polled::Message(message) if message.payload.message_type() == step.request() => {
                    return Ok(message);
                }
                Polled::Message(message) => {
                    return Err(Violation::expected(what, format!("{message:?}")));
                }
                Polled::Closed => {
                    return Err(Violation::expected(what, "the end of the channel"));
                }
                Polled::Nothing if Instant::now() < deadline => {}
                Polled::Nothing => {
                    return Err(Violation::expected(
                        what,
                        format!("nothing in {:?}", self.timeout),
                    ));
                }
            }
        }
    }

    /// Serves `count` requests of the data path, and then only receives requests until `enough` returns `true`.
    pub(super) fn serve_until(
        &mut self,
        enough: impl Fn(&DataPath) -> bool,
        count: usize,
    ) -> Result<(), Violation> {
        let deadline = Instant::now() + self.timeout;
        let data = self.data()?;
        while !enough(data) {
            if let Some(io) = data.next()? {
                if data.received.len() <= count {
                    data.serve(&io)?;
                }
            } else if Instant::now() > deadline {
                return Err(Violation::expected(
                    "further requests",
                    format!("{} in all", data.received.len()),
                ));
            }
        }
        Ok(())
    }

    /// Executes a request and answers it.
    pub(super) fn answer(&mut self, request: &Message) -> Result<(), Violation> {
        let payload = self.perform(&request.payload)?;
        self.reply(&request.response(payload))
    }

    /// Sends an answer with the delay and segmentation of the check.
    pub(super) fn reply(&mut self, message: &Message) -> Result<(), Violation> {
        std::thread::sleep(self.delay);
        let bytes = message.encode_to_vec();
        let piece = self.piece.min(bytes.len());
        let control = self.control()?;
        bytes
            .chunks(piece)
            .try_for_each(|piece| control.send_bytes(piece))
    }

    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.control()?.send_bytes(bytes)
    }

    pub(super) fn hang_up(&mut self) {
        self.data = None;
        self.control = None;
    }

    /// Acts as a correct service until the session has ended.
    pub(super) fn finish(&mut self) -> Result<(), Violation> {
        let request = self.until(Step::Shutdown)?;
        self.answer(&request)
    }

    /// As [`Service::finish`], with `each` instead of the correct data path.
    pub(super) fn finish_with(
        &mut self,
        each: impl FnMut(&mut DataPath, Io) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let request = self.until_with(Step::Shutdown, each)?;
        self.answer(&request)
    }

    /// As [`Service::finish_with`], as long as possible: the initiator may exit at any time.
    pub(super) fn play_on(&mut self, each: impl FnMut(&mut DataPath, Io) -> Result<(), Violation>) {
        // The initiator's exit status shows whether it detected the error.
        let _ = self.finish_with(each);
    }

    /// As [`Service::finish`]; the initiator must exit with success.
    pub(super) fn succeed(&mut self) -> Result<(), Violation> {
        self.finish()?;
        self.expect_success()
    }

    /// Waits for the initiator to exit by itself with success.
    pub(super) fn expect_success(&mut self) -> Result<(), Violation> {
        self.initiator.expect_success(self.timeout)
    }

    /// Waits for the initiator to exit by itself with a failure.
    pub(super) fn expect_failure(&mut self) -> Result<(), Violation> {
        self.initiator.expect_failure(self.timeout)
    }

    /// Waits for the initiator to exit by itself with any status.
    pub(super) fn expect_end(&mut self) -> Result<(), Violation> {
        self.initiator.expect_end(self.timeout)
    }

    /// Requests on the data path so far.
    pub(super) fn received(&self) -> &[Io] {
        self.data.as_ref().map_or(&[], |data| &data.received)
    }
}

// Responses of a correct service, and its checks of the requests.

impl Service {
    /// Executes a request and returns the answer.
    pub(super) fn perform(&mut self, request: &Payload) -> Result<Payload, Violation> {
        Ok(match request {
            Payload::QueryStorageRequest => {
                Payload::QueryStorageResponse(self.plan.details.clone())
            }
            Payload::InitStorageRequest(_) | Payload::BatchedInitStorageRequest(_) => {
                let (init, batch_size) = init_of(request)?;
                Violation::unless(
                    batch_size.is_some() == (self.release == Release::V3_0),
                    format!(
                        "the init_storage_request of {}, see --protocol",
                        self.release
                    ),
                    format!("batch size {batch_size:?}"),
                )?;
                self.init(&init)?;
                Payload::InitStorageResponse
            }
            Payload::StartStorageRequest => {
                self.meet_consumers()?;
                Payload::StartStorageResponse
            }
            Payload::StopStorageRequest => {
                self.data()?.close_channels()?;
                Payload::StopStorageResponse
            }
            Payload::ShutdownRequest => {
                // A correct initiator has destroyed its consumers by now, because the service is about to disconnect.
                Violation::unless(
                    self.control()?.consumers().is_empty(),
                    "an initiator that has destroyed its consumers before shutdown_request",
                    format!("consumers {:?}", self.control()?.consumers()),
                )?;
                Payload::ShutdownResponse
            }
            other => return Err(Violation::expected("a request", other.message_type())),
        })
    }

    /// Exports the initiator's memory again, as a service does for its targets.
    pub(super) fn pass_on_memory(&self, request: &Payload) -> Result<(), Violation> {
        let (init, _) = init_of(request)?;
        let memory = Mmap::import(&self.device, &init.mmap_export_blob)?;
        let blob = memory
            .export_rdma(&self.device)
            .during("exporting the initiator's memory for RDMA")?;
        // Targets also access the memory through an import.
        let len = Mmap::import(&self.device, &blob)?.len();
        Violation::unless(len == memory.len(), format!("{} bytes", memory.len()), len)
    }

    /// Fails if an I/O request arrives during a short time before the event `what`.
    pub(super) fn expect_no_io(&mut self, what: &str) -> Result<(), Violation> {
        let deadline = Instant::now() + Duration::from_millis(150);
        while Instant::now() < deadline {
            if let Some(io) = self.data()?.next()? {
                return Err(Violation::expected(
                    format!("no request before {what}"),
                    format!("{io:?}"),
                ));
            }
        }
        Ok(())
    }

    /// Checks init_storage_request, and creates the service's side of the data path.
    fn init(&mut self, init: &InitStorage) -> Result<(), Violation> {
        let plan = &self.plan;
        Violation::unless(
            init.core_count == plan.workers,
            format!("core count {}, one for each --cpu", plan.workers),
            init.core_count,
        )?;
        Violation::unless(
            (1..=plan.transactions).contains(&init.transaction_count),
            format!("a transaction count of 1 to {}", plan.transactions),
            init.transaction_count,
        )?;
        let host = HostMemory::import(&self.device, &init.mmap_export_blob)
            .during("the export blob in init_storage_request")?;
        let channels = self.channels(plan.workers, init.transaction_count)?;
        self.data = Some(self.data_path(channels, host, init));
        Ok(())
    }

    /// Consumers and producers of the service, one pair per worker.
    pub(super) fn channels(
        &self,
        count: u32,
        transactions: u32,
    ) -> Result<Vec<IoChannel>, Violation> {
        let Some(control) = &self.control else {
            return Err(Violation::new("the check has closed the channel"));
        };
        let channel = |_| IoChannel::start(&self.device, control, transactions * 2, self.timeout);
        (0..count).map(channel).collect()
    }

    fn data_path(
        &self,
        channels: Vec<IoChannel>,
        host: HostMemory,
        init: &InitStorage,
    ) -> DataPath {
        let bounds = Bounds {
            storage: self.plan.details.clone(),
            transactions: init.transaction_count,
            io_size: self
                .plan
                .details
                .block_size
                .saturating_mul(self.plan.blocks_per_io),
        };
        let storage = self.plan.storage.clone();
        DataPath::new(channels, host, bounds, self.release, storage, self.timeout)
    }

    /// Waits for the initiator's consumers: consumer n belongs to worker n.
    fn meet_consumers(&mut self) -> Result<(), Violation> {
        let (count, timeout) = (self.plan.workers as usize, self.timeout);
        let control = self.control()?;
        let what = format!("{count} consumers of the initiator");
        control.wait_until(&what, timeout, |control| control.consumers().len() >= count)?;
        let consumers = control.consumers().to_vec();
        Violation::unless(consumers.len() == count, what, consumers.len())?;
        self.data()?.send_to(&consumers)
    }
}

// The initiator's memory, as accessed by the DPU: across PCIe, by DMA.

/// Size of a copy in bytes.
const PIECE: usize = 64 * 1024;

/// Timeout of one copy.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A memory map exported by an initiator.
#[derive(Debug)]
pub(super) struct HostMemory {
    // Dropped in this order: tasks before their context, and that before its engine.
    from_host: Task,
    to_host: Task,
    host: Buf,
    local: Buf,
    len: u64,
    base_address: u64,
    _dma: Dma,
    pe: Pe,
}

impl HostMemory {
    /// Imports the memory of an export blob.
    ///
    /// # Errors
    ///
    /// The blob is invalid.
    pub(super) fn import(device: &Device, blob: &[u8]) -> Result<Self, Violation> {
        let pe = Pe::new()?;
        let memory = Mmap::import(device, blob)?;
        let region = MemoryRegion::new(PIECE)?;
        let pieces = Mmap::register(device, region, Access::LOCAL_READ_WRITE)?;
        let inventory = BufInventory::new(2)?;
        // Each copy sets their ranges.
        let host = inventory.buf(&memory, 0, 1)?;
        let local = inventory.buf(&pieces, 0, PIECE)?;
        let dma = Dma::start(&pe, device, 2)?;
        Ok(Self {
            from_host: dma.copy_task(&host, &local, 0)?,
            to_host: dma.copy_task(&local, &host, 0)?,
            host,
            local,
            len: memory.len(),
            base_address: memory.base_address(),
            _dma: dma,
            pe,
        })
    }

    /// Start address in the initiator's address space.
    pub(super) fn base_address(&self) -> u64 {
        self.base_address
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Copies bytes at `offset` to `into`.
    ///
    /// # Errors
    ///
    /// The range exceeds the memory, or the copy fails.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Violation> {
        let mut offset = offset;
        for piece in into.chunks_mut(PIECE) {
            self.host.set_data(offset, piece.len())?;
            self.local.set_range(0, piece.len())?;
            self.copy(&self.from_host)?;
            self.local.read_data(piece)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes to the memory at `offset`.
    ///
    /// # Errors
    ///
    /// As [`HostMemory::read`].
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Violation> {
        let mut offset = offset;
        for piece in bytes.chunks(PIECE) {
            self.local.set_range(0, piece.len())?;
            self.local.write_data(piece)?;
            self.host.set_range(offset, piece.len())?;
            self.copy(&self.to_host)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    fn copy(&self, task: &Task) -> Result<(), Violation> {
        let deadline = Instant::now() + TIMEOUT;
        task.submit()?;
        while task.is_in_flight() {
            if let Some(Event::Task(completion)) = self.pe.poll() {
                completion.result.map_err(|code| {
                    Violation::expected("DMA to copy the initiator's memory", code)
                })?;
            } else if Instant::now() > deadline {
                return Err(Violation::expected(
                    "DMA to copy the initiator's memory",
                    format!("nothing in {TIMEOUT:?}"),
                ));
            }
        }
        Ok(())
    }
}
