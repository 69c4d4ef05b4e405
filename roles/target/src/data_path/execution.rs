//! Completion handlers of a worker, which execute and answer requests.
//!
//! They run inside of calls of `progress`, three times for each request. Cold paths are marked as such.

use std::collections::VecDeque;
use std::sync::Arc;

use doca::{ErrorCode, OneBuffer, TwoBuffers, completion_handler};
use role_common::metrics::{Count, Counts, Traffic};
use role_common::worker::RunFlag;
use role_common::{Failure, FirstFailure};
use wire::io_message::{self, IoMessage};
use wire::release::{CorrelationId as _, IoLayout};

use super::Setup;
use super::request;
use super::transfers::{
    self, Direction, Message, MessageSlot, RECEIVE, Request, SEND, TransferSlot,
};
use crate::quarantine::{Quarantine, Writes};
use crate::store::{Io, Operation, Step, Store};

completion_handler! {
    /// Handles received requests.
    pub(super) struct RequestReceived<S, L> [S: Store + 'static, L: IoLayout];
    |executor: Executor<S, L>, message: Slot<Message, OneBuffer>| executor.request_received(message),
    |code| executor.message_failed("receiving a request", code)
}

completion_handler! {
    /// Handles answers that were sent.
    pub(super) struct AnswerSent<S, L> [S: Store + 'static, L: IoLayout];
    |executor: Executor<S, L>, message: Slot<Message, OneBuffer>| executor.answer_sent(message),
    |code| executor.message_failed("sending an answer", code)
}

completion_handler! {
    /// Handles transfers of blocks, in either direction.
    pub(super) struct BlocksTransferred<S, L> [S: Store + 'static, L: IoLayout];
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
pub(super) struct Executor<S, L> {
    store: S,
    layout: L,
    /// Slots of requests that wait for the disk, by their number. Without slots if the store never waits.
    pending: Box<[Option<TransferSlot>]>,
    /// Slots that are submitted later, in order.
    deferred: VecDeque<Deferred>,
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
    run: RunFlag,
}

impl<S: Store, L: IoLayout> Executor<S, L> {
    /// Creates the executor of `requests` requests, whose slots are passed to [`begin`](Self::begin).
    pub(super) fn new(
        store: S,
        layout: L,
        limits: request::Limits,
        requests: usize,
        setup: &Setup,
    ) -> Self {
        let waiting = if S::WAITS { requests } else { 0 };
        Self {
            store,
            layout,
            pending: (0..waiting).map(|_| None).collect(),
            // At any time, one task of each request is in flight.
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
    pub(super) fn begin(&mut self, messages: Vec<MessageSlot>) -> Result<(), Failure> {
        for message in messages {
            self.receive(message);
        }
        self.failure.outcome()
    }

    /// Failures of messages are the worker's failure as long as the flag is set.
    pub(super) fn run(&mut self, run: &RunFlag) {
        self.run = run.clone();
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

    /// Continues I/Os whose disk operations have completed. Returns `true` if there were any.
    #[inline]
    pub(super) fn poll_store(&mut self) -> Result<bool, Failure> {
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

    /// Logs what was not executed.
    pub(super) fn warn(&self) {
        if self.refused != 0 {
            tracing::warn!("{} I/Os were refused", self.refused);
        }
    }

    /// Takes the first failure since the last call.
    #[inline(always)]
    pub(super) fn outcome(&mut self) -> Result<(), Failure> {
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
        let examined = request::examine(self.layout, &bytes, length, self.limits);
        // Sent as it is if the I/O succeeds. The request is not read any more.
        let answer = self.layout.to_bytes(
            &examined.repr.answer(ErrorCode::SUCCESS.0),
            L::CorrelationId::read(&bytes),
        );
        // It fits, as the request did.
        let _ = message.write(&answer);
        let operation = examined.operation.ok();
        let transfer = match transfers::received(message, examined.repr.size, operation) {
            Ok(transfer) => transfer,
            Err(failure) => return self.failure.keep(failure),
        };
        let admitted = examined.operation.and_then(|operation| {
            let io = Io {
                operation,
                storage_offset: examined.repr.storage_offset,
                requester_offset: examined.repr.requester_offset,
                size: examined.repr.size,
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
            // After it was published: one that is abandoned now begins no further write.
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
            Step::Transfer(extent) => match transfers::prepare(&mut transfer, extent) {
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

    /// Keeps the slot until the disk has completed the I/O's operation.
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

    /// Refuses a message without the length of a request. Its answer repeats what was received.
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
            .and_then(|()| transfers::received(message, repr.size, None));
        match transfer {
            Ok(transfer) => self.refuse(transfer, ErrorCode::INVALID_VALUE),
            Err(failure) => self.failure.keep(failure),
        }
    }

    #[cold]
    fn refuse(&mut self, transfer: TransferSlot, code: ErrorCode) {
        // Only the first is logged: a broken client can send millions a second.
        if self.refused == 0 {
            let mut bytes = [0; io_message::SIZE];
            let _ = transfers::message_of(&transfer).is_some_and(|slot| slot.read(&mut bytes));
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
            Some(Operation::Read) => self.traffic.read(bytes),
            Some(Operation::Write { .. }) => {
                self.writes.end(transfer.index());
                self.traffic.write(bytes);
            }
            Some(Operation::Flush) => self.traffic.flush(),
            None => {}
        }
        self.operations += 1;
        let mut message = match transfers::executed(transfer) {
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
    pub(super) fn retry(&mut self) -> Result<(), Failure> {
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
        // It fits: it was read.
        let _ = message.write(&bytes);
    }
}
