//! The data path of one worker thread: submits requests, handles their completions, and keeps all transactions in flight.
//!
//! * [`Failure`], [`Mismatch`]: failures of a run
//! * [`Content`], [`Validator`]: expected contents of blocks, and the comparison of memory with them
//! * [`Transactions`]: the state of the transactions, without contexts
//! * [`Worker`]: the loop over the completions of its requests ([`volume::endpoint`])
//!
//! Per I/O there is no allocation, no lock, no log and no system call made by this crate; the clock is read once.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
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
        io: Io,
        /// `doca_error_t` of the result.
        code: u32,
    },
    /// An I/O has no result after the timeout.
    #[error("{io} was not answered within --io-timeout {} s", .after.as_secs_f64())]
    Timeout { io: Io, after: Duration },
    /// The exchange of messages with the service failed.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The run was stopped before all operations had completed.
    #[error("halted after {completed} of {expected} operations")]
    Halted { completed: u64, expected: u64 },
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

impl From<Failure> for control::Failure {
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
) -> Result<AnyWorker, control::Failure> {
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

#[derive(Debug)]
pub struct Outcome {
    /// Measurements, until the failure if there was one.
    pub statistics: WorkerStatistics,
    /// The first failure.
    pub failure: Option<Failure>,
}

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
    ) -> Result<Self, control::Failure> {
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

    fn execute(&mut self, command: Command) -> Result<bool, control::Failure> {
        match command {
            Command::Ready => Ok(self.endpoint.ready()),
            Command::Prepare { consumer } => self.endpoint.prepare(consumer).map(|()| true),
        }
    }

    fn run(&mut self, run: &RunFlag) -> Result<Outcome, control::Failure> {
        let Some(transactions) = self.transactions.take() else {
            return Err(control::Failure::new(
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

    /// Work that is not required for every completion: publishes counters, stops the run when requested, and checks
    /// timeouts.
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

#[derive(Debug)]
struct Run<L> {
    lane: Lane,
    layout: L,
    transactions: Transactions,
    failure: Option<Failure>,
    /// `true` if the contexts can no longer be used, so that requests in flight cannot complete.
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
