//! Data path of one worker thread of the target.
//!
//! A request arrives in the buffer of a message slot (RDMA receive), a transfer slot moves its blocks between the
//! service's client and the memory of the [`Store`] (RDMA write for a read, RDMA read for a write), and the answer leaves
//! from the buffer of the message slot (RDMA send), which then waits for the next request. The two RDMA contexts keep
//! answers from queueing behind other transfers.
//!
//! A worker of a file polls messages and its disk. After some polls without either it sleeps until one of them is ready,
//! if the disk has operations in flight.

mod execution;
pub mod request;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use doca::{Access, BufInventory, Device, MemoryRegion, Mmap, PeStats, Rdma, WorkerPe};
use role_common::Failure;
use role_common::ends;
use role_common::messages::Messages;
use role_common::metrics::{Counts, WorkerMetrics};
use role_common::rdma::RdmaEndpoint;
use role_common::readiness::wait_until_running;
use role_common::run_loop::{Limits, PollDriven, run_to_end};
use role_common::statistics::CoreStatistics;
use role_common::worker::{DataPath, RunFlag};
use wire::control::RdmaConnectionRole;
use wire::release::{IoLayout, Release, Release3_0, Release3_1, Release3_2};

use crate::backing::BackingFile;
use crate::content::Geometry;
use crate::quarantine::{Quarantine, Writes};
use crate::store::disk::FileDisk;
use crate::store::{FileStore, Layout, MemoryStore, SectorLocks, Store};
use execution::{AnswerSent, BlocksTransferred, Executor, RequestReceived};
use transfers::Maps;

/// Poll iterations without anything to do after which a worker sleeps until its disk or a message has something.
const IDLE_POLLS: u32 = 24;

/// Longest such sleep: a stop of the worker is noticed after it.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

pub(crate) fn permissions() -> Access {
    Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE
}

/// Settings and resources of a worker.
pub(crate) struct Setup {
    pub(crate) core: u32,
    pub(crate) device: Device,
    /// The blocks.
    pub(crate) blocks: Blocks,
    pub(crate) geometry: Geometry,
    /// The release of the session's I/O messages.
    pub(crate) release: Release,
    /// `true` if flushes and durable writes were announced.
    pub(crate) flush: bool,
    /// The memory of the service's client.
    pub(crate) requester: Mmap,
    pub(crate) transaction_count: u32,
    /// Where the worker publishes its counts, with `--metrics`.
    pub(crate) metrics: Option<Arc<WorkerMetrics>>,
    /// How long there may be nothing to do, or nobody who takes results.
    pub(crate) idle_timeout: Option<Duration>,
    /// Where its writes in flight are published; one for each transaction.
    pub(crate) writes: Arc<Writes>,
    /// Blocks that abandoned workers may still write to.
    pub(crate) quarantine: Quarantine,
    /// Sector locks of the session, shared by its workers. Not by those of other sessions: an abandoned worker keeps its locks until its peer
    /// lets it go.
    pub(crate) locks: Arc<SectorLocks>,
}

/// Where the blocks of a target are.
#[derive(Debug, Clone)]
pub(crate) enum Blocks {
    /// In memory that is registered with the device.
    Memory(Mmap),
    /// In a file.
    File(Arc<BackingFile>),
}

/// Commands of the main thread.
pub(crate) enum Command {
    /// Export a connection and connect it to the other end's export.
    Connect {
        role: RdmaConnectionRole,
        details: Vec<u8>,
    },
    /// Wait, at most this long, for the contexts to be ready; then wait for requests.
    Prepare(Duration),
}

/// Answer to a [`Command`].
pub(crate) enum Reply {
    /// The export of the local end.
    Exported(Vec<u8>),
    /// Requests may come.
    Prepared,
}

/// The data path of one worker, whatever its store and its I/O messages.
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

/// Creates the data path of a worker. What it stores blocks in and how it reads messages is settled here, once.
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

fn create_with<L: IoLayout>(setup: Setup, io_layout: L) -> Result<TargetDataPath, Failure> {
    let slots = setup.transaction_count as usize;
    Ok(match &setup.blocks {
        Blocks::Memory(mmap) => {
            let mmap = mmap.clone();
            Box::new(Worker::create(setup, MemoryStore, io_layout, mmap)?)
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
            // It is the target that reads and writes the memory of others.
            let mmap =
                Mmap::register(&setup.device, Arc::clone(&memory), Access::LOCAL_READ_WRITE)?;
            let disk = FileDisk::new(Arc::clone(&file), &memory, slots);
            let (locks, written) = (Arc::clone(&setup.locks), Arc::clone(file.written()));
            let health = Arc::clone(file.health());
            let store = FileStore::new(disk, layout, slots, locks, written, health);
            Box::new(Worker::create(setup, store, io_layout, mmap)?)
        }
    })
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
    /// Poll iterations since anything has happened.
    idle: u32,
}

impl<S: Store + 'static, L: IoLayout> Worker<S, L> {
    fn create(setup: Setup, store: S, layout: L, storage: Mmap) -> Result<Self, Failure> {
        let count = setup.transaction_count;
        let slots = count as usize;
        let messages = Messages::new(slots)?;
        let message_map =
            Mmap::register(&setup.device, Arc::clone(messages.region()), permissions())?;
        // One buffer for the messages of a transfer, one for either end of its blocks.
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
        let limits = request::Limits {
            storage: setup.geometry.capacity(),
            requester: setup.requester.len(),
            flush: setup.flush,
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
        let messages = transfers::allocate(
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
            ends::happened(
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
