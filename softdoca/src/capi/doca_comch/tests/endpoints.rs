//! Consumers and producers that write down what they are told, and their memory.

use std::cell::RefCell;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use doca_abi::*;

use super::super::super::doca_comch_consumer::*;
use super::super::super::doca_comch_producer::*;
use super::super::super::doca_ctx::*;
use super::super::super::doca_pe::*;
use super::super::super::{DOCA_SUCCESS, give, reclaim};
use super::fixture::*;
use crate::buffer::BufInventory;
use crate::memory::{Mmap, Permissions};

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
        // SAFETY: inside, and nobody writes meanwhile.
        unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
    }
}

/// The buf behind a handle.
pub fn buf<'a>(handle: *mut doca_buf) -> &'a crate::buffer::Buf {
    // SAFETY: tests keep their inventories.
    unsafe { &*handle.cast() }
}

/// A consumer.
pub struct TestConsumer {
    pub context: Context,
    pub handle: *mut doca_comch_consumer,
    tasks: RefCell<Vec<*mut doca_task>>,
}

impl TestConsumer {
    /// A consumer, not started.
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

    /// A running consumer.
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

    /// Posts a buf with a task of its own; answers the task.
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

/// A producer.
pub struct TestProducer {
    pub context: Context,
    pub handle: *mut doca_comch_producer,
    tasks: RefCell<Vec<*mut doca_task>>,
}

impl TestProducer {
    /// A running producer.
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
