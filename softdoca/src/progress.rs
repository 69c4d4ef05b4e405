//! Progress engines, contexts and tasks: the base of every DOCA library.
//!
//! * [`Pe`] drives the contexts connected to it; callbacks run only inside [`Pe::progress`] and, for state changes,
//!   inside start and stop.
//! * [`Ctx`] is common to all contexts: state, user data, task counts. The specific part of a context is its
//!   [`Driver`].
//! * [`Task`] is the header of every task; [`TaskPool`] allocates them.
//! * [`idle`] makes a thread without work spin, yield or sleep briefly, and then block.
//!
//! # Threads
//!
//! As in DOCA, one thread at a time uses an engine, its contexts and their tasks; they may move between threads. No
//! lock is taken, and no borrow is held while a callback runs: a callback may resubmit, free, start and stop.

mod ctx;
mod idle;

pub(crate) use ctx::{
    Completion, Ctx, CtxState, Driver, Event, MAX_TASKS, Started, Task, TaskCallback, TaskOf,
    TaskPool,
};
#[cfg(test)]
pub(crate) use idle::with_sleeps_of;
pub(crate) use idle::yield_before_retry;

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::epoll;

use crate::agent::{WaitScope, is_held_up};
use crate::error::{Error, Result};
use crate::ring::{EventFd, barrier_before_sleep};
use idle::{Sleeper, Strategy};

/// Maximum number of consecutive events of one context, so that contexts do not starve each other. It is small, because
/// a program may process the first event only after it has received the last: stages of a pipeline would wait for each
/// other's batches (measured: with 64, zero-copy reads with 64 transactions were 25 % slower than with 8; 4 to 12 are
/// equivalent).
const BATCH: u32 = 8;
/// Descriptors that only signal the death of a peer are polled every this many calls.
const LIVENESS_INTERVAL: u32 = 256;
/// Descriptors that carry messages are polled in every empty call, and every this many calls that found events.
const MESSAGE_INTERVAL: u32 = 32;
/// The engine's own eventfd; contexts are numbered from 1.
const OWN_EVENT: u64 = 0;

/// Polling frequency of a watched descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// The descriptor carries messages.
    Message,
    /// The descriptor only signals the death of a peer.
    Liveness,
}

/// Result of requesting a wake-up from all peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arming {
    /// Requested: the thread may block.
    Armed,
    /// Not armed: a descriptor had an event that is not reported to the program, such as a timer or part of a message.
    Stirred,
    /// Not armed: events were found and delivered.
    Delivered,
}

/// A progress engine. `struct doca_pe *` points to it.
pub(crate) struct Pe {
    contexts: RefCell<Vec<Rc<Ctx>>>,
    /// Contains [`Self::wake`] and all watched descriptors; readable when an armed engine has events to process.
    epoll: Arc<OwnedFd>,
    wake: Arc<EventFd>,
    sleeper: Arc<Sleeper>,
    watched_messages: Cell<u32>,
    watched_liveness: Cell<u32>,
    calls: Cell<u32>,
    activity_when_armed: Cell<usize>,
    /// The context to poll first: 0, except after a call that was delayed by another process's agent.
    interrupted_at: Cell<usize>,
    /// Nesting depth of polls: more than 1 if a callback makes progress itself.
    polls: Cell<u32>,
    /// The context that is being polled; the innermost one if polls are nested.
    polled: Cell<*const Ctx>,
    /// Contexts that were destroyed while they may have been polled, until the outermost poll ends.
    forgotten: RefCell<Vec<Rc<Ctx>>>,
    has_forgotten: Cell<bool>,
    /// Calls of [`progress`](Self::progress) that have not returned.
    calls_active: Cell<u32>,
    /// `true` if the program has destroyed the engine in one of these calls.
    is_retired: Cell<bool>,
}

impl Pe {
    pub(crate) fn new() -> Result<Rc<Self>> {
        Strategy::get()?;
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let wake = Arc::new(EventFd::new()?);
        epoll::add(
            &*epoll,
            &*wake,
            epoll::EventData::new_u64(OWN_EVENT),
            epoll::EventFlags::IN,
        )?;
        Ok(Rc::new(Self {
            contexts: RefCell::default(),
            sleeper: Arc::new(Sleeper::new(Arc::clone(&epoll))),
            epoll,
            wake,
            watched_messages: Cell::new(0),
            watched_liveness: Cell::new(0),
            calls: Cell::new(0),
            activity_when_armed: Cell::new(0),
            interrupted_at: Cell::new(0),
            polls: Cell::new(0),
            polled: Cell::new(std::ptr::null()),
            forgotten: RefCell::default(),
            has_forgotten: Cell::new(false),
            calls_active: Cell::new(0),
            is_retired: Cell::new(false),
        }))
    }

    /// The eventfd that wakes the thread blocked on this engine; shared with peers.
    pub(crate) fn wake(&self) -> &Arc<EventFd> {
        &self.wake
    }

    /// Connects an idle context without an engine to this engine.
    pub(crate) fn connect(self: &Rc<Self>, ctx: &Rc<Ctx>) -> Result<()> {
        ctx.expect_idle("connect it to a progress engine")?;
        if ctx.has_pe() {
            return Err(Error::NotPermitted
                .because("the context is already connected to a progress engine"));
        }
        ctx.set_pe(Some(Rc::clone(self)));
        self.contexts.borrow_mut().push(Rc::clone(ctx));
        Ok(())
    }

    fn forget(&self, id: u32) {
        // The list's reference may be the last one, which must not be dropped while the list is borrowed.
        let removed = {
            let mut contexts = self.contexts.borrow_mut();
            contexts
                .iter()
                .position(|ctx| ctx.id() == id)
                .map(|at| contexts.remove(at))
        };
        let Some(ctx) = removed else { return };
        let is_polled = match self.polls.get() {
            0 => false,
            1 => std::ptr::eq(Rc::as_ptr(&ctx), self.polled.get()),
            // Perhaps by an outer poll.
            _ => true,
        };
        if is_polled {
            self.forgotten.borrow_mut().push(ctx);
            self.has_forgotten.set(true);
        }
    }

    /// Drops the contexts that were destroyed in the outermost poll, at its end.
    #[cold]
    fn drop_forgotten(&self) {
        if self.polls.get() == 1 {
            self.has_forgotten.set(false);
            let forgotten = self.forgotten.take();
            // Dropped without the borrow: drop code of a context may access this engine.
            drop(forgotten);
        }
    }

    /// Marks an unused engine as destroyed. Returns `true` if a call of [`progress`](Self::progress) is active, whose
    /// caller then drops the engine.
    pub(crate) fn retire(&self) -> bool {
        let is_active = self.calls_active.get() != 0;
        self.is_retired.set(is_active);
        is_active
    }

    /// Returns `true` if the engine was destroyed in a call of [`progress`](Self::progress), the last of which has
    /// returned.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.get() && self.calls_active.get() == 0
    }

    /// Checks that the engine can be destroyed: it has no contexts.
    pub(crate) fn check_unused(&self) -> Result<()> {
        match self.contexts.borrow().len() {
            0 => Ok(()),
            n => Err(Error::InUse.because(format_args!(
                "{n} contexts are connected to the progress engine"
            ))),
        }
    }

    /// Tasks in flight in all contexts.
    pub(crate) fn tasks_in_flight(&self) -> usize {
        self.contexts
            .borrow()
            .iter()
            .map(|ctx| ctx.tasks_in_flight())
            .sum()
    }

    /// Calls [`Driver::on_ready`] with `token` on context `ctx` whenever `fd` is readable or hangs up.
    pub(crate) fn watch(
        &self,
        fd: BorrowedFd<'_>,
        ctx: &Ctx,
        token: u32,
        urgency: Urgency,
    ) -> Result<()> {
        epoll::add(&*self.epoll, fd, event_data(ctx, token), INPUT)?;
        self.count(urgency).set(self.count(urgency).get() + 1);
        Ok(())
    }

    /// Adds or removes interest in the descriptor becoming writable.
    pub(crate) fn watch_output(&self, fd: BorrowedFd<'_>, ctx: &Ctx, token: u32, output: bool) {
        let mut flags = INPUT;
        flags.set(epoll::EventFlags::OUT, output);
        // Fails only for a descriptor that is no longer watched.
        let _ = epoll::modify(&*self.epoll, fd, event_data(ctx, token), flags);
    }

    /// Ends [`watch`](Self::watch); must be called before the descriptor is closed.
    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>, urgency: Urgency) {
        if epoll::delete(&*self.epoll, fd).is_ok() {
            self.count(urgency).set(self.count(urgency).get() - 1);
        }
    }

    fn count(&self, urgency: Urgency) -> &Cell<u32> {
        match urgency {
            Urgency::Message => &self.watched_messages,
            Urgency::Liveness => &self.watched_liveness,
        }
    }

    /// Delivers pending events; blocks briefly if this thread has found none for a while.
    ///
    /// Returns `true` if a callback ran or a context changed its state. A callback may destroy the engine, which then
    /// [is retired](Self::is_retired).
    pub(crate) fn progress(&self) -> bool {
        let _bound = WaitScope::of_progress();
        self.calls_active.set(self.calls_active.get() + 1);
        let found = self.progress_once();
        self.calls_active.set(self.calls_active.get() - 1);
        found
    }

    #[inline(always)]
    fn progress_once(&self) -> bool {
        if self.sleeper.is_armed() {
            if self.stays_armed() {
                return self.progress_armed();
            }
            self.wake_up();
        }
        if let events @ 1.. = self.round() {
            idle::found_work(events);
            return true;
        }
        idle::found_nothing(&self.sleeper, || self.arm(), || self.is_stopping())
    }

    /// `true` if the engine can stay armed: the thread has slept, and the program has changed nothing since.
    #[cold]
    fn stays_armed(&self) -> bool {
        let activity = self.activity();
        let is_unchanged = self.activity_when_armed.get() == activity;
        is_unchanged && !self.is_stopping() && self.sleeper.stays_armed()
    }

    /// Polls the contexts and sleeps again. The watched descriptors are polled after a wake-up.
    #[cold]
    fn progress_armed(&self) -> bool {
        if let events @ 1.. = self.drain_all() {
            self.wake_up();
            idle::found_work(events);
            return true;
        }
        idle::found_nothing(&self.sleeper, || Arming::Armed, || false)
    }

    /// A number that differs after a submission, the start or the stop of a context.
    fn activity(&self) -> usize {
        let contexts = self.contexts.borrow();
        let active = contexts
            .iter()
            .filter(|ctx| ctx.state() != CtxState::Idle)
            .map(|ctx| 1 + 2 * ctx.tasks_in_flight());
        active.sum()
    }

    /// `true` while a context is stopping. Programs then call progress a fixed number of times, once for every task in
    /// flight: long sleeps would add up to seconds.
    fn is_stopping(&self) -> bool {
        let contexts = self.contexts.borrow();
        contexts.iter().any(|ctx| ctx.state() == CtxState::Stopping)
    }

    /// Polls all contexts once and, if due, the watched descriptors. Returns the number of events.
    fn round(&self) -> u32 {
        let mut found = self.drain_all();
        if self.descriptors_are_due(found != 0) && self.poll_descriptors() {
            found += self.drain_all();
        }
        found
    }

    fn descriptors_are_due(&self, found: bool) -> bool {
        let calls = self.calls.get().wrapping_add(1);
        self.calls.set(calls);
        let due = if self.watched_messages.get() > 0 {
            !found || calls.is_multiple_of(MESSAGE_INTERVAL)
        } else {
            self.watched_liveness.get() > 0 && calls.is_multiple_of(LIVENESS_INTERVAL)
        };
        // Events read from the descriptors would be delivered in this call, to contexts that have reached their limit.
        due && !(found && self.is_any_turn_over())
    }

    fn is_any_turn_over(&self) -> bool {
        let contexts = self.contexts.borrow();
        contexts.iter().any(|ctx| ctx.is_turn_over())
    }

    fn drain_all(&self) -> u32 {
        self.polls.set(self.polls.get() + 1);
        let found = self.poll_contexts();
        self.polls.set(self.polls.get() - 1);
        found
    }

    #[inline(always)]
    fn poll_contexts(&self) -> u32 {
        let mut found = 0;
        let first = self.interrupted_at.take();
        for (mut index, end) in [(first, usize::MAX), (0, first)] {
            // The bound is read in every iteration: a callback may connect and destroy contexts.
            while index < end
                && let Some(events) = self.poll_context(index)
            {
                found += events;
                index += 1;
                if is_held_up() {
                    // The next call starts with the contexts that were not polled.
                    self.interrupted_at.set(index);
                    return found;
                }
            }
        }
        found
    }

    /// Delivers up to a batch of events of the context at `index`, and returns their number; `None` if there is no such
    /// context.
    #[inline(always)]
    fn poll_context(&self, index: usize) -> Option<u32> {
        let ctx = NonNull::from(&**self.contexts.borrow().get(index)?);
        let outer = self.polled.replace(ctx.as_ptr());
        // SAFETY: the list has a reference. When a callback destroys the context, `forget` takes it from the list and
        // keeps it until the outermost poll of any context has ended: it is recorded as polled, or polls are nested.
        let found = poll(unsafe { ctx.as_ref() });
        self.polled.set(outer);
        if self.has_forgotten.get() {
            self.drop_forgotten();
        }
        Some(found)
    }

    fn context_at(&self, index: usize) -> Option<Rc<Ctx>> {
        self.contexts.borrow().get(index).cloned()
    }

    /// Polls the watched descriptors and notifies their contexts. Returns `true` if any was ready.
    fn poll_descriptors(&self) -> bool {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 16];
        let none = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // An error (EINTR at most) is treated as no event.
        let Ok((events, _)) = epoll::wait(&*self.epoll, &mut events, Some(&none)) else {
            return false;
        };
        let mut found = false;
        for event in events {
            let data = event.data.u64();
            if data == OWN_EVENT {
                self.wake.drain();
                // The peer has cleared the sleep word and will not send another wake-up, so this engine must not sleep
                // now, even if the wake-up leads to no event for the program.
                found = true;
                continue;
            }
            let id = (data >> 32) as u32;
            let ctx = self
                .contexts
                .borrow()
                .iter()
                .find(|ctx| ctx.id() == id)
                .cloned();
            if let Some(ctx) = ctx {
                ctx.driver().on_ready(&ctx, data as u32);
                found = true;
            }
        }
        found
    }

    /// Records that the program waits for the engine by itself: calls of [`progress`](Self::progress) do not sleep
    /// from now on.
    pub(crate) fn set_notifies(&self) {
        self.sleeper.set_notifies();
    }

    /// Requests a wake-up from all peers, unless an event is found.
    pub(crate) fn arm(&self) -> Arming {
        self.sleeper.set_armed(true);
        self.activity_when_armed.set(self.activity());
        let mut index = 0;
        while let Some(ctx) = self.context_at(index) {
            if ctx.state() != CtxState::Idle {
                ctx.driver().arm();
            }
            index += 1;
        }
        barrier_before_sleep();
        let (stirred, delivered) = (self.poll_descriptors(), self.drain_all() != 0);
        if delivered {
            self.wake_up();
            Arming::Delivered
        } else if stirred {
            self.wake_up();
            Arming::Stirred
        } else {
            Arming::Armed
        }
    }

    fn is_armed(&self) -> bool {
        self.sleeper.is_armed()
    }

    /// Cancels [`arm`](Self::arm) if the engine is armed.
    pub(crate) fn wake_up(&self) {
        if !self.sleeper.is_armed() {
            return;
        }
        self.sleeper.set_armed(false);
        self.wake.drain();
        let mut index = 0;
        while let Some(ctx) = self.context_at(index) {
            ctx.driver().disarm();
            index += 1;
        }
    }

    /// A descriptor that is readable when an armed engine has events to process, for the program's own `epoll`.
    pub(crate) fn notification_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Readable, or closed by the peer.
const INPUT: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP);

fn event_data(ctx: &Ctx, token: u32) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(ctx.id()) << 32 | u64::from(token))
}

/// Delivers up to a batch of one context's events. Returns their number.
#[inline(always)]
fn poll(ctx: &Ctx) -> u32 {
    ctx.begin_turn();
    if ctx.state() == CtxState::Idle {
        return 0;
    }
    let found = ctx.driver().deliver(ctx, BATCH);
    found + u32::from(ctx.try_finish_stop())
}

#[cfg(test)]
mod tests {
    //! An engine with a scripted driver.

    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::os::fd::AsFd as _;
    use std::ptr::NonNull;
    use std::rc::Rc;

    use doca_abi::{doca_ctx, doca_data, doca_task};

    use super::{
        Arming, Ctx, CtxState, Driver, Event, Pe, Started, Task, TaskOf, TaskPool, Urgency,
        with_sleeps_of,
    };
    use crate::error::{Error, Result};
    use crate::ring::EventFd;

    #[derive(Default)]
    struct Echo {
        pool: TaskPool,
        events: RefCell<VecDeque<Event>>,
        slow_start: Cell<bool>,
    }

    impl Driver for Echo {
        fn start(&self, _: &Ctx) -> Result<Started> {
            if self.slow_start.get() {
                self.events.borrow_mut().push_back(Event::Started);
                return Ok(Started::InProgress);
            }
            Ok(Started::Running)
        }

        fn submit(&self, _: &Ctx, task: &Task) -> Result<()> {
            let body = &task
                .downcast::<Body>()
                .expect("the kind of task that the pool makes")
                .body;
            self.events
                .borrow_mut()
                .push_back(Event::Task(NonNull::from(task), body.result));
            Ok(())
        }

        fn next_event(&self, _: &Ctx) -> Option<Event> {
            self.events.borrow_mut().pop_front()
        }

        fn flush(&self, _: &Ctx) {
            for event in self.events.borrow_mut().iter_mut() {
                if let Event::Task(_, result) = event {
                    *result = Err(Error::ConnectionAborted);
                }
            }
        }

        fn finish_stop(&self, _: &Ctx) -> bool {
            true
        }
    }

    struct Body {
        result: Result<()>,
    }

    #[derive(Default)]
    struct Seen {
        completions: RefCell<Vec<(u64, u32)>>,
        states: RefCell<Vec<(u32, u32)>>,
        free_when_done: Cell<bool>,
        resubmissions: Cell<u32>,
        resubmitted: RefCell<Vec<Result<()>>>,
    }

    unsafe extern "C" fn completed(
        task: *mut doca_task,
        task_data: doca_data,
        ctx_data: doca_data,
    ) {
        // SAFETY: the test's context data points to a live `Seen`, the task is live.
        unsafe {
            let seen = &*ctx_data.ptr.cast::<Seen>();
            let task = NonNull::new(task.cast::<Task>()).expect("a task");
            seen.completions
                .borrow_mut()
                .push((task_data.u64, task.as_ref().status()));
            if seen.resubmissions.get() > 0 {
                seen.resubmissions.set(seen.resubmissions.get() - 1);
                let resubmitted = task.as_ref().submit();
                seen.resubmitted.borrow_mut().push(resubmitted);
            } else if seen.free_when_done.get() {
                Task::free(task).expect("free");
            }
        }
    }

    unsafe extern "C" fn state_changed(data: doca_data, _: *mut doca_ctx, from: u32, to: u32) {
        // SAFETY: the test's context data points to a live `Seen`.
        unsafe { &*data.ptr.cast::<Seen>() }
            .states
            .borrow_mut()
            .push((from, to));
    }

    struct Fixture {
        pe: Rc<Pe>,
        ctx: Rc<Ctx>,
        seen: Box<Seen>,
    }

    fn fixture(slow_start: bool) -> Fixture {
        let seen = Box::<Seen>::default();
        let pe = Pe::new().expect("an engine");
        let ctx = Ctx::new(Echo::default());
        let echo = ctx.driver_as::<Echo>().expect("an echo");
        echo.slow_start.set(slow_start);
        echo.pool
            .configure(&ctx, Some(completed), Some(completed), 2)
            .expect("a pool");
        ctx.set_user_data(doca_data {
            ptr: std::ptr::from_ref(&*seen).cast_mut().cast(),
        });
        ctx.set_state_changed(Some(state_changed)).expect("idle");
        pe.connect(&ctx).expect("a fresh context");
        Fixture { pe, ctx, seen }
    }

    impl Fixture {
        fn task(&self, result: Result<()>, data: u64) -> Result<NonNull<Task>> {
            let echo = self.ctx.driver_as::<Echo>()?;
            let task: NonNull<TaskOf<Body>> =
                echo.pool
                    .allocate(&self.ctx, Body { result }, doca_data { u64: data })?;
            // The header is the first field of every task.
            Ok(task.cast())
        }
    }

    #[test]
    fn tasks_complete_with_their_status_and_may_be_resubmitted() {
        let f = fixture(false);
        assert_eq!(f.ctx.start(), Ok(()));
        let good = f.task(Ok(()), 7).expect("a task");
        let bad = f.task(Err(Error::IoFailed), 8).expect("a task");
        assert_eq!(
            f.task(Ok(()), 9).err(),
            Some(Error::NoMemory),
            "the pool holds two"
        );
        f.seen.resubmissions.set(1);
        // SAFETY: live tasks.
        unsafe {
            good.as_ref().submit().expect("submit");
            assert_eq!(
                good.as_ref().submit(),
                Err(Error::BadState),
                "a task is in flight once"
            );
            bad.as_ref().submit().expect("submit");
        }
        assert_eq!(f.ctx.tasks_in_flight(), 2);
        while f.ctx.tasks_in_flight() > 0 {
            f.pe.progress();
        }
        let io_failed = Error::IoFailed.code();
        assert_eq!(
            *f.seen.completions.borrow(),
            [(7, 0), (8, io_failed), (7, 0)]
        );
        // SAFETY: live tasks, not in flight.
        unsafe {
            Task::free(good).expect("free");
            Task::free(bad).expect("free");
        }
        assert_eq!(f.ctx.stop(), Ok(()), "no task is allocated any more");
        assert_eq!(*f.seen.states.borrow(), [(0, 2), (2, 0)]);
    }

    #[test]
    fn a_context_with_tasks_stops_when_the_last_one_is_freed() {
        let f = fixture(true);
        assert_eq!(f.ctx.start(), Err(Error::InProgress));
        assert_eq!(f.ctx.state(), CtxState::Starting);
        assert!(f.pe.progress());
        assert_eq!(f.ctx.state(), CtxState::Running);
        let task = f.task(Ok(()), 1).expect("a task");
        // SAFETY: a live task.
        unsafe { task.as_ref() }.submit().expect("submit");
        assert_eq!(f.ctx.stop(), Err(Error::InProgress));
        assert_eq!(f.ctx.state(), CtxState::Stopping);
        assert_eq!(
            f.ctx.disconnect(Error::InUse),
            Err(Error::InUse),
            "not while it stops"
        );
        f.seen.free_when_done.set(true);
        while f.ctx.state() != CtxState::Idle {
            f.pe.progress();
        }
        assert_eq!(
            *f.seen.completions.borrow(),
            [(1, Error::ConnectionAborted.code())]
        );
        assert_eq!(*f.seen.states.borrow(), [(0, 1), (1, 2), (2, 3), (3, 0)]);
        assert_eq!(f.pe.check_unused(), Err(Error::InUse));
        assert_eq!(f.ctx.disconnect(Error::InUse), Ok(()));
        assert_eq!(f.pe.check_unused(), Ok(()));
    }

    #[test]
    fn a_state_change_is_the_last_event_of_its_context_in_a_call() {
        let f = fixture(true);
        assert_eq!(f.ctx.start(), Err(Error::InProgress));
        let echo = f.ctx.driver_as::<Echo>().expect("an echo");
        let calls = Rc::new(Cell::new(0));
        let call = || {
            let calls = Rc::clone(&calls);
            Box::new(move || calls.set(calls.get() + 1))
        };
        for _ in 0..2 {
            echo.events.borrow_mut().push_back(Event::Call(call()));
        }
        echo.events
            .borrow_mut()
            .push_back(Event::Connection(call()));
        for _ in 0..20 {
            echo.events.borrow_mut().push_back(Event::Call(call()));
        }
        let progress = || {
            assert!(f.pe.progress());
            (f.ctx.state(), calls.get())
        };
        assert_eq!(progress(), (CtxState::Running, 0), "no event after it");
        assert_eq!(progress(), (CtxState::Running, 3), "up to the connection");
        assert_eq!(
            progress(),
            (CtxState::Running, 3 + 8),
            "as many as a call may"
        );
        assert_eq!(f.ctx.stop(), Ok(()));
    }

    #[test]
    fn an_idle_thread_sleeps_until_a_wake_up() {
        let f = fixture(false);
        f.ctx.start().expect("start");
        let wake = std::sync::Arc::clone(f.pe.wake());
        let started = std::time::Instant::now();
        let mut calls = 0u64;
        while started.elapsed() < std::time::Duration::from_millis(200) {
            f.pe.progress();
            calls += 1;
        }
        assert!(
            calls < 5_000,
            "an idle thread polled {calls} times in 200 ms: it does not sleep"
        );
        // A wake-up ends a sleep: without wake-ups, each call would last for the whole sleep.
        let sleep = std::time::Duration::from_secs(5);
        let is_done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let ringer = std::thread::spawn({
            let is_done = std::sync::Arc::clone(&is_done);
            move || {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    wake.ring();
                }
            }
        });
        let started = std::time::Instant::now();
        with_sleeps_of(sleep, || (0..20).for_each(|_| _ = f.pe.progress()));
        let took = started.elapsed();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        ringer.join().expect("the ringer");
        assert!(took < 10 * sleep, "20 calls took {took:?}");
    }

    /// A context that counts the number of times that it is armed.
    #[derive(Default)]
    struct Armed(Cell<u32>);

    impl Driver for Armed {
        fn start(&self, _: &Ctx) -> Result<Started> {
            Ok(Started::Running)
        }

        fn submit(&self, _: &Ctx, _: &Task) -> Result<()> {
            Err(Error::NotSupported)
        }

        fn next_event(&self, _: &Ctx) -> Option<Event> {
            None
        }

        fn flush(&self, _: &Ctx) {}

        fn finish_stop(&self, _: &Ctx) -> bool {
            true
        }

        fn arm(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Sleeps of a millisecond would take several percent of a CPU if each of them armed all rings.
    #[test]
    fn an_engine_stays_armed_between_short_sleeps() {
        let pe = Pe::new().expect("an engine");
        let ctx = Ctx::new(Armed::default());
        pe.connect(&ctx).expect("a fresh context");
        ctx.start().expect("a context");
        let armed = || ctx.driver_as::<Armed>().expect("the driver").0.get();
        let sleeps_of = |duration, calls: u32| {
            with_sleeps_of(duration, || (0..calls).for_each(|_| _ = pe.progress()));
        };
        sleeps_of(std::time::Duration::from_micros(1), 500);
        let before = armed();
        sleeps_of(std::time::Duration::from_micros(1), 160);
        assert_eq!(armed() - before, 10, "armings for 160 sleeps");
        // A context that starts is armed before the next sleep, regardless of the number of calls.
        let late = Ctx::new(Armed::default());
        pe.connect(&late).expect("a fresh context");
        late.start().expect("a context");
        sleeps_of(std::time::Duration::from_micros(1), 1);
        assert_eq!(late.driver_as::<Armed>().expect("the driver").0.get(), 1);
        // Peers wake the engine although it was not armed again.
        sleeps_of(std::time::Duration::from_micros(1), 1);
        pe.wake().ring();
        let started = std::time::Instant::now();
        let sleep = std::time::Duration::from_secs(60);
        sleeps_of(sleep, 1);
        assert!(started.elapsed() < sleep, "nothing has woken the engine");
    }

    #[test]
    fn a_thread_that_stops_a_context_does_not_sleep_for_long() {
        let f = fixture(false);
        f.ctx.start().expect("start");
        let task = f.task(Ok(()), 0).expect("a task");
        assert_eq!(f.ctx.stop(), Err(Error::InProgress), "a task is allocated");
        let started = std::time::Instant::now();
        for _ in 0..1000 {
            f.pe.progress();
        }
        // With sleeps of up to 50 ms, it could take half a minute.
        let took = started.elapsed();
        assert!(took < std::time::Duration::from_secs(3), "{took:?}");
        // SAFETY: allocated above, not in flight, and not used afterwards.
        unsafe { Task::free(task) }.expect("free");
    }

    #[test]
    fn destroyed_engines_do_not_keep_a_thread_awake() {
        for _ in 0..100 {
            Pe::new().expect("an engine").progress();
        }
        let f = fixture(false);
        f.ctx.start().expect("start");
        let started = std::time::Instant::now();
        let mut calls = 0u64;
        while started.elapsed() < std::time::Duration::from_millis(200) {
            f.pe.progress();
            calls += 1;
        }
        assert!(
            calls < 5_000,
            "an idle thread polled {calls} times in 200 ms: it does not sleep"
        );
    }

    #[test]
    fn a_freed_task_keeps_its_status_until_its_memory_is_reused() {
        let f = fixture(false);
        f.ctx.start().expect("start");
        let task = f.task(Err(Error::IoFailed), 1).expect("a task");
        // SAFETY: a task whose context lives.
        let (header, free) = unsafe { (|| task.as_ref(), || Task::free(task)) };
        header().submit().expect("submit");
        while f.ctx.tasks_in_flight() > 0 {
            f.pe.progress();
        }
        assert_eq!(free(), Ok(()));
        assert_eq!(header().status(), Error::IoFailed.code());
        assert_eq!(
            header().submit(),
            Err(Error::BadState),
            "it is no task any more"
        );
        assert_eq!(free(), Err(Error::BadState), "nor can it be freed again");
        let next = f.task(Ok(()), 2).expect("a task");
        assert_eq!(next, task, "its place is used again");
        assert_eq!((header().status(), header().submit()), (0, Ok(())));
        while f.ctx.tasks_in_flight() > 0 {
            f.pe.progress();
        }
        assert_eq!(free(), Ok(()));
        assert_eq!(f.ctx.stop(), Ok(()));
        assert_eq!(
            *f.seen.completions.borrow(),
            [(1, Error::IoFailed.code()), (2, 0)]
        );
    }

    #[test]
    fn a_task_freed_in_flight_is_freed_after_its_completion() {
        for free_in_callback in [false, true] {
            let f = fixture(false);
            f.ctx.start().expect("start");
            f.seen.free_when_done.set(free_in_callback);
            let task = f.task(Ok(()), 1).expect("a task");
            // SAFETY: a task whose context lives.
            let (header, free) = unsafe { (|| task.as_ref(), || Task::free(task)) };
            header().submit().expect("submit");
            assert_eq!(free(), Ok(()), "remembered");
            assert_eq!(free(), Err(Error::BadState), "once");
            assert_eq!(f.ctx.stop(), Err(Error::InProgress));
            while f.ctx.state() != CtxState::Idle {
                f.pe.progress();
            }
            assert_eq!(
                *f.seen.completions.borrow(),
                [(1, Error::ConnectionAborted.code())]
            );
            assert_eq!(free(), Err(Error::BadState), "not a third time");
            f.ctx
                .disconnect(Error::InUse)
                .expect("no task is allocated any more");
        }
    }

    #[test]
    fn a_task_freed_in_flight_cannot_be_submitted_by_its_callback() {
        let f = fixture(false);
        f.ctx.start().expect("start");
        let task = f.task(Ok(()), 1).expect("a task");
        // SAFETY: a live task.
        unsafe {
            task.as_ref().submit().expect("submit");
            Task::free(task).expect("remembered");
        }
        f.seen.resubmissions.set(1);
        while f.ctx.tasks_in_flight() > 0 {
            f.pe.progress();
        }
        assert_eq!(*f.seen.resubmitted.borrow(), [Err(Error::BadState)]);
        assert_eq!(*f.seen.completions.borrow(), [(1, 0)]);
        assert_eq!(f.ctx.stop(), Ok(()), "no task is allocated any more");
    }

    #[test]
    fn bodies_of_tasks_are_dropped_when_they_are_freed() {
        let f = fixture(false);
        f.ctx.start().expect("start");
        let echo = f.ctx.driver_as::<Echo>().expect("an echo");
        let held = Rc::new(());
        let none = doca_data { u64: 0 };
        for _ in 0..2 {
            let task = echo.pool.allocate(&f.ctx, Rc::clone(&held), none);
            assert_eq!(Rc::strong_count(&held), 2);
            // SAFETY: a live task.
            unsafe { Task::free(task.expect("a task").cast()) }.expect("free");
            assert_eq!(Rc::strong_count(&held), 1);
        }
        // A body of another type must not reuse the memory of the first.
        let task = echo
            .pool
            .allocate(&f.ctx, [7_u64; 40], none)
            .expect("a task");
        // SAFETY: a live task.
        unsafe {
            assert_eq!(*task.as_ref().body, [7; 40]);
            Task::free(task.cast()).expect("free");
        }
    }

    /// A context without events whose descriptor is readable whenever it is armed, like a timer that expires between two
    /// system calls.
    struct Restless(EventFd);

    impl Driver for Restless {
        fn start(&self, ctx: &Ctx) -> Result<Started> {
            ctx.pe()?.watch(self.0.as_fd(), ctx, 0, Urgency::Liveness)?;
            Ok(Started::Running)
        }

        fn submit(&self, _: &Ctx, _: &Task) -> Result<()> {
            Err(Error::NotSupported)
        }

        fn next_event(&self, _: &Ctx) -> Option<Event> {
            None
        }

        fn flush(&self, _: &Ctx) {}

        fn finish_stop(&self, ctx: &Ctx) -> bool {
            if let Ok(pe) = ctx.pe() {
                pe.unwatch(self.0.as_fd(), Urgency::Liveness);
            }
            true
        }

        fn arm(&self) {
            self.0.ring();
        }

        fn disarm(&self) {
            self.0.drain();
        }
    }

    /// Programs wait for a completion by calling progress until it returns nonzero.
    #[test]
    fn a_descriptor_without_an_event_for_the_program_is_no_progress() {
        let pe = Pe::new().expect("an engine");
        let ctx = Ctx::new(Restless(EventFd::new().expect("a descriptor")));
        pe.connect(&ctx).expect("a fresh context");
        ctx.start().expect("a context");
        for call in 0..2000 {
            assert!(!pe.progress(), "call {call}");
        }
        assert_eq!(pe.arm(), Arming::Stirred);
        assert!(!pe.is_armed());
        ctx.stop().expect("it stops");
        assert_eq!(pe.arm(), Arming::Armed);
        pe.wake_up();
    }

    /// A peer sends one wake-up. The wake-up may only mean that there is space for another piece of a long message,
    /// which is not an event for the program; but a thread that then sleeps is not woken for the next piece.
    #[test]
    fn a_wake_up_disarms_the_engine() {
        let pe = Pe::new().expect("an engine");
        let ctx = Ctx::new(Armed::default());
        pe.connect(&ctx).expect("a fresh context");
        ctx.start().expect("a context");
        pe.wake().ring();
        assert_eq!(pe.arm(), Arming::Stirred);
        assert_eq!(pe.arm(), Arming::Armed);
        pe.wake_up();
        ctx.stop().expect("it stops");
    }
}
