use std::ptr::{self, NonNull};

use doca_sys as sys;

use crate::context::{Context, ContextId, CtxState, NO_DATA, Object, Task, completion_callbacks};
use crate::error::call;
use crate::{Device, Error, ErrorCode, Pe, Result};

/// A sync event that a progress engine works on: its tasks set, add and wait without blocking the thread.
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
///     // Somebody sets the value to 3 meanwhile.
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

// SAFETY: both functions are those of this type.
unsafe impl Object for sys::doca_sync_event {
    type Events = ();
    const DESTROY: &'static str = "doca_sync_event_destroy";

    unsafe fn as_ctx(object: *mut Self) -> *mut sys::doca_ctx {
        // SAFETY: the caller's promise.
        unsafe { sys::doca_sync_event_as_ctx(object) }
    }

    unsafe fn destroy(object: *mut Self) -> sys::doca_error_t {
        // SAFETY: the caller's promise.
        unsafe { sys::doca_sync_event_destroy(object) }
    }
}

/// Kinds of tasks that are configured.
const KINDS: usize = 4;

impl SyncEventContext {
    /// # Safety
    ///
    /// `event` is configured, not started, and nobody else's.
    pub(super) unsafe fn start(
        event: NonNull<sys::doca_sync_event>,
        pe: &Pe,
        tasks: u32,
        device: Device,
    ) -> Result<Self> {
        let max_tasks = (tasks as usize).saturating_mul(KINDS);
        // SAFETY: the caller's promise.
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

    /// Makes a task that sets the value.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BAD_STATE`] when the context is not running, [`ErrorCode::NO_MEMORY`] when it has all its tasks of this kind.
    pub fn set_task(&self, value: u64, token: u64) -> Result<Task> {
        let mut task = ptr::null_mut();
        // SAFETY: the event is live, the result has a place.
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

    /// Makes a task that adds to the value in one step.
    ///
    /// # Errors
    ///
    /// As for [`set_task`](Self::set_task).
    pub fn add_task(&self, value: u64, token: u64) -> Result<Task> {
        const OPERATION: &str = "doca_sync_event_task_notify_add_alloc_init";
        // DOCA wants a place for the old value; it must outlive the task, so the task keeps it.
        let old = std::rc::Rc::new(std::cell::Cell::new(0));
        let mut task = ptr::null_mut();
        // SAFETY: the event is live, the result has a place, and the old value has one that the task's cell keeps.
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

    /// Makes a task that completes when the value, of which only the bits in `mask` count, is `value`.
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

    /// Makes a task that completes when the value, of which only the bits in `mask` count, is another than `value`.
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
        // SAFETY: the caller's promise.
        unsafe { self.context.adopt(operation, task, [None, None], token) }
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BAD_STATE`] when the context is not running.
    pub fn get(&self) -> Result<u64> {
        if self.state() != CtxState::Running {
            return Err(Error::new("doca_sync_event_get", ErrorCode::BAD_STATE));
        }
        let mut value = 0;
        // SAFETY: the event is live and started, the result has a place.
        unsafe { call!(doca_sync_event_get(self.context.object(), &mut value)) }?;
        Ok(value)
    }

    /// Names the context in [`Event::State`](crate::Event::State).
    pub fn id(&self) -> ContextId {
        self.context.id()
    }

    /// State of the context.
    pub fn state(&self) -> CtxState {
        self.context.state()
    }

    /// Flushes the tasks in flight, whose completions come from [`Pe::poll`](crate::Pe::poll), and destroys the event.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`] when it does not become idle. The event stays in memory then, out of reach.
    pub fn stop(self) -> Result<()> {
        self.context.close()
    }
}
