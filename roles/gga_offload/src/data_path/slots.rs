//! Buffers and tasks of one worker, allocated before the first request.

use std::array;

use doca::{
    Buf, BufInventory, Compress, CompressTask, ContextId, Device, Dma, EcMatrix, ErasureCoding,
    ErrorCode, Lz4Checksums, Lz4Stream, Mmap, Pe, RdmaConnection, Task,
};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::service::endpoints::{ComchEnds, TargetEnds};
use role_common::stored_block::Geometry;
use wire::io_message;

use super::memory::{PrivateMemory, StripeBuffer};
use crate::target::{Target, Targets};

/// Message buffers of each slot: the initiator's request and its answer, one request and one result per target.
const MESSAGES: usize = 2 + 3 + 3;
/// Number of buffers of each slot, those of its copies included.
const BUFS: usize = MESSAGES + 12;

/// Message buffers for this many slots.
pub(super) fn messages(slots: usize) -> usize {
    slots * MESSAGES
}

/// Bufs for this many slots.
pub(super) fn bufs(slots: usize) -> usize {
    slots * BUFS
}

/// A message buffer: its place in the worker's memory for messages, and the buf of that.
pub(super) struct Message {
    pub(super) place: usize,
    pub(super) buf: Buf,
}

/// The tasks of one slot, and their buffers.
pub(super) struct SlotTasks {
    answer: Task,
    /// The answer to the initiator.
    pub(super) answer_message: Message,
    /// `None` for a target that was never attached.
    sends: [Option<Task>; 3],
    /// Requests to the targets.
    pub(super) requests: [Message; 3],
    create: Task,
    pub(super) parity: Buf,
    recovers: [Task; 2],
    /// Destinations of recovered chunks of data_1 and data_2: the beginning of the private memory.
    pub(super) recovered: [Buf; 2],
    decompress: CompressTask<Lz4Checksums>,
    /// The LZ4 data blocks, in private memory.
    pub(super) compressed: Buf,
    /// The initiator's block.
    pub(super) decompressed: Buf,
    pub(super) buffer: StripeBuffer,
}

/// A receive, of the initiator's request or of a target's result.
struct Lane {
    /// `None` for a target that was never attached.
    task: Option<Task>,
    message: Message,
}

/// The tasks of a worker, except for those that fetch content.
#[derive(Default)]
pub(super) struct Tasks {
    slots: Vec<SlotTasks>,
    /// Receives of the initiator's requests.
    requests: Vec<Lane>,
    /// Receives of the targets' results.
    results: [Vec<Lane>; 3],
}

/// Parameters of the tasks.
pub(super) struct Maker<'a> {
    pub(super) comch: &'a ComchEnds,
    /// The initiator's consumer, which gets the answers.
    pub(super) initiator_consumer: u32,
    pub(super) targets: &'a [Option<TargetEnds>; 3],
    pub(super) coding: &'a ErasureCoding,
    pub(super) encoding: EcMatrix,
    /// For a missing chunk of data_1, and of data_2.
    pub(super) recoveries: [EcMatrix; 2],
    pub(super) decompressor: &'a Compress,
    pub(super) inventory: &'a BufInventory,
    pub(super) messages: &'a Mmap,
    pub(super) memory: &'a Mmap,
    pub(super) private: &'a PrivateMemory,
    /// Parity is made of the stored block in private memory, which no target can write to.
    pub(super) private_parity: bool,
    pub(super) initiator: &'a Mmap,
    pub(super) geometry: Geometry,
    /// The number of the first slot's stripe buffer.
    pub(super) first_buffer: u64,
    /// Bytes before the first buffer of all workers.
    pub(super) first: u64,
}

impl Tasks {
    pub(super) fn allocate(maker: &Maker<'_>, slots: usize) -> Result<Self, Failure> {
        let mut places = 0..;
        let mut message = || -> doca::Result<Message> {
            let place = places.next().expect("the range has no end");
            let offset = Messages::offset(place) as u64;
            let buf = maker
                .inventory
                .buf(maker.messages, offset, io_message::SIZE)?;
            Ok(Message { place, buf })
        };
        let mut tasks = Self::default();
        for index in 0..slots {
            tasks.slots.push(maker.slot(index, &mut message)?);
        }
        for index in 0..slots {
            tasks.requests.push(maker.request(index, message()?)?);
        }
        for target in Target::ALL {
            for index in 0..slots {
                tasks.results[target.number()].push(maker.result(index, target, message()?)?);
            }
        }
        Ok(tasks)
    }

    /// Allocates the tasks for messages to and from a target again, for new connections to it.
    pub(super) fn attach(&mut self, target: Target, ends: &TargetEnds) -> Result<(), Failure> {
        let number = target.number();
        let (rdma, connection) = (ends.control.rdma(), ends.control.connection()?);
        for (index, tasks) in self.slots.iter_mut().enumerate() {
            let token = Token::new(index, Kind::Send(target)).0;
            let send = rdma.send_task(connection, &tasks.requests[number].buf, token)?;
            tasks.sends[number] = Some(send);
        }
        for (index, lane) in self.results[number].iter_mut().enumerate() {
            let token = Token::new(index, Kind::ReceiveResult(target)).0;
            lane.message.buf.reset_data()?;
            lane.task = Some(rdma.receive_task(&lane.message.buf, token)?);
        }
        Ok(())
    }

    pub(super) fn of(&self, slot: usize) -> &SlotTasks {
        &self.slots[slot]
    }

    /// The buffer of a receive of a request.
    pub(super) fn request(&self, lane: usize) -> &Message {
        &self.requests[lane].message
    }

    /// The buffer of a receive of a result.
    pub(super) fn result(&self, target: Target, index: usize) -> &Message {
        &self.results[target.number()][index].message
    }

    /// The task of this kind; `None` for copies of content, which are the fetcher's.
    pub(super) fn task(&self, index: usize, kind: Kind) -> Option<&Task> {
        let tasks = || &self.slots[index];
        Some(match kind {
            Kind::ReceiveRequest => self.requests[index].task.as_ref()?,
            Kind::Answer => &tasks().answer,
            Kind::Send(target) => tasks().sends[target.number()].as_ref()?,
            Kind::ReceiveResult(target) => self.results[target.number()][index].task.as_ref()?,
            Kind::CreateParity => &tasks().create,
            Kind::Recover(target) => &tasks().recovers[target.number()],
            Kind::Decompress => &tasks().decompress,
            Kind::Fetch => return None,
        })
    }
}

impl Maker<'_> {
    fn slot(
        &self,
        index: usize,
        message: &mut impl FnMut() -> doca::Result<Message>,
    ) -> Result<SlotTasks, Failure> {
        let buffer = StripeBuffer::of(self.geometry, self.first, self.first_buffer + index as u64);
        let chunk = self.geometry.half_block_size() as usize;
        let stored = self.geometry.stored_block_size as usize;
        let logical = self.geometry.logical_block_size as usize;
        let token = |kind| Token::new(index, kind).0;
        let local = |offset, length| self.inventory.buf_with_data(self.memory, offset, length);
        let destination = |offset, length| self.inventory.buf(self.memory, offset, length);

        let answer_message = message()?;
        let requests = [message()?, message()?, message()?];
        for sent in requests.iter().chain([&answer_message]) {
            // Every send from this buffer has the same offset.
            let offset = Messages::offset(sent.place) as u64;
            sent.buf.set_data(offset, io_message::SIZE)?;
        }
        let mut sends = Vec::with_capacity(requests.len());
        for (target, request) in Target::ALL.into_iter().zip(&requests) {
            let send = match self.control(target)? {
                None => None,
                Some((ends, connection)) => Some(ends.control.rdma().send_task(
                    connection,
                    &request.buf,
                    token(Kind::Send(target)),
                )?),
            };
            sends.push(send);
        }
        let parity = destination(buffer.chunk(Target::DataP), chunk)?;
        let create = self.coding.create_task(
            &self.encoding,
            &if self.private_parity {
                self.private.source(self.inventory, index, stored)?
            } else {
                local(buffer.stored(), stored)?
            },
            &parity,
            token(Kind::CreateParity),
        )?;
        let recover = |missing: Target| -> doca::Result<(Task, Buf)> {
            // In ascending order, as erasure coding requires.
            let mut survivors = Targets::without(missing).iter();
            let mut survivor = || {
                let target = survivors.next().expect("two are left");
                local(buffer.chunk(target), chunk)
            };
            let available = survivor()?;
            available.append(&survivor()?)?;
            let recovered = self.private.destination(self.inventory, index, chunk)?;
            let matrix = &self.recoveries[missing.number()];
            let token = token(Kind::Recover(missing));
            let task = self
                .coding
                .recover_task(matrix, &available, &recovered, token)?;
            Ok((task, recovered))
        };
        let (recover_1, recovered_1) = recover(Target::Data1)?;
        let (recover_2, recovered_2) = recover(Target::Data2)?;
        let compressed = self.private.destination(self.inventory, index, stored)?;
        let decompressed = self.inventory.buf(self.initiator, 0, logical.min(1))?;
        let decompress = self.decompressor.decompress_lz4_stream_task(
            &compressed,
            &decompressed,
            Lz4Stream {
                block_checksums: false,
                independent_blocks: true,
            },
            token(Kind::Decompress),
        )?;
        let answer = self.comch.producer.send_task(
            &answer_message.buf,
            self.initiator_consumer,
            token(Kind::Answer),
        )?;
        let mut sends = sends.into_iter();
        Ok(SlotTasks {
            answer,
            answer_message,
            sends: array::from_fn(|_| sends.next().expect("one per target")),
            requests,
            create,
            parity,
            recovers: [recover_1, recover_2],
            recovered: [recovered_1, recovered_2],
            decompress,
            compressed,
            decompressed,
            buffer,
        })
    }

    fn request(&self, index: usize, message: Message) -> Result<Lane, Failure> {
        let token = Token::new(index, Kind::ReceiveRequest).0;
        let task = Some(self.comch.consumer.post_recv_task(&message.buf, token)?);
        Ok(Lane { task, message })
    }

    fn result(&self, index: usize, target: Target, message: Message) -> Result<Lane, Failure> {
        let token = Token::new(index, Kind::ReceiveResult(target)).0;
        let task = match self.control(target)? {
            None => None,
            Some((ends, _)) => Some(ends.control.rdma().receive_task(&message.buf, token)?),
        };
        Ok(Lane { task, message })
    }

    /// The connections for messages with a target; `None` if it is offline.
    fn control(&self, target: Target) -> Result<Option<(&TargetEnds, &RdmaConnection)>, Failure> {
        let Some(ends) = &self.targets[target.number()] else {
            return Ok(None);
        };
        let connection = ends
            .control
            .connection()
            .map_err(|failure| failure.context(format_args!("storage target {}", target.name())))?;
        Ok(Some((ends, connection)))
    }
}

/// The purpose of a task, for its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Receive of a request from the initiator.
    ReceiveRequest,
    /// Send of the result to the initiator.
    Answer,
    /// Send of a request to a target.
    Send(Target),
    /// Receive of a result from a target, for any slot.
    ReceiveResult(Target),
    /// DMA copy of content from the initiator's memory.
    Fetch,
    /// Calculation of the parity.
    CreateParity,
    /// Recovery of the chunk of `Data1` or `Data2` from the two others.
    Recover(Target),
    /// Decompression into the initiator's memory.
    Decompress,
}

/// Number of the slot, or of the receive, and the kind of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

impl Token {
    #[inline]
    pub(super) fn new(index: usize, kind: Kind) -> Self {
        let kind = match kind {
            Kind::ReceiveRequest => 0,
            Kind::Answer => 1,
            Kind::Fetch => 2,
            Kind::CreateParity => 3,
            Kind::Decompress => 4,
            Kind::Send(target) => 5 + target as u64,
            Kind::ReceiveResult(target) => 8 + target as u64,
            Kind::Recover(target) => 11 + target as u64,
        };
        Self((index as u64) << 4 | kind)
    }

    #[inline]
    pub(super) fn parts(self) -> (usize, Kind) {
        let target = |first: u64| Target::ALL[((self.0 & 15) - first) as usize];
        let kind = match self.0 & 15 {
            0 => Kind::ReceiveRequest,
            1 => Kind::Answer,
            2 => Kind::Fetch,
            3 => Kind::CreateParity,
            4 => Kind::Decompress,
            5..=7 => Kind::Send(target(5)),
            8..=10 => Kind::ReceiveResult(target(8)),
            11..=13 => Kind::Recover(target(11)),
            _ => unreachable!("tokens are made by `new` only"),
        };
        ((self.0 >> 4) as usize, kind)
    }
}

// Fetching content from the initiator's memory.
//
// A DMA context stops when one of its tasks fails, and the others are flushed. They are repeated on a new context.

/// The copy of one slot.
struct Fetch {
    task: Task,
    bufs: FetchBufs,
    /// Source offset in the initiator's memory.
    offset: u64,
}

/// Its source in the initiator's memory, and its destination in the private memory of the slot.
#[derive(Clone)]
struct FetchBufs {
    source: Buf,
    destination: Buf,
}

/// The DMA context of a worker, and its tasks. Fields are in the order in which they must be dropped.
pub(super) struct Fetcher {
    fetches: Vec<Fetch>,
    dma: Option<Dma>,
    device: Device,
    count: u32,
    /// `true` if a task failed, and the context with it.
    broken: bool,
    /// Slots whose tasks were flushed or could not be submitted, and their source offsets.
    repeat: Vec<(usize, u64)>,
    /// The context before this one: the last changes of its state are delivered late.
    replaced: Option<ContextId>,
}

impl Fetcher {
    /// Starts the context, for as many transactions.
    pub(super) fn start(pe: &Pe, device: &Device, count: u32) -> Result<Self, Failure> {
        Ok(Self {
            fetches: Vec::new(),
            dma: Some(Dma::start(pe, device, count)?),
            device: device.clone(),
            count,
            broken: false,
            repeat: Vec::new(),
            replaced: None,
        })
    }

    pub(super) fn state(&self) -> doca::CtxState {
        let state = self.dma.as_ref().map(Dma::state);
        state.unwrap_or(doca::CtxState::Idle)
    }

    /// Returns `true` for an event of this context, which may stop while the session continues.
    pub(super) fn owns(&self, context: ContextId) -> bool {
        self.dma.as_ref().is_some_and(|dma| dma.id() == context)
    }

    /// Returns `true` if an event is about the context that [`restart`](Self::restart) has replaced.
    pub(super) fn has_replaced(&self, context: ContextId) -> bool {
        self.replaced == Some(context)
    }

    /// Allocates the tasks.
    pub(super) fn prepare(
        &mut self,
        inventory: &BufInventory,
        initiator: &Mmap,
        private: &PrivateMemory,
        geometry: Geometry,
    ) -> Result<(), Failure> {
        for index in 0..self.count as usize {
            let length = geometry.logical_block_size as usize;
            let bufs = FetchBufs {
                source: inventory.buf(initiator, 0, 1)?,
                destination: private.destination(inventory, index, length)?,
            };
            let task = self.task(index, &bufs)?;
            let offset = 0;
            self.fetches.push(Fetch { task, bufs, offset });
        }
        self.repeat.reserve(self.fetches.len());
        Ok(())
    }

    fn task(&self, index: usize, bufs: &FetchBufs) -> Result<Task, Failure> {
        let dma = self.dma.as_ref();
        let dma = dma.ok_or_else(|| Failure::unexpected("the DMA context was stopped"))?;
        let token = Token::new(index, Kind::Fetch).0;
        Ok(dma.copy_task(&bufs.source, &bufs.destination, token)?)
    }

    /// Sets the range that the task of a slot copies: `length` bytes at `offset` of the initiator's memory.
    ///
    /// # Errors
    ///
    /// They are outside of it.
    pub(super) fn set_range(
        &mut self,
        index: usize,
        offset: u64,
        length: usize,
    ) -> Result<(), ErrorCode> {
        let fetch = &mut self.fetches[index];
        fetch.offset = offset;
        let FetchBufs {
            source,
            destination,
        } = &fetch.bufs;
        source
            .set_data(offset, length)
            .map_err(|error| error.code)?;
        destination.reset_data().map_err(|error| error.code)
    }

    /// Source offset of a slot's task.
    #[cold]
    pub(super) fn offset(&self, index: usize) -> u64 {
        self.fetches[index].offset
    }

    pub(super) fn get(&self, index: usize) -> &Task {
        &self.fetches[index].task
    }

    /// Returns `true` if tasks can be submitted; otherwise the copy has to be [postponed](Self::postpone).
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        // The context stops before the completion of the task that failed is taken.
        !self.broken && self.state() == doca::CtxState::Running
    }

    /// Returns `true` if a task failed, and there is no new context yet.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Postpones the copy of this slot from this offset until there is a new context.
    #[cold]
    pub(super) fn postpone(&mut self, slot: usize, offset: u64) {
        self.repeat.push((slot, offset));
    }

    /// A task failed, and the context stops.
    #[cold]
    pub(super) fn failed(&mut self) {
        self.broken = true;
    }

    /// Starts a new context when the old one has failed and all its tasks have completed, and returns the postponed copies.
    #[cold]
    pub(super) fn restart(&mut self, pe: &Pe) -> Result<Vec<(usize, u64)>, Failure> {
        // Unreaped completions count: after a restart they would be taken for those of the new tasks.
        if self.fetches.iter().any(|fetch| fetch.task.is_in_flight()) {
            return Ok(Vec::new());
        }
        let bufs: Vec<FetchBufs> = self.fetches.drain(..).map(|fetch| fetch.bufs).collect();
        if let Some(old) = self.dma.take() {
            self.replaced = Some(old.id());
            old.stop()?;
        }
        self.dma = Some(Dma::start(pe, &self.device, self.count)?);
        for (index, bufs) in bufs.into_iter().enumerate() {
            let task = self.task(index, &bufs)?;
            let offset = 0;
            self.fetches.push(Fetch { task, bufs, offset });
        }
        self.broken = false;
        Ok(std::mem::take(&mut self.repeat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_slot_and_kind() {
        let mut kinds = vec![
            Kind::ReceiveRequest,
            Kind::Answer,
            Kind::Fetch,
            Kind::CreateParity,
            Kind::Decompress,
        ];
        for target in Target::ALL {
            kinds.extend([
                Kind::Send(target),
                Kind::ReceiveResult(target),
                Kind::Recover(target),
            ]);
        }
        for index in [0, 1, 65535] {
            for &kind in &kinds {
                assert_eq!(Token::new(index, kind).parts(), (index, kind));
            }
        }
    }
}

#[cfg(test)]
mod dma_tests {
    use doca::{Access, Event, MemoryRegion};

    use super::*;

    #[test]
    fn a_failed_copy_restarts_the_context_and_the_others_are_repeated() {
        let device = Device::open("mlx5_0").expect("device");
        let pe = Pe::new().expect("engine");
        let geometry = Geometry::compatible(128);
        let map = |access| {
            let region = MemoryRegion::new(4096).expect("memory");
            Mmap::register(&device, region, access).expect("map")
        };
        let readable = map(Access::LOCAL_READ_WRITE);
        let read_only = PrivateMemory::read_only(&device, geometry, 2);
        let inventory = BufInventory::new(8).expect("bufs");
        let mut fetcher = Fetcher::start(&pe, &device, 2).expect("started");
        // Copies into memory that must not be written fail.
        fetcher
            .prepare(&inventory, &readable, &read_only, geometry)
            .expect("tasks");
        for index in 0..2 {
            fetcher.set_range(index, 0, 128).expect("inside");
            fetcher.get(index).submit().expect("submitted");
        }
        let mut results = Vec::new();
        while results.len() < 2 {
            if let Some(Event::Task(completion)) = pe.poll() {
                results.push((Token(completion.token).parts().0, completion.result));
            }
        }
        assert_eq!(
            results,
            [
                (0, Err(ErrorCode::NOT_PERMITTED)),
                (1, Err(ErrorCode::SHUTDOWN))
            ]
        );
        assert!(!fetcher.is_usable());
        fetcher.failed();
        fetcher.postpone(1, 7);
        assert_eq!(fetcher.restart(&pe).expect("a new context"), [(1, 7)]);
        assert!(fetcher.is_usable());
        assert_eq!(fetcher.restart(&pe).expect("again"), [], "once");
        fetcher.set_range(1, 4096 - 128, 128).expect("inside");
        assert_eq!(
            fetcher.set_range(1, 4096 - 127, 128),
            Err(ErrorCode::INVALID_VALUE)
        );
    }
}
