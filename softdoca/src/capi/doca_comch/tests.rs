//! Comch through its C functions.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the C functions are what is tested, called as their documentation says"
)]

mod endpoints;
mod fast_path;
mod hostile;
mod processes;
mod threads;

use std::cell::RefCell;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use doca_abi::*;

use super::super::doca_pe::*;
use super::super::{DOCA_SUCCESS, give, reclaim};
use super::*;
use crate::device::{Device, Representor};

pub const IN_PROGRESS: u32 = Error::InProgress.code();
pub const AGAIN: u32 = Error::Again.code();
/// Values of `enum doca_ctx_states`.
pub const IDLE: u32 = 0;
pub const STARTING: u32 = 1;
pub const RUNNING: u32 = 2;
pub const STOPPING: u32 = 3;

/// Events seen by a program, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    State(u32, u32),
    Connected(u8),
    Disconnected(u8),
    Message(Vec<u8>),
    Added(u32),
    Expired(u32),
    /// Completion of a control message: status.
    Sent(u32),
    /// Completion of a receive task: user data, status, immediate data, producer.
    Received(u64, u32, Vec<u8>, u32),
    /// Completion of a producer's task: user data and status.
    Produced(u64, u32),
}

/// Data of the program, set as the context's user data.
#[derive(Debug, Default)]
pub struct Log {
    pub seen: RefCell<Vec<Seen>>,
    /// The connections reported so far, latest last.
    pub connections: RefCell<Vec<*mut doca_comch_connection>>,
}

impl Log {
    pub fn note(&self, seen: Seen) {
        self.seen.borrow_mut().push(seen);
    }

    pub fn count(&self, wanted: impl Fn(&Seen) -> bool) -> usize {
        self.seen
            .borrow()
            .iter()
            .filter(|seen| wanted(seen))
            .count()
    }

    pub fn has(&self, wanted: &Seen) -> bool {
        self.seen.borrow().contains(wanted)
    }

    pub fn take(&self) -> Vec<Seen> {
        self.seen.take()
    }
}

/// # Safety
/// The data points to a live `Log`.
pub unsafe fn log<'a>(data: doca_data) -> &'a Log {
    unsafe { &*data.ptr.cast::<Log>() }
}

/// The log of a connection's server or client.
unsafe fn log_of<'a>(connection: *mut doca_comch_connection) -> &'a Log {
    unsafe {
        let server = doca_comch_server_get_server_ctx(connection);
        let client = doca_comch_client_get_client_ctx(connection);
        assert_ne!(server.is_null(), client.is_null(), "one of the two");
        let ctx = if server.is_null() {
            doca_comch_client_as_ctx(client)
        } else {
            doca_comch_server_as_ctx(server)
        };
        let mut data = doca_data { u64: 0 };
        assert_eq!(doca_ctx_get_user_data(ctx, &raw mut data), DOCA_SUCCESS);
        log(data)
    }
}

unsafe extern "C" fn state_changed(data: doca_data, _: *mut doca_ctx, from: u32, to: u32) {
    unsafe { log(data) }.note(Seen::State(from, to));
}

unsafe extern "C" fn connected(
    _: *mut doca_comch_event_connection_status_changed,
    connection: *mut doca_comch_connection,
    successful: u8,
) {
    let log = unsafe { log_of(connection) };
    log.connections.borrow_mut().push(connection);
    log.note(Seen::Connected(successful));
}

unsafe extern "C" fn disconnected(
    _: *mut doca_comch_event_connection_status_changed,
    connection: *mut doca_comch_connection,
    successful: u8,
) {
    unsafe { log_of(connection) }.note(Seen::Disconnected(successful));
}

unsafe extern "C" fn message(
    _: *mut doca_comch_event_msg_recv,
    bytes: *mut u8,
    len: u32,
    connection: *mut doca_comch_connection,
) {
    let bytes = unsafe { std::slice::from_raw_parts(bytes, len as usize) }.to_vec();
    let log = unsafe { log_of(connection) };
    log.connections.borrow_mut().push(connection);
    log.note(Seen::Message(bytes));
}

unsafe extern "C" fn added(
    _: *mut doca_comch_event_consumer,
    connection: *mut doca_comch_connection,
    id: u32,
) {
    unsafe { log_of(connection) }.note(Seen::Added(id));
}

unsafe extern "C" fn expired(
    _: *mut doca_comch_event_consumer,
    connection: *mut doca_comch_connection,
    id: u32,
) {
    unsafe { log_of(connection) }.note(Seen::Expired(id));
}

unsafe extern "C" fn sent(task: *mut doca_comch_task_send, _: doca_data, data: doca_data) {
    unsafe {
        let task = doca_comch_task_send_as_task(task);
        log(data).note(Seen::Sent(doca_task_get_status(task)));
        doca_task_free(task);
    }
}

/// A name that no other test uses.
pub fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "test {} {}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

pub fn assert_ok(code: u32) {
    assert_eq!(Error::from_code(code), None);
}

/// Progresses the engines until `done`.
#[track_caller]
pub fn progress_until(engines: &[&Engine], mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "nothing more happens"
        );
        for engine in engines {
            engine.progress();
        }
    }
}

/// Progresses the engines for `time`.
pub fn progress_for(engines: &[&Engine], time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        for engine in engines {
            engine.progress();
        }
    }
}

/// A progress engine.
pub struct Engine(pub *mut doca_pe);

impl Engine {
    pub fn new() -> Self {
        let mut pe = null_mut();
        assert_ok(unsafe { doca_pe_create(&raw mut pe) });
        Self(pe)
    }

    pub fn progress(&self) -> bool {
        unsafe { doca_pe_progress(self.0) == 1 }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_ok(unsafe { doca_pe_destroy(self.0) });
        }
    }
}

/// The common part of the contexts of a test.
pub struct Context {
    pub ctx: *mut doca_ctx,
    pub log: Box<Log>,
}

impl Context {
    pub fn new(ctx: *mut doca_ctx, engine: &Engine) -> Self {
        let log = Box::<Log>::default();
        let data = doca_data {
            ptr: std::ptr::from_ref(&*log).cast_mut().cast(),
        };
        unsafe {
            assert_ok(doca_ctx_set_user_data(ctx, data));
            assert_ok(doca_ctx_set_state_changed_cb(ctx, Some(state_changed)));
            assert_ok(doca_pe_connect_ctx(engine.0, ctx));
        }
        Self { ctx, log }
    }

    pub fn start(&self) -> u32 {
        unsafe { doca_ctx_start(self.ctx) }
    }

    pub fn stop(&self) -> u32 {
        unsafe { doca_ctx_stop(self.ctx) }
    }

    pub fn state(&self) -> u32 {
        let mut state = u32::MAX;
        assert_ok(unsafe { doca_ctx_get_state(self.ctx, &raw mut state) });
        state
    }

    /// Stops, and progresses until idle.
    #[track_caller]
    pub fn stop_fully(&self, engines: &[&Engine]) {
        match self.stop() {
            DOCA_SUCCESS => {}
            code => assert_eq!(code, IN_PROGRESS),
        }
        progress_until(engines, || self.state() == IDLE);
    }
}

/// The devices of the built-in topology: the DPU's and the host's.
pub fn devices() -> (Arc<Device>, Arc<Device>) {
    (
        Device::open_by_name("0000:03:00.0").expect("the DPU's device"),
        Device::open_by_name("0000:3b:00.0").expect("the host's device"),
    )
}

/// A server, initially stopped.
pub struct TestServer {
    pub context: Context,
    pub handle: *mut doca_comch_server,
}

impl TestServer {
    pub fn create(name: &str, engine: &Engine) -> Self {
        let (dpu, _) = devices();
        let infos = dpu.representors(None).expect("representors");
        let representor = give::<doca_dev_rep>(Representor::open(&infos[0]));
        let dpu = give::<doca_dev>(dpu);
        let name = CString::new(name).expect("no NUL");
        let mut handle = null_mut();
        unsafe {
            assert_ok(doca_comch_server_create(
                dpu,
                representor,
                name.as_ptr(),
                &raw mut handle,
            ));
            drop((reclaim(dpu), reclaim(representor)));
            let context = Context::new(doca_comch_server_as_ctx(handle), engine);
            assert_ok(doca_comch_server_task_send_set_conf(
                handle,
                Some(sent),
                Some(sent),
                256,
            ));
            assert_ok(doca_comch_server_event_msg_recv_register(
                handle,
                Some(message),
            ));
            assert_ok(doca_comch_server_event_connection_status_changed_register(
                handle,
                Some(connected),
                Some(disconnected),
            ));
            assert_ok(doca_comch_server_event_consumer_register(
                handle,
                Some(added),
                Some(expired),
            ));
            Self { context, handle }
        }
    }

    /// The connection reported last.
    pub fn connection(&self) -> *mut doca_comch_connection {
        *self
            .context
            .log
            .connections
            .borrow()
            .last()
            .expect("a connection")
    }

    pub fn send(&self, connection: *mut doca_comch_connection, bytes: &[u8]) -> u32 {
        let mut task = null_mut();
        unsafe {
            let (message, len) = (bytes.as_ptr().cast(), bytes.len() as u32);
            match doca_comch_server_task_send_alloc_init(
                self.handle,
                connection,
                message,
                len,
                &raw mut task,
            ) {
                DOCA_SUCCESS => doca_task_submit(doca_comch_task_send_as_task(task)),
                code => code,
            }
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_ok(unsafe { doca_comch_server_destroy(self.handle) });
        }
    }
}

/// A client, initially stopped.
pub struct TestClient {
    pub context: Context,
    pub handle: *mut doca_comch_client,
}

impl TestClient {
    pub fn create(name: &str, engine: &Engine) -> Self {
        let (_, host) = devices();
        let host = give::<doca_dev>(host);
        let name = CString::new(name).expect("no NUL");
        let mut handle = null_mut();
        unsafe {
            assert_ok(doca_comch_client_create(
                host,
                name.as_ptr(),
                &raw mut handle,
            ));
            drop(reclaim(host));
            let context = Context::new(doca_comch_client_as_ctx(handle), engine);
            assert_ok(doca_comch_client_task_send_set_conf(
                handle,
                Some(sent),
                Some(sent),
                256,
            ));
            assert_ok(doca_comch_client_event_msg_recv_register(
                handle,
                Some(message),
            ));
            assert_ok(doca_comch_client_event_consumer_register(
                handle,
                Some(added),
                Some(expired),
            ));
            Self { context, handle }
        }
    }

    pub fn connection(&self) -> *mut doca_comch_connection {
        let mut connection = null_mut();
        assert_ok(unsafe { doca_comch_client_get_connection(self.handle, &raw mut connection) });
        connection
    }

    pub fn send(&self, bytes: &[u8]) -> u32 {
        let mut task = null_mut();
        unsafe {
            let (message, len) = (bytes.as_ptr().cast(), bytes.len() as u32);
            match doca_comch_client_task_send_alloc_init(
                self.handle,
                self.connection(),
                message,
                len,
                &raw mut task,
            ) {
                DOCA_SUCCESS => doca_task_submit(doca_comch_task_send_as_task(task)),
                code => code,
            }
        }
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_ok(unsafe { doca_comch_client_destroy(self.handle) });
        }
    }
}

/// A server and a client with an established connection.
pub struct Pair {
    pub client: TestClient,
    pub server: TestServer,
    pub client_engine: Engine,
    pub server_engine: Engine,
    pub name: String,
}

impl Pair {
    pub fn connect() -> Self {
        let (name, server_engine, client_engine) = (unique_name(), Engine::new(), Engine::new());
        let server = TestServer::create(&name, &server_engine);
        assert_ok(server.context.start());
        let client = TestClient::create(&name, &client_engine);
        assert_eq!(client.context.start(), IN_PROGRESS);
        progress_until(&[&server_engine, &client_engine], || {
            client.context.state() == RUNNING && server.context.log.has(&Seen::Connected(1))
        });
        Self {
            client,
            server,
            client_engine,
            server_engine,
            name,
        }
    }

    pub fn engines(&self) -> [&Engine; 2] {
        [&self.client_engine, &self.server_engine]
    }

    /// Stops and destroys everything in order.
    pub fn finish(self) {
        self.client.context.stop_fully(&self.engines());
        self.server.context.stop_fully(&self.engines());
    }
}
