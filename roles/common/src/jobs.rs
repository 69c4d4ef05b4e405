//! Multi-step jobs of a session on its workers, one at a time. The main thread does not wait for a peer: a job is
//! started on all workers concerned, and polled until all have replied.

use std::time::{Duration, Instant};

use bytes::Bytes;
use control::shutdown::Waker;
use control::verifier::Verifier;
use control::{Failure, FirstFailure};
use doca::{Device, Mmap};

use crate::background::{Background, check_abandoned};
use crate::worker::{Answer, DataPath, Worker};

/// Outcome of a successful job.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Export blob of memory, or of the local end of a connection.
    Exported(Bytes),
    /// The verifier of the storage, if it has one.
    Verified(Option<Verifier>),
}

/// A step of a job; `I` identifies the request of an import.
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
    /// The peer's memory was imported for this request. The session determines the next step of the job.
    Imported(I, Mmap),
    /// The data paths of all workers have stopped. The session determines the next step of the job.
    Stopped,
    /// The job is complete.
    Job(Outcome),
}

#[derive(Debug)]
pub struct JobRunner<I> {
    step: Option<Step<I>>,
    /// First failure of a worker in the current job.
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
    /// Returns `true` if a job is running.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.step.is_some()
    }

    /// Drops the current job. An import in progress is abandoned.
    pub fn cancel(&mut self) {
        self.step = None;
    }

    /// Imports the memory of an init request on a separate thread.
    ///
    /// # Errors
    ///
    /// Too many threads are blocked by peers, or the system cannot create one.
    pub fn import(
        &mut self,
        request: I,
        device: Device,
        export: Bytes,
        within: Duration,
        waker: Waker,
    ) -> Result<(), Failure> {
        check_abandoned()?;
        let what = "the import of the memory map of the init request";
        let import =
            Background::start(what, within, waker, move || Mmap::import(&device, &export))?;
        self.step = Some(Step::Import { request, import });
        Ok(())
    }

    /// Waits for the replies of all workers to which a command was sent.
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

    /// Time at which the job fails.
    #[must_use]
    pub fn deadline<D: DataPath>(&self, workers: &[Worker<D>]) -> Option<Instant> {
        match self.step.as_ref()? {
            Step::Import { import, .. } => Some(import.deadline()),
            Step::Replies(_) | Step::Start | Step::Stop => {
                workers.iter().filter_map(Worker::deadline).min()
            }
        }
    }

    /// Advances the job, and returns a completed step. `take` is called with each worker's index and reply, and returns
    /// the export in it.
    ///
    /// # Errors
    ///
    /// The import or a worker failed; the job has ended.
    pub fn poll<D: DataPath>(
        &mut self,
        workers: &mut [Worker<D>],
        now: Instant,
        mut take: impl FnMut(usize, Answer<D>) -> Option<Bytes>,
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
        let all = Worker::collect(workers, now, &mut self.failure, |worker, answer| {
            if let Some(export) = take(worker, answer)
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
