//! Contexts, and the tasks that they run.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use doca_abi::{doca_ctx, doca_ctx_state_changed_callback_t, doca_data, doca_task};

use super::Pe;
use crate::agent::{WaitScope, is_held_up};
use crate::check::{self, Mistake, Object};
use crate::device::DeviceUse;
use crate::error::{Error, Result};

/// State of a context, with the values of `enum doca_ctx_states`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum CtxState {
    Idle = 0,
    Starting = 1,
    Running = 2,
    Stopping = 3,
}

/// Result of a driver's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Started {
    /// The context runs when `doca_ctx_start` returns.
    Running,
    /// The context will run or fail later; the driver reports it with [`Event::Started`] or [`Event::StartFailed`].
    InProgress,
}

/// An event of a context to report to the program.
pub(crate) enum Event {
    /// A task has completed.
    Task(NonNull<Task>, Result<()>),
    /// A start that was in progress has succeeded.
    Started,
    /// A start that was in progress has failed: the context stops.
    StartFailed,
    /// The context has failed: it stops by itself and flushes its tasks.
    Broken,
    /// A connection of the context was established or closed. Like a state change of the context, it ends the batch of
    /// events of one progress call: programs poll until their callback has recorded the connection, and configure it
    /// before they poll again.
    Connection(Box<dyn FnOnce()>),
    /// Any other event; rare, so the allocation does not matter.
    Call(Box<dyn FnOnce()>),
}

/// The specific part of a context. Methods are called by one thread at a time and must hold no borrow of their own
/// state when they call the program (this is not necessary, because they return [`Event`]s).
pub(crate) trait Driver: Any {
    /// Starts operation. `ctx` is connected to an engine.
    fn start(&self, ctx: &Ctx) -> Result<Started>;

    /// Checks a task in advance, as far as possible. Not called on the data path.
    fn check(&self, _ctx: &Ctx, _task: &Task) -> Result<()> {
        Ok(())
    }

    /// Accepts a task of this context for execution.
    fn submit(&self, ctx: &Ctx, task: &Task) -> Result<()>;

    /// The next event, if any. Called often, so it must be fast if there is none.
    fn next_event(&self, ctx: &Ctx) -> Option<Event>;

    /// Called at the start of a poll iteration. Returns the number of events, from 1 to `most`, to deliver before other
    /// contexts are polled.
    fn begin_turn(&self, most: u32) -> u32 {
        most
    }

    /// Delivers up to `most` events. Returns their number. Not meant to be overridden: as a provided method, it gives
    /// each kind of context its own loop with [`next_event`](Self::next_event) inlined, without a virtual call per
    /// event.
    fn deliver(&self, ctx: &Ctx, most: u32) -> u32 {
        let most = self.begin_turn(most);
        let mut found = 0;
        while found < most {
            let Some(event) = self.next_event(ctx) else {
                break;
            };
            found += 1;
            ctx.dispatch(event);
            // Return after a blocking request to another process's agent: a progress call should wait for only one.
            if ctx.is_turn_over() || is_held_up() {
                break;
            }
        }
        found
    }

    /// The context is stopping: the following calls of [`next_event`](Self::next_event) must return every task in flight.
    fn flush(&self, ctx: &Ctx);

    /// The devices that the program must not close while the context runs.
    fn devices(&self) -> Vec<DeviceUse> {
        Vec::new()
    }

    /// Called when no task is allocated any longer. Returns `true` once everything else is also torn down.
    fn finish_stop(&self, ctx: &Ctx) -> bool;

    /// A file descriptor passed to [`Pe::watch`] can be read or has hung up.
    fn on_ready(&self, _ctx: &Ctx, _token: u32) {}

    /// Called before the thread sleeps: requests a wake-up from every peer. The engine calls
    /// [`next_event`](Self::next_event) once more afterwards.
    fn arm(&self) {}

    /// Called when the thread is awake again.
    fn disarm(&self) {}
}

/// Maximum number of tasks of a pool.
pub(crate) const MAX_TASKS: u32 = 65_536;

/// A context. `struct doca_ctx *` and the handles of all kinds of contexts point to it.
pub(crate) struct Ctx {
    id: u32,
    state: Cell<CtxState>,
    user_data: Cell<doca_data>,
    state_changed: Cell<doca_ctx_state_changed_callback_t>,
    pe: RefCell<Option<Rc<Pe>>>,
    allocated: Cell<usize>,
    in_flight: Cell<usize>,
    /// Nesting depth of event delivery: more than 1 if a callback calls progress itself.
    delivering: Cell<u32>,
    /// `true` if the state of the context, or of one of its connections, has changed in the current poll iteration.
    turn_over: Cell<bool>,
    /// Devices used by the context, until it is idle.
    devices: RefCell<Vec<DeviceUse>>,
    driver: Box<dyn Driver>,
}

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl Ctx {
    pub(crate) fn new(driver: impl Driver) -> Rc<Self> {
        Rc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            state: Cell::new(CtxState::Idle),
            user_data: Cell::new(doca_data { u64: 0 }),
            state_changed: Cell::new(None),
            pe: RefCell::new(None),
            allocated: Cell::new(0),
            in_flight: Cell::new(0),
            delivering: Cell::new(0),
            turn_over: Cell::new(false),
            devices: RefCell::default(),
            driver: Box::new(driver),
        })
    }

    /// Number of the context within the process, never 0; identifies it in [`Pe::watch`].
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn state(&self) -> CtxState {
        self.state.get()
    }

    pub(crate) fn user_data(&self) -> doca_data {
        self.user_data.get()
    }

    pub(crate) fn set_user_data(&self, data: doca_data) {
        self.user_data.set(data);
    }

    pub(crate) fn set_state_changed(
        &self,
        callback: doca_ctx_state_changed_callback_t,
    ) -> Result<()> {
        self.expect_idle("set the state callback")?;
        self.state_changed.set(callback);
        Ok(())
    }

    pub(crate) fn tasks_in_flight(&self) -> usize {
        self.in_flight.get()
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// The driver, downcast to its concrete type.
    pub(crate) fn driver_as<D: Driver>(&self) -> Result<&D> {
        let any: &dyn Any = &*self.driver;
        any.downcast_ref::<D>()
            .ok_or_else(|| Error::InvalidValue.because("the handle is of another kind of context"))
    }

    /// The engine that drives the context.
    pub(crate) fn pe(&self) -> Result<Rc<Pe>> {
        self.pe.borrow().clone().ok_or_else(|| {
            Error::NotConnected.because("connect the context to a progress engine first")
        })
    }

    pub(super) fn has_pe(&self) -> bool {
        self.pe.borrow().is_some()
    }

    pub(super) fn set_pe(&self, pe: Option<Rc<Pe>>) {
        *self.pe.borrow_mut() = pe;
    }

    pub(crate) fn expect_idle(&self, action: &str) -> Result<()> {
        match self.state.get() {
            CtxState::Idle => Ok(()),
            state => Err(Error::BadState.because(format_args!(
                "expected an idle context to {action}, its state is {state:?}"
            ))),
        }
    }

    /// Called after an action of the program outside of progress. Wakes the engine if it is armed, because no peer
    /// would.
    pub(crate) fn stir(&self) {
        if let Some(pe) = &*self.pe.borrow()
            && pe.is_armed()
        {
            pe.wake().ring();
        }
    }

    /// Starts the context. `Err(InProgress)` means that the result is reported later.
    pub(crate) fn start(&self) -> Result<()> {
        let started = self.begin();
        self.stir();
        started
    }

    fn begin(&self) -> Result<()> {
        self.expect_idle("start it")?;
        let _engine = self.pe()?;
        let started = self.driver.start(self).map_err(|error| match error {
            // The documented error of a start that lacks resources.
            Error::NoMemory | Error::OperatingSystem | Error::Driver => Error::Initialization,
            error => error,
        })?;
        self.devices.replace(self.driver.devices());
        match started {
            Started::Running => {
                self.enter(CtxState::Running);
                Ok(())
            }
            Started::InProgress => {
                self.enter(CtxState::Starting);
                Err(Error::InProgress)
            }
        }
    }

    /// Stops the context. `Err(InProgress)` means that tasks have to be flushed or freed, or messages delivered, or
    /// that the context is delivering an event: programs that stop a context in one of its callbacks expect its state
    /// to be stopping, and later idle.
    pub(crate) fn stop(&self) -> Result<()> {
        let stopped = self.end(self.is_in_callback());
        self.stir();
        stopped
    }

    /// Stops the context; if `later`, it remains in the state "stopping" at least until the end of the progress call.
    fn end(&self, later: bool) -> Result<()> {
        match self.state.get() {
            CtxState::Idle => self.pe().map(|_| ()),
            CtxState::Stopping => Err(Error::InProgress),
            CtxState::Starting | CtxState::Running => {
                self.driver.flush(self);
                if !later && self.can_finish() && self.driver.finish_stop(self) {
                    self.enter(CtxState::Idle);
                    Ok(())
                } else {
                    self.enter(CtxState::Stopping);
                    Err(Error::InProgress)
                }
            }
        }
    }

    /// Changes the state from stopping to idle if all tasks are flushed and freed. Returns `true` if the state has
    /// changed.
    pub(super) fn try_finish_stop(&self) -> bool {
        let done = self.state.get() == CtxState::Stopping
            && self.can_finish()
            && self.driver.finish_stop(self);
        if done {
            self.enter(CtxState::Idle);
        }
        done
    }

    fn can_finish(&self) -> bool {
        self.allocated.get() == 0 && self.in_flight.get() == 0
    }

    /// Delivers an event to the program.
    #[inline(always)]
    fn dispatch(&self, event: Event) {
        self.delivering.set(self.delivering.get() + 1);
        self.deliver(event);
        self.delivering.set(self.delivering.get() - 1);
    }

    /// `true` while the program is called for an event of the context.
    fn is_in_callback(&self) -> bool {
        self.delivering.get() != 0
    }

    /// Starts a poll iteration of the context.
    #[inline(always)]
    pub(super) fn begin_turn(&self) {
        self.turn_over.set(false);
    }

    /// `true` if the state of the context, or of one of its connections, has changed in this poll iteration. The
    /// program must be notified of the change before any further event.
    #[inline(always)]
    pub(super) fn is_turn_over(&self) -> bool {
        self.turn_over.get()
    }

    #[inline(always)]
    fn deliver(&self, event: Event) {
        match event {
            Event::Task(task, result) => {
                // The event has nothing to drop, which the compiler does not recognize.
                std::mem::forget(event);
                // SAFETY: a driver only reports tasks that were submitted to it and have not completed; a task in
                // flight is alive, as freeing it takes effect after its completion. The engine keeps the context alive.
                unsafe { Task::complete(task, result) };
            }
            other => self.deliver_rare(other),
        }
    }

    #[cold]
    fn deliver_rare(&self, event: Event) {
        match event {
            // Handled above.
            Event::Task(..) => {}
            Event::Started if self.state.get() == CtxState::Starting => {
                self.enter(CtxState::Running)
            }
            Event::Started => {}
            // Starting and running contexts stop by themselves; a context that is already stopping ignores it.
            Event::StartFailed => {
                let _ = self.end(false);
            }
            Event::Broken => {
                let _ = self.end(true);
            }
            Event::Connection(call) => {
                call();
                self.turn_over.set(true);
            }
            Event::Call(call) => call(),
        }
    }

    fn enter(&self, next: CtxState) {
        let previous = self.state.replace(next);
        if previous == next {
            return;
        }
        if next == CtxState::Idle {
            // Dropped before the callback, in which the program may close the devices.
            drop(self.devices.take());
        }
        if let Some(callback) = self.state_changed.get() {
            let ctx = std::ptr::from_ref(self).cast_mut().cast::<doca_ctx>();
            // SAFETY: the program set the callback for this context; no borrow is active while it runs.
            unsafe { callback(self.user_data.get(), ctx, previous as u32, next as u32) };
        }
        // Set last, because the callback may have called progress, which starts poll iterations of its own.
        self.turn_over.set(true);
    }

    fn task_allocated(&self) {
        self.allocated.set(self.allocated.get() + 1);
    }

    fn task_freed(&self) {
        self.allocated.set(self.allocated.get() - 1);
        if self.state.get() == CtxState::Stopping {
            // The thread may be waiting for this change.
            self.stir();
        }
    }

    fn task_submitted(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    fn task_finished(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Detaches the context from its engine before it is destroyed.
    ///
    /// # Errors
    /// `active` unless the context is idle, and `InUse` while tasks are allocated.
    pub(crate) fn disconnect(&self, active: Error) -> Result<()> {
        let state = self.state.get();
        if state != CtxState::Idle {
            check::report(
                Mistake::ContextDestroyedRunning,
                format_args!("context {self:p}, its state is {state:?}"),
            );
            return Err(active.because(format_args!(
                "expected an idle context to destroy it, its state is {state:?}: stop it first"
            )));
        }
        if self.allocated.get() != 0 {
            return Err(Error::InUse.because(format_args!(
                "{} tasks are still allocated",
                self.allocated.get()
            )));
        }
        let pe = self.pe.borrow_mut().take();
        if let Some(pe) = pe {
            pe.forget(self.id);
        }
        Ok(())
    }
}

/// A completion callback, called with the task (a pointer to its concrete type, which starts with the header), the
/// task's user data and the context's user data. The callbacks of all kinds of tasks have this signature.
pub(crate) type TaskCallback = unsafe extern "C" fn(*mut doca_task, doca_data, doca_data);

/// Receives a task's result in place of the program's callbacks.
pub(crate) trait Completion {
    /// Called on completion. The program owns the task again, and may submit or free it here.
    fn ended(self: Rc<Self>, result: Result<()>);
}

/// The header of every task; `struct doca_task *` points to it.
///
/// Its size is half a cache line; the other half is the start of the body, so that running a task accesses one line.
/// Data that the tasks of a pool share is stored elsewhere.
#[repr(C)]
pub(crate) struct Task {
    kind: Rc<Kind>,
    user_data: Cell<doca_data>,
    /// Receiver of this run's result instead of the callbacks. Boxed, because it is rare and would take two words.
    completion: Cell<Option<Box<Rc<dyn Completion>>>>,
    status: Cell<u32>,
    in_flight: Cell<bool>,
    ownership: Cell<Ownership>,
}

/// Owner of a task's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Ownership {
    /// The program, which may submit and free the task.
    Program,
    /// Freed in flight: the task returns to its pool after its completion was delivered.
    FreedInFlight,
    /// The pool: the task can be allocated again.
    Pool,
}

const _: () = assert!(size_of::<Task>() == 32);

/// Data shared by all tasks of one type from one pool.
pub(super) struct Kind {
    /// The context to which the tasks belong. It outlives them, because a context with tasks cannot be destroyed.
    ctx: NonNull<Ctx>,
    on_success: TaskCallback,
    on_error: TaskCallback,
    /// Type of the bodies, and the functions for that type.
    body: &'static BodyType,
    shelf: Rc<Shelf>,
}

impl Kind {
    /// Creates the kind of tasks with bodies of type `B`.
    fn of<B: 'static>(
        ctx: &Ctx,
        (on_success, on_error): (TaskCallback, TaskCallback),
        shelf: Rc<Shelf>,
    ) -> Rc<Self> {
        Rc::new(Self {
            ctx: NonNull::from(ctx),
            on_success,
            on_error,
            body: BodyType::of::<B>(),
            shelf,
        })
    }

    /// `true` if the bodies have this type.
    #[inline]
    fn has_body<B: 'static>(&self) -> bool {
        self.body.id == TypeId::of::<B>()
    }
}

/// Type-erased operations on a task's body.
struct BodyType {
    id: TypeId,
    /// Drops the body in place.
    drop_body: unsafe fn(NonNull<Task>),
    /// Frees the memory of a task whose body was dropped.
    deallocate: unsafe fn(NonNull<Task>),
}

impl BodyType {
    fn of<B: 'static>() -> &'static BodyType {
        const {
            &BodyType {
                id: TypeId::of::<B>(),
                drop_body: drop_body::<B>,
                deallocate: deallocate::<B>,
            }
        }
    }
}

/// A task with its body. Bodies start with the fields that every run uses.
#[repr(C, align(64))]
pub(crate) struct TaskOf<B> {
    task: Task,
    pub(crate) body: ManuallyDrop<B>,
}

impl<B: 'static> TaskOf<B> {
    /// A task that is not in flight.
    pub(super) fn new(kind: Rc<Kind>, body: B, user_data: doca_data) -> Self {
        debug_assert!(kind.has_body::<B>());
        let task = Task {
            kind,
            user_data: Cell::new(user_data),
            completion: Cell::new(None),
            status: Cell::new(0),
            in_flight: Cell::new(false),
            ownership: Cell::new(Ownership::Program),
        };
        Self {
            task,
            body: ManuallyDrop::new(body),
        }
    }

    /// `true` if the task has been submitted and has not completed.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.task.in_flight.get()
    }
}

impl Task {
    pub(crate) fn ctx(&self) -> &Ctx {
        // SAFETY: the context outlives its tasks (see the field).
        unsafe { self.kind.ctx.as_ref() }
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

    /// `true` if the task was allocated with a body of this type.
    #[inline]
    fn has_body<B: 'static>(&self) -> bool {
        self.kind.has_body::<B>()
    }

    /// The task with its body, if the body is a `B`.
    #[inline]
    pub(crate) fn downcast<B: 'static>(&self) -> Option<&TaskOf<B>> {
        if self.has_body::<B>() {
            // SAFETY: the header was made as the first field of a `TaskOf<B>` (repr(C)) by `TaskPool::allocate`.
            Some(unsafe { &*std::ptr::from_ref(self).cast::<TaskOf<B>>() })
        } else {
            None
        }
    }

    /// Submits the task to its context's driver.
    ///
    /// Returns `BadState` if the context is not running or the task is already in flight.
    #[inline(always)]
    pub(crate) fn submit(&self) -> Result<()> {
        let ctx = self.ctx();
        if ctx.state() != CtxState::Running || self.is_unavailable() {
            return Err(self.not_now());
        }
        // Set first: a driver may complete the task into its queue before it returns.
        self.in_flight.set(true);
        let bound = WaitScope::of_submission();
        let submitted = ctx.driver().submit(ctx, self);
        drop(bound);
        if submitted.is_ok() {
            ctx.task_submitted();
            ctx.stir();
        } else {
            self.in_flight.set(false);
        }
        submitted
    }

    /// `true` if the task is in flight or was freed.
    #[inline(always)]
    fn is_unavailable(&self) -> bool {
        self.in_flight.get() || self.ownership.get() != Ownership::Program
    }

    /// Reason why the task cannot be submitted.
    #[cold]
    fn not_now(&self) -> Error {
        let mistake = match (
            self.ownership.get() != Ownership::Program,
            self.in_flight.get(),
        ) {
            (true, _) => Mistake::TaskUsedAfterFree,
            (_, true) => Mistake::TaskSubmittedTwice,
            // The context is not running; it may have stopped by itself.
            _ => return Error::BadState,
        };
        check::report(mistake, format_args!("{self}"));
        Error::BadState
    }

    /// As [`submit`](Self::submit), with the arguments checked first.
    pub(crate) fn try_submit(&self) -> Result<()> {
        let ctx = self.ctx();
        if !self.is_unavailable() {
            ctx.driver().check(ctx, self)?;
        }
        self.submit()
    }

    /// As [`submit`](Self::submit), but `completion` receives the result of this run instead of the program's
    /// callbacks.
    pub(crate) fn submit_for(&self, completion: Rc<dyn Completion>) -> Result<()> {
        if self.is_unavailable() {
            return Err(self.not_now());
        }
        self.completion.set(Some(Box::new(completion)));
        self.submit().inspect_err(|_| self.completion.set(None))
    }

    /// Completes the run and calls the program.
    ///
    /// The program owns the task again when its callback starts: the callback may resubmit or free it. A task that was
    /// freed in flight returns to its pool after the callback.
    ///
    /// # Safety
    ///
    /// `task` is live and in flight; the caller keeps its context alive until this returns.
    #[inline]
    pub(super) unsafe fn complete(task: NonNull<Task>, result: Result<()>) {
        // No reference to the task exists, or is passed to this function, across the call that may free it.
        let (callback, user_data, ctx_user_data, completion, ownership) = {
            // SAFETY: guaranteed by the caller.
            let header = unsafe { task.as_ref() };
            let ctx = header.ctx();
            header.in_flight.set(false);
            header.status.set(result.map_or_else(Error::code, |()| 0));
            ctx.task_finished();
            let callback = if result.is_ok() {
                header.kind.on_success
            } else {
                header.kind.on_error
            };
            (
                callback,
                header.user_data.get(),
                ctx.user_data(),
                header.completion.take(),
                header.ownership.get(),
            )
        };
        if let Some(completion) = completion {
            completion.ended(result);
        } else {
            // SAFETY: the callback was set for this kind of task and has this signature; `task` is a live task of that
            // kind, and is accessed after the call only if the program could not have freed its memory.
            unsafe { callback(task.as_ptr().cast(), user_data, ctx_user_data) };
        }
        if ownership == Ownership::FreedInFlight {
            // SAFETY: a pool of the context owns the memory of tasks, and the caller keeps the context alive.
            unsafe { Self::finish_free(task) };
        }
    }

    /// Completes a [`free`](Self::free) that was requested in flight, unless the callback has freed the task again.
    ///
    /// # Safety
    ///
    /// `task` is, or was, a task whose context lives.
    #[cold]
    unsafe fn finish_free(task: NonNull<Task>) {
        // SAFETY: guaranteed by the caller; the memory of freed tasks lives as long as the pool.
        if unsafe { task.as_ref() }.ownership.get() == Ownership::FreedInFlight {
            // SAFETY: the task is not in flight, because it cannot be submitted in this state; it has its body.
            unsafe { Self::put_back(task) };
        }
    }

    /// Frees the task. A task in flight is freed after its completion has been delivered, because hardware would still
    /// write to it.
    ///
    /// The pool keeps the memory for the next allocation, because programs read the status of freed tasks.
    ///
    /// # Errors
    ///
    /// [`Error::BadState`] if the task was already freed.
    ///
    /// # Safety
    ///
    /// `task` must come from [`TaskPool::allocate`], whose context lives.
    pub(crate) unsafe fn free(task: NonNull<Task>) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let header = unsafe { task.as_ref() };
        match (header.ownership.get(), header.in_flight.get()) {
            (Ownership::Program, true) => {
                check::report(Mistake::TaskFreedInFlight, format_args!("{header}"));
                header.ownership.set(Ownership::FreedInFlight);
            }
            // The second case is the callback of a task that was freed in flight; the mistake was reported.
            (Ownership::Program, false) | (Ownership::FreedInFlight, false) => {
                // SAFETY: the task is not in flight and has its body.
                unsafe { Self::put_back(task) };
            }
            (Ownership::FreedInFlight, true) | (Ownership::Pool, _) => {
                check::report(Mistake::TaskFreedTwice, format_args!("{header}"));
                return Err(Error::BadState.because("the task was already freed"));
            }
        }
        Ok(())
    }

    /// Drops the body of a task and returns its memory to the pool.
    ///
    /// # Safety
    ///
    /// `task` is not in flight and does not belong to the pool; its context lives.
    unsafe fn put_back(task: NonNull<Task>) {
        // SAFETY: guaranteed by the caller.
        let header = unsafe { task.as_ref() };
        header.ownership.set(Ownership::Pool);
        // SAFETY: `drop_body` is the function for the type that was allocated, and the body exists: the task was not
        // freed.
        unsafe { (header.kind.body.drop_body)(task) };
        header.kind.shelf.put_back(task);
        check::destroyed(Object::Task);
        header.ctx().task_freed();
    }

    /// Frees the memory of a freed task.
    ///
    /// # Safety
    ///
    /// `task` was freed, and is not used afterwards.
    unsafe fn deallocate(task: NonNull<Task>) {
        // SAFETY: `deallocate` is the function for the type that was allocated; a freed task has no body.
        unsafe { (task.as_ref().kind.body.deallocate)(task) };
    }
}

/// Displays the address, which identifies the task to the program.
impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ctx = self.kind.ctx;
        write!(f, "task {:p} of context {ctx:p}", std::ptr::from_ref(self))
    }
}

/// Drops the body of a task in place.
///
/// # Safety
///
/// `task` is the header of a live, leaked `Box<TaskOf<B>>` with its body, which is not used afterwards.
unsafe fn drop_body<B>(task: NonNull<Task>) {
    // SAFETY: see above; the header is the first field of a repr(C) struct.
    unsafe { ManuallyDrop::drop(&mut (*task.as_ptr().cast::<TaskOf<B>>()).body) };
}

/// Frees the memory of a task.
///
/// # Safety
///
/// `task` is the header of a live, leaked `Box<TaskOf<B>>` whose body was dropped.
unsafe fn deallocate<B>(task: NonNull<Task>) {
    // SAFETY: see above; the header is the first field of a repr(C) struct.
    drop(unsafe { Box::from_raw(task.as_ptr().cast::<TaskOf<B>>()) });
}

/// Data that a pool shares with its tasks.
#[derive(Default)]
struct Shelf {
    /// Number of allocated tasks.
    used: Cell<u32>,
    /// Freed tasks, without bodies.
    free: RefCell<Vec<NonNull<Task>>>,
}

impl Shelf {
    fn put_back(&self, task: NonNull<Task>) {
        self.used.set(self.used.get() - 1);
        self.free.borrow_mut().push(task);
    }

    /// Takes a freed task whose body had the type `B`.
    fn take<B: 'static>(&self) -> Option<NonNull<TaskOf<B>>> {
        let mut free = self.free.borrow_mut();
        let fits = |task: &NonNull<Task>| {
            // SAFETY: the memory of freed tasks lives as long as the pool.
            unsafe { task.as_ref() }.has_body::<B>()
        };
        // Usually the last one, because pools have tasks of one type.
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

/// The tasks of one kind of a context, with their callbacks.
#[derive(Default)]
pub(crate) struct TaskPool {
    /// `true` if configuring the pool of an active context fails with `NotPermitted`, as documented for some kinds of
    /// tasks, instead of `BadState`.
    forbids_active: bool,
    conf: Cell<Option<PoolConf>>,
    /// One for each body type allocated since the last configuration; usually there is only one.
    kinds: RefCell<Vec<Rc<Kind>>>,
    shelf: Rc<Shelf>,
}

impl Drop for TaskPool {
    fn drop(&mut self) {
        for task in self.shelf.free.take() {
            // SAFETY: a freed task has no body, and is no longer used because its context is destroyed.
            unsafe { Task::deallocate(task) };
        }
    }
}

impl TaskPool {
    /// A pool whose configuration fails with `NotPermitted` while the context is active.
    pub(crate) fn forbidding_active() -> Self {
        let mut pool = Self::default();
        pool.forbids_active = true;
        pool
    }

    /// Sets callbacks and size. Only before the context is started.
    pub(crate) fn configure(
        &self,
        ctx: &Ctx,
        on_success: Option<TaskCallback>,
        on_error: Option<TaskCallback>,
        limit: u32,
    ) -> Result<()> {
        ctx.expect_idle("configure its task pools")
            .map_err(|error| match self.forbids_active {
                true => Error::NotPermitted,
                false => error,
            })?;
        let (Some(on_success), Some(on_error)) = (on_success, on_error) else {
            return Err(Error::InvalidValue.because("expected two completion callbacks, got NULL"));
        };
        if !(1..=MAX_TASKS).contains(&limit) {
            return Err(Error::InvalidValue.because(format_args!(
                "expected 1 to {MAX_TASKS} tasks in the pool, got {limit}"
            )));
        }
        self.conf.set(Some(PoolConf {
            on_success,
            on_error,
            limit,
        }));
        // An idle context has no tasks, so the old kinds are unused.
        self.kinds.borrow_mut().clear();
        Ok(())
    }

    /// The shared data of tasks with bodies of type `B`.
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

    /// Configured number of tasks; 0 if not configured.
    pub(crate) fn limit(&self) -> u32 {
        self.conf.get().map_or(0, |conf| conf.limit)
    }

    /// Allocates a task. Returned with [`Task::free`].
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
                // SAFETY: a freed task of the same type, owned by the shelf alone; its header is valid, its body
                // dropped.
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
