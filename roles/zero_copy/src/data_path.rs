//! Data path of one worker thread of the zero-copy service.
//!
//! Requests are received from the initiator (Comch consumer) and forwarded to the target (RDMA send) from the same
//! buffer; results are received from the target (RDMA receive) and forwarded to the initiator (Comch producer) in the
//! same way, unchanged. Invalid requests are answered here. The second RDMA context transfers blocks on behalf of the
//! target; no tasks are submitted to it here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use control::{Failure, FirstFailure};
use doca::{
    Access, BufInventory, Consumer, ErrorCode, Mmap, OneBuffer, PeStats, Producer, Refused, Slot,
    Slots, WorkerPe, completion_handler,
};
use metrics::{CoreStatistics, Count, Counts, Traffic, WorkerMetrics};
use role_common::data_path::{
    self, ComchEndpoints, Limits, Messages, PollDriven, TargetEndpoints, run_to_end,
    wait_until_running,
};
use role_common::service::{Command, Reply, WorkerSetup};
use role_common::worker::{DataPath, RunFlag};
use wire::control::FEATURE_FLUSH;
use wire::io_message::{self, IoMessage, IoMessageType};
use wire::release::{CorrelationId as _, IoLayout, Release, Release3_0, Release3_1, Release3_2};

/// The data path of one worker. Fields are in the order in which they must be dropped.
pub(crate) struct ZeroCopyDataPath {
    forwarder: Forwarder,
    /// `None` after [`Command::LeaveComch`].
    comch: Option<ComchEndpoints>,
    target: TargetEndpoints,
    inventory: BufInventory,
    message_map: Mmap,
    pe: WorkerPe<Forwarder>,
    setup: WorkerSetup,
}

impl DataPath for ZeroCopyDataPath {
    type Command = Command;
    type Reply = Reply;
    type Report = CoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            // The only target has number 0.
            Command::Export { role, .. } => {
                return self.target.endpoint(role).export().map(Reply::Exported);
            }
            Command::Connect { role, details, .. } => {
                self.target.endpoint(role).connect(&details)?;
            }
            Command::Prepare { consumer, within } => self.prepare(consumer, within)?,
            Command::LeaveComch => self.leave_comch()?,
        }
        Ok(Reply::Done)
    }

    fn run(&mut self, run: &RunFlag) -> Result<CoreStatistics, Failure> {
        self.forwarder.run(run);
        let calls = run_to_end(self, run)?;
        self.forwarder.warn();
        Ok(CoreStatistics {
            core: self.setup.core,
            operation_count: self.forwarder.operations(),
            pe_hit_count: calls.hits,
            pe_miss_count: calls.misses,
            media_errors: 0,
        })
    }
}

/// Number of refusals that can be in flight. It is small, because each takes one of the producer's tasks, of which
/// devices have a limited number.
const REFUSALS: u32 = 16;

/// Numbers of objects of a worker.
#[derive(Debug, Clone, Copy)]
struct SlotCounts {
    transactions: u32,
}

impl SlotCounts {
    fn refusals(self) -> u32 {
        REFUSALS.min(self.transactions)
    }

    /// Number of the producer's tasks: results and refusals.
    fn producer_tasks(self) -> u32 {
        self.transactions + self.refusals()
    }

    fn slots(self) -> usize {
        self.transactions as usize * 2 + self.refusals() as usize
    }
}

impl ZeroCopyDataPath {
    pub(crate) fn create(setup: WorkerSetup) -> Result<Self, Failure> {
        let transactions = setup.transaction_count;
        let counts = SlotCounts { transactions };
        let messages = Messages::new(counts.slots())?;
        let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
        let message_map = Mmap::register(&setup.device, Arc::clone(messages.region()), access)?;
        let inventory = BufInventory::new(counts.slots())?;
        let pe = WorkerPe::new()?;
        let client = setup.client.as_ref();
        let client = client.ok_or_else(|| Failure::unexpected("a worker without an initiator"))?;
        let sends = counts.producer_tasks();
        let comch = ComchEndpoints {
            consumer: Consumer::start_with::<RequestReceived>(
                &pe,
                client,
                &message_map,
                transactions,
            )?,
            producer: Producer::start_with::<ResultSent>(&pe, client, sends)?,
        };
        let target = TargetEndpoints::start(&pe, &setup.device, transactions, |control| {
            control
                .receive_handler::<ResultReceived>()
                .send_handler::<RequestSent>()
        })?;
        Ok(Self {
            forwarder: Forwarder::new(
                counts.slots(),
                setup.features & FEATURE_FLUSH != 0,
                setup.release,
            ),
            comch: Some(comch),
            target,
            inventory,
            message_map,
            pe,
            setup,
        })
    }

    fn prepare(&mut self, client_consumer: u32, within: Duration) -> Result<(), Failure> {
        let Some(comch) = &self.comch else {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                "the worker has left Comch already",
            ));
        };
        let states = || comch.states().into_iter().chain(self.target.states());
        wait_until_running(&self.pe, within, "the Comch and RDMA contexts", states)?;
        let target = (
            self.target.control.rdma(),
            self.target.control.connection()?,
        );
        let [requests, results, refusals] =
            self.allocate(comch, client_consumer, target)
                .map_err(|error| {
                    let transactions = self.setup.transaction_count;
                    Failure::from(error).context(format_args!("{transactions} transactions"))
                })?;
        self.forwarder.begin(requests, results, refusals)
    }

    /// Allocates the slots of requests, results and refusals.
    fn allocate(
        &self,
        comch: &ComchEndpoints,
        client_consumer: u32,
        (rdma, target): (&doca::Rdma, &doca::RdmaConnection),
    ) -> doca::Result<[Slots<Purpose>; 3]> {
        let counts = SlotCounts {
            transactions: self.setup.transaction_count,
        };
        let transactions = counts.transactions as usize;
        let slots = |first: usize, count, purpose| {
            let place = (Messages::offset(first), io_message::SIZE as u32, count);
            Slots::new(&self.pe, &self.inventory, &self.message_map, place, |_| {
                purpose
            })
        };
        let requests = slots(0, transactions, Purpose::Request)?;
        comch
            .consumer
            .receive_into::<RECEIVE, RequestReceived>(&requests)?;
        rdma.send_from::<SEND, RequestSent>(&requests, target)?;
        let results = slots(transactions, transactions, Purpose::Result)?;
        rdma.receive_into::<RECEIVE, ResultReceived>(&results)?;
        comch
            .producer
            .send_from::<SEND, ResultSent>(&results, client_consumer)?;
        let refusals = slots(
            2 * transactions,
            counts.refusals() as usize,
            Purpose::Refusal,
        )?;
        comch
            .producer
            .send_from::<SEND, ResultSent>(&refusals, client_consumer)?;
        Ok([requests, results, refusals])
    }

    fn leave_comch(&mut self) -> Result<(), Failure> {
        self.forwarder.end();
        self.comch.take().map_or(Ok(()), ComchEndpoints::stop)
    }
}

/// Use of a slot's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Requests, from the initiator to the target.
    Request,
    /// Results, from the target to the initiator.
    Result,
    /// Results created here, for messages that are not valid requests.
    Refusal,
}

/// A message buffer with its receive task and its send task.
type MessageSlot = Slot<Purpose>;

/// Index of a slot's receive task. Slots for refusals have none.
const RECEIVE: usize = 0;
/// Index of a slot's send task.
const SEND: usize = 1;

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
    /// Name of the peer that has probably failed if such a task fails.
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
    struct RequestReceived;
    |forwarder: Forwarder, slot: Slot<Purpose, OneBuffer>| forwarder.request_received(slot),
    |code| forwarder.failed(Kind::ReceiveRequest, code)
}

completion_handler! {
    /// Handles the completed send of a request to the target.
    struct RequestSent;
    |forwarder: Forwarder, slot: Slot<Purpose, OneBuffer>| forwarder.receive(slot, Kind::ReceiveRequest),
    |code| forwarder.failed(Kind::ForwardRequest, code)
}

completion_handler! {
    /// Handles the receipt of a message from the target.
    struct ResultReceived;
    |forwarder: Forwarder, slot: Slot<Purpose, OneBuffer>| forwarder.result_received(slot),
    |code| forwarder.failed(Kind::ReceiveResult, code)
}

completion_handler! {
    /// Handles the completed send of a message to the initiator.
    struct ResultSent;
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
struct Forwarder {
    /// `true` if the initiator and the target have announced flushes and durable writes.
    flush: bool,
    release: Release,
    /// Slots whose submission returned `AGAIN`, in order.
    deferred: VecDeque<(MessageSlot, Kind)>,
    /// Received requests whose results have not been sent.
    in_flight: usize,
    operations: u64,
    /// Requests forwarded to the target whose results have not been received.
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
    fn new(slots: usize, flush: bool, release: Release) -> Self {
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
    fn begin(
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
    fn run(&mut self, run: &RunFlag) {
        self.run = run.clone();
    }

    /// Releases the idle slots.
    fn end(&mut self) {
        self.deferred.clear();
        self.refusals = Refusals::default();
    }

    /// Number of received requests whose results have not been sent.
    fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Number of completed requests.
    fn operations(&self) -> u64 {
        self.operations
    }

    /// Probable cause of a stall, for the message about a timeout.
    fn suspect(&self) -> &'static str {
        match self.deferred.front() {
            Some((_, Kind::ForwardResult | Kind::Refuse)) => "the initiator takes no results",
            Some((_, Kind::ForwardRequest)) => "the storage target takes no requests",
            _ => "the storage target does not answer",
        }
    }

    fn counts(&self) -> Counts {
        self.traffic
            .counts()
            .with(Count::Refused, self.refusals.count())
            .with(Count::Unexpected, self.unasked)
    }

    /// Logs the numbers of refused messages and ignored results.
    fn warn(&self) {
        if self.refusals.count() != 0 {
            tracing::warn!("{} messages were refused", self.refusals.count());
        }
        if self.unasked != 0 {
            tracing::warn!("{} unexpected results were ignored", self.unasked);
        }
    }

    #[inline(always)]
    fn request_received(&mut self, slot: MessageSlot) {
        self.in_flight += 1;
        let flush = self.flush;
        let request = read(&slot, |bytes, length| {
            let size = IoMessage::new_unchecked_len(bytes).size();
            Some((request_type(bytes, length, flush)?, u64::from(size)))
        });
        match request {
            Some((IoMessageType::Read, size)) => self.traffic.read(size),
            Some((IoMessageType::Flush, _)) => self.traffic.flush(),
            Some((_, size)) => self.traffic.write(size),
            None => return self.refuse(slot),
        }
        self.awaited += 1;
        if let Err(refused) = slot.submit::<SEND>() {
            self.not_submitted(refused, Kind::ForwardRequest);
        }
    }

    #[inline(always)]
    fn result_received(&mut self, slot: MessageSlot) {
        let result = read(&slot, |bytes, length| {
            is_result(bytes, length).then_some(())
        });
        if self.awaited == 0 || result.is_none() {
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
    /// The code is not `AGAIN`.
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
        // Only the first one is logged: a faulty client can send millions per second.
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
        while let Some((mut request, mut answer)) = self.refusals.next() {
            let (bytes, _) = received(&request);
            answer.write_data(&refusal(&bytes, self.release))?;
            request.reset_data();
            for (slot, kind) in [(answer, Kind::Refuse), (request, Kind::ReceiveRequest)] {
                self.submit(slot, kind)
                    .map_err(|code| cannot_be_submitted(kind, code))?;
            }
        }
        Ok(())
    }

    /// Handles a message of the target that is not a valid result, or does not belong to an outstanding request.
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
        if !is_result(&bytes, length) {
            return Err(Failure::unexpected(format!(
                "the storage target sent a message of {length} bytes that is no result: {:?}, user data {:#x}",
                message.message_type(),
                message.user_data()
            )));
        }
        // Only the first one is logged: a faulty target can send millions per second.
        if self.unasked == 0 {
            tracing::warn!(
                "the storage target sent a result without a request, user data {:#x}; it, and further ones, are ignored",
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
    /// The first failure since the last call.
    #[inline(always)]
    fn outcome(&mut self) -> Result<(), Failure> {
        self.failure.outcome()
    }

    /// Submits deferred slots in order, until a submission returns `AGAIN`.
    #[inline]
    fn retry(&mut self) -> Result<(), Failure> {
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

/// Reads the received message, whose length is the second argument of `parse`. Only the bytes that `parse` reads are
/// copied.
#[inline(always)]
fn read<T>(
    slot: &MessageSlot,
    parse: impl FnOnce(&[u8; io_message::SIZE], usize) -> Option<T>,
) -> Option<T> {
    let mut bytes = [0; io_message::SIZE];
    if !slot.read(&mut bytes) {
        return None;
    }
    parse(&bytes, slot.data_len())
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

/// Slots with messages to refuse, and free slots for refusals. Allocates only on creation.
#[derive(Debug)]
struct Refusals<S> {
    free: Vec<S>,
    waiting: VecDeque<S>,
    count: u64,
}

impl<S> Default for Refusals<S> {
    fn default() -> Self {
        Self::new(Vec::new(), 0)
    }
}

impl<S> Refusals<S> {
    /// Creates a queue for messages in up to `requests` slots, refused with the slots `free`.
    fn new(free: Vec<S>, requests: usize) -> Self {
        Self {
            free,
            waiting: VecDeque::with_capacity(requests),
            count: 0,
        }
    }

    /// Number of messages refused or waiting for a refusal.
    fn count(&self) -> u64 {
        self.count
    }

    /// Queues the message in this slot for a refusal.
    fn wait(&mut self, request: S) {
        self.count += 1;
        self.waiting.push_back(request);
    }

    /// Next message to refuse and a free slot for the refusal; `None` if either is missing.
    fn next(&mut self) -> Option<(S, S)> {
        if self.free.is_empty() {
            return None;
        }
        let request = self.waiting.pop_front()?;
        Some((request, self.free.pop()?))
    }

    /// Frees a slot after its refusal was sent.
    fn sent(&mut self, refusal: S) {
        self.free.push(refusal);
    }
}

impl PollDriven for ZeroCopyDataPath {
    #[inline]
    fn poll_once(&mut self, run: &RunFlag) -> Result<(), Failure> {
        let others = self.pe.progress(&mut self.forwarder);
        self.forwarder.outcome()?;
        if others {
            data_path::handle_event(
                &self.pe,
                run,
                "a Comch or RDMA connection was lost: the initiator or the storage target is gone",
            )?;
        }
        self.forwarder.retry()
    }

    fn in_flight(&self) -> usize {
        self.forwarder.in_flight()
    }

    fn finished(&self) -> u64 {
        self.forwarder.operations()
    }

    fn pe_stats(&self) -> PeStats {
        self.pe.stats()
    }

    fn limits(&self) -> Limits {
        self.setup.limits
    }

    fn metrics(&self) -> Option<&WorkerMetrics> {
        self.setup.metrics.as_deref()
    }

    fn counts(&self) -> Counts {
        self.forwarder.counts()
    }

    fn suspect(&self) -> &'static str {
        self.forwarder.suspect()
    }
}

/// Returns the type of a message; `None` if it is not a valid request. `length` is the received length; bytes beyond it are zero. With
/// `flush`, flushes and durable writes are valid requests, too, because all parties have announced them.
///
/// Offsets are checked by the target, which knows both memories.
#[inline]
#[must_use]
pub fn request_type(
    bytes: &[u8; io_message::SIZE],
    length: usize,
    flush: bool,
) -> Option<IoMessageType> {
    let message_type = IoMessage::new_unchecked_len(bytes).message_type().ok()?;
    let is_known = match message_type {
        IoMessageType::Read | IoMessageType::Write => true,
        IoMessageType::Flush | IoMessageType::WriteFua => flush,
        IoMessageType::WriteVersion
        | IoMessageType::WriteVersionFua
        | IoMessageType::ReadBefore
        | IoMessageType::Result => false,
    };
    (is_known && length == bytes.len()).then_some(message_type)
}

/// Returns `true` if a message, of which `length` bytes were received, is a result.
#[inline]
#[must_use]
pub fn is_result(bytes: &[u8; io_message::SIZE], length: usize) -> bool {
    let kind = IoMessage::new_unchecked_len(bytes).message_type();
    length == bytes.len() && kind == Ok(IoMessageType::Result)
}

/// Builds the result for a message that is not a valid request, with the fields of the message that identify it.
#[must_use]
pub fn refusal(message: &[u8; io_message::SIZE], release: Release) -> [u8; io_message::SIZE] {
    match release {
        // The base of addresses is the same in the message and in its result.
        Release::V3_0 => refusal_of(Release3_0::default(), message),
        Release::V3_1 => refusal_of(Release3_1, message),
        Release::V3_2 => refusal_of(Release3_2, message),
    }
}

fn refusal_of<L: IoLayout>(layout: L, message: &[u8; io_message::SIZE]) -> [u8; io_message::SIZE] {
    let answer = layout.answer_to(message).answer(ErrorCode::INVALID_VALUE.0);
    layout.to_bytes(&answer, L::CorrelationId::read(message))
}

#[cfg(test)]
mod tests {
    use wire::io_message::Repr;

    use super::*;

    #[test]
    fn a_small_worker_has_fewer_refusals() {
        let counts = |transactions| SlotCounts { transactions };
        assert_eq!(counts(2).slots(), 6);
        assert_eq!(counts(2).producer_tasks(), 4);
        assert_eq!(counts(128).producer_tasks(), 128 + REFUSALS);
    }

    #[test]
    fn messages_wait_for_a_slot_in_order() {
        let mut refusals = Refusals::new(vec![0], 3);
        assert_eq!(refusals.next(), None);
        for request in [7, 8, 9] {
            refusals.wait(request);
        }
        assert_eq!(refusals.next(), Some((7, 0)));
        assert_eq!(refusals.next(), None, "the only slot is in use");
        refusals.sent(0);
        assert_eq!(refusals.next(), Some((8, 0)));
        refusals.sent(0);
        assert_eq!(refusals.next(), Some((9, 0)));
        assert_eq!(refusals.count(), 3);
    }

    #[test]
    fn refusal_has_the_identifying_fields_of_its_message() {
        let mut message = [0; io_message::SIZE];
        for (byte, value) in message.iter_mut().zip(1..) {
            *byte = value;
        }
        let mut expected = message;
        expected[..4].fill(0);
        expected[16..20].copy_from_slice(&ErrorCode::INVALID_VALUE.0.to_be_bytes());
        expected[40..].fill(0);
        assert_eq!(refusal(&message, Release::V3_1), expected);
        expected[36..].fill(0);
        assert_eq!(refusal(&message, Release::V3_0), expected);
        expected[4..8].fill(0);
        expected[36..40].copy_from_slice(&message[36..40]);
        assert_eq!(refusal(&message, Release::V3_2), expected);
    }

    #[test]
    fn messages_are_classified_by_type_and_length() {
        for (message_type, requests, announced, results) in [
            (IoMessageType::Read, true, true, false),
            (IoMessageType::Write, true, true, false),
            (IoMessageType::Flush, false, true, false),
            (IoMessageType::WriteFua, false, true, false),
            (IoMessageType::Result, false, false, true),
        ] {
            let bytes = Repr {
                message_type,
                user_data: 7,
                result: 0,
                size: 512,
                requester_offset: 0,
                storage_offset: 0,
            }
            .to_bytes();
            for length in [0, 1, 63, 64, 65] {
                let is_whole = length == bytes.len();
                for (flush, expected) in [(false, requests), (true, announced)] {
                    let expected = (expected && is_whole).then_some(message_type);
                    assert_eq!(request_type(&bytes, length, flush), expected, "{length}");
                }
                assert_eq!(is_result(&bytes, length), results && is_whole, "{length}");
            }
        }
        let mut unknown = [0; io_message::SIZE];
        unknown[3] = 9;
        assert_eq!(request_type(&unknown, 64, true), None);
        assert!(!is_result(&unknown, 64));
    }
}
