//! Tasks: one header for all kinds, and pools that hand them out.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;

use doca_abi::{doca_data, doca_task};

use super::ctx::{Ctx, CtxState};
use crate::check::{self, Mistake, Object};
use crate::error::{Error, Result};

/// A completion callback: the task (a pointer to its kind, which starts with the header), the task's and the
/// context's user data. All kinds of tasks have callbacks of this shape.
pub(crate) type TaskCallback = unsafe extern "C" fn(*mut doca_task, doca_data, doca_data);

/// Gets a task's result in the place of the program's callbacks.
pub(crate) trait Completion {
    /// The task has ended. It belongs to the program again: it may be submitted, or freed, in here.
    fn ended(self: Rc<Self>, result: Result<()>);
}

/// The head of every task; a `struct doca_task *` points to one.
#[repr(C)]
pub(crate) struct Task {
    /// The context that the task was allocated from. It outlives the task: destroying a context that has tasks is
    /// refused.
    ctx: NonNull<Ctx>,
    body: TypeId,
    in_flight: Cell<bool>,
    /// Waits in its pool for the next allocation.
    freed: Cell<bool>,
    status: Cell<u32>,
    user_data: Cell<doca_data>,
    on_success: TaskCallback,
    on_error: TaskCallback,
    /// Who gets the result of this run, if not the callbacks.
    completion: Cell<Option<Rc<dyn Completion>>>,
    shelf: Rc<Shelf>,
    /// Drops the body, as the type that it is, and leaves its place.
    drop_body: unsafe fn(NonNull<Task>),
    /// Gives the memory of a task without a body back.
    deallocate: unsafe fn(NonNull<Task>),
}

/// A task of one kind.
#[repr(C)]
pub(crate) struct TaskOf<B> {
    task: Task,
    pub(crate) body: ManuallyDrop<B>,
}

impl Task {
    pub(crate) fn ctx(&self) -> &Ctx {
        // SAFETY: the context outlives its tasks (see the field).
        unsafe { self.ctx.as_ref() }
    }

    pub(crate) fn user_data(&self) -> doca_data {
        self.user_data.get()
    }

    pub(crate) fn set_user_data(&self, data: doca_data) {
        self.user_data.set(data);
    }

    /// Result of the last run as a `doca_error_t`.
    pub(crate) fn status(&self) -> u32 {
        self.status.get()
    }

    /// The task as its own kind, if `B` is the kind's body.
    pub(crate) fn downcast<B: 'static>(&self) -> Option<&TaskOf<B>> {
        if self.body == TypeId::of::<B>() {
            // SAFETY: the header was made as the first field of a `TaskOf<B>` (repr(C)) by `TaskPool::allocate`.
            Some(unsafe { &*std::ptr::from_ref(self).cast::<TaskOf<B>>() })
        } else {
            None
        }
    }

    /// Hands the task to its context's driver.
    ///
    /// Answers `BadState` when the context is not running or the task is in flight already.
    pub(crate) fn submit(&self) -> Result<()> {
        let ctx = self.ctx();
        if ctx.state() != CtxState::Running || self.in_flight.get() || self.freed.get() {
            return Err(self.not_now());
        }
        // Marked first: a driver may complete the task into its queue before it returns.
        self.in_flight.set(true);
        let submitted = ctx.driver().submit(ctx, self);
        if submitted.is_ok() {
            ctx.task_submitted();
            ctx.stir();
        } else {
            self.in_flight.set(false);
        }
        submitted
    }

    /// Why the task cannot be submitted.
    #[cold]
    fn not_now(&self) -> Error {
        let mistake = match (self.freed.get(), self.in_flight.get()) {
            (true, _) => Mistake::TaskUsedAfterFree,
            (_, true) => Mistake::TaskSubmittedTwice,
            // The context does not run; it may have stopped by itself.
            _ => return Error::BadState,
        };
        check::report(mistake, format_args!("{self}"));
        Error::BadState
    }

    /// As [`submit`](Self::submit), after a look at what the task is given.
    pub(crate) fn try_submit(&self) -> Result<()> {
        let ctx = self.ctx();
        if !self.freed.get() && !self.in_flight.get() {
            ctx.driver().check(ctx, self)?;
        }
        self.submit()
    }

    /// As [`submit`](Self::submit); `completion` gets the result of this run, and the program's callbacks are not called.
    pub(crate) fn submit_for(&self, completion: Rc<dyn Completion>) -> Result<()> {
        if self.in_flight.get() || self.freed.get() {
            return Err(self.not_now());
        }
        self.completion.set(Some(completion));
        self.submit().inspect_err(|_| self.completion.set(None))
    }

    /// Ends the run and calls the program.
    ///
    /// The task belongs to the program again when its callback starts: the callback may resubmit or free it.
    ///
    /// # Safety
    ///
    /// `task` is live and in flight.
    pub(super) unsafe fn complete(task: NonNull<Task>, result: Result<()>) {
        // No reference to the task is held, or passed to this function, across the call that may free it.
        let (callback, user_data, ctx_user_data, completion) = {
            // SAFETY: the caller's promise.
            let header = unsafe { task.as_ref() };
            let ctx = header.ctx();
            header.in_flight.set(false);
            header.status.set(result.map_or_else(Error::code, |()| 0));
            ctx.task_finished();
            let callback = if result.is_ok() {
                header.on_success
            } else {
                header.on_error
            };
            (
                callback,
                header.user_data.get(),
                ctx.user_data(),
                header.completion.take(),
            )
        };
        if let Some(completion) = completion {
            completion.ended(result);
            return;
        }
        // SAFETY: the callback was given for this kind of task with this shape; `task` is a live task of that kind and
        // is not touched after the call.
        unsafe { callback(task.as_ptr().cast(), user_data, ctx_user_data) };
    }

    /// Frees the task. A task in flight is refused: hardware would write through it later.
    ///
    /// Its memory stays with the pool, for the next allocation: programs ask freed tasks for their status.
    ///
    /// # Safety
    ///
    /// `task` must come from [`TaskPool::allocate`], whose context lives.
    pub(crate) unsafe fn free(task: NonNull<Task>) -> Result<()> {
        // SAFETY: the caller vouches for the pointer.
        let header = unsafe { task.as_ref() };
        if header.in_flight.get() {
            check::report(Mistake::TaskFreedInFlight, format_args!("{header}"));
            return Err(
                Error::InUse.because("a task in flight cannot be freed; stop its context first")
            );
        }
        if header.freed.replace(true) {
            check::report(Mistake::TaskFreedTwice, format_args!("{header}"));
            return Err(Error::BadState.because("the task was freed already"));
        }
        // SAFETY: `drop_body` is the function for the very type that was allocated, and the body is there: the task was not freed.
        unsafe { (header.drop_body)(task) };
        header.shelf.put_back(task);
        check::destroyed(Object::Task);
        header.ctx().task_freed();
        Ok(())
    }
}

/// As a program knows it: by its address.
impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ctx = self.ctx;
        write!(f, "task {:p} of context {ctx:p}", std::ptr::from_ref(self))
    }
}

/// What a pool shares with its tasks.
#[derive(Default)]
struct Shelf {
    /// Tasks that the program has.
    used: Cell<u32>,
    /// Freed tasks, without bodies.
    free: RefCell<Vec<NonNull<Task>>>,
}

impl Shelf {
    fn put_back(&self, task: NonNull<Task>) {
        self.used.set(self.used.get() - 1);
        self.free.borrow_mut().push(task);
    }

    /// A freed task whose body was a `B`.
    fn take<B: 'static>(&self) -> Option<NonNull<TaskOf<B>>> {
        let mut free = self.free.borrow_mut();
        let fits = |task: &NonNull<Task>| {
            // SAFETY: the memory of freed tasks lives as long as the pool.
            unsafe { task.as_ref() }.body == TypeId::of::<B>()
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
    shelf: Rc<Shelf>,
}

impl Drop for TaskPool {
    fn drop(&mut self) {
        for task in self.shelf.free.take() {
            // SAFETY: a freed task has no body; nobody may use it any more, because its context is destroyed.
            unsafe { (task.as_ref().deallocate)(task) };
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
        Ok(())
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
        let task = Task {
            ctx: NonNull::from(ctx),
            body: TypeId::of::<B>(),
            in_flight: Cell::new(false),
            freed: Cell::new(false),
            status: Cell::new(0),
            user_data: Cell::new(user_data),
            on_success: conf.on_success,
            on_error: conf.on_error,
            completion: Cell::new(None),
            shelf: Rc::clone(&self.shelf),
            drop_body: drop_body::<B>,
            deallocate: deallocate::<B>,
        };
        let body = ManuallyDrop::new(body);
        let place = match self.shelf.take::<B>() {
            Some(mut place) => {
                // SAFETY: a freed task of this very type, which only the shelf knew of; its header is whole, its body dropped.
                *unsafe { place.as_mut() } = TaskOf { task, body };
                place
            }
            None => NonNull::from(Box::leak(Box::new(TaskOf { task, body }))),
        };
        ctx.task_allocated();
        check::created(Object::Task);
        Ok(place)
    }
}

/// Drops the body of a task, as the type it was made as.
///
/// # Safety
///
/// `task` is the header of a live, leaked `Box<TaskOf<B>>` with its body, which is not used afterwards.
unsafe fn drop_body<B>(task: NonNull<Task>) {
    // SAFETY: see above; the header is the first field of a repr(C) struct.
    unsafe { ManuallyDrop::drop(&mut (*task.as_ptr().cast::<TaskOf<B>>()).body) };
}

/// Gives the memory of a task back.
///
/// # Safety
///
/// `task` is the header of a live, leaked `Box<TaskOf<B>>` whose body was dropped.
unsafe fn deallocate<B>(task: NonNull<Task>) {
    // SAFETY: see above; the header is the first field of a repr(C) struct.
    drop(unsafe { Box::from_raw(task.as_ptr().cast::<TaskOf<B>>()) });
}
