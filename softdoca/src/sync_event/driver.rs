//! An event as a context: its tasks run when they can.

use std::os::fd::AsFd;
use std::ptr::NonNull;

use doca_abi::doca_data;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::event::SyncEvent;
use super::work::{Running, Work};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Driver, Event, Started, Task, TaskOf, Urgency};

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
        self.running.borrow().arm();
    }

    fn disarm(&self) {
        self.running.borrow().disarm();
    }
}
