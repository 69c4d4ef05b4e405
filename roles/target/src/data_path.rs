//! Data path of one worker thread of the target.
//!
//! A request arrives in the buffer of a message slot (RDMA receive), a transfer slot moves its blocks between the
//! service's client and the memory of the [`Store`] (RDMA write for a read, RDMA read for a write), and the answer
//! leaves from the buffer of the message slot (RDMA send), which then waits for the next request. There are two RDMA
//! contexts, so that answers are not queued behind transfers.
//!
//! A worker of a file polls messages and its disk. After some polls without events, it sleeps until one of them is
//! ready, if the disk has operations in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use control::{Failure, FirstFailure};
use doca::{
    Access, BufInventory, Device, ErrorCode, MemoryRegion, Mmap, OneBuffer, PeStats, Rdma,
    RdmaConnection, Refused, Slot, Slots, TwoBuffers, WorkerPe, completion_handler,
};
use metrics::{CoreStatistics, Count, Counts, Traffic, WorkerMetrics};
use role_common::data_path::{
    self, Limits, Messages, PollDriven, RdmaEndpoint, run_to_end, wait_until_running,
};
use role_common::worker::{DataPath, RunFlag};
use wire::control::RdmaConnectionRole;
use wire::io_message::{self, IoMessage};
use wire::release::{CorrelationId as _, IoLayout, Release, Release3_0, Release3_1, Release3_2};

use crate::backing::BackingFile;
use crate::content::Geometry;
use crate::request::{Quarantine, Writes};
use crate::store::{
    Extent, FileDisk, FileStore, FileVersions, Io, Layout, MemoryLayout, MemoryStore, Operation,
    SectorLocks, Step, Store, VersionedMemoryStore,
};
use crate::versions::{Version, WorkerVersions};

/// Poll iterations without events after which a worker sleeps until its disk or a message has an event.
const IDLE_POLLS: u32 = 24;

/// Longest such sleep, which limits the delay until the worker detects a stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

pub(crate) fn permissions() -> Access {
    Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE
}

/// Settings and resources of a worker.
pub(crate) struct Setup {
    pub(crate) core: u32,
    pub(crate) device: Device,
    pub(crate) blocks: Blocks,
    pub(crate) geometry: Geometry,
    /// The release of the session's I/O messages.
    pub(crate) release: Release,
    /// `true` if flushes and durable writes were announced.
    pub(crate) flush: bool,
    /// Versions of blocks, if they were announced.
    pub(crate) versions: Option<WorkerVersions>,
    /// The memory of the service's client.
    pub(crate) requester: Mmap,
    pub(crate) transaction_count: u32,
    /// Counters to which the worker publishes its counts, with `--metrics`.
    pub(crate) metrics: Option<Arc<WorkerMetrics>>,
    /// Time without a request, or without a result being received, after which the session is abandoned; `None` is unlimited.
    pub(crate) idle_timeout: Option<Duration>,
    /// Table in which the worker publishes its writes in flight, with one element for each transaction.
    pub(crate) writes: Arc<Writes>,
    /// Blocks to which abandoned workers may still write.
    pub(crate) quarantine: Quarantine,
    /// Sector locks of the session, shared by its workers but not with other sessions: an abandoned worker may hold its
    /// locks as long as it is blocked by its peer.
    pub(crate) locks: Arc<SectorLocks>,
}

/// Storage of a target's blocks.
#[derive(Debug, Clone)]
pub(crate) enum Blocks {
    /// In memory that is registered with the device.
    Memory(Mmap),
    File(Arc<BackingFile>),
}

/// Commands of the main thread.
pub(crate) enum Command {
    /// Export a connection and connect it to the other end's export.
    Connect {
        role: RdmaConnectionRole,
        details: Vec<u8>,
    },
    /// Wait, at most for this duration, for the contexts to be ready; then wait for requests.
    Prepare(Duration),
}

pub(crate) enum Reply {
    /// The export of the local end.
    Exported(Vec<u8>),
    /// The worker is ready for requests.
    Prepared,
}

/// The data path of one worker, for any type of store and of I/O messages.
pub(crate) type TargetDataPath =
    Box<dyn DataPath<Command = Command, Reply = Reply, Report = CoreStatistics>>;

impl Blocks {
    /// Unit of read-modify-writes in bytes; 1 for memory.
    pub(crate) fn write_unit(&self) -> u64 {
        match self {
            Self::Memory(_) => 1,
            Self::File(file) => file.fs_block(),
        }
    }
}

/// Creates the data path of a worker. The types of its store and messages are selected here, once.
pub(crate) fn create(setup: Setup) -> Result<TargetDataPath, Failure> {
    match setup.release {
        Release::V3_0 => {
            let requester_address = setup.requester.base_address();
            create_with(setup, Release3_0 { requester_address })
        }
        Release::V3_1 => create_with(setup, Release3_1),
        Release::V3_2 => create_with(setup, Release3_2),
    }
}

fn create_with<L: IoLayout>(mut setup: Setup, io_layout: L) -> Result<TargetDataPath, Failure> {
    let slots = setup.transaction_count as usize;
    let versions = setup.versions.take();
    let block_size = versions.as_ref().map(|_| setup.geometry.block_size);
    Ok(match &setup.blocks {
        Blocks::Memory(mmap) => {
            let mmap = mmap.clone();
            match versions {
                Some(versions) => {
                    let layout = memory_layout(setup.geometry);
                    let store = VersionedMemoryStore::new(versions, layout, slots);
                    Box::new(Worker::create(setup, store, io_layout, mmap, block_size)?)
                }
                None => Box::new(Worker::create(setup, MemoryStore, io_layout, mmap, None)?),
            }
        }
        Blocks::File(file) => {
            let file = Arc::clone(file);
            let layout = Layout::new(
                wire::backing::CONTENT_OFFSET,
                file.sector(),
                file.fs_block(),
                setup.geometry.block_size,
                slots,
            );
            let memory = MemoryRegion::new(slots.saturating_mul(layout.buffer))
                .map_err(|error| Failure::from(error).context("staging buffers"))?;
            // The target reads and writes the memory of others, so its own needs no remote permissions.
            let mmap =
                Mmap::register(&setup.device, Arc::clone(&memory), Access::LOCAL_READ_WRITE)?;
            let disk = FileDisk::new(Arc::clone(&file), &memory, slots);
            let (locks, written) = (Arc::clone(&setup.locks), Arc::clone(file.written()));
            let health = Arc::clone(file.health());
            let versions = versions.map(|versions| FileVersions {
                versions,
                slots: file.slots(),
                block_size: setup.geometry.block_size,
                memory,
            });
            let store = FileStore::new(disk, layout, slots, locks, written, health, versions);
            Box::new(Worker::create(setup, store, io_layout, mmap, block_size)?)
        }
    })
}

/// Location of blocks in memory, followed by the slots for versions.
pub(crate) fn memory_layout(geometry: Geometry) -> MemoryLayout {
    MemoryLayout {
        block_size: geometry.block_size.into(),
        slots_offset: geometry.capacity(),
    }
}

/// The data path of one worker. Fields are in the order in which they must be dropped.
pub(crate) struct Worker<S, L> {
    executor: Executor<S, L>,
    control: RdmaEndpoint,
    data: RdmaEndpoint,
    inventory: BufInventory,
    message_map: Mmap,
    /// The memory of the store.
    storage: Mmap,
    pe: WorkerPe<Executor<S, L>>,
    setup: Setup,
    /// Poll iterations since the last event.
    idle: u32,
}

impl<S: Store + 'static, L: IoLayout> Worker<S, L> {
    /// Creates a worker. `versions` is the size of a block if versions were announced.
    fn create(
        setup: Setup,
        store: S,
        layout: L,
        storage: Mmap,
        versions: Option<u32>,
    ) -> Result<Self, Failure> {
        let count = setup.transaction_count;
        let slots = count as usize;
        let messages = Messages::new(slots)?;
        let message_map =
            Mmap::register(&setup.device, Arc::clone(messages.region()), permissions())?;
        // Three bufs per slot: one for the messages of a transfer, and one for each end of its blocks.
        let inventory = BufInventory::new(slots * 3)?;
        let pe = WorkerPe::new()?;
        let builder = || Rdma::builder(&setup.device).permissions(permissions());
        let control = builder()
            .receive_tasks(count)
            .receive_handler::<RequestReceived<S, L>>()
            .send_tasks(count)
            .send_handler::<AnswerSent<S, L>>()
            .start(&pe)?;
        let data = builder()
            .read_tasks(count)
            .read_handler::<BlocksTransferred<S, L>>()
            .write_tasks(count)
            .write_handler::<BlocksTransferred<S, L>>()
            .start(&pe)?;
        let limits = crate::request::Limits {
            storage: setup.geometry.capacity(),
            requester: setup.requester.len(),
            flush: setup.flush,
            versions,
        };
        Ok(Self {
            executor: Executor::new(store, layout, limits, slots, &setup),
            control: RdmaEndpoint::new(RdmaConnectionRole::IoControl, control),
            data: RdmaEndpoint::new(RdmaConnectionRole::IoData, data),
            inventory,
            message_map,
            storage,
            pe,
            setup,
            idle: 0,
        })
    }

    fn connect(&mut self, role: RdmaConnectionRole, details: &[u8]) -> Result<Vec<u8>, Failure> {
        let endpoint = match role {
            RdmaConnectionRole::IoData => &mut self.data,
            RdmaConnectionRole::IoControl => &mut self.control,
        };
        let export = endpoint.export()?;
        endpoint.connect(details)?;
        Ok(export)
    }

    fn prepare(&mut self, within: Duration) -> Result<(), Failure> {
        let states = || [self.control.rdma().state(), self.data.rdma().state()];
        wait_until_running(&self.pe, within, "the RDMA contexts", states)?;
        let maps = Maps {
            messages: &self.message_map,
            storage: &self.storage,
            requester: &self.setup.requester,
        };
        let count = self.setup.transaction_count;
        let messages = allocate(
            count,
            &self.pe,
            &self.inventory,
            &maps,
            (self.control.rdma(), self.control.connection()?),
            (self.data.rdma(), self.data.connection()?),
        )
        .map_err(|error| Failure::from(error).context(format_args!("{count} transactions")))?;
        self.executor.begin(messages)
    }

    /// Continues I/Os whose disk operations have completed; sleeps after [`IDLE_POLLS`] polls without any, if the disk has
    /// operations in flight.
    #[inline]
    fn poll_disk(&mut self, hits: u64) -> Result<(), Failure> {
        let any = self.executor.poll_store()?;
        if any || self.pe.stats().hits != hits {
            self.idle = 0;
            return Ok(());
        }
        self.idle += 1;
        if self.idle >= IDLE_POLLS
            && let Some(disk) = self.executor.store().readiness()
        {
            self.idle = 0;
            self.pe.sleep_until_readable(disk, LONGEST_SLEEP)?;
        }
        Ok(())
    }
}

impl<S: Store + 'static, L: IoLayout> PollDriven for Worker<S, L> {
    #[inline]
    fn poll_once(&mut self, run: &RunFlag) -> Result<(), Failure> {
        let hits = if S::WAITS { self.pe.stats().hits } else { 0 };
        let others = self.pe.progress(&mut self.executor);
        self.executor.outcome()?;
        if others {
            data_path::handle_event(
                &self.pe,
                run,
                "an RDMA connection was lost: the service is gone, or its device failed",
            )?;
        }
        self.executor.retry()?;
        if S::WAITS {
            self.poll_disk(hits)?;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.executor.in_flight()
    }

    fn finished(&self) -> u64 {
        self.executor.operations()
    }

    fn pe_stats(&self) -> PeStats {
        self.pe.stats()
    }

    fn limits(&self) -> Limits {
        Limits {
            io: self.setup.idle_timeout,
            idle: self.setup.idle_timeout,
        }
    }

    fn metrics(&self) -> Option<&WorkerMetrics> {
        self.setup.metrics.as_deref()
    }

    fn counts(&self) -> Counts {
        self.executor.counts()
    }

    fn client(&self) -> &'static str {
        "service"
    }

    fn suspect(&self) -> &'static str {
        "the service takes no results"
    }
}

impl<S: Store + 'static, L: IoLayout> DataPath for Worker<S, L> {
    type Command = Command;
    type Reply = Reply;
    type Report = CoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Connect { role, details } => self.connect(role, &details).map(Reply::Exported),
            Command::Prepare(within) => self.prepare(within).map(|()| Reply::Prepared),
        }
    }

    fn run(&mut self, run: &RunFlag) -> Result<CoreStatistics, Failure> {
        self.executor.run(run);
        let calls = run_to_end(self, run)?;
        self.executor.warn();
        Ok(CoreStatistics {
            core: self.setup.core,
            operation_count: self.executor.operations(),
            pe_hit_count: calls.hits,
            pe_miss_count: calls.misses,
            media_errors: self.executor.store().media_errors(),
        })
    }
}

/// The buffer of a request and its answer.
type MessageSlot = Slot<Message>;

/// The buffers of a request's blocks: in the memory of the store and in that of the requester.
type TransferSlot = Slot<Request, TwoBuffers>;

/// Number of a message slot's task that receives a request.
const RECEIVE: usize = 0;
/// Number of a message slot's task that sends an answer.
const SEND: usize = 1;
/// Number of a transfer slot's task that reads the requester's memory.
const READ: usize = 0;
/// Number of a transfer slot's task that writes the requester's memory.
const WRITE: usize = 1;

/// State of a message slot.
#[derive(Debug)]
struct Message {
    /// `None` while the transfer slot owns the message slot.
    transfer: Option<TransferSlot>,
}

/// State of a transfer slot.
#[derive(Debug)]
struct Request {
    /// `None` while the message slot owns the transfer slot.
    message: Option<MessageSlot>,
    /// Number of bytes.
    size: u32,
    /// `None` if the request was refused.
    operation: Option<Operation>,
}

/// The slots of a received request: its transfer slot, which owns the message slot.
#[inline(always)]
fn received(
    mut message: MessageSlot,
    size: u32,
    operation: Option<Operation>,
) -> Result<TransferSlot, Failure> {
    let Some(mut transfer) = message.state_mut().transfer.take() else {
        return Err(not_owned());
    };
    *transfer.state_mut() = Request {
        message: Some(message),
        size,
        operation,
    };
    Ok(transfer)
}

/// The slots of a completed request: its message slot, which owns the transfer slot.
#[inline(always)]
fn executed(mut transfer: TransferSlot) -> Result<MessageSlot, Failure> {
    let Some(mut message) = transfer.state_mut().message.take() else {
        return Err(not_owned());
    };
    message.state_mut().transfer = Some(transfer);
    Ok(message)
}

#[cold]
fn not_owned() -> Failure {
    Failure::unexpected("a slot has lost its counterpart")
}

/// The message slot of a request that is being executed.
fn message_of(transfer: &TransferSlot) -> Option<&MessageSlot> {
    transfer.state().message.as_ref()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// RDMA read: blocks from the requester to the store.
    FromRequester,
    /// RDMA write: blocks from the store to the requester.
    ToRequester,
}

impl Direction {
    #[inline(always)]
    fn submit(self, transfer: TransferSlot) -> Result<(), Refused<Request, TwoBuffers>> {
        match self {
            Self::FromRequester => transfer.submit::<READ>(),
            Self::ToRequester => transfer.submit::<WRITE>(),
        }
    }
}

/// Sets the ranges of the buffers, which must be inside the memory maps, and returns the direction of the transfer.
#[inline(always)]
fn prepare(transfer: &mut TransferSlot, extent: Extent) -> Result<Direction, ErrorCode> {
    const LOCAL: usize = TwoBuffers::LOCAL;
    const REMOTE: usize = TwoBuffers::REMOTE;
    let Extent {
        to_requester,
        local_offset,
        requester_offset,
        len,
    } = extent;
    if to_requester {
        transfer.set_data::<LOCAL>(local_offset, len)?;
        transfer.set_range::<REMOTE>(requester_offset, len)?;
        Ok(Direction::ToRequester)
    } else {
        transfer.set_data::<REMOTE>(requester_offset, len)?;
        transfer.set_range::<LOCAL>(local_offset, len)?;
        Ok(Direction::FromRequester)
    }
}

/// Memory maps of a worker.
struct Maps<'m> {
    messages: &'m Mmap,
    /// The memory of the store.
    storage: &'m Mmap,
    requester: &'m Mmap,
}

/// Allocates the slots of `count` requests: their message slots, which own the transfer slots.
fn allocate<S: Store + 'static, L: IoLayout>(
    count: u32,
    pe: &WorkerPe<Executor<S, L>>,
    inventory: &BufInventory,
    maps: &Maps<'_>,
    (control, control_connection): (&Rdma, &RdmaConnection),
    (data, data_connection): (&Rdma, &RdmaConnection),
) -> doca::Result<Vec<MessageSlot>> {
    let slots = count as usize;
    let idle = |_| Request {
        message: None,
        size: 0,
        operation: None,
    };
    let transfers =
        Slots::with_two_buffers(pe, inventory, maps.storage, maps.requester, slots, idle)?;
    data.read_into::<READ, BlocksTransferred<S, L>>(&transfers, data_connection)?;
    data.write_from::<WRITE, BlocksTransferred<S, L>>(&transfers, data_connection)?;
    let place = (Messages::offset(0), io_message::SIZE as u32, slots);
    let unpaired = |_| Message { transfer: None };
    let messages = Slots::new(pe, inventory, maps.messages, place, unpaired)?;
    control.receive_into::<RECEIVE, RequestReceived<S, L>>(&messages)?;
    control.send_from::<SEND, AnswerSent<S, L>>(&messages, control_connection)?;
    let pairs = messages.into_iter().zip(transfers);
    Ok(pairs
        .map(|(mut message, transfer)| {
            message.state_mut().transfer = Some(transfer);
            message
        })
        .collect())
}

completion_handler! {
    /// Handles received requests.
    struct RequestReceived<S, L> [S: Store + 'static, L: IoLayout];
    |executor: Executor<S, L>, message: Slot<Message, OneBuffer>| executor.request_received(message),
    |code| executor.message_failed("receiving a request", code)
}

completion_handler! {
    /// Handles answers that were sent.
    struct AnswerSent<S, L> [S: Store + 'static, L: IoLayout];
    |executor: Executor<S, L>, message: Slot<Message, OneBuffer>| executor.answer_sent(message),
    |code| executor.message_failed("sending an answer", code)
}

completion_handler! {
    /// Handles transfers of blocks, in either direction.
    struct BlocksTransferred<S, L> [S: Store + 'static, L: IoLayout];
    |executor: Executor<S, L>, transfer: Slot<Request, TwoBuffers>| {
        let step = executor.store.transferred(transfer.index());
        executor.follow(transfer, step);
    },
    |_| executor.transfer_failed(transfer, ErrorCode::IO_FAILED)
}

/// A slot whose submission was answered with `AGAIN`.
enum Deferred {
    Receive(MessageSlot),
    Send(MessageSlot),
    Transfer(TransferSlot, Direction),
}

/// Executes requests. Fields are in the order in which they must be dropped.
struct Executor<S, L> {
    store: S,
    layout: L,
    /// Slots of requests that wait for the disk, by their number. Empty if the store never waits.
    pending: Box<[Option<TransferSlot>]>,
    /// Slots that are submitted later, in order.
    deferred: VecDeque<Deferred>,
    limits: crate::request::Limits,
    writes: Arc<Writes>,
    quarantine: Quarantine,
    /// Number of requests received but not yet answered.
    in_flight: usize,
    operations: u64,
    refused: u64,
    failed: u64,
    traffic: Traffic,
    /// First failure of the worker, which ends its session.
    failure: FirstFailure,
    run: RunFlag,
}

impl<S: Store, L: IoLayout> Executor<S, L> {
    /// Creates the executor of `requests` requests, whose slots are passed to [`begin`](Self::begin).
    fn new(
        store: S,
        layout: L,
        limits: crate::request::Limits,
        requests: usize,
        setup: &Setup,
    ) -> Self {
        let waiting = if S::WAITS { requests } else { 0 };
        Self {
            store,
            layout,
            pending: (0..waiting).map(|_| None).collect(),
            // At any time, at most one task of each request is in flight.
            deferred: VecDeque::with_capacity(requests),
            limits,
            writes: Arc::clone(&setup.writes),
            quarantine: setup.quarantine.clone(),
            in_flight: 0,
            operations: 0,
            refused: 0,
            failed: 0,
            traffic: Traffic::default(),
            failure: FirstFailure::default(),
            run: RunFlag::default(),
        }
    }

    /// Receives requests from now on.
    fn begin(&mut self, messages: Vec<MessageSlot>) -> Result<(), Failure> {
        for message in messages {
            self.receive(message);
        }
        self.failure.outcome()
    }

    /// Failures of messages are reported as failures of the worker while the flag is set.
    fn run(&mut self, run: &RunFlag) {
        self.run = run.clone();
    }

    /// Number of requests received but not yet answered.
    fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Number of answered requests.
    fn operations(&self) -> u64 {
        self.operations
    }

    fn counts(&self) -> Counts {
        self.traffic
            .counts()
            .with(Count::Refused, self.refused)
            .with(Count::Failed, self.failed)
            .with(Count::MediaErrors, self.store.media_errors())
    }

    fn store(&self) -> &S {
        &self.store
    }

    /// Continues I/Os whose disk operations have completed. Returns `true` if there were any.
    #[inline]
    fn poll_store(&mut self) -> Result<bool, Failure> {
        let any = self.store.poll();
        while let Some((number, step)) = self.store.next() {
            match self.pending.get_mut(number).and_then(Option::take) {
                Some(transfer) => self.follow(transfer, step),
                None => return Err(Failure::unexpected("the disk has completed an unknown I/O")),
            }
        }
        self.failure.outcome()?;
        Ok(any)
    }

    /// Logs the numbers of refused requests and dropped messages.
    fn warn(&self) {
        if self.refused != 0 {
            tracing::warn!("{} I/Os were refused", self.refused);
        }
    }

    /// Takes the first failure since the last call.
    #[inline(always)]
    fn outcome(&mut self) -> Result<(), Failure> {
        self.failure.outcome()
    }

    #[inline(always)]
    fn request_received(&mut self, mut message: MessageSlot) {
        self.in_flight += 1;
        let mut bytes = [0; io_message::SIZE];
        let length = message.data_len();
        if !message.read(&mut bytes) || length != bytes.len() {
            return self.refuse_message(message, length);
        }
        let examined = crate::request::examine(self.layout, &bytes, length, self.limits);
        // Sent unchanged if the I/O succeeds. The request is no longer read.
        let answer = self.layout.to_bytes(
            &examined.repr.answer(ErrorCode::SUCCESS.0),
            L::CorrelationId::read(&bytes),
        );
        // Cannot fail, because the request had the same size.
        let _ = message.write(&answer);
        let operation = examined.operation.ok();
        let transfer = match received(message, examined.repr.size, operation) {
            Ok(transfer) => transfer,
            Err(failure) => return self.failure.keep(failure),
        };
        let admitted = examined.operation.and_then(|operation| {
            let io = Io {
                operation,
                storage_offset: examined.repr.storage_offset,
                requester_offset: examined.repr.requester_offset,
                size: examined.repr.size,
                version: Version {
                    epoch: examined.version.epoch,
                    number: examined.version.number,
                },
                retired: examined.version.retired,
            };
            self.admit(&transfer, &io).map(|()| io)
        });
        match admitted {
            Ok(io) => {
                let step = self.store.begin(transfer.index(), io);
                self.follow(transfer, step);
            }
            Err(code) => self.refuse(transfer, code),
        }
    }

    /// Publishes a write, and refuses I/Os that overlap the writes of abandoned workers.
    #[inline(always)]
    fn admit(&self, transfer: &TransferSlot, io: &Io) -> Result<(), ErrorCode> {
        if io.operation == Operation::Flush {
            return Ok(());
        }
        let (offset, size) = (io.storage_offset, u64::from(io.size));
        if !self.quarantine.is_empty() && self.quarantine.holds(offset, size) {
            return Err(ErrorCode::IN_USE);
        }
        if let Operation::Write { .. } = io.operation {
            self.writes.begin(transfer.index(), offset, size);
            // After the write was published: a worker that is abandoned now begins no further write.
            if self.run.is_abandoned() {
                return Err(ErrorCode::SHUTDOWN);
            }
        }
        Ok(())
    }

    /// Executes the next step of an I/O.
    #[inline(always)]
    fn follow(&mut self, mut transfer: TransferSlot, step: Step) {
        match step {
            Step::Transfer(extent) => match prepare(&mut transfer, extent) {
                Ok(direction) => {
                    if let Err(refused) = direction.submit(transfer) {
                        self.not_transferred(refused.slot, direction, refused.code);
                    }
                }
                Err(code) => self.transfer_refused(transfer, code),
            },
            Step::Pending => self.wait(transfer),
            Step::Complete(result) => self.answer(transfer, result),
        }
    }

    /// Stores the slot until the disk has completed the I/O's operation.
    #[inline]
    fn wait(&mut self, transfer: TransferSlot) {
        match self.pending.get_mut(transfer.index()) {
            Some(place) => *place = Some(transfer),
            None => self.failure.keep(Failure::unexpected(
                "an I/O waits for a disk that the store does not have",
            )),
        }
    }

    #[cold]
    fn not_transferred(&mut self, transfer: TransferSlot, direction: Direction, code: ErrorCode) {
        if code == ErrorCode::AGAIN {
            self.deferred
                .push_back(Deferred::Transfer(transfer, direction));
        } else {
            self.transfer_refused(transfer, code);
        }
    }

    #[cold]
    fn transfer_refused(&mut self, transfer: TransferSlot, code: ErrorCode) {
        self.store.abandon(transfer.index());
        self.refuse(transfer, code);
    }

    #[cold]
    fn transfer_failed(&mut self, transfer: TransferSlot, code: ErrorCode) {
        self.store.abandon(transfer.index());
        self.answer(transfer, code);
    }

    /// Refuses a message without the length of a request. The response repeats the received fields.
    #[cold]
    fn refuse_message(&mut self, mut message: MessageSlot, length: usize) {
        let mut bytes = [0; io_message::SIZE];
        if message.read(&mut bytes) && length < bytes.len() {
            bytes[length..].fill(0);
        }
        let repr = self.layout.answer_to(&bytes);
        let id = L::CorrelationId::read(&bytes);
        let written = message.write_data(&self.layout.to_bytes(&repr, id));
        let transfer = written
            .map_err(Failure::from)
            .and_then(|()| received(message, repr.size, None));
        match transfer {
            Ok(transfer) => self.refuse(transfer, ErrorCode::INVALID_VALUE),
            Err(failure) => self.failure.keep(failure),
        }
    }

    #[cold]
    fn refuse(&mut self, transfer: TransferSlot, code: ErrorCode) {
        // Only the first one is logged: a faulty client can send millions per second.
        if self.refused == 0 {
            let mut bytes = [0; io_message::SIZE];
            let _ = message_of(&transfer).is_some_and(|slot| slot.read(&mut bytes));
            let request = self.layout.answer_to(&bytes);
            tracing::warn!(
                "refused an I/O with {code:?}, and will not log further ones: {request:?}"
            );
        }
        self.refused += 1;
        self.answer(transfer, code);
    }

    #[inline(always)]
    fn answer(&mut self, transfer: TransferSlot, result: ErrorCode) {
        let &Request {
            size, operation, ..
        } = transfer.state();
        let mut bytes = u64::from(size);
        if result != ErrorCode::SUCCESS {
            (self.failed, bytes) = (self.failed + 1, 0);
        }
        match operation {
            Some(Operation::Read | Operation::ReadBefore) => self.traffic.read(bytes),
            // Cannot conflict with other sessions, because a slot belongs to a single write.
            Some(Operation::WriteVersion { .. }) => self.traffic.write(bytes),
            Some(Operation::Write { .. }) => {
                self.writes.end(transfer.index());
                self.traffic.write(bytes);
            }
            Some(Operation::Flush) => self.traffic.flush(),
            None => {}
        }
        self.operations += 1;
        let mut message = match executed(transfer) {
            Ok(message) => message,
            Err(failure) => return self.failure.keep(failure),
        };
        if result != ErrorCode::SUCCESS {
            set_result(&mut message, result);
        }
        if let Err(refused) = message.submit::<SEND>() {
            self.not_sent(refused.slot, refused.code);
        }
    }

    #[inline(always)]
    fn answer_sent(&mut self, mut message: MessageSlot) {
        self.in_flight -= 1;
        message.reset_data();
        self.receive(message);
    }

    #[inline(always)]
    fn receive(&mut self, message: MessageSlot) {
        if let Err(refused) = message.submit::<RECEIVE>() {
            self.not_received(refused.slot, refused.code);
        }
    }

    #[cold]
    fn not_sent(&mut self, message: MessageSlot, code: ErrorCode) {
        if code == ErrorCode::AGAIN {
            self.deferred.push_back(Deferred::Send(message));
        } else {
            let failure = Failure::new(code, "an answer cannot be sent");
            self.failure.keep(failure);
        }
    }

    #[cold]
    fn not_received(&mut self, message: MessageSlot, code: ErrorCode) {
        if code == ErrorCode::AGAIN {
            self.deferred.push_back(Deferred::Receive(message));
        } else {
            let failure = Failure::new(code, "a receive cannot be posted");
            self.failure.keep(failure);
        }
    }

    /// A message task has failed. At the end of the run, tasks that wait for requests are flushed.
    #[cold]
    fn message_failed(&mut self, doing: &str, code: ErrorCode) {
        if self.run.is_set() {
            self.failure
                .keep(Failure::new(code, format!("{doing} failed")));
        }
    }

    /// Submits deferred slots, until one is deferred again.
    #[inline]
    fn retry(&mut self) -> Result<(), Failure> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        self.retry_deferred();
        self.failure.outcome()
    }

    #[cold]
    fn retry_deferred(&mut self) {
        while let Some(deferred) = self.deferred.pop_front() {
            let (deferred, code) = match deferred {
                Deferred::Receive(message) => match message.submit::<RECEIVE>() {
                    Ok(()) => continue,
                    Err(refused) => (Deferred::Receive(refused.slot), refused.code),
                },
                Deferred::Send(message) => match message.submit::<SEND>() {
                    Ok(()) => continue,
                    Err(refused) => (Deferred::Send(refused.slot), refused.code),
                },
                Deferred::Transfer(transfer, direction) => match direction.submit(transfer) {
                    Ok(()) => continue,
                    Err(refused) => (Deferred::Transfer(refused.slot, direction), refused.code),
                },
            };
            if code == ErrorCode::AGAIN {
                self.deferred.push_front(deferred);
                return;
            }
            match deferred {
                Deferred::Transfer(transfer, _) => self.transfer_failed(transfer, code),
                Deferred::Receive(message) => self.not_received(message, code),
                Deferred::Send(message) => self.not_sent(message, code),
            }
        }
    }
}

/// Sets the result of an answer that was prepared for success.
#[cold]
fn set_result(message: &mut MessageSlot, result: ErrorCode) {
    let mut bytes = [0; io_message::SIZE];
    if message.read(&mut bytes) {
        IoMessage::new_unchecked_len(&mut bytes).set_result(result.0);
        // Cannot fail, because the message was read before.
        let _ = message.write(&bytes);
    }
}
