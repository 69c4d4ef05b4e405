//! What a session has its workers do. No job waits for a peer on the main thread.

use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{ErrorCode, Mmap};
use wire::control::RdmaConnectionDetails;

use super::{App, Service};
use crate::abandoned;
use crate::background::Background;
use crate::failure::Failure;
use crate::service::command::{Command, Reply, WorkerSetup};
use crate::service::session::{Job, Memory, Outcome};
use crate::worker::{Answer, Worker};

/// Added to the time that a worker itself has for something, so that it is the worker that says
/// what it waited for.
const WORKER_GRACE: Duration = Duration::from_secs(1);

/// A job that is under way.
pub(super) enum Running {
    /// The initiator's memory map is being imported.
    Import {
        memory: Memory,
        import: Background<doca::Result<Mmap>>,
    },
    /// Workers have something to do, whose outcome is this unless they say otherwise.
    Replies(Outcome),
    /// Workers prepare their data paths, which are started then.
    Start,
    /// Workers stop their data paths, and destroy consumers and producers then.
    Stop,
}

impl<S: Service> App<'_, S> {
    /// Starts a job. [`finish_job`](Self::finish_job) has its outcome.
    pub(super) fn start_job(&mut self, job: Job) -> Result<(), Failure> {
        let running = match job {
            Job::PrepareMemory(memory) => {
                abandoned::check()?;
                let (device, blob) = (self.device.clone(), memory.mmap_export_blob.clone());
                let what = "the import of the memory map of the init request";
                let waker = self.shutdown.waker().clone();
                let within = self.flags.control_timeout;
                let import =
                    Background::start(what, within, waker, move || Mmap::import(&device, &blob))?;
                Running::Import { memory, import }
            }
            Job::CreateWorker {
                index,
                transaction_count,
            } => {
                self.create_worker(index, transaction_count)?;
                Running::Replies(Outcome::Done)
            }
            Job::Export {
                index,
                target,
                role,
            } => {
                self.begin(index, Command::Export { target, role })?;
                Running::Replies(Outcome::Done)
            }
            Job::Connect { target, details } => {
                let RdmaConnectionDetails {
                    context_index,
                    role,
                    connection_details: details,
                } = details;
                let command = Command::Connect {
                    target,
                    role,
                    details,
                };
                self.begin(context_index, command)?;
                Running::Replies(Outcome::Done)
            }
            Job::StartWorkers { consumers } => {
                let within = self.flags.control_timeout;
                for (worker, &consumer) in self.workers.iter_mut().zip(&consumers) {
                    worker.begin(Command::Prepare { consumer, within }, within + WORKER_GRACE)?;
                }
                Running::Start
            }
            Job::StopWorkers => {
                let within = self.flags.control_timeout + WORKER_GRACE;
                for worker in &mut self.workers {
                    worker.begin_stop(within)?;
                }
                Running::Stop
            }
            Job::DestroyWorkers => {
                Worker::end_all(&mut self.workers)?;
                Running::Replies(Outcome::Done)
            }
            // Done elsewhere: they take more than one step.
            Job::OpenSuperblocks | Job::Quiesce | Job::CloseSuperblocks => {
                Running::Replies(Outcome::Done)
            }
        };
        self.running = Some(running);
        Ok(())
    }

    /// When the job at hand fails if nothing happens before.
    pub(super) fn job_deadline(&self) -> Option<Instant> {
        match self.running.as_ref()? {
            Running::Import { import, .. } => Some(import.deadline()),
            Running::Replies(_) | Running::Start | Running::Stop => {
                self.workers.iter().filter_map(Worker::deadline).min()
            }
        }
    }

    /// Goes on with the job at hand, and returns its outcome once it has one.
    pub(super) fn finish_job(&mut self) -> Option<Result<Outcome, Failure>> {
        let outcome = match self.running.take()? {
            Running::Import { memory, import } => self.import(memory, import),
            Running::Replies(outcome) => self.take_replies(outcome),
            Running::Start => self.start_prepared(),
            Running::Stop => self.leave_comch(),
        };
        outcome.transpose()
    }

    fn import(
        &mut self,
        memory: Memory,
        mut import: Background<doca::Result<Mmap>>,
    ) -> Result<Option<Outcome>, Failure> {
        let Some(initiator) = import.poll(Instant::now())? else {
            self.running = Some(Running::Import { memory, import });
            return Ok(None);
        };
        let initiator = initiator
            .map_err(|error| Failure::from(error).context("memory map of the init request"))?;
        self.service
            .prepare_memory(&self.device, &memory, initiator)
            .map(|export| Some(Outcome::Exported(export)))
    }

    /// Waits for the answers of all workers that have been given something to do.
    fn take_replies(&mut self, mut outcome: Outcome) -> Result<Option<Outcome>, Failure> {
        let all = Worker::collect(
            &mut self.workers,
            Instant::now(),
            &mut self.job_failure,
            |answer| {
                if let Answer::Replied(Reply::Exported(export)) = answer {
                    outcome = Outcome::Exported(Bytes::from(export));
                }
            },
        );
        if all {
            self.job_failure.outcome()?;
            return Ok(Some(outcome));
        }
        self.running = Some(Running::Replies(outcome));
        Ok(None)
    }

    fn start_prepared(&mut self) -> Result<Option<Outcome>, Failure> {
        if Worker::collect(
            &mut self.workers,
            Instant::now(),
            &mut self.job_failure,
            |_| {},
        ) {
            self.job_failure.outcome()?;
            self.workers.iter_mut().try_for_each(Worker::start)?;
            return Ok(Some(Outcome::Done));
        }
        self.running = Some(Running::Start);
        Ok(None)
    }

    fn leave_comch(&mut self) -> Result<Option<Outcome>, Failure> {
        let reports = &mut self.reports;
        let all = Worker::collect(
            &mut self.workers,
            Instant::now(),
            &mut self.job_failure,
            |answer| {
                if let Answer::Stopped(report) = answer {
                    reports.push(report);
                }
            },
        );
        self.running = Some(if all {
            self.job_failure.outcome()?;
            let within = self.flags.control_timeout + WORKER_GRACE;
            for worker in &mut self.workers {
                worker.begin(Command::LeaveComch, within)?;
            }
            Running::Replies(Outcome::Done)
        } else {
            Running::Stop
        });
        Ok(None)
    }

    fn create_worker(&mut self, index: u32, transaction_count: u32) -> Result<(), Failure> {
        let client = self.client.connection();
        let client = client
            .ok_or_else(|| Failure::new(ErrorCode::NOT_CONNECTED, "the initiator is gone"))?;
        // The session asked for no more workers than there are CPUs.
        let core = usize::try_from(index)
            .ok()
            .and_then(|index| self.flags.cpu.get(index).copied());
        let core =
            core.ok_or_else(|| Failure::invalid(format!("there is no --cpu for worker {index}")))?;
        let create = self.service.worker(WorkerSetup {
            index,
            core,
            device: self.device.clone(),
            client,
            transaction_count,
            features: self.session.features(),
            release: self.session.release(),
            limits: self.flags.limits(),
            metrics: self.metrics.worker(core),
        })?;
        let waker = self.shutdown.waker().clone();
        let within = self.flags.control_timeout;
        let worker = Worker::begin_spawn(index, core, waker, within, create)?;
        self.workers.push(worker);
        Ok(())
    }

    fn begin(&mut self, index: u32, command: Command) -> Result<(), Failure> {
        let worker = usize::try_from(index)
            .ok()
            .and_then(|index| self.workers.get_mut(index));
        let worker =
            worker.ok_or_else(|| Failure::invalid(format!("there is no worker {index}")))?;
        worker.begin(command, self.flags.control_timeout + WORKER_GRACE)
    }
}
