//! What the main thread asks of a worker that runs: to take a lost target back.

use role_common::Failure;
use role_common::service::endpoints::TargetEnds;
use role_common::service::{Reply, WorkerCommand};
use wire::control::RdmaConnectionRole;

use super::GgaDataPath;
use super::token::Kind;
use crate::redundancy::Answer;
use crate::target::Target;

impl GgaDataPath {
    /// Does the next errand, and answers.
    #[cold]
    pub(super) fn do_errand(&mut self) -> Result<(), Failure> {
        let worker = self.setup.worker.index;
        let Some(survival) = &self.survival else {
            return Ok(());
        };
        let shared = survival.shared.clone();
        let Some((attempt, errand)) = shared.errands.next(worker) else {
            return Ok(());
        };
        if let WorkerCommand::Attach { target } = errand
            && let Some(ends) = self.targets.get(target).and_then(Option::as_ref)
            && !ends.are_running()
        {
            // Later. Whoever waits for it bounds the time.
            shared.errands.send(worker, (attempt, errand));
            return Ok(());
        }
        let reply = self.carry_out(errand);
        shared.errands.answer(Answer {
            worker,
            reply: (attempt, reply),
        });
        shared.wake();
        Ok(())
    }

    fn carry_out(&mut self, errand: WorkerCommand) -> Result<Reply, Failure> {
        match errand {
            WorkerCommand::Export { target, role } => {
                if role == RdmaConnectionRole::IoData {
                    self.begin_anew(target)?;
                }
                let export = self.target_ends(target)?.endpoint(role).export()?;
                Ok(Reply::Exported(export))
            }
            WorkerCommand::Connect {
                target,
                role,
                details,
            } => {
                self.target_ends(target)?.endpoint(role).connect(&details)?;
                Ok(Reply::Done)
            }
            WorkerCommand::Attach { target } => self.attach(target).map(|()| Reply::Done),
        }
    }

    /// New ends for a target that is lost; those of an earlier attempt go.
    fn begin_anew(&mut self, number: usize) -> Result<(), Failure> {
        let target = self.lost_target(number)?;
        self.detach(target)?;
        let messages = u32::try_from(self.transactions.len()).unwrap_or(u32::MAX);
        let ends = TargetEnds::start(&self.pe, &self.setup.worker.device, messages)?;
        self.targets[number] = Some(ends);
        Ok(())
    }

    /// Makes the tasks for messages to and from a target, and waits for its results. Nothing is asked of it before
    /// everybody has done so.
    fn attach(&mut self, number: usize) -> Result<(), Failure> {
        let target = self.lost_target(number)?;
        let ends = self.targets[number].as_ref();
        let ends = ends.ok_or_else(|| Failure::unexpected("there is no connection to attach"))?;
        self.tasks.attach(target, ends)?;
        if let Some(survival) = &mut self.survival {
            survival.detached.remove(target);
        }
        (0..self.transactions.len())
            .try_for_each(|lane| self.must_submit(lane, Kind::ReceiveResult(target)))
    }

    fn lost_target(&self, number: usize) -> Result<Target, Failure> {
        let survival = self.survival.as_ref();
        let target = Target::ALL.get(number).copied();
        target
            .filter(|&target| survival.is_some_and(|survival| survival.view.lost.contains(target)))
            .ok_or_else(|| Failure::unexpected(format!("target {number} is not lost")))
    }
}
