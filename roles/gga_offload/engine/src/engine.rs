//! The decisions of the gga_offload service, without I/O, threads or clocks.
//!
//! Each worker has a [`StripeEngine`], which handles [`Event`]s (requests, completions, time) and returns [`Action`]s:
//! chunks to read or write, content to fetch, parity to create, a response to send. All workers of a session share a
//! [`Set`], which tracks the contents of the three targets and the superblocks that they have to persist. The driver
//! executes actions and makes no decisions; the [simulation](crate::simulation) is another driver.
//!
//! # Stored chunks
//!
//! With a logical block size, blocks are stored as [chunks] that identify themselves and their write. A read returns
//! the content of two chunks with equal stamps; any other stripe is *settled* first, under the exclusive lock of the
//! stripe:
//!
//! ```text
//!  read ──► lock ──► two chunks ──► judged ─┬─ valid, equal stamps ──► (recovery) ──► delivery ──► answer
//!                                           └─ otherwise, or of an unsettled stripe: settled, then read again
//!
//!  write ─► lock ──► content ──► parity ──► stamp ──► store on all online targets ──► (epoch committed) ──► answer
//!
//!  settle ► lock ──► chunks of all sources ──► judged ─┬─ all equal ──────────────────────────────► settled
//!  (rebuild, resync,     ▲                             ├─ two equal, one older or unreadable ──► that one is made again ──► settled
//!   scrub, reads)        │                             ├─ two equal, one newer ──► the two are stored again, with a new stamp ──► settled
//!                        └── an older version ◄────────┴─ none equal, after an unclean shutdown; otherwise the block is lost
//! ```
//!
//! Two equal chunks of a stripe that was being written at an unclean shutdown are rewritten, unless they were settled
//! by a session that was itself interrupted.
//!
//! # Stored blocks
//!
//! Without a logical block size, blocks have the reference's form (`reference_form`), in which chunks do not identify
//! themselves: the first failure of a target ends the session.
//!
//! The redundancy of the set and the epochs of its superblocks are the state machines in
//! [`membership`](crate::membership), and [`assembly`](crate::assembly) decides which targets are current when a
//! session begins. [`versions`](crate::versions) numbers writes, and determines which earlier versions the targets may
//! discard.
//!
//! [chunks]: crate::chunk

#[cfg(test)]
mod interleavings;
mod read;
mod reference_form;
pub mod settle;
mod write;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use settle::Settling;

use crate::chunk::{Judgement, Stamp};
use crate::membership::View;
use crate::request::{Operation, Request};
use crate::set::{Outcome, Set, Work};
use crate::statistics::{DegradedCounts, EngineStatistics};
use crate::stripes::{Access, StripeLocks, Ticket};
use crate::versions::{InFlight, Retirable};
use crate::{Target, Targets};

/// Maximum number of stripes that a worker processes at once in addition to the requests of the initiator. One slot is kept for the flush that retires writes.
pub const BACKGROUND_SLOTS: u32 = 4;

/// Result of reading each target's chunk of a stripe; `None` if it was not read.
pub type Judged = [Option<Judgement>; 3];

/// Result of an I/O or of one of its steps, as a `doca_error_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    pub const SUCCESS: Self = Self(0);
    /// The message is not a valid request.
    pub const INVALID_VALUE: Self = Self(6);
    pub const IO_FAILED: Self = Self(17);

    /// Returns `true` for success.
    #[inline]
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::SUCCESS
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match doca_name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "doca_error_t {}", self.0),
        }
    }
}

/// Names of the usual errors of I/Os.
fn doca_name(code: u32) -> Option<&'static str> {
    Some(match code {
        0 => "SUCCESS",
        6 => "INVALID_VALUE",
        9 => "TIME_OUT",
        17 => "IO_FAILED",
        18 => "BAD_STATE",
        _ => return None,
    })
}

/// An event. Slot numbers are the same as in actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request of the initiator was received.
    Request {
        /// Number of the receive.
        lane: u32,
        request: Request,
    },
    /// An invalid request was received. It has to be answered with an error.
    Refused {
        /// Number of the receive.
        lane: u32,
        /// The fields that the answer repeats.
        request: Request,
    },
    /// The answer was sent.
    Answered {
        /// The slot, which is now free.
        slot: u32,
    },
    /// The request to a target has been sent: its message buffer is free.
    ChunkRequestSent { slot: u32, target: Target },
    /// A target has answered.
    ChunkDone {
        /// The slot number in the answer, not validated.
        slot: u64,
        /// The stripe number in the answer, not validated.
        stripe: u64,
        target: Target,
        status: Status,
    },
    /// Copying the content of the initiator's block has completed.
    Fetched { slot: u32, status: Status },
    /// Encoding the content as a stored block has completed.
    Encoded {
        slot: u32,
        /// `false` if the compressed content does not fit in a stored block.
        fits: bool,
    },
    /// Computing the parity chunk has completed.
    ParityCreated { slot: u32, status: Status },
    /// Recovering a data chunk from the other two chunks has completed.
    Recovered { slot: u32, status: Status },
    /// The chunks were judged.
    Judged { slot: u32, judged: Judged },
    /// A stored block of the reference's form was examined.
    Examined {
        slot: u32,
        /// `false` if its sizes are impossible.
        is_possible: bool,
    },
    /// The payloads of the chunks to store are complete, with their records.
    Sealed { slot: u32 },
    /// Copying or decompressing the block into the initiator's memory has completed.
    Delivered { slot: u32, delivery: Delivery },
    /// A target is no longer reachable, or a message to or from it has failed.
    TargetLost {
        target: Target,
        /// The result of the failed message, if a message has failed.
        status: Status,
    },
    /// A detached target has new connections on this worker.
    TargetAttached { target: Target },
    /// The time has advanced. Must be reported between any two waits, and at least every 100 ms.
    Tick {
        /// `true` if all available completions have been reported.
        is_idle: bool,
    },
}

/// Result of a delivery to the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// A whole block was written.
    Done,
    /// The data are not valid LZ4 blocks, or do not decompress to the length of a block.
    Corrupt,
    /// The device, or access to the initiator's memory, has failed.
    Failed(Status),
}

/// An action to execute. Its event may be reported immediately, before the next action is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Request these targets to write their chunks of the stripe into the slot's stripe buffer.
    ReadChunks {
        slot: u32,
        targets: Targets,
        stripe: u64,
    },
    /// As `ReadChunks`, for the newest version of one target's chunk that is older than the given stamp.
    ReadBefore {
        slot: u32,
        target: Target,
        stripe: u64,
        stamp: Stamp,
    },
    /// Request these targets to store their chunks of the stripe from the slot's stripe buffer.
    WriteChunks {
        slot: u32,
        targets: Targets,
        stripe: u64,
        /// Stamp of the chunks; `None` for the reference's form.
        stamp: Option<Stamp>,
        /// `true` if the chunks have to be durable when the targets answer.
        is_durable: bool,
    },
    /// Request these targets to make all acknowledged chunks durable.
    Flush { slot: u32, targets: Targets },
    /// Copy the initiator's block to private memory, as payloads of the data chunks: [`Event::Fetched`].
    Fetch {
        slot: u32,
        /// Index of the block in the request.
        block: u8,
    },
    /// Encode the content as a stored block of the reference's form: [`Event::Encoded`].
    Encode { slot: u32, stripe: u64 },
    /// Compute the parity of the data payloads in private memory, or of the stored block in the reference's form: [`Event::ParityCreated`].
    CreateParity { slot: u32 },
    /// Copy chunks from the stripe buffer and judge them; the payloads of valid ones are copied to private memory: [`Event::Judged`].
    Judge {
        slot: u32,
        stripe: u64,
        targets: Targets,
    },
    /// Recover this data chunk from the other two chunks, in private memory: [`Event::Recovered`].
    Recover {
        slot: u32,
        /// Data1 or Data2.
        target: Target,
    },
    /// Copy the stored block of the reference's form to private memory, with the recovered chunk in place of `recovered`, and examine it:
    /// [`Event::Examined`].
    Examine {
        slot: u32,
        /// The chunk that was recovered.
        recovered: Option<Target>,
    },
    /// Create chunks of these targets in the stripe buffer, from their payloads in private memory: [`Event::Sealed`].
    Seal {
        slot: u32,
        stripe: u64,
        targets: Targets,
        stamp: Stamp,
    },
    /// Copy the data payloads from private memory to the initiator's memory, or decompress the examined block of the reference's form into it:
    /// [`Event::Delivered`].
    Deliver {
        slot: u32,
        /// Index of the block in the request.
        block: u8,
    },
    /// Send the answer: [`Event::Answered`].
    Answer { slot: u32, status: Status },
    /// Post this receive for the next request.
    Receive {
        /// Number of the receive.
        lane: u32,
    },
    /// Close the connections to a target. It is sent no requests until it is attached again.
    Detach { target: Target },
    /// The session cannot continue: a target failed, and degraded operation is off.
    GiveUp {
        target: Target,
        /// Status of the failed message to the target.
        status: Status,
    },
}

/// The completion that a slot waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Idle: waiting for a request or for background work.
    Idle,
    /// Waiting for two current targets.
    Parked,
    StripeLock,
    Read(ReadStage),
    Write(WriteStage),
    Settle(SettleStage),
    /// Answers of the targets to a flush.
    Flush,
    /// Commit of an epoch without the targets that have missed the write or flush.
    Commit,
    /// Completion of the send of the answer.
    Answer,
}

/// Steps of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadStage {
    /// Chunks of the block.
    Chunks,
    /// Judgement of the chunks.
    Judgement,
    /// Recovery of the chunk that was not read.
    Recovery(Target),
    /// Examination of a block of the reference's form.
    Examination,
    /// Delivery to the initiator.
    Delivery,
}

/// Steps of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteStage {
    /// Copy of the initiator's block.
    Content,
    /// Encoding of a block of the reference's form.
    Encoding,
    /// Computation of the parity.
    Parity,
    /// A write number: the maximum number of unretired writes is reached.
    Number,
    /// Records of the chunks.
    Seal,
    /// Answers of the targets.
    Store,
}

/// Steps of settling a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettleStage {
    /// Chunks of the sources.
    Chunks,
    /// An older version of this target's chunk.
    Version(Target),
    /// This target's chunk of an unwritten stripe, and its judgement.
    Zeros(Target),
    /// The existing chunk of a target in a stripe that is being rebuilt, in addition to chunks of different writes.
    Own(Target),
    /// Judgement of the chunks.
    Judgement,
    /// Recovery, or computation, of the payload of this target's chunk.
    Payload(Target),
    /// A number for the new stamp: the maximum number of unretired writes is reached.
    Number,
    /// Records of the chunks.
    Seal,
    /// Answers of the targets to the rewritten chunks.
    Store,
}

/// A place in the queue for a stripe's lock.
#[derive(Debug, Clone, Copy)]
struct LockPlace {
    lock: usize,
    ticket: Ticket,
}

/// A request, or background work on a stripe, in progress.
#[derive(Debug)]
struct Slot {
    stage: Stage,
    request: Request,
    /// Number of the receive with which the request arrived.
    lane: u32,
    /// Background work, for a slot without request.
    work: Option<Work>,
    /// Index of the current block in the request.
    block: u8,
    /// Targets whose result is outstanding.
    awaited: Targets,
    /// Targets to which a request is still being sent.
    sending: Targets,
    /// Targets of the last requests.
    asked: Targets,
    /// Targets of the last requests that failed or were detached.
    failed: Targets,
    /// Status of the first failure.
    error: Option<Status>,
    /// Watchdog time of the last requests.
    asked_at: Duration,
    /// Data chunk that is recovered from the other two chunks instead of being read.
    missing: Option<Target>,
    /// Mode of the stripe lock that the slot has or waits for.
    access: Access,
    /// Stamp of the write in progress.
    stamp: Option<Stamp>,
    /// State of settling the stripe.
    settling: Settling,
    /// Writes that the flush in progress retires.
    retirable: Retirable,
    /// Time at which a parked request fails.
    parked_until: Option<Duration>,
    place: Option<LockPlace>,
}

impl Slot {
    fn new() -> Self {
        Self {
            stage: Stage::Idle,
            request: Request::default(),
            lane: 0,
            work: None,
            block: 0,
            awaited: Targets::NONE,
            sending: Targets::NONE,
            asked: Targets::NONE,
            failed: Targets::NONE,
            error: None,
            asked_at: Duration::ZERO,
            missing: None,
            access: Access::Read,
            stamp: None,
            settling: Settling::default(),
            retirable: Retirable::default(),
            parked_until: None,
            place: None,
        }
    }

    /// Stripe of the current block.
    fn stripe(&self) -> u64 {
        self.request.first_stripe + u64::from(self.block)
    }

    /// Returns `true` if no result is outstanding and no message buffer is in use.
    fn is_quiet(&self) -> bool {
        self.awaited.is_empty() && self.sending.is_empty()
    }

    fn outstanding(&self) -> Targets {
        self.awaited.union(self.sending)
    }
}

#[derive(Debug, Clone)]
pub struct Setup {
    pub worker: u32,
    /// Maximum number of requests of the initiator in flight.
    pub requests: u32,
    /// Every n-th read recovers a chunk instead of reading it; 0 disables this.
    pub recover_every: u32,
    /// `true` if blocks are stored as chunks, and the session continues without a failed target; `false` for the reference's form.
    pub stores_chunks: bool,
    /// Time without an answer after which a target is unresponsive.
    pub stall_timeout: Duration,
    /// Time that I/Os wait for two current targets.
    pub parking_timeout: Duration,
    /// State that all workers share.
    pub set: Arc<Set>,
    /// Stripe locks, shared by all workers.
    pub locks: Arc<StripeLocks>,
}

/// State machine of one worker.
#[derive(Debug)]
pub struct StripeEngine {
    setup: Setup,
    slots: Vec<Slot>,
    /// Slots of the initiator that wait for a request.
    idle: IdleTransactions,
    /// Slots that wait for the lock of their stripe.
    locked_out: VecDeque<u32>,
    /// Slots that wait for an epoch to be committed.
    uncommitted: Vec<u32>,
    /// Slots that wait for a number of their write.
    numberless: VecDeque<u32>,
    /// Slots of requests that wait for two current targets.
    parked: VecDeque<u32>,
    /// Writes in flight.
    numbers: InFlight,
    /// The newest chunk that each target has stored since it was last detached.
    stored: [Stamp; 3],
    /// Idle slots for background work on stripes.
    idle_workers: Vec<u32>,
    /// Pending actions; the last one is executed first, so that actions caused by an event precede earlier actions.
    actions: Vec<Action>,
    /// The view that was applied last.
    view: View,
    /// Targets whose connections were closed.
    detached: Targets,
    /// `true` if all completions from before the view have been reported.
    is_settled: bool,
    watchdog: Watchdog,
    /// Number of reads until the next recovery read; 0 if disabled.
    until_recovery: u32,
    in_flight: usize,
    now: Duration,
    statistics: EngineStatistics,
}

impl StripeEngine {
    /// Creates an idle engine. The engine does not allocate memory afterwards.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let requests = setup.requests as usize;
        let slots = requests + BACKGROUND_SLOTS as usize;
        let view = setup.set.view();
        Self {
            slots: (0..slots).map(|_| Slot::new()).collect(),
            idle: IdleTransactions::new(requests),
            locked_out: VecDeque::with_capacity(slots),
            uncommitted: Vec::with_capacity(slots),
            numberless: VecDeque::with_capacity(slots),
            parked: VecDeque::with_capacity(slots),
            numbers: InFlight::new(setup.worker, slots),
            stored: [Stamp::UNWRITTEN; 3],
            idle_workers: (setup.requests..setup.requests + BACKGROUND_SLOTS).collect(),
            // At most one action per slot, and one to close the connections of each target.
            actions: Vec::with_capacity(slots * 2 + 3),
            view,
            detached: view.offline,
            is_settled: view == View::HEALTHY,
            watchdog: Watchdog::new(setup.stall_timeout),
            until_recovery: setup.recover_every,
            in_flight: 0,
            now: Duration::ZERO,
            statistics: EngineStatistics {
                degraded: setup.stores_chunks.then(DegradedCounts::default),
                ..EngineStatistics::default()
            },
            setup,
        }
    }

    /// Number of slots; slots for requests come first.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    #[must_use]
    pub fn request(&self, slot: u32) -> &Request {
        &self.slots[slot as usize].request
    }

    /// Number of the receive that the slot's request arrived with.
    #[inline]
    #[must_use]
    pub fn lane(&self, slot: u32) -> u32 {
        self.slots[slot as usize].lane
    }

    /// Number of requests received but not yet answered.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns `true` if the worker has detached a target.
    #[inline]
    #[must_use]
    pub fn is_detached(&self, target: Target) -> bool {
        self.detached.contains(target)
    }

    /// Returns `true` if all completions of requests made under earlier views have been reported.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Marks the stripes whose chunks are being stored as unsettled, because the run has ended.
    #[cold]
    pub fn abandon_stores(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            let it = &self.slots[slot as usize];
            let is_store = matches!(
                it.stage,
                Stage::Write(WriteStage::Store) | Stage::Settle(SettleStage::Store) | Stage::Commit
            );
            if is_store && it.stamp.is_some() {
                self.setup.set.unsettle(it.stripe(), it.stamp);
            }
        }
    }

    /// Frees the slot of a request whose response could not be sent because the run has ended.
    #[cold]
    pub fn answer_was_flushed(&mut self) {
        self.in_flight -= 1;
    }

    pub fn statistics(&self) -> &EngineStatistics {
        &self.statistics
    }

    pub fn statistics_mut(&mut self) -> &mut EngineStatistics {
        &mut self.statistics
    }

    /// Returns the next action to execute.
    #[inline]
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop()
    }

    /// Handles an event. `now` is the time since a fixed point; it never decreases.
    // Inlined: the variant is known at each call site, so that only the call of its handler remains.
    #[inline(always)]
    pub fn handle(&mut self, event: Event, now: Duration) {
        self.now = now;
        match event {
            Event::Request { lane, request } => self.requested(lane, request),
            Event::Refused { lane, request } => self.refused(lane, request),
            Event::Answered { slot } => self.answered(slot),
            Event::ChunkRequestSent { slot, target } => self.chunk_request_sent(slot, target),
            Event::ChunkDone {
                slot,
                stripe,
                target,
                status,
            } => self.chunk_done(slot, stripe, target, status),
            Event::Fetched { slot, status } => self.fetched(slot, status),
            Event::Encoded { slot, fits } => self.encoded(slot, fits),
            Event::ParityCreated { slot, status } => self.parity_created(slot, status),
            Event::Recovered { slot, status } => self.recovered(slot, status),
            Event::Judged { slot, judged } => self.judged(slot, &judged),
            Event::Examined { slot, is_possible } => self.examined(slot, is_possible),
            Event::Sealed { slot } => self.sealed(slot),
            Event::Delivered { slot, delivery } => self.delivered(slot, delivery),
            Event::TargetLost { target, status } => self.target_lost(target, status),
            Event::TargetAttached { target } => self.detached.remove(target),
            Event::Tick { is_idle } => self.tick(is_idle),
        }
    }

    #[inline]
    fn slot(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    #[inline]
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    #[cold]
    fn degraded_counts(&mut self) -> &mut DegradedCounts {
        self.statistics.degraded.get_or_insert_default()
    }

    // Requests, responses, and the stripes that they access.

    #[inline]
    fn requested(&mut self, lane: u32, request: Request) {
        let Some(slot) = self.take_slot(lane, request) else {
            return;
        };
        match request.operation {
            Operation::Flush => self.begin_flush(slot),
            Operation::Read | Operation::Write => self.begin_block(slot),
        }
    }

    /// The number of receives equals the number of slots, so a slot is always free.
    #[inline]
    fn take_slot(&mut self, lane: u32, request: Request) -> Option<u32> {
        let slot = self.idle.take()? as u32;
        self.in_flight += 1;
        let it = self.slot(slot);
        it.request = request;
        it.lane = lane;
        it.block = 0;
        it.parked_until = None;
        Some(slot)
    }

    #[cold]
    fn refused(&mut self, lane: u32, request: Request) {
        if let Some(slot) = self.take_slot(lane, request) {
            self.fail(slot, Status::INVALID_VALUE);
        }
    }

    /// Starts the current block.
    #[inline]
    fn begin_block(&mut self, slot: u32) {
        let it = self.slot(slot);
        it.missing = None;
        if it.work.is_none() {
            it.settling = Settling::default();
        }
        self.lock_block(slot);
    }

    /// Continues with the current block as soon as its stripe can be locked.
    #[inline]
    fn lock_block(&mut self, slot: u32) {
        let is_unsettled = self.setup.set.has_unsettled() && self.is_unsettled(slot);
        let locks = &self.setup.locks;
        let it = &mut self.slots[slot as usize];
        it.stage = Stage::StripeLock;
        it.settling.is_wanted |= is_unsettled && !it.settling.is_done;
        it.access = match it.request.operation {
            Operation::Read if !it.settling.is_wanted => Access::Read,
            Operation::Read | Operation::Write => Access::Write,
            // A flush has no stripe.
            Operation::Flush => return,
        };
        let lock = locks.of(it.stripe());
        let ticket = locks.queue(lock);
        it.place = Some(LockPlace { lock, ticket });
        if self.try_lock(slot) {
            self.stripe_locked(slot);
        } else {
            self.locked_out.push_back(slot);
        }
    }

    #[inline]
    fn try_lock(&self, slot: u32) -> bool {
        let slot = &self.slots[slot as usize];
        slot.place.is_some_and(|place| {
            let locks = &self.setup.locks;
            locks.try_lock(place.lock, place.ticket, slot.access)
        })
    }

    #[inline]
    fn stripe_locked(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        if it.settling.is_wanted {
            return self.begin_settling(slot);
        }
        // A write may have been interrupted since the slot queued for the lock.
        if self.setup.set.has_unsettled() && !it.settling.is_done && self.is_unsettled(slot) {
            return self.settle_first(slot);
        }
        match it.request.operation {
            Operation::Read if self.setup.stores_chunks => self.begin_read(slot),
            Operation::Read => self.begin_reference_read(slot),
            Operation::Write => self.begin_write(slot),
            Operation::Flush => self.impossible("a flush has no stripe"),
        }
    }

    #[inline]
    fn unlock(&mut self, slot: u32) {
        let it = &mut self.slots[slot as usize];
        if let Some(LockPlace { lock, ticket }) = it.place.take() {
            self.setup.locks.unlock(lock, ticket, it.access);
        }
    }

    /// Starts the waiting blocks whose stripes can be locked now.
    #[inline]
    fn retry_locks(&mut self) {
        if !self.locked_out.is_empty() {
            self.retry_locked_out();
        }
    }

    #[cold]
    fn retry_locked_out(&mut self) {
        // Slots that are still waiting for a lock are queued again, in the same order.
        for _ in 0..self.locked_out.len() {
            let Some(slot) = self.locked_out.pop_front() else {
                break;
            };
            if self.try_lock(slot) {
                self.stripe_locked(slot);
            } else {
                self.locked_out.push_back(slot);
            }
        }
    }

    /// Completes the current block: continues with the next one, or sends the response.
    #[inline]
    fn block_done(&mut self, slot: u32) {
        self.unlock(slot);
        let it = self.slot(slot);
        it.block += 1;
        if it.block < it.request.blocks {
            self.begin_block(slot);
        } else {
            let (operation, blocks) = (it.request.operation, u64::from(it.request.blocks));
            self.statistics.traffic.succeeded(operation, blocks);
            self.answer(slot, Status::SUCCESS);
        }
    }

    /// Completes a request with an error, or background work without success. No results may be outstanding.
    #[cold]
    fn fail(&mut self, slot: u32, status: Status) {
        self.end_number(slot);
        if self.slot(slot).work.is_some() {
            return self.end_work(slot, Outcome::Retry);
        }
        self.unlock(slot);
        self.statistics.failed_count += 1;
        self.answer(slot, status);
    }

    /// Too few targets are current for the slot's next step: a request waits until enough have rejoined, and is then repeated.
    #[cold]
    fn too_few_targets(&mut self, slot: u32) {
        if self.slot(slot).work.is_some() {
            return self.end_work(slot, Outcome::Retry);
        }
        self.unlock(slot);
        let until = self.now + self.setup.parking_timeout;
        let it = self.slot(slot);
        it.stage = Stage::Parked;
        it.parked_until.get_or_insert(until);
        self.parked.push_back(slot);
    }

    /// Repeats requests that wait for two current targets, or fails them after the timeout, and repeats writes that
    /// wait until interrupted writes are settled.
    #[cold]
    fn retry_parked(&mut self) {
        let has_failed = self.view.has_failed();
        for _ in 0..self.parked.len() {
            let Some(slot) = self.parked.pop_front() else {
                return;
            };
            let it = &self.slots[slot as usize];
            let is_late = it.parked_until.is_some_and(|until| until <= self.now);
            match it.request.operation {
                _ if has_failed && !is_late => self.parked.push_back(slot),
                _ if has_failed => self.impossible_block(slot),
                Operation::Write if self.setup.set.has_unsettled() => self.parked.push_back(slot),
                Operation::Flush => self.begin_flush(slot),
                Operation::Read | Operation::Write => self.begin_block(slot),
            }
        }
    }

    /// Fails a request that has waited for two current targets in vain.
    fn impossible_block(&mut self, slot: u32) {
        let stripe = self.slot(slot).stripe();
        let impossible = &mut self.degraded_counts().impossible;
        if impossible.count() {
            let count = *impossible;
            tracing::error!(
                "too few storage targets are current for block {stripe} ({count} so far)"
            );
        }
        let status = self.slot(slot).error;
        self.fail(slot, status.unwrap_or(Status::IO_FAILED));
    }

    /// Counts an event that the state of its slot does not allow. The slot continues to wait. Such an event is a bug.
    #[cold]
    fn impossible(&mut self, what: &str) {
        let count = &mut self.statistics.impossible_events;
        if count.count() {
            tracing::error!("unexpected state in the engine ({count} so far): {what}");
        }
    }

    #[inline]
    fn answer(&mut self, slot: u32, status: Status) {
        self.slot(slot).stage = Stage::Answer;
        self.act(Action::Answer { slot, status });
    }

    #[inline]
    fn answered(&mut self, slot: u32) {
        self.in_flight -= 1;
        self.statistics.operation_count += 1;
        let it = self.slot(slot);
        it.stage = Stage::Idle;
        let (lane, operation) = (it.lane, it.request.operation);
        self.statistics.traffic.answered(operation);
        self.idle.give_back(slot as usize);
        self.act(Action::Receive { lane });
    }

    /// Fails a read of a block that cannot be read.
    #[cold]
    fn uncorrectable(&mut self, slot: u32, what: impl fmt::Display) {
        let uncorrectable = &mut self.statistics.corruption.uncorrectable;
        if uncorrectable.count() {
            let stripe = self.slots[slot as usize].stripe();
            let uncorrectable = self.statistics.corruption.uncorrectable;
            tracing::error!("block {stripe} ({uncorrectable} so far) {what}");
        }
        self.fail(slot, Status::IO_FAILED);
    }

    // Chunks on their targets.

    /// Prepares a slot for the answers of targets. Returns the targets that are attached, and the stripe.
    #[inline]
    fn ask(&mut self, slot: u32, targets: Targets, stage: Stage) -> (Targets, u64) {
        let now = self.watchdog.now();
        // A target that was detached since the slot's last step counts as failed.
        let failed = targets.intersection(self.detached);
        let attached = targets.minus(failed);
        let it = self.slot(slot);
        it.stage = stage;
        it.awaited = attached;
        it.sending = attached;
        it.asked = targets;
        it.failed = failed;
        it.error = None;
        it.asked_at = now;
        (attached, it.stripe())
    }

    #[inline]
    fn read_chunks(&mut self, slot: u32, targets: Targets, stage: Stage) {
        let (targets, stripe) = self.ask(slot, targets, stage);
        if targets.is_empty() {
            return self.chunks_done(slot);
        }
        self.act(Action::ReadChunks {
            slot,
            targets,
            stripe,
        });
    }

    #[inline]
    fn write_chunks(&mut self, slot: u32, targets: Targets, stage: Stage, stamp: Option<Stamp>) {
        let (attached, stripe) = self.ask(slot, targets, stage);
        if attached != targets {
            self.mark_missed(slot);
        }
        if attached.is_empty() {
            return self.chunks_done(slot);
        }
        let is_durable = self.slot(slot).request.is_durable;
        self.act(Action::WriteChunks {
            slot,
            targets: attached,
            stripe,
            stamp,
            is_durable,
        });
    }

    #[inline]
    fn chunk_request_sent(&mut self, slot: u32, target: Target) {
        if self.is_detached(target) {
            return;
        }
        let it = self.slot(slot);
        it.sending.remove(target);
        if it.is_quiet() {
            self.chunks_done(slot);
        }
    }

    #[inline]
    fn chunk_done(&mut self, slot: u64, stripe: u64, target: Target, status: Status) {
        if self.is_detached(target) {
            return;
        }
        // A result repeats the fields of its request, so that a duplicate is not mistaken for the result of the next block.
        let expected = usize::try_from(slot)
            .ok()
            .and_then(|slot| self.slots.get_mut(slot))
            .filter(|it| it.awaited.contains(target) && it.stripe() == stripe);
        let Some(it) = expected else {
            return self.unasked(target, format_args!("a result for transaction {slot}"));
        };
        it.awaited.remove(target);
        if status.is_success() {
            if let Some(stamp) = it.stamp {
                let stored = &mut self.stored[target.number()];
                *stored = stamp.max(*stored);
            }
        } else {
            it.error.get_or_insert(status);
            it.failed.insert(target);
            self.chunk_failed(slot as u32, target, status);
        }
        if self.slots[slot as usize].is_quiet() {
            self.chunks_done(slot as u32);
        }
    }

    /// Handles an error of a target. If it has failed to store its chunk or to flush, it is detached.
    #[cold]
    fn chunk_failed(&mut self, slot: u32, target: Target, status: Status) {
        if !self.setup.stores_chunks {
            return;
        }
        if self.mark_missed(slot) {
            let stripe = self.slots[slot as usize].stripe();
            let why = format_args!("it failed to write its chunk of block {stripe}: {status}");
            self.setup.set.detach(target, why);
        } else if self.slots[slot as usize].stage == Stage::Flush {
            let why = format_args!("it failed to flush: {status}");
            self.setup.set.detach(target, why);
        }
    }

    /// Marks the stripe of a slot as missed if its chunks are being stored, and returns `true` in that case. Must not
    /// be deferred until the other targets have responded: this target may rejoin before that, and would then be
    /// considered up to date.
    #[cold]
    fn mark_missed(&self, slot: u32) -> bool {
        let it = &self.slots[slot as usize];
        let is_store = self.setup.stores_chunks
            && matches!(
                it.stage,
                Stage::Write(WriteStage::Store) | Stage::Settle(SettleStage::Store)
            );
        if is_store {
            self.setup.set.missed.insert(it.stripe());
        }
        is_store
    }

    /// Counts and logs an unexpected message of a target.
    #[cold]
    pub fn unasked(&mut self, target: Target, message: fmt::Arguments<'_>) {
        if self.statistics.unasked.count() {
            let (name, count) = (target.name(), self.statistics.unasked);
            tracing::warn!(
                "storage target {name} sent {message}, which was not expected ({count} so far)"
            );
        }
    }

    /// Continues after all requested targets have answered or were detached.
    #[inline]
    fn chunks_done(&mut self, slot: u32) {
        let stores_chunks = self.setup.stores_chunks;
        match self.slot(slot).stage {
            Stage::Read(ReadStage::Chunks) if stores_chunks => self.chunks_read(slot),
            Stage::Read(ReadStage::Chunks) => self.reference_chunks_read(slot),
            Stage::Write(WriteStage::Store) if stores_chunks => self.stored(slot),
            Stage::Write(WriteStage::Store) => self.reference_stored(slot),
            Stage::Settle(
                stage @ (SettleStage::Chunks
                | SettleStage::Version(_)
                | SettleStage::Zeros(_)
                | SettleStage::Own(_)),
            ) => {
                self.settling_chunks_read(slot, stage);
            }
            Stage::Settle(SettleStage::Store) => self.settled_stored(slot),
            Stage::Flush => self.flushed(slot),
            Stage::Idle
            | Stage::Parked
            | Stage::StripeLock
            | Stage::Read(_)
            | Stage::Write(_)
            | Stage::Settle(_)
            | Stage::Commit
            | Stage::Answer => self.impossible("results of targets that were not awaited"),
        }
    }

    // Completions of the accelerators.

    #[inline]
    fn parity_created(&mut self, slot: u32, status: Status) {
        if !status.is_success() {
            return self.fail(slot, status);
        }
        match self.slots[slot as usize].stage {
            Stage::Write(WriteStage::Parity) if self.setup.stores_chunks => self.number_write(slot),
            Stage::Write(WriteStage::Parity) => self.store_reference(slot),
            Stage::Settle(SettleStage::Payload(_)) => self.payload_complete(slot),
            _ => self.impossible("parity that was not asked for"),
        }
    }

    #[inline]
    fn recovered(&mut self, slot: u32, status: Status) {
        if !status.is_success() {
            return self.fail(slot, status);
        }
        match self.slots[slot as usize].stage {
            Stage::Read(ReadStage::Recovery(_)) if self.setup.stores_chunks => self.deliver(slot),
            Stage::Read(ReadStage::Recovery(target)) => self.examine(slot, Some(target)),
            Stage::Settle(SettleStage::Payload(_)) => self.payload_complete(slot),
            _ => self.impossible("a recovery that was not asked for"),
        }
    }

    #[inline]
    fn judged(&mut self, slot: u32, judged: &Judged) {
        match self.slot(slot).stage {
            Stage::Read(ReadStage::Judgement) => self.chunks_judged(slot, judged),
            Stage::Settle(SettleStage::Judgement) => self.settling_judged(slot, judged),
            Stage::Settle(SettleStage::Zeros(target)) => self.zeros_judged(slot, target, judged),
            Stage::Settle(SettleStage::Own(target)) => self.own_judged(slot, target, judged),
            _ => self.impossible("a judgement that was not asked for"),
        }
    }

    #[inline]
    fn sealed(&mut self, slot: u32) {
        match self.slot(slot).stage {
            Stage::Write(WriteStage::Seal) => self.store(slot),
            Stage::Settle(SettleStage::Seal) => self.settled_sealed(slot),
            _ => self.impossible("records that were not asked for"),
        }
    }

    // Time, and detached and attached targets.

    fn tick(&mut self, is_idle: bool) {
        if self.watchdog.tick(self.now) {
            self.find_stalled_targets();
        }
        if !self.uncommitted.is_empty() {
            self.retry_uncommitted();
        }
        if !self.numberless.is_empty() {
            self.retry_numberless();
        }
        if is_idle && !self.is_settled {
            self.is_settled = true;
            self.setup.set.acknowledge(self.setup.worker, self.view);
        }
        self.follow_view();
        if !self.parked.is_empty() {
            self.retry_parked();
        }
        self.retry_locks();
        if self.setup.set.may_have_work(self.now) {
            self.begin_works();
        }
    }

    /// Detaches the target with the oldest outstanding answer, if the stall timeout has expired.
    #[cold]
    fn find_stalled_targets(&mut self) {
        let mut stalled: Option<(Duration, Target, u64)> = None;
        for slot in &self.slots {
            if !slot.outstanding().is_empty() && self.watchdog.is_stalled(slot.asked_at) {
                for target in slot.outstanding().iter() {
                    if stalled.is_none_or(|(since, ..)| slot.asked_at < since) {
                        stalled = Some((slot.asked_at, target, slot.stripe()));
                    }
                }
            }
        }
        let Some((_, target, stripe)) = stalled else {
            return;
        };
        // In the reference's form, `--io-timeout` ends the session.
        if self.setup.stores_chunks {
            let why = format_args!("it does not answer, asked for block {stripe}");
            self.setup.set.stalled(target, why);
        }
    }

    /// Applies a new view, if there is one. Called before targets are selected, and by ticks.
    #[inline]
    fn follow_view(&mut self) {
        if self.setup.set.has_changed(self.view) {
            self.view_changed();
        }
    }

    #[cold]
    fn view_changed(&mut self) {
        self.view = self.setup.set.view();
        self.is_settled = false;
        for target in self.view.offline.minus(self.detached).iter() {
            self.detach(target);
        }
    }

    /// Closes the connections to a target, and fails its outstanding requests.
    #[cold]
    fn detach(&mut self, target: Target) {
        self.detached.insert(target);
        self.is_settled = false;
        let stored = &mut self.stored[target.number()];
        let stored = std::mem::replace(stored, Stamp::UNWRITTEN);
        self.setup.set.has_stored(target, stored);
        for slot in 0..self.slots.len() as u32 {
            let it = self.slot(slot);
            if !it.outstanding().contains(target) {
                continue;
            }
            if it.awaited.contains(target) {
                it.failed.insert(target);
                self.mark_missed(slot);
            }
            let it = self.slot(slot);
            it.awaited.remove(target);
            it.sending.remove(target);
            if it.is_quiet() {
                self.chunks_done(slot);
            }
        }
        self.act(Action::Detach { target });
    }

    #[cold]
    fn target_lost(&mut self, target: Target, status: Status) {
        if !self.setup.stores_chunks {
            return self.act(Action::GiveUp { target, status });
        }
        if !self.is_detached(target) {
            let why = format_args!("a message to it or its connection has failed: {status}");
            self.setup.set.detach(target, why);
        }
    }
}

// Idle transactions.

/// Number of idle transactions that are not reused as long as others are idle. Reusing the transaction that has just
/// completed makes reads 5 % slower with 16 transactions (measured).
const RESTING: usize = 12;

/// Allocates as few different transactions as possible, so that their memory stays in the core's caches. The initiator
/// gets twice as many as it announces, as in the reference, and round-robin allocation would use all of them. Memory is
/// allocated only on creation.
#[derive(Debug)]
pub(super) struct IdleTransactions {
    /// Completed transactions, in the order of their completion.
    ended: VecDeque<usize>,
    /// Transactions that have never been used.
    unused: Range<usize>,
}

impl IdleTransactions {
    /// Creates a pool of this many idle transactions.
    pub(super) fn new(count: usize) -> Self {
        Self {
            ended: VecDeque::with_capacity(count),
            unused: 0..count,
        }
    }

    /// Takes a transaction, if one is idle.
    #[inline]
    pub(super) fn take(&mut self) -> Option<usize> {
        if self.ended.len() > RESTING {
            return self.ended.pop_front();
        }
        self.unused.next().or_else(|| self.ended.pop_front())
    }

    /// Returns a transaction to the pool.
    #[inline]
    pub(super) fn give_back(&mut self, transaction: usize) {
        self.ended.push_back(transaction);
    }
}

/// Maximum time that counts between two ticks: twice the longest sleep of an idle worker.
const MAX_GAP: Duration = Duration::from_millis(100);

/// Number of checks per timeout.
const CHECKS: u32 = 8;

/// Detects stalls, in time as the worker experiences it: while it is not scheduled, hardly any time passes.
#[derive(Debug)]
struct Watchdog {
    timeout: Duration,
    last_tick: Option<Duration>,
    now: Duration,
    next_check: Duration,
}

impl Watchdog {
    fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            last_tick: None,
            now: Duration::ZERO,
            next_check: timeout / CHECKS,
        }
    }

    /// Sum of the times between ticks, each limited to [`MAX_GAP`].
    #[inline]
    fn now(&self) -> Duration {
        self.now
    }

    /// Advances the time. Returns `true` if stalled targets must be checked.
    #[inline]
    fn tick(&mut self, now: Duration) -> bool {
        let gap = now.saturating_sub(self.last_tick.unwrap_or(now));
        self.last_tick = Some(now);
        self.now += gap.min(MAX_GAP);
        if self.now < self.next_check {
            return false;
        }
        self.next_check = self.now + self.timeout / CHECKS;
        true
    }

    /// Returns `true` if a request sent at this (experienced) time is overdue.
    fn is_stalled(&self, asked_at: Duration) -> bool {
        self.now.saturating_sub(asked_at) > self.timeout
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_transaction_is_handed_out_once() {
        for count in [0, 1, RESTING, 100] {
            let mut idle = IdleTransactions::new(count);
            for _ in 0..3 {
                let taken: HashSet<_> = std::iter::from_fn(|| idle.take()).collect();
                assert_eq!(taken, (0..count).collect());
                taken.into_iter().for_each(|index| idle.give_back(index));
            }
        }
    }

    #[test]
    fn few_transactions_are_used_longest_rested_first() {
        let mut idle = IdleTransactions::new(128);
        let mut in_flight: VecDeque<_> = (0..16).filter_map(|_| idle.take()).collect();
        let mut used: HashSet<_> = in_flight.iter().copied().collect();
        for _ in 0..1000 {
            let ended = in_flight.pop_front().expect("16 are in flight");
            idle.give_back(ended);
            let next = idle.take().expect("one has just ended");
            assert_ne!(next, ended, "it is to rest");
            used.insert(next);
            in_flight.push_back(next);
        }
        assert_eq!(used.len(), 16 + RESTING);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_target_has_the_whole_timeout() {
        let mut watchdog = Watchdog::new(4 * SECOND);
        let mut now = SECOND;
        watchdog.tick(now);
        let asked_at = watchdog.now();
        let asked = now;
        loop {
            now += SECOND / 100;
            if watchdog.tick(now) && watchdog.is_stalled(asked_at) {
                break;
            }
        }
        assert!(now - asked > 4 * SECOND && now - asked <= 5 * SECOND);
    }

    #[test]
    fn a_worker_that_was_not_scheduled_blames_no_target() {
        let mut watchdog = Watchdog::new(4 * SECOND);
        watchdog.tick(SECOND);
        let asked_at = watchdog.now();
        for gap in 1..=30 {
            watchdog.tick(SECOND * (1 + gap * 100));
            assert!(!watchdog.is_stalled(asked_at), "{gap} gaps");
        }
    }
}
