//! The data path of one worker thread: submits requests, handles their completions, and keeps all transactions in flight.
//!
//! * [`Failure`], [`Mismatch`]: failures of a run
//! * [`Content`], [`Validator`]: expected contents of blocks, and the comparison of memory with them
//! * [`Transactions`]: the state of the transactions, without contexts
//! * [`Worker`]: the loop over the completions of its requests ([`volume::endpoint`])
//!
//! Per I/O there is no allocation, no lock, no log and no system call of this crate's; the clock is read once.

mod content;
mod transactions;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use role_common::worker::{DataPath, RunFlag};
use serde::Serialize;
use thiserror::Error;
use volume::endpoint::{
    BadAnswer, Client, Completed, Contexts, Endpoint, EndpointError, Lane, Request,
};
use wire::io_message::SIZE;
use wire::release::{IoLayout, Release, Release3_0, Release3_1, Release3_2};

use crate::statistics::WorkerStatistics;
use crate::workers::Counter;

pub use content::{Content, Extent, Pattern, Validator};
pub use transactions::{Measurements, Task, Transactions};

/// First byte of a block that differs from the expected data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Number of the block in the storage.
    pub block: u64,
    /// Offset of the byte in the block, in bytes.
    pub offset: u64,
    /// Offset of the byte in the storage, in bytes.
    pub storage_offset: u64,
    /// Expected value of the byte.
    pub expected: u8,
    /// Actual value of the byte.
    pub actual: u8,
    /// Number of times that this run had written the block, in a test that writes.
    pub pass: Option<u32>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            block,
            offset,
            storage_offset,
            expected,
            actual,
            pass,
        } = self;
        write!(
            f,
            "block {block}, byte offset {offset}: expected 0x{expected:02x}, actual 0x{actual:02x} (storage offset {storage_offset}"
        )?;
        if let Some(pass) = pass {
            write!(f, ", pass {pass}")?;
        }
        f.write_str(")")
    }
}

/// Operation of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the storage.
    Read,
    /// To the storage.
    Write,
    /// Makes completed writes durable.
    Flush,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        })
    }
}

/// An I/O, for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Operation.
    pub direction: Direction,
    /// Offset in the storage in bytes.
    pub storage_offset: u64,
    /// Size in bytes.
    pub size: u32,
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.direction == Direction::Flush {
            return self.direction.fmt(f);
        }
        write!(
            f,
            "{} of {} bytes at storage offset {}",
            self.direction, self.size, self.storage_offset
        )
    }
}

/// Failure of a data path.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// The contents of a block differ from the expected data.
    #[error("the data read from the storage is not as expected: {0}")]
    Mismatch(Mismatch),
    /// The storage completed an I/O with an error.
    #[error("{io} failed: {} ({})", ErrorCode(*.code).name(), .code)]
    Io {
        /// Failed I/O.
        io: Io,
        /// `doca_error_t` of the result.
        code: u32,
    },
    /// An I/O has no result after the timeout.
    #[error("{io} was not answered within --io-timeout {} s", .after.as_secs_f64())]
    Timeout {
        /// Unanswered I/O.
        io: Io,
        /// Timeout.
        after: Duration,
    },
    /// The exchange of messages with the service failed.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The run was stopped before all operations had completed.
    #[error("halted after {completed} of {expected} operations")]
    Halted {
        /// Completed operations.
        completed: u64,
        /// Requested operations.
        expected: u64,
    },
}

impl Failure {
    /// Returns `true` for a result about the storage, rather than about the connection or a consequence of another failure.
    #[must_use]
    pub const fn is_verdict(&self) -> bool {
        matches!(
            self,
            Self::Mismatch(_)
                | Self::Io { .. }
                | Self::Timeout { .. }
                | Self::Endpoint(EndpointError::Answer(_))
        )
    }

    /// The first wrong byte, if the failure is a mismatch.
    #[must_use]
    pub const fn mismatch(&self) -> Option<Mismatch> {
        match self {
            Self::Mismatch(mismatch) => Some(*mismatch),
            _ => None,
        }
    }
}

impl From<Failure> for role_common::Failure {
    fn from(failure: Failure) -> Self {
        let code = match &failure {
            Failure::Io { code, .. } => ErrorCode(*code),
            Failure::Endpoint(EndpointError::Doca { code, .. }) => *code,
            Failure::Timeout { .. } => ErrorCode::TIME_OUT,
            Failure::Mismatch(_) => ErrorCode::IO_FAILED,
            Failure::Endpoint(EndpointError::Answer(_)) => ErrorCode::UNEXPECTED,
            Failure::Halted { .. } => ErrorCode::CONNECTION_ABORTED,
        };
        Self::new(code, failure.to_string())
    }
}

/// Poll iterations between clock reads: few while idle, because the progress engine may have slept. A busy iteration
/// completes up to a few tasks of each context.
const IDLE_TURNS: u32 = 16;
const BUSY_TURNS: u32 = 256;

/// Bounds of the interval between checks for I/Os that exceed their timeout.
const CHECK_INTERVAL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Command to a worker before its run.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// Makes progress; the reply is `true` once all contexts are running.
    Ready,
    /// Allocates the tasks.
    Prepare {
        /// Id of the service's consumer that requests are sent to.
        consumer: u32,
    },
}

/// A worker for any release's I/O messages.
pub type AnyWorker = Box<dyn DataPath<Command = Command, Reply = bool, Report = Outcome>>;

/// Format of a worker's I/O messages.
#[derive(Clone, Copy, Debug)]
pub struct Messaging {
    /// Release of the protocol.
    pub release: Release,
    /// Address of the local region: addresses in messages of 3.0 are relative to it.
    pub local_address: u64,
}

/// Creates a worker for the message format of the release; see [`Worker::new`].
///
/// # Errors
/// A DOCA call failed.
pub fn create(
    contexts: &Contexts,
    task: Task,
    messaging: Messaging,
    counter: Arc<Counter>,
) -> Result<AnyWorker, role_common::Failure> {
    Ok(match messaging.release {
        Release::V3_0 => {
            let layout = Release3_0 {
                requester_address: messaging.local_address,
            };
            Box::new(Worker::new(contexts, task, layout, counter)?)
        }
        Release::V3_1 => Box::new(Worker::new(contexts, task, Release3_1, counter)?),
        Release::V3_2 => Box::new(Worker::new(contexts, task, Release3_2, counter)?),
    })
}

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Measurements, until the failure if there was one.
    pub statistics: WorkerStatistics,
    /// The first failure.
    pub failure: Option<Failure>,
}

/// One worker's data path.
#[derive(Debug)]
pub struct Worker<L> {
    endpoint: Endpoint<Run<L>>,
    layout: L,
    /// `None` once the run has started.
    transactions: Option<Transactions>,
    counter: Arc<Counter>,
    check_interval: Duration,
}

impl<L: IoLayout> Worker<L> {
    /// Creates and starts the contexts. [`Command::Ready`] reports when they are running.
    ///
    /// # Errors
    /// A DOCA call failed.
    pub fn new(
        contexts: &Contexts,
        task: Task,
        layout: L,
        counter: Arc<Counter>,
    ) -> Result<Self, role_common::Failure> {
        let count = task.share.transactions;
        let (least, most) = CHECK_INTERVAL;
        let check_interval = (task.io_timeout / 20).clamp(least, most);
        Ok(Self {
            endpoint: Endpoint::new(contexts, count)?,
            layout,
            transactions: Some(Transactions::new(task).with_metrics(counter.metrics().cloned())),
            counter,
            check_interval,
        })
    }
}

impl<L: IoLayout> DataPath for Worker<L> {
    type Command = Command;
    type Reply = bool;
    type Report = Outcome;

    fn execute(&mut self, command: Command) -> Result<bool, role_common::Failure> {
        match command {
            Command::Ready => Ok(self.endpoint.ready()),
            Command::Prepare { consumer } => self.endpoint.prepare(consumer).map(|()| true),
        }
    }

    fn run(&mut self, run: &RunFlag) -> Result<Outcome, role_common::Failure> {
        let Some(transactions) = self.transactions.take() else {
            return Err(role_common::Failure::new(
                ErrorCode::BAD_STATE,
                "the transactions of this worker have run already",
            ));
        };
        let before = self.endpoint.stats();
        let mut running = Run {
            lane: Lane::default(),
            layout: self.layout,
            transactions,
            failure: None,
            broken: false,
        };
        self.drive(&mut running, run);
        let Run {
            lane,
            transactions,
            failure,
            ..
        } = running;
        self.endpoint.end(lane);
        self.counter.publish(transactions.completed());
        transactions.publish(self.endpoint.stats());
        let failure = failure.or_else(|| {
            let (completed, expected) = (transactions.completed(), transactions.operations());
            (completed < expected).then(|| Failure::Halted {
                completed: completed.into(),
                expected: expected.into(),
            })
        });
        let operation_count = u64::from(transactions.completed());
        let Measurements {
            bytes,
            latencies,
            flushes,
            end,
        } = transactions.into_measurements();
        let after = self.endpoint.stats();
        let statistics = WorkerStatistics {
            operation_count,
            bytes,
            pe_hit_count: after.hits - before.hits,
            pe_miss_count: after.misses - before.misses,
            latencies,
            flushes,
            end,
        };
        Ok(Outcome {
            statistics,
            failure,
        })
    }
}

impl<L: IoLayout> Worker<L> {
    fn drive(&mut self, running: &mut Run<L>, run: &RunFlag) {
        match self.endpoint.begin() {
            Ok(lane) => running.lane = lane,
            Err(error) => return running.fail(error.into()),
        }
        running.begin();
        let mut next_check = Instant::now() + self.check_interval;
        let (mut idle, mut busy) = (0, 0);
        while !running.transactions.at_rest() && !running.broken {
            if self.endpoint.poll(running) {
                busy += 1;
            } else {
                idle += 1;
            }
            if idle < IDLE_TURNS && busy < BUSY_TURNS {
                continue;
            }
            (idle, busy) = (0, 0);
            let now = Instant::now();
            if now >= next_check {
                next_check = now + self.check_interval;
                self.check(running, run, now);
            }
        }
    }

    /// Work that is not done for every completion: publishes counters, stops the run when requested, and checks timeouts.
    #[cold]
    fn check(&mut self, running: &mut Run<L>, run: &RunFlag, now: Instant) {
        self.counter.publish(running.transactions.completed());
        running.transactions.publish(self.endpoint.stats());
        if !run.is_set() {
            running.transactions.halt();
            running.broken |= self.counter.is_abandoned();
        }
        if let Some(failure) = running.transactions.overdue(now) {
            running.fail(failure);
            running.transactions.abandon_overdue(now);
        }
    }
}

/// A run in progress.
#[derive(Debug)]
struct Run<L> {
    lane: Lane,
    layout: L,
    transactions: Transactions,
    failure: Option<Failure>,
    /// `true` if the contexts cannot be used any more, so that requests in flight cannot complete.
    broken: bool,
}

impl<L: IoLayout> Client for Run<L> {
    #[inline(always)]
    fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    #[inline(always)]
    fn answered(
        &mut self,
        bytes: &[u8; SIZE],
        length: usize,
    ) -> Result<Option<Completed>, BadAnswer> {
        self.lane.answered(self.layout, bytes, length)
    }

    #[inline(always)]
    fn completed(&mut self, request: Completed) {
        match self.transactions.advance(request.number, request.result) {
            Ok(Some(next)) => self.send(request.number, &next),
            Ok(None) => {}
            Err(failure) => self.fail(failure),
        }
    }

    #[cold]
    fn failed(&mut self, error: EndpointError) {
        self.fail(error.into());
    }
}

impl<L: IoLayout> Run<L> {
    fn begin(&mut self) {
        let now = Instant::now();
        for index in 0..self.transactions.count() {
            match self.transactions.begin(index, now) {
                Ok(Some(request)) => self.send(index, &request),
                Ok(None) => return,
                Err(failure) => return self.fail(failure),
            }
        }
    }

    #[inline(always)]
    fn send(&mut self, index: u32, request: &Request) {
        if let Err(error) = self.lane.send(self.layout, index, request) {
            self.fail(error.into());
        }
    }

    /// Stores the first failure, and stops the transactions.
    #[cold]
    fn fail(&mut self, failure: Failure) {
        self.transactions.halt();
        // A transaction that could not continue for a local reason never completes.
        self.broken |= matches!(failure, Failure::Endpoint(EndpointError::Doca { .. }));
        self.failure.get_or_insert(failure);
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

    use super::content::{Content, Pattern, Validator};
    use super::transactions::{Task, Transactions};
    use super::{Direction, Failure, Io, Mismatch};
    use crate::app::{AccessOrder, Strategy};
    use crate::layout::{Layout, Request};

    const BLOCK: u32 = 512;
    const IO_TIMEOUT: Duration = Duration::from_secs(5);

    /// Fault of a storage.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// Writes succeed without effect.
        IgnoreWrites,
        /// Writes to each of these two blocks are stored in the other.
        SwapWrites(u64, u64),
        /// A block keeps the data of an earlier pass.
        Replay,
        /// Reads succeed and transfer nothing.
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
        for part in ["read of 512 bytes", "offset 0", "DOCA_ERROR_IO_FAILED"] {
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
        // The first transaction's read is in flight when the run is stopped, and the second one's write.
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
                        // The workers run one after the other here, so the first visits are in the order of the storage.
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
