//! Pools that hand tasks out, and keep the memory of freed ones.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

use doca_abi::doca_data;

use super::ctx::{Ctx, CtxState};
use super::task::{Kind, Task, TaskCallback, TaskOf};
use crate::check::{self, Object};
use crate::error::{Error, Result};

/// What a pool shares with its tasks.
#[derive(Default)]
pub(super) struct Shelf {
    /// Tasks that the program has.
    used: Cell<u32>,
    /// Freed tasks, without bodies.
    free: RefCell<Vec<NonNull<Task>>>,
}

impl Shelf {
    pub(super) fn put_back(&self, task: NonNull<Task>) {
        self.used.set(self.used.get() - 1);
        self.free.borrow_mut().push(task);
    }

    /// A freed task whose body was a `B`.
    fn take<B: 'static>(&self) -> Option<NonNull<TaskOf<B>>> {
        let mut free = self.free.borrow_mut();
        let fits = |task: &NonNull<Task>| {
            // SAFETY: the memory of freed tasks lives as long as the pool.
            unsafe { task.as_ref() }.has_body::<B>()
        };
        // The last one, as a rule: pools have tasks of one kind.
        let index = free.iter().rposition(fits)?;
        Some(free.swap_remove(index).cast())
    }
}

#[derive(Clone, Copy)]
struct PoolConf {
    on_success: TaskCallback,
    on_error: TaskCallback,
    limit: u32,
}

/// The tasks of one kind that a context may have, with their callbacks.
#[derive(Default)]
pub(crate) struct TaskPool {
    conf: Cell<Option<PoolConf>>,
    /// Of the tasks that were allocated since, one for each type of bodies; there is one, as a rule.
    kinds: RefCell<Vec<Rc<Kind>>>,
    shelf: Rc<Shelf>,
}

impl Drop for TaskPool {
    fn drop(&mut self) {
        for task in self.shelf.free.take() {
            // SAFETY: a freed task has no body; nobody may use it any more, because its context is destroyed.
            unsafe { Task::deallocate(task) };
        }
    }
}

impl TaskPool {
    /// Sets callbacks and size. Only before the context is started.
    pub(crate) fn configure(
        &self,
        ctx: &Ctx,
        on_success: Option<TaskCallback>,
        on_error: Option<TaskCallback>,
        limit: u32,
    ) -> Result<()> {
        ctx.expect_idle("task pools are configured")?;
        let (Some(on_success), Some(on_error)) = (on_success, on_error) else {
            return Err(Error::InvalidValue.because("expected two completion callbacks, got NULL"));
        };
        if limit == 0 {
            return Err(Error::InvalidValue.because("expected at least 1 task in the pool, got 0"));
        }
        self.conf.set(Some(PoolConf {
            on_success,
            on_error,
            limit,
        }));
        // An idle context has no tasks, so nobody uses the old ones.
        self.kinds.borrow_mut().clear();
        Ok(())
    }

    /// What the tasks with bodies of type `B` have in common.
    fn kind<B: 'static>(&self, ctx: &Ctx, conf: PoolConf) -> Rc<Kind> {
        let mut kinds = self.kinds.borrow_mut();
        if let Some(known) = kinds.iter().find(|kind| kind.has_body::<B>()) {
            return Rc::clone(known);
        }
        let callbacks = (conf.on_success, conf.on_error);
        let kind = Kind::of::<B>(ctx, callbacks, Rc::clone(&self.shelf));
        kinds.push(Rc::clone(&kind));
        kind
    }

    /// Number of tasks that the pool was configured for; 0 when it was not.
    pub(crate) fn limit(&self) -> u32 {
        self.conf.get().map_or(0, |conf| conf.limit)
    }

    /// Takes a task out of the pool. It goes back with [`Task::free`].
    pub(crate) fn allocate<B: 'static>(
        &self,
        ctx: &Ctx,
        body: B,
        user_data: doca_data,
    ) -> Result<NonNull<TaskOf<B>>> {
        if !matches!(ctx.state(), CtxState::Starting | CtxState::Running) {
            return Err(Error::BadState.because(format_args!(
                "expected a started context to allocate a task from, its state is {:?}",
                ctx.state()
            )));
        }
        let conf = self.conf.get().ok_or_else(|| {
            Error::BadState.because("no pool was configured for tasks of this kind")
        })?;
        let used = self.shelf.used.get();
        if used >= conf.limit {
            return Err(Error::NoMemory.because(format_args!(
                "all {} tasks of the pool are allocated",
                conf.limit
            )));
        }
        self.shelf.used.set(used + 1);
        let task = TaskOf::new(self.kind::<B>(ctx, conf), body, user_data);
        let place = match self.shelf.take::<B>() {
            Some(mut place) => {
                // SAFETY: a freed task of this very type, which only the shelf knew of; its header is whole, its body dropped.
                *unsafe { place.as_mut() } = task;
                place
            }
            None => NonNull::from(Box::leak(Box::new(task))),
        };
        ctx.task_allocated();
        check::created(Object::Task);
        Ok(place)
    }
}
