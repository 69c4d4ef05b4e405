//! One worker thread of the gga_offload service: drives a [`StripeEngine`] with DOCA's contexts and tasks.
//!
//! [`driver`] reports completions to the engine and carries out its actions, with the tasks of [`tasks`] and the memory of
//! [`memory`]. [`commands`] are what the main thread asks of a worker that runs, to bring a target back.

pub(crate) mod commands;
mod dma;
mod driver;
pub(crate) mod memory;
mod tasks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::{Access, BufInventory, Compress, ContextId, ErasureCoding, ErrorCode, Mmap, Pe};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::readiness::wait_until_running;
use role_common::service::endpoints::{ComchEnds, TargetEnds};
use role_common::service::{Command, Reply, WorkerSetup};
use role_common::stored_block::{Encoder, MatrixType};
use role_common::submit::DeferredTasks;
use role_common::superblock::SetId;
use role_common::turns::run_to_end;
use role_common::worker::{DataPath, RunFlag};

use wire::release::{IoLayout, Release, Release3_0, Release3_1, Release3_2};

use crate::cli::ChecksumPolicy;
use crate::engine::request::Volume;
use crate::engine::set::Set;
use crate::engine::stripe_lock::StripeLocks;
use crate::engine::{self, BACKGROUND_SLOTS, StripeEngine};
use crate::statistics::GgaCoreStatistics;
use crate::target::Target;
use commands::Commands;
use dma::Fetcher;
use memory::{PrivateMemory, StripeMemory};
use tasks::{Kind, Maker, Tasks};

/// Tasks of each slot that can be deferred at once: at most one per target and one more, and the receives of results.
const DEFERRED: usize = 3 + 1 + 3;

/// Slots of each worker, for so many requests of the initiator.
pub(crate) fn all_slots(requests: u32) -> u32 {
    requests + BACKGROUND_SLOTS
}

/// What a worker is made from.
pub(crate) struct Setup {
    pub(crate) worker: WorkerSetup,
    pub(crate) memory: StripeMemory,
    pub(crate) initiator: Mmap,
    pub(crate) locks: Arc<StripeLocks>,
    pub(crate) set: Arc<Set>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) volume: Volume,
    pub(crate) matrix_type: MatrixType,
    pub(crate) checksum: ChecksumPolicy,
    /// The set that checksums are bound to.
    pub(crate) set_id: SetId,
    pub(crate) recover_every: u32,
    pub(crate) is_degradable: bool,
    /// `true` if initiator and targets have announced flushes and durable writes.
    pub(crate) flush: bool,
    /// A target that owes an answer for so long is unresponsive.
    pub(crate) stall_timeout: Duration,
    /// The moment that the engine's time is counted from.
    pub(crate) began: Instant,
}

/// The data path of one worker, whatever its I/O messages.
pub(crate) type AnyGgaDataPath =
    Box<dyn DataPath<Command = Command, Reply = Reply, Report = GgaCoreStatistics>>;

/// Layouts of messages, which may be relative to the memory of their requester.
#[derive(Debug, Clone, Copy)]
struct Layouts<L> {
    /// With the initiator, which requests.
    initiator: L,
    /// With the targets, which this service requests of.
    targets: L,
}

/// Creates the data path of a worker. How it reads messages is settled here, once.
pub(crate) fn create(setup: Setup) -> Result<AnyGgaDataPath, Failure> {
    fn both<L: IoLayout>(layout: L) -> Layouts<L> {
        Layouts {
            initiator: layout,
            targets: layout,
        }
    }
    Ok(match setup.worker.release {
        Release::V3_0 => {
            let relative_to = |mmap: &Mmap| Release3_0 {
                requester_address: mmap.base_address(),
            };
            let layouts = Layouts {
                initiator: relative_to(&setup.initiator),
                targets: relative_to(&setup.memory.mmap),
            };
            Box::new(GgaDataPath::create(setup, layouts)?)
        }
        Release::V3_1 => Box::new(GgaDataPath::create(setup, both(Release3_1))?),
        Release::V3_2 => Box::new(GgaDataPath::create(setup, both(Release3_2))?),
    })
}

/// The data path of one worker. Fields are in the order in which they must be dropped.
pub(crate) struct GgaDataPath<L: IoLayout> {
    /// How messages of the initiator and those of the targets are read.
    layouts: Layouts<L>,
    tasks: Tasks,
    fetcher: Fetcher,
    /// `None` once the service has left it.
    comch: Option<ComchEnds>,
    /// `None` while the target is detached.
    targets: [Option<TargetEnds>; 3],
    coding: ErasureCoding,
    decompressor: Compress,
    inventory: BufInventory,
    message_map: Mmap,
    messages: Messages,
    private: PrivateMemory,
    pe: Pe,
    engine: StripeEngine,
    deferred: DeferredTasks,
    encoder: Encoder,
    /// Room to look at what lies in memory of the device: content that is to be compressed, a stored block
    /// that is to be judged, and a chunk of it that was recovered.
    content: Vec<u8>,
    stored: Vec<u8>,
    recovered: Vec<u8>,
    /// The slot whose block is in `stored`, and how many bytes of LZ4 data it has.
    judged: Option<(u32, usize)>,
    /// Contexts of detached targets, whose last events may not have been reaped yet.
    retired: Vec<ContextId>,
    clock: Clock,
    setup: Setup,
}

/// The engine's time. It is read when there is nothing to do, and once in so many poll iterations.
#[derive(Debug)]
struct Clock {
    began: Instant,
    now: Duration,
    iterations: u32,
}

/// Poll iterations between clock reads while there is always something to do.
const BUSY_ITERATIONS: u32 = 64;

impl Clock {
    fn new(began: Instant) -> Self {
        Self {
            began,
            now: began.elapsed(),
            iterations: 0,
        }
    }

    #[inline]
    fn poll_iteration(&mut self, is_idle: bool) {
        self.iterations = self.iterations.wrapping_add(1);
        if is_idle || self.iterations.is_multiple_of(BUSY_ITERATIONS) {
            self.now = self.began.elapsed();
        }
    }
}

impl<L: IoLayout> GgaDataPath<L> {
    fn create(setup: Setup, layouts: Layouts<L>) -> Result<Self, Failure> {
        let (worker, geometry) = (&setup.worker, setup.volume.geometry);
        let count = all_slots(worker.transaction_count);
        let slots = count as usize;
        let messages = Messages::new(tasks::messages(slots))?;
        let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
        let message_map = Mmap::register(&worker.device, Arc::clone(messages.region()), access)?;
        let private = PrivateMemory::allocate(&worker.device, geometry, slots)?;
        let inventory = BufInventory::new(tasks::bufs(slots))?;
        let pe = Pe::new()?;
        let comch = ComchEnds::start(&pe, &worker.client, &message_map, count, count)?;
        let offline = setup.set.view().offline;
        let ends = |target: Target| -> Result<Option<TargetEnds>, Failure> {
            if offline.contains(target) {
                return Ok(None);
            }
            TargetEnds::start(&pe, &worker.device, count).map(Some)
        };
        let targets = [
            ends(Target::Data1)?,
            ends(Target::Data2)?,
            ends(Target::DataP)?,
        ];
        let coding = ErasureCoding::builder(&worker.device)
            .create_tasks(count)
            .recover_tasks(count.saturating_mul(2))
            .start(&pe)?;
        let decompressor = Compress::builder(&worker.device)
            .decompress_lz4_stream_tasks(count)
            .start(&pe)?;
        let fetcher = Fetcher::start(&pe, &worker.device, count)?;
        let engine = StripeEngine::new(engine::Setup {
            worker: worker.index,
            requests: worker.transaction_count,
            recover_every: setup.recover_every,
            requires_checksums: setup.checksum == ChecksumPolicy::Require,
            is_degradable: setup.is_degradable,
            stall_timeout: setup.stall_timeout,
            set: Arc::clone(&setup.set),
            locks: Arc::clone(&setup.locks),
        });
        Ok(Self {
            layouts,
            tasks: Tasks::default(),
            fetcher,
            comch: Some(comch),
            targets,
            coding,
            decompressor,
            inventory,
            message_map,
            messages,
            private,
            pe,
            engine,
            deferred: DeferredTasks::with_capacity(slots * DEFERRED),
            encoder: Encoder::new(geometry, setup.checksum.written()),
            content: vec![0; geometry.logical_block_size as usize],
            stored: vec![0; geometry.stored_block_size as usize],
            recovered: vec![0; geometry.half_block_size() as usize],
            judged: None,
            retired: Vec::new(),
            clock: Clock::new(setup.began),
            setup,
        })
    }

    fn target_ends(&mut self, target: usize) -> Result<&mut TargetEnds, Failure> {
        self.targets
            .get_mut(target)
            .and_then(Option::as_mut)
            .ok_or_else(|| Failure::invalid(format!("there is no connection to target {target}")))
    }

    /// Allocates the tasks when all contexts run, and posts the receives.
    fn prepare(&mut self, initiator_consumer: u32, within: Duration) -> Result<(), Failure> {
        let Some(comch) = &self.comch else {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                "the worker has left Comch already",
            ));
        };
        let states = || {
            let targets = self.targets.iter().flatten();
            let accelerators = [self.coding.state(), self.decompressor.state()];
            comch
                .states()
                .into_iter()
                .chain(targets.flat_map(TargetEnds::states))
                .chain([self.fetcher.state()])
                .chain(accelerators)
        };
        let what = "the Comch, RDMA and accelerator contexts";
        wait_until_running(&self.pe, within, what, states)?;
        let setup = &self.setup;
        let geometry = setup.volume.geometry;
        let slots = self.engine.slots();
        let encoding = self.coding.matrix(setup.matrix_type.into(), 2, 1)?;
        let recovery = |missing: Target| {
            self.coding
                .recover_matrix(&encoding, &[missing.number() as u32])
        };
        let recoveries = [recovery(Target::Data1)?, recovery(Target::Data2)?];
        let maker = Maker {
            comch,
            initiator_consumer,
            targets: &self.targets,
            coding: &self.coding,
            encoding,
            recoveries,
            decompressor: &self.decompressor,
            inventory: &self.inventory,
            messages: &self.message_map,
            memory: &setup.memory.mmap,
            private: &self.private,
            private_parity: self.has_private_parity(),
            initiator: &setup.initiator,
            geometry,
            first: setup.memory.first,
            first_buffer: u64::from(setup.worker.index) * slots as u64,
        };
        let what = format_args!("{slots} transactions");
        self.tasks = Tasks::allocate(&maker, slots).map_err(|failure| failure.context(what))?;
        self.fetcher
            .prepare(&self.inventory, &setup.initiator, &self.private, geometry)?;
        for target in Target::ALL {
            if self.targets[target.number()].is_some() {
                for lane in 0..slots {
                    self.must_submit(lane, Kind::ReceiveResult(target))?;
                }
            }
        }
        for lane in 0..self.setup.worker.transaction_count as usize {
            self.must_submit(lane, Kind::ReceiveRequest)?;
        }
        Ok(())
    }

    /// Whether parity is made of the stored block in private memory: a target that was detached while it was not scheduled may still
    /// write to its chunk of the stripe buffer.
    fn has_private_parity(&self) -> bool {
        self.setup.is_degradable
    }

    fn leave_comch(&mut self) -> Result<(), Failure> {
        self.tasks = Tasks::default();
        self.comch.take().map_or(Ok(()), ComchEnds::stop)
    }
}

impl<L: IoLayout> DataPath for GgaDataPath<L> {
    type Command = Command;
    type Reply = Reply;
    type Report = GgaCoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Export { target, role } => {
                let export = self.target_ends(target)?.endpoint(role).export()?;
                return Ok(Reply::Exported(export));
            }
            Command::Connect {
                target,
                role,
                details,
            } => self.target_ends(target)?.endpoint(role).connect(&details)?,
            Command::Prepare { consumer, within } => self.prepare(consumer, within)?,
            Command::LeaveComch => self.leave_comch()?,
        }
        Ok(Reply::Done)
    }

    fn run(&mut self, run: &RunFlag) -> Result<GgaCoreStatistics, Failure> {
        let calls = run_to_end(self, run)?;
        let core = self.setup.worker.core;
        let statistics = self.engine.statistics_mut();
        statistics.core.core = core;
        statistics.core.pe_hit_count = calls.hits;
        statistics.core.pe_miss_count = calls.misses;
        Ok(*statistics)
    }
}
