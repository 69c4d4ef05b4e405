//! Tasks: what a progress engine runs on an event.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use doca_abi::doca_data;
use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::event::SyncEvent;
use super::value::Value;
use super::wait::Condition;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Driver, Event, Started, Task, TaskOf, TaskPool, Urgency};

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Gets the value.
    Get,
    /// Sets the value.
    Set,
    /// Adds to the value and gets the old one.
    Add,
    /// Completes when the masked value equals the operand.
    WaitEqual,
    /// Completes when the masked value differs from the operand.
    WaitDifferent,
}

impl Kind {
    const COUNT: usize = Kind::WaitDifferent as usize + 1;
}

/// Body of a task.
pub(crate) struct Work {
    kind: Kind,
    /// What is set, added or compared with.
    pub(crate) operand: Cell<u64>,
    pub(crate) mask: Cell<u64>,
    /// Where a value goes, unless it is NULL. The program keeps it valid while the task is in flight.
    pub(crate) out: Cell<*mut u64>,
}

impl Work {
    pub(crate) fn new(kind: Kind, operand: u64, mask: u64, out: *mut u64) -> Self {
        Self {
            kind,
            operand: Cell::new(operand),
            mask: Cell::new(mask),
            out: Cell::new(out),
        }
    }

    /// Does it, if it can be done now.
    fn run(&self, value: &Value) -> Option<Result<()>> {
        let operand = self.operand.get();
        match self.kind {
            Kind::Get => Some(value.get().map(|value| self.give(value))),
            Kind::Set => Some(value.set(operand)),
            Kind::Add => Some(value.add(operand).map(|old| self.give(old))),
            Kind::WaitEqual => self.look(value, Condition::Equal(operand)),
            Kind::WaitDifferent => self.look(value, Condition::Different(operand)),
        }
    }

    fn look(&self, value: &Value, condition: Condition) -> Option<Result<()>> {
        match value.get() {
            Ok(value) => condition.holds(value & self.mask.get()).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    fn give(&self, value: u64) {
        let out = self.out.get();
        if !out.is_null() {
            // SAFETY: not NULL, and writable by the promise of the program that gave it to a task in flight.
            unsafe { out.write(value) };
        }
    }
}

/// One pool for each kind of task.
#[derive(Default)]
pub(crate) struct Pools([TaskPool; Kind::COUNT]);

impl Pools {
    pub(crate) fn of(&self, kind: Kind) -> &TaskPool {
        &self.0[kind as usize]
    }
}

/// What changes while the context runs.
#[derive(Default)]
pub(super) struct Running {
    /// In the order of submission.
    tasks: VecDeque<NonNull<Task>>,
    /// The context stops: what is left fails.
    flushing: bool,
    /// Wakes the engine to look again: nobody rings when a value changes.
    timer: Option<OwnedFd>,
}

/// Longest sleep of an engine while a task waits for a value.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000,
};
const NEVER: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl Running {
    fn set_timer(&self, after: Timespec) {
        if let Some(timer) = &self.timer {
            let once = Itimerspec {
                it_interval: NEVER,
                it_value: after,
            };
            // Cannot fail for a timer and a time that are valid. Without it the engine sleeps its usual milliseconds.
            let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
        }
    }
}

impl SyncEvent {
    /// A task on the event.
    pub(crate) fn allocate(
        &self,
        ctx: &Ctx,
        work: Work,
        user_data: doca_data,
    ) -> Result<NonNull<TaskOf<Work>>> {
        self.pools.of(work.kind).allocate(ctx, work, user_data)
    }

    /// The first task that has ended.
    fn next_done(&self) -> Option<(NonNull<Task>, Result<()>)> {
        let mut running = self.running.borrow_mut();
        if running.tasks.is_empty() {
            return None;
        }
        if running.flushing {
            let task = running.tasks.pop_front()?;
            return Some((task, Err(Error::ConnectionAborted)));
        }
        let value = self.value();
        for place in 0..running.tasks.len() {
            let task = running.tasks[place];
            // SAFETY: submitted and not completed: such tasks are not freed.
            let work = unsafe { task.as_ref() }.downcast::<Work>();
            let result = match (&value, work) {
                (Ok(value), Some(work)) => work.body.run(value),
                (Err(error), _) => Some(Err(*error)),
                (_, None) => Some(Err(Error::Unexpected)),
            };
            if let Some(result) = result {
                running.tasks.remove(place);
                return Some((task, result));
            }
        }
        None
    }
}

impl Driver for SyncEvent {
    fn start(&self, ctx: &Ctx) -> Result<Started> {
        if !self.become_context() {
            return Err(Error::BadState.because(
                "a sync event that was started by doca_sync_event_start cannot be used as a context",
            ));
        }
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let pe = ctx.pe()?;
        self.begin()?;
        if let Err(error) = pe.watch(timer.as_fd(), ctx, 0, Urgency::Liveness) {
            self.end();
            return Err(error);
        }
        *self.running.borrow_mut() = Running {
            timer: Some(timer),
            ..Running::default()
        };
        Ok(Started::Running)
    }

    fn submit(&self, _ctx: &Ctx, task: &Task) -> Result<()> {
        if task.downcast::<Work>().is_none() {
            return Err(Error::InvalidValue);
        }
        self.running
            .borrow_mut()
            .tasks
            .push_back(NonNull::from(task));
        Ok(())
    }

    fn next_event(&self, _ctx: &Ctx) -> Option<Event> {
        self.next_done()
            .map(|(task, result)| Event::Task(task, result))
    }

    fn flush(&self, _ctx: &Ctx) {
        self.running.borrow_mut().flushing = true;
    }

    fn finish_stop(&self, ctx: &Ctx) -> bool {
        if let (Some(timer), Ok(pe)) = (self.running.borrow_mut().timer.take(), ctx.pe()) {
            pe.unwatch(timer.as_fd(), Urgency::Liveness);
        }
        self.end();
        true
    }

    fn arm(&self) {
        let running = self.running.borrow();
        if !running.tasks.is_empty() {
            running.set_timer(LOOK_AGAIN);
        }
    }

    fn disarm(&self) {
        self.running.borrow().set_timer(NEVER);
    }
}
