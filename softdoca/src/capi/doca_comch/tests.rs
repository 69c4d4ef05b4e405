//! Comch through its C functions. The fixtures are servers, clients, consumers and producers that record events.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the C functions are what is tested, called as their documentation says"
)]

mod fast_path;
mod processes;

use std::cell::RefCell;
use std::ffi::CString;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use doca_abi::*;

use super::super::doca_pe::*;
use super::super::{DOCA_SUCCESS, give, reclaim};
use super::*;
use crate::buffer::BufInventory;
use crate::device::{Device, Representor};
use crate::memory::{Mmap, Permissions};
use crate::runtime::RuntimeDir;

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
    /// The connections reported so far, in order.
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

unsafe extern "C" fn received(
    task: *mut doca_comch_consumer_task_post_recv,
    task_data: doca_data,
    data: doca_data,
) {
    unsafe {
        let len = doca_comch_consumer_task_post_recv_get_imm_data_len(task);
        let immediate = match len {
            0 => Vec::new(),
            _ => std::slice::from_raw_parts(
                doca_comch_consumer_task_post_recv_get_imm_data(task),
                len as usize,
            )
            .to_vec(),
        };
        let producer = doca_comch_consumer_task_post_recv_get_producer_id(task);
        let task = doca_comch_consumer_task_post_recv_as_task(task);
        let status = doca_task_get_status(task);
        log(data).note(Seen::Received(task_data.u64, status, immediate, producer));
    }
}

unsafe extern "C" fn produced(
    task: *mut doca_comch_producer_task_send,
    task_data: doca_data,
    data: doca_data,
) {
    unsafe {
        let task = doca_comch_producer_task_send_as_task(task);
        log(data).note(Seen::Produced(task_data.u64, doca_task_get_status(task)));
    }
}

/// Memory that a consumer receives into or a producer sends from, with an inventory.
pub struct Memory {
    pub bytes: Box<[u8]>,
    pub mmap: Arc<Mmap>,
    pub inventory: BufInventory,
}

impl Memory {
    pub fn new(len: usize) -> Self {
        let mut bytes = vec![0u8; len].into_boxed_slice();
        let mmap = Arc::new(Mmap::new());
        let (dpu, host) = devices();
        mmap.set_memrange(bytes.as_mut_ptr().expose_provenance() as u64, len as u64)
            .expect("a range");
        mmap.set_permissions(Permissions::LOCAL_READ_WRITE | Permissions::PCI_READ_WRITE)
            .expect("not started");
        mmap.add_device(&dpu).expect("a device");
        mmap.add_device(&host).expect("a device");
        mmap.start().expect("complete");
        let inventory = BufInventory::new(1024).expect("memory");
        inventory.start();
        Self {
            bytes,
            mmap,
            inventory,
        }
    }

    fn addr(&self, offset: usize) -> u64 {
        self.bytes.as_ptr().expose_provenance() as u64 + offset as u64
    }

    /// An empty buf of `len` bytes.
    pub fn room(&self, offset: usize, len: usize) -> *mut doca_buf {
        let buf = self
            .inventory
            .get_by_addr(&self.mmap, self.addr(offset), len)
            .expect("a buf");
        std::ptr::from_ref(buf).cast_mut().cast()
    }

    /// A buf whose `len` bytes are data.
    pub fn data(&self, offset: usize, len: usize) -> *mut doca_buf {
        let buf = self
            .inventory
            .get_by_data(&self.mmap, self.addr(offset), len)
            .expect("a buf");
        std::ptr::from_ref(buf).cast_mut().cast()
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        // SAFETY: the range is inside; written through the pointer that the mmap was given.
        unsafe {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(self.addr(offset) as usize);
            assert!(offset + bytes.len() <= self.bytes.len());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.bytes.len());
        let from = std::ptr::with_exposed_provenance::<u8>(self.addr(offset) as usize);
        // SAFETY: inside, and not written in the meantime.
        unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
    }
}

/// The buf behind a handle.
pub fn buf<'a>(handle: *mut doca_buf) -> &'a crate::buffer::Buf {
    // SAFETY: tests keep their inventories.
    unsafe { &*handle.cast() }
}

pub struct TestConsumer {
    pub context: Context,
    pub handle: *mut doca_comch_consumer,
    tasks: RefCell<Vec<*mut doca_task>>,
}

impl TestConsumer {
    /// Creates a consumer without starting it.
    pub fn create(
        connection: *mut doca_comch_connection,
        memory: &Memory,
        engine: &Engine,
    ) -> Self {
        let mmap = give::<doca_mmap>(Arc::clone(&memory.mmap));
        let mut handle = null_mut();
        unsafe {
            assert_ok(doca_comch_consumer_create(
                connection,
                mmap,
                &raw mut handle,
            ));
            drop(reclaim(mmap));
            let context = Context::new(doca_comch_consumer_as_ctx(handle), engine);
            assert_ok(doca_comch_consumer_task_post_recv_set_conf(
                handle,
                Some(received),
                Some(received),
                64,
            ));
            Self {
                context,
                handle,
                tasks: RefCell::default(),
            }
        }
    }

    /// Creates and starts a consumer.
    pub fn run(connection: *mut doca_comch_connection, memory: &Memory, engine: &Engine) -> Self {
        let consumer = Self::create(connection, memory, engine);
        assert_eq!(consumer.context.start(), IN_PROGRESS);
        progress_until(&[engine], || consumer.context.state() == RUNNING);
        consumer
    }

    pub fn id(&self) -> u32 {
        let mut id = 0;
        assert_ok(unsafe { doca_comch_consumer_get_id(self.handle, &raw mut id) });
        id
    }

    /// Posts a buf with a separate task. Returns the task.
    #[track_caller]
    pub fn post(&self, buf: *mut doca_buf, data: u64) -> *mut doca_task {
        let task = self.allocate(buf, data);
        assert_ok(unsafe { doca_task_submit(task) });
        task
    }

    pub fn allocate(&self, buf: *mut doca_buf, data: u64) -> *mut doca_task {
        let mut task = null_mut();
        unsafe {
            assert_ok(doca_comch_consumer_task_post_recv_alloc_init(
                self.handle,
                buf,
                &raw mut task,
            ));
            assert_eq!(doca_comch_consumer_task_post_recv_get_buf(task), buf);
            let task = doca_comch_consumer_task_post_recv_as_task(task);
            doca_task_set_user_data(task, doca_data { u64: data });
            self.tasks.borrow_mut().push(task);
            task
        }
    }

    pub fn received(&self) -> usize {
        self.context
            .log
            .count(|seen| matches!(seen, Seen::Received(..)))
    }

    pub fn free_tasks(&self) {
        for task in self.tasks.take() {
            unsafe { doca_task_free(task) };
        }
    }

    /// Stops: progresses until no task is in flight, frees all, progresses until idle.
    pub fn finish(&self, engines: &[&Engine]) {
        stop_with_tasks(&self.context, engines, || self.free_tasks());
    }
}

impl Drop for TestConsumer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_ok(unsafe { doca_comch_consumer_destroy(self.handle) });
        }
    }
}

pub struct TestProducer {
    pub context: Context,
    pub handle: *mut doca_comch_producer,
    tasks: RefCell<Vec<*mut doca_task>>,
}

impl TestProducer {
    /// Creates and starts a producer.
    pub fn run(connection: *mut doca_comch_connection, engine: &Engine) -> Self {
        let mut handle = null_mut();
        unsafe {
            assert_ok(doca_comch_producer_create(connection, &raw mut handle));
            let context = Context::new(doca_comch_producer_as_ctx(handle), engine);
            assert_ok(doca_comch_producer_task_send_set_conf(
                handle,
                Some(produced),
                Some(produced),
                64,
            ));
            assert_ok(context.start());
            Self {
                context,
                handle,
                tasks: RefCell::default(),
            }
        }
    }

    pub fn id(&self) -> u32 {
        let mut id = 0;
        assert_ok(unsafe { doca_comch_producer_get_id(self.handle, &raw mut id) });
        id
    }

    pub fn task(
        &self,
        buf: *mut doca_buf,
        immediate: &[u8],
        consumer: u32,
        data: u64,
    ) -> *mut doca_task {
        let mut task = null_mut();
        unsafe {
            let (bytes, len) = (immediate.as_ptr().cast_mut(), immediate.len() as u32);
            assert_ok(doca_comch_producer_task_send_alloc_init(
                self.handle,
                buf,
                bytes,
                len,
                consumer,
                &raw mut task,
            ));
            assert_eq!(
                doca_comch_producer_task_send_get_buf(task),
                buf.cast_const()
            );
            assert_eq!(
                doca_comch_producer_task_send_get_consumer_id(task),
                consumer
            );
            let task = doca_comch_producer_task_send_as_task(task);
            doca_task_set_user_data(task, doca_data { u64: data });
            self.tasks.borrow_mut().push(task);
            task
        }
    }

    pub fn produced(&self) -> usize {
        self.context
            .log
            .count(|seen| matches!(seen, Seen::Produced(..)))
    }

    pub fn free_tasks(&self) {
        for task in self.tasks.take() {
            unsafe { doca_task_free(task) };
        }
    }

    pub fn finish(&self, engines: &[&Engine]) {
        stop_with_tasks(&self.context, engines, || self.free_tasks());
    }
}

impl Drop for TestProducer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_ok(unsafe { doca_comch_producer_destroy(self.handle) });
        }
    }
}

pub fn submit(task: *mut doca_task) -> u32 {
    assert!(NonNull::new(task).is_some());
    unsafe { doca_task_submit(task) }
}

fn stop_with_tasks(context: &Context, engines: &[&Engine], free: impl FnOnce()) {
    let in_flight = || {
        let mut count = usize::MAX;
        assert_ok(unsafe { doca_ctx_get_num_inflight_tasks(context.ctx, &raw mut count) });
        count
    };
    let code = context.stop();
    assert!(
        code == DOCA_SUCCESS || code == IN_PROGRESS,
        "stop answers {code}"
    );
    progress_until(engines, || in_flight() == 0);
    free();
    progress_until(engines, || context.state() == IDLE);
}

fn states(log: &Log) -> Vec<(u32, u32)> {
    let seen = log.seen.borrow();
    seen.iter()
        .filter_map(|seen| match seen {
            Seen::State(from, to) => Some((*from, *to)),
            _ => None,
        })
        .collect()
}

fn messages(log: &Log) -> Vec<Vec<u8>> {
    let seen = log.seen.borrow();
    seen.iter()
        .filter_map(|seen| match seen {
            Seen::Message(bytes) => Some(bytes.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn messages_go_both_ways_in_order() {
    let pair = Pair::connect();
    let largest = vec![9; 4080];
    for bytes in [&b"one"[..], b"two", &largest] {
        assert_ok(pair.client.send(bytes));
    }
    let server = &pair.server;
    progress_until(&pair.engines(), || messages(&server.context.log).len() == 3);
    assert_eq!(
        messages(&server.context.log),
        [b"one".to_vec(), b"two".to_vec(), largest]
    );
    assert_ok(server.send(server.connection(), b"back"));
    progress_until(&pair.engines(), || {
        pair.client
            .context
            .log
            .has(&Seen::Message(b"back".to_vec()))
    });
    progress_until(&pair.engines(), || {
        pair.client.context.log.count(|seen| *seen == Seen::Sent(0)) == 3
    });
    assert_eq!(
        states(&pair.client.context.log),
        [(IDLE, STARTING), (STARTING, RUNNING)]
    );
    assert_eq!(states(&server.context.log), [(IDLE, RUNNING)]);

    assert_ok(pair.client.context.stop());
    progress_until(&pair.engines(), || {
        server.context.log.has(&Seen::Disconnected(1))
    });
    assert_eq!(
        states(&pair.client.context.log).last(),
        Some(&(RUNNING, IDLE))
    );
    pair.finish();
}

#[test]
fn invalid_messages_are_refused_by_the_schema() {
    let pair = Pair::connect();
    let connection = pair.client.connection();
    let invalid = Error::InvalidValue.code();
    assert_eq!(pair.client.send(&[0; 4081]), invalid);
    assert_eq!(pair.client.send(&[]), invalid);
    assert_eq!(
        pair.server.send(connection, b"x"),
        invalid,
        "the client's handle"
    );
    assert_eq!(pair.server.send(std::ptr::null_mut(), b"x"), invalid);
    pair.finish();
}

#[test]
fn connections_carry_user_data_and_know_their_context() {
    let pair = Pair::connect();
    let (ours, theirs) = (pair.client.connection(), pair.server.connection());
    unsafe {
        assert_eq!(doca_comch_connection_get_user_data(ours).u64, 0);
        assert_ok(doca_comch_connection_set_user_data(
            ours,
            doca_data { u64: 7 },
        ));
        assert_eq!(doca_comch_connection_get_user_data(ours).u64, 7);
        assert_eq!(doca_comch_connection_get_user_data(theirs).u64, 0);
        assert_eq!(doca_comch_client_get_client_ctx(ours), pair.client.handle);
        assert!(doca_comch_server_get_server_ctx(ours).is_null());
        assert_eq!(doca_comch_server_get_server_ctx(theirs), pair.server.handle);
        assert!(doca_comch_client_get_client_ctx(theirs).is_null());
        assert_eq!(
            doca_comch_connection_set_user_data(std::ptr::null_mut(), doca_data { u64: 7 }),
            Error::InvalidValue.code()
        );
    }
    pair.finish();
}

#[test]
fn one_server_has_several_clients() {
    let mut pair = Pair::connect();
    let first = pair.server.connection();
    let engine = Engine::new();
    let second = TestClient::create(&pair.name, &engine);
    assert_eq!(second.context.start(), IN_PROGRESS);
    let engines = [&pair.client_engine, &pair.server_engine, &engine];
    progress_until(&engines, || second.context.state() == RUNNING);
    let log = &pair.server.context.log;
    progress_until(&engines, || {
        log.count(|seen| *seen == Seen::Connected(1)) == 2
    });
    let other = pair.server.connection();
    assert_ne!(first, other);
    assert_ok(pair.server.send(first, b"to the first"));
    assert_ok(pair.server.send(other, b"to the second"));
    progress_until(&engines, || {
        !messages(&second.context.log).is_empty() && !messages(&pair.client.context.log).is_empty()
    });
    assert_eq!(messages(&second.context.log), [b"to the second"]);
    assert_eq!(messages(&pair.client.context.log), [b"to the first"]);
    second.context.stop_fully(&[&engine]);
    progress_until(&engines, || {
        log.count(|seen| *seen == Seen::Disconnected(1)) == 1
    });
    assert_ok(pair.server.send(first, b"still here"));
    progress_until(&engines, || messages(&pair.client.context.log).len() == 2);
    assert_ok(pair.server.send(other, b"gone"));
    let failed = Seen::Sent(Error::NotConnected.code());
    progress_until(&engines, || log.has(&failed));
    drop(second);
    pair.name.clear();
    pair.finish();
}

#[test]
fn a_name_has_one_server_at_a_time() {
    let pair = Pair::connect();
    let engine = Engine::new();
    let second = TestServer::create(&pair.name, &engine);
    assert_eq!(second.context.start(), Error::AlreadyExist.code());
    assert_eq!(second.context.state(), IDLE);
    let other = TestServer::create(&unique_name(), &engine);
    assert_ok(other.context.start());
    assert_ok(other.context.stop());
    let (name, engines) = (pair.name.clone(), pair.engines());
    pair.client.context.stop_fully(&engines);
    pair.server.context.stop_fully(&engines);
    assert_ok(second.context.start());
    assert_ok(second.context.stop());
    // The socket files of the peers have been removed.
    let left = std::fs::read_dir(RuntimeDir::get().unwrap().path()).unwrap();
    let socket = crate::runtime::named_socket("comch", &["0000:3b:00.0", &name]);
    assert!(
        left.map(|entry| entry.unwrap().file_name())
            .all(|file| file != *socket)
    );
}

#[test]
fn a_client_without_a_server_returns_to_idle() {
    let engine = Engine::new();
    let client = TestClient::create(&unique_name(), &engine);
    assert_eq!(client.context.start(), IN_PROGRESS);
    assert_eq!(client.context.state(), STARTING);
    progress_until(&[&engine], || client.context.state() == IDLE);
    let mut connection = std::ptr::null_mut();
    assert_eq!(
        unsafe { doca_comch_client_get_connection(client.handle, &raw mut connection) },
        Error::BadState.code()
    );
    // The client can be started again, and connects to a new server.
    assert_eq!(client.context.start(), IN_PROGRESS);
    progress_until(&[&engine], || client.context.state() == IDLE);
}

#[test]
fn largest_messages_must_be_the_same_on_both_sides() {
    let (name, engine) = (unique_name(), Engine::new());
    let server = TestServer::create(&name, &engine);
    let client = TestClient::create(&name, &engine);
    unsafe {
        let invalid = Error::InvalidValue.code();
        assert_eq!(
            doca_comch_client_set_max_msg_size(client.handle, 0),
            invalid
        );
        assert_eq!(
            doca_comch_client_set_max_msg_size(client.handle, 4081),
            invalid
        );
        assert_ok(doca_comch_client_set_max_msg_size(client.handle, 100));
        assert_ok(doca_comch_client_set_recv_queue_size(client.handle, 10));
        assert_eq!(
            doca_comch_client_set_recv_queue_size(client.handle, 0),
            invalid
        );
    }
    assert_ok(server.context.start());
    assert_eq!(client.context.start(), IN_PROGRESS);
    progress_until(&[&engine], || client.context.state() == IDLE);
    assert!(server.context.log.has(&Seen::Connected(0)));
    assert_ok(server.context.stop());
    unsafe {
        assert_ok(doca_comch_server_set_max_msg_size(server.handle, 100));
        assert_ok(doca_comch_server_set_recv_queue_size(server.handle, 10));
    }
    assert_ok(server.context.start());
    assert_eq!(client.context.start(), IN_PROGRESS);
    progress_until(&[&engine], || client.context.state() == RUNNING);
    assert_eq!(client.send(&[1; 101]), Error::InvalidValue.code());
    assert_ok(client.send(&[1; 100]));
    progress_until(&[&engine], || {
        server.context.log.has(&Seen::Message(vec![1; 100]))
    });
    client.context.stop_fully(&[&engine]);
    server.context.stop_fully(&[&engine]);
}

#[test]
fn submitted_messages_are_delivered_before_a_stop() {
    let pair = Pair::connect();
    // More than fits into the socket's buffer while the server does not read.
    for index in 0..200u8 {
        assert_ok(pair.client.send(&[index; 4000]));
    }
    assert_eq!(pair.client.context.stop(), IN_PROGRESS);
    assert_eq!(pair.client.context.state(), STOPPING);
    let server = &pair.server.context.log;
    progress_until(&pair.engines(), || server.has(&Seen::Disconnected(1)));
    let got = messages(server);
    assert_eq!(got.len(), 200);
    assert!(
        got.iter()
            .enumerate()
            .all(|(index, bytes)| *bytes == vec![index as u8; 4000])
    );
    progress_until(&pair.engines(), || pair.client.context.state() == IDLE);
    assert_eq!(
        pair.client.context.log.count(|seen| *seen == Seen::Sent(0)),
        200
    );
    pair.finish();
}

#[test]
fn a_stop_does_not_wait_for_ever_for_a_peer_that_does_not_read() {
    let pair = Pair::connect();
    for index in 0..200u8 {
        assert_ok(pair.client.send(&[index; 4000]));
    }
    pair.client.context.stop_fully(&[&pair.client_engine]);
    let log = &pair.client.context.log;
    let (sent, failed) = (Seen::Sent(0), Seen::Sent(Error::TimeOut.code()));
    assert!(log.has(&sent) && log.has(&failed));
    assert_eq!(log.count(|seen| matches!(seen, Seen::Sent(_))), 200);
    pair.finish();
}

#[test]
fn stopping_a_server_disconnects_its_clients() {
    let pair = Pair::connect();
    assert_ok(pair.server.send(pair.server.connection(), b"farewell"));
    pair.server.context.stop_fully(&[&pair.server_engine]);
    let client = &pair.client.context;
    progress_until(&[&pair.client_engine], || client.state() == IDLE);
    assert_eq!(messages(&client.log), [b"farewell"], "before the end");
    assert!(states(&client.log).ends_with(&[(RUNNING, STOPPING), (STOPPING, IDLE)]));
    let mut connection = std::ptr::null_mut();
    let code = unsafe { doca_comch_client_get_connection(pair.client.handle, &raw mut connection) };
    assert_eq!(code, Error::BadState.code());
}

#[test]
fn missing_mandatory_parameters_are_reported_at_start() {
    let engine = Engine::new();
    let (_, host) = devices();
    let host = super::super::give::<doca_dev>(host);
    let mut client = std::ptr::null_mut();
    unsafe {
        let null = std::ptr::null_mut();
        assert_eq!(
            doca_comch_client_create(host, c"".as_ptr(), &raw mut client),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_comch_client_create(host, c"x".as_ptr(), null),
            Error::InvalidValue.code()
        );
        assert_ok(doca_comch_client_create(
            host,
            c"x".as_ptr(),
            &raw mut client,
        ));
        let ctx = doca_comch_client_as_ctx(client);
        use super::super::doca_pe::doca_ctx_start;
        use super::super::doca_pe::doca_pe_connect_ctx;
        assert_ok(doca_pe_connect_ctx(engine.0, ctx));
        assert_eq!(doca_ctx_start(ctx), Error::BadState.code());
        assert_eq!(
            doca_comch_client_event_msg_recv_register(client, None),
            Error::InvalidValue.code()
        );
        let size = std::ptr::null_mut();
        assert_eq!(
            doca_comch_cap_get_max_msg_size(std::ptr::null(), size),
            Error::InvalidValue.code()
        );
        assert_ok(doca_comch_client_destroy(client));
        drop(super::super::reclaim(host));
    }
}

#[test]
fn a_client_is_running_before_its_first_message_arrives() {
    let (name, engine) = (unique_name(), Engine::new());
    let server_engine = Engine::new();
    let server = TestServer::create(&name, &server_engine);
    assert_ok(server.context.start());
    let client = TestClient::create(&name, &engine);
    assert_eq!(client.context.start(), IN_PROGRESS);
    progress_until(&[&server_engine], || {
        server.context.log.has(&Seen::Connected(1))
    });
    for text in [b"one", b"two"] {
        assert_ok(server.send(server.connection(), text));
    }
    progress_until(&[&server_engine], || {
        server.context.log.count(|seen| *seen == Seen::Sent(0)) == 2
    });
    // The client's socket contains the answer and both messages now.
    progress_until(&[&engine], || client.context.state() == RUNNING);
    assert_eq!(
        client.context.log.take(),
        [Seen::State(IDLE, STARTING), Seen::State(STARTING, RUNNING)]
    );
    progress_until(&[&engine], || !client.context.log.seen.borrow().is_empty());
    assert_eq!(
        client.context.log.take(),
        [b"one", b"two"].map(|text| Seen::Message(text.to_vec()))
    );
    client.context.stop_fully(&[&engine, &server_engine]);
    server.context.stop_fully(&[&engine, &server_engine]);
}
