//! Commands of the main thread to workers that run: bring a detached target back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use role_common::Failure;
use role_common::service::endpoints::TargetEnds;
use role_common::service::{Reply, WorkerCommand};
use wire::control::RdmaConnectionRole;

use super::GgaDataPath;
use super::tasks::Kind;
use crate::engine::{Action, Event};
use crate::target::Target;
use wire::release::IoLayout;

/// The commands of all workers, each with the number of the attempt that it is part of.
pub(crate) struct Commands {
    workers: Box<[Inbox]>,
    replies: Mutex<VecDeque<WorkerReply>>,
    /// Wakes the main thread.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Whether there is any: checked by the worker in every poll iteration.
    has_any: AtomicBool,
    commands: Mutex<VecDeque<(u32, WorkerCommand)>>,
}

/// A worker's reply.
#[derive(Debug)]
pub(crate) struct WorkerReply {
    /// Number of the worker.
    pub(crate) worker: u32,
    /// Number of the attempt.
    pub(crate) attempt: u32,
    /// The reply.
    pub(crate) reply: Result<Reply, Failure>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks leaves anything half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Commands {
    pub(crate) fn of_workers(count: u32, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            workers: (0..count).map(|_| Inbox::default()).collect(),
            replies: Mutex::default(),
            wake: Box::new(wake),
        }
    }

    /// Gives a worker a command, if there is such a worker.
    pub(crate) fn send(&self, worker: u32, attempt: u32, command: WorkerCommand) {
        if let Some(inbox) = self.workers.get(worker as usize) {
            lock(&inbox.commands).push_back((attempt, command));
            inbox.has_any.store(true, Ordering::Release);
        }
    }

    /// The next reply of any worker.
    pub(crate) fn next_reply(&self) -> Option<WorkerReply> {
        lock(&self.replies).pop_front()
    }

    #[inline]
    fn has_any(&self, worker: u32) -> bool {
        let inbox = self.workers.get(worker as usize);
        inbox.is_some_and(|inbox| inbox.has_any.load(Ordering::Acquire))
    }

    fn next(&self, worker: u32) -> Option<(u32, WorkerCommand)> {
        let inbox = self.workers.get(worker as usize)?;
        let mut commands = lock(&inbox.commands);
        let next = commands.pop_front();
        inbox.has_any.store(!commands.is_empty(), Ordering::Release);
        next
    }

    fn reply(&self, reply: WorkerReply) {
        lock(&self.replies).push_back(reply);
        (self.wake)();
    }
}

impl<L: IoLayout> GgaDataPath<L> {
    /// Carries out the next command, if there is one and nothing of the last detachment may still come.
    #[inline]
    pub(super) fn poll_commands(&mut self) -> Result<(), Failure> {
        if self.setup.commands.has_any(self.setup.worker.index) && self.engine.is_settled() {
            self.next_command()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn next_command(&mut self) -> Result<(), Failure> {
        let worker = self.setup.worker.index;
        let Some((attempt, command)) = self.setup.commands.next(worker) else {
            return Ok(());
        };
        if let WorkerCommand::Attach { target } = command
            && let Some(ends) = self.targets.get(target).and_then(Option::as_ref)
            && !ends.are_running()
        {
            // Later. The main thread bounds the time.
            self.setup.commands.send(worker, attempt, command);
            return Ok(());
        }
        let reply = self.carry_out(command);
        self.setup.commands.reply(WorkerReply {
            worker,
            attempt,
            reply,
        });
        Ok(())
    }

    fn carry_out(&mut self, command: WorkerCommand) -> Result<Reply, Failure> {
        match command {
            WorkerCommand::Export { target, role } => {
                if role == RdmaConnectionRole::IoData {
                    self.renew_ends(target)?;
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

    /// New contexts for a detached target; those of an earlier attempt go.
    fn renew_ends(&mut self, number: usize) -> Result<(), Failure> {
        let target = self.detached_target(number)?;
        self.execute_action(Action::Detach { target })?;
        let messages = u32::try_from(self.engine.slots()).unwrap_or(u32::MAX);
        let ends = TargetEnds::start(&self.pe, &self.setup.worker.device, messages)?;
        self.targets[number] = Some(ends);
        Ok(())
    }

    /// Allocates the tasks for messages to and from a target, and posts the receives of its results. Nothing is asked of it before all
    /// workers have done so.
    fn attach(&mut self, number: usize) -> Result<(), Failure> {
        let target = self.detached_target(number)?;
        let ends = self.targets[number].as_ref();
        let ends = ends.ok_or_else(|| Failure::unexpected("there is no connection to attach"))?;
        self.tasks.attach(target, ends)?;
        let now = self.clock.now;
        self.engine.handle(Event::TargetAttached { target }, now);
        (0..self.engine.slots())
            .try_for_each(|lane| self.must_submit(lane, Kind::ReceiveResult(target)))
    }

    fn detached_target(&self, number: usize) -> Result<Target, Failure> {
        let offline = self.setup.set.view().offline;
        let target = Target::ALL.get(number).copied();
        target
            .filter(|&target| offline.contains(target))
            .ok_or_else(|| Failure::unexpected(format!("target {number} is not offline")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_reach_their_worker_in_order() {
        let commands = Commands::of_workers(2, || ());
        let attach = |target| WorkerCommand::Attach { target };
        commands.send(1, 7, attach(0));
        commands.send(1, 7, attach(2));
        commands.send(2, 7, attach(1));
        assert!(!commands.has_any(0) && commands.has_any(1) && !commands.has_any(2));
        assert_eq!(commands.next(1), Some((7, attach(0))));
        assert!(commands.has_any(1));
        assert_eq!(commands.next(1), Some((7, attach(2))));
        assert_eq!((commands.has_any(1), commands.next(1)), (false, None));
        commands.reply(WorkerReply {
            worker: 1,
            attempt: 7,
            reply: Ok(Reply::Done),
        });
        assert_eq!(commands.next_reply().map(|reply| reply.worker), Some(1));
        assert!(commands.next_reply().is_none());
    }
}
