//! The context of a started graph: brings its functions and completions into progress.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::instance::Instance;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Driver, Event, Started, Task};

/// Something to be done in progress.
pub(super) enum Work {
    /// Call a node's function.
    Function(Rc<Instance>, usize),
    /// Tell the program that an instance has ended.
    Ended(Rc<Instance>),
}

#[derive(Default)]
pub(super) struct Runner {
    work: RefCell<VecDeque<Work>>,
    /// Tasks whose context was full; tried again and again.
    waiting: RefCell<VecDeque<(Rc<Instance>, usize)>>,
}

impl Runner {
    pub(super) fn push(&self, work: Work) {
        self.work.borrow_mut().push_back(work);
    }

    pub(super) fn wait(&self, instance: Rc<Instance>, node: usize) {
        self.waiting.borrow_mut().push_back((instance, node));
    }

    /// Tries every waiting task once. Those that are refused again wait again.
    fn retry(&self) {
        let waiting = self.waiting.borrow().len();
        for _ in 0..waiting {
            let next = self.waiting.borrow_mut().pop_front();
            if let Some((instance, node)) = next {
                instance.retry(node);
            }
        }
    }
}

impl Driver for Runner {
    fn start(&self, _: &Ctx) -> Result<Started> {
        Ok(Started::Running)
    }

    fn submit(&self, _: &Ctx, _: &Task) -> Result<()> {
        // There are no tasks of this context.
        Err(Error::InvalidValue)
    }

    fn next_event(&self, ctx: &Ctx) -> Option<Event> {
        let mut work = self.work.borrow_mut().pop_front();
        if work.is_none() && !self.waiting.borrow().is_empty() {
            self.retry();
            work = self.work.borrow_mut().pop_front();
            if work.is_none() && !self.waiting.borrow().is_empty() {
                // Nobody rings when there is room: an engine that is about to sleep stays awake.
                ctx.stir();
            }
        }
        Some(Event::Call(match work? {
            Work::Function(instance, node) => Box::new(move || instance.call(node)),
            Work::Ended(instance) => Box::new(move || instance.tell()),
        }))
    }

    fn flush(&self, _: &Ctx) {
        // A graph with instances is not stopped, so there is nothing.
    }

    fn finish_stop(&self, _: &Ctx) -> bool {
        true
    }
}
