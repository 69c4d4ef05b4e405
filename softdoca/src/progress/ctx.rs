//! What all contexts share: state, user data, counts of tasks.

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

/// How a driver's start went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Started {
    /// The context runs when `doca_ctx_start` returns.
    Running,
    /// It will run, or fail, later: the driver says so with [`Event::Started`] or [`Event::StartFailed`].
    InProgress,
}

/// Something that happened to a context and that the program is to learn of.
pub(crate) enum Event {
    /// A task has ended.
    Task(NonNull<Task>, Result<()>),
    /// A start that was in progress has succeeded.
    Started,
    /// A start that was in progress has failed: the context stops.
    StartFailed,
    /// The context cannot go on: it stops by itself and flushes its tasks.
    Broken,
    /// A connection of the context was made, or ended: as a change of the context's state, this ends what one call of progress delivers.
    /// Programs poll until their callback has noted it, and set the connection up before they poll again.
    Connection(Box<dyn FnOnce()>),
    /// Anything else; rare, so the allocation does not matter.
    Call(Box<dyn FnOnce()>),
}

/// What one kind of context does. Methods are called by one thread at a time and must hold no borrow of their own state
/// when they call the program (they need not: they return [`Event`]s).
pub(crate) trait Driver: Any {
    /// Begins to work. `ctx` is connected to an engine.
    fn start(&self, ctx: &Ctx) -> Result<Started>;

    /// Whether a task could succeed, as far as that can be told now. Not called on the data path.
    fn check(&self, _ctx: &Ctx, _task: &Task) -> Result<()> {
        Ok(())
    }

    /// Takes a task of this context.
    fn submit(&self, ctx: &Ctx, task: &Task) -> Result<()>;

    /// The next thing that happened, if any. Called often: must be cheap when there is nothing.
    fn next_event(&self, ctx: &Ctx) -> Option<Event>;

    /// The context's turn begins: how many events, at least one and at most `most`, are delivered before other contexts have theirs.
    fn begin_turn(&self, most: u32) -> u32 {
        most
    }

    /// Delivers up to `most` of the things that happened, and says how many. Not to be replaced: that it is a method of the trait gives each
    /// kind of context a loop of its own, with [`next_event`](Self::next_event) in it and no call through a table for every event.
    fn deliver(&self, ctx: &Ctx, most: u32) -> u32 {
        let most = self.begin_turn(most);
        let mut found = 0;
        while found < most {
            let Some(event) = self.next_event(ctx) else {
                break;
            };
            found += 1;
            ctx.dispatch(event);
            // What agents of other processes made this thread wait for is enough for one call.
            if ctx.is_turn_over() || is_held_up() {
                break;
            }
        }
        found
    }

    /// The context stops: every task in flight must come out of [`next_event`](Self::next_event), soon.
    fn flush(&self, ctx: &Ctx);

    /// No task is allocated any more. True when everything else is torn down as well.
    fn finish_stop(&self, ctx: &Ctx) -> bool;

    /// A file descriptor given to [`Pe::watch`] can be read or has hung up.
    fn on_ready(&self, _ctx: &Ctx, _token: u32) {}

    /// The thread is about to sleep: ask every peer to ring. The engine looks at [`next_event`](Self::next_event) once
    /// more afterwards.
    fn arm(&self) {}

    /// The thread is awake.
    fn disarm(&self) {}
}

/// A context. A `struct doca_ctx *` points to one, and so do the handles of all kinds of contexts.
pub(crate) struct Ctx {
    id: u32,
    state: Cell<CtxState>,
    user_data: Cell<doca_data>,
    state_changed: Cell<doca_ctx_state_changed_callback_t>,
    pe: RefCell<Option<Rc<Pe>>>,
    allocated: Cell<usize>,
    in_flight: Cell<usize>,
    /// Events that are being delivered: more than one when a callback makes progress itself.
    delivering: Cell<u32>,
    /// The state of the context, or of one of its connections, has changed since its turn began.
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

    /// Number of the context within the process, never 0; names it in [`Pe::watch`].
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
        self.expect_idle("the state callback is set")?;
        self.state_changed.set(callback);
        Ok(())
    }

    pub(crate) fn tasks_in_flight(&self) -> usize {
        self.in_flight.get()
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// The driver as its own kind.
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

    pub(crate) fn expect_idle(&self, what: &str) -> Result<()> {
        match self.state.get() {
            CtxState::Idle => Ok(()),
            state => Err(Error::BadState.because(format_args!(
                "{what} before the context is started; its state is {state:?}"
            ))),
        }
    }

    /// The program has done something outside of progress. What follows from it is no peer's news, so an engine that is
    /// armed, and that its thread or the program waits for, is rung.
    pub(crate) fn stir(&self) {
        if let Some(pe) = &*self.pe.borrow()
            && pe.is_armed()
        {
            pe.wake().ring();
        }
    }

    /// Starts. `Err(InProgress)` means that the context is starting and will tell.
    pub(crate) fn start(&self) -> Result<()> {
        let started = self.begin();
        self.stir();
        started
    }

    fn begin(&self) -> Result<()> {
        self.expect_idle("a context is started when it is idle:")?;
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

    /// Stops. `Err(InProgress)` means that tasks are still to be flushed or freed, or messages to be delivered, or that the context is
    /// delivering an event: programs that stop a context in one of its callbacks expect it to be stopping then, and idle soon after.
    pub(crate) fn stop(&self) -> Result<()> {
        let stopped = self.end(self.is_in_callback());
        self.stir();
        stopped
    }

    /// Stops; in the state "stopping" until the end of the progress call, at least, if it is to be `later`.
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

    /// Goes from stopping to idle when everything is flushed and freed. True when it went.
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

    /// Delivers one event to the program.
    #[inline(always)]
    pub(super) fn dispatch(&self, event: Event) {
        self.delivering.set(self.delivering.get() + 1);
        self.deliver(event);
        self.delivering.set(self.delivering.get() - 1);
    }

    /// The program is called for one of the context's events.
    fn is_in_callback(&self) -> bool {
        self.delivering.get() != 0
    }

    /// The context's turn to deliver events begins.
    #[inline(always)]
    pub(super) fn begin_turn(&self) {
        self.turn_over.set(false);
    }

    /// `true` if the state of the context, or of one of its connections, has changed in this turn. The program learns of it before
    /// it gets any further event.
    #[inline(always)]
    pub(super) fn is_turn_over(&self) -> bool {
        self.turn_over.get()
    }

    #[inline(always)]
    fn deliver(&self, event: Event) {
        match event {
            Event::Task(task, result) => {
                // SAFETY: a driver only reports tasks that were submitted to it and have not completed; a task in
                // flight lives, as freeing it takes effect after its completion. The engine keeps the context alive.
                unsafe { Task::complete(task, result) };
            }
            other => self.deliver_rare(other),
        }
    }

    #[cold]
    fn deliver_rare(&self, event: Event) {
        match event {
            // Delivered above.
            Event::Task(..) => {}
            Event::Started if self.state.get() == CtxState::Starting => {
                self.enter(CtxState::Running)
            }
            Event::Started => {}
            // Contexts that start or run stop by themselves; the error is no news to one that stops already.
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
            // SAFETY: the program gave the callback for this context; nothing is borrowed while it runs.
            unsafe { callback(self.user_data.get(), ctx, previous as u32, next as u32) };
        }
        // Last: the callback may have made progress, which begins turns of its own.
        self.turn_over.set(true);
    }

    pub(super) fn task_allocated(&self) {
        self.allocated.set(self.allocated.get() + 1);
    }

    pub(super) fn task_freed(&self) {
        self.allocated.set(self.allocated.get() - 1);
        if self.state.get() == CtxState::Stopping {
            // It may have waited for just this.
            self.stir();
        }
    }

    pub(super) fn task_submitted(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    pub(super) fn task_finished(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Takes the context away from its engine, before it is destroyed.
    ///
    /// Answers `BadState` while it is not idle and `InUse` while tasks are allocated.
    pub(crate) fn disconnect(&self) -> Result<()> {
        if self.state.get() != CtxState::Idle {
            check::report(
                Mistake::ContextDestroyedRunning,
                format_args!("context {self:p}, its state is {:?}", self.state.get()),
            );
        }
        self.expect_idle("a context is destroyed when it is idle:")?;
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
