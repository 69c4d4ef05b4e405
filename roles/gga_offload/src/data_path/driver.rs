//! Reports completions to the engine, and carries out its actions.

use std::time::{Duration, Instant};

use doca::{Completion, ContextId, CtxState, ErrorCode, Event as PeEvent, PeStats, Polled};
use role_common::Failure;
use role_common::metrics::{Counts, WorkerMetrics};
use role_common::service::endpoints::TargetEnds;
use role_common::stored_block::{Place, decodes, inspect};
use role_common::turns::{Limits, Turns};
use role_common::worker::RunFlag;
use wire::io_message::{self, IoMessage, IoMessageType, Repr};
use wire::release::{CorrelationId as _, IoLayout};
use wire::stored_block::Header;

use super::tasks::{Kind, Token};
use super::{GgaDataPath, zeroes_unwritten};
use crate::engine::request::{Request, Volume};
use crate::engine::{Action, Comparison, Decompression, Event, Flaw, Quality, Status};
use crate::target::{Target, Targets};

/// Events per poll iteration while more are pending: the cost of an iteration is shared.
const EVENTS_PER_ITERATION: u32 = 32;

/// Time that chunk stores in flight have to complete when a session has ended. It is within the time that the main thread gives a worker.
const COMPLETION_OF_STORES: Duration = Duration::from_secs(3);

impl<L: IoLayout> Turns for GgaDataPath<L> {
    #[inline]
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure> {
        let mut is_idle = false;
        for _ in 0..EVENTS_PER_ITERATION {
            match self.pe.poll_completion() {
                Polled::Completion(Completion { token, result }) => {
                    let (index, kind) = Token(token).parts();
                    match result {
                        Ok(()) => self.completed(index, kind)?,
                        Err(code) => self.failed(index, kind, code, run)?,
                    }
                    self.carry_out_actions()?;
                }
                Polled::Other => self.other_event(run)?,
                Polled::Nothing => {
                    is_idle = true;
                    break;
                }
            }
        }
        self.clock.poll_iteration(is_idle);
        self.tell(Event::Tick { is_idle });
        self.carry_out_actions()?;
        if !self.retired.is_empty() && self.engine.is_settled() {
            self.retired.clear();
        }
        self.poll_commands()?;
        self.retry_deferred()
    }

    fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    fn finished(&self) -> u64 {
        self.engine.statistics().core.operation_count
    }

    fn pe_stats(&self) -> PeStats {
        self.pe.stats()
    }

    fn limits(&self) -> Limits {
        self.setup.worker.limits
    }

    fn metrics(&self) -> Option<&WorkerMetrics> {
        self.setup.worker.metrics.as_deref()
    }

    fn counts(&self) -> Counts {
        let block_size = self.setup.volume.geometry.logical_block_size;
        self.engine.statistics().counts(block_size)
    }

    fn suspect(&self) -> &'static str {
        "a storage target does not answer, or the initiator takes no results"
    }
}

/// The status that a task completed with.
fn status_of(result: Result<(), ErrorCode>) -> Status {
    result.map_or_else(|code| Status(code.0), |()| Status::SUCCESS)
}

fn code_of(error: doca::Error) -> ErrorCode {
    error.code
}

impl<L: IoLayout> GgaDataPath<L> {
    #[inline(always)]
    fn tell(&mut self, event: Event) {
        self.engine.handle(event, self.clock.now);
    }

    // Completions.

    #[inline]
    fn completed(&mut self, index: usize, kind: Kind) -> Result<(), Failure> {
        let slot = index as u32;
        let status = Status::SUCCESS;
        match kind {
            Kind::ReceiveRequest => return self.request_received(index),
            Kind::ReceiveResult(target) => return self.result_received(index, target),
            Kind::Answer => self.tell(Event::Answered { slot }),
            Kind::Send(target) => self.tell(Event::ChunkRequestSent { slot, target }),
            Kind::Fetch => {
                if self.fetcher.is_broken() {
                    // It may have been the last outstanding one of the failed context.
                    self.restart_fetcher()?;
                }
                self.tell(Event::Fetched { slot, status });
            }
            Kind::CreateParity => self.tell(Event::ParityCreated { slot, status }),
            Kind::Recover(_) => self.tell(Event::Recovered { slot, status }),
            Kind::Decompress => {
                let produced = self.tasks.of(index).decompressed.data_len()?;
                let expected = self.setup.volume.geometry.logical_block_size as usize;
                let outcome = if produced == expected {
                    Decompression::Done
                } else {
                    Decompression::Corrupt
                };
                self.tell(Event::Decompressed { slot, outcome });
            }
        }
        Ok(())
    }

    #[cold]
    fn failed(
        &mut self,
        index: usize,
        kind: Kind,
        code: ErrorCode,
        run: &RunFlag,
    ) -> Result<(), Failure> {
        let (slot, status) = (index as u32, Status(code.0));
        match kind {
            Kind::Fetch => return self.fetch_failed(index, code),
            Kind::CreateParity => self.tell(Event::ParityCreated { slot, status }),
            Kind::Recover(_) => self.tell(Event::Recovered { slot, status }),
            Kind::Decompress => {
                let outcome = match code {
                    ErrorCode::INVALID_VALUE | ErrorCode::TOO_BIG | ErrorCode::IO_FAILED => {
                        Decompression::Corrupt
                    }
                    // An error of the initiator's memory, or of the device.
                    _ => Decompression::Failed(status),
                };
                self.tell(Event::Decompressed { slot, outcome });
            }
            // When the run ends, receives are flushed.
            Kind::Answer if !run.is_set() => self.engine.answer_was_flushed(),
            _ if !run.is_set() => {}
            Kind::ReceiveRequest | Kind::Answer => {
                return Err(Failure::new(
                    code,
                    format!("{kind:?} failed: the initiator or its connection is broken"),
                ));
            }
            Kind::Send(target) | Kind::ReceiveResult(target) => {
                self.tell(Event::TargetLost { target, status });
            }
        }
        Ok(())
    }

    /// An event that is no completion.
    #[cold]
    fn other_event(&mut self, run: &RunFlag) -> Result<(), Failure> {
        let Some(PeEvent::State { context, next, .. }) = self.pe.poll() else {
            return Ok(());
        };
        if self.fetcher.has_replaced(context) || self.retired.contains(&context) {
            return Ok(());
        }
        if !matches!(next, CtxState::Stopping | CtxState::Idle) {
            return Ok(());
        }
        if self.fetcher.owns(context) {
            self.fetcher.failed();
            return self.restart_fetcher();
        }
        if !run.is_set() {
            return Ok(());
        }
        match self.target_of(context) {
            Some(target) if self.setup.is_degradable => {
                let status = Status(ErrorCode::CONNECTION_RESET.0);
                self.tell(Event::TargetLost { target, status });
                self.carry_out_actions()
            }
            _ => Err(Failure::new(
                ErrorCode::CONNECTION_RESET,
                "a Comch or RDMA connection was lost: the initiator or a storage target is gone",
            )),
        }
    }

    /// The target that a context is connected to.
    fn target_of(&self, context: ContextId) -> Option<Target> {
        let of_context = |ends: &TargetEnds| {
            [ends.control.rdma().id(), ends.data.rdma().id()].contains(&context)
        };
        Target::ALL.into_iter().find(|target| {
            self.targets[target.number()]
                .as_ref()
                .is_some_and(of_context)
        })
    }

    #[inline]
    fn request_received(&mut self, lane: usize) -> Result<(), Failure> {
        let message = self.tasks.request(lane);
        let mut bytes = [0; io_message::SIZE];
        let length = self
            .messages
            .received(message.place, &message.buf, &mut bytes)?;
        message.buf.reset_data()?;
        let memory = self.setup.initiator.len();
        let (volume, flush) = (self.setup.volume, self.setup.flush);
        let initiator = self.layouts.initiator;
        let event = match Request::read(initiator, &bytes, length, volume, memory, flush) {
            Ok(request) => Event::Request {
                lane: lane as u32,
                request,
            },
            Err((request, refusal)) => {
                let refused = &mut self.engine.statistics_mut().refused;
                if refused.count() {
                    tracing::warn!("refused a request ({refused} so far): {refusal}");
                }
                Event::Refused {
                    lane: lane as u32,
                    request,
                }
            }
        };
        self.tell(event);
        Ok(())
    }

    #[inline]
    fn result_received(&mut self, lane: usize, target: Target) -> Result<(), Failure> {
        if self.engine.is_detached(target) {
            return Ok(());
        }
        let message = self.tasks.result(target, lane);
        let mut bytes = [0; io_message::SIZE];
        let length = self
            .messages
            .received(message.place, &message.buf, &mut bytes)?;
        message.buf.reset_data()?;
        if let Err(code) = self.submit(lane, Kind::ReceiveResult(target)) {
            let status = Status(code.0);
            self.tell(Event::TargetLost { target, status });
        }
        let message = IoMessage::new_unchecked_len(&bytes);
        let slot = L::CorrelationId::transaction(&bytes);
        if length != io_message::SIZE || message.message_type() != Ok(IoMessageType::Result) {
            let message = format_args!("{length} bytes that are no result");
            self.engine.unasked(target, message);
            return Ok(());
        }
        let Volume {
            geometry,
            placement,
            ..
        } = self.setup.volume;
        let offset = self.layouts.targets.answer_to(&bytes).storage_offset;
        let stripe = placement.stripe(target, offset, geometry.half_block_size());
        self.tell(Event::ChunkDone {
            slot,
            // An offset at which no chunk is belongs to no request.
            stripe: stripe.unwrap_or(u64::MAX),
            target,
            status: Status(message.result()),
        });
        Ok(())
    }

    // The end of a session.

    /// Lets chunk stores in flight complete, whatever has ended the session. A stripe of which one target has the new chunk and another the
    /// old one has neither content if the third target is offline: its block would be lost, although an earlier write of it was acknowledged.
    #[cold]
    pub(super) fn complete_stores(&mut self) {
        if !self.engine.is_storing() {
            return;
        }
        self.deferred.retain(|token| {
            let (_, kind) = Token(token).parts();
            matches!(kind, Kind::Send(_) | Kind::ReceiveResult(_))
        });
        let deadline = Instant::now() + COMPLETION_OF_STORES;
        while self.engine.is_storing() {
            let progress = self.progress_stores();
            if let Err(failure) = progress {
                return tracing::warn!("chunks may be stored on some targets only: {failure}");
            }
            if Instant::now() >= deadline {
                return tracing::warn!(
                    "chunks may be stored on some targets only: no result within {COMPLETION_OF_STORES:?} after the end of the session"
                );
            }
        }
    }

    /// A poll iteration in which only messages of stores count, and no other action is carried out.
    fn progress_stores(&mut self) -> Result<(), Failure> {
        // Requests for chunks to store that are still to be sent.
        self.carry_out_stores()?;
        let mut is_idle = false;
        for _ in 0..EVENTS_PER_ITERATION {
            match self.pe.poll_completion() {
                Polled::Completion(Completion { token, result }) => {
                    let (index, kind) = Token(token).parts();
                    let slot = index as u32;
                    match (kind, result) {
                        (Kind::Send(target), Ok(())) => {
                            self.tell(Event::ChunkRequestSent { slot, target });
                        }
                        (Kind::ReceiveResult(target), Ok(())) => {
                            self.result_received(index, target)?;
                        }
                        (Kind::Send(target) | Kind::ReceiveResult(target), Err(code)) => {
                            let status = Status(code.0);
                            self.tell(Event::TargetLost { target, status });
                        }
                        _ => {}
                    }
                }
                Polled::Other => {
                    if let Some(target) = self.disconnected_target() {
                        let status = Status(ErrorCode::CONNECTION_RESET.0);
                        self.tell(Event::TargetLost { target, status });
                    }
                }
                Polled::Nothing => {
                    is_idle = true;
                    break;
                }
            }
            self.carry_out_stores()?;
        }
        self.clock.poll_iteration(is_idle);
        self.tell(Event::Tick { is_idle });
        self.carry_out_stores()?;
        self.retry_deferred()
    }

    fn carry_out_stores(&mut self) -> Result<(), Failure> {
        while let Some(action) = self.engine.poll_action() {
            if matches!(
                action,
                Action::WriteChunks { .. } | Action::Detach { .. } | Action::GiveUp { .. }
            ) {
                self.execute_action(action)?;
            }
        }
        Ok(())
    }

    /// The target whose connection the next event reports as lost.
    fn disconnected_target(&mut self) -> Option<Target> {
        match self.pe.poll() {
            Some(PeEvent::State {
                context,
                next: CtxState::Stopping | CtxState::Idle,
                ..
            }) => self.target_of(context),
            _ => None,
        }
    }

    // Actions.

    fn carry_out_actions(&mut self) -> Result<(), Failure> {
        while let Some(action) = self.engine.poll_action() {
            self.execute_action(action)?;
        }
        Ok(())
    }

    // Inlined, so that the fields of an action are read from where the engine wrote them one by one. A copy of the whole is read in
    // larger pieces than it was written in, and such a load waits until the stores before it are done.
    #[inline(always)]
    pub(super) fn execute_action(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::ReadChunks {
                slot,
                targets,
                stripe,
            } => self.ask_targets(slot, targets, stripe, IoMessageType::Read)?,
            Action::WriteChunks {
                slot,
                targets,
                stripe,
                is_recovered,
                is_durable,
            } => {
                if is_recovered {
                    self.place_recovered(slot, targets)?;
                }
                let message_type = if is_durable {
                    IoMessageType::WriteFua
                } else {
                    IoMessageType::Write
                };
                self.ask_targets(slot, targets, stripe, message_type)?;
            }
            Action::Flush { slot, targets } => self.ask_for_flush(slot, targets)?,
            Action::Fetch { slot, block } => self.fetch(slot, block)?,
            Action::Encode { slot, stripe } => self.encode(slot, stripe)?,
            Action::CreateParity { slot, were_read } => self.create_parity(slot, were_read)?,
            Action::Recover { slot, target } => {
                let tasks = self.tasks.of(slot as usize);
                let set = tasks.recovered[target.number()].reset_data();
                if let Err(status) = self.begin_step(slot, Kind::Recover(target), set) {
                    self.tell(Event::Recovered { slot, status });
                }
            }
            Action::Verify {
                slot,
                stripe,
                recovered,
            } => {
                let quality = self.verify(slot, stripe, recovered)?;
                self.tell(Event::Verified { slot, quality });
            }
            Action::Compare {
                slot,
                stripe,
                recovered,
            } => {
                let comparison = self.compare(slot, stripe, recovered)?;
                self.tell(Event::Compared { slot, comparison });
            }
            Action::Reseal { slot, stripe } => self.reseal(slot, stripe)?,
            Action::Decompress { slot, block } => self.decompress(slot, block)?,
            Action::DecompressZeros {
                slot,
                stripe,
                block,
            } => self.decompress_zeros(slot, stripe, block)?,
            Action::EncodeZeros { slot, stripe } => {
                self.content.fill(0);
                self.encode_content(slot, stripe)?;
            }
            Action::Answer { slot, status } => {
                let index = slot as usize;
                let answer = self
                    .engine
                    .request(slot)
                    .answer(self.layouts.initiator, status.0);
                self.messages
                    .put(self.tasks.of(index).answer_message.place, &answer)?;
                self.must_submit(index, Kind::Answer)?;
            }
            Action::Receive { lane } => self.must_submit(lane as usize, Kind::ReceiveRequest)?,
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

    /// Asks targets to read or write their chunks of a stripe.
    #[inline]
    fn ask_targets(
        &mut self,
        slot: u32,
        targets: Targets,
        stripe: u64,
        message_type: IoMessageType,
    ) -> Result<(), Failure> {
        let placement = self.setup.volume.placement;
        let chunk = self.setup.volume.geometry.half_block_size();
        for target in targets.iter() {
            let request = Repr {
                message_type,
                user_data: slot.into(),
                result: 0,
                size: chunk,
                requester_offset: self.tasks.of(slot as usize).buffer.chunk(target),
                storage_offset: placement.offset(target, stripe, chunk),
            };
            self.send_request(slot, target, request)?;
        }
        Ok(())
    }

    /// Sends flush requests to targets.
    #[cold]
    fn ask_for_flush(&mut self, slot: u32, targets: Targets) -> Result<(), Failure> {
        for target in targets.iter() {
            let request = Repr {
                message_type: IoMessageType::Flush,
                user_data: slot.into(),
                result: 0,
                size: 0,
                requester_offset: 0,
                storage_offset: 0,
            };
            self.send_request(slot, target, request)?;
        }
        Ok(())
    }

    #[inline]
    fn send_request(&mut self, slot: u32, target: Target, request: Repr) -> Result<(), Failure> {
        let index = slot as usize;
        let place = self.tasks.of(index).requests[target.number()].place;
        let correlation_id = L::CorrelationId::from_number(slot);
        let bytes = self.layouts.targets.to_bytes(&request, correlation_id);
        self.messages.put(place, &bytes)?;
        if let Err(code) = self.submit(index, Kind::Send(target)) {
            let status = Status(code.0);
            self.tell(Event::TargetLost { target, status });
        }
        Ok(())
    }

    /// Copies the chunk that was recovered last to where its target reads it.
    #[cold]
    fn place_recovered(&mut self, slot: u32, targets: Targets) -> Result<(), Failure> {
        let index = slot as usize;
        for target in targets.iter() {
            self.private.read(index, &mut self.recovered)?;
            let offset = self.tasks.of(index).buffer.chunk(target);
            let region = &self.setup.memory.region;
            region.write(offset as usize, &self.recovered)?;
        }
        Ok(())
    }

    /// Offset of a block of the slot's request in the initiator's memory.
    #[inline]
    fn requester_offset(&self, slot: u32, block: u8) -> u64 {
        let size = u64::from(self.setup.volume.geometry.logical_block_size);
        self.engine.request(slot).requester_offset + u64::from(block) * size
    }

    fn fetch(&mut self, slot: u32, block: u8) -> Result<(), Failure> {
        let offset = self.requester_offset(slot, block);
        self.fetch_from(slot as usize, offset)
    }

    fn fetch_from(&mut self, index: usize, offset: u64) -> Result<(), Failure> {
        if !self.fetcher.is_usable() {
            self.fetcher.postpone(index, offset);
            return Ok(());
        }
        let length = self.setup.volume.geometry.logical_block_size as usize;
        let set = self.fetcher.set_range(index, offset, length);
        if let Err(code) = set.and_then(|()| self.submit(index, Kind::Fetch)) {
            let (slot, status) = (index as u32, Status(code.0));
            self.tell(Event::Fetched { slot, status });
        }
        Ok(())
    }

    #[cold]
    fn fetch_failed(&mut self, index: usize, code: ErrorCode) -> Result<(), Failure> {
        self.fetcher.failed();
        if code == ErrorCode::SHUTDOWN {
            // Another task failed, and the context with it. The range of this one is still set.
            let offset = self.fetcher.offset(index);
            self.fetcher.postpone(index, offset);
        } else {
            let (slot, status) = (index as u32, Status(code.0));
            self.tell(Event::Fetched { slot, status });
        }
        self.restart_fetcher()
    }

    /// Starts a new context when the old one has failed and drained, and copies again what that did not.
    #[cold]
    fn restart_fetcher(&mut self) -> Result<(), Failure> {
        for (index, offset) in self.fetcher.restart(&self.pe)? {
            self.fetch_from(index, offset)?;
        }
        Ok(())
    }

    /// Makes the stored block of the content, and puts it where the targets read it.
    fn encode(&mut self, slot: u32, stripe: u64) -> Result<(), Failure> {
        self.private.read(slot as usize, &mut self.content)?;
        self.encode_content(slot, stripe)
    }

    fn encode_content(&mut self, slot: u32, stripe: u64) -> Result<(), Failure> {
        let index = slot as usize;
        let place = Place {
            set: self.setup.set_id,
            stripe,
        };
        let fits = match self.encoder.encode(&self.content, place) {
            Ok(stored) => {
                let offset = self.tasks.of(index).buffer.stored();
                self.setup.memory.region.write(offset as usize, stored)?;
                if self.setup.is_degradable {
                    self.private.write(index, stored)?;
                }
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
        self.tell(Event::Encoded { slot, fits });
        Ok(())
    }

    fn create_parity(&mut self, slot: u32, were_read: bool) -> Result<(), Failure> {
        let index = slot as usize;
        if were_read && self.has_private_parity() {
            self.read_stored(index)?;
            self.private.write(index, &self.stored)?;
        }
        let set = self.tasks.of(index).parity.reset_data();
        if let Err(status) = self.begin_step(slot, Kind::CreateParity, set) {
            self.tell(Event::ParityCreated { slot, status });
        }
        Ok(())
    }

    /// Copies the data chunks from the stripe buffer to private memory.
    fn read_stored(&mut self, index: usize) -> Result<(), Failure> {
        self.judged = None;
        let offset = self.tasks.of(index).buffer.stored();
        let region = &self.setup.memory.region;
        region.read(offset as usize, &mut self.stored)?;
        Ok(())
    }

    fn place(&self, stripe: u64) -> Place {
        Place {
            set: self.setup.set_id,
            stripe,
        }
    }

    #[inline]
    fn verify(
        &mut self,
        slot: u32,
        stripe: u64,
        recovered: Option<Target>,
    ) -> Result<Quality, Failure> {
        let index = slot as usize;
        match recovered {
            None => self.read_stored(index)?,
            Some(recovered) => {
                self.judged = None;
                // The place of the recovered chunk in the buffer holds what was there before, and is in no cache.
                let (data_1, data_2) = self.stored.split_at_mut(self.recovered.len());
                let (into, read, other) = match recovered {
                    Target::Data1 => (data_1, data_2, Target::Data2),
                    _ => (data_2, data_1, Target::Data1),
                };
                let offset = self.tasks.of(index).buffer.chunk(other);
                self.setup.memory.region.read(offset as usize, read)?;
                self.private.read(index, into)?;
            }
        }
        Ok(self.judge(slot, stripe))
    }

    /// Judges the block in `stored`.
    #[inline]
    fn judge(&mut self, slot: u32, stripe: u64) -> Quality {
        let place = self.place(stripe);
        match inspect(&self.stored, self.setup.volume.geometry, place) {
            Ok((header, verdict)) => {
                self.judged = Some((slot, header.compressed_size as usize));
                Quality::of(verdict)
            }
            Err(defect) => Quality::Flawed(Flaw::of_defect(defect, &self.stored)),
        }
    }

    /// As [`judge`](Self::judge), and a block without checksum has to decompress. Where unwritten stripes read as zeros, one of zeros counts
    /// as unwritten.
    fn judge_closely(&mut self, slot: u32, stripe: u64) -> Quality {
        let geometry = self.setup.volume.geometry;
        match self.judge(slot, stripe) {
            Quality::Bare if !decodes(&self.stored, geometry, &mut self.content) => {
                Quality::Flawed(Flaw::Undecodable)
            }
            Quality::Bare
                if zeroes_unwritten(geometry) && self.content.iter().all(|&byte| byte == 0) =>
            {
                Quality::Flawed(Flaw::Unwritten)
            }
            quality => quality,
        }
    }

    #[cold]
    fn compare(
        &mut self,
        slot: u32,
        stripe: u64,
        recovered: Target,
    ) -> Result<Comparison, Failure> {
        let index = slot as usize;
        self.read_stored(index)?;
        self.private.read(index, &mut self.recovered)?;
        let as_read = self.judge_closely(slot, stripe);
        let length = self.recovered.len();
        let range = recovered.number() * length..(recovered.number() + 1) * length;
        let is_equal = self.recovered[..] == self.stored[range.clone()];
        let with_recovered = if is_equal {
            as_read
        } else {
            self.stored[range].copy_from_slice(&self.recovered);
            self.judge_closely(slot, stripe)
        };
        Ok(Comparison {
            is_equal,
            as_read,
            with_recovered,
        })
    }

    /// The block that was judged last, of this slot.
    #[inline]
    fn judged(&self, slot: u32) -> Result<usize, Failure> {
        match self.judged {
            Some((judged, length)) if judged == slot => Ok(length),
            _ => Err(Failure::unexpected("a block is used that was not judged")),
        }
    }

    #[cold]
    fn reseal(&mut self, slot: u32, stripe: u64) -> Result<(), Failure> {
        let index = slot as usize;
        self.judged(slot)?;
        let place = self.place(stripe);
        self.encoder.reseal(&mut self.stored, place);
        let offset = self.tasks.of(index).buffer.stored();
        self.setup
            .memory
            .region
            .write(offset as usize, &self.stored)?;
        self.private.write(index, &self.stored)?;
        self.tell(Event::Resealed { slot });
        Ok(())
    }

    #[inline]
    fn decompress(&mut self, slot: u32, block: u8) -> Result<(), Failure> {
        let index = slot as usize;
        // The verified copy is used, whatever the targets write to the stripe buffer.
        let length = self.judged(slot)?;
        let data = &self.stored[Header::SIZE..][..length];
        self.private.write(index, data)?;
        let to = self.requester_offset(slot, block);
        let logical = self.setup.volume.geometry.logical_block_size as usize;
        let tasks = self.tasks.of(index);
        let set = tasks
            .compressed
            .set_data(self.private.offset(index), length)
            .and_then(|()| tasks.decompressed.set_range(to, logical));
        if let Err(status) = self.begin_step(slot, Kind::Decompress, set) {
            let outcome = Decompression::Failed(status);
            self.tell(Event::Decompressed { slot, outcome });
        }
        Ok(())
    }

    /// Writes zeros to the initiator's block, as any other content: by decompression.
    #[cold]
    fn decompress_zeros(&mut self, slot: u32, stripe: u64, block: u8) -> Result<(), Failure> {
        self.content.fill(0);
        let place = self.place(stripe);
        match self.encoder.encode(&self.content, place) {
            Ok(stored) => self.stored.copy_from_slice(stored),
            Err(_) => return Err(Failure::unexpected("zeros do not compress")),
        }
        self.judge(slot, stripe);
        self.decompress(slot, block)
    }

    /// Stops the contexts of a target.
    #[cold]
    fn detach(&mut self, target: Target) {
        self.deferred.retain(|token| match Token(token).parts().1 {
            Kind::Send(other) | Kind::ReceiveResult(other) => other != target,
            _ => true,
        });
        if let Some(ends) = self.targets[target.number()].take() {
            let ids = [ends.control.rdma().id(), ends.data.rdma().id()];
            self.retired.extend(ids);
            // Its tasks remain, and their submission fails without the context.
            drop(ends);
        }
    }

    // Tasks.

    #[inline]
    fn submit(&mut self, index: usize, kind: Kind) -> Result<(), ErrorCode> {
        let task = match kind {
            Kind::Fetch => self.fetcher.get(index),
            // A target that was never attached has no task.
            kind => (self.tasks.task(index, kind)).ok_or(ErrorCode::NOT_CONNECTED)?,
        };
        self.deferred.submit(Token::new(index, kind).0, task)
    }

    /// Submits a task whose failure ends the session.
    #[inline]
    pub(super) fn must_submit(&mut self, index: usize, kind: Kind) -> Result<(), Failure> {
        self.submit(index, kind)
            .map_err(|code| Failure::new(code, format!("{kind:?} cannot be submitted")))
    }

    /// Submits the next step of a slot, if its buffers' ranges could be set.
    #[inline]
    fn begin_step(
        &mut self,
        slot: u32,
        kind: Kind,
        set: Result<(), doca::Error>,
    ) -> Result<(), Status> {
        set.map_err(code_of)
            .and_then(|()| self.submit(slot as usize, kind))
            .map_err(|code| Status(code.0))
    }

    /// Submits what had to wait.
    #[inline]
    fn retry_deferred(&mut self) -> Result<(), Failure> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let (tasks, fetcher) = (&self.tasks, &self.fetcher);
        let task = |token| {
            let (index, kind) = Token(token).parts();
            tasks
                .task(index, kind)
                .unwrap_or_else(|| fetcher.get(index))
        };
        match self.deferred.retry(task) {
            Ok(()) => Ok(()),
            Err((token, code)) => self.deferred_failed(Token(token), code),
        }
    }

    #[cold]
    fn deferred_failed(&mut self, token: Token, code: ErrorCode) -> Result<(), Failure> {
        let (index, kind) = token.parts();
        let (slot, status) = (index as u32, status_of(Err(code)));
        match kind {
            Kind::Fetch => self.tell(Event::Fetched { slot, status }),
            Kind::CreateParity => self.tell(Event::ParityCreated { slot, status }),
            Kind::Recover(_) => self.tell(Event::Recovered { slot, status }),
            Kind::Decompress => {
                let outcome = Decompression::Failed(status);
                self.tell(Event::Decompressed { slot, outcome });
            }
            Kind::Send(target) | Kind::ReceiveResult(target) => {
                self.tell(Event::TargetLost { target, status });
            }
            Kind::ReceiveRequest | Kind::Answer => {
                return Err(Failure::new(
                    code,
                    format!("a deferred {kind:?} cannot be submitted"),
                ));
            }
        }
        Ok(())
    }
}
