//! What a session has its workers do.

use std::time::Duration;

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::RdmaConnectionDetails;

use super::{App, Service};
use crate::failure::Failure;
use crate::service::command::{Command, Reply, WorkerSetup};
use crate::service::session::{Job, Outcome};
use crate::worker::Worker;

/// Added to the time that a worker itself has for something, so that it is the worker that says
/// what it waited for.
const WORKER_GRACE: Duration = Duration::from_secs(1);

impl<S: Service> App<'_, S> {
    pub(super) fn perform(&mut self, job: Job) -> Result<Outcome, Failure> {
        match job {
            Job::PrepareMemory(memory) => {
                return self
                    .service
                    .prepare_memory(&self.device, &memory)
                    .map(Outcome::Exported);
            }
            Job::CreateWorker {
                index,
                transaction_count,
            } => self.create_worker(index, transaction_count)?,
            Job::Export {
                index,
                target,
                role,
            } => match self.execute(index, Command::Export { target, role })? {
                Reply::Exported(export) => return Ok(Outcome::Exported(Bytes::from(export))),
                Reply::Done => {
                    return Err(Failure::unexpected(
                        "a worker gave another reply than to the command",
                    ));
                }
            },
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
                self.execute(context_index, command)?;
            }
            Job::StartWorkers { consumers } => self.start_workers(&consumers)?,
            Job::StopWorkers => self.stop_workers()?,
            Job::DestroyWorkers => self.workers.clear(),
            // Done elsewhere: they take more than one step.
            Job::OpenSuperblocks | Job::Quiesce | Job::CloseSuperblocks => {}
        }
        Ok(Outcome::Done)
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
            limits: self.flags.limits(),
        })?;
        let waker = self.shutdown.waker().clone();
        let within = self.flags.control_timeout;
        self.workers
            .push(Worker::spawn(index, core, waker, within, create)?);
        Ok(())
    }

    fn execute(&mut self, index: u32, command: Command) -> Result<Reply, Failure> {
        let worker = usize::try_from(index)
            .ok()
            .and_then(|index| self.workers.get_mut(index));
        let worker =
            worker.ok_or_else(|| Failure::invalid(format!("there is no worker {index}")))?;
        worker.execute(command, self.flags.control_timeout + WORKER_GRACE)
    }

    fn start_workers(&mut self, consumers: &[u32]) -> Result<(), Failure> {
        let within = self.flags.control_timeout;
        for (worker, &consumer) in self.workers.iter_mut().zip(consumers) {
            worker.execute(Command::Prepare { consumer, within }, within + WORKER_GRACE)?;
        }
        self.workers.iter_mut().try_for_each(Worker::start)
    }

    fn stop_workers(&mut self) -> Result<(), Failure> {
        let within = self.flags.control_timeout + WORKER_GRACE;
        self.workers.iter().for_each(Worker::request_stop);
        for worker in &mut self.workers {
            self.reports.push(worker.stop(within)?);
        }
        for worker in &mut self.workers {
            worker.execute(Command::LeaveComch, within)?;
        }
        Ok(())
    }
}
