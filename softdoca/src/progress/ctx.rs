//! The common part of all contexts: state, user data, task counts.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use doca_abi::{doca_ctx, doca_ctx_state_changed_callback_t, doca_data};

use super::pe::Pe;
use super::task::Task;
use crate::agent::is_held_up;
use crate::check::{self, Mistake};
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
    /// events of one progress call: programs poll until their callback has recorded the connection, and set it up
    /// before they poll again.
    Connection(Box<dyn FnOnce()>),
    /// Any other event; rare, so the allocation does not matter.
    Call(Box<dyn FnOnce()>),
}

/// The specific part of a context. Methods are called by one thread at a time and must hold no borrow of their own
/// state when they call the program (there is no need to: they return [`Event`]s).
pub(crate) trait Driver: Any {
    /// Starts operation. `ctx` is connected to an engine.
    fn start(&self, ctx: &Ctx) -> Result<Started>;

    /// Checks a task in advance, as far as possible. Not called on the data path.
    fn check(&self, _ctx: &Ctx, _task: &Task) -> Result<()> {
        Ok(())
    }

    /// Takes a task of this context.
    fn submit(&self, ctx: &Ctx, task: &Task) -> Result<()>;

    /// The next event, if any. Called often: must be cheap when there is none.
    fn next_event(&self, ctx: &Ctx) -> Option<Event>;

    /// Called at the start of a poll iteration. Returns the number of events, from 1 to `most`, to deliver before other
    /// contexts are polled.
    fn begin_turn(&self, most: u32) -> u32 {
        most
    }

    /// Delivers up to `most` events. Returns their number. Not meant to be overridden: as a provided method it gives
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
            // Return after a blocking request to another process's agent: one is enough for a progress call.
            if ctx.is_turn_over() || is_held_up() {
                break;
            }
        }
        found
    }

    /// The context is stopping: the following calls of [`next_event`](Self::next_event) must return every task in flight.
    fn flush(&self, ctx: &Ctx);

    /// Called when no task is allocated any more. Returns `true` when everything else is torn down as well.
    fn finish_stop(&self, ctx: &Ctx) -> bool;

    /// A file descriptor given to [`Pe::watch`] can be read or has hung up.
    fn on_ready(&self, _ctx: &Ctx, _token: u32) {}

    /// Called before the thread sleeps: requests a wake-up from every peer. The engine calls
    /// [`next_event`](Self::next_event) once more afterwards.
    fn arm(&self) {}

    /// Called when the thread is awake again.
    fn disarm(&self) {}
}

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

    /// The driver downcast to its type.
    pub(crate) fn driver_as<D: Driver>(&self) -> Result<&D> {
        let any: &dyn Any = &*self.driver;
        any.downcast_ref::<D>()
            .ok_or_else(|| Error::InvalidValue.because("the handle is of another kind of context"))
    }

    /// The engine that drives the context.
    pub(crate) fn pe(&self) -> Result<Rc<Pe>> {
        self.pe.borrow().clone().ok_or_else(|| {
            Error::BadState.because("connect the context to a progress engine first")
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

    /// Called after an action of the program outside of progress. Wakes the engine if it is armed: no peer would.
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
        match self.driver.start(self)? {
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
    /// that the context is delivering an event: programs that stop a context in one of its callbacks expect it to be
    /// stopping then, and idle soon after.
    pub(crate) fn stop(&self) -> Result<()> {
        let stopped = self.end(self.is_in_callback());
        self.stir();
        stopped
    }

    /// Stops; if `later`, the context stays in the state "stopping" at least until the end of the progress call.
    fn end(&self, later: bool) -> Result<()> {
        match self.state.get() {
            CtxState::Idle => Ok(()),
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

    /// Goes from stopping to idle if everything is flushed and freed. Returns `true` if it did.
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
    pub(super) fn dispatch(&self, event: Event) {
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
    /// program must see that change before any further event.
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
        if let Some(callback) = self.state_changed.get() {
            let ctx = std::ptr::from_ref(self).cast_mut().cast::<doca_ctx>();
            // SAFETY: the program set the callback for this context; nothing is borrowed while it runs.
            unsafe { callback(self.user_data.get(), ctx, previous as u32, next as u32) };
        }
        // Last: the callback may have called progress, which starts poll iterations of its own.
        self.turn_over.set(true);
    }

    pub(super) fn task_allocated(&self) {
        self.allocated.set(self.allocated.get() + 1);
    }

    pub(super) fn task_freed(&self) {
        self.allocated.set(self.allocated.get() - 1);
        if self.state.get() == CtxState::Stopping {
            // The thread may be waiting for this change.
            self.stir();
        }
    }

    pub(super) fn task_submitted(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    pub(super) fn task_finished(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Detaches the context from its engine before it is destroyed.
    ///
    /// Returns `BadState` unless it is idle, and `InUse` while tasks are allocated.
    pub(crate) fn disconnect(&self) -> Result<()> {
        if self.state.get() != CtxState::Idle {
            check::report(
                Mistake::ContextDestroyedRunning,
                format_args!("context {self:p}, its state is {:?}", self.state.get()),
            );
        }
        self.expect_idle("destroy it")?;
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
