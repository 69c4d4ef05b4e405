//! Events as contexts: tasks.

use std::cell::{Cell, RefCell};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use doca_abi::{
    DOCA_CTX_STATE_IDLE, DOCA_CTX_STATE_RUNNING, doca_ctx, doca_data, doca_pe, doca_sync_event,
    doca_sync_event_task_get, doca_sync_event_task_notify_add, doca_sync_event_task_notify_set,
    doca_sync_event_task_wait_eq, doca_sync_event_task_wait_neq, doca_task,
};

use super::super::*;
use super::{Se, ok};
use crate::capi::doca_pe::*;
use crate::error::Error;

type Log = RefCell<Vec<(u64, u32)>>;

unsafe extern "C" fn done<T>(task: *mut T, task_data: doca_data, ctx_data: doca_data) {
    // SAFETY: called with a live task; the context data of a test points to its log.
    unsafe {
        let status = doca_task_get_status(task.cast());
        let log = &*ctx_data.ptr.cast::<Log>();
        log.borrow_mut().push((task_data.u64, status));
    }
}

/// A running context.
struct Context {
    event: Se,
    pe: *mut doca_pe,
    log: Box<Log>,
    tasks: RefCell<Vec<*mut doca_task>>,
}

impl Context {
    fn start() -> Context {
        let (event, mut pe, log) = (Se::local(), null_mut(), Box::<Log>::default());
        // SAFETY: live handles and valid out-parameters.
        unsafe {
            ok(doca_pe_create(&mut pe));
            let ctx = doca_sync_event_as_ctx(event.0);
            assert!(!ctx.is_null());
            ok(doca_pe_connect_ctx(pe, ctx));
            let data = doca_data {
                ptr: std::ptr::from_ref(&*log).cast_mut().cast(),
            };
            ok(doca_ctx_set_user_data(ctx, data));
            macro_rules! configure {
                ($($set_conf:ident: $task:ty),*) => { $(
                    ok($set_conf(event.0, Some(done::<$task>), Some(done::<$task>), 2));
                )* };
            }
            configure!(
                doca_sync_event_task_get_set_conf: doca_sync_event_task_get,
                doca_sync_event_task_notify_set_set_conf: doca_sync_event_task_notify_set,
                doca_sync_event_task_notify_add_set_conf: doca_sync_event_task_notify_add,
                doca_sync_event_task_wait_eq_set_conf: doca_sync_event_task_wait_eq,
                doca_sync_event_task_wait_neq_set_conf: doca_sync_event_task_wait_neq
            );
            ok(doca_ctx_start(ctx));
        }
        Context {
            event,
            pe,
            log,
            tasks: RefCell::default(),
        }
    }

    fn ctx(&self) -> *mut doca_ctx {
        self.event.0.cast()
    }

    fn keep<T>(&self, task: *mut T) -> *mut T {
        self.tasks.borrow_mut().push(task.cast());
        task
    }

    #[track_caller]
    fn wait(&self, count: usize) -> Vec<(u64, u32)> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.log.borrow().len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.log.borrow());
            self.progress();
        }
        self.log.borrow().clone()
    }

    fn progress(&self) -> u8 {
        // SAFETY: a live handle.
        unsafe { doca_pe_progress(self.pe) }
    }

    fn state(&self) -> u32 {
        let mut state = 9;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_ctx_get_state(self.ctx(), &mut state) });
        state
    }

    fn get(&self, to: *mut u64, user: u64) -> *mut doca_sync_event_task_get {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: live handles and a valid out-parameter, here and below.
        ok(unsafe { doca_sync_event_task_get_alloc_init(self.event.0, to, user, &mut task) });
        self.keep(task)
    }

    fn notify_set(&self, value: u64, user: u64) -> *mut doca_sync_event_task_notify_set {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: see above.
        ok(unsafe {
            doca_sync_event_task_notify_set_alloc_init(self.event.0, value, user, &mut task)
        });
        self.keep(task)
    }

    fn notify_add(
        &self,
        value: u64,
        to: *mut u64,
        user: u64,
    ) -> *mut doca_sync_event_task_notify_add {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: see above.
        ok(unsafe {
            doca_sync_event_task_notify_add_alloc_init(self.event.0, value, to, user, &mut task)
        });
        self.keep(task)
    }

    fn wait_eq(&self, value: u64, mask: u64, user: u64) -> *mut doca_sync_event_task_wait_eq {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: see above.
        ok(unsafe {
            doca_sync_event_task_wait_eq_alloc_init(self.event.0, value, mask, user, &mut task)
        });
        self.keep(task)
    }

    fn wait_neq(&self, value: u64, mask: u64, user: u64) -> *mut doca_sync_event_task_wait_neq {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: see above.
        ok(unsafe {
            doca_sync_event_task_wait_neq_alloc_init(self.event.0, value, mask, user, &mut task)
        });
        self.keep(task)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: live handles, not used afterwards; tasks in flight are flushed before they are freed.
        unsafe {
            doca_ctx_stop(self.ctx());
            let mut in_flight = 1;
            while in_flight != 0 {
                self.progress();
                ok(doca_ctx_get_num_inflight_tasks(self.ctx(), &mut in_flight));
            }
            for task in self.tasks.borrow_mut().drain(..) {
                doca_task_free(task);
            }
            self.progress();
            assert_eq!(self.state(), DOCA_CTX_STATE_IDLE);
            // The event must be destroyed before its engine, so it is destroyed here.
            let event = std::mem::replace(&mut self.event, Se::create());
            drop(event);
            ok(doca_pe_destroy(self.pe));
        }
    }
}

fn submit<T>(task: *mut T) {
    // SAFETY: a live task.
    ok(unsafe { doca_task_submit(task.cast()) });
}

#[test]
fn tasks_and_functions_have_the_same_effect() {
    let context = Context::start();
    let (value, old) = (Cell::new(0), Cell::new(0));
    submit(context.notify_set(40, 1));
    assert_eq!(
        context.progress(),
        1,
        "the sample stops at the first progress"
    );
    assert_eq!(context.wait(1), [(1, 0)]);
    submit(context.notify_add(2, old.as_ptr(), 2));
    context.wait(2);
    submit(context.get(value.as_ptr(), 3));
    assert_eq!(context.wait(3), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!((old.get(), value.get()), (40, 42));
    // Without a destination for the old value.
    submit(context.notify_add(1, null_mut(), 4));
    context.wait(4);
    assert_eq!(context.event.get(), 43, "the functions work as well");
    assert_eq!(context.state(), DOCA_CTX_STATE_RUNNING);
}

#[test]
fn waits_complete_only_when_their_condition_holds() {
    let context = Context::start();
    submit(context.wait_eq(0x05, 0xff, 1));
    submit(context.wait_neq(0x100, 0xf00, 2));
    // 0 & 0xf00 differs from 0x100 already.
    assert_eq!(context.wait(1), [(2, 0)]);
    let end = Instant::now() + Duration::from_millis(50);
    while Instant::now() < end {
        assert_eq!(context.progress(), 0, "nothing has happened");
    }
    // From a thread without the engine, while the engine sleeps.
    let event = &context.event;
    let set = std::thread::scope(|scope| {
        let setter = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            event.set(0xff05);
            Instant::now()
        });
        assert_eq!(context.wait(2)[1], (1, 0));
        let seen = Instant::now();
        seen.saturating_duration_since(setter.join().expect("it has set"))
    });
    assert!(set < Duration::from_millis(15), "seen after {set:?}");
}

/// Programs that wait on the engine's descriptor are woken to poll, because a change of a value causes no wake-up.
#[test]
fn an_armed_engine_polls_while_a_task_waits() {
    use rustix::event::{PollFd, PollFlags, Timespec};
    use std::os::fd::BorrowedFd;

    let context = Context::start();
    submit(context.wait_eq(3, u64::MAX, 1));
    let mut handle = -1;
    // SAFETY: a live engine and a valid out-parameter; the descriptor lives as long as the engine.
    let fd = unsafe {
        ok(doca_pe_get_notification_handle(context.pe, &mut handle));
        BorrowedFd::borrow_raw(handle)
    };
    context.progress();
    let wake = |timeout: Duration| {
        let timeout = Timespec::try_from(timeout).expect("a short time");
        // SAFETY: a live engine and its descriptor.
        unsafe {
            ok(doca_pe_request_notification(context.pe));
            let woken = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
            ok(doca_pe_clear_notification(context.pe, handle));
            woken
        }
    };
    assert_eq!(wake(Duration::from_secs(5)), Ok(1));
    assert_eq!(context.progress(), 0);
    context.event.set(3);
    assert_eq!(wake(Duration::from_secs(5)), Ok(1));
    assert_eq!(context.wait(1), [(1, 0)]);
    // No task is pending, so there is no wake-up.
    assert_eq!(wake(Duration::from_millis(20)), Ok(0));
}

#[test]
fn stopping_flushes_waits() {
    let context = Context::start();
    submit(context.wait_eq(1, u64::MAX, 1));
    context.progress();
    // SAFETY: a live handle.
    let stopping = unsafe { doca_ctx_stop(context.ctx()) };
    assert_eq!(stopping, Error::InProgress.code());
    assert_eq!(context.wait(1), [(1, Error::ConnectionAborted.code())]);
}

#[test]
fn task_fields_can_be_set_and_read() {
    let context = Context::start();
    let (one, two) = (Cell::new(0), Cell::new(0));
    macro_rules! check {
        ($task:expr; $($set:ident, $get:ident: $before:expr, $after:expr;)+) => { $(
            assert_eq!($get($task), $before, stringify!($get));
            $set($task, $after);
            assert_eq!($get($task), $after, stringify!($set));
            $set(null_mut(), $before);
            assert_eq!($get(null()), 0);
        )+ };
    }
    // SAFETY: live tasks of their kinds, or NULL.
    unsafe {
        let get = context.get(one.as_ptr(), 1);
        assert_eq!(doca_sync_event_task_get_as_doca_task(get), get.cast());
        assert_eq!(doca_sync_event_task_get_get_ret_val_ptr(get), one.as_ptr());
        doca_sync_event_task_get_set_ret_val_ptr(get, two.as_ptr());
        assert_eq!(doca_sync_event_task_get_get_ret_val_ptr(get), two.as_ptr());
        assert!(doca_sync_event_task_get_get_ret_val_ptr(null()).is_null());

        let set = context.notify_set(3, 2);
        assert_eq!(
            doca_sync_event_task_notify_set_as_doca_task(set),
            set.cast()
        );
        check!(set; doca_sync_event_task_notify_set_set_set_val, doca_sync_event_task_notify_set_get_set_val: 3, 30;);

        let add = context.notify_add(4, one.as_ptr(), 3);
        assert_eq!(
            doca_sync_event_task_notify_add_as_doca_task(add),
            add.cast()
        );
        check!(add; doca_sync_event_task_notify_add_set_inc_val, doca_sync_event_task_notify_add_get_inc_val: 4, 12;);
        assert_eq!(
            doca_sync_event_task_notify_add_get_fetched_val_ptr(add),
            one.as_ptr()
        );
        doca_sync_event_task_notify_add_set_fetched_val_ptr(add, null_mut());
        assert!(doca_sync_event_task_notify_add_get_fetched_val_ptr(add).is_null());

        let eq = context.wait_eq(5, 6, 4);
        assert_eq!(doca_sync_event_task_wait_eq_as_doca_task(eq), eq.cast());
        check!(eq;
            doca_sync_event_task_wait_eq_set_wait_val, doca_sync_event_task_wait_eq_get_wait_val: 5, 2;
            doca_sync_event_task_wait_eq_set_mask, doca_sync_event_task_wait_eq_get_mask: 6, 0xf;);

        let neq = context.wait_neq(7, 8, 5);
        assert_eq!(doca_sync_event_task_wait_neq_as_doca_task(neq), neq.cast());
        check!(neq;
            doca_sync_event_task_wait_neq_set_wait_val, doca_sync_event_task_wait_neq_get_wait_val: 7, 0x2a;
            doca_sync_event_task_wait_neq_set_mask, doca_sync_event_task_wait_neq_get_mask: 8, 0xff;);

        // The values set last apply.
        submit(set);
        context.wait(1);
        submit(add);
        context.wait(2);
        submit(get);
        context.wait(3);
        submit(neq);
        submit(eq);
        context.log.borrow_mut().clear();
        assert_eq!(two.get(), 42);
        assert_eq!(
            context.progress(),
            0,
            "0x2a & 0xf is not 2, and 0x2a & 0xff is 0x2a"
        );
        context.event.set(0x12);
        context.wait(2);
    }
}

#[test]
fn an_event_is_used_with_or_without_its_context() {
    let invalid = Error::InvalidValue.code();
    let state = Error::BadState.code();
    let none = doca_data { u64: 0 };
    // SAFETY: live handles and valid out-parameters, or NULL.
    unsafe {
        let alone = Se::started();
        assert!(doca_sync_event_as_ctx(alone.0).is_null());
        assert!(doca_sync_event_as_ctx(null_mut()).is_null());
        let mut pe = null_mut();
        ok(doca_pe_create(&mut pe));
        ok(doca_pe_connect_ctx(pe, alone.0.cast()));
        assert_eq!(doca_ctx_start(alone.0.cast()), state);
        drop(alone);
        ok(doca_pe_destroy(pe));

        let context = Context::start();
        let event: *mut doca_sync_event = context.event.0;
        assert_eq!(doca_sync_event_start(event), state);
        assert_eq!(doca_sync_event_stop(event), state);
        assert_eq!(doca_sync_event_destroy(event), state);
        let mut task = null_mut();
        let mut value = 0;
        let alloc = doca_sync_event_task_get_alloc_init;
        assert_eq!(alloc(event, null_mut(), none, &mut task), invalid);
        assert_eq!(alloc(null_mut(), &mut value, none, &mut task), invalid);
        assert_eq!(alloc(event, &mut value, none, null_mut()), invalid);
        let set_conf = doca_sync_event_task_get_set_conf;
        assert_eq!(set_conf(event, Some(done), Some(done), 1), state);
        assert_eq!(set_conf(null_mut(), Some(done), Some(done), 1), invalid);
        for _ in 0..2 {
            context.wait_eq(1, 1, 1);
        }
        let mut third = null_mut();
        let full = doca_sync_event_task_wait_eq_alloc_init(event, 1, 1, none, &mut third);
        assert_eq!(full, Error::NoMemory.code());
    }
}
