//! Tasks: what a progress engine runs on an event.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::event::Timespec;
use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};

use super::value::Value;
use super::wait::Condition;
use crate::error::Result;
use crate::progress::{Task, TaskPool};

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
    pub(super) kind: Kind,
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
    pub(super) fn run(&self, value: &Value) -> Option<Result<()>> {
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
    pub(super) tasks: VecDeque<NonNull<Task>>,
    /// The context stops: what is left fails.
    pub(super) flushing: bool,
    /// Wakes the engine to look again: nobody rings when a value changes.
    pub(super) timer: Option<OwnedFd>,
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
    /// The engine is about to sleep.
    pub(super) fn arm(&self) {
        if !self.tasks.is_empty() {
            self.set_timer(LOOK_AGAIN);
        }
    }

    /// The engine is awake.
    pub(super) fn disarm(&self) {
        self.set_timer(NEVER);
    }

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
