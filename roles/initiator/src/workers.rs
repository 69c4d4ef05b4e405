//! The workers of a session, as used by the main thread, and the display of their progress.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use control::Failure;
use control::shutdown::Waker;
use indicatif::ProgressBar;
use metrics::{Metrics, WorkerMetrics};
use role_common::errln;
use role_common::worker::Worker;
use volume::endpoint::Contexts;

use crate::app::ProgressMode;
use crate::data_path::{self, AnyWorker, Command, Messaging, Task};
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
    /// One CPU per `--cpu`, until all workers are created.
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
    /// Creates the set without workers; one for each of `cpus` is created later.
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
    /// A worker failed to allocate them.
    pub fn prepare(&mut self, consumers: &[u32]) -> Result<(), Failure> {
        for (worker, &consumer) in self.workers.iter_mut().zip(consumers) {
            worker.execute(Command::Prepare { consumer }, self.within)?;
        }
        Ok(())
    }

    /// Starts all data paths.
    ///
    /// # Errors
    /// A worker has exited. Data paths that were started before it are running.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.started = Some(Instant::now());
        self.workers.iter_mut().try_for_each(Worker::start)
    }

    /// Stops all data paths: after completing I/Os in flight with `drain`, otherwise immediately, for an unresponsive
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
        // The failure of one worker stops all; their later failures are consequences.
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

    /// Start of the run and measurements of the workers, if all of them have completed it or were halted.
    #[must_use]
    pub fn measurements(&self) -> Option<(Instant, &[WorkerStatistics])> {
        let measured = matches!(self.failure, None | Some(data_path::Failure::Halted { .. }));
        let all = self.finished && self.statistics.len() == self.cpus.len();
        self.started
            .filter(|_| measured && all)
            .map(|start| (start, self.statistics.as_slice()))
    }
}

/// Interval between reads of the workers' counters.
pub const REFRESH: Duration = Duration::from_millis(100);

/// Interval between lines if lines cannot be overwritten.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// State shared by a worker and the main thread during a run, on separate cache lines to avoid false sharing with other
/// workers.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter {
    completed: AtomicU32,
    abandoned: AtomicBool,
    /// Present with `--metrics`.
    metrics: Option<Arc<WorkerMetrics>>,
}

impl Counter {
    /// Creates a counter, with the worker's metrics if it has any.
    #[must_use]
    pub fn new(metrics: Option<Arc<WorkerMetrics>>) -> Self {
        Self {
            metrics,
            ..Self::default()
        }
    }

    /// Metrics to publish to, with `--metrics`.
    #[inline]
    #[must_use]
    pub fn metrics(&self) -> Option<&Arc<WorkerMetrics>> {
        self.metrics.as_ref()
    }

    /// Publishes the number of completed operations; not called per operation.
    pub fn publish(&self, completed: u32) {
        self.completed.store(completed, Ordering::Relaxed);
    }

    /// Last published number.
    #[must_use]
    pub fn completed(&self) -> u32 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Marks the service as unresponsive: a halted run then does not wait for I/Os in flight.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if [`Counter::abandon`] was called.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// The progress line.
#[derive(Debug)]
pub struct Progress {
    counters: Vec<Arc<Counter>>,
    total: u64,
    display: Display,
}

#[derive(Debug)]
enum Display {
    None,
    Bar(ProgressBar),
    Lines { begin: Instant, next: Instant },
}

impl Progress {
    /// Creates a display of progress towards `total` operations of all workers, on standard error: one overwritten
    /// line on a terminal, otherwise, if requested, a line per second.
    #[must_use]
    pub fn new(mode: ProgressMode, total: u64, counters: Vec<Arc<Counter>>) -> Self {
        let display = match (mode, std::io::stderr().is_terminal()) {
            (ProgressMode::Never, _) | (ProgressMode::Auto, false) => Display::None,
            (ProgressMode::Always | ProgressMode::Auto, true) => {
                Display::Bar(role_common::console::progress_bar(total, "operations"))
            }
            (ProgressMode::Always, false) => {
                let begin = Instant::now();
                Display::Lines {
                    begin,
                    next: begin + LINE_INTERVAL,
                }
            }
        };
        Self {
            counters,
            total,
            display,
        }
    }

    /// Time of the next [`Progress::refresh`]; `None` if progress is hidden.
    #[must_use]
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        match self.display {
            Display::None => None,
            Display::Bar(_) => Some(now + REFRESH),
            Display::Lines { next, .. } => Some(next),
        }
    }

    pub fn refresh(&mut self, now: Instant) {
        let completed = self.completed();
        match &mut self.display {
            Display::None => {}
            Display::Bar(bar) => bar.set_position(completed),
            Display::Lines { begin, next } => {
                if now >= *next {
                    *next = now + LINE_INTERVAL;
                    errln!(
                        "{}",
                        line(completed, self.total, now.saturating_duration_since(*begin))
                    );
                }
            }
        }
    }

    fn completed(&self) -> u64 {
        self.counters
            .iter()
            .map(|counter| u64::from(counter.completed()))
            .sum()
    }
}

impl Drop for Progress {
    /// Removes the line before the statistics are printed.
    fn drop(&mut self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

fn line(completed: u64, total: u64, elapsed: Duration) -> String {
    let percent = completed as f64 * 100.0 / total.max(1) as f64;
    let rate = completed as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
    format!("{completed} of {total} operations ({percent:.0} %), {rate:.0} per second")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_percentage_and_rate() {
        assert_eq!(
            line(250, 1000, Duration::from_secs(2)),
            "250 of 1000 operations (25 %), 125 per second"
        );
        assert_eq!(
            line(0, 0, Duration::ZERO),
            "0 of 0 operations (0 %), 0 per second"
        );
    }

    #[test]
    fn workers_are_summed() {
        let counters = vec![Arc::new(Counter::default()), Arc::new(Counter::default())];
        counters[0].publish(3);
        counters[1].publish(4);
        assert_eq!(
            Progress::new(ProgressMode::Never, 10, counters).completed(),
            7
        );
    }

    #[test]
    fn no_updates_are_scheduled_if_progress_is_hidden() {
        assert_eq!(
            Progress::new(ProgressMode::Never, 10, Vec::new()).deadline(Instant::now()),
            None
        );
    }

    #[test]
    fn counters_do_not_share_cache_lines() {
        assert_eq!(align_of::<Counter>(), 128);
    }
}
