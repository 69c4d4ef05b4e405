//! What a worker does when its tasks end: requests are carried out and answered.
//!
//! This runs inside of the calls of progress, three times for every request. What happens seldom is apart, and marked as cold.

use std::sync::Arc;

use doca::{Completion, ErrorCode};
use role_common::ends::Ends;
use role_common::messages::Messages;
use role_common::metrics::{Count, Counts, Traffic};
use role_common::submit::DeferredTasks;
use role_common::worker::RunFlag;
use role_common::{Failure, FirstFailure};
use wire::io_message;
use wire::release::{CorrelationId as _, IoLayout};

use super::Setup;
use super::request;
use super::transfers::{Kind, Token, Transfers};
use crate::quarantine::{Quarantine, Writes};
use crate::store::{Io, Operation, Step, Store};

/// Carries requests out. Fields are in the order in which they must be dropped.
pub(super) struct Executor<S, L: IoLayout> {
    store: S,
    layout: L,
    transfers: Transfers<L::CorrelationId>,
    messages: Messages,
    deferred: DeferredTasks,
    limits: request::Limits,
    writes: Arc<Writes>,
    quarantine: Quarantine,
    /// Requests that were received and whose answers have not been sent.
    in_flight: usize,
    operations: u64,
    refused: u64,
    failed: u64,
    traffic: Traffic,
    /// Why the worker cannot go on.
    failure: FirstFailure,
}

impl<S: Store, L: IoLayout> Executor<S, L> {
    /// For so many transfers, which it gets when it [begins](Self::begin).
    pub(super) fn new(
        store: S,
        layout: L,
        messages: Messages,
        limits: request::Limits,
        transfers: usize,
        setup: &Setup,
    ) -> Self {
        Self {
            store,
            layout,
            transfers: Transfers::default(),
            messages,
            // At any time, one task of each transfer is under way.
            deferred: DeferredTasks::with_capacity(transfers),
            limits,
            writes: Arc::clone(&setup.writes),
            quarantine: setup.quarantine.clone(),
            in_flight: 0,
            operations: 0,
            refused: 0,
            failed: 0,
            traffic: Traffic::default(),
            failure: FirstFailure::default(),
        }
    }

    /// Receives requests from now on.
    pub(super) fn begin(&mut self, transfers: Transfers<L::CorrelationId>) -> Result<(), Failure> {
        self.transfers = transfers;
        for slot in 0..self.transfers.len() {
            self.submit(slot, Kind::Receive)
                .map_err(|code| Failure::new(code, "first receives of requests"))?;
        }
        Ok(())
    }

    /// Requests that were received and whose answers have not been sent.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Requests that were answered.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// The counters, for metrics.
    pub(super) fn counts(&self) -> Counts {
        self.traffic
            .counts()
            .with(Count::Refused, self.refused)
            .with(Count::Failed, self.failed)
            .with(Count::MediaErrors, self.store.media_errors())
    }

    /// Where the blocks are.
    pub(super) fn store(&self) -> &S {
        &self.store
    }

    /// Goes on with what the disk has done. Returns whether there was anything.
    #[inline]
    pub(super) fn poll_store(&mut self) -> Result<bool, Failure> {
        let any = self.store.poll();
        while let Some((slot, step)) = self.store.next() {
            self.follow(slot, step)?;
        }
        Ok(any)
    }

    /// Logs what was not carried out.
    pub(super) fn warn(&self) {
        if self.refused != 0 {
            tracing::warn!("{} I/Os were refused", self.refused);
        }
    }

    #[inline]
    fn submit(&mut self, slot: usize, kind: Kind) -> Result<(), ErrorCode> {
        let task = self.transfers[slot].task(kind);
        self.deferred.submit(Token::new(slot, kind).0, task)
    }

    #[inline(always)]
    fn completed(
        &mut self,
        token: u64,
        result: Result<(), ErrorCode>,
        run: &RunFlag,
    ) -> Result<(), Failure> {
        let (slot, kind) = Token(token).parts();
        match (kind, result) {
            (Kind::Receive, Ok(())) => self.request_received(slot, run),
            (Kind::Read | Kind::Write, Ok(())) => {
                let step = self.store.transferred(slot);
                self.follow(slot, step)
            }
            (Kind::Read | Kind::Write, Err(_)) => {
                self.store.abandon(slot);
                self.answer(slot, ErrorCode::IO_FAILED)
            }
            (Kind::Send, Ok(())) => self.answer_sent(slot),
            // When the run ends, whatever waits for a request is flushed.
            (Kind::Receive | Kind::Send, Err(_)) if !run.is_set() => Ok(()),
            (Kind::Receive, Err(code)) => Err(Failure::new(code, "receiving a request failed")),
            (Kind::Send, Err(code)) => Err(Failure::new(code, "sending an answer failed")),
        }
    }

    #[inline]
    fn request_received(&mut self, slot: usize, run: &RunFlag) -> Result<(), Failure> {
        self.in_flight += 1;
        let message = &self.transfers[slot].message;
        let mut bytes = [0; io_message::SIZE];
        let length = self.messages.received(slot, message, &mut bytes)?;
        let examined = request::examine(self.layout, &bytes, length, self.limits);
        let transfer = &mut self.transfers[slot];
        transfer.request = examined.repr;
        transfer.correlation_id = L::CorrelationId::read(&bytes);
        transfer.operation = examined.operation.ok();
        let admitted = examined.operation.and_then(|operation| {
            let io = Io {
                operation,
                storage_offset: examined.repr.storage_offset,
                requester_offset: examined.repr.requester_offset,
                size: examined.repr.size,
            };
            self.admit(slot, &io, run).map(|()| io)
        });
        match admitted {
            Ok(io) => {
                let step = self.store.begin(slot, io);
                self.follow(slot, step)
            }
            Err(code) => self.refuse(slot, code),
        }
    }

    /// Publishes a write, and refuses what overlaps those of abandoned workers.
    #[inline(always)]
    fn admit(&self, slot: usize, io: &Io, run: &RunFlag) -> Result<(), ErrorCode> {
        if io.operation == Operation::Flush {
            return Ok(());
        }
        let (offset, size) = (io.storage_offset, u64::from(io.size));
        if !self.quarantine.is_empty() && self.quarantine.holds(offset, size) {
            return Err(ErrorCode::IN_USE);
        }
        if let Operation::Write { .. } = io.operation {
            self.writes.begin(slot, offset, size);
            // After it was published: one that is abandoned now begins no further write.
            if run.is_abandoned() {
                return Err(ErrorCode::SHUTDOWN);
            }
        }
        Ok(())
    }

    /// Does what an I/O needs next.
    #[inline(always)]
    fn follow(&mut self, slot: usize, step: Step) -> Result<(), Failure> {
        match step {
            Step::Transfer(extent) => {
                let prepared = self.transfers[slot].prepare(extent);
                match prepared.and_then(|kind| self.submit(slot, kind)) {
                    Ok(()) => Ok(()),
                    Err(code) => {
                        self.store.abandon(slot);
                        self.refuse(slot, code)
                    }
                }
            }
            Step::Pending => Ok(()),
            Step::Complete(result) => self.answer(slot, result),
        }
    }

    #[cold]
    fn refuse(&mut self, slot: usize, code: ErrorCode) -> Result<(), Failure> {
        // Only the first is logged: a broken client can send millions a second.
        if self.refused == 0 {
            let request = &self.transfers[slot].request;
            tracing::warn!(
                "refused an I/O with {code:?}, and will not log further ones: {request:?}"
            );
        }
        self.refused += 1;
        self.answer(slot, code)
    }

    #[inline]
    fn answer(&mut self, slot: usize, result: ErrorCode) -> Result<(), Failure> {
        self.writes.end(slot);
        let transfer = &self.transfers[slot];
        let answer = transfer.request.answer(result.0);
        let mut bytes = u64::from(answer.size);
        if result != ErrorCode::SUCCESS {
            (self.failed, bytes) = (self.failed + 1, 0);
        }
        match transfer.operation {
            Some(Operation::Read) => self.traffic.read(bytes),
            Some(Operation::Write { .. }) => self.traffic.write(bytes),
            Some(Operation::Flush) => self.traffic.flush(),
            None => {}
        }
        let bytes = self.layout.to_bytes(&answer, transfer.correlation_id);
        self.messages.put(slot, &bytes)?;
        self.operations += 1;
        self.submit(slot, Kind::Send)
            .map_err(|code| Failure::new(code, "an answer cannot be sent"))
    }

    #[inline]
    fn answer_sent(&mut self, slot: usize) -> Result<(), Failure> {
        self.in_flight -= 1;
        self.transfers[slot].message.reset_data()?;
        self.submit(slot, Kind::Receive)
            .map_err(|code| Failure::new(code, "a receive cannot be posted"))
    }
}

impl<S: Store, L: IoLayout> Ends for Executor<S, L> {
    #[inline(always)]
    fn ended(&mut self, completion: Completion, run: &RunFlag) {
        let Completion { token, result } = completion;
        if let Err(failure) = self.completed(token, result, run) {
            self.failure.keep(failure);
        }
    }

    #[inline(always)]
    fn outcome(&mut self) -> Result<(), Failure> {
        self.failure.outcome()
    }

    #[inline]
    fn retry(&mut self) -> Result<(), Failure> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let transfers = &self.transfers;
        let task = |token| {
            let (slot, kind) = Token(token).parts();
            transfers[slot].task(kind)
        };
        match self.deferred.retry(task) {
            Ok(()) => Ok(()),
            Err((token, code)) => match Token(token).parts() {
                (slot, Kind::Read | Kind::Write) => {
                    self.store.abandon(slot);
                    self.answer(slot, code)
                }
                (_, kind) => Err(Failure::new(
                    code,
                    format!("a deferred {kind:?} task cannot be submitted"),
                )),
            },
        }
    }
}
