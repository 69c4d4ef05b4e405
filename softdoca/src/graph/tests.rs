//! Contexts that are full.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::rc::Rc;

use doca_abi::{doca_data, doca_graph_instance, doca_task};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Data, Graph, Instance};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Driver, Event, Pe, Started, Task, TaskOf, TaskPool};

/// A driver with one task slot.
#[derive(Default)]
struct Narrow {
    pool: TaskPool,
    task: RefCell<VecDeque<NonNull<Task>>>,
    refused: Cell<u32>,
    /// If set, tasks do not complete.
    stuck: Cell<bool>,
}

impl Driver for Narrow {
    fn start(&self, _: &Ctx) -> Result<Started> {
        Ok(Started::Running)
    }

    fn submit(&self, _: &Ctx, task: &Task) -> Result<()> {
        let mut slot = self.task.borrow_mut();
        if !slot.is_empty() {
            self.refused.set(self.refused.get() + 1);
            return Err(Error::Again);
        }
        slot.push_back(NonNull::from(task));
        Ok(())
    }

    fn next_event(&self, _: &Ctx) -> Option<Event> {
        if self.stuck.get() {
            return None;
        }
        let task = self.task.borrow_mut().pop_front()?;
        Some(Event::Task(task, Ok(())))
    }

    fn flush(&self, _: &Ctx) {}

    fn finish_stop(&self, _: &Ctx) -> bool {
        true
    }
}

unsafe extern "C" fn never(_: *mut doca_task, _: doca_data, _: doca_data) {
    panic!("a graph's tasks do not call back");
}

unsafe extern "C" fn count(_: *mut doca_graph_instance, data: doca_data, _: doca_data) {
    // SAFETY: the instance data of the test points to its counter.
    let ended = unsafe { &*data.ptr.cast::<Cell<u32>>() };
    ended.set(ended.get() + 1);
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).expect("a descriptor") == 1
}

#[test]
fn submission_to_a_full_context_is_retried() {
    let pe = Pe::new().expect("an engine");
    let ctx = Ctx::new(Narrow::default());
    let narrow = ctx.driver_as::<Narrow>().expect("its driver");
    let configured = narrow.pool.configure(&ctx, Some(never), Some(never), 4);
    configured.expect("a pool");
    pe.connect(&ctx).expect("a fresh context");
    ctx.start().expect("a driver that starts");

    let ended = Cell::new(0);
    let graph = Graph::new(Rc::clone(&pe));
    graph
        .configure(Some(count), Some(count), 1)
        .expect("stopped");
    let nodes: Vec<_> = (0..4)
        .map(|_| graph.add_ctx(Rc::clone(&ctx)).expect("stopped"))
        .collect();
    graph.start().expect("a running context");
    let instance = Instance::new(Rc::clone(&graph)).expect("started");
    let data = doca_data {
        ptr: std::ptr::from_ref(&ended).cast_mut().cast(),
    };
    instance.set_user_data(data).expect("not submitted");
    let tasks: Vec<NonNull<Task>> = nodes
        .iter()
        .map(|node| {
            let none = doca_data { u64: 0 };
            let task: NonNull<TaskOf<()>> =
                narrow.pool.allocate(&ctx, (), none).expect("room for four");
            let task = task.cast();
            instance.set_data(node, Data::Task(task)).expect("fits");
            task
        })
        .collect();

    narrow.stuck.set(true);
    instance.submit().expect("complete");
    assert_eq!(narrow.refused.get(), 3, "one of four at a time");
    pe.arm();
    assert!(
        is_readable(pe.notification_fd()),
        "a wait for the engine returns"
    );
    pe.wake_up();
    narrow.stuck.set(false);
    for _ in 0..100 {
        pe.progress();
    }
    assert_eq!(ended.get(), 1, "all four have run");
    // SAFETY: live tasks, none in flight.
    tasks
        .iter()
        .for_each(|task| unsafe { Task::free(*task) }.expect("not in flight"));
    instance.retire().expect("not submitted");
    graph.stop().expect("no instances");
    assert_eq!(ctx.stop(), Ok(()));
    ctx.disconnect().expect("idle");
    assert_eq!(pe.check_unused(), Ok(()), "the graph's own context is gone");
}
