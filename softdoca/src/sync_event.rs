//! Sync events: 64-bit values that programs set, add to and wait for, across processes.
//!
//! * [`SyncEvent`] is the driver of an event's context; an event can also be started without a context.
//! * [`Value`] is the number: in a separate page, in memory of the program, or in another process; threads can wait for
//!   it.
//! * [`Work`] is the body of the tasks, which the driver runs.
//! * [`RemoteEvent`] is an event imported from a network peer, for RDMA tasks.
//!
//! # Export blobs
//!
//! ```text
//!    0  8 bytes magic
//!    8  u16 version, u8 kind (1 network, 2 PCIe), 0
//!   12  u32 zero
//!   16  u64 address of the value, in the exporting process
//!   24  export descriptor of the memory of the value
//! ```
//!
//! Integers are big endian.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use doca_abi::doca_data;
use rustix::event::Timespec;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::buffer::Buf;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{ExportKind, Mmap, Permissions};
use crate::progress::{
    Ctx, Driver, Event, Started, Task, TaskOf, TaskPool, Urgency, yield_before_retry,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Sets or adds to the value.
    Publisher = 0,
    /// Waits for the value.
    Subscriber = 1,
}

/// A user of the event.
pub(crate) enum Location {
    /// This process, through a device.
    Cpu(Arc<Device>),
    RemoteNet,
    /// The other side of PCIe.
    RemotePci,
}

/// The driver of an event's context. Operations on the value may come from any thread.
pub(crate) struct SyncEvent {
    setup: Mutex<Setup>,
    /// `Some` while the event is started.
    value: Mutex<Option<Arc<Value>>>,
    pools: Pools,
    running: RefCell<Running>,
}

/// Configuration, and the exports.
#[derive(Default)]
struct Setup {
    /// Indexed by [`Role`]: `true` if the event has a location with this role.
    has: [bool; 2],
    remote_net: bool,
    remote_pci: bool,
    devices: Vec<Arc<Device>>,
    place: Place,
    mode: Mode,
    /// Blobs returned to the program; valid until the event is destroyed.
    exports: Vec<Box<[u8]>>,
}

#[derive(Default)]
enum Place {
    #[default]
    OwnPage,
    Address(u64),
    Map(Arc<Mmap>, u64),
    /// Imported from another process: no configuration.
    Imported(Arc<Value>),
}

/// Use of the event by the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Fresh,
    /// Used as a context, from the first request for its context on.
    Context,
    /// Started without a context.
    Alone,
}

impl SyncEvent {
    fn with(setup: Setup) -> Rc<Ctx> {
        Ctx::new(SyncEvent {
            setup: Mutex::new(setup),
            value: Mutex::default(),
            pools: Pools::default(),
            running: RefCell::default(),
        })
    }

    /// Creates an event as a context.
    pub(crate) fn context() -> Rc<Ctx> {
        SyncEvent::with(Setup::default())
    }

    /// Imports an event from the other side of PCIe.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for malformed bytes, [`Error::NotFound`] if the exporting process has exited.
    pub(crate) fn import(bytes: &[u8], device: &Arc<Device>) -> Result<Rc<Ctx>> {
        let descriptor = decode(Audience::Pci, bytes)?;
        let value = Value::import(descriptor, device)?;
        Ok(SyncEvent::with(Setup {
            place: Place::Imported(Arc::new(value)),
            ..Setup::default()
        }))
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        // Poisoning is harmless: every change is a single assignment.
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Value>>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a started event.
    fn value(&self) -> Result<Arc<Value>> {
        self.slot()
            .clone()
            .ok_or_else(|| Error::BadState.because("expected a started sync event"))
    }

    fn is_started(&self) -> bool {
        self.slot().is_some()
    }

    fn configure(&self, what: &str) -> Result<MutexGuard<'_, Setup>> {
        if self.is_started() {
            return Err(
                Error::BadState.because(format_args!("{what} before the sync event is started"))
            );
        }
        let setup = self.setup();
        if let Place::Imported(_) = setup.place {
            return Err(Error::NotPermitted.because("an imported sync event cannot be configured"));
        }
        Ok(setup)
    }

    /// Adds a location with a role.
    ///
    /// # Errors
    /// [`Error::BadState`] if the event is started, [`Error::NotPermitted`] if it is imported.
    pub(crate) fn add_location(&self, role: Role, location: Location) -> Result<()> {
        let mut setup = self.configure("publishers and subscribers are added")?;
        match location {
            Location::Cpu(device) => {
                if !setup
                    .devices
                    .iter()
                    .any(|known| Arc::ptr_eq(known, &device))
                {
                    setup.devices.push(device);
                }
            }
            Location::RemoteNet => setup.remote_net = true,
            Location::RemotePci => setup.remote_pci = true,
        }
        setup.has[role as usize] = true;
        Ok(())
    }

    /// Sets the address of the value in the program's memory.
    ///
    /// # Errors
    /// As [`SyncEvent::add_location`]; [`Error::InvalidValue`] unless the address is a multiple of 8.
    pub(crate) fn set_address(&self, addr: u64) -> Result<()> {
        let mut setup = self.configure("the address of the value is set")?;
        check_address(addr)?;
        setup.place = Place::Address(addr);
        Ok(())
    }

    /// Uses a buf's data as the value.
    ///
    /// # Errors
    /// As [`SyncEvent::set_address`]; [`Error::NotPermitted`] unless the data has 8 bytes and peers may read, write and
    /// atomically change its memory.
    pub(crate) fn set_buf(&self, buf: &Buf) -> Result<()> {
        let mut setup = self.configure("the buf of the value is set")?;
        if buf.data_len() as u64 != VALUE_SIZE || buf.is_in_list() {
            return Err(Error::NotPermitted.because(format_args!(
                "the buf of a sync event has 8 bytes of data and is in no list, this one has {}",
                buf.data_len()
            )));
        }
        let mmap = Arc::clone(&*buf.mmap()?);
        Value::check_map(&mmap)?;
        check_address(buf.data())?;
        setup.place = Place::Map(mmap, buf.data());
        Ok(())
    }

    /// Marks the event as used through its context. Returns `false` if it was started without one.
    pub(crate) fn become_context(&self) -> bool {
        let mut setup = self.setup();
        if setup.mode == Mode::Fresh {
            setup.mode = Mode::Context;
        }
        setup.mode == Mode::Context
    }

    /// Starts the event without a context.
    ///
    /// # Errors
    /// [`Error::BadState`] if it is already started, is used as a context, or has no publisher or subscriber.
    pub(crate) fn start_alone(&self) -> Result<()> {
        {
            let mut setup = self.setup();
            if setup.mode == Mode::Context {
                return Err(Error::BadState
                    .because("start a sync event that is used as a context with doca_ctx_start"));
            }
            setup.mode = Mode::Alone;
        }
        self.begin()
    }

    /// Stops an event that was started with [`SyncEvent::start_alone`].
    ///
    /// # Errors
    /// [`Error::BadState`] otherwise.
    pub(crate) fn stop_alone(&self) -> Result<()> {
        if self.setup().mode != Mode::Alone || !self.is_started() {
            return Err(
                Error::BadState.because("the sync event was not started by doca_sync_event_start")
            );
        }
        self.end();
        Ok(())
    }

    /// Creates the value.
    fn begin(&self) -> Result<()> {
        if self.is_started() {
            return Err(Error::BadState.because("the sync event is already started"));
        }
        let setup = self.setup();
        let is_imported = matches!(setup.place, Place::Imported(_));
        if !is_imported && setup.has != [true, true] {
            return Err(Error::BadState.because(
                "a sync event needs a publisher and a subscriber (doca_sync_event_add_publisher_location_*, \
                 doca_sync_event_add_subscriber_location_*)",
            ));
        }
        let shared = setup.remote_net || setup.remote_pci;
        let value = match &setup.place {
            Place::OwnPage => Value::new(&setup.devices, shared)?.into(),
            Place::Address(addr) => Value::at(*addr, VALUE_SIZE, &setup.devices, shared)?.into(),
            Place::Map(mmap, addr) => Value::in_map(Arc::clone(mmap), *addr).into(),
            Place::Imported(value) => Arc::clone(value),
        };
        drop(setup);
        *self.slot() = Some(value);
        Ok(())
    }

    fn end(&self) {
        let value = self.slot().take();
        drop(value);
    }

    /// Checks that the event can be destroyed.
    ///
    /// # Errors
    /// [`Error::InUse`] while it is started.
    pub(crate) fn check_stopped(&self) -> Result<()> {
        if self.is_started() {
            return Err(Error::InUse.because("stop the sync event before destroying it"));
        }
        Ok(())
    }

    /// # Errors
    /// [`Error::BadState`] if the event is not started; errors of accessing another process.
    pub(crate) fn get(&self) -> Result<u64> {
        self.value()?.get()
    }

    /// # Errors
    /// As [`SyncEvent::get`].
    pub(crate) fn set(&self, value: u64) -> Result<()> {
        self.value()?.set(value)
    }

    /// Adds to the value. Returns the old value.
    ///
    /// # Errors
    /// As [`SyncEvent::get`].
    pub(crate) fn add(&self, value: u64) -> Result<u64> {
        self.value()?.add(value)
    }

    /// Blocks this thread until the masked value satisfies the condition.
    ///
    /// # Errors
    /// As [`SyncEvent::get`]; [`Error::ConnectionReset`] if the value belongs to another process that has exited.
    pub(crate) fn wait(&self, condition: Condition, mask: u64) -> Result<()> {
        until(&*self.value()?, condition, mask)
    }
}

fn check_address(addr: u64) -> Result<()> {
    if addr == 0 || !addr.is_multiple_of(VALUE_SIZE) {
        return Err(Error::InvalidValue.because(format_args!(
            "expected an address that is a multiple of 8, got {addr:#x}"
        )));
    }
    Ok(())
}

impl SyncEvent {
    /// Allocates a task on the event.
    pub(crate) fn allocate(
        &self,
        ctx: &Ctx,
        work: Work,
        user_data: doca_data,
    ) -> Result<NonNull<TaskOf<Work>>> {
        self.pools.of(work.kind).allocate(ctx, work, user_data)
    }

    /// Removes and returns the first completed task.
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

/// Operation of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Set,
    /// Adds to the value and returns the old value.
    Add,
    /// Completes when the masked value equals the operand.
    WaitEqual,
    /// Completes when the masked value differs from the operand.
    WaitDifferent,
    /// Completes when the masked value is greater than the operand: DOCA 2.5 and 2.6.
    WaitGreater,
}

impl Kind {
    const COUNT: usize = Kind::WaitGreater as usize + 1;
}

/// Body of a task.
pub(crate) struct Work {
    kind: Kind,
    /// Value to set, add or compare with.
    pub(crate) operand: Cell<u64>,
    pub(crate) mask: Cell<u64>,
    /// Destination of the result; may be NULL. The program must keep it valid while the task is in flight.
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

    /// Runs the task; `None` if its condition is not satisfied yet.
    fn run(&self, value: &Value) -> Option<Result<()>> {
        let operand = self.operand.get();
        match self.kind {
            Kind::Get => Some(value.get().map(|value| self.give(value))),
            Kind::Set => Some(value.set(operand)),
            Kind::Add => Some(value.add(operand).map(|old| self.give(old))),
            Kind::WaitEqual => self.look(value, Condition::Equal(operand)),
            Kind::WaitDifferent => self.look(value, Condition::Different(operand)),
            Kind::WaitGreater => self.look(value, Condition::Greater(operand)),
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
            // SAFETY: not NULL, and the program keeps the pointer of a task in flight writable.
            unsafe { out.write(value) };
        }
    }
}

/// One pool for each kind of task.
pub(crate) struct Pools([TaskPool; Kind::COUNT]);

impl Default for Pools {
    fn default() -> Self {
        Self(std::array::from_fn(|_| TaskPool::forbidding_active()))
    }
}

impl Pools {
    pub(crate) fn of(&self, kind: Kind) -> &TaskPool {
        &self.0[kind as usize]
    }
}

/// State of a running context.
#[derive(Default)]
struct Running {
    /// Pending tasks in the order of submission.
    tasks: VecDeque<NonNull<Task>>,
    /// The context is stopping: pending tasks fail.
    flushing: bool,
    /// Wakes the engine to poll the value, because changes of a value cause no wake-up.
    timer: Option<OwnedFd>,
}

/// Maximum sleep of an engine while a task waits for a value.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000,
};
const NEVER: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl Running {
    /// Starts the timer before the engine sleeps.
    fn arm(&self) {
        if !self.tasks.is_empty() {
            self.set_timer(LOOK_AGAIN);
        }
    }

    /// Stops the timer.
    fn disarm(&self) {
        self.set_timer(NEVER);
    }

    fn set_timer(&self, after: Timespec) {
        if let Some(timer) = &self.timer {
            let once = Itimerspec {
                it_interval: NEVER,
                it_value: after,
            };
            // Cannot fail for a valid timer and time. Without it the engine sleeps for its usual milliseconds.
            let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
        }
    }
}

const MAGIC: [u8; 8] = *b"SDSYNCEV";
const VERSION: u16 = 1;
const HEAD: usize = 24;

/// Intended user of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Audience {
    /// Peers, with RDMA tasks: `doca_sync_event_export_to_remote_net`.
    Network = 1,
    /// The other side of PCIe: `doca_sync_event_export_to_remote_pci`.
    Pci = 2,
}

fn encode(audience: Audience, addr: u64, descriptor: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + descriptor.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[audience as u8, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&addr.to_be_bytes());
    bytes.extend_from_slice(descriptor);
    bytes
}

/// Decodes a blob: the value's address and the export descriptor of its memory, both unchecked.
///
/// # Errors
/// [`Error::InvalidValue`] for malformed bytes and for a blob with another audience; [`Error::UnsupportedVersion`].
fn decode(audience: Audience, bytes: &[u8]) -> Result<(u64, &[u8])> {
    let Some((head, descriptor)) = bytes
        .split_first_chunk::<HEAD>()
        .filter(|(head, _)| head[..8] == MAGIC)
    else {
        return Err(Error::InvalidValue.because(format_args!(
            "expected an exported sync event, got {} other bytes",
            bytes.len()
        )));
    };
    let version = u16::from_be_bytes([head[8], head[9]]);
    if version != VERSION {
        return Err(Error::UnsupportedVersion.because(format_args!(
            "the exported sync event has version {version}, expected {VERSION}: run the same softdoca on both sides"
        )));
    }
    let (kind, addr) = head[10..].split_at(6);
    if kind != [audience as u8, 0, 0, 0, 0, 0] {
        return Err(Error::InvalidValue.because(format_args!(
            "expected a sync event that was exported for {audience:?}, this one was not"
        )));
    }
    let addr = addr.try_into().map_or(0, u64::from_be_bytes);
    Ok((addr, descriptor))
}

/// Decodes a blob of either audience and encodes it again.
pub(crate) fn blob_again(bytes: &[u8]) -> Result<Vec<u8>> {
    let of = |audience| {
        decode(audience, bytes).map(|(addr, descriptor)| encode(audience, addr, descriptor))
    };
    of(Audience::Network).or_else(|_| of(Audience::Pci))
}

/// Example blobs for both audiences, of nonexistent memory.
pub(crate) fn example_blobs() -> Vec<Vec<u8>> {
    [Audience::Network, Audience::Pci]
        .map(|audience| encode(audience, 0x1008, b"a descriptor"))
        .into()
}

impl SyncEvent {
    /// Blob from which network peers create a remote event. Valid until the event is destroyed.
    ///
    /// # Errors
    /// [`Error::BadState`] if the event is not started, [`Error::NotPermitted`] if no network peer is a publisher.
    pub(crate) fn export_to_network(&self) -> Result<(*const u8, usize)> {
        if !self.setup().remote_net {
            return Err(Error::NotPermitted.because(
                "network peers need doca_sync_event_add_publisher_location_remote_net before the start",
            ));
        }
        self.export(Audience::Network)
    }

    /// Blob from which the other side of PCIe creates an event. Valid until the event is destroyed.
    ///
    /// # Errors
    /// As [`SyncEvent::export_to_network`]; [`Error::InvalidValue`] for a device that is not a location of the event.
    pub(crate) fn export_to_pci(&self, device: &Arc<Device>) -> Result<(*const u8, usize)> {
        {
            let setup = self.setup();
            if !setup.remote_pci {
                return Err(Error::NotPermitted.because(
                    "the other side of PCIe needs doca_sync_event_add_publisher_location_remote_pci or \
                     doca_sync_event_add_subscriber_location_remote_pci before the start",
                ));
            }
            if !setup.devices.iter().any(|known| Arc::ptr_eq(known, device)) {
                return Err(Error::InvalidValue.because(format_args!(
                    "device {} is no CPU location of the sync event",
                    device.model().pci
                )));
            }
        }
        self.export(Audience::Pci)
    }

    fn export(&self, audience: Audience) -> Result<(*const u8, usize)> {
        let value = self.value()?;
        let mut setup = self.setup();
        // A map of the program has its own devices.
        let descriptor = setup
            .devices
            .iter()
            .map(|device| value.mmap().export(ExportKind::Rdma, device))
            .find(|exported| exported != &Err(Error::NotFound))
            .unwrap_or_else(|| {
                Err(Error::NotPermitted.because(
                    "the sync event has no CPU location through a device that its memory was registered for",
                ))
            })?;
        let blob = encode(audience, value.addr(), &descriptor);
        let exports = &mut setup.exports;
        let place = exports.iter().position(|known| **known == *blob);
        let place = place.unwrap_or_else(|| {
            exports.push(blob.into());
            exports.len() - 1
        });
        let kept = &exports[place];
        Ok((kept.as_ptr(), kept.len()))
    }
}

/// Size of a value in bytes.
const VALUE_SIZE: u64 = size_of::<u64>() as u64;

/// Permissions that the memory of a shared value needs.
const SHARED: Permissions = Permissions::LOCAL_READ_WRITE.union(Permissions::RDMA);

/// A value, in memory that is mapped here or accessed through its exporter.
#[derive(Debug)]
struct Value {
    mmap: Arc<Mmap>,
    addr: u64,
    /// `true` if the map is used only by this value, and is stopped with it.
    is_own: bool,
    _page: Option<Page>,
}

impl Value {
    /// Creates a value in a separate page; initially 0.
    fn new(devices: &[Arc<Device>], shared: bool) -> Result<Value> {
        let page = Page::new()?;
        let (addr, len) = (page.addr(), page.len());
        let mut value = Value::at(addr, len, devices, shared)?;
        value._page = Some(page);
        Ok(value)
    }

    /// Uses memory of the program.
    fn at(addr: u64, len: u64, devices: &[Arc<Device>], shared: bool) -> Result<Value> {
        let mmap = Mmap::new();
        mmap.set_memrange(addr, len)?;
        mmap.set_permissions(match shared {
            true => SHARED,
            false => Permissions::LOCAL_READ_WRITE,
        })?;
        for device in devices {
            mmap.add_device(device)?;
        }
        mmap.start()?;
        Ok(Value {
            mmap: Arc::new(mmap),
            addr,
            is_own: true,
            _page: None,
        })
    }

    /// Uses a map of the program.
    fn in_map(mmap: Arc<Mmap>, addr: u64) -> Value {
        Value {
            mmap,
            addr,
            is_own: false,
            _page: None,
        }
    }

    /// Uses a value exported by another process.
    fn import((addr, descriptor): (u64, &[u8]), device: &Arc<Device>) -> Result<Value> {
        let mmap = Mmap::import(descriptor, device)?;
        if !mmap.contains(addr, VALUE_SIZE) || !addr.is_multiple_of(VALUE_SIZE) {
            return Err(Error::InvalidValue
                .because("the exported sync event has no 8 aligned bytes for its value"));
        }
        Ok(Value {
            mmap: Arc::new(mmap),
            addr,
            is_own: true,
            _page: None,
        })
    }

    /// Checks the permissions of the program's map.
    fn check_map(mmap: &Mmap) -> Result<()> {
        if mmap.permissions().contains(SHARED) {
            return Ok(());
        }
        Err(Error::NotPermitted.because(format_args!(
            "the memory of a sync event needs the permissions {SHARED:?}, the mmap has {:?}",
            mmap.permissions()
        )))
    }

    fn mmap(&self) -> &Mmap {
        &self.mmap
    }

    fn addr(&self) -> u64 {
        self.addr
    }

    fn get(&self) -> Result<u64> {
        self.mmap.load(self.addr)
    }

    fn set(&self, value: u64) -> Result<()> {
        self.mmap.store(self.addr, value)
    }

    /// Adds to the value. Returns the old value.
    fn add(&self, value: u64) -> Result<u64> {
        self.mmap.fetch_add(self.addr, value)
    }

    /// `true` if the process that owns the value has exited, so that the value no longer changes.
    fn is_orphaned(&self) -> bool {
        self.mmap.is_orphaned()
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.is_own {
            // Before the page is unmapped, because this ends copies by peers through the agent.
            self.mmap.withdraw();
        }
    }
}

/// A zeroed page; whole, so that it can be shared with other processes in place.
#[derive(Debug)]
struct Page {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that is accessed only through atomics and raw copies, for the lifetime of the value.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> Result<Page> {
        let len = rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Error::NoMemory)?;
        Ok(Page { base, len })
    }

    fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    fn len(&self) -> u64 {
        self.len as u64
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and not used any more. On failure the page leaks, which is
        // harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Condition on the masked value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Equal(u64),
    Different(u64),
    /// Greater than the operand.
    Greater(u64),
}

impl Condition {
    /// `true` if the value fulfils the condition.
    pub(crate) fn holds(self, value: u64) -> bool {
        match self {
            Condition::Equal(other) => value == other,
            Condition::Different(other) => value != other,
            Condition::Greater(other) => value > other,
        }
    }
}

/// Polls that spin, because a peer on another core responds within a microsecond.
const SPINS: u32 = 64;
/// Polls before the thread sleeps; polls after the spins yield, because the peer may need this core.
const YIELDS: u32 = 400;
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);
/// Number of sleeps between two checks that the owner of the value is still running.
const SLEEPS_TO_DOUBT: u32 = 100;

/// Blocks until the masked value satisfies the condition.
///
/// # Errors
/// [`Error::ConnectionReset`] if the value belongs to another process that has exited; errors of reading the value.
fn until(value: &Value, condition: Condition, mask: u64) -> Result<()> {
    let (mut looks, mut sleeps, mut sleep) = (0_u32, 0_u32, SHORTEST_SLEEP);
    loop {
        if condition.holds(value.get()? & mask) {
            return Ok(());
        }
        looks = looks.saturating_add(1);
        if looks < SPINS {
            std::hint::spin_loop();
        } else if looks < YIELDS {
            // Also sends pending wake-ups, for messages that a callback has sent before it waits.
            yield_before_retry();
        } else {
            std::thread::sleep(sleep);
            sleep = (sleep * 2).min(LONGEST_SLEEP);
            sleeps = sleeps.wrapping_add(1);
            if sleeps.is_multiple_of(SLEEPS_TO_DOUBT) && value.is_orphaned() {
                return Err(
                    Error::ConnectionReset.because("the process that owns the sync event is gone")
                );
            }
        }
    }
}

/// An event exported by a peer. Only RDMA tasks access it.
#[derive(Debug)]
pub(crate) struct RemoteEvent {
    value: Value,
}

impl RemoteEvent {
    /// Creates a remote event from an export blob.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::error::Error::InvalidValue) for malformed bytes,
    /// [`NotFound`](crate::error::Error::NotFound) if the peer has exited.
    pub(crate) fn import(bytes: &[u8], device: &Arc<Device>) -> Result<RemoteEvent> {
        let descriptor = decode(Audience::Network, bytes)?;
        Ok(RemoteEvent {
            value: Value::import(descriptor, device)?,
        })
    }

    pub(crate) fn get(&self) -> Result<u64> {
        self.value.get()
    }

    pub(crate) fn set(&self, value: u64) -> Result<()> {
        self.value.set(value)
    }

    /// Adds to the value. Returns the old value.
    pub(crate) fn add(&self, value: u64) -> Result<u64> {
        self.value.add(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_for_their_audience() {
        let blob = encode(Audience::Network, 0x1008, b"descriptor");
        let decoded = decode(Audience::Network, &blob);
        assert_eq!(decoded, Ok((0x1008, &b"descriptor"[..])));
        assert_eq!(decode(Audience::Pci, &blob), Err(Error::InvalidValue));
        for len in 0..HEAD {
            let cut = decode(Audience::Network, &blob[..len]);
            assert_eq!(cut, Err(Error::InvalidValue), "{len} bytes");
        }
        let changed = |at: usize| {
            let mut blob = blob.clone();
            blob[at] ^= 1;
            decode(Audience::Network, &blob).map(|(addr, _)| addr)
        };
        assert_eq!(changed(0), Err(Error::InvalidValue));
        assert_eq!(changed(9), Err(Error::UnsupportedVersion));
        assert_eq!(changed(10), Err(Error::InvalidValue));
        assert_eq!(changed(13), Err(Error::InvalidValue));
    }

    #[test]
    fn conditions() {
        for (condition, below, same, above) in [
            (Condition::Equal(5), false, true, false),
            (Condition::Different(5), true, false, true),
            (Condition::Greater(5), false, false, true),
        ] {
            assert_eq!(
                [4, 5, 6].map(|value| condition.holds(value)),
                [below, same, above],
                "{condition:?}"
            );
        }
        assert!(!Condition::Greater(u64::MAX).holds(u64::MAX));
    }
}
