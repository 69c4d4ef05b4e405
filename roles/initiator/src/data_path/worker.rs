//! The endpoint of one worker, and the loop over its completions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use role_common::worker::{DataPath, RunFlag};
use volume::endpoint::{Client, Contexts, Endpoint, EndpointError, Lane};
use volume::requests::{BadAnswer, Completed, Request};
use wire::io_message::SIZE;
use wire::release::{IoLayout, Release, Release3_0, Release3_1, Release3_2};

use super::failure::Failure;
use super::transactions::{Measurements, Task, Transactions};
use crate::progress::Counter;
use crate::statistics::WorkerStatistics;

/// Turns of the loop between two looks at the clock: few where nothing happened, because the progress engine may have slept.
/// A busy one completes up to a few tasks for each context.
const IDLE_TURNS: u32 = 16;
const BUSY_TURNS: u32 = 256;

/// Bounds of the time between two checks for I/Os that are overdue.
const CHECK_INTERVAL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// What a worker does before and after its run.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// Progresses the contexts; the reply says whether all of them run.
    Ready,
    /// Makes the tasks, with the consumer of the service that they send to.
    Prepare {
        /// Its id.
        consumer: u32,
    },
}

/// A worker, whatever its I/O messages.
pub type AnyWorker = Box<dyn DataPath<Command = Command, Reply = bool, Report = Outcome>>;

/// Which I/O messages a worker sends.
#[derive(Clone, Copy, Debug)]
pub struct Messaging {
    /// The release that they are of.
    pub release: Release,
    /// The address of the local region, which those of 3.0 are relative to.
    pub local_address: u64,
}

/// Creates a worker, as [`Worker::new`]. How it writes messages is settled here, once.
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

/// How a run went.
#[derive(Debug)]
pub struct Outcome {
    /// What was measured, until the failure if there was one.
    pub statistics: WorkerStatistics,
    /// The first failure.
    pub failure: Option<Failure>,
}

/// One worker's data path.
#[derive(Debug)]
pub struct Worker<L> {
    endpoint: Endpoint<Run<L>>,
    layout: L,
    /// Taken by the run.
    transactions: Option<Transactions>,
    counter: Arc<Counter>,
    check_interval: Duration,
}

impl<L: IoLayout> Worker<L> {
    /// Creates and starts the contexts. They run once [`Command::Ready`] says so.
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

    /// Work that is not needed for every completion: counters, the end of the run, overdue I/Os.
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
    /// `true` if the contexts are of no further use, so that nothing in flight can end.
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

    /// Keeps the first failure, and lets the run come to rest.
    #[cold]
    fn fail(&mut self, failure: Failure) {
        self.transactions.halt();
        // A transaction that could not go on for a local reason never ends.
        self.broken |= matches!(failure, Failure::Endpoint(EndpointError::Doca { .. }));
        self.failure.get_or_insert(failure);
    }
}
