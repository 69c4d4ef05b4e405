//! Progress engines.

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::epoll;

use super::ctx::{Ctx, CtxState};
use super::idle::{self, Sleeper};
use crate::agent::{WaitScope, is_held_up};
use crate::error::{Error, Result};
use crate::ring::{EventFd, barrier_before_sleep};

/// Events of one context delivered in a row, so that no context starves another. Few, because a program may not act on
/// the first before it has seen the last: stages of a pipeline would wait for each other's batches (measured: 64 made
/// zero-copy reads with 64 transactions a quarter slower than 8; 4 to 12 are alike).
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
    /// Holds [`Self::wake`] and all watched descriptors; readable when an armed engine has something to do.
    epoll: Arc<OwnedFd>,
    wake: Arc<EventFd>,
    sleeper: Arc<Sleeper>,
    watched_messages: Cell<u32>,
    watched_liveness: Cell<u32>,
    calls: Cell<u32>,
    /// The context to poll first: 0, except after a call that was delayed by another process's agent.
    interrupted_at: Cell<usize>,
    /// Nesting depth of polls: more than 1 if a callback makes progress itself.
    polls: Cell<u32>,
    /// The context that is polled, the innermost one if polls are nested.
    polled: Cell<*const Ctx>,
    /// Contexts that were destroyed while they may have been polled, until the outermost poll ends.
    forgotten: RefCell<Vec<Rc<Ctx>>>,
    has_forgotten: Cell<bool>,
    /// Calls of [`progress`](Self::progress) that have not returned.
    calls_active: Cell<u32>,
    /// The program has destroyed the engine in one of them.
    is_retired: Cell<bool>,
}

impl Pe {
    pub(crate) fn new() -> Result<Rc<Self>> {
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
            return Err(
                Error::BadState.because("the context is already connected to a progress engine")
            );
        }
        ctx.set_pe(Some(Rc::clone(self)));
        self.contexts.borrow_mut().push(Rc::clone(ctx));
        Ok(())
    }

    pub(super) fn forget(&self, id: u32) {
        // The list's reference may be the last one: it must not be dropped while the list is borrowed.
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

    /// Calls [`super::Driver::on_ready`] with `token` on context `ctx` whenever `fd` is readable or hangs up.
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
        // Fails only for a descriptor that is not watched any more.
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
        self.wake_up();
        if let events @ 1.. = self.round() {
            idle::found_work(events);
            return true;
        }
        idle::found_nothing(&self.sleeper, || self.arm(), || self.is_stopping())
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
        // Events read from them would be delivered in this call, to contexts that must not deliver more.
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

    /// Delivers up to a batch of events of the context at `index`; `None`: there is none. Returns their number.
    #[inline(always)]
    fn poll_context(&self, index: usize) -> Option<u32> {
        let ctx = NonNull::from(&**self.contexts.borrow().get(index)?);
        let outer = self.polled.replace(ctx.as_ptr());
        // SAFETY: the list has a reference. When a callback destroys the context, `forget` takes it from there and
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
        // An error (EINTR at most) counts as no event.
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

    /// Requests a wake-up from all peers, unless an event is found.
    pub(crate) fn arm(&self) -> Arming {
        self.sleeper.set_armed(true);
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

    pub(super) fn is_armed(&self) -> bool {
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

    /// A descriptor that is readable when an armed engine has something to do, for the program's own `epoll`.
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
