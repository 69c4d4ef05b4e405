//! The driver of all contexts that compute.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use super::MAX_TASKS;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Driver, Event, Started, Task, TaskPool};

/// Bytes after which progress goes on to other contexts, however few tasks they were: ten microseconds of erasure coding, up to a hundred
/// of decompression.
const BYTES_AT_A_TIME: usize = 256 << 10;

/// Of tasks that take long, one in so many of those that wait, and one more, is done before other contexts, and the program, have their
/// turn. Always as many as of other events would be ten microseconds without an answer to anybody, and with 16 reads of compressed blocks
/// at a time, all that is asked for would wait in one turn: they come 1.2 times as fast so (measured). With many it is much the same.
const WAITING_PER_TURN: usize = 4;

/// What one kind of context can do.
pub(crate) trait Accelerator: 'static {
    /// Whether a task for a few KiB takes longer than a turn of all other contexts.
    const TAKES_LONG: bool;

    /// Whether a task that fails takes its context with it: hardware's queue is in the error state then.
    const FAILURE_IS_FATAL: bool;

    /// The pools of all kinds of tasks.
    fn pools(&self) -> impl Iterator<Item = &TaskPool>;

    /// Whether a task could be done, as far as that can be told without doing it.
    ///
    /// # Errors
    /// What the task would complete with.
    fn check(&self, _task: &Task) -> Result<()> {
        Ok(())
    }

    /// Does what a task says; answers how many bytes it has worked on.
    ///
    /// # Errors
    /// What the task completes with; [`Error::InvalidValue`] for a task of another kind of context.
    fn run(&self, task: &Task) -> Result<usize>;
}

/// A driver that runs tasks in the order of their submission, one at each event.
pub(crate) struct Offload<A> {
    accelerator: A,
    /// Stays open as long as the instance exists.
    _device: Arc<Device>,
    submitted: RefCell<VecDeque<NonNull<Task>>>,
    /// Tasks that have ended and are still to be reported.
    ended: RefCell<VecDeque<(NonNull<Task>, Error)>>,
    /// Bytes worked on in this turn.
    worked: Cell<usize>,
}

impl<A: Accelerator> Offload<A> {
    /// A context for an instance on `device`.
    pub(crate) fn context(accelerator: A, device: Arc<Device>) -> Rc<Ctx> {
        Ctx::new(Self {
            accelerator,
            _device: device,
            submitted: RefCell::default(),
            ended: RefCell::default(),
            worked: Cell::new(0),
        })
    }

    pub(crate) fn accelerator(&self) -> &A {
        &self.accelerator
    }
}

impl<A: Accelerator> Driver for Offload<A> {
    fn start(&self, _ctx: &Ctx) -> Result<Started> {
        let tasks = self
            .accelerator
            .pools()
            .map(TaskPool::limit)
            .fold(0, u32::saturating_add);
        if tasks > MAX_TASKS {
            return Err(Error::InvalidValue.because(format_args!(
                "expected at most {MAX_TASKS} tasks of all kinds together, {tasks} are configured"
            )));
        }
        // Nothing is allocated on the data path.
        self.submitted.borrow_mut().reserve(tasks as usize);
        self.ended.borrow_mut().reserve(tasks as usize);
        Ok(Started::Running)
    }

    fn check(&self, _ctx: &Ctx, task: &Task) -> Result<()> {
        self.accelerator.check(task)
    }

    fn submit(&self, _ctx: &Ctx, task: &Task) -> Result<()> {
        self.submitted.borrow_mut().push_back(NonNull::from(task));
        Ok(())
    }

    fn next_event(&self, _ctx: &Ctx) -> Option<Event> {
        if let Some((task, error)) = self.ended.borrow_mut().pop_front() {
            return Some(Event::Task(task, Err(error)));
        }
        if self.worked.get() >= BYTES_AT_A_TIME {
            return None;
        }
        let task = self.submitted.borrow_mut().pop_front()?;
        // SAFETY: a task in flight lives: freeing it takes effect after its completion.
        let result = self.accelerator.run(unsafe { task.as_ref() });
        if let Ok(bytes) = result {
            self.worked.set(self.worked.get() + bytes);
        }
        match result {
            Err(error) if A::FAILURE_IS_FATAL => {
                // The program learns of the state first: what it submits in the error callback would not run.
                self.ended.borrow_mut().push_back((task, error));
                Some(Event::Broken)
            }
            result => Some(Event::Task(task, result.map(|_| ()))),
        }
    }

    fn begin_turn(&self, most: u32) -> u32 {
        self.worked.set(0);
        if !A::TAKES_LONG {
            return most;
        }
        let waiting = self.submitted.borrow().len();
        let part = u32::try_from(1 + waiting / WAITING_PER_TURN).unwrap_or(u32::MAX);
        most.min(part)
    }

    fn flush(&self, _ctx: &Ctx) {
        let mut submitted = self.submitted.borrow_mut();
        let flushed = submitted.drain(..).map(|task| (task, Error::Shutdown));
        self.ended.borrow_mut().extend(flushed);
    }

    fn finish_stop(&self, _ctx: &Ctx) -> bool {
        true
    }
}
