//! The transactions of one worker: the next request of each, and the handling of results. It has no contexts or tasks,
//! and does no I/O.
//!
//! A transaction is one read, one write, or a write followed by a read of the same blocks. It has one request in
//! flight at a time, whose number at the worker's endpoint is that of the transaction's slot.
//!
//! The functions on the path of every I/O are always inlined: as calls, they passed requests and extents through
//! memory, which took a fifth of the initiator's own time per I/O.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::{ErrorCode, PeStats};
use metrics::{Count, Counts, WorkerMetrics};
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

#[derive(Debug)]
pub struct Measurements {
    /// Number of bytes transferred by completed transactions.
    pub bytes: u64,
    /// Latencies of the completed transactions.
    pub latencies: Latencies,
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
                // At most as many slots are visited as there are operations, and the first slots are visited first.
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

    /// Stops the worker: transactions in flight complete, and no further ones begin.
    pub fn halt(&mut self) {
        self.halted = true;
    }

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
        // The number of transactions does not exceed the number of storage slots or local slots.
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

    /// Ends a transaction without counting it. Its slots remain allocated, because the run has failed.
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
    /// The worker's share of the storage and of the local region.
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
    pub io_timeout: Duration,
    /// `true` if blocks have the same offset in the local region as in the storage, as in 3.0.
    pub is_mirrored: bool,
}

#[derive(Debug)]
struct Slot {
    /// `None` if no request is in flight.
    direction: Option<Direction>,
    storage_place: u32,
    local_place: u32,
    extent: Extent,
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

#[cfg(test)]
mod tests {
    //! Transactions on a storage that is a vector, correct or with a selected fault.
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use doca::{ErrorCode, MemoryRegion};
    use volume::endpoint::Request as IoRequest;
    use wire::control::StorageDetails;
    use wire::io_message::IoMessageType;

    use super::{Task, Transactions};
    use crate::app::{AccessOrder, Strategy};
    use crate::data_path::content::{Content, Pattern, Validator};
    use crate::data_path::{Direction, Failure, Io, Mismatch};
    use crate::layout::{Layout, Request};

    const BLOCK: u32 = 512;
    const IO_TIMEOUT: Duration = Duration::from_secs(5);

    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// Writes succeed without effect.
        IgnoreWrites,
        /// Writes to each of these two blocks are stored in the other.
        SwapWrites(u64, u64),
        /// A block keeps the data of an earlier pass.
        Replay,
        /// Reads succeed without transferring data.
        IgnoreReads,
        /// Reads transfer all but the last byte.
        ShortReads,
    }

    struct Storage {
        bytes: Vec<u8>,
        previous: Vec<u8>,
        region: Arc<MemoryRegion>,
        fault: Fault,
        /// Offset and direction of every request, in order.
        log: Vec<(u64, IoMessageType)>,
    }

    impl Storage {
        fn serve(&mut self, request: IoRequest) -> u32 {
            self.log
                .push((request.storage_offset, request.message_type));
            let (size, local) = (request.size as usize, request.memory_offset as usize);
            let mut at = request.storage_offset as usize;
            match (request.message_type, self.fault) {
                (IoMessageType::Write, Fault::IgnoreWrites)
                | (IoMessageType::Read, Fault::IgnoreReads) => {}
                (IoMessageType::Write, fault) => {
                    if let Fault::SwapWrites(a, b) = fault {
                        let (a, b) = (
                            (a * u64::from(BLOCK)) as usize,
                            (b * u64::from(BLOCK)) as usize,
                        );
                        at = if at == a {
                            b
                        } else if at == b {
                            a
                        } else {
                            at
                        };
                    }
                    let mut data = vec![0; size];
                    self.region
                        .read(local, &mut data)
                        .expect("inside of the region");
                    self.previous[at..at + size].copy_from_slice(&self.bytes[at..at + size]);
                    self.bytes[at..at + size].copy_from_slice(&data);
                }
                (IoMessageType::Read, fault) => {
                    let source = if fault == Fault::Replay
                        && self.previous[at..at + size].iter().any(|byte| *byte != 0)
                    {
                        &self.previous
                    } else {
                        &self.bytes
                    };
                    let size = if fault == Fault::ShortReads {
                        size - 1
                    } else {
                        size
                    };
                    self.region
                        .write(local, &source[at..at + size])
                        .expect("inside of the region");
                }
                (IoMessageType::Flush, _) => {
                    assert_eq!((at, local, size), (0, 0, 0), "a flush is of no blocks");
                }
                (other, _) => panic!("the initiator sent a {other:?}"),
            }
            ErrorCode::SUCCESS.0
        }
    }

    /// Transactions of all workers on one storage.
    struct Sandbox {
        workers: Vec<Transactions>,
        storage: Storage,
    }

    #[derive(Clone)]
    struct Setup {
        strategy: Strategy,
        blocks: u64,
        local_blocks: u64,
        workers: u32,
        blocks_per_io: u16,
        transactions: u32,
        operations: u32,
        flush_every: u32,
        order: AccessOrder,
        plain: bool,
        is_mirrored: bool,
        fault: Fault,
    }

    const SETUP: Setup = Setup {
        strategy: Strategy::ReadWriteDataValidityTest,
        blocks: 32,
        local_blocks: 0,
        workers: 1,
        blocks_per_io: 1,
        transactions: 4,
        operations: 100,
        flush_every: 0,
        order: AccessOrder::Sequential,
        plain: false,
        is_mirrored: false,
        fault: Fault::None,
    };

    impl Setup {
        fn build(&self) -> Sandbox {
            let details = StorageDetails {
                total_size: self.blocks * u64::from(BLOCK),
                block_size: BLOCK,
            };
            let request = Request {
                workers: self.workers,
                blocks_per_io: self.blocks_per_io,
                local_region_size: self.local_blocks * u64::from(BLOCK),
                is_mirrored: self.is_mirrored,
                transactions: self.transactions,
                operations: self.operations,
            };
            let layout = Layout::new(&details, request).expect("a layout");
            let region = MemoryRegion::new(layout.region_size as usize).expect("memory");
            let plain: Arc<[u8]> = (0..layout.capacity)
                .map(|at| (at / 7 % 253) as u8)
                .collect();
            let content = if self.plain {
                Content::Plain(plain.clone())
            } else {
                Content::Pattern(Pattern::new(3))
            };
            let task = |share| Task {
                share,
                io_size: layout.io_size,
                strategy: self.strategy,
                validator: self
                    .strategy
                    .validates()
                    .then(|| Validator::new(content.clone(), region.clone(), BLOCK)),
                operations: self.operations,
                flush_every: self.flush_every,
                order: self.order,
                io_timeout: IO_TIMEOUT,
                is_mirrored: self.is_mirrored,
            };
            Sandbox {
                workers: layout
                    .shares
                    .iter()
                    .map(|share| Transactions::new(task(*share)))
                    .collect(),
                storage: Storage {
                    bytes: plain.to_vec(),
                    previous: vec![0; plain.len()],
                    region: region.clone(),
                    fault: self.fault,
                    log: Vec::new(),
                },
            }
        }

        fn run(&self) -> (Result<(), Failure>, Sandbox) {
            let mut sandbox = self.build();
            (sandbox.run(), sandbox)
        }
    }

    impl Sandbox {
        fn run(&mut self) -> Result<(), Failure> {
            for worker in 0..self.workers.len() {
                self.run_worker(worker)?;
            }
            Ok(())
        }

        /// Completes the newest request first.
        fn run_worker(&mut self, worker: usize) -> Result<(), Failure> {
            let transactions = &mut self.workers[worker];
            let mut pending = Vec::new();
            for index in 0..transactions.count() {
                let request = transactions.begin(index, Instant::now())?;
                pending.extend(request.map(|request| (index, request)));
            }
            while let Some((index, request)) = pending.pop() {
                let result = self.storage.serve(request);
                // Oldest first for a while, so that every slot is used.
                if let Some(next) = transactions.advance(index, result)? {
                    pending.insert(0, (index, next));
                }
            }
            assert!(transactions.at_rest());
            assert_eq!(transactions.completed(), transactions.operations());
            Ok(())
        }

        fn mismatch(result: Result<(), Failure>) -> Mismatch {
            match result {
                Err(Failure::Mismatch(mismatch)) => mismatch,
                other => panic!("expected a mismatch, got {other:?}"),
            }
        }
    }

    #[test]
    fn every_nth_write_counts_after_its_flush() {
        for (strategy, reads) in [
            (Strategy::WriteThroughputTest, 0),
            (Strategy::ReadWriteDataValidityTest, 100),
        ] {
            for (flush_every, flushes) in [(0, 0), (1, 100), (7, 14), (101, 0)] {
                let setup = Setup {
                    strategy,
                    flush_every,
                    order: AccessOrder::Scattered,
                    ..SETUP
                };
                let (result, sandbox) = setup.run();
                assert_eq!(result, Ok(()));
                let count = |kind| {
                    let log = sandbox.storage.log.iter();
                    log.filter(|(_, came)| *came == kind).count()
                };
                assert_eq!(count(IoMessageType::Flush), flushes, "{flush_every}");
                assert_eq!(count(IoMessageType::Write), 100);
                assert_eq!(count(IoMessageType::Read), reads);
                // A flush is submitted after N completed writes, so at least as many are in the log.
                let mut writes = 0;
                let mut seen = 0;
                for (_, kind) in &sandbox.storage.log {
                    match kind {
                        IoMessageType::Write => writes += 1,
                        IoMessageType::Flush => {
                            seen += 1;
                            assert!(writes >= seen * flush_every, "{writes} {seen}");
                        }
                        _ => {}
                    }
                }
                let transactions = sandbox.workers.into_iter().next().expect("a worker");
                assert_eq!(
                    transactions.into_measurements().flushes.count(),
                    flushes as u64
                );
            }
        }
    }

    // Results, timeouts and stopping.

    /// Slot 1 of two with its request in flight.
    fn one_read() -> (Transactions, IoRequest) {
        let setup = Setup {
            strategy: Strategy::ReadThroughputTest,
            transactions: 2,
            operations: 5,
            ..SETUP
        };
        let mut transactions = setup.build().workers.remove(0);
        let request = transactions
            .begin(1, Instant::now())
            .expect("begun")
            .expect("a request");
        (transactions, request)
    }

    const READ: Io = Io {
        direction: Direction::Read,
        storage_offset: 0,
        size: BLOCK,
    };

    #[test]
    fn an_error_result_names_the_io_and_the_code() {
        let (mut transactions, _) = one_read();
        let failure = transactions
            .advance(1, ErrorCode::IO_FAILED.0)
            .expect_err("an I/O error");
        let expected = Failure::Io {
            io: READ,
            code: ErrorCode::IO_FAILED.0,
        };
        assert_eq!(failure, expected);
        let text = failure.to_string();
        for part in ["read", "512", "offset 0", "DOCA_ERROR_IO_FAILED"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(transactions.at_rest());
        assert_eq!(transactions.completed(), 0);
    }

    #[test]
    fn an_io_is_overdue_after_its_own_timeout() {
        let (mut transactions, _) = one_read();
        let now = Instant::now();
        assert_eq!(transactions.overdue(now), None);
        assert_eq!(
            transactions.overdue(now + IO_TIMEOUT - Duration::from_secs(1)),
            None
        );
        let late = now + IO_TIMEOUT + Duration::from_secs(1);
        let expected = Failure::Timeout {
            io: READ,
            after: IO_TIMEOUT,
        };
        assert_eq!(transactions.overdue(late), Some(expected));
        transactions.abandon_overdue(late);
        assert!(transactions.at_rest());
    }

    #[test]
    fn late_completion_of_an_abandoned_io_is_not_counted() {
        for result in [ErrorCode::SUCCESS, ErrorCode::IO_FAILED] {
            let (mut transactions, _) = one_read();
            transactions.abandon_overdue(Instant::now() + IO_TIMEOUT * 2);
            assert!(transactions.at_rest());
            assert_eq!(transactions.advance(1, result.0), Ok(None));
            assert!(transactions.at_rest());
            assert_eq!(transactions.completed(), 0);
        }
    }

    #[test]
    fn halted_transactions_complete_requests_in_flight_only() {
        let mut bench = SETUP.build();
        let transactions = &mut bench.workers[0];
        let now = Instant::now();
        let first = transactions.begin(0, now).expect("begun").expect("a write");
        let second = transactions.begin(1, now).expect("begun").expect("a write");
        // When the run is stopped, the first transaction's read and the second one's write are in flight.
        let result = bench.storage.serve(first);
        let read = transactions.advance(0, result).expect("written");
        transactions.halt();
        assert!(!transactions.at_rest());
        assert_eq!(transactions.begin(2, now), Ok(None));
        let result = bench.storage.serve(second);
        assert_eq!(transactions.advance(1, result), Ok(None), "no read follows");
        let read = read.expect("a read follows the write");
        let result = bench.storage.serve(read);
        assert_eq!(transactions.advance(0, result), Ok(None));
        assert!(transactions.at_rest());
        assert_eq!(transactions.completed(), 1);
    }

    #[test]
    fn memory_of_mirrored_blocks_is_at_their_offset_in_the_storage() {
        for is_mirrored in [false, true] {
            let setup = Setup {
                strategy: Strategy::ReadThroughputTest,
                operations: 20,
                is_mirrored,
                ..SETUP
            };
            let mut transactions = setup.build().workers.remove(0);
            let mut offsets = Vec::new();
            let mut next = transactions.begin(0, Instant::now()).expect("begun");
            while let Some(request) = next {
                let expected = if is_mirrored {
                    request.storage_offset
                } else {
                    0
                };
                assert_eq!(request.memory_offset, expected);
                offsets.push(request.storage_offset);
                next = transactions.advance(0, 0).expect("read");
            }
            offsets.dedup();
            assert_eq!(offsets.len(), 20);
        }
    }

    // Order of the visited blocks, and detection of a storage's faults.

    #[test]
    fn a_correct_storage_passes_every_strategy() {
        for strategy in [
            Strategy::ReadThroughputTest,
            Strategy::WriteThroughputTest,
            Strategy::ReadWriteDataValidityTest,
            Strategy::ReadOnlyDataValidityTest,
        ] {
            for plain in [true, strategy == Strategy::ReadOnlyDataValidityTest] {
                let (result, sandbox) = Setup {
                    strategy,
                    plain,
                    ..SETUP
                }
                .run();
                assert_eq!(result, Ok(()), "{strategy:?}");
                let io_count = sandbox.storage.log.len();
                assert_eq!(
                    io_count,
                    if strategy.reads() && strategy.writes() {
                        200
                    } else {
                        100
                    },
                    "{strategy:?}"
                );
            }
        }
    }

    #[test]
    fn every_block_is_visited_in_order_by_exactly_one_worker() {
        for workers in 1..=3 {
            for blocks in [7, 8, 31, 32] {
                for blocks_per_io in [1, 2, 3] {
                    for local_blocks in [0, 3 * u64::from(blocks_per_io), 10] {
                        // Enough operations that each worker visits its share twice.
                        let setup = Setup {
                            strategy: Strategy::ReadThroughputTest,
                            workers,
                            blocks,
                            blocks_per_io,
                            local_blocks,
                            operations: blocks as u32 * 2,
                            transactions: 2,
                            ..SETUP
                        };
                        let what = format!(
                            "{workers} workers, {blocks} blocks, {blocks_per_io} per I/O, {local_blocks} local"
                        );
                        let request = Request {
                            workers,
                            blocks_per_io,
                            local_region_size: local_blocks * u64::from(BLOCK),
                            is_mirrored: false,
                            transactions: 2,
                            operations: 1,
                        };
                        let details = StorageDetails {
                            total_size: blocks * u64::from(BLOCK),
                            block_size: BLOCK,
                        };
                        if Layout::new(&details, request).is_err() {
                            continue;
                        }
                        let (result, sandbox) = setup.run();
                        assert_eq!(result, Ok(()), "{what}");
                        let io = u64::from(BLOCK) * u64::from(blocks_per_io);
                        let ios = (blocks * u64::from(BLOCK)).div_ceil(io);
                        let mut visits = vec![0; ios as usize];
                        for (offset, _) in &sandbox.storage.log {
                            visits[(offset / io) as usize] += 1;
                        }
                        assert!(visits.iter().all(|count| *count >= 2), "{what}: {visits:?}");
                        // The workers run one after the other in this test, so the first visits are in the order of the
                        // storage.
                        let mut seen = std::collections::HashSet::new();
                        let first: Vec<_> = sandbox
                            .storage
                            .log
                            .iter()
                            .map(|(at, _)| at)
                            .filter(|at| seen.insert(**at))
                            .collect();
                        // Two requests are in flight at a time, and the newest is completed first.
                        assert!(
                            first
                                .iter()
                                .enumerate()
                                .all(|(at, offset)| (**offset / io).abs_diff(at as u64) <= 2),
                            "{what}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn last_io_is_short_if_blocks_per_io_does_not_divide() {
        let setup = Setup {
            blocks: 10,
            blocks_per_io: 4,
            operations: 9,
            plain: true,
            ..SETUP
        };
        let mut sandbox = setup.build();
        assert_eq!(sandbox.run(), Ok(()));
        let bytes = sandbox.workers.remove(0).into_measurements().bytes;
        assert_eq!(bytes, 3 * 10 * u64::from(BLOCK));
    }

    #[test]
    fn ignored_writes_are_detected_at_the_first_block() {
        for seed_of_faulty_content in [0, 1] {
            let setup = Setup {
                fault: Fault::IgnoreWrites,
                ..SETUP
            };
            let mut sandbox = setup.build();
            sandbox.storage.bytes.fill(seed_of_faulty_content);
            let mismatch = Sandbox::mismatch(sandbox.run());
            assert_eq!(
                (mismatch.actual, mismatch.pass),
                (seed_of_faulty_content, Some(1))
            );
            assert!(mismatch.offset < 2, "{mismatch}");
        }
    }

    #[test]
    fn swapped_blocks_are_detected() {
        let (result, _) = Setup {
            fault: Fault::SwapWrites(5, 9),
            ..SETUP
        }
        .run();
        let mismatch = Sandbox::mismatch(result);
        assert!([5, 9].contains(&mismatch.block), "{mismatch}");
    }

    #[test]
    fn replayed_pass_is_detected_in_the_second_pass() {
        let mut sandbox = Setup {
            fault: Fault::Replay,
            ..SETUP
        }
        .build();
        sandbox.storage.bytes.fill(0);
        let mismatch = Sandbox::mismatch(sandbox.run());
        assert_eq!(mismatch.pass, Some(2), "{mismatch}");

        let mut sandbox = Setup {
            fault: Fault::Replay,
            operations: 32,
            ..SETUP
        }
        .build();
        sandbox.storage.bytes.fill(0);
        assert_eq!(
            sandbox.run(),
            Ok(()),
            "one pass cannot tell, which is why several are run"
        );
    }

    #[test]
    fn reads_that_transfer_too_little_are_detected() {
        for plain in [true, false] {
            let (result, _) = Setup {
                fault: Fault::IgnoreReads,
                plain,
                ..SETUP
            }
            .run();
            assert_eq!(Sandbox::mismatch(result).offset, 0);
            let (result, _) = Setup {
                fault: Fault::ShortReads,
                plain,
                ..SETUP
            }
            .run();
            assert_eq!(Sandbox::mismatch(result).offset, u64::from(BLOCK) - 1);
        }
    }

    #[test]
    fn read_only_validation_finds_one_flipped_byte() {
        let setup = Setup {
            strategy: Strategy::ReadOnlyDataValidityTest,
            plain: true,
            blocks_per_io: 4,
            ..SETUP
        };
        let mut sandbox = setup.build();
        let spot = 21 * BLOCK as usize + 77;
        let good = sandbox.storage.bytes[spot];
        sandbox.storage.bytes[spot] ^= 0x80;
        let mismatch = Sandbox::mismatch(sandbox.run());
        let expected = Mismatch {
            block: 21,
            offset: 77,
            storage_offset: spot as u64,
            expected: good,
            actual: good ^ 0x80,
            pass: None,
        };
        assert_eq!(mismatch, expected);
    }
}
