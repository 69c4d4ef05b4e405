//! Test fixtures: memory, bufs, an instance whose callbacks keep a log, child processes, and peers that violate the
//! protocol (written from the documentation, without the implementation's code): the sending side of a ring, and an
//! agent.

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Output};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use doca_abi::{
    DOCA_CTX_STATE_IDLE, doca_buf, doca_ctx, doca_ctx_states, doca_data, doca_dev, doca_devinfo,
    doca_error_t, doca_pe, doca_task,
};
use proptest::prelude::*;

use super::doca_pe::*;
use super::give;
use crate::buffer::{Buf, BufInventory};
use crate::device::{DevInfo, Device};
use crate::error::Error;
use crate::memory::{ExportKind, Mmap, Permissions};
use crate::runtime::{BootId, Key, Listener, RuntimeDir, Socket};

/// Access of importers to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placement {
    /// Whole pages, which importers map.
    Pages,
    /// Not aligned to a page, so that the exporter's agent copies the data.
    Unaligned,
}

pub(super) const PLACEMENTS: [Placement; 2] = [Placement::Pages, Placement::Unaligned];

/// A started map over its own memory, initially zero.
pub(super) struct Memory {
    pub(super) mmap: Arc<Mmap>,
    base: NonNull<u8>,
    layout: Layout,
}

const PAGE: usize = 4096;

impl Memory {
    pub(super) fn new(len: usize, permissions: Permissions, placement: Placement) -> Memory {
        let layout =
            Layout::from_size_align((len + 1).next_multiple_of(PAGE), PAGE).expect("a layout");
        // SAFETY: not of size 0.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).expect("memory");
        let skip = usize::from(placement == Placement::Unaligned);
        let mmap = Mmap::new();
        let addr = base.as_ptr().expose_provenance() + skip;
        mmap.set_memrange(addr as u64, len as u64).expect("a range");
        mmap.set_permissions(permissions).expect("not started");
        mmap.add_device(&device()).expect("a first device");
        mmap.start().expect("the range is mapped");
        Memory {
            mmap: Arc::new(mmap),
            base,
            layout,
        }
    }

    /// Memory used only by this process.
    pub(super) fn local(len: usize) -> Memory {
        Memory::new(len, Permissions::LOCAL_READ_WRITE, Placement::Pages)
    }

    /// Memory shared across PCIe, and an import of it.
    pub(super) fn shared(len: usize, placement: Placement) -> (Memory, Arc<Mmap>) {
        let permissions = Permissions::LOCAL_READ_WRITE | Permissions::PCI_READ_WRITE;
        let memory = Memory::new(len, permissions, placement);
        let import = memory.import(ExportKind::Pci);
        (memory, import)
    }

    pub(super) fn import(&self, kind: ExportKind) -> Arc<Mmap> {
        import(&self.export_for(kind))
    }

    /// Export descriptor for RDMA peers.
    pub(super) fn export(&self) -> Vec<u8> {
        self.export_for(ExportKind::Rdma)
    }

    pub(super) fn export_for(&self, kind: ExportKind) -> Vec<u8> {
        let exported = self.mmap.export(kind, &device());
        exported.expect("permissions for the kind").to_vec()
    }

    pub(super) fn addr(&self) -> u64 {
        self.mmap.memrange().expect("a range").0
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let addr = self.addr() + offset as u64;
        let pointer = self
            .mmap
            .local_ptr(addr, bytes.len() as u64)
            .expect("inside the range");
        // SAFETY: inside the range, which the test owns.
        unsafe { std::ptr::copy(bytes.as_ptr(), pointer, bytes.len()) };
    }

    pub(super) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let (mut bytes, addr) = (vec![0; len], self.addr() + offset as u64);
        // SAFETY: the vector has that many bytes.
        unsafe { self.mmap.read_into(addr, bytes.as_mut_ptr(), len) }.expect("inside the range");
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the pages stay shared, but can still be freed, as programs do.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

pub(super) fn device() -> Arc<Device> {
    Device::open_by_name("mlx5_0").expect("the built-in topology has it")
}

/// Keeps a handle of every device until the process exits, so that a test can close a device that other tests use in
/// other threads.
pub(super) fn keep_devices_open() {
    static OPEN: OnceLock<Vec<Arc<Device>>> = OnceLock::new();
    OPEN.get_or_init(|| {
        let devices = DevInfo::list().expect("a topology");
        let open = |info: &Arc<DevInfo>| {
            let device = Device::open(info);
            device.handle_given();
            device
        };
        devices.iter().map(open).collect()
    });
}

pub(super) fn import(descriptor: &[u8]) -> Arc<Mmap> {
    Arc::new(Mmap::import(descriptor, &device()).expect("a descriptor"))
}

/// Calls `action` with a device's handle.
pub(super) fn with_device<T>(action: impl FnOnce(*mut doca_dev) -> T) -> T {
    let dev = give::<doca_dev>(device());
    let result = action(dev);
    // SAFETY: the reference that `give` put into the handle.
    drop(unsafe { Arc::from_raw(dev.cast::<Device>()) });
    result
}

/// An invalid device, for functions that do not dereference it.
pub(super) fn any_devinfo() -> *const doca_devinfo {
    NonNull::dangling().as_ptr()
}

/// Test data that differs for every offset and seed.
pub(super) fn pattern(seed: u8, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(167) >> 3) as u8 ^ (at >> 8) as u8 ^ seed;
    (0..len).map(byte).collect()
}

/// Bufs of a test, returned on drop.
pub(super) struct Bufs(BufInventory);

impl Bufs {
    pub(super) fn new() -> Bufs {
        let inventory = BufInventory::new(512).expect("memory");
        inventory.start();
        Bufs(inventory)
    }

    /// A buf of `len` bytes without data.
    pub(super) fn room(&self, mmap: &Arc<Mmap>, offset: usize, len: usize) -> &Buf {
        let addr = mmap.memrange().expect("a range").0 + offset as u64;
        self.0.get_by_addr(mmap, addr, len).expect("a buf")
    }

    /// A buf of `len` bytes of data.
    pub(super) fn data(&self, mmap: &Arc<Mmap>, offset: usize, len: usize) -> &Buf {
        let addr = mmap.memrange().expect("a range").0 + offset as u64;
        self.0.get_by_data(mmap, addr, len).expect("a buf")
    }

    /// A list of bufs of the given lengths, without data.
    pub(super) fn room_list(&self, mmap: &Arc<Mmap>, offset: usize, lengths: &[usize]) -> &Buf {
        self.list(lengths, offset, |offset, len| self.room(mmap, offset, len))
    }

    pub(super) fn data_list(&self, mmap: &Arc<Mmap>, offset: usize, lengths: &[usize]) -> &Buf {
        self.list(lengths, offset, |offset, len| self.data(mmap, offset, len))
    }

    fn list<'a>(
        &'a self,
        lengths: &[usize],
        mut offset: usize,
        buf: impl Fn(usize, usize) -> &'a Buf,
    ) -> &'a Buf {
        let first = buf(offset, lengths[0]);
        for (before, len) in lengths.iter().zip(&lengths[1..]) {
            offset += before;
            first.chain(buf(offset, *len)).expect("two lists");
        }
        first
    }
}

/// The C handle of a buf.
pub(super) fn c(buf: &Buf) -> *mut doca_buf {
    std::ptr::from_ref(buf).cast_mut().cast()
}

pub(super) fn ok(code: u32) {
    assert_eq!(code, 0, "{:?}", Error::from_code(code));
}

/// Arguments of the callbacks, and actions that they perform.
#[derive(Default)]
pub(super) struct Log {
    /// User data and status.
    pub(super) completions: RefCell<Vec<(u64, u32)>>,
    pub(super) states: RefCell<Vec<doca_ctx_states>>,
    /// If `true`, completed tasks are freed.
    pub(super) free: Cell<bool>,
    /// Number of times that a completed task is submitted again.
    pub(super) resubmissions: Cell<u32>,
    /// Results of these submissions.
    pub(super) resubmitted: RefCell<Vec<u32>>,
    /// If `true`, the context is stopped when a task completes, after the task was freed.
    pub(super) stop: Cell<bool>,
    /// Results of the stops, and the state after each.
    pub(super) stopped: RefCell<Vec<(u32, doca_ctx_states)>>,
}

unsafe fn log<'a>(ctx_data: doca_data) -> &'a Log {
    // SAFETY: the context data of a test points to its log.
    unsafe { &*ctx_data.ptr.cast::<Log>() }
}

/// The completion callback of all kinds of tasks.
pub(super) unsafe extern "C" fn done<T>(task: *mut T, user_data: doca_data, ctx_data: doca_data) {
    let task: *mut doca_task = task.cast();
    // SAFETY: called with a live task and the data that the test set.
    unsafe {
        let (log, status) = (log(ctx_data), doca_task_get_status(task));
        let ctx = doca_task_get_ctx(task);
        log.completions.borrow_mut().push((user_data.u64, status));
        if log.resubmissions.get() > 0 {
            log.resubmissions.set(log.resubmissions.get() - 1);
            log.resubmitted.borrow_mut().push(doca_task_submit(task));
        } else if log.free.get() {
            doca_task_free(task);
        }
        if log.stop.get() {
            let (answer, mut state) = (doca_ctx_stop(ctx), 0);
            ok(doca_ctx_get_state(ctx, &mut state));
            log.stopped.borrow_mut().push((answer, state));
        }
    }
}

unsafe extern "C" fn state_changed(
    data: doca_data,
    _: *mut doca_ctx,
    _: doca_ctx_states,
    next: doca_ctx_states,
) {
    // SAFETY: as in `done`.
    unsafe { log(data) }.states.borrow_mut().push(next);
}

/// An instance of one kind with its own engine.
pub(super) struct Instance<H> {
    pub(super) handle: *mut H,
    pub(super) log: Box<Log>,
    pub(super) pe: *mut doca_pe,
    destroy: unsafe extern "C" fn(*mut H) -> doca_error_t,
    tasks: RefCell<Vec<*mut doca_task>>,
}

impl<H> Instance<H> {
    /// Creates and starts an instance. `configure` sets its pools.
    pub(super) fn start(
        create: unsafe extern "C" fn(*mut doca_dev, *mut *mut H) -> doca_error_t,
        destroy: unsafe extern "C" fn(*mut H) -> doca_error_t,
        configure: impl FnOnce(*mut H),
    ) -> Instance<H> {
        let (mut pe, mut handle) = (null_mut(), null_mut());
        let log = Box::<Log>::default();
        // SAFETY: live handles and valid out-parameters.
        unsafe {
            ok(doca_pe_create(&mut pe));
            ok(with_device(|dev| create(dev, &mut handle)));
            let data = doca_data {
                ptr: std::ptr::from_ref(&*log).cast_mut().cast(),
            };
            let ctx = handle.cast();
            ok(doca_pe_connect_ctx(pe, ctx));
            ok(doca_ctx_set_user_data(ctx, data));
            ok(doca_ctx_set_state_changed_cb(ctx, Some(state_changed)));
            configure(handle);
            ok(doca_ctx_start(ctx));
        }
        Instance {
            handle,
            log,
            pe,
            destroy,
            tasks: RefCell::default(),
        }
    }

    pub(super) fn ctx(&self) -> *mut doca_ctx {
        self.handle.cast()
    }

    /// Stores a task returned by `allocate`, which is freed on drop.
    pub(super) fn task<T>(&self, allocate: impl FnOnce(*mut *mut T) -> doca_error_t) -> *mut T {
        let mut task = null_mut();
        ok(allocate(&mut task));
        self.tasks.borrow_mut().push(task.cast());
        task
    }

    pub(super) fn submit<T>(&self, task: *mut T) {
        // SAFETY: a live task.
        ok(unsafe { doca_task_submit(task.cast()) });
    }

    /// Calls progress once. Returns `true` if there were events.
    pub(super) fn progress(&self) -> bool {
        // SAFETY: a live handle.
        unsafe { doca_pe_progress(self.pe) != 0 }
    }

    pub(super) fn state(&self) -> doca_ctx_states {
        let mut state = 0;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_ctx_get_state(self.ctx(), &mut state) });
        state
    }

    /// Progresses until `count` tasks have completed in total. Returns them.
    #[track_caller]
    pub(super) fn wait(&self, count: usize) -> Vec<(u64, u32)> {
        self.wait_until("completions", || {
            self.log.completions.borrow().len() >= count
        });
        self.log.completions.borrow().clone()
    }

    /// Submits a task and returns its completion status.
    #[track_caller]
    pub(super) fn run<T>(&self, task: *mut T) -> u32 {
        let before = self.log.completions.borrow().len();
        self.submit(task);
        self.wait(before + 1)[before].1
    }

    #[track_caller]
    pub(super) fn wait_until(&self, what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done() {
            let states = self.log.states.borrow().clone();
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}; states: {states:?}"
            );
            self.progress();
        }
    }

    /// Frees all tasks that the callbacks have not freed.
    pub(super) fn free_tasks(&self) {
        if !self.log.free.get() {
            // SAFETY: live tasks, none in flight.
            self.tasks
                .borrow()
                .iter()
                .for_each(|task| unsafe { doca_task_free(*task) });
        }
        self.tasks.borrow_mut().clear();
    }
}

impl<H> Drop for Instance<H> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: live handles, not used afterwards.
        unsafe {
            doca_ctx_stop(self.ctx());
            let mut in_flight = 1;
            while in_flight != 0 {
                self.progress();
                ok(doca_ctx_get_num_inflight_tasks(self.ctx(), &mut in_flight));
            }
            self.free_tasks();
            self.wait_until("the idle state", || self.state() == DOCA_CTX_STATE_IDLE);
            ok((self.destroy)(self.handle));
            ok(doca_pe_destroy(self.pe));
        }
    }
}

/// Runs one test function of this program in a separate process, with additional environment variables. `test` is the
/// function's path in the test harness.
pub(crate) fn child(test: &str, environment: &[(&str, &str)]) -> Output {
    let this = std::env::current_exe().expect("a test program");
    Command::new(this)
        .args(["--exact", "--nocapture", test])
        .envs(environment.iter().copied())
        .output()
        .expect("a process")
}

pub(crate) const IS_INLINE: u32 = 1 << 23;
pub(crate) const HAS_MORE: u32 = 1 << 30;
pub(crate) const HAS_IMMEDIATE: u32 = 1 << 31;

/// An action of a malicious peer on a ring.
#[derive(Debug, Clone)]
pub(crate) enum RingStep {
    /// Writes a descriptor and 56 bytes to the next slot.
    Fragment { descriptor: u32, byte: u8 },
    /// Overwrites 8 bytes of the ring's header or slots.
    Word { at: u16, value: u64 },
    /// Marks its endpoint as closed.
    Close,
}

/// Descriptors of fragments, mostly with valid lengths, because others close the connection immediately.
fn descriptors() -> impl Strategy<Value = u32> {
    let lengths = prop_oneof![
        Just(0_u32),
        1..=64_u32,
        Just(64_u32),
        65..=16_384_u32,
        16_385..=0x7f_ffff_u32
    ];
    let immediates = prop_oneof![
        4 => Just(None),
        2 => Just(Some(4)),
        2 => Just(Some(8)),
        2 => (0..=63_u32).prop_map(Some),
    ];
    let sound =
        (lengths, immediates, any::<bool>(), any::<bool>()).prop_map(|(len, imm, inline, more)| {
            let flag = |set: bool, bit: u32| if set { bit } else { 0 };
            let immediate = imm.map_or(0, |len| len << 24 | HAS_IMMEDIATE);
            // A slot holds 64 bytes, immediate data included.
            let inline = inline && len + imm.unwrap_or(0) <= 64;
            len | immediate | flag(inline, IS_INLINE) | flag(more, HAS_MORE)
        });
    prop_oneof![9 => sound, 1 => any::<u32>()]
}

pub(crate) fn ring_step() -> impl Strategy<Value = RingStep> {
    prop_oneof![
        12 => (descriptors(), any::<u8>())
            .prop_map(|(descriptor, byte)| RingStep::Fragment { descriptor, byte }),
        1 => (0..600_u16, any::<u64>()).prop_map(|(at, value)| RingStep::Word { at, value }),
        1 => Just(RingStep::Close),
    ]
}

/// The sending side of a ring with another receiver.
pub(crate) struct RawRing {
    pub(crate) fd: OwnedFd,
    pub(crate) slots: u64,
    position: u64,
}

impl RawRing {
    pub(crate) fn new(fd: OwnedFd) -> RawRing {
        let mut slots = [0; 8];
        rustix::io::pread(&fd, &mut slots, 8).expect("a readable ring");
        RawRing {
            fd,
            slots: u64::from_ne_bytes(slots),
            position: 0,
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        rustix::io::pwrite(&self.fd, bytes, at).expect("a writable ring");
    }

    pub(crate) fn fragment(&mut self, descriptor: u32, byte: u8) {
        let at = 512 + self.position % self.slots * 64;
        let lap = (self.position / self.slots) << 1 | 1;
        self.put(at + 8, &[byte; 56]);
        self.put(at, &(u64::from(descriptor) | lap << 32).to_ne_bytes());
        self.position += 1;
    }

    pub(crate) fn perform(&mut self, step: &RingStep) {
        match step {
            RingStep::Fragment { descriptor, byte } => self.fragment(*descriptor, *byte),
            RingStep::Word { at, value } => self.put(u64::from(*at) * 8, &value.to_ne_bytes()),
            RingStep::Close => self.put(64, &1_u64.to_ne_bytes()),
        }
    }
}

/// A request as received.
pub(crate) struct Asked {
    /// 1 describe, 2 read, 3 write, 4 and 5 atomics, 6 call.
    pub(crate) operation: u16,
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

/// Reply to a request: value, payload, descriptors. `None` sends no reply.
pub(crate) type Answer = Option<(u64, Vec<u8>, Vec<Arc<OwnedFd>>)>;

/// An agent with its own address.
pub(crate) struct ScriptedAgent {
    address: [u8; 32],
    stopping: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ScriptedAgent {
    /// Answers every request on any connection with the reply of `script`.
    pub(crate) fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let boot = BootId::current().expect("a boot id").to_bytes();
        let key = Key::random().expect("a key");
        let name = format!("a-{key}.sock");
        let directory = RuntimeDir::get().expect("a runtime directory");
        let listener = Listener::bind(&directory, &name).expect("a new name");
        let stopping = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicUsize::new(0));
        let (stop, count) = (Arc::clone(&stopping), Arc::clone(&asked));
        let thread = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                while !stop.load(Ordering::Relaxed) {
                    match listener.accept().expect("descriptors") {
                        Some(socket) => {
                            let (script, stop, count) = (&script, &stop, &count);
                            scope.spawn(move || serve(&socket, script, stop, count));
                        }
                        None => std::thread::sleep(Duration::from_millis(1)),
                    }
                }
            });
        });
        let mut address = [0; 32];
        address[..16].copy_from_slice(&boot);
        address[16..].copy_from_slice(&key.to_bytes());
        Self {
            address,
            stopping,
            asked,
            thread: Some(thread),
        }
    }

    /// Number of requests received.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Builds an export descriptor as documented in `memory/export.rs`: `kind` is 1 for PCIe and 2 for RDMA.
    pub(crate) fn descriptor(&self, kind: u8, permissions: u32, addr: u64, len: u64) -> Vec<u8> {
        let mut bytes = b"SOFTDOCA\x01\x00".to_vec();
        bytes.extend([kind, 0]);
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(addr.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(self.address);
        bytes.extend([7; 16]);
        bytes.extend([0; 16]);
        bytes
    }
}

impl Drop for ScriptedAgent {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the script of an agent panicked");
        }
    }
}

fn serve(
    socket: &Socket,
    script: &(impl Fn(&Asked) -> Answer + Sync),
    stop: &AtomicBool,
    count: &AtomicUsize,
) {
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        let Ok(Some(len)) = socket.receive(&mut buffer, &mut Vec::new()) else {
            if socket.is_closed() {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
            continue;
        };
        assert!(len >= 56, "a request has a header");
        count.fetch_add(1, Ordering::Relaxed);
        let word = |at: usize| u64::from_le_bytes(*buffer[at..].first_chunk().expect("8 bytes"));
        let asked = Asked {
            operation: u16::from_le_bytes([buffer[6], buffer[7]]),
            addr: word(24),
            len: word(32),
        };
        let Some((value, payload, fds)) = script(&asked) else {
            continue;
        };
        let mut reply = b"SDrp\0\0\0\0".to_vec();
        reply.extend(value.to_le_bytes());
        reply.extend(payload);
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
        // The client may have stopped waiting.
        let _ = socket.send(&reply, &fds);
    }
}

/// Encodes a segment in the agent's format; `memfd` is the index of its descriptor.
pub(crate) fn segment(addr: u64, len: u64, offset: u64, memfd: Option<u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [addr, len, offset] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(u64::from(memfd.unwrap_or(u32::MAX)).to_le_bytes());
    bytes
}
