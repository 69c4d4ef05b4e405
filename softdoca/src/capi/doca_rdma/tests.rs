//! RDMA through its C functions: two instances in one thread, and processes against each other.

mod access;
mod addresses;
mod hostile;
mod messages;
mod processes;

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca_abi::{
    DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, DOCA_ACCESS_FLAG_RDMA_ATOMIC, DOCA_ACCESS_FLAG_RDMA_READ,
    DOCA_ACCESS_FLAG_RDMA_WRITE, DOCA_CTX_STATE_IDLE, doca_buf, doca_ctx, doca_ctx_states,
    doca_data, doca_pe, doca_rdma, doca_rdma_connection, doca_rdma_task_atomic_cmp_swp,
    doca_rdma_task_atomic_fetch_add, doca_rdma_task_read, doca_rdma_task_receive,
    doca_rdma_task_remote_net_sync_event_get, doca_rdma_task_remote_net_sync_event_notify_add,
    doca_rdma_task_remote_net_sync_event_notify_set, doca_rdma_task_send, doca_rdma_task_send_imm,
    doca_rdma_task_write, doca_rdma_task_write_imm, doca_task,
};

use super::super::doca_pe::*;
use super::super::give;
use super::super::testing::{Bufs, Memory, Placement, c, device, import};
use super::*;
use crate::device::Device;
use crate::error::Error;

/// A completion, as passed to the callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Completion {
    user: u64,
    status: u32,
    task: *mut doca_task,
}

/// A callback of a connection by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionEvent {
    Request,
    Established,
    Failure,
    Disconnection,
}

/// Answer to a connection request in its callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Answer {
    #[default]
    Accept,
    Reject,
    Later,
}

/// Arguments of the callbacks.
#[derive(Default)]
struct Log {
    completions: RefCell<Vec<Completion>>,
    states: RefCell<Vec<(u32, u32)>>,
    established: Cell<u32>,
    disconnected: Cell<u32>,
    /// Callbacks of connections by address, in order.
    by_address: RefCell<Vec<(ConnectionEvent, *mut doca_rdma_connection, u64)>>,
    /// Answer of the request callback.
    answer: Cell<Answer>,
    /// If `true`, callbacks free failed tasks, so that the context can stop.
    free_on_error: Cell<bool>,
    freed: RefCell<Vec<*mut doca_task>>,
}

unsafe fn log<'a>(ctx_data: doca_data) -> &'a Log {
    // SAFETY: the context data of a test points to the log of its side.
    unsafe { &*ctx_data.ptr.cast::<Log>() }
}

unsafe extern "C" fn done<T>(task: *mut T, task_data: doca_data, ctx_data: doca_data) {
    let task: *mut doca_task = task.cast();
    // SAFETY: called with a live task and the data that the test set.
    unsafe {
        let (log, status) = (log(ctx_data), doca_task_get_status(task));
        log.completions.borrow_mut().push(Completion {
            user: task_data.u64,
            status,
            task,
        });
        if status != 0 && log.free_on_error.get() {
            doca_task_free(task);
            log.freed.borrow_mut().push(task);
        }
    }
}

unsafe extern "C" fn state_changed(
    data: doca_data,
    _: *mut doca_ctx,
    from: doca_ctx_states,
    to: doca_ctx_states,
) {
    // SAFETY: as in `done`.
    unsafe { log(data) }.states.borrow_mut().push((from, to));
}

unsafe extern "C" fn established(_: *mut doca_rdma_connection, _: doca_data, ctx_data: doca_data) {
    // SAFETY: as in `done`.
    let log = unsafe { log(ctx_data) };
    log.established.set(log.established.get() + 1);
}

unsafe extern "C" fn disconnected(_: *mut doca_rdma_connection, _: doca_data, ctx_data: doca_data) {
    // SAFETY: as in `done`.
    let log = unsafe { log(ctx_data) };
    log.disconnected.set(log.disconnected.get() + 1);
}

/// Permissions of an instance for all operations of the tests.
const ALL: u32 = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
    | DOCA_ACCESS_FLAG_RDMA_READ
    | DOCA_ACCESS_FLAG_RDMA_WRITE
    | DOCA_ACCESS_FLAG_RDMA_ATOMIC;

/// Number of tasks of each kind of an instance.
const POOL: u32 = 64;

/// A progress engine with one instance, and a log.
struct Side {
    pe: *mut doca_pe,
    rdma: *mut doca_rdma,
    log: Box<Log>,
    tasks: RefCell<Vec<*mut doca_task>>,
}

/// `true` if connections use an RDMA device: see `over_network`.
fn by_verbs() -> bool {
    std::env::var_os("SOFTDOCA_TRANSPORT").is_some_and(|transport| transport == "verbs")
}

fn ok(code: u32) {
    assert_eq!(code, 0, "{:?}", Error::from_code(code));
}

impl Side {
    fn start(permissions: u32, connections: u16) -> Side {
        let side = Side::new(permissions, connections);
        // SAFETY: live handles.
        ok(unsafe { doca_ctx_start(side.ctx()) });
        side
    }

    /// A configured instance that has not been started.
    fn new(permissions: u32, connections: u16) -> Side {
        Side::on(device(), permissions, connections)
    }

    /// A configured instance on `device` that has not been started.
    fn on(device: Arc<Device>, permissions: u32, connections: u16) -> Side {
        let (mut pe, mut rdma) = (null_mut(), null_mut());
        let log = Box::<Log>::default();
        // SAFETY: live handles and valid out-parameters.
        unsafe {
            ok(doca_pe_create(&mut pe));
            let dev = give::<doca_abi::doca_dev>(device);
            ok(doca_rdma_create(dev, &mut rdma));
            drop(Arc::from_raw(dev.cast::<Device>()));
            let ctx = doca_rdma_as_ctx(rdma);
            ok(doca_pe_connect_ctx(pe, ctx));
            let data = doca_data {
                ptr: std::ptr::from_ref(&*log).cast_mut().cast(),
            };
            ok(doca_ctx_set_user_data(ctx, data));
            ok(doca_ctx_set_state_changed_cb(ctx, Some(state_changed)));
            ok(doca_rdma_set_permissions(rdma, permissions));
            ok(doca_rdma_set_max_num_connections(rdma, connections));
            ok(doca_rdma_set_connection_state_callbacks(
                rdma,
                None,
                Some(established),
                Some(disconnected),
                Some(disconnected),
            ));
            macro_rules! configure {
                ($($set_conf:ident: $task:ty),*) => { $(
                    ok($set_conf(rdma, Some(done::<$task>), Some(done::<$task>), POOL));
                )* };
            }
            configure!(
                doca_rdma_task_receive_set_conf: doca_rdma_task_receive,
                doca_rdma_task_send_set_conf: doca_rdma_task_send,
                doca_rdma_task_send_imm_set_conf: doca_rdma_task_send_imm,
                doca_rdma_task_read_set_conf: doca_rdma_task_read,
                doca_rdma_task_write_set_conf: doca_rdma_task_write,
                doca_rdma_task_write_imm_set_conf: doca_rdma_task_write_imm,
                doca_rdma_task_atomic_cmp_swp_set_conf: doca_rdma_task_atomic_cmp_swp,
                doca_rdma_task_atomic_fetch_add_set_conf: doca_rdma_task_atomic_fetch_add,
                doca_rdma_task_remote_net_sync_event_get_set_conf: doca_rdma_task_remote_net_sync_event_get,
                doca_rdma_task_remote_net_sync_event_notify_set_set_conf: doca_rdma_task_remote_net_sync_event_notify_set,
                doca_rdma_task_remote_net_sync_event_notify_add_set_conf: doca_rdma_task_remote_net_sync_event_notify_add
            );
        }
        Side {
            pe,
            rdma,
            log,
            tasks: RefCell::default(),
        }
    }

    fn ctx(&self) -> *mut doca_ctx {
        // SAFETY: a live handle.
        unsafe { doca_rdma_as_ctx(self.rdma) }
    }

    fn try_export(&self) -> std::result::Result<(Vec<u8>, *mut doca_rdma_connection), u32> {
        let (mut details, mut size, mut connection): (*const c_void, usize, _) =
            (null(), 0, null_mut());
        // SAFETY: live handles and valid out-parameters; the details are readable for their size.
        unsafe {
            match doca_rdma_export(self.rdma, &mut details, &mut size, &mut connection) {
                0 => Ok((
                    std::slice::from_raw_parts(details.cast(), size).to_vec(),
                    connection,
                )),
                code => Err(code),
            }
        }
    }

    fn export(&self) -> (Vec<u8>, *mut doca_rdma_connection) {
        self.try_export().expect("room for a connection")
    }

    fn connect(&self, connection: *mut doca_rdma_connection, details: &[u8]) -> u32 {
        // SAFETY: a live handle; the details are readable for their length.
        unsafe {
            doca_rdma_connect(
                self.rdma,
                details.as_ptr().cast(),
                details.len(),
                connection,
            )
        }
    }

    fn keep<T>(&self, task: *mut T) -> *mut doca_task {
        let task = task.cast();
        self.log.freed.borrow_mut().retain(|freed| *freed != task);
        self.tasks.borrow_mut().push(task);
        task
    }

    fn receive(&self, buf: *mut doca_buf, user: u64) -> *mut doca_task {
        let mut task = null_mut();
        // SAFETY: live handles and a valid out-parameter.
        unsafe {
            let user = doca_data { u64: user };
            ok(doca_rdma_task_receive_allocate_init(
                self.rdma, buf, user, &mut task,
            ));
        }
        self.keep(task)
    }

    fn send(
        &self,
        connection: *mut doca_rdma_connection,
        buf: *mut doca_buf,
        user: u64,
    ) -> *mut doca_task {
        let mut task = null_mut();
        // SAFETY: as in `receive`.
        unsafe {
            let user = doca_data { u64: user };
            ok(doca_rdma_task_send_allocate_init(
                self.rdma, connection, buf, user, &mut task,
            ));
        }
        self.keep(task)
    }

    fn send_imm(
        &self,
        connection: *mut doca_rdma_connection,
        buf: *mut doca_buf,
        immediate: u32,
        user: u64,
    ) -> *mut doca_task {
        let mut task = null_mut();
        // SAFETY: as in `receive`.
        unsafe {
            let user = doca_data { u64: user };
            ok(doca_rdma_task_send_imm_allocate_init(
                self.rdma, connection, buf, immediate, user, &mut task,
            ));
        }
        self.keep(task)
    }

    fn read(
        &self,
        connection: *mut doca_rdma_connection,
        (from, to): (*mut doca_buf, *mut doca_buf),
        user: u64,
    ) -> *mut doca_task {
        let mut task = null_mut();
        // SAFETY: as in `receive`.
        unsafe {
            let user = doca_data { u64: user };
            ok(doca_rdma_task_read_allocate_init(
                self.rdma, connection, from, to, user, &mut task,
            ));
        }
        self.keep(task)
    }

    fn write(
        &self,
        connection: *mut doca_rdma_connection,
        (from, to): (*mut doca_buf, *mut doca_buf),
        user: u64,
    ) -> *mut doca_task {
        let mut task = null_mut();
        // SAFETY: as in `receive`.
        unsafe {
            let user = doca_data { u64: user };
            ok(doca_rdma_task_write_allocate_init(
                self.rdma, connection, from, to, user, &mut task,
            ));
        }
        self.keep(task)
    }

    fn write_imm(
        &self,
        connection: *mut doca_rdma_connection,
        (from, to): (*mut doca_buf, *mut doca_buf),
        immediate: u32,
        user: u64,
    ) -> *mut doca_task {
        let mut task = null_mut();
        // SAFETY: as in `receive`.
        unsafe {
            let user = doca_data { u64: user };
            ok(doca_rdma_task_write_imm_allocate_init(
                self.rdma, connection, from, to, immediate, user, &mut task,
            ));
        }
        self.keep(task)
    }

    fn progress(&self) {
        // SAFETY: a live handle.
        unsafe { doca_pe_progress(self.pe) };
    }

    fn state(&self) -> u32 {
        let mut state = 0;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_ctx_get_state(self.ctx(), &mut state) });
        state
    }

    /// `(user data, status)` of the completions so far.
    fn completed(&self) -> Vec<(u64, u32)> {
        let log = self.log.completions.borrow();
        log.iter().map(|done| (done.user, done.status)).collect()
    }

    /// Progresses until `count` tasks have completed in total. Returns them.
    #[track_caller]
    fn wait(&self, count: usize) -> Vec<(u64, u32)> {
        self.wait_until("completions", |side| side.completed().len() >= count);
        self.completed()
    }

    #[track_caller]
    fn wait_until(&self, what: &str, done: impl Fn(&Side) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done(self) {
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}; completed: {:?}, states: {:?}",
                self.completed(),
                self.log.states.borrow()
            );
            self.progress();
        }
    }

    /// Progresses this and the other side until both are quiescent.
    fn rest(&self, other: &Side) {
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            self.progress();
            other.progress();
        }
    }

    /// Makes the callbacks free failed tasks from now on.
    fn free_failed_tasks(&self) {
        self.log.free_on_error.set(true);
    }

    /// Stops the instance and frees its tasks.
    #[track_caller]
    fn stop(&self) {
        // SAFETY: live handles; all have completed.
        unsafe {
            doca_ctx_stop(self.ctx());
            let mut in_flight = 1;
            while in_flight != 0 {
                self.progress();
                ok(doca_ctx_get_num_inflight_tasks(self.ctx(), &mut in_flight));
            }
            let freed = self.log.freed.take();
            for task in self.tasks.borrow_mut().drain(..) {
                if !freed.contains(&task) {
                    doca_task_free(task);
                }
            }
        }
        self.wait_until("the idle state", |side| side.state() == DOCA_CTX_STATE_IDLE);
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.stop();
        // SAFETY: live handles, not used afterwards.
        unsafe {
            ok(doca_rdma_destroy(self.rdma));
            ok(doca_pe_destroy(self.pe));
        }
    }
}

fn submit(task: *mut doca_task) {
    // SAFETY: a live task.
    ok(unsafe { doca_task_submit(task) });
}

/// Creates two running, connected instances.
fn pair() -> (
    (Side, *mut doca_rdma_connection),
    (Side, *mut doca_rdma_connection),
) {
    pair_with(ALL, ALL)
}

fn pair_with(
    left: u32,
    right: u32,
) -> (
    (Side, *mut doca_rdma_connection),
    (Side, *mut doca_rdma_connection),
) {
    let (a, b) = (Side::start(left, 1), Side::start(right, 1));
    let ((a_details, a_connection), (b_details, b_connection)) = (a.export(), b.export());
    ok(a.connect(a_connection, &b_details));
    ok(b.connect(b_connection, &a_details));
    ((a, a_connection), (b, b_connection))
}
