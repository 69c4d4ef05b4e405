//! Sync events: 64-bit values that programs set, add to and wait for, across processes and machines.

use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;

use doca_sys as sys;

use crate::context::{Context, object};
use crate::error::{call, non_null};
use crate::task::{NO_DATA, completion_callbacks};
use crate::{ContextId, CtxState, Device, Error, ErrorCode, Pe, Result, Task};

/// Locations of a [`SyncEvent`] in addition to the program itself.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct SyncEventBuilder {
    device: Device,
    network_publisher: bool,
    pci_publisher: bool,
    pci_subscriber: bool,
}

impl SyncEventBuilder {
    fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            network_publisher: false,
            pci_publisher: false,
            pci_subscriber: false,
        }
    }

    /// Allows network peers to signal it with RDMA tasks: [`SyncEvent::export_to_network`].
    pub fn network_publisher(mut self) -> Self {
        self.network_publisher = true;
        self
    }

    /// Permits the other side of PCIe to signal the event: [`SyncEvent::export_to_pci`].
    pub fn pci_publisher(mut self) -> Self {
        self.pci_publisher = true;
        self
    }

    /// Permits the other side of PCIe to wait for the event: [`SyncEvent::export_to_pci`].
    pub fn pci_subscriber(mut self) -> Self {
        self.pci_subscriber = true;
        self
    }

    /// Starts the event. Its value is 0.
    ///
    /// # Errors
    ///
    /// The errors of `doca_sync_event_start` and of the functions that create the event.
    pub fn start(self) -> Result<SyncEvent> {
        let event = self.create()?;
        // SAFETY: just created and configured, and not used elsewhere.
        unsafe { SyncEvent::start_raw(event, self.device) }
    }

    /// Starts the event as a context of `pe`, with at most `tasks` tasks of each kind.
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the event.
    pub fn start_on(self, pe: &Pe, tasks: u32) -> Result<SyncEventContext> {
        let event = self.create()?;
        // SAFETY: just created and configured, and not used elsewhere.
        unsafe { SyncEventContext::start(event, pe, tasks, self.device) }
    }

    fn create(&self) -> Result<NonNull<sys::doca_sync_event>> {
        let mut event = ptr::null_mut();
        // SAFETY: the out-parameter is valid.
        unsafe { call!(doca_sync_event_create(&mut event)) }?;
        let object = non_null("doca_sync_event_create", event)?;
        // SAFETY: the event is live and not started, the device is open.
        let configured = unsafe { self.configure(event) };
        if configured.is_err() {
            // SAFETY: not started, and not used elsewhere. Its error is ignored, because the earlier error is reported.
            unsafe { sys::doca_sync_event_destroy(event) };
        }
        configured.map(|()| object)
    }

    /// # Safety
    ///
    /// `event` is live and not started.
    unsafe fn configure(&self, event: *mut sys::doca_sync_event) -> Result<()> {
        let device = self.device.as_ptr();
        // SAFETY: guaranteed by the caller; the device is open.
        unsafe {
            call!(doca_sync_event_add_publisher_location_cpu(event, device))?;
            call!(doca_sync_event_add_subscriber_location_cpu(event, device))?;
            if self.network_publisher {
                call!(doca_sync_event_add_publisher_location_remote_net(event))?;
            }
            if self.pci_publisher {
                call!(doca_sync_event_add_publisher_location_remote_pci(event))?;
            }
            if self.pci_subscriber {
                call!(doca_sync_event_add_subscriber_location_remote_pci(event))?;
            }
        }
        Ok(())
    }
}

/// A sync event on a progress engine: its tasks set, add and wait without blocking the thread.
///
/// ```no_run
/// use doca::{Device, Event, Pe, SyncEvent};
///
/// # fn main() -> doca::Result<()> {
/// let pe = Pe::new()?;
/// let event = SyncEvent::builder(&Device::open("mlx5_0")?).start_on(&pe, 1)?;
/// let wait = event.wait_equal_task(3, u64::MAX, 7)?;
/// wait.submit().expect("a new task of a running context");
/// while wait.is_in_flight() {
///     // In the meantime another thread sets the value to 3.
///     if let Some(Event::Task(completion)) = pe.poll() {
///         assert_eq!(completion.token, 7);
///     }
/// }
/// event.stop()
/// # }
/// ```
#[derive(Debug)]
pub struct SyncEventContext {
    context: Context<sys::doca_sync_event>,
}

object!(
    doca_sync_event,
    doca_sync_event_as_ctx,
    doca_sync_event_destroy
);

/// Number of configured kinds of tasks.
const KINDS: usize = 4;

impl SyncEventContext {
    /// # Safety
    ///
    /// `event` is configured, not started, and not used elsewhere.
    unsafe fn start(
        event: NonNull<sys::doca_sync_event>,
        pe: &Pe,
        tasks: u32,
        device: Device,
    ) -> Result<Self> {
        let max_tasks = (tasks as usize).saturating_mul(KINDS);
        // SAFETY: guaranteed by the caller.
        let context = unsafe { Context::new(event, pe, (), max_tasks, device) }?;
        let event = event.as_ptr();
        macro_rules! configure {
            ($($set_conf:ident)+) => { $({
                let (completed, failed) = completion_callbacks();
                // SAFETY: the event is live and not started; the callbacks have the declared types.
                unsafe { call!($set_conf(event, completed, failed, tasks)) }?;
            })+ };
        }
        configure! {
            doca_sync_event_task_notify_set_set_conf
            doca_sync_event_task_notify_add_set_conf
            doca_sync_event_task_wait_eq_set_conf
            doca_sync_event_task_wait_neq_set_conf
        }
        context.start()?;
        Ok(Self { context })
    }

    /// Creates a task that sets the value.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BAD_STATE`] if the context is not running, [`ErrorCode::NO_MEMORY`] if all its tasks of this kind
    /// exist.
    pub fn set_task(&self, value: u64, token: u64) -> Result<Task> {
        let mut task = ptr::null_mut();
        // SAFETY: the event is live, the out-parameter is valid.
        unsafe {
            call!(doca_sync_event_task_notify_set_alloc_init(
                self.context.object(),
                value,
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_sync_event_task_notify_set_as_doca_task(task);
            self.adopt("doca_sync_event_task_notify_set_alloc_init", task, token)
        }
    }

    /// Creates a task that atomically adds to the value.
    ///
    /// # Errors
    ///
    /// As for [`set_task`](Self::set_task).
    pub fn add_task(&self, value: u64, token: u64) -> Result<Task> {
        const OPERATION: &str = "doca_sync_event_task_notify_add_alloc_init";
        // DOCA writes the old value to it, so the task keeps it alive.
        let old = std::rc::Rc::new(std::cell::Cell::new(0));
        let mut task = ptr::null_mut();
        // SAFETY: the event is live, the out-parameter is valid, and the task's cell keeps the destination of the old
        // value.
        unsafe {
            call!(doca_sync_event_task_notify_add_alloc_init(
                self.context.object(),
                value,
                old.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_sync_event_task_notify_add_as_doca_task(task);
            self.context
                .adopt_with(OPERATION, task, [None, None], Some(old), token)
        }
    }

    /// Creates a task that completes when the bits of the value in `mask` equal `value`.
    ///
    /// # Errors
    ///
    /// As for [`set_task`](Self::set_task).
    pub fn wait_equal_task(&self, value: u64, mask: u64, token: u64) -> Result<Task> {
        let mut task = ptr::null_mut();
        // SAFETY: as in `set_task`.
        unsafe {
            call!(doca_sync_event_task_wait_eq_alloc_init(
                self.context.object(),
                value,
                mask,
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_sync_event_task_wait_eq_as_doca_task(task);
            self.adopt("doca_sync_event_task_wait_eq_alloc_init", task, token)
        }
    }

    /// Creates a task that completes when the bits of the value in `mask` differ from `value`.
    ///
    /// # Errors
    ///
    /// As for [`set_task`](Self::set_task).
    pub fn wait_different_task(&self, value: u64, mask: u64, token: u64) -> Result<Task> {
        let mut task = ptr::null_mut();
        // SAFETY: as in `set_task`.
        unsafe {
            call!(doca_sync_event_task_wait_neq_alloc_init(
                self.context.object(),
                value,
                mask,
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_sync_event_task_wait_neq_as_doca_task(task);
            self.adopt("doca_sync_event_task_wait_neq_alloc_init", task, token)
        }
    }

    /// # Safety
    ///
    /// As for [`Context::adopt`].
    unsafe fn adopt(
        &self,
        operation: &'static str,
        task: *mut sys::doca_task,
        token: u64,
    ) -> Result<Task> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.context.adopt(operation, task, [None, None], token) }
    }

    /// Reads the value.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BAD_STATE`] if the context is not running.
    pub fn get(&self) -> Result<u64> {
        if self.state() != CtxState::Running {
            return Err(Error::new("doca_sync_event_get", ErrorCode::BAD_STATE));
        }
        let mut value = 0;
        // SAFETY: the event is live and started, the out-parameter is valid.
        unsafe { call!(doca_sync_event_get(self.context.object(), &mut value)) }?;
        Ok(value)
    }

    /// Identifies the context in [`Event::State`](crate::Event::State).
    pub fn id(&self) -> ContextId {
        self.context.id()
    }

    /// State of the context.
    pub fn state(&self) -> CtxState {
        self.context.state()
    }

    /// Flushes the tasks in flight, whose completions are returned by [`Pe::poll`](crate::Pe::poll), and destroys the
    /// event.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`] if it does not become idle. The event is then leaked.
    pub fn stop(self) -> Result<()> {
        self.context.close()
    }
}

/// A 64-bit value that this program, and the importers of its exports, can set, add to and wait for.
///
/// ```no_run
/// use doca::{Device, SyncEvent};
///
/// # fn main() -> doca::Result<()> {
/// let event = SyncEvent::builder(&Device::open("mlx5_0")?).network_publisher().start()?;
/// let description = event.export_to_network()?;
/// // A peer imports the description as a `RemoteSyncEvent` and signals it with RDMA tasks.
/// # drop(description);
/// event.wait_greater_than(0, u64::MAX)?;
/// println!("signalled with {}", event.get()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SyncEvent {
    event: NonNull<sys::doca_sync_event>,
    device: Device,
}

impl SyncEvent {
    /// Returns the settings of an event used by the program itself; the builder adds other locations.
    pub fn builder(device: &Device) -> SyncEventBuilder {
        SyncEventBuilder::new(device)
    }

    /// Imports an event from the other side of PCIe, exported with [`export_to_pci`](Self::export_to_pci).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] for malformed bytes; those of `doca_sync_event_create_from_export`.
    pub fn import(device: &Device, description: &[u8]) -> Result<Self> {
        let mut event = ptr::null_mut();
        // SAFETY: the device is open, the description is valid for its length, the out-parameter is valid.
        unsafe {
            call!(doca_sync_event_create_from_export(
                device.as_ptr(),
                description.as_ptr(),
                description.len(),
                &mut event
            ))
        }?;
        let event = non_null("doca_sync_event_create_from_export", event)?;
        // SAFETY: just created, and not used elsewhere; it needs no configuration.
        unsafe { Self::start_raw(event, device.clone()) }
    }

    /// Starts an event and takes ownership of it; destroys it if it cannot be started.
    ///
    /// # Safety
    ///
    /// `event` is configured, not started, and not used elsewhere.
    unsafe fn start_raw(event: NonNull<sys::doca_sync_event>, device: Device) -> Result<Self> {
        // SAFETY: the event is live.
        if let Err(error) = unsafe { call!(doca_sync_event_start(event.as_ptr())) } {
            // SAFETY: not started, and not used again.
            unsafe { sys::doca_sync_event_destroy(event.as_ptr()) };
            return Err(error);
        }
        Ok(Self { event, device })
    }

    fn as_ptr(&self) -> *mut sys::doca_sync_event {
        self.event.as_ptr()
    }

    /// Reads the value.
    ///
    /// # Errors
    ///
    /// The errors of `doca_sync_event_get`, e.g. if the value belongs to another process that has exited.
    pub fn get(&self) -> Result<u64> {
        let mut value = 0;
        // SAFETY: the event is started, the out-parameter is valid.
        unsafe { call!(doca_sync_event_get(self.as_ptr(), &mut value)) }?;
        Ok(value)
    }

    /// Sets the value.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn set(&self, value: u64) -> Result<()> {
        // SAFETY: the event is started.
        unsafe { call!(doca_sync_event_update_set(self.as_ptr(), value)) }
    }

    /// Atomically adds to the value, wrapping around. Returns the old value.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn add(&self, value: u64) -> Result<u64> {
        let mut old = 0;
        // SAFETY: the event is started, the out-parameter is valid.
        unsafe { call!(doca_sync_event_update_add(self.as_ptr(), value, &mut old)) }?;
        Ok(old)
    }

    /// Blocks the thread until the bits of the value in `mask` equal `value`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn wait_equal(&self, value: u64, mask: u64) -> Result<()> {
        // SAFETY: the event is started.
        unsafe { call!(doca_sync_event_wait_eq_yield(self.as_ptr(), value, mask)) }
    }

    /// Blocks the thread until the bits of the value in `mask` differ from `value`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn wait_different(&self, value: u64, mask: u64) -> Result<()> {
        // SAFETY: the event is started.
        unsafe { call!(doca_sync_event_wait_neq_yield(self.as_ptr(), value, mask)) }
    }

    /// Blocks the thread until the bits of the value in `mask`, as a number, are greater than `value`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn wait_greater_than(&self, value: u64, mask: u64) -> Result<()> {
        // SAFETY: the event is started.
        unsafe { call!(doca_sync_event_wait_gt_yield(self.as_ptr(), value, mask)) }
    }

    /// Exports the event to a network peer, which imports it as a [`RemoteSyncEvent`](crate::RemoteSyncEvent). Knowing
    /// the description is sufficient to signal the event.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_PERMITTED`] unless it was started with [`SyncEventBuilder::network_publisher`].
    pub fn export_to_network(&self) -> Result<Vec<u8>> {
        let (mut data, mut len) = (ptr::null(), 0);
        // SAFETY: the event is started, the out-parameters are valid.
        unsafe {
            call!(doca_sync_event_export_to_remote_net(
                self.as_ptr(),
                &mut data,
                &mut len
            ))
        }?;
        // SAFETY: the event owns `len` bytes of description.
        unsafe { copy("doca_sync_event_export_to_remote_net", data, len) }
    }

    /// Exports the event to the other side of PCIe, which [`import`](Self::import)s it. Knowing the description is
    /// sufficient to signal the event.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_PERMITTED`] unless it was started with [`SyncEventBuilder::pci_publisher`] or
    /// [`SyncEventBuilder::pci_subscriber`].
    pub fn export_to_pci(&self) -> Result<Vec<u8>> {
        let (mut data, mut len) = (ptr::null(), 0);
        // SAFETY: the event is started, the device is open, the out-parameters are valid.
        unsafe {
            call!(doca_sync_event_export_to_remote_pci(
                self.as_ptr(),
                self.device.as_ptr(),
                &mut data,
                &mut len
            ))
        }?;
        // SAFETY: the event owns `len` bytes of description.
        unsafe { copy("doca_sync_event_export_to_remote_pci", data, len) }
    }
}

/// # Safety
///
/// `data` is null or valid for reading `len` bytes.
unsafe fn copy(operation: &'static str, data: *const u8, len: usize) -> Result<Vec<u8>> {
    if data.is_null() {
        return Err(Error::new(operation, ErrorCode::UNEXPECTED));
    }
    // SAFETY: not null, and the guarantee of the caller.
    Ok(unsafe { slice::from_raw_parts(data, len) }.to_vec())
}

impl Drop for SyncEvent {
    fn drop(&mut self) {
        // SAFETY: started, and not used again.
        let ended = unsafe {
            call!(doca_sync_event_stop(self.as_ptr()))
                .and_then(|()| call!(doca_sync_event_destroy(self.as_ptr())))
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "failed to destroy a sync event; leaking it");
        }
    }
}

/// An event of a network peer, for RDMA tasks: [`Rdma::event_get_task`](crate::Rdma::event_get_task),
/// [`Rdma::event_set_task`](crate::Rdma::event_set_task) and [`Rdma::event_add_task`](crate::Rdma::event_add_task).
#[derive(Debug, Clone)]
pub struct RemoteSyncEvent {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    event: NonNull<sys::doca_sync_event_remote_net>,
    _device: Device,
}

impl RemoteSyncEvent {
    /// Imports an event exported with the peer's [`SyncEvent::export_to_network`](crate::SyncEvent::export_to_network).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) for malformed bytes; those of
    /// `doca_sync_event_remote_net_create_from_export`.
    pub fn import(device: &Device, description: &[u8]) -> Result<Self> {
        let mut event = ptr::null_mut();
        // SAFETY: the device is open, the description is valid for its length, the out-parameter is valid.
        unsafe {
            call!(doca_sync_event_remote_net_create_from_export(
                device.as_ptr(),
                description.as_ptr(),
                description.len(),
                &mut event
            ))
        }?;
        let inner = Rc::new(Inner {
            event: non_null("doca_sync_event_remote_net_create_from_export", event)?,
            _device: device.clone(),
        });
        Ok(Self { inner })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::doca_sync_event_remote_net {
        self.inner.event.as_ptr()
    }

    /// A reference that a task keeps while it uses the event.
    pub(crate) fn keep(&self) -> Rc<dyn std::any::Any> {
        Rc::clone(&self.inner) as Rc<dyn std::any::Any>
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let event = self.event.as_ptr();
        // SAFETY: every task that uses the event holds a reference to it, so no such task exists.
        if let Err(error) = unsafe { call!(doca_sync_event_remote_net_destroy(event)) } {
            tracing::warn!(%error, "failed to destroy a remote sync event; leaking it");
        }
    }
}
