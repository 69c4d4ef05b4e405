//! What the main thread asks of workers that run, and what they answer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use role_common::Failure;
use role_common::service::{Reply, WorkerCommand};

/// An errand, with the number of the attempt that it is part of.
pub(crate) type Numbered<T> = (u32, T);

/// The errands of all workers.
#[derive(Debug)]
pub(crate) struct Errands {
    workers: Box<[Inbox]>,
    replies: Mutex<VecDeque<Answer>>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Whether there is any: what workers look at in every turn.
    has_any: AtomicBool,
    errands: Mutex<VecDeque<Numbered<WorkerCommand>>>,
}

/// What a worker answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Number of the worker.
    pub(crate) worker: u32,
    /// What became of it.
    pub(crate) reply: Numbered<Result<Reply, Failure>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks leaves anything half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Errands {
    pub(crate) fn of_workers(count: u32) -> Self {
        Self {
            workers: (0..count).map(|_| Inbox::default()).collect(),
            replies: Mutex::default(),
        }
    }

    /// Gives a worker an errand, if there is such a worker.
    pub(crate) fn send(&self, worker: u32, errand: Numbered<WorkerCommand>) {
        if let Some(inbox) = self.workers.get(worker as usize) {
            lock(&inbox.errands).push_back(errand);
            inbox.has_any.store(true, Ordering::Release);
        }
    }

    /// Whether this worker has errands.
    #[inline]
    pub(crate) fn has_any(&self, worker: u32) -> bool {
        let inbox = self.workers.get(worker as usize);
        inbox.is_some_and(|inbox| inbox.has_any.load(Ordering::Acquire))
    }

    /// The next errand of a worker.
    pub(crate) fn next(&self, worker: u32) -> Option<Numbered<WorkerCommand>> {
        let inbox = self.workers.get(worker as usize)?;
        let mut errands = lock(&inbox.errands);
        let next = errands.pop_front();
        inbox.has_any.store(!errands.is_empty(), Ordering::Release);
        next
    }

    /// A worker answers.
    pub(crate) fn answer(&self, answer: Answer) {
        lock(&self.replies).push_back(answer);
    }

    /// The next answer of any worker.
    pub(crate) fn next_answer(&self) -> Option<Answer> {
        lock(&self.replies).pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errands_reach_their_worker_in_order() {
        let errands = Errands::of_workers(2);
        let errand = |target| WorkerCommand::Attach { target };
        errands.send(1, (7, errand(0)));
        errands.send(1, (7, errand(2)));
        errands.send(2, (7, errand(1)));
        assert!(!errands.has_any(0) && errands.has_any(1) && !errands.has_any(2));
        assert_eq!(errands.next(1), Some((7, errand(0))));
        assert!(errands.has_any(1));
        assert_eq!(errands.next(1), Some((7, errand(2))));
        assert_eq!((errands.has_any(1), errands.next(1)), (false, None));
        let reply = (7, Ok(Reply::Done));
        errands.answer(Answer { worker: 1, reply });
        assert_eq!(errands.next_answer().map(|answer| answer.worker), Some(1));
        assert!(errands.next_answer().is_none());
    }
}
