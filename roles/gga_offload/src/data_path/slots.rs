//! The slots of one worker, allocated before the first request: buffers with the tasks that use them.
//!
//! An idle slot is in a table ([`IdleSlots`], [`Copier`]), indexed by the number of the engine's slot or of the
//! receive. It is removed for submission, and its completion handler puts it back. The slots of a replaced context are
//! dropped with it, and the new context has new ones.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use control::Failure;
use doca::{
    Access, BufInventory, CompletionHandler, ContextId, CtxState, Device, Dma, ErrorCode,
    MemoryRegion, Mmap, Refused, Slot, Slots, TwoBuffers, WorkerPe,
};
use gga_engine::Target;
use role_common::data_path::Messages;
use role_formats::stored_block::Geometry;
use wire::io_message;

/// A request of the initiator and its answer. The state is the number of the engine's slot that the answer belongs to.
pub(super) type MessageSlot = Slot<u32>;
/// A request to a target, or a target's result.
pub(super) type TargetSlot = Slot<Target>;
/// A copy of a block from or to the initiator's memory.
pub(super) type CopySlot = Slot<BlockCopy, TwoBuffers>;
/// A parity computation, or a decompression.
pub(super) type StepSlot = Slot<(), TwoBuffers>;
/// A recovery of a target's chunk from the other two chunks.
pub(super) type RecoverySlot = Slot<Target, TwoBuffers>;

/// Direction of a copy, and the offset of the block in the initiator's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockCopy {
    pub(super) direction: Direction,
    pub(super) offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    FromInitiator,
    ToInitiator,
}

/// Number of a message slot's task that receives a request.
pub(super) const RECEIVE: usize = 0;
/// Number of a message slot's task that sends the answer.
pub(super) const ANSWER: usize = 1;
/// Number of the task of all other slots.
pub(super) const TASK: usize = 0;

/// Layout of a worker's message memory: buffers for the initiator's requests and their answers, and for each target's requests and
/// results.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessagePlaces {
    /// Maximum number of requests of the initiator in flight.
    pub(super) requests: usize,
    /// Number of slots of the engine.
    pub(super) slots: usize,
}

impl MessagePlaces {
    pub(super) fn messages(self) -> usize {
        self.requests + self.slots * 2 * Target::ALL.len()
    }

    /// Number of buffers: one per message, two per slot for fetching, delivery and parity, and three per slot for each of the two recoveries.
    pub(super) fn bufs(self) -> usize {
        self.messages() + self.slots * (3 * 2 + 2 * 3)
    }

    fn place(first: usize, count: usize) -> (usize, u32, usize) {
        (Messages::offset(first), io_message::SIZE as u32, count)
    }

    /// Offset, size and number of the buffers for the initiator's requests.
    pub(super) fn of_requests(self) -> (usize, u32, usize) {
        Self::place(0, self.requests)
    }

    /// As [`of_requests`](Self::of_requests), for requests to a target.
    pub(super) fn of_sends(self, target: Target) -> (usize, u32, usize) {
        let first = self.requests + 2 * target.number() * self.slots;
        Self::place(first, self.slots)
    }

    /// As [`of_requests`](Self::of_requests), for results of a target.
    pub(super) fn of_results(self, target: Target) -> (usize, u32, usize) {
        let first = self.requests + (2 * target.number() + 1) * self.slots;
        Self::place(first, self.slots)
    }
}

/// An idle slot; `None` while it is in use.
type Place<S> = Option<S>;

/// The idle slots of a worker, except for those for copies of content.
#[derive(Default)]
pub(super) struct IdleSlots {
    /// Received requests that are not being answered.
    pub(super) messages: Vec<Place<MessageSlot>>,
    /// Requests to the targets. Empty for a detached target.
    pub(super) sends: [Vec<Place<TargetSlot>>; 3],
    pub(super) parities: Vec<Place<StepSlot>>,
    /// Recoveries of the chunks of data_1 and data_2.
    pub(super) recoveries: [Vec<Place<RecoverySlot>>; 2],
    pub(super) decompressions: Vec<Place<StepSlot>>,
}

impl IdleSlots {
    /// Puts an idle slot into its table; drops slots of a detached target, and receives of results, which have no table. Returns its
    /// number.
    #[cold]
    pub(super) fn put(&mut self, task: SlotTask) -> u32 {
        match task {
            SlotTask::ReceiveRequest(slot) | SlotTask::Answer(slot) => {
                put_back(&mut self.messages, slot)
            }
            SlotTask::Send(slot) => {
                let target = *slot.state();
                put_back(&mut self.sends[target.number()], slot)
            }
            SlotTask::CreateParity(slot) => put_back(&mut self.parities, slot),
            SlotTask::Recover(slot) => {
                let target = *slot.state();
                put_back(&mut self.recoveries[target.number()], slot)
            }
            SlotTask::Decompress(slot) => put_back(&mut self.decompressions, slot),
            SlotTask::ReceiveResult(slot) => slot.index() as u32,
            SlotTask::Copy(slot) => slot.index() as u32,
        }
    }
}

/// Removes a slot from its table.
#[inline(always)]
pub(super) fn take<U, B: doca::Buffers>(
    places: &mut [Place<Slot<U, B>>],
    number: u32,
) -> Result<Slot<U, B>, ErrorCode> {
    let place = places.get_mut(number as usize);
    place.and_then(Option::take).ok_or(ErrorCode::NOT_CONNECTED)
}

/// Puts an idle slot into its table; drops the slot if it no longer has an entry.
#[inline(always)]
pub(super) fn put_back<U, B: doca::Buffers>(
    places: &mut [Place<Slot<U, B>>],
    slot: Slot<U, B>,
) -> u32 {
    let number = slot.index();
    if let Some(place) = places.get_mut(number) {
        *place = Some(slot);
    }
    number as u32
}

pub(super) fn idle<U: 'static, B: doca::Buffers>(slots: Slots<U, B>) -> Vec<Place<Slot<U, B>>> {
    slots.into_iter().map(Some).collect()
}

/// A slot and its task to be submitted.
pub(super) enum SlotTask {
    /// Receive of a request from the initiator.
    ReceiveRequest(MessageSlot),
    /// Send of the answer to the initiator.
    Answer(MessageSlot),
    /// Send of a request to a target.
    Send(TargetSlot),
    ReceiveResult(TargetSlot),
    /// DMA copy from or to the initiator's memory.
    Copy(CopySlot),
    CreateParity(StepSlot),
    Recover(RecoverySlot),
    /// Decompression into the initiator's memory.
    Decompress(StepSlot),
}

impl SlotTask {
    /// Submits the task.
    ///
    /// # Errors
    ///
    /// The slot, with the code of the submission.
    // The variant is known at each call site, so that only a call of `doca_task_submit` remains.
    #[inline(always)]
    pub(super) fn submit(self) -> Result<(), (Self, ErrorCode)> {
        #[inline(always)]
        fn submitted<U, B: doca::Buffers>(
            result: Result<(), Refused<U, B>>,
            task: fn(Slot<U, B>) -> SlotTask,
        ) -> Result<(), (SlotTask, ErrorCode)> {
            result.map_err(|refused| (task(refused.slot), refused.code))
        }
        match self {
            Self::ReceiveRequest(slot) => submitted(slot.submit::<RECEIVE>(), Self::ReceiveRequest),
            Self::Answer(slot) => submitted(slot.submit::<ANSWER>(), Self::Answer),
            Self::Send(slot) => submitted(slot.submit::<TASK>(), Self::Send),
            Self::ReceiveResult(slot) => submitted(slot.submit::<TASK>(), Self::ReceiveResult),
            Self::Copy(slot) => submitted(slot.submit::<TASK>(), Self::Copy),
            Self::CreateParity(slot) => submitted(slot.submit::<TASK>(), Self::CreateParity),
            Self::Recover(slot) => submitted(slot.submit::<TASK>(), Self::Recover),
            Self::Decompress(slot) => submitted(slot.submit::<TASK>(), Self::Decompress),
        }
    }

    /// Target with which the task exchanges a message.
    pub(super) fn target(&self) -> Option<Target> {
        match self {
            Self::Send(slot) | Self::ReceiveResult(slot) => Some(*slot.state()),
            _ => None,
        }
    }
}

// Copies from and to the initiator's memory.
//
// A DMA context stops when one of its tasks fails, and the others are flushed. The flushed copies are repeated on a new
// context.

/// Memory that blocks are copied between.
pub(super) struct CopyMemory<'a> {
    pub(super) inventory: &'a BufInventory,
    pub(super) initiator: &'a Mmap,
    pub(super) private: &'a PrivateMemory,
    pub(super) geometry: Geometry,
}

/// The DMA context of a worker, and its idle slots.
pub(super) struct Copier {
    fetches: Vec<Place<CopySlot>>,
    /// Empty in the reference's form, in which blocks are decompressed into the initiator's memory.
    deliveries: Vec<Place<CopySlot>>,
    delivers: bool,
    dma: Option<Dma>,
    device: Device,
    count: u32,
    /// `true` if a task has failed, and thereby its context.
    broken: bool,
    /// The slots whose tasks were flushed or could not be submitted.
    repeat: Vec<(u32, BlockCopy)>,
    /// The previous context, whose last state changes are delivered later.
    replaced: Option<ContextId>,
}

impl Copier {
    /// Starts the context for this many transactions, with copies to the initiator if it `delivers`. `H` handles the completions.
    pub(super) fn start<H>(
        pe: &WorkerPe<H::Worker>,
        device: &Device,
        count: u32,
        delivers: bool,
    ) -> Result<Self, Failure>
    where
        H: CompletionHandler<State = BlockCopy, Buffers = TwoBuffers>,
    {
        let mut copier = Self {
            fetches: Vec::new(),
            deliveries: Vec::new(),
            delivers,
            dma: None,
            device: device.clone(),
            count,
            broken: false,
            repeat: Vec::new(),
            replaced: None,
        };
        copier.start_context::<H>(pe)?;
        Ok(copier)
    }

    fn start_context<H>(&mut self, pe: &WorkerPe<H::Worker>) -> Result<(), Failure>
    where
        H: CompletionHandler<State = BlockCopy, Buffers = TwoBuffers>,
    {
        let tasks = self.count.saturating_mul(1 + u32::from(self.delivers));
        self.dma = Some(Dma::start_with::<H>(pe, &self.device, tasks)?);
        Ok(())
    }

    pub(super) fn state(&self) -> CtxState {
        let state = self.dma.as_ref().map(Dma::state);
        state.unwrap_or(CtxState::Idle)
    }

    /// Returns `true` for an event of this context, which may stop while the session continues.
    pub(super) fn owns(&self, context: ContextId) -> bool {
        self.dma.as_ref().is_some_and(|dma| dma.id() == context)
    }

    /// Returns `true` if an event is about the context that [`restart`](Self::restart) has replaced.
    pub(super) fn has_replaced(&self, context: ContextId) -> bool {
        self.replaced == Some(context)
    }

    /// Allocates the slots of the context.
    pub(super) fn prepare<H>(
        &mut self,
        pe: &WorkerPe<H::Worker>,
        memory: &CopyMemory<'_>,
    ) -> Result<(), Failure>
    where
        H: CompletionHandler<State = BlockCopy, Buffers = TwoBuffers>,
    {
        self.fetches = self.slots::<H>(pe, memory, Direction::FromInitiator)?;
        if self.delivers {
            self.deliveries = self.slots::<H>(pe, memory, Direction::ToInitiator)?;
        }
        self.repeat
            .reserve(self.fetches.len() + self.deliveries.len());
        Ok(())
    }

    fn slots<H>(
        &self,
        pe: &WorkerPe<H::Worker>,
        memory: &CopyMemory<'_>,
        direction: Direction,
    ) -> Result<Vec<Place<CopySlot>>, Failure>
    where
        H: CompletionHandler<State = BlockCopy, Buffers = TwoBuffers>,
    {
        let dma = self.dma.as_ref();
        let dma = dma.ok_or_else(|| Failure::unexpected("the DMA context was stopped"))?;
        let private = memory.private;
        let length = memory.geometry.logical_block_size as usize;
        let (from, to) = match direction {
            Direction::FromInitiator => (memory.initiator, private.mmap()),
            Direction::ToInitiator => (private.mmap(), memory.initiator),
        };
        let idle_copy = |_| BlockCopy {
            direction,
            offset: 0,
        };
        let count = self.count as usize;
        let slots = Slots::with_two_buffers(pe, memory.inventory, from, to, count, idle_copy)?;
        dma.copy_in::<TASK, H>(&slots)?;
        let mut slots = idle(slots);
        for slot in slots.iter_mut().flatten() {
            let offset = private.offset(slot.index());
            match direction {
                Direction::FromInitiator => {
                    slot.set_range::<{ TwoBuffers::DESTINATION }>(offset, length)
                }
                Direction::ToInitiator => slot.set_data::<{ TwoBuffers::SOURCE }>(offset, length),
            }
            .map_err(|code| Failure::new(code, "private memory"))?;
        }
        Ok(slots)
    }

    fn table(&mut self, direction: Direction) -> &mut Vec<Place<CopySlot>> {
        match direction {
            Direction::FromInitiator => &mut self.fetches,
            Direction::ToInitiator => &mut self.deliveries,
        }
    }

    /// Takes the slot for a copy of `length` bytes.
    ///
    /// # Errors
    ///
    /// The bytes are not inside the initiator's memory.
    #[inline]
    pub(super) fn take(
        &mut self,
        number: u32,
        copy: BlockCopy,
        length: usize,
    ) -> Result<CopySlot, ErrorCode> {
        let mut slot = take(self.table(copy.direction), number)?;
        *slot.state_mut() = copy;
        let set = match copy.direction {
            Direction::FromInitiator => slot
                .set_data::<{ TwoBuffers::SOURCE }>(copy.offset, length)
                .map(|()| slot.reset_data::<{ TwoBuffers::DESTINATION }>()),
            Direction::ToInitiator => {
                slot.set_range::<{ TwoBuffers::DESTINATION }>(copy.offset, length)
            }
        };
        match set {
            Ok(()) => Ok(slot),
            Err(code) => {
                self.put_back(slot);
                Err(code)
            }
        }
    }

    /// Puts back a slot whose task has completed. Returns its number.
    #[inline]
    pub(super) fn put_back(&mut self, slot: CopySlot) -> u32 {
        let direction = slot.state().direction;
        put_back(self.table(direction), slot)
    }

    /// Returns `true` if tasks can be submitted; otherwise the copy has to be [postponed](Self::postpone).
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        // The context stops before the completion of the task that failed is reported.
        !self.broken && self.state() == CtxState::Running
    }

    /// Returns `true` if a task has failed, and no new context has been started yet.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Postpones the copy of this slot until a new context has been started.
    #[cold]
    pub(super) fn postpone(&mut self, slot: u32, copy: BlockCopy) {
        self.repeat.push((slot, copy));
    }

    /// Records that a task has failed, so that the context stops.
    #[cold]
    pub(super) fn failed(&mut self) {
        self.broken = true;
    }

    /// Starts a new context with new slots, if the old one has failed and all its tasks have completed, and returns the postponed copies.
    /// It also postpones the copies in `deferred`.
    #[cold]
    pub(super) fn restart<H>(
        &mut self,
        pe: &WorkerPe<H::Worker>,
        memory: &CopyMemory<'_>,
        deferred: &mut VecDeque<SlotTask>,
    ) -> Result<Vec<(u32, BlockCopy)>, Failure>
    where
        H: CompletionHandler<State = BlockCopy, Buffers = TwoBuffers>,
    {
        for _ in 0..deferred.len() {
            match deferred.pop_front() {
                Some(SlotTask::Copy(slot)) => {
                    let copy = *slot.state();
                    let number = self.put_back(slot);
                    self.postpone(number, copy);
                }
                other => deferred.extend(other),
            }
        }
        let mut slots = self.fetches.iter().chain(&self.deliveries);
        if slots.any(Option::is_none) {
            return Ok(Vec::new());
        }
        self.fetches.clear();
        self.deliveries.clear();
        if let Some(old) = self.dma.take() {
            self.replaced = Some(old.id());
            old.stop()?;
        }
        self.start_context::<H>(pe)?;
        self.prepare::<H>(pe, memory)?;
        self.broken = false;
        Ok(std::mem::take(&mut self.repeat))
    }
}

/// All stripe buffers of all workers.
#[derive(Debug, Clone)]
pub(crate) struct StripeMemory {
    pub(crate) region: Arc<MemoryRegion>,
    pub(crate) mmap: Mmap,
    /// Number of unused bytes before the first buffer.
    pub(crate) first: u64,
}

impl StripeMemory {
    /// Allocates this number of buffers, preceded by `first` unused bytes, and exports them for the targets.
    pub(crate) fn allocate(
        device: &Device,
        geometry: Geometry,
        first: u64,
        buffers: u64,
    ) -> Result<(Self, Bytes), Failure> {
        let wanted = buffers
            .checked_mul(StripeBuffer::size(geometry))
            .and_then(|size| size.checked_add(first));
        let installed = installed_memory();
        let length = wanted
            .filter(|&length| length <= installed)
            .and_then(|length| usize::try_from(length).ok());
        let Some(length) = length else {
            return Err(Failure::new(
                ErrorCode::NO_MEMORY,
                format!(
                    "{buffers} transactions with blocks of {} bytes: expected to need at most the {installed} bytes of \
                     memory of this machine",
                    geometry.logical_block_size
                ),
            ));
        };
        let region = MemoryRegion::new(length)?;
        let access = Access::LOCAL_READ_WRITE
            | Access::PCI_READ_WRITE
            | Access::RDMA_READ
            | Access::RDMA_WRITE;
        let mmap = Mmap::register(device, region.clone(), access)?;
        let export = mmap.export_rdma(device)?;
        Ok((
            Self {
                region,
                mmap,
                first,
            },
            Bytes::from(export),
        ))
    }
}

fn installed_memory() -> u64 {
    let system = rustix::system::sysinfo();
    #[allow(
        clippy::useless_conversion,
        reason = "the field's width is the platform's"
    )]
    u64::from(system.totalram).saturating_mul(system.mem_unit.into())
}

/// The stripe buffer of one slot: the two data chunks and the parity chunk of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StripeBuffer {
    begin: u64,
    chunk: u64,
}

impl StripeBuffer {
    /// Size of each buffer in bytes.
    pub(crate) fn size(geometry: Geometry) -> u64 {
        3 * u64::from(geometry.half_block_size())
    }

    /// The buffer with this index; buffer 0 is at offset `first`.
    pub(crate) fn of(geometry: Geometry, first: u64, number: u64) -> Self {
        Self {
            begin: first + number * Self::size(geometry),
            chunk: geometry.half_block_size().into(),
        }
    }

    /// Offset of the data chunks, which are the stored block in the reference's form.
    pub(crate) fn stored(self) -> u64 {
        self.begin
    }

    /// Offset of a target's chunk.
    pub(crate) fn chunk(self, target: Target) -> u64 {
        self.begin + self.chunk * target.number() as u64
    }
}

/// The private memory of a worker. Each slot contains the payloads of a stripe's three chunks, contiguously, or a
/// stored block in the reference's form.
pub(super) struct PrivateMemory {
    region: Arc<MemoryRegion>,
    mmap: Mmap,
    /// Size of each slot in bytes.
    size: usize,
}

impl PrivateMemory {
    pub(super) fn allocate(
        device: &Device,
        geometry: Geometry,
        slots: usize,
    ) -> doca::Result<Self> {
        Self::with_access(device, geometry, slots, Access::LOCAL_READ_WRITE)
    }

    /// Allocates the memory with read-only access for the device, so that tasks that write to it fail.
    #[cfg(test)]
    pub(super) fn read_only(device: &Device, geometry: Geometry, slots: usize) -> Self {
        Self::with_access(device, geometry, slots, Access::LOCAL_READ_ONLY).expect("memory")
    }

    fn with_access(
        device: &Device,
        geometry: Geometry,
        slots: usize,
        access: Access,
    ) -> doca::Result<Self> {
        let size = 3 * geometry.half_block_size() as usize;
        let region = MemoryRegion::new(slots * size)?;
        let mmap = Mmap::register(device, region.clone(), access)?;
        Ok(Self { region, mmap, size })
    }

    /// Offset of a slot's bytes.
    pub(super) fn offset(&self, slot: usize) -> u64 {
        (slot * self.size) as u64
    }

    pub(super) fn mmap(&self) -> &Mmap {
        &self.mmap
    }

    /// Copies bytes of a slot from this offset on.
    pub(super) fn read(&self, slot: usize, at: usize, into: &mut [u8]) -> doca::Result<()> {
        self.region.read(slot * self.size + at, into)
    }

    /// Replaces bytes of a slot from this offset on.
    pub(super) fn write(&self, slot: usize, at: usize, bytes: &[u8]) -> doca::Result<()> {
        self.region.write(slot * self.size + at, bytes)
    }
}

#[cfg(test)]
mod tests {
    use doca::{Access, MemoryRegion, completion_handler};

    use super::*;

    #[test]
    fn messages_have_places_of_their_own() {
        let places = MessagePlaces {
            requests: 5,
            slots: 9,
        };
        let all = [places.of_requests()].into_iter().chain(
            Target::ALL
                .into_iter()
                .flat_map(|target| [places.of_sends(target), places.of_results(target)]),
        );
        let mut end = 0;
        for (offset, length, count) in all {
            assert_eq!(offset, end);
            end = offset + length as usize * count;
        }
        assert_eq!(end, Messages::offset(places.messages()));
    }

    fn fetch(offset: u64) -> BlockCopy {
        BlockCopy {
            direction: Direction::FromInitiator,
            offset,
        }
    }

    type Results = Vec<(usize, Result<(), ErrorCode>)>;

    /// Puts copy slots back, and records their results.
    struct Worker {
        copier: Copier,
        results: Results,
    }

    completion_handler! {
        struct Copied;
        |worker: Worker, slot: Slot<BlockCopy, TwoBuffers>| {
            worker.results.push((slot.index(), Ok(())));
            worker.copier.put_back(slot);
        },
        |code| {
            worker.results.push((slot.index(), Err(code)));
            worker.copier.put_back(slot);
        }
    }

    #[test]
    fn a_failed_copy_restarts_the_context_and_the_others_are_repeated() {
        let device = Device::open("mlx5_0").expect("device");
        let mut pe = WorkerPe::new().expect("engine");
        let geometry = Geometry::compatible(128);
        let region = MemoryRegion::new(4096).expect("memory");
        let readable = Mmap::register(&device, region, Access::LOCAL_READ_WRITE).expect("map");
        let read_only = PrivateMemory::read_only(&device, geometry, 2);
        // Bufs for a single context: a new context reuses those of the previous one.
        let inventory = BufInventory::new(4).expect("bufs");
        let memory = CopyMemory {
            inventory: &inventory,
            initiator: &readable,
            private: &read_only,
            geometry,
        };
        let mut worker = Worker {
            copier: Copier::start::<Copied>(&pe, &device, 2, false).expect("started"),
            results: Results::new(),
        };
        worker
            .copier
            .prepare::<Copied>(&pe, &memory)
            .expect("slots");
        // Copies into memory that must not be written fail.
        for number in 0..2 {
            let slot = worker.copier.take(number, fetch(0), 128).expect("inside");
            assert!(SlotTask::Copy(slot).submit().is_ok());
        }
        let mut deferred = VecDeque::new();
        let restart = worker.copier.restart::<Copied>(&pe, &memory, &mut deferred);
        assert_eq!(restart.expect("not yet"), [], "two are in flight");
        while worker.results.len() < 2 {
            if pe.progress(&mut worker) {
                pe.poll();
            }
        }
        assert_eq!(
            worker.results,
            [
                (0, Err(ErrorCode::NOT_PERMITTED)),
                (1, Err(ErrorCode::SHUTDOWN))
            ]
        );
        let copier = &mut worker.copier;
        assert!(!copier.is_usable());
        copier.failed();
        copier.postpone(1, fetch(7));
        let slot = copier.take(0, fetch(9), 128).expect("idle");
        deferred.push_back(SlotTask::Copy(slot));
        let mut restart =
            |copier: &mut Copier| copier.restart::<Copied>(&pe, &memory, &mut deferred);
        assert_eq!(
            restart(copier).expect("a new context"),
            [(1, fetch(7)), (0, fetch(9))]
        );
        assert!(copier.is_usable());
        assert_eq!(restart(copier).expect("again"), [], "once");
        let slot = copier.take(1, fetch(4096 - 128), 128).expect("inside");
        copier.put_back(slot);
        let outside = copier.take(1, fetch(4096 - 127), 128).map(drop);
        assert_eq!(outside, Err(ErrorCode::INVALID_VALUE));
        assert!(copier.take(1, fetch(0), 128).is_ok(), "it is there again");
    }

    #[test]
    fn a_stripe_buffer_is_three_chunks_without_overlaps() {
        let geometry = Geometry::compatible(4096);
        assert_eq!(StripeBuffer::size(geometry), 4096 * 3 / 2);
        let buffer = StripeBuffer::of(geometry, 0, 3);
        let begin = 3 * 6144;
        assert_eq!(buffer.stored(), begin);
        let chunks = Target::ALL.map(|target| buffer.chunk(target));
        assert_eq!(chunks, [begin, begin + 2048, begin + 4096]);
        assert_eq!(begin + 6144, StripeBuffer::of(geometry, 0, 4).stored());
    }

    #[test]
    fn allocation_beyond_the_machine_is_refused() {
        let device = Device::open("mlx5_0").expect("device");
        for buffers in [u64::MAX, installed_memory() / 2048] {
            let failure = StripeMemory::allocate(&device, Geometry::compatible(4096), 0, buffers)
                .expect_err("too much");
            assert_eq!(failure.code, ErrorCode::NO_MEMORY);
        }
    }
}
