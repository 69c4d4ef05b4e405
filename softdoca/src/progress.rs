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
mod pe;
mod task;

pub(crate) use ctx::{Ctx, CtxState, Driver, Event, Started};
#[cfg(test)]
pub(crate) use idle::with_sleeps_of;
pub(crate) use idle::yield_before_retry;
pub(crate) use pe::{Arming, Pe, Urgency};
pub(crate) use task::{Completion, Task, TaskCallback, TaskOf, TaskPool};

#[cfg(test)]
mod tests {
    //! An engine with a scripted driver.

    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::os::fd::AsFd as _;
    use std::ptr::NonNull;
    use std::rc::Rc;

    use doca_abi::{doca_ctx, doca_data, doca_task};

    use super::{Ctx, CtxState, Driver, Event, Pe, Started, Task, TaskOf, TaskPool};
    use crate::error::{Error, Result};
    use crate::progress::{Arming, Urgency};
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
            // The header comes first in every task.
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
            f.ctx.disconnect(),
            Err(Error::BadState),
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
        assert_eq!(f.ctx.disconnect(), Ok(()));
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
        // The sleeps have grown to 50 ms: each wake-up must end one immediately.
        let (mut woken, mut longest) = (0, std::time::Duration::ZERO);
        let ringer = std::thread::spawn(move || {
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                wake.ring();
            }
        });
        let started = std::time::Instant::now();
        while !ringer.is_finished() {
            let before = std::time::Instant::now();
            f.pe.progress();
            longest = longest.max(before.elapsed());
            woken += 1;
        }
        ringer.join().expect("the ringer");
        assert!(
            woken >= 10,
            "20 rings in {:?} woke the thread {woken} times",
            started.elapsed()
        );
        assert!(
            longest < std::time::Duration::from_millis(200),
            "slept {longest:?}"
        );
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
        // With sleeps of up to 50 ms it would take half a minute.
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
            f.ctx.disconnect().expect("no task is allocated any more");
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

    /// A driver whose peer sends a wake-up right after it was armed.
    struct Hasty;

    impl Driver for Hasty {
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
    }

    /// A peer sends one wake-up. It may have freed space for one more piece of a long message, which is no event for the
    /// program, but a thread that then sleeps is not woken for the next piece.
    #[test]
    fn a_wake_up_disarms_the_engine() {
        let pe = Pe::new().expect("an engine");
        let ctx = Ctx::new(Hasty);
        pe.connect(&ctx).expect("a fresh context");
        ctx.start().expect("a context");
        pe.wake().ring();
        assert_eq!(pe.arm(), Arming::Stirred);
        assert_eq!(pe.arm(), Arming::Armed);
        pe.wake_up();
        ctx.stop().expect("it stops");
    }
}
