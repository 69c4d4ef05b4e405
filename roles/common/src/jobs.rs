//! Jobs that a session has its workers do, one at a time. No job waits for a peer on the main thread: it is begun with all workers that it
//! concerns, and polled until all of them have answered.

use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{Device, Mmap};

use crate::abandoned;
use crate::background::Background;
use crate::failure::{Failure, FirstFailure};
use crate::shutdown::Waker;
use crate::worker::{Answer, DataPath, Worker};

/// Outcome of a job that has succeeded.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to tell.
    Done,
    /// An export: of memory, or of the local end of a connection.
    Exported(Bytes),
}

/// A step of a job; `I` is what an import is for.
#[derive(Debug)]
enum Step<I> {
    Import {
        request: I,
        import: Background<doca::Result<Mmap>>,
    },
    Replies(Outcome),
    Start,
    Stop,
}

/// A completed step of a job.
#[derive(Debug)]
pub enum Completed<I> {
    /// The peer's memory was imported, for this request. What the job does next is up to the session.
    Imported(I, Mmap),
    /// The data paths of all workers have stopped. What the job does next is up to the session.
    Stopped,
    /// The job.
    Job(Outcome),
}

/// The job at hand, if there is one.
#[derive(Debug)]
pub struct JobRunner<I> {
    step: Option<Step<I>>,
    /// The first failure of a worker in it.
    failure: FirstFailure,
}

impl<I> Default for JobRunner<I> {
    fn default() -> Self {
        Self {
            step: None,
            failure: FirstFailure::default(),
        }
    }
}

impl<I> JobRunner<I> {
    /// Returns `true` if there is a job at hand.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.step.is_some()
    }

    /// Drops the job at hand. An import that still runs is abandoned.
    pub fn cancel(&mut self) {
        self.step = None;
    }

    /// Imports the memory of an init request, on a thread of its own.
    ///
    /// # Errors
    ///
    /// Peers hold too many threads already, or the system has none.
    pub fn import(
        &mut self,
        request: I,
        device: Device,
        export: Bytes,
        within: Duration,
        waker: Waker,
    ) -> Result<(), Failure> {
        abandoned::check()?;
        let what = "the import of the memory map of the init request";
        let import =
            Background::start(what, within, waker, move || Mmap::import(&device, &export))?;
        self.step = Some(Step::Import { request, import });
        Ok(())
    }

    /// Waits for the answers of all workers that have been given something to do.
    pub fn await_replies(&mut self) {
        self.step = Some(Step::Replies(Outcome::Done));
    }

    /// Waits for workers that prepare their data paths, and starts these.
    pub fn await_start(&mut self) {
        self.step = Some(Step::Start);
    }

    /// Waits for workers that stop their data paths.
    pub fn await_stop(&mut self) {
        self.step = Some(Step::Stop);
    }

    /// When the job fails if nothing happens before.
    #[must_use]
    pub fn deadline<D: DataPath>(&self, workers: &[Worker<D>]) -> Option<Instant> {
        match self.step.as_ref()? {
            Step::Import { import, .. } => Some(import.deadline()),
            Step::Replies(_) | Step::Start | Step::Stop => {
                workers.iter().filter_map(Worker::deadline).min()
            }
        }
    }

    /// Goes on with the job, and returns its step if that is completed. `take` gets each answer of a worker, and returns the export in it.
    ///
    /// # Errors
    ///
    /// The import or a worker failed: the job is over.
    pub fn poll<D: DataPath>(
        &mut self,
        workers: &mut [Worker<D>],
        now: Instant,
        mut take: impl FnMut(Answer<D>) -> Option<Bytes>,
    ) -> Result<Option<Completed<I>>, Failure> {
        let Some(mut step) = self.step.take() else {
            return Ok(None);
        };
        if let Step::Import {
            request,
            mut import,
        } = step
        {
            return match import.poll(now)? {
                Some(Ok(memory)) => Ok(Some(Completed::Imported(request, memory))),
                Some(Err(error)) => {
                    Err(Failure::from(error).context("memory map of the init request"))
                }
                None => {
                    self.step = Some(Step::Import { request, import });
                    Ok(None)
                }
            };
        }
        let all = Worker::collect(workers, now, &mut self.failure, |answer| {
            if let Some(export) = take(answer)
                && let Step::Replies(outcome) = &mut step
            {
                *outcome = Outcome::Exported(export);
            }
        });
        if !all {
            self.step = Some(step);
            return Ok(None);
        }
        self.failure.outcome()?;
        Ok(Some(match step {
            Step::Replies(outcome) => Completed::Job(outcome),
            Step::Stop => Completed::Stopped,
            Step::Start | Step::Import { .. } => {
                workers.iter_mut().try_for_each(Worker::start)?;
                Completed::Job(Outcome::Done)
            }
        }))
    }
}
