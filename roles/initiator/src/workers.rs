//! The workers of a session, as seen from the main thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use role_common::Failure;
use role_common::metrics::Metrics;
use role_common::shutdown::Waker;
use role_common::worker::Worker;
use volume::endpoint::Contexts;

use crate::data_path::{self, AnyWorker, Command, Messaging, Task};
use crate::progress::Counter;
use crate::statistics::WorkerStatistics;

/// Result of polling the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The contexts of all workers are running.
    Ready,
    /// The data paths of all workers have stopped.
    Finished,
}

/// All workers of a session.
#[derive(Debug)]
pub struct Workers {
    /// One per `--cpu`, until all workers are created.
    cpus: Vec<u32>,
    waker: Waker,
    /// Timeout of a worker's command.
    within: Duration,
    workers: Vec<Worker<AnyWorker>>,
    counters: Vec<Arc<Counter>>,
    creation: Option<Creation>,
    started: Option<Instant>,
    finished: bool,
    statistics: Vec<WorkerStatistics>,
    failure: Option<data_path::Failure>,
}

/// State of the creation of workers.
#[derive(Debug)]
struct Creation {
    contexts: Contexts,
    messaging: Messaging,
    /// Remaining tasks, in reverse order.
    tasks: Vec<Task>,
}

impl Workers {
    /// Creates the set, without workers; there will be one for each of `cpus`.
    #[must_use]
    pub fn new(cpus: Vec<u32>, waker: Waker, within: Duration, metrics: &Metrics) -> Self {
        let counter = |&cpu: &u32| Arc::new(Counter::new(metrics.worker(cpu)));
        let counters = cpus.iter().map(counter).collect();
        Self {
            cpus,
            waker,
            within,
            workers: Vec::new(),
            counters,
            creation: None,
            started: None,
            finished: false,
            statistics: Vec::new(),
            failure: None,
        }
    }

    /// Progress counters of the workers.
    #[must_use]
    pub fn counters(&self) -> Vec<Arc<Counter>> {
        self.counters.clone()
    }

    /// Starts to create the workers; [`Workers::poll`] continues.
    ///
    /// # Errors
    /// The first worker could not be created.
    pub fn create(
        &mut self,
        contexts: Contexts,
        messaging: Messaging,
        mut tasks: Vec<Task>,
    ) -> Result<(), Failure> {
        tasks.reverse();
        let mut creation = Creation {
            contexts,
            messaging,
            tasks,
        };
        self.create_next(&mut creation)?;
        self.creation = Some(creation);
        Ok(())
    }

    /// Creates workers one at a time, each after the previous one's contexts are running: the service assigns
    /// consumers to its workers in order of creation.
    fn create_next(&mut self, creation: &mut Creation) -> Result<bool, Failure> {
        let Some(task) = creation.tasks.pop() else {
            return Ok(false);
        };
        let index = self.workers.len();
        let (contexts, counter) = (creation.contexts.clone(), Arc::clone(&self.counters[index]));
        let messaging = creation.messaging;
        let create = move || data_path::create(&contexts, task, messaging, counter);
        self.workers.push(Worker::spawn(
            index as u32,
            self.cpus[index],
            self.waker.clone(),
            self.within,
            create,
        )?);
        Ok(true)
    }

    /// Makes the workers allocate their tasks, each for the service's consumer with its index.
    ///
    /// # Errors
    /// A worker failed to.
    pub fn prepare(&mut self, consumers: &[u32]) -> Result<(), Failure> {
        for (worker, &consumer) in self.workers.iter_mut().zip(consumers) {
            worker.execute(Command::Prepare { consumer }, self.within)?;
        }
        Ok(())
    }

    /// Starts all data paths.
    ///
    /// # Errors
    /// A worker has exited. Those started before it are running.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.started = Some(Instant::now());
        self.workers.iter_mut().try_for_each(Worker::start)
    }

    /// Stops all data paths: after completing I/Os in flight with `drain`, otherwise at once, for an unresponsive
    /// service.
    pub fn halt(&self, drain: bool) {
        if !drain {
            self.counters.iter().for_each(|counter| counter.abandon());
        }
        self.workers.iter().for_each(Worker::request_stop);
    }

    /// Destroys all workers and their contexts.
    pub fn destroy(&mut self) {
        self.creation = None;
        self.workers.clear();
    }

    /// Returns `true` if [`Workers::poll`] must be called again soon, because the polled state does not wake the main
    /// thread.
    #[must_use]
    pub const fn is_polled(&self) -> bool {
        self.creation.is_some()
    }

    /// Polls the workers.
    ///
    /// # Errors
    /// A worker could not be created, or has exited without a result. The other workers continue.
    pub fn poll(&mut self) -> Result<Option<Event>, Failure> {
        if let Some(creation) = self.creation.take() {
            return self.poll_creation(creation);
        }
        if self.started.is_none() || self.finished {
            return Ok(None);
        }
        for index in 0..self.workers.len() {
            if !self.workers[index].is_running() {
                continue;
            }
            if let Some(outcome) = self.workers[index].poll()? {
                self.finished_one(outcome);
            }
        }
        if self.workers.iter().any(Worker::is_running) {
            return Ok(None);
        }
        self.finished = true;
        Ok(Some(Event::Finished))
    }

    fn poll_creation(&mut self, mut creation: Creation) -> Result<Option<Event>, Failure> {
        let Some(newest) = self.workers.last_mut() else {
            return Ok(None);
        };
        if newest.execute(Command::Ready, self.within)? && !self.create_next(&mut creation)? {
            return Ok(Some(Event::Ready));
        }
        self.creation = Some(creation);
        Ok(None)
    }

    fn finished_one(&mut self, outcome: data_path::Outcome) {
        self.statistics.push(outcome.statistics);
        let Some(failure) = outcome.failure else {
            return;
        };
        // One worker's failure stops all; their later failures are consequences.
        self.halt(true);
        match &self.failure {
            Some(known) if known.is_verdict() || !failure.is_verdict() => {
                tracing::debug!("a further failure: {failure}")
            }
            _ => self.failure = Some(failure),
        }
    }

    /// Failure of the run, if any.
    #[must_use]
    pub const fn failure(&self) -> Option<&data_path::Failure> {
        self.failure.as_ref()
    }

    /// Start of the run and measurements of the workers, if all of them completed it or were halted before.
    #[must_use]
    pub fn measurements(&self) -> Option<(Instant, &[WorkerStatistics])> {
        let measured = matches!(self.failure, None | Some(data_path::Failure::Halted { .. }));
        let all = self.finished && self.statistics.len() == self.cpus.len();
        self.started
            .filter(|_| measured && all)
            .map(|start| (start, self.statistics.as_slice()))
    }
}
