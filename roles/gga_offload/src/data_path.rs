//! One worker thread of the gga_offload service: drives a [`StripeEngine`] with DOCA's contexts and tasks.
//!
//! [`driver`] reports completions to the engine and executes its actions, with the buffers, tasks and memory of [`slots`]. This file
//! starts and stops contexts, and allocates their slots.
//! [`Commands`] are requests of the main thread to a running worker, to reattach a target.

mod driver;
pub(crate) mod slots;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use control::{Failure, FirstFailure};
use doca::{
    Access, BufInventory, Compress, Consumer, ContextId, EcMatrix, ErasureCoding, ErrorCode,
    Lz4Stream, Mmap, Producer, Slots, TwoBuffers, WorkerPe,
};
use driver::{
    AnswerSent, ChunkRequestSent, Copied, Decompressed, Driver, ParityCreated, Recovered,
    RequestReceived, ResultReceived,
};
use gga_engine::chunk;
use gga_engine::engine::{self, Action, BACKGROUND_SLOTS, Event, StripeEngine};
use gga_engine::request::Volume;
use gga_engine::set::Set;
use gga_engine::stripes::StripeLocks;
use gga_engine::{Target, Targets};
use metrics::CoreStatistics;
use role_common::data_path::{
    ComchEndpoints, Messages, TargetEndpoints, run_to_end, wait_until_running,
};
use role_common::matrix;
use role_common::service::{Command, Reply, WorkerCommand, WorkerSetup};
use role_common::worker::{DataPath, RunFlag};
use role_formats::stored_block::{Encoder, MatrixType};
use role_formats::superblock::{Format, SetId};
use slots::{
    ANSWER, Copier, CopyMemory, IdleSlots, MessagePlaces, PrivateMemory, RECEIVE, SlotTask,
    StripeMemory, TASK, idle,
};
use wire::control::RdmaConnectionRole;
use wire::release::{IoLayout, Release, Release3_0, Release3_1, Release3_2};

use super::statistics::GgaCoreStatistics;

/// Maximum number of deferred slots per transaction: a request to each of the three targets, another task, and a
/// receive for each target's result.
const DEFERRED: usize = 3 + 1 + 3;

/// Number of a worker's slots for this many requests of the initiator.
pub(crate) fn all_slots(requests: u32) -> u32 {
    requests + BACKGROUND_SLOTS
}

pub(crate) struct Setup {
    pub(crate) worker: WorkerSetup,
    pub(crate) memory: StripeMemory,
    pub(crate) initiator: Mmap,
    pub(crate) locks: Arc<StripeLocks>,
    pub(crate) set: Arc<Set>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) volume: Volume,
    pub(crate) matrix_type: MatrixType,
    /// The set that chunks belong to.
    pub(crate) set_id: SetId,
    pub(crate) recover_every: u32,
    /// `true` if initiator and targets have announced flushes and durable writes.
    pub(crate) flush: bool,
    /// Time without an answer after which a target is unresponsive.
    pub(crate) stall_timeout: Duration,
    /// Time that I/Os wait for two current targets.
    pub(crate) parking_timeout: Duration,
    /// Origin of the engine's time.
    pub(crate) began: Instant,
}

impl Setup {
    /// Returns `true` if blocks are stored as chunks, `false` for the reference's form.
    fn stores_chunks(&self) -> bool {
        self.volume.format == Format::StoredChunks
    }
}

/// The memory from and to which blocks are copied.
fn copy_memory<'a>(
    inventory: &'a BufInventory,
    setup: &'a Setup,
    private: &'a PrivateMemory,
) -> CopyMemory<'a> {
    CopyMemory {
        inventory,
        initiator: &setup.initiator,
        private,
        geometry: setup.volume.geometry,
    }
}

/// The data path of one worker, independent of the layout of its I/O messages.
pub(crate) type AnyGgaDataPath =
    Box<dyn DataPath<Command = Command, Reply = Reply, Report = GgaCoreStatistics>>;

/// Layouts of I/O messages with both peers. A layout may contain the requester's addresses.
#[derive(Debug, Clone, Copy)]
struct Layouts<L> {
    /// Layout of messages with the initiator.
    initiator: L,
    /// Layout of messages with the targets.
    targets: L,
}

/// Creates the data path of a worker. The layout of messages is selected here, once.
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
    driver: Driver<L>,
    /// `None` without an initiator, and once the service has disconnected.
    comch: Option<ComchEndpoints>,
    /// `None` while the target is detached.
    targets: [Option<TargetEndpoints>; 3],
    coding: ErasureCoding,
    /// `None` if blocks are stored as chunks.
    decompressor: Option<Compress>,
    inventory: BufInventory,
    message_map: Mmap,
    places: MessagePlaces,
    pe: WorkerPe<Driver<L>>,
    /// Contexts of detached targets whose last events may not have been polled yet.
    retired: Vec<ContextId>,
}

/// Clock of the engine. Read when the worker is idle, and once every few poll iterations.
#[derive(Debug)]
struct Clock {
    began: Instant,
    now: Duration,
    iterations: u32,
}

/// Poll iterations between clock reads while the worker is busy.
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
        let requests = worker.transaction_count;
        let count = all_slots(requests);
        let slots = count as usize;
        let places = MessagePlaces {
            requests: requests as usize,
            slots,
        };
        let messages = Messages::new(places.messages())?;
        let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
        let message_map = Mmap::register(&worker.device, Arc::clone(messages.region()), access)?;
        let private = PrivateMemory::allocate(&worker.device, geometry, slots)?;
        let inventory = BufInventory::new(places.bufs())?;
        let pe = WorkerPe::new()?;
        let endpoints = |client| -> Result<ComchEndpoints, Failure> {
            Ok(ComchEndpoints {
                consumer: Consumer::start_with::<RequestReceived<L>>(
                    &pe,
                    client,
                    &message_map,
                    requests,
                )?,
                producer: Producer::start_with::<AnswerSent<L>>(&pe, client, requests)?,
            })
        };
        let comch = worker.client.as_ref().map(endpoints).transpose()?;
        let offline = setup.set.view().offline;
        let endpoints = |target: Target| -> Result<Option<TargetEndpoints>, Failure> {
            if offline.contains(target) {
                return Ok(None);
            }
            target_endpoints(&pe, &setup.worker, count).map(Some)
        };
        let targets = [
            endpoints(Target::Data1)?,
            endpoints(Target::Data2)?,
            endpoints(Target::DataP)?,
        ];
        let coding = ErasureCoding::builder(&worker.device)
            .create_tasks(count)
            .create_handler::<ParityCreated<L>>()
            .recover_tasks(count.saturating_mul(2))
            .recover_handler::<Recovered<L>>()
            .start(&pe)?;
        let stores_chunks = setup.stores_chunks();
        let decompressor = if stores_chunks {
            None
        } else {
            let builder = Compress::builder(&worker.device)
                .decompress_lz4_stream_tasks(count)
                .decompress_lz4_stream_handler::<Decompressed<L>>();
            Some(builder.start(&pe)?)
        };
        let copier = Copier::start::<Copied<L>>(&pe, &worker.device, count, stores_chunks)?;
        let engine = StripeEngine::new(engine::Setup {
            worker: worker.index,
            requests,
            recover_every: setup.recover_every,
            stores_chunks,
            stall_timeout: setup.stall_timeout,
            parking_timeout: setup.parking_timeout,
            set: Arc::clone(&setup.set),
            locks: Arc::clone(&setup.locks),
        });
        let driver = Driver {
            layouts,
            idle: IdleSlots::default(),
            copier,
            deferred: VecDeque::with_capacity(slots * DEFERRED),
            private,
            engine,
            leaving: Targets::NONE,
            encoder: Encoder::new(geometry),
            content: vec![0; geometry.logical_block_size as usize],
            stored: vec![0; geometry.stored_block_size as usize],
            examined: None,
            clock: Clock::new(setup.began),
            failure: FirstFailure::default(),
            run: RunFlag::default(),
            setup,
        };
        Ok(Self {
            driver,
            comch,
            targets,
            coding,
            decompressor,
            inventory,
            message_map,
            places,
            pe,
            retired: Vec::new(),
        })
    }

    fn target_endpoints(&mut self, target: usize) -> Result<&mut TargetEndpoints, Failure> {
        self.targets
            .get_mut(target)
            .and_then(Option::as_mut)
            .ok_or_else(|| Failure::invalid(format!("there is no connection to target {target}")))
    }

    /// Allocates the slots once all contexts are running, and posts the receives.
    fn prepare(&mut self, initiator_consumer: u32, within: Duration) -> Result<(), Failure> {
        let comch = self.comch.as_ref();
        if comch.is_none() && self.driver.setup.worker.client.is_some() {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                "the worker has left Comch already",
            ));
        }
        let states = || {
            let targets = self.targets.iter().flatten();
            let accelerators = [self.coding.state()].into_iter();
            let decompressor = self.decompressor.as_ref().map(Compress::state);
            let comch = comch.into_iter().flat_map(ComchEndpoints::states);
            comch
                .chain(targets.flat_map(TargetEndpoints::states))
                .chain([self.driver.copier.state()])
                .chain(accelerators)
                .chain(decompressor)
        };
        let what = "the Comch, RDMA and accelerator contexts";
        wait_until_running(&self.pe, within, what, states)?;
        let transactions = self.places.slots;
        let what = format_args!("{transactions} transactions");
        let allocated = self.allocate(comch, initiator_consumer);
        self.driver.idle = allocated.map_err(|failure| failure.context(what))?;
        let driver = &mut self.driver;
        let memory = copy_memory(&self.inventory, &driver.setup, &driver.private);
        driver.copier.prepare::<Copied<L>>(&self.pe, &memory)?;
        for target in Target::ALL {
            if self.targets[target.number()].is_some() {
                self.exchange_messages(target)?;
            }
        }
        if self.comch.is_some() {
            for lane in 0..self.driver.setup.worker.transaction_count {
                self.driver.receive_request(lane)?;
            }
        }
        Ok(())
    }

    /// Allocates the slots for the initiator's messages, and those of the accelerators for stored blocks.
    fn allocate(
        &self,
        comch: Option<&ComchEndpoints>,
        initiator_consumer: u32,
    ) -> Result<IdleSlots, Failure> {
        let (pe, inventory) = (&self.pe, &self.inventory);
        let messages = match comch {
            Some(comch) => {
                let place = self.places.of_requests();
                let messages = Slots::new(pe, inventory, &self.message_map, place, |_| 0)?;
                comch
                    .consumer
                    .receive_into::<RECEIVE, RequestReceived<L>>(&messages)?;
                comch
                    .producer
                    .send_from::<ANSWER, AnswerSent<L>>(&messages, initiator_consumer)?;
                idle(messages)
            }
            None => Vec::new(),
        };

        let setup = &self.driver.setup;
        let (private, memory) = (self.driver.private.mmap(), &setup.memory.mmap);
        let slots = self.places.slots;
        let encoding = self
            .coding
            .matrix(matrix::of_device(setup.matrix_type), 2, 1)?;
        let chunks = if setup.stores_chunks() {
            private
        } else {
            memory
        };
        let parities = Slots::with_two_buffers(pe, inventory, chunks, chunks, slots, |_| ())?;
        self.coding
            .create_in::<TASK, ParityCreated<L>>(&parities, &encoding)?;
        let recoveries = [
            self.recoveries(&encoding, Target::Data1)?,
            self.recoveries(&encoding, Target::Data2)?,
        ];
        let decompressions = match &self.decompressor {
            None => Vec::new(),
            Some(decompressor) => {
                let initiator = &setup.initiator;
                let slots =
                    Slots::with_two_buffers(pe, inventory, private, initiator, slots, |_| ())?;
                decompressor.decompress_lz4_stream_in::<TASK, Decompressed<L>>(
                    &slots,
                    Lz4Stream::default(),
                )?;
                idle(slots)
            }
        };

        let mut idle_slots = IdleSlots {
            messages,
            parities: idle(parities),
            recoveries: recoveries.map(idle),
            decompressions,
            ..IdleSlots::default()
        };
        self.set_ranges(&mut idle_slots)
            .map_err(|code| Failure::new(code, "the range of a buffer cannot be set"))?;
        Ok(idle_slots)
    }

    /// Slots that recover the chunk of a data target from the other two chunks, in ascending order as erasure coding requires.
    fn recoveries(
        &self,
        encoding: &EcMatrix,
        missing: Target,
    ) -> doca::Result<Slots<Target, TwoBuffers>> {
        let (pe, inventory) = (&self.pe, &self.inventory);
        let private = self.driver.private.mmap();
        let slots = self.places.slots;
        let from = if self.driver.setup.stores_chunks() {
            private
        } else {
            &self.driver.setup.memory.mmap
        };
        let recoveries = Slots::with_two_buffers(pe, inventory, from, private, slots, |_| missing)?;
        let (_, length) = self.payload(0, Target::DataP);
        let parity = |slot| (self.payload(slot, Target::DataP).0, length);
        recoveries.append_data::<{ TwoBuffers::SOURCE }>(inventory, from, parity)?;
        let matrix = self
            .coding
            .recover_matrix(encoding, &[missing.number() as u32])?;
        self.coding
            .recover_in::<TASK, Recovered<L>>(&recoveries, &matrix)?;
        Ok(recoveries)
    }

    /// Offset and length of the payload of a target's chunk: in private memory, or in the reference's form, whose chunks are all payload, in the stripe
    /// buffer.
    fn payload(&self, slot: usize, target: Target) -> (u64, usize) {
        let chunk = self.driver.setup.volume.geometry.half_block_size() as usize;
        if self.driver.setup.stores_chunks() {
            let length = chunk::payload_range(target, chunk).len();
            let offset = self.driver.private.offset(slot) + (target.number() * length) as u64;
            (offset, length)
        } else {
            (self.driver.buffer(slot as u32).chunk(target), chunk)
        }
    }

    /// Sets the ranges of buffers that do not change later.
    fn set_ranges(&self, idle: &mut IdleSlots) -> Result<(), ErrorCode> {
        const SOURCE: usize = TwoBuffers::SOURCE;
        const DESTINATION: usize = TwoBuffers::DESTINATION;
        for parity in idle.parities.iter_mut().flatten() {
            let slot = parity.index();
            let (data, length) = self.payload(slot, Target::Data1);
            parity.set_data::<SOURCE>(data, 2 * length)?;
            let (offset, length) = self.payload(slot, Target::DataP);
            parity.set_range::<DESTINATION>(offset, length)?;
        }
        for recovery in idle.recoveries.iter_mut().flatten().flatten() {
            let slot = recovery.index();
            let missing = *recovery.state();
            let other = match missing {
                Target::Data1 => Target::Data2,
                _ => Target::Data1,
            };
            let (data, length) = self.payload(slot, other);
            recovery.set_data::<SOURCE>(data, length)?;
            let to = if self.driver.setup.stores_chunks() {
                self.payload(slot, missing).0
            } else {
                self.driver.private.offset(slot)
            };
            recovery.set_range::<DESTINATION>(to, length)?;
        }
        Ok(())
    }

    /// Allocates the slots for messages to and from a target, and posts the receives of its results.
    fn exchange_messages(&mut self, target: Target) -> Result<(), Failure> {
        let endpoints = self.targets[target.number()].as_ref();
        let endpoints =
            endpoints.ok_or_else(|| Failure::unexpected("there is no connection to attach"))?;
        let connection = endpoints
            .control
            .connection()
            .map_err(|failure| failure.context(format_args!("storage target {}", target.name())))?;
        let rdma = endpoints.control.rdma();
        let (pe, inventory, map) = (&self.pe, &self.inventory, &self.message_map);
        let place = self.places.of_sends(target);
        let sends = Slots::new(pe, inventory, map, place, |_| target)?;
        rdma.send_from::<TASK, ChunkRequestSent<L>>(&sends, connection)?;
        let place = self.places.of_results(target);
        let results = Slots::new(pe, inventory, map, place, |_| target)?;
        rdma.receive_into::<TASK, ResultReceived<L>>(&results)?;
        self.driver.idle.sends[target.number()] = idle(sends);
        for result in results {
            self.driver
                .submit(SlotTask::ReceiveResult(result))
                .map_err(|code| Failure::new(code, "the receive of a result"))?;
        }
        Ok(())
    }

    fn leave_comch(&mut self) -> Result<(), Failure> {
        self.driver.idle = IdleSlots::default();
        self.driver.deferred.clear();
        self.comch.take().map_or(Ok(()), ComchEndpoints::stop)
    }
}

/// Starts the contexts of a target, for this number of concurrent requests.
fn target_endpoints<L: IoLayout>(
    pe: &WorkerPe<Driver<L>>,
    worker: &WorkerSetup,
    messages: u32,
) -> Result<TargetEndpoints, Failure> {
    TargetEndpoints::start(pe, &worker.device, messages, |control| {
        control
            .receive_handler::<ResultReceived<L>>()
            .send_handler::<ChunkRequestSent<L>>()
    })
}

impl<L: IoLayout> DataPath for GgaDataPath<L> {
    type Command = Command;
    type Reply = Reply;
    type Report = GgaCoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Export { target, role } => {
                let export = self.target_endpoints(target)?.endpoint(role).export()?;
                return Ok(Reply::Exported(export));
            }
            Command::Connect {
                target,
                role,
                details,
            } => self
                .target_endpoints(target)?
                .endpoint(role)
                .connect(&details)?,
            Command::Prepare { consumer, within } => self.prepare(consumer, within)?,
            Command::LeaveComch => self.leave_comch()?,
        }
        Ok(Reply::Done)
    }

    fn run(&mut self, run: &RunFlag) -> Result<GgaCoreStatistics, Failure> {
        self.driver.run = run.clone();
        let result = run_to_end(self, run);
        // Otherwise, the set could be closed as clean.
        self.driver.engine.abandon_stores();
        let calls = result?;
        let core = self.driver.setup.worker.core;
        let engine = *self.driver.engine.statistics();
        Ok(GgaCoreStatistics {
            core: CoreStatistics {
                core,
                operation_count: engine.operation_count,
                pe_hit_count: calls.hits,
                pe_miss_count: calls.misses,
                ..CoreStatistics::default()
            },
            engine,
        })
    }
}

// Commands of the main thread to running workers, to reattach a detached target.

/// The commands of all workers, each with the number of its attempt.
pub(crate) struct Commands {
    workers: Box<[Inbox]>,
    replies: Mutex<VecDeque<WorkerReply>>,
    /// Wakes the main thread.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// `true` if there are commands; checked by the worker in every poll iteration.
    has_any: AtomicBool,
    commands: Mutex<VecDeque<(u32, WorkerCommand)>>,
}

#[derive(Debug)]
pub(crate) struct WorkerReply {
    pub(crate) worker: u32,
    pub(crate) attempt: u32,
    pub(crate) reply: Result<Reply, Failure>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under these locks leaves consistent data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Commands {
    pub(crate) fn of_workers(count: u32, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            workers: (0..count).map(|_| Inbox::default()).collect(),
            replies: Mutex::default(),
            wake: Box::new(wake),
        }
    }

    /// Sends a command to a worker, if it exists.
    pub(crate) fn send(&self, worker: u32, attempt: u32, command: WorkerCommand) {
        if let Some(inbox) = self.workers.get(worker as usize) {
            lock(&inbox.commands).push_back((attempt, command));
            inbox.has_any.store(true, Ordering::Release);
        }
    }

    pub(crate) fn next_reply(&self) -> Option<WorkerReply> {
        lock(&self.replies).pop_front()
    }

    #[inline]
    fn has_any(&self, worker: u32) -> bool {
        let inbox = self.workers.get(worker as usize);
        inbox.is_some_and(|inbox| inbox.has_any.load(Ordering::Acquire))
    }

    fn next(&self, worker: u32) -> Option<(u32, WorkerCommand)> {
        let inbox = self.workers.get(worker as usize)?;
        let mut commands = lock(&inbox.commands);
        let next = commands.pop_front();
        inbox.has_any.store(!commands.is_empty(), Ordering::Release);
        next
    }

    fn reply(&self, reply: WorkerReply) {
        lock(&self.replies).push_back(reply);
        (self.wake)();
    }
}

impl<L: IoLayout> GgaDataPath<L> {
    /// Executes the next command, if there is one and all completions from before the last detachment have been reported.
    #[inline]
    fn poll_commands(&mut self) -> Result<(), Failure> {
        let Driver { setup, engine, .. } = &self.driver;
        if setup.commands.has_any(setup.worker.index) && engine.is_settled() {
            self.next_command()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn next_command(&mut self) -> Result<(), Failure> {
        let commands = Arc::clone(&self.driver.setup.commands);
        let worker = self.driver.setup.worker.index;
        let Some((attempt, command)) = commands.next(worker) else {
            return Ok(());
        };
        if let WorkerCommand::Attach { target } = command
            && let Some(endpoints) = self.targets.get(target).and_then(Option::as_ref)
            && !endpoints.are_running()
        {
            // Retried later; the main thread limits the time.
            commands.send(worker, attempt, command);
            return Ok(());
        }
        let reply = self.carry_out(command);
        commands.reply(WorkerReply {
            worker,
            attempt,
            reply,
        });
        Ok(())
    }

    fn carry_out(&mut self, command: WorkerCommand) -> Result<Reply, Failure> {
        match command {
            WorkerCommand::Export { target, role } => {
                if role == RdmaConnectionRole::IoData {
                    self.renew_endpoints(target)?;
                }
                let export = self.target_endpoints(target)?.endpoint(role).export()?;
                Ok(Reply::Exported(export))
            }
            WorkerCommand::Connect {
                target,
                role,
                details,
            } => {
                self.target_endpoints(target)?
                    .endpoint(role)
                    .connect(&details)?;
                Ok(Reply::Done)
            }
            WorkerCommand::Attach { target } => self.attach(target).map(|()| Reply::Done),
        }
    }

    /// Creates new contexts for a detached target in place of those of an earlier attempt.
    fn renew_endpoints(&mut self, number: usize) -> Result<(), Failure> {
        let target = self.detached_target(number)?;
        self.driver.execute_action(Action::Detach { target })?;
        self.let_go();
        let messages = u32::try_from(self.places.slots).unwrap_or(u32::MAX);
        let endpoints = target_endpoints(&self.pe, &self.driver.setup.worker, messages)?;
        self.targets[number] = Some(endpoints);
        Ok(())
    }

    /// Allocates the slots for messages to and from a target, and posts the receives of its results. The target is sent no requests before
    /// all workers have done so.
    fn attach(&mut self, number: usize) -> Result<(), Failure> {
        let target = self.detached_target(number)?;
        self.exchange_messages(target)?;
        self.driver.handle(Event::TargetAttached { target });
        Ok(())
    }

    fn detached_target(&self, number: usize) -> Result<Target, Failure> {
        let offline = self.driver.setup.set.view().offline;
        let target = Target::ALL.get(number).copied();
        target
            .filter(|&target| offline.contains(target))
            .ok_or_else(|| Failure::unexpected(format!("target {number} is not offline")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_reach_their_worker_in_order() {
        let commands = Commands::of_workers(2, || ());
        let attach = |target| WorkerCommand::Attach { target };
        commands.send(1, 7, attach(0));
        commands.send(1, 7, attach(2));
        commands.send(2, 7, attach(1));
        assert!(!commands.has_any(0) && commands.has_any(1) && !commands.has_any(2));
        assert_eq!(commands.next(1), Some((7, attach(0))));
        assert!(commands.has_any(1));
        assert_eq!(commands.next(1), Some((7, attach(2))));
        assert_eq!((commands.has_any(1), commands.next(1)), (false, None));
        commands.reply(WorkerReply {
            worker: 1,
            attempt: 7,
            reply: Ok(Reply::Done),
        });
        assert_eq!(commands.next_reply().map(|reply| reply.worker), Some(1));
        assert!(commands.next_reply().is_none());
    }
}
