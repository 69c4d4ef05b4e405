//! Completion handlers of a worker: each message is forwarded from the buffer that it was received into.
//!
//! They run within the calls of progress, twice for each message. Rare cases are in separate functions, marked as cold.

use std::collections::VecDeque;

use doca::{ErrorCode, OneBuffer, Refused, Slot, Slots, completion_handler};
use role_common::metrics::{self, Count, Traffic};
use role_common::worker::RunFlag;
use role_common::{Failure, FirstFailure};
use wire::io_message::{self, IoMessage, IoMessageType};
use wire::release::Release;

use super::message;
use super::refusals::Refusals;

/// Use of a slot's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Requests, from the initiator to the target.
    Request,
    /// Results, from the target to the initiator.
    Result,
    /// Results created here, for messages that are not valid requests.
    Refusal,
}

/// A message buffer with its receive task and its send task.
pub(super) type MessageSlot = Slot<Purpose>;

/// Index of a slot's receive task. Slots for refusals have none.
pub(super) const RECEIVE: usize = 0;
/// Index of a slot's send task.
pub(super) const SEND: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Receive of a request from the initiator.
    ReceiveRequest,
    /// Send of the request to the target.
    ForwardRequest,
    /// Receive of a result from the target.
    ReceiveResult,
    /// Send of the result to the initiator.
    ForwardResult,
    /// Send of an error to the initiator.
    Refuse,
}

impl Kind {
    /// Name of the peer that is the probable cause if such a task fails.
    fn suspect(self) -> &'static str {
        match self {
            Self::ReceiveRequest | Self::ForwardResult | Self::Refuse => {
                "the initiator or its connection is broken"
            }
            Self::ForwardRequest | Self::ReceiveResult => {
                "the storage target or its connection is broken"
            }
        }
    }
}

completion_handler! {
    /// Handles the receipt of a message from the initiator.
    pub(super) struct RequestReceived;
    |forwarder: Forwarder, slot: Slot<Purpose, OneBuffer>| forwarder.request_received(slot),
    |code| forwarder.failed(Kind::ReceiveRequest, code)
}

completion_handler! {
    /// Handles the completed send of a request to the target.
    pub(super) struct RequestSent;
    |forwarder: Forwarder, slot: Slot<Purpose, OneBuffer>| forwarder.receive(slot, Kind::ReceiveRequest),
    |code| forwarder.failed(Kind::ForwardRequest, code)
}

completion_handler! {
    /// Handles the receipt of a message from the target.
    pub(super) struct ResultReceived;
    |forwarder: Forwarder, slot: Slot<Purpose, OneBuffer>| forwarder.result_received(slot),
    |code| forwarder.failed(Kind::ReceiveResult, code)
}

completion_handler! {
    /// Handles the completed send of a message to the initiator.
    pub(super) struct ResultSent;
    |forwarder: Forwarder, slot: Slot<Purpose, OneBuffer>| forwarder.result_sent(slot),
    |code| forwarder.failed(sent_by(&slot), code)
}

/// Kind of the slot's send task to the initiator.
#[cold]
fn sent_by(slot: &MessageSlot) -> Kind {
    match slot.state() {
        Purpose::Refusal => Kind::Refuse,
        Purpose::Request | Purpose::Result => Kind::ForwardResult,
    }
}

/// State of a worker's forwarding.
pub(super) struct Forwarder {
    /// `true` if the initiator and the target have announced flushes and durable writes.
    flush: bool,
    release: Release,
    /// Slots whose submission returned `AGAIN`, in order.
    deferred: VecDeque<(MessageSlot, Kind)>,
    /// Received requests whose results have not been sent.
    in_flight: usize,
    operations: u64,
    /// Requests forwarded to the target that have no result yet.
    awaited: usize,
    /// Results received without an outstanding request.
    unasked: u64,
    refusals: Refusals<MessageSlot>,
    /// Requests forwarded to the target.
    traffic: Traffic,
    /// First failure of a task or of the peers.
    failure: FirstFailure,
    run: RunFlag,
}

impl Forwarder {
    /// Creates a forwarder with capacity for `slots` slots, which [`begin`](Self::begin) provides.
    pub(super) fn new(slots: usize, flush: bool, release: Release) -> Self {
        Self {
            flush,
            release,
            deferred: VecDeque::with_capacity(slots),
            in_flight: 0,
            operations: 0,
            awaited: 0,
            unasked: 0,
            refusals: Refusals::default(),
            traffic: Traffic::default(),
            failure: FirstFailure::default(),
            run: RunFlag::default(),
        }
    }

    /// Starts to receive requests and results.
    ///
    /// # Errors
    /// A first receive could not be submitted.
    pub(super) fn begin(
        &mut self,
        requests: Slots<Purpose>,
        results: Slots<Purpose>,
        refusals: Slots<Purpose>,
    ) -> Result<(), Failure> {
        let requests: Vec<_> = requests.into_iter().collect();
        self.refusals = Refusals::new(refusals.into_iter().collect(), requests.len());
        for (request, result) in requests.into_iter().zip(results) {
            for (slot, kind) in [
                (result, Kind::ReceiveResult),
                (request, Kind::ReceiveRequest),
            ] {
                self.submit(slot, kind)
                    .map_err(|code| Failure::new(code, format!("first {kind:?}")))?;
            }
        }
        Ok(())
    }

    /// Starts to report failed tasks as failures of the worker, as long as the flag is set.
    pub(super) fn run(&mut self, run: &RunFlag) {
        self.run = run.clone();
    }

    /// Releases the idle slots.
    pub(super) fn end(&mut self) {
        self.deferred.clear();
        self.refusals = Refusals::default();
    }

    /// Number of received requests whose results have not been sent.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Number of completed requests.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Probable cause of a stall, for the message of a timeout.
    pub(super) fn suspect(&self) -> &'static str {
        match self.deferred.front() {
            Some((_, Kind::ForwardResult | Kind::Refuse)) => "the initiator takes no results",
            Some((_, Kind::ForwardRequest)) => "the storage target takes no requests",
            _ => "the storage target does not answer",
        }
    }

    /// The counters, for metrics.
    pub(super) fn counts(&self) -> metrics::Counts {
        self.traffic
            .counts()
            .with(Count::Refused, self.refusals.count())
            .with(Count::Unexpected, self.unasked)
    }

    /// Logs the numbers of refused messages and ignored results.
    pub(super) fn warn(&self) {
        if self.refusals.count() != 0 {
            tracing::warn!("{} messages were refused", self.refusals.count());
        }
        if self.unasked != 0 {
            tracing::warn!(
                "{} results that nobody waited for were ignored",
                self.unasked
            );
        }
    }

    #[inline(always)]
    fn request_received(&mut self, slot: MessageSlot) {
        self.in_flight += 1;
        let flush = self.flush;
        let mut traffic = self.traffic;
        if !is_whole(&slot, |bytes, length| {
            let message = IoMessage::new_unchecked_len(bytes);
            let size = u64::from(message.size());
            match message.message_type() {
                Ok(IoMessageType::Read) => traffic.read(size),
                Ok(IoMessageType::Flush) => traffic.flush(),
                _ => traffic.write(size),
            }
            message::is_request(bytes, length, flush)
        }) {
            return self.refuse(slot);
        }
        self.traffic = traffic;
        self.awaited += 1;
        if let Err(refused) = slot.submit::<SEND>() {
            self.not_submitted(refused, Kind::ForwardRequest);
        }
    }

    #[inline(always)]
    fn result_received(&mut self, slot: MessageSlot) {
        if self.awaited == 0 || !is_whole(&slot, message::is_result) {
            return self.unwanted(slot);
        }
        self.awaited -= 1;
        if let Err(refused) = slot.submit::<SEND>() {
            self.not_submitted(refused, Kind::ForwardResult);
        }
    }

    #[inline(always)]
    fn result_sent(&mut self, slot: MessageSlot) {
        if *slot.state() == Purpose::Refusal {
            return self.refused(slot);
        }
        self.finished_one();
        self.receive(slot, Kind::ReceiveResult);
    }

    /// Submits the receive task of a slot whose message was sent.
    #[inline(always)]
    fn receive(&mut self, mut slot: MessageSlot, kind: Kind) {
        slot.reset_data();
        if let Err(refused) = slot.submit::<RECEIVE>() {
            self.not_submitted(refused, kind);
        }
    }

    #[cold]
    fn not_submitted(&mut self, refused: Refused<Purpose>, kind: Kind) {
        if let Err(code) = self.defer(refused, kind) {
            self.failure.keep(cannot_be_submitted(kind, code));
        }
    }

    /// Queues a slot whose submission returned `AGAIN`.
    ///
    /// # Errors
    /// Any other code.
    fn defer(&mut self, refused: Refused<Purpose>, kind: Kind) -> Result<(), ErrorCode> {
        if refused.code != ErrorCode::AGAIN {
            return Err(refused.code);
        }
        self.deferred.push_back((refused.slot, kind));
        Ok(())
    }

    #[cold]
    fn failed(&mut self, kind: Kind, code: ErrorCode) {
        // When a run stops, receive tasks are flushed.
        if self.run.is_set() {
            let suspect = kind.suspect();
            self.failure
                .keep(Failure::new(code, format!("{kind:?} failed: {suspect}")));
        }
    }

    #[cold]
    fn submit(&mut self, slot: MessageSlot, kind: Kind) -> Result<(), ErrorCode> {
        submit(slot, kind).or_else(|refused| self.defer(refused, kind))
    }

    #[inline(always)]
    fn finished_one(&mut self) {
        self.operations += 1;
        // Saturating, because a faulty target may send more results than it received requests.
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Queues a refusal of a message that is not a valid request, and sends it once a slot for refusals is free.
    #[cold]
    fn refuse(&mut self, slot: MessageSlot) {
        // Only the first is logged: a faulty client can send millions a second.
        if self.refusals.count() == 0 {
            let length = slot.data_len();
            tracing::warn!(
                "refused a message of {length} bytes that is no read or write, and will not log further ones"
            );
        }
        self.refusals.wait(slot);
        if let Err(failure) = self.refuse_waiting() {
            self.failure.keep(failure);
        }
    }

    /// Handles a sent refusal.
    #[cold]
    fn refused(&mut self, slot: MessageSlot) {
        self.finished_one();
        self.refusals.sent(slot);
        if let Err(failure) = self.refuse_waiting() {
            self.failure.keep(failure);
        }
    }

    fn refuse_waiting(&mut self) -> Result<(), Failure> {
        while let Some((mut request, mut refusal)) = self.refusals.next() {
            let (bytes, _) = received(&request);
            refusal.write_data(&message::refusal(&bytes, self.release))?;
            request.reset_data();
            for (slot, kind) in [(refusal, Kind::Refuse), (request, Kind::ReceiveRequest)] {
                self.submit(slot, kind)
                    .map_err(|code| cannot_be_submitted(kind, code))?;
            }
        }
        Ok(())
    }

    /// Handles a message of the target that is not a valid result, or that no request is outstanding for.
    #[cold]
    fn unwanted(&mut self, slot: MessageSlot) {
        if let Err(failure) = self.judge_unwanted(slot) {
            self.failure.keep(failure);
        }
    }

    /// Drops a result without an outstanding request. If other requests are outstanding, a surplus result cannot be
    /// recognised here and is forwarded: the initiator knows its requests and checks it.
    fn judge_unwanted(&mut self, mut slot: MessageSlot) -> Result<(), Failure> {
        let (bytes, length) = received(&slot);
        let message = IoMessage::new_unchecked_len(&bytes);
        if !message::is_result(&bytes, length) {
            return Err(Failure::unexpected(format!(
                "the storage target sent a message of {length} bytes that is no result: {:?}, user data {:#x}",
                message.message_type(),
                message.user_data()
            )));
        }
        // Only the first is logged: a faulty target can send millions a second.
        if self.unasked == 0 {
            tracing::warn!(
                "the storage target sent a result that nobody waits for, user data {:#x}; it, and further ones, are ignored",
                message.user_data()
            );
        }
        self.unasked += 1;
        slot.reset_data();
        self.submit(slot, Kind::ReceiveResult)
            .map_err(|code| cannot_be_submitted(Kind::ReceiveResult, code))
    }

    /// Returns the first failure since the last call.
    ///
    /// # Errors
    /// That failure.
    #[inline(always)]
    pub(super) fn outcome(&mut self) -> Result<(), Failure> {
        self.failure.outcome()
    }

    /// Submits deferred slots in order, until a submission returns `AGAIN`.
    #[inline]
    pub(super) fn retry(&mut self) -> Result<(), Failure> {
        while let Some((slot, kind)) = self.deferred.pop_front() {
            let Err(refused) = submit(slot, kind) else {
                continue;
            };
            if refused.code == ErrorCode::AGAIN {
                self.deferred.push_front((refused.slot, kind));
                break;
            }
            let message = format!("a deferred {kind:?} cannot be submitted");
            return Err(Failure::new(refused.code, message));
        }
        Ok(())
    }
}

fn submit(slot: MessageSlot, kind: Kind) -> Result<(), Refused<Purpose>> {
    match kind {
        Kind::ReceiveRequest | Kind::ReceiveResult => slot.submit::<RECEIVE>(),
        Kind::ForwardRequest | Kind::ForwardResult | Kind::Refuse => slot.submit::<SEND>(),
    }
}

/// Returns `true` if `test` accepts the received message. Only the bytes that `test` reads are copied.
#[inline(always)]
fn is_whole(slot: &MessageSlot, test: impl FnOnce(&[u8; io_message::SIZE], usize) -> bool) -> bool {
    let mut bytes = [0; io_message::SIZE];
    slot.read(&mut bytes) && test(&bytes, slot.data_len())
}

/// Returns the received message, padded with zeros, and its length.
fn received(slot: &MessageSlot) -> ([u8; io_message::SIZE], usize) {
    let mut bytes = [0; io_message::SIZE];
    let length = slot.data_len();
    if slot.read(&mut bytes) && length < bytes.len() {
        bytes[length..].fill(0);
    }
    (bytes, length)
}

#[cold]
fn cannot_be_submitted(kind: Kind, code: ErrorCode) -> Failure {
    Failure::new(code, format!("{kind:?} cannot be submitted"))
}
