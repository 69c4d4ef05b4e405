//! The transactions of one worker: the next request of each, and the handling of results. No contexts, no tasks, no I/O.
//!
//! A transaction is one read, one write, or a write followed by a read of the same blocks. It has one request in
//! flight at a time, whose number at the worker's endpoint is that of the transaction's slot.
//!
//! The functions on the path of every I/O are always inlined: as calls, they passed requests and extents through
//! memory, which took a fifth of the initiator's own time per I/O.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::{ErrorCode, PeStats};
use role_common::metrics::{Count, Counts, WorkerMetrics};
use volume::endpoint::{EndpointError, Request};
use wire::io_message::IoMessageType;

use super::content::{Extent, Validator};
use super::{Direction, Failure, Io};
use crate::app::{AccessOrder, Strategy};
use crate::layout::{Pool, Share, Stride};
use crate::statistics::Latencies;

/// The transactions of one worker.
#[derive(Debug)]
pub struct Transactions {
    task: Task,
    slots: Box<[Slot]>,
    storage_places: Pool,
    stride: Stride,
    local_places: Pool,
    /// Number of visits of each storage slot, if the written data depends on it.
    passes: Box<[u32]>,
    started: u32,
    completed: u32,
    in_flight: u32,
    halted: bool,
    bytes: u64,
    latencies: Latencies,
    /// Writes until the next flush, with `--flush-every`.
    until_flush: u32,
    flushes: Latencies,
    end: Instant,
    metrics: Option<Arc<WorkerMetrics>>,
}

/// Measurements of the transactions.
#[derive(Debug)]
pub struct Measurements {
    /// Bytes of the completed transactions.
    pub bytes: u64,
    /// Latencies of the completed transactions.
    pub latencies: Latencies,
    /// Latencies of the flushes.
    pub flushes: Latencies,
    /// Completion time of the last transaction.
    pub end: Instant,
}

impl Transactions {
    /// Creates the transactions. All their memory is allocated here.
    #[must_use]
    pub fn new(task: Task) -> Self {
        let now = Instant::now();
        let share = task.share;
        let slot = |_| Slot {
            direction: None,
            storage_place: 0,
            local_place: 0,
            extent: Extent {
                local_offset: 0,
                storage_offset: 0,
                size: 0,
                pass: 0,
            },
            begin: now,
            issued: now,
        };
        let counts_passes = task.strategy.writes()
            && task
                .validator
                .as_ref()
                .is_some_and(Validator::counts_passes);
        Self {
            slots: (0..share.transactions).map(slot).collect(),
            storage_places: Pool::new(share.ios),
            stride: match task.order {
                AccessOrder::Sequential => Stride::ONE,
                AccessOrder::Scattered => Stride::scattered(share.ios),
            },
            local_places: Pool::new(share.local_slots),
            passes: if counts_passes {
                // No more slots are visited than there are operations, and the first slots are visited first.
                vec![0; share.ios.min(task.operations) as usize].into()
            } else {
                Box::default()
            },
            started: 0,
            completed: 0,
            in_flight: 0,
            halted: false,
            bytes: 0,
            latencies: Latencies::new(),
            until_flush: task.flush_every,
            flushes: Latencies::new(),
            end: now,
            metrics: None,
            task,
        }
    }

    /// Publishes counts and latencies to `metrics`, if any.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Option<Arc<WorkerMetrics>>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Publishes the counts, with `--metrics`.
    pub fn publish(&self, calls: PeStats) {
        let Some(metrics) = &self.metrics else {
            return;
        };
        let of = |is: bool, number: u64| if is { number } else { 0 };
        let (completed, strategy) = (u64::from(self.completed), self.task.strategy);
        let counts = Counts::default()
            .with(Count::Reads, of(strategy.reads(), completed))
            .with(Count::Writes, of(strategy.writes(), completed))
            .with(Count::ReadBytes, of(strategy.reads(), self.bytes))
            .with(Count::WrittenBytes, of(strategy.writes(), self.bytes))
            .with(Count::Flushes, self.flushes.count())
            .with(Count::InFlight, self.in_flight.into())
            .with(Count::ProgressHits, calls.hits)
            .with(Count::ProgressMisses, calls.misses);
        metrics.publish(&counts);
    }

    /// Number of transactions that may be in flight.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.task.share.transactions
    }

    /// Number of transactions that completed.
    #[must_use]
    pub const fn completed(&self) -> u32 {
        self.completed
    }

    /// Number of transactions to complete.
    #[must_use]
    pub const fn operations(&self) -> u32 {
        self.task.operations
    }

    /// Returns `true` if no request is in flight and none will be submitted.
    #[must_use]
    pub const fn at_rest(&self) -> bool {
        self.in_flight == 0 && (self.halted || self.completed == self.task.operations)
    }

    /// Stops: transactions in flight complete, and no further ones begin.
    pub fn halt(&mut self) {
        self.halted = true;
    }

    /// Returns the measurements.
    #[must_use]
    pub fn into_measurements(self) -> Measurements {
        Measurements {
            bytes: self.bytes,
            latencies: self.latencies,
            flushes: self.flushes,
            end: self.end,
        }
    }

    /// Begins a transaction in the idle slot `index`. Returns its first request, or `None` if no operations are left.
    ///
    /// # Errors
    /// Local memory could not be filled.
    #[inline(always)]
    pub fn begin(&mut self, index: u32, now: Instant) -> Result<Option<Request>, Failure> {
        if self.halted || self.started == self.task.operations {
            return Ok(None);
        }
        // There are no more transactions than storage slots or local slots.
        let (Some(storage_place), Some(local_place)) =
            (self.storage_places.take(), self.local_places.take_warm())
        else {
            return Err(Failure::Endpoint(EndpointError::Doca {
                doing: "taking a free block",
                code: ErrorCode::BAD_STATE,
            }));
        };
        self.started += 1;
        self.in_flight += 1;
        let extent = self.extent(storage_place, local_place);
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.direction.is_none(), "slot {index} is in flight");
        (
            slot.storage_place,
            slot.local_place,
            slot.extent,
            slot.begin,
        ) = (storage_place, local_place, extent, now);
        if self.task.strategy.writes() {
            if let Some(validator) = &mut self.task.validator {
                validator.fill(extent).map_err(local_memory)?;
            }
            Ok(Some(self.issue(index, Direction::Write, now)))
        } else {
            self.issue_read(index, now).map(Some)
        }
    }

    #[inline(always)]
    fn extent(&mut self, storage_place: u32, local_place: u32) -> Extent {
        let Share {
            storage_offset,
            storage_size,
            local_offset,
            ..
        } = self.task.share;
        let io_size = u64::from(self.task.io_size);
        let begin = self.stride.place(storage_place) * io_size;
        let pass = self
            .passes
            .get_mut(storage_place as usize)
            .map_or(0, |pass| {
                *pass = pass.wrapping_add(1);
                *pass
            });
        let storage_offset = storage_offset + begin;
        Extent {
            local_offset: if self.task.is_mirrored {
                storage_offset
            } else {
                local_offset + u64::from(local_place) * io_size
            },
            storage_offset,
            size: io_size.min(storage_size - begin) as u32,
            pass,
        }
    }

    #[inline(always)]
    fn issue_read(&mut self, index: u32, now: Instant) -> Result<Request, Failure> {
        if let Some(validator) = &mut self.task.validator {
            validator
                .poison(self.slots[index as usize].extent)
                .map_err(local_memory)?;
        }
        Ok(self.issue(index, Direction::Read, now))
    }

    #[inline(always)]
    fn issue(&mut self, index: u32, direction: Direction, now: Instant) -> Request {
        let slot = &mut self.slots[index as usize];
        slot.direction = Some(direction);
        slot.issued = now;
        slot.request(direction)
    }

    /// Handles the completion of the request of slot `index` with this `doca_error_t`, and returns the slot's next request, if any.
    ///
    /// # Errors
    /// The I/O failed, validation failed, or local memory could not be accessed.
    #[inline(always)]
    pub fn advance(&mut self, index: u32, result: u32) -> Result<Option<Request>, Failure> {
        let slot = &self.slots[index as usize];
        let extent = slot.extent;
        let Some(direction) = slot.direction else {
            // The request was abandoned after its timeout.
            return Ok(None);
        };
        if result != ErrorCode::SUCCESS.0 {
            return Err(self.failed(index, direction, result));
        }
        if self.task.flush_every != 0 {
            if direction == Direction::Flush {
                self.flushes.record(slot.issued.elapsed());
            } else if direction == Direction::Write && self.is_flush_due() && !self.halted {
                return Ok(Some(self.issue(index, Direction::Flush, Instant::now())));
            }
        }
        let has_written = direction != Direction::Read;
        if has_written && self.task.strategy.reads() {
            if self.halted {
                self.abandon(index as usize);
                return Ok(None);
            }
            return self.issue_read(index, Instant::now()).map(Some);
        }
        if self.task.strategy.validates() {
            let validator = self.task.validator.as_mut();
            if let Some(mismatch) = validator
                .map_or(Ok(None), |validator| validator.verify(extent))
                .map_err(local_memory)?
            {
                self.abandon(index as usize);
                return Err(Failure::Mismatch(mismatch));
            }
        }
        let now = Instant::now();
        self.complete(index, now);
        self.begin(index, now)
    }

    #[cold]
    fn failed(&mut self, index: u32, direction: Direction, code: u32) -> Failure {
        let io = self.slots[index as usize].io(direction);
        self.abandon(index as usize);
        Failure::Io { io, code }
    }

    /// Counts a completed write, and returns `true` if a flush must follow.
    fn is_flush_due(&mut self) -> bool {
        self.until_flush -= 1;
        let is_due = self.until_flush == 0;
        if is_due {
            self.until_flush = self.task.flush_every;
        }
        is_due
    }

    #[inline(always)]
    fn complete(&mut self, index: u32, now: Instant) {
        let slot = &mut self.slots[index as usize];
        slot.direction = None;
        self.storage_places.give(slot.storage_place);
        self.local_places.give(slot.local_place);
        let latency = now.saturating_duration_since(slot.begin);
        self.latencies.record(latency);
        if let Some(metrics) = &self.metrics {
            metrics.record(latency);
        }
        self.bytes += u64::from(slot.extent.size);
        self.completed += 1;
        self.in_flight -= 1;
        self.end = now;
    }

    /// Ends a transaction without counting it. Its slots stay allocated, because the run has failed.
    fn abandon(&mut self, index: usize) {
        self.slots[index].direction = None;
        self.in_flight -= 1;
        self.halted = true;
    }
}

fn local_memory(error: doca::Error) -> Failure {
    Failure::Endpoint(EndpointError::Doca {
        doing: "using the local region",
        code: error.code,
    })
}

/// Parameters of a worker's transactions.
#[derive(Debug)]
pub struct Task {
    /// The worker's share of storage and local region.
    pub share: Share,
    /// Size of an I/O in bytes; the last one of the share may be smaller.
    pub io_size: u32,
    /// Selects reads, writes or both, with or without validation.
    pub strategy: Strategy,
    /// `Some` if the strategy validates.
    pub validator: Option<Validator>,
    /// Number of transactions to complete.
    pub operations: u32,
    /// Order in which the blocks are visited.
    pub order: AccessOrder,
    /// Number of writes per flush; 0 disables flushes.
    pub flush_every: u32,
    /// Timeout of an I/O.
    pub io_timeout: Duration,
    /// `true` if blocks have the same offset in the local region as in the storage, as in 3.0.
    pub is_mirrored: bool,
}

/// One transaction slot.
#[derive(Debug)]
struct Slot {
    /// `None` if no request is in flight.
    direction: Option<Direction>,
    storage_place: u32,
    local_place: u32,
    extent: Extent,
    /// Start of the transaction.
    begin: Instant,
    /// Submission time of the request in flight.
    issued: Instant,
}

impl Slot {
    fn io(&self, direction: Direction) -> Io {
        let Request {
            storage_offset,
            size,
            ..
        } = self.request(direction);
        Io {
            direction,
            storage_offset,
            size,
        }
    }

    /// Builds a request for the slot's blocks; a flush has no blocks.
    #[inline(always)]
    fn request(&self, direction: Direction) -> Request {
        let message_type = match direction {
            Direction::Read => IoMessageType::Read,
            Direction::Write => IoMessageType::Write,
            Direction::Flush => IoMessageType::Flush,
        };
        let is_flush = direction == Direction::Flush;
        let of_blocks = |value: u64| if is_flush { 0 } else { value };
        Request {
            message_type,
            storage_offset: of_blocks(self.extent.storage_offset),
            memory_offset: of_blocks(self.extent.local_offset),
            size: if is_flush { 0 } else { self.extent.size },
        }
    }
}

impl Transactions {
    /// Returns the failure of an I/O that has been in flight for longer than the timeout, if any. Checks every slot.
    #[must_use]
    pub fn overdue(&self, now: Instant) -> Option<Failure> {
        let after = self.task.io_timeout;
        let slot = self.slots.iter().find(|slot| {
            slot.direction.is_some() && now.saturating_duration_since(slot.issued) >= after
        })?;
        slot.direction.map(|direction| Failure::Timeout {
            io: slot.io(direction),
            after,
        })
    }

    /// Abandons I/Os that have exceeded their timeout, so that the run can end once the others have completed.
    pub fn abandon_overdue(&mut self, now: Instant) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.direction.is_some()
                && now.saturating_duration_since(slot.issued) >= self.task.io_timeout
            {
                self.abandon(index);
            }
        }
    }
}
