//! Jobs of a session on its workers. The main thread does not wait for a peer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::RdmaConnectionDetails;

use super::{App, Service};
use crate::failure::Failure;
use crate::jobs::{Completed, Outcome};
use crate::service::command::{Command, Reply, WorkerSetup};
use crate::service::session::Job;
use crate::worker::{Answer, Worker};

/// Added to a worker's own timeout, so that the worker's more specific error is reported.
const WORKER_GRACE: Duration = Duration::from_secs(1);

impl<S: Service> App<'_, S> {
    /// Starts a job. [`finish_job`](Self::finish_job) returns its outcome.
    pub(super) fn start_job(&mut self, job: Job) -> Result<(), Failure> {
        match job {
            Job::PrepareMemory(memory) => {
                let (device, export) = (self.device.clone(), memory.mmap_export_blob.clone());
                let waker = self.shutdown.waker().clone();
                let within = self.flags.control_timeout;
                return self.job.import(memory, device, export, within, waker);
            }
            Job::CreateWorker {
                index,
                transaction_count,
            } => {
                self.create_worker(index, transaction_count)?;
            }
            Job::Export {
                index,
                target,
                role,
            } => {
                self.begin(index, Command::Export { target, role })?;
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
            }
            Job::StartWorkers { consumers } => {
                let within = self.flags.control_timeout;
                for (worker, &consumer) in self.workers.iter_mut().zip(&consumers) {
                    worker.begin(Command::Prepare { consumer, within }, within + WORKER_GRACE)?;
                }
                self.job.await_start();
                return Ok(());
            }
            Job::StopWorkers => {
                let within = self.flags.control_timeout + WORKER_GRACE;
                for worker in &mut self.workers {
                    worker.begin_stop(within)?;
                }
                self.job.await_stop();
                return Ok(());
            }
            Job::DestroyWorkers => {
                Worker::end_all(&mut self.workers)?;
            }
            // Handled elsewhere: they take more than one step.
            Job::OpenSuperblocks | Job::Quiesce | Job::CloseSuperblocks => {}
        }
        self.job.await_replies();
        Ok(())
    }

    /// Time at which the current job fails.
    pub(super) fn job_deadline(&self) -> Option<Instant> {
        self.job.deadline(&self.workers)
    }

    /// Advances the current job, and returns its outcome when it has ended.
    pub(super) fn finish_job(&mut self) -> Option<Result<Outcome, Failure>> {
        let reports = &mut self.reports;
        let polled = self
            .job
            .poll(&mut self.workers, Instant::now(), |answer| match answer {
                Answer::Replied(Reply::Exported(export)) => Some(Bytes::from(export)),
                Answer::Stopped(report) => {
                    reports.push(report);
                    None
                }
                Answer::Replied(Reply::Done) | Answer::Created => None,
            });
        let outcome = polled.and_then(|completed| match completed {
            None => Ok(None),
            Some(Completed::Job(outcome)) => Ok(Some(outcome)),
            Some(Completed::Imported(memory, initiator)) => self
                .service
                .prepare_memory(&self.device, &memory, initiator)
                .map(|export| Some(Outcome::Exported(export))),
            Some(Completed::Stopped) => self.leave_comch().map(|()| None),
        });
        outcome.transpose()
    }

    fn leave_comch(&mut self) -> Result<(), Failure> {
        let within = self.flags.control_timeout + WORKER_GRACE;
        for worker in &mut self.workers {
            worker.begin(Command::LeaveComch, within)?;
        }
        self.job.await_replies();
        Ok(())
    }

    fn create_worker(&mut self, index: u32, transaction_count: u32) -> Result<(), Failure> {
        let client = self.client.connection();
        let client = client
            .ok_or_else(|| Failure::new(ErrorCode::NOT_CONNECTED, "the initiator is gone"))?;
        // The session creates at most as many workers as there are CPUs.
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
