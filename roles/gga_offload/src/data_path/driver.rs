//! Reports completions to the engine, and executes its actions.
//!
//! Completions are handled by the handlers below during calls of `progress`: seven for each read of a block. The
//! handlers do not start or stop contexts; the loop does so between these calls.

use std::collections::VecDeque;

use control::{Failure, FirstFailure};
use doca::{
    ContextId, CtxState, ErrorCode, Event as PeEvent, OneBuffer, PeStats, TwoBuffers,
    completion_handler,
};
use gga_engine::chunk::{self, Place, Stamp};
use gga_engine::engine::{Action, Delivery, Event, Judged, Status, StripeEngine};
use gga_engine::request::{Request, Volume};
use gga_engine::{Target, Targets};
use metrics::{Counts, WorkerMetrics};
use role_common::data_path::{Limits, PollDriven, TargetEndpoints};
use role_common::worker::RunFlag;
use role_formats::stored_block::{Encoder, inspect};
use wire::io_message::{self, IoMessage, IoMessageType, Repr, Version};
use wire::release::{CorrelationId as _, IoLayout};
use wire::stored_block::Header;

use super::slots::{
    BlockCopy, Copier, CopySlot, Direction, IdleSlots, MessageSlot, PrivateMemory, RecoverySlot,
    SlotTask, StepSlot, StripeBuffer, TargetSlot, put_back, take,
};
use super::{Clock, GgaDataPath, Layouts, Setup};
use crate::statistics;

/// Calls of `progress` per poll iteration while there are completions, which share the cost of the iteration.
const CALLS_PER_ITERATION: u32 = 8;

/// A worker without its contexts: handles completions and submits slots. Fields are in the order in which they must be dropped.
pub(super) struct Driver<L: IoLayout> {
    /// Layouts of the messages of the initiator and of the targets.
    pub(super) layouts: Layouts<L>,
    pub(super) idle: IdleSlots,
    pub(super) copier: Copier,
    /// Slots whose submission was answered with `AGAIN`, in order.
    pub(super) deferred: VecDeque<SlotTask>,
    pub(super) private: PrivateMemory,
    pub(super) engine: StripeEngine,
    /// Detached targets whose contexts have to be stopped.
    pub(super) leaving: Targets,
    /// Compresses blocks of the reference's form.
    pub(super) encoder: Encoder,
    /// Private copies of device memory: content to compress, and a stored block of the reference's form, or a chunk.
    pub(super) content: Vec<u8>,
    pub(super) stored: Vec<u8>,
    /// Slot of the block of the reference's form in `stored`, and size of its LZ4 data in bytes.
    pub(super) examined: Option<(u32, usize)>,
    pub(super) clock: Clock,
    /// First failure of the worker, which ends its session.
    pub(super) failure: FirstFailure,
    /// While set, failures of messages are treated as failures of the worker.
    pub(super) run: RunFlag,
    pub(super) setup: Setup,
}

completion_handler! {
    /// Handles requests received from the initiator.
    pub(super) struct RequestReceived<L> [L: IoLayout];
    |driver: Driver<L>, slot: Slot<u32, OneBuffer>| driver.request_received(slot),
    |code| {
        driver.idle.put(SlotTask::ReceiveRequest(slot));
        driver.initiator_failed("receiving a request", code);
    }
}

completion_handler! {
    /// Handles answers sent to the initiator.
    pub(super) struct AnswerSent<L> [L: IoLayout];
    |driver: Driver<L>, slot: Slot<u32, OneBuffer>| driver.answer_sent(slot),
    |code| {
        driver.idle.put(SlotTask::Answer(slot));
        driver.answer_failed(code);
    }
}

completion_handler! {
    /// Handles requests sent to a target.
    pub(super) struct ChunkRequestSent<L> [L: IoLayout];
    |driver: Driver<L>, slot: Slot<Target, OneBuffer>| driver.chunk_request_sent(slot),
    |code| {
        let target = *slot.state();
        driver.idle.put(SlotTask::Send(slot));
        driver.target_failed(target, code);
    }
}

completion_handler! {
    /// Handles results received from a target.
    pub(super) struct ResultReceived<L> [L: IoLayout];
    |driver: Driver<L>, slot: Slot<Target, OneBuffer>| driver.result_received(slot),
    |code| driver.target_failed(*slot.state(), code)
}

completion_handler! {
    /// Handles copies from and to the initiator's memory.
    pub(super) struct Copied<L> [L: IoLayout];
    |driver: Driver<L>, slot: Slot<BlockCopy, TwoBuffers>| driver.copied(slot),
    |code| driver.copy_failed(slot, code)
}

completion_handler! {
    /// Handles calculations of parity.
    pub(super) struct ParityCreated<L> [L: IoLayout];
    |driver: Driver<L>, slot: Slot<(), TwoBuffers>| driver.parity_created(slot, ErrorCode::SUCCESS),
    |code| driver.parity_created(slot, code)
}

completion_handler! {
    /// Handles recoveries of chunks.
    pub(super) struct Recovered<L> [L: IoLayout];
    |driver: Driver<L>, slot: Slot<Target, TwoBuffers>| driver.recovered(slot, ErrorCode::SUCCESS),
    |code| driver.recovered(slot, code)
}

completion_handler! {
    /// Handles decompressions.
    pub(super) struct Decompressed<L> [L: IoLayout];
    |driver: Driver<L>, slot: Slot<(), TwoBuffers>| driver.decompressed(slot),
    |code| driver.decompression_failed(slot, code)
}

impl<L: IoLayout> PollDriven for GgaDataPath<L> {
    #[inline]
    fn poll_once(&mut self, run: &RunFlag) -> Result<(), Failure> {
        self.progress(|path| path.other_event(run))?;
        if !self.retired.is_empty() && self.driver.engine.is_settled() {
            self.retired.clear();
        }
        if self.driver.copier.is_broken() {
            self.restart_copier()?;
        }
        self.poll_commands()?;
        self.driver.retry_deferred()
    }

    fn in_flight(&self) -> usize {
        self.driver.engine.in_flight()
    }

    fn finished(&self) -> u64 {
        self.driver.engine.statistics().operation_count
    }

    fn pe_stats(&self) -> PeStats {
        self.pe.stats()
    }

    fn limits(&self) -> Limits {
        self.driver.setup.worker.limits
    }

    fn metrics(&self) -> Option<&WorkerMetrics> {
        self.driver.setup.worker.metrics.as_deref()
    }

    fn counts(&self) -> Counts {
        let block_size = self.driver.setup.volume.geometry.logical_block_size;
        statistics::counts(self.driver.engine.statistics(), block_size)
    }

    fn suspect(&self) -> &'static str {
        "a storage target does not answer, or the initiator takes no results"
    }
}

// Contexts: between calls of `progress`.

impl<L: IoLayout> GgaDataPath<L> {
    /// Handles completions, other events by `other`, and the passage of time.
    #[inline(always)]
    fn progress(
        &mut self,
        mut other: impl FnMut(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut is_idle = false;
        for _ in 0..CALLS_PER_ITERATION {
            let misses = self.pe.stats().misses;
            let others = self.pe.progress(&mut self.driver);
            self.driver.failure.outcome()?;
            if self.let_go() {
                // The completions of the stopped contexts follow.
                continue;
            }
            if others {
                other(self)?;
            } else if self.pe.stats().misses != misses {
                is_idle = true;
                break;
            }
        }
        self.driver.tick(is_idle)?;
        self.let_go();
        Ok(())
    }

    /// Handles an event other than a completion.
    #[cold]
    fn other_event(&mut self, run: &RunFlag) -> Result<(), Failure> {
        let Some(PeEvent::State { context, next, .. }) = self.pe.poll() else {
            return Ok(());
        };
        let copier = &mut self.driver.copier;
        if copier.has_replaced(context) || self.retired.contains(&context) {
            return Ok(());
        }
        if !matches!(next, CtxState::Stopping | CtxState::Idle) {
            return Ok(());
        }
        if copier.owns(context) {
            copier.failed();
            return Ok(());
        }
        if !run.is_set() {
            return Ok(());
        }
        match self.target_of(context) {
            Some(target) if self.driver.setup.stores_chunks() => {
                let status = Status(ErrorCode::CONNECTION_RESET.0);
                self.driver.handle(Event::TargetLost { target, status });
                self.driver.carry_out_actions()
            }
            _ => Err(Failure::new(
                ErrorCode::CONNECTION_RESET,
                "a Comch or RDMA connection was lost: the initiator or a storage target is gone",
            )),
        }
    }

    /// Target to which a context is connected.
    fn target_of(&self, context: ContextId) -> Option<Target> {
        let of_context = |endpoints: &TargetEndpoints| {
            [endpoints.control.rdma().id(), endpoints.data.rdma().id()].contains(&context)
        };
        Target::ALL.into_iter().find(|target| {
            self.targets[target.number()]
                .as_ref()
                .is_some_and(of_context)
        })
    }

    /// Stops the contexts of detached targets. Returns `true` if there were any.
    #[inline]
    pub(super) fn let_go(&mut self) -> bool {
        !self.driver.leaving.is_empty() && self.stop_contexts()
    }

    #[cold]
    fn stop_contexts(&mut self) -> bool {
        for target in std::mem::take(&mut self.driver.leaving).iter() {
            if let Some(endpoints) = self.targets[target.number()].take() {
                let ids = [endpoints.control.rdma().id(), endpoints.data.rdma().id()];
                self.retired.extend(ids);
                // Slots in flight are passed to their handlers in the next call of `progress`.
                drop(endpoints);
            }
        }
        true
    }

    /// Starts a new DMA context once the failed one has drained, and repeats the copies that it did not complete.
    #[cold]
    fn restart_copier(&mut self) -> Result<(), Failure> {
        let driver = &mut self.driver;
        let memory = super::copy_memory(&self.inventory, &driver.setup, &driver.private);
        let deferred = &mut driver.deferred;
        let postponed = driver
            .copier
            .restart::<Copied<L>>(&self.pe, &memory, deferred)?;
        for (slot, copy) in postponed {
            driver.copy(slot, copy);
        }
        driver.carry_out_actions()
    }
}

fn status_of(code: ErrorCode) -> Status {
    Status(code.0)
}

impl<L: IoLayout> Driver<L> {
    #[inline(always)]
    pub(super) fn handle(&mut self, event: Event) {
        self.engine.handle(event, self.clock.now);
    }

    /// Reports an event, and executes the engine's actions.
    #[inline(always)]
    fn report(&mut self, event: Event) {
        self.handle(event);
        self.follow();
    }

    /// Ends the handling of a completion: executes the engine's actions.
    #[inline(always)]
    fn follow(&mut self) {
        if let Err(failure) = self.carry_out_actions() {
            self.failure.keep(failure);
        }
    }

    /// Ends a poll iteration. `is_idle`: all available completions have been reported.
    #[inline]
    fn tick(&mut self, is_idle: bool) -> Result<(), Failure> {
        self.clock.poll_iteration(is_idle);
        self.handle(Event::Tick { is_idle });
        self.carry_out_actions()
    }

    // Completions.

    #[inline]
    fn request_received(&mut self, slot: MessageSlot) {
        let mut bytes = [0; io_message::SIZE];
        let length = read(&slot, &mut bytes);
        let lane = put_back(&mut self.idle.messages, slot);
        let memory = self.setup.initiator.len();
        let (volume, flush) = (self.setup.volume, self.setup.flush);
        let initiator = self.layouts.initiator;
        let event = match Request::read(initiator, &bytes, length, volume, memory, flush) {
            Ok(request) => Event::Request { lane, request },
            Err((request, refusal)) => {
                let refused = &mut self.engine.statistics_mut().refused;
                if refused.count() {
                    tracing::warn!("refused a request ({refused} so far): {refusal}");
                }
                Event::Refused { lane, request }
            }
        };
        self.report(event);
    }

    #[inline]
    fn answer_sent(&mut self, slot: MessageSlot) {
        let answered = *slot.state();
        put_back(&mut self.idle.messages, slot);
        self.report(Event::Answered { slot: answered });
    }

    #[cold]
    fn answer_failed(&mut self, code: ErrorCode) {
        // When the run ends, messages are flushed and reported as failed.
        if !self.run.is_set() {
            return self.engine.answer_was_flushed();
        }
        self.initiator_failed("sending an answer", code);
    }

    #[cold]
    fn initiator_failed(&mut self, what: &str, code: ErrorCode) {
        if self.run.is_set() {
            self.failure.keep(Failure::new(
                code,
                format!("{what} failed: the initiator or its connection is broken"),
            ));
        }
    }

    #[inline]
    fn chunk_request_sent(&mut self, slot: TargetSlot) {
        let target = *slot.state();
        let slot = put_back(&mut self.idle.sends[target.number()], slot);
        self.handle(Event::ChunkRequestSent { slot, target });
        self.follow();
    }

    #[cold]
    fn target_failed(&mut self, target: Target, code: ErrorCode) {
        if self.run.is_set() {
            let status = status_of(code);
            self.handle(Event::TargetLost { target, status });
            self.follow();
        }
    }

    #[inline]
    fn result_received(&mut self, mut slot: TargetSlot) {
        let target = *slot.state();
        if self.engine.is_detached(target) {
            return;
        }
        let mut bytes = [0; io_message::SIZE];
        let length = read(&slot, &mut bytes);
        slot.reset_data();
        if let Err(code) = self.submit(SlotTask::ReceiveResult(slot)) {
            let status = status_of(code);
            self.handle(Event::TargetLost { target, status });
        }
        let message = IoMessage::new_unchecked_len(&bytes);
        if length != io_message::SIZE || message.message_type() != Ok(IoMessageType::Result) {
            let message = format_args!("{length} bytes that are no result");
            self.engine.unasked(target, message);
            return self.follow();
        }
        let Volume {
            geometry,
            placement,
            ..
        } = self.setup.volume;
        let offset = self.layouts.targets.answer_to(&bytes).storage_offset;
        let stripe = placement.stripe(target, offset, geometry.half_block_size());
        self.handle(Event::ChunkDone {
            slot: L::CorrelationId::transaction(&bytes),
            // An offset without a chunk belongs to no request.
            stripe: stripe.unwrap_or(u64::MAX),
            target,
            status: Status(message.result()),
        });
        self.follow();
    }

    #[inline]
    fn copied(&mut self, slot: CopySlot) {
        let direction = slot.state().direction;
        let slot = self.copier.put_back(slot);
        self.report(copied(slot, direction, Status::SUCCESS));
    }

    #[cold]
    fn copy_failed(&mut self, slot: CopySlot, code: ErrorCode) {
        self.copier.failed();
        let copy = *slot.state();
        let slot = self.copier.put_back(slot);
        if code == ErrorCode::SHUTDOWN {
            // Another task has failed, and thereby the context.
            self.copier.postpone(slot, copy);
        } else {
            self.report(copied(slot, copy.direction, status_of(code)));
        }
    }

    #[inline]
    fn parity_created(&mut self, slot: StepSlot, code: ErrorCode) {
        let slot = put_back(&mut self.idle.parities, slot);
        let status = status_of(code);
        self.report(Event::ParityCreated { slot, status });
    }

    #[inline]
    fn recovered(&mut self, slot: RecoverySlot, code: ErrorCode) {
        let target = *slot.state();
        let slot = put_back(&mut self.idle.recoveries[target.number()], slot);
        let status = status_of(code);
        self.report(Event::Recovered { slot, status });
    }

    #[inline]
    fn decompressed(&mut self, slot: StepSlot) {
        let produced = slot.data_len::<{ TwoBuffers::DESTINATION }>();
        let slot = put_back(&mut self.idle.decompressions, slot);
        let expected = self.setup.volume.geometry.logical_block_size as usize;
        let delivery = if produced == expected {
            Delivery::Done
        } else {
            Delivery::Corrupt
        };
        self.report(Event::Delivered { slot, delivery });
    }

    #[cold]
    fn decompression_failed(&mut self, slot: StepSlot, code: ErrorCode) {
        let slot = put_back(&mut self.idle.decompressions, slot);
        let delivery = match code {
            ErrorCode::INVALID_VALUE | ErrorCode::TOO_BIG | ErrorCode::IO_FAILED => {
                Delivery::Corrupt
            }
            // An error of the device, or of access to the initiator's memory.
            _ => Delivery::Failed(status_of(code)),
        };
        self.report(Event::Delivered { slot, delivery });
    }

    // Actions.

    // Not inlined, because every handler calls it at its end.
    #[inline(never)]
    pub(super) fn carry_out_actions(&mut self) -> Result<(), Failure> {
        while let Some(action) = self.engine.poll_action() {
            self.execute_action(action)?;
        }
        Ok(())
    }

    // Inlined, so that the fields of an action are read individually, as the engine wrote them. Copying the whole action would use wider
    // loads than the preceding stores, which defeats store-to-load forwarding.
    #[inline(always)]
    pub(super) fn execute_action(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::ReadChunks {
                slot,
                targets,
                stripe,
            } => self.ask_targets(slot, targets, stripe, IoMessageType::Read, None),
            Action::ReadBefore {
                slot,
                target,
                stripe,
                stamp,
            } => {
                let version = Some(self.version(stamp));
                let targets = Targets::only(target);
                self.ask_targets(slot, targets, stripe, IoMessageType::ReadBefore, version);
            }
            Action::WriteChunks {
                slot,
                targets,
                stripe,
                stamp,
                is_durable,
            } => {
                let message_type = match (stamp, is_durable) {
                    (Some(_), false) => IoMessageType::WriteVersion,
                    (Some(_), true) => IoMessageType::WriteVersionFua,
                    (None, false) => IoMessageType::Write,
                    (None, true) => IoMessageType::WriteFua,
                };
                let version = stamp.map(|stamp| self.version(stamp));
                self.ask_targets(slot, targets, stripe, message_type, version);
            }
            Action::Flush { slot, targets } => self.ask_for_flush(slot, targets),
            Action::Fetch { slot, block } => {
                let copy = self.copy_of(slot, block, Direction::FromInitiator);
                self.copy(slot, copy);
            }
            Action::Encode { slot, stripe } => self.encode(slot, stripe)?,
            Action::CreateParity { slot } => self.create_parity(slot),
            Action::Judge {
                slot,
                stripe,
                targets,
            } => {
                let judged = self.judge(slot, stripe, targets)?;
                self.handle(Event::Judged { slot, judged });
            }
            Action::Recover { slot, target } => {
                let recovery = take(&mut self.idle.recoveries[target.number()], slot);
                let submitted = recovery.and_then(|mut recovery| {
                    recovery.reset_data::<{ TwoBuffers::DESTINATION }>();
                    self.submit(SlotTask::Recover(recovery))
                });
                if let Err(code) = submitted {
                    let status = status_of(code);
                    self.handle(Event::Recovered { slot, status });
                }
            }
            Action::Examine { slot, recovered } => {
                let is_possible = self.examine(slot, recovered)?;
                self.handle(Event::Examined { slot, is_possible });
            }
            Action::Seal {
                slot,
                stripe,
                targets,
                stamp,
            } => {
                self.seal(slot, stripe, targets, stamp)?;
                self.handle(Event::Sealed { slot });
            }
            Action::Deliver { slot, block } if self.setup.stores_chunks() => {
                let copy = self.copy_of(slot, block, Direction::ToInitiator);
                self.copy(slot, copy);
            }
            Action::Deliver { slot, block } => self.decompress(slot, block)?,
            Action::Answer { slot, status } => self.answer(slot, status)?,
            Action::Receive { lane } => self.receive_request(lane)?,
            Action::Detach { target } => self.detach(target),
            Action::GiveUp { target, status } => {
                return Err(Failure::new(
                    ErrorCode(status.0),
                    format!(
                        "storage target {} or its connection is broken",
                        target.name()
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Answers a request from the buffer that it was received into.
    #[inline]
    fn answer(&mut self, slot: u32, status: Status) -> Result<(), Failure> {
        let request = self.engine.request(slot);
        let answer = request.answer(self.layouts.initiator, status.0);
        let message = take(&mut self.idle.messages, self.engine.lane(slot));
        let submitted = message.and_then(|mut message| {
            *message.state_mut() = slot;
            write(&mut message, &answer)?;
            self.submit(SlotTask::Answer(message))
        });
        submitted.map_err(|code| Failure::new(code, "an answer cannot be submitted"))
    }

    /// Waits for the next request of the initiator.
    #[inline]
    pub(super) fn receive_request(&mut self, lane: u32) -> Result<(), Failure> {
        let message = take(&mut self.idle.messages, lane);
        let submitted = message.and_then(|mut message| {
            message.reset_data();
            self.submit(SlotTask::ReceiveRequest(message))
        });
        submitted.map_err(|code| Failure::new(code, "a receive cannot be submitted"))
    }

    /// Stripe buffer of a slot.
    #[inline]
    pub(super) fn buffer(&self, slot: u32) -> StripeBuffer {
        let first = u64::from(self.setup.worker.index) * self.engine.slots() as u64;
        StripeBuffer::of(
            self.setup.volume.geometry,
            self.setup.memory.first,
            first + u64::from(slot),
        )
    }

    /// The version in messages for chunks with this stamp, and the versions that the targets may discard.
    #[inline]
    fn version(&self, stamp: Stamp) -> Version {
        let versions = self.setup.set.versions();
        Version {
            epoch: stamp.epoch,
            number: stamp.number,
            retired: versions.map_or(0, |versions| versions.retired_for(stamp.epoch)),
        }
    }

    /// Sends targets requests to read or write their chunks of a stripe.
    #[inline]
    fn ask_targets(
        &mut self,
        slot: u32,
        targets: Targets,
        stripe: u64,
        message_type: IoMessageType,
        version: Option<Version>,
    ) {
        let placement = self.setup.volume.placement;
        let chunk = self.setup.volume.geometry.half_block_size();
        let buffer = self.buffer(slot);
        for target in targets.iter() {
            let request = Repr {
                message_type,
                user_data: slot.into(),
                result: 0,
                size: chunk,
                requester_offset: buffer.chunk(target),
                storage_offset: placement.offset(target, stripe, chunk),
            };
            self.send_request(slot, target, request, version);
        }
    }

    /// Sends flush requests to targets.
    #[cold]
    fn ask_for_flush(&mut self, slot: u32, targets: Targets) {
        let versions = self.setup.set.versions();
        let version = versions.map(|versions| Version {
            epoch: versions.epoch(),
            number: 0,
            retired: versions.retired(),
        });
        for target in targets.iter() {
            let request = Repr {
                message_type: IoMessageType::Flush,
                user_data: slot.into(),
                result: 0,
                size: 0,
                requester_offset: 0,
                storage_offset: 0,
            };
            self.send_request(slot, target, request, version);
        }
    }

    #[inline]
    fn send_request(&mut self, slot: u32, target: Target, request: Repr, version: Option<Version>) {
        let correlation_id = L::CorrelationId::from_number(slot);
        let mut bytes = self.layouts.targets.to_bytes(&request, correlation_id);
        if let Some(version) = version {
            version.write(&mut bytes);
        }
        let message = take(&mut self.idle.sends[target.number()], slot);
        let submitted = message.and_then(|mut message| {
            write(&mut message, &bytes)?;
            self.submit(SlotTask::Send(message))
        });
        if let Err(code) = submitted {
            let status = status_of(code);
            self.handle(Event::TargetLost { target, status });
        }
    }

    /// Offset of a block of the slot's request in the initiator's memory.
    #[inline]
    fn requester_offset(&self, slot: u32, block: u8) -> u64 {
        let size = u64::from(self.setup.volume.geometry.logical_block_size);
        self.engine.request(slot).requester_offset + u64::from(block) * size
    }

    #[inline]
    fn copy_of(&self, slot: u32, block: u8, direction: Direction) -> BlockCopy {
        BlockCopy {
            direction,
            offset: self.requester_offset(slot, block),
        }
    }

    #[inline]
    fn copy(&mut self, slot: u32, copy: BlockCopy) {
        if !self.copier.is_usable() {
            return self.copier.postpone(slot, copy);
        }
        let length = self.setup.volume.geometry.logical_block_size as usize;
        let task = self.copier.take(slot, copy, length);
        if let Err(code) = task.and_then(|task| self.submit(SlotTask::Copy(task))) {
            self.handle(copied(slot, copy.direction, status_of(code)));
        }
    }

    #[inline]
    fn create_parity(&mut self, slot: u32) {
        let parity = take(&mut self.idle.parities, slot);
        let submitted = parity.and_then(|mut parity| {
            parity.reset_data::<{ TwoBuffers::DESTINATION }>();
            self.submit(SlotTask::CreateParity(parity))
        });
        if let Err(code) = submitted {
            let status = status_of(code);
            self.handle(Event::ParityCreated { slot, status });
        }
    }

    // Chunks. The targets may write to the stripe buffer at any time, so chunks are judged, used and created in private
    // memory.

    fn place(&self, stripe: u64, member: Target) -> Place {
        Place {
            set: self.setup.set_id,
            stripe,
            member,
        }
    }

    /// Judges chunks in the stripe buffer, and copies the payloads of valid chunks to the slot's private memory.
    #[inline]
    fn judge(&mut self, slot: u32, stripe: u64, targets: Targets) -> Result<Judged, Failure> {
        let buffer = self.buffer(slot);
        let size = self.setup.volume.geometry.half_block_size() as usize;
        let mut judged = Judged::default();
        for target in targets.iter() {
            let bytes = &mut self.stored[..size];
            let offset = buffer.chunk(target) as usize;
            self.setup.memory.region.read(offset, bytes)?;
            let judgement = chunk::judge(&self.stored[..size], self.place(stripe, target));
            if judgement.is_ok() {
                let payload = chunk::payload_range(target, size);
                let at = target.number() * payload.len();
                self.private
                    .write(slot as usize, at, &self.stored[payload])?;
            }
            judged[target.number()] = Some(judgement);
        }
        Ok(judged)
    }

    /// Creates chunks in the stripe buffer from the payloads in private memory.
    #[inline]
    fn seal(
        &mut self,
        slot: u32,
        stripe: u64,
        targets: Targets,
        stamp: Stamp,
    ) -> Result<(), Failure> {
        let buffer = self.buffer(slot);
        let size = self.setup.volume.geometry.half_block_size() as usize;
        for target in targets.iter() {
            let place = self.place(stripe, target);
            let payload = chunk::payload_range(target, size);
            let bytes = &mut self.stored[..size];
            if stamp == Stamp::UNWRITTEN {
                bytes.fill(0);
            } else {
                let at = target.number() * payload.len();
                self.private.read(slot as usize, at, &mut bytes[payload])?;
                chunk::seal(bytes, place, stamp);
            }
            let offset = buffer.chunk(target) as usize;
            self.setup.memory.region.write(offset, bytes)?;
        }
        Ok(())
    }

    // Stored blocks of the reference's form.

    /// Encodes the content as a stored block in the stripe buffer, where the targets read it.
    fn encode(&mut self, slot: u32, stripe: u64) -> Result<(), Failure> {
        self.private.read(slot as usize, 0, &mut self.content)?;
        let offset = self.buffer(slot).stored();
        let fits = match self.encoder.encode(&self.content) {
            Ok(stored) => {
                self.setup.memory.region.write(offset as usize, stored)?;
                true
            }
            Err(incompressible) => {
                let count = &mut self.engine.statistics_mut().incompressible;
                if count.count() {
                    tracing::error!("block {stripe} ({count} so far) {incompressible}");
                }
                false
            }
        };
        self.handle(Event::Encoded { slot, fits });
        Ok(())
    }

    /// Copies a stored block, with the recovered chunk in place of `recovered`, and examines its sizes.
    #[inline]
    fn examine(&mut self, slot: u32, recovered: Option<Target>) -> Result<bool, Failure> {
        self.examined = None;
        let buffer = self.buffer(slot);
        let region = &self.setup.memory.region;
        match recovered {
            None => region.read(buffer.stored() as usize, &mut self.stored)?,
            Some(recovered) => {
                // The stripe buffer has stale data in place of the recovered chunk, and is not in a cache.
                let half = self.stored.len() / 2;
                let (data_1, data_2) = self.stored.split_at_mut(half);
                let (into, read, other) = match recovered {
                    Target::Data1 => (data_1, data_2, Target::Data2),
                    _ => (data_2, data_1, Target::Data1),
                };
                region.read(buffer.chunk(other) as usize, read)?;
                self.private.read(slot as usize, 0, into)?;
            }
        }
        let header = inspect(&self.stored, self.setup.volume.geometry);
        self.examined = header
            .ok()
            .map(|header| (slot, header.compressed_size as usize));
        Ok(self.examined.is_some())
    }

    #[inline]
    fn decompress(&mut self, slot: u32, block: u8) -> Result<(), Failure> {
        let index = slot as usize;
        // The examined private copy is used, because the targets may still write to the stripe buffer.
        let Some((_, length)) = self.examined.filter(|&(examined, _)| examined == slot) else {
            return Err(Failure::unexpected("a block is used that was not examined"));
        };
        let data = &self.stored[Header::SIZE..][..length];
        self.private.write(index, 0, data)?;
        let to = self.requester_offset(slot, block);
        let logical = self.setup.volume.geometry.logical_block_size as usize;
        let from = self.private.offset(index);
        let decompression = take(&mut self.idle.decompressions, slot);
        let submitted = decompression.and_then(|mut decompression| {
            let set = decompression
                .set_data::<{ TwoBuffers::SOURCE }>(from, length)
                .and_then(|()| decompression.set_range::<{ TwoBuffers::DESTINATION }>(to, logical));
            match set {
                Ok(()) => self.submit(SlotTask::Decompress(decompression)),
                Err(code) => {
                    self.idle.put(SlotTask::Decompress(decompression));
                    Err(code)
                }
            }
        });
        if let Err(code) = submitted {
            let delivery = Delivery::Failed(status_of(code));
            self.handle(Event::Delivered { slot, delivery });
        }
        Ok(())
    }

    /// Drops the slots of a target, and marks its contexts to be stopped.
    #[cold]
    fn detach(&mut self, target: Target) {
        self.deferred.retain(|task| task.target() != Some(target));
        self.idle.sends[target.number()].clear();
        self.leaving.insert(target);
    }

    // Slots.

    /// Submits a slot, now or together with the [deferred](Self::retry_deferred) ones.
    ///
    /// # Errors
    ///
    /// The slot is idle again.
    #[inline(always)]
    pub(super) fn submit(&mut self, task: SlotTask) -> Result<(), ErrorCode> {
        match task.submit() {
            Ok(()) => Ok(()),
            Err((task, code)) => self.refused(task, code),
        }
    }

    #[cold]
    fn refused(&mut self, task: SlotTask, code: ErrorCode) -> Result<(), ErrorCode> {
        if code == ErrorCode::AGAIN {
            self.deferred.push_back(task);
            return Ok(());
        }
        self.put_back(task);
        Err(code)
    }

    /// Returns a slot that was not submitted to its table. Returns its number.
    #[cold]
    fn put_back(&mut self, task: SlotTask) -> u32 {
        match task {
            SlotTask::Copy(slot) => self.copier.put_back(slot),
            other => self.idle.put(other),
        }
    }

    /// Submits the deferred slots.
    #[inline]
    fn retry_deferred(&mut self) -> Result<(), Failure> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        self.retry_now()
    }

    fn retry_now(&mut self) -> Result<(), Failure> {
        while let Some(task) = self.deferred.pop_front() {
            match task.submit() {
                Ok(()) => {}
                Err((task, ErrorCode::AGAIN)) => {
                    self.deferred.push_front(task);
                    return Ok(());
                }
                Err((task, code)) => return self.deferred_failed(task, code),
            }
        }
        Ok(())
    }

    #[cold]
    fn deferred_failed(&mut self, task: SlotTask, code: ErrorCode) -> Result<(), Failure> {
        let status = status_of(code);
        let event: fn(u32, Status) -> Event = match &task {
            SlotTask::Copy(slot) if slot.state().direction == Direction::ToInitiator => {
                |slot, status| copied(slot, Direction::ToInitiator, status)
            }
            SlotTask::Copy(_) => |slot, status| copied(slot, Direction::FromInitiator, status),
            SlotTask::CreateParity(_) => |slot, status| Event::ParityCreated { slot, status },
            SlotTask::Recover(_) => |slot, status| Event::Recovered { slot, status },
            SlotTask::Decompress(_) => |slot, status| Event::Delivered {
                slot,
                delivery: Delivery::Failed(status),
            },
            SlotTask::Send(message) | SlotTask::ReceiveResult(message) => {
                let target = *message.state();
                self.put_back(task);
                self.handle(Event::TargetLost { target, status });
                return self.carry_out_actions();
            }
            SlotTask::ReceiveRequest(_) | SlotTask::Answer(_) => {
                self.put_back(task);
                return Err(Failure::new(
                    code,
                    "a deferred message to or from the initiator cannot be submitted",
                ));
            }
        };
        let slot = self.put_back(task);
        self.handle(event(slot, status));
        self.carry_out_actions()
    }
}

/// The event for a completed copy.
#[inline(always)]
fn copied(slot: u32, direction: Direction, status: Status) -> Event {
    match direction {
        Direction::FromInitiator => Event::Fetched { slot, status },
        Direction::ToInitiator => Event::Delivered {
            slot,
            delivery: if status.is_success() {
                Delivery::Done
            } else {
                Delivery::Failed(status)
            },
        },
    }
}

/// Copies a received message, because the peer may change it after validation. The bytes after it are zeros. Returns its length.
#[inline(always)]
fn read<U>(slot: &doca::Slot<U>, into: &mut [u8; io_message::SIZE]) -> usize {
    let length = slot.data_len();
    // Each buffer has at least that many bytes.
    let _ = slot.read(into);
    if length < io_message::SIZE {
        clear(&mut into[length..]);
    }
    length
}

#[cold]
fn clear(bytes: &mut [u8]) {
    bytes.fill(0);
}

/// Replaces the data of a slot by a message that is at least as long.
#[inline(always)]
fn write<U>(slot: &mut doca::Slot<U>, message: &[u8; io_message::SIZE]) -> Result<(), ErrorCode> {
    if slot.data_len() == message.len() && slot.write(message) {
        return Ok(());
    }
    write_all(slot, message)
}

#[cold]
fn write_all<U>(
    slot: &mut doca::Slot<U>,
    message: &[u8; io_message::SIZE],
) -> Result<(), ErrorCode> {
    slot.write_data(message).map_err(|error| error.code)
}
