//! The common part of contexts: Comch, RDMA, sync events and accelerators.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::mem;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::time::Duration;

use doca_sys as sys;

use crate::error::call;
use crate::pe::{Pe, PeInner};
use crate::slots::{BuffersOf, CompletionHandler, SlotTasks, Slots};
use crate::task::{EventQueue, TaskTable};
use crate::{Buf, ContextId, CtxState, Error, ErrorCode, Event, Result, Task};

/// Time limit for a context to become idle and to deliver its control messages before its handle stops waiting.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Queue entries reserved for a context's state changes.
const STATE_EVENTS: usize = 4;

/// A type of C object that is a context.
///
/// # Safety
///
/// `as_ctx` returns the context of a live object, and `destroy` is the function that destroys an idle one.
pub(crate) unsafe trait Object: 'static {
    /// State required by the callbacks of this type in addition to the queue.
    type Events: Events;
    /// Name of the C function behind `destroy`.
    const DESTROY: &'static str;
    /// The context of the object.
    unsafe fn as_ctx(object: *mut Self) -> *mut sys::doca_ctx;
    /// Destroys the object.
    unsafe fn destroy(object: *mut Self) -> sys::doca_error_t;
}

/// Implements [`Object`] for a C type with these two functions of the type, and with [`Events`], which default to `()`.
macro_rules! object {
    ($object:ident, $as_ctx:ident, $destroy:ident) => {
        $crate::context::object!($object, $as_ctx, $destroy, ());
    };
    ($object:ident, $as_ctx:ident, $destroy:ident, $events:ty) => {
        // SAFETY: both functions belong to this type: no other type of the C API can be passed to them.
        unsafe impl $crate::context::Object for ::doca_sys::$object {
            type Events = $events;
            const DESTROY: &'static str = stringify!($destroy);

            unsafe fn as_ctx(object: *mut Self) -> *mut ::doca_sys::doca_ctx {
                // SAFETY: guaranteed by the caller.
                unsafe { ::doca_sys::$as_ctx(object) }
            }

            unsafe fn destroy(object: *mut Self) -> ::doca_sys::doca_error_t {
                // SAFETY: guaranteed by the caller.
                unsafe { ::doca_sys::$destroy(object) }
            }
        }
    };
}
pub(crate) use object;

/// Defines the methods of all handles whose tasks are created by applications: `$what` is the name of the handle in the
/// documentation, and its field `context` is a [`Context`].
macro_rules! context_methods {
    ($what:literal) => {
        #[doc = concat!("Identifies the ", $what, " in [`Event::State`](crate::Event::State).")]
        pub fn id(&self) -> $crate::ContextId {
            self.context.id()
        }

        #[doc = concat!("State of the ", $what, ".")]
        pub fn state(&self) -> $crate::CtxState {
            self.context.state()
        }

        /// Number of tasks in flight.
        pub fn in_flight(&self) -> usize {
            self.context.in_flight()
        }
    };
}
pub(crate) use context_methods;

/// Hooks of a type of context, in addition to queueing events.
pub(crate) trait Events: 'static {
    /// Called inside a C callback after a state change.
    fn state_changed(&self, _context: ContextId, _queue: &EventQueue, _next: CtxState) {}
    /// Prevents the object from being stopped while others depend on it.
    fn may_stop(&self, _queue: &EventQueue) -> std::result::Result<(), ErrorCode> {
        Ok(())
    }
    /// Called before the object is destroyed.
    fn closing(&self, _queue: &EventQueue) {}
}

impl Events for () {}

/// Target of a context's user data, for its callbacks.
pub(crate) struct Shared<E> {
    pub(crate) id: ContextId,
    pub(crate) queue: Rc<EventQueue>,
    pub(crate) events: E,
    /// Events that the queue has space for.
    reserved: usize,
}

impl<E> Drop for Shared<E> {
    fn drop(&mut self) {
        self.queue.remove_events(self.reserved);
    }
}

/// Slots with tasks of a context, and the number of those tasks.
type SlotTable = RefCell<Vec<(Rc<dyn SlotTasks>, usize)>>;

/// A C object that is a context, from its creation to its destruction.
pub(crate) struct Context<T: Object> {
    object: NonNull<T>,
    pe: Rc<PeInner>,
    shared: Rc<Shared<T::Events>>,
    tasks: Rc<TaskTable>,
    slots: Rc<SlotTable>,
    /// Resources of the object: kept until it is destroyed, or leaked if it cannot be destroyed.
    keep: Cell<Option<Box<dyn Any>>>,
    closed: Cell<bool>,
}

impl<T: Object> Context<T> {
    /// Takes over a new object, connects it to `pe`, and reserves queue entries for the completions of `max_tasks`
    /// tasks. `keep` holds the resources of the object.
    ///
    /// # Safety
    ///
    /// `object` is idle, not connected, and not used elsewhere.
    pub(crate) unsafe fn new(
        object: NonNull<T>,
        pe: &Pe,
        events: T::Events,
        max_tasks: usize,
        keep: impl Any,
    ) -> Result<Self> {
        let pe = Rc::clone(pe.inner());
        let reserved = max_tasks.saturating_add(STATE_EVENTS);
        pe.queue().add_events(reserved);
        let shared = Rc::new(Shared {
            id: ContextId::next(),
            queue: Rc::clone(pe.queue()),
            events,
            reserved,
        });
        let context = Self {
            object,
            pe,
            shared,
            tasks: TaskTable::with_capacity(max_tasks),
            slots: Rc::default(),
            keep: Cell::new(Some(Box::new(keep))),
            closed: Cell::new(false),
        };
        let user_data = sys::doca_data {
            ptr: Rc::as_ptr(&context.shared).cast_mut().cast(),
        };
        // SAFETY: the object is live and idle. The user data stays valid as long as the object: the handle holds an
        // `Rc`, and leaks it if the object cannot be destroyed.
        unsafe {
            call!(doca_pe_connect_ctx(context.pe.as_ptr(), context.as_ctx()))?;
            call!(doca_ctx_set_user_data(context.as_ctx(), user_data))?;
            call!(doca_ctx_set_state_changed_cb(
                context.as_ctx(),
                Some(state_changed::<T::Events>)
            ))?;
        }
        Ok(context)
    }

    pub(crate) fn start(&self) -> Result<()> {
        // SAFETY: the object is live.
        match unsafe { call!(doca_ctx_start(self.as_ctx())) } {
            Err(error) if error.code == ErrorCode::IN_PROGRESS => Ok(()),
            result => result,
        }
    }

    pub(crate) fn object(&self) -> *mut T {
        self.object.as_ptr()
    }

    pub(crate) fn id(&self) -> ContextId {
        self.shared.id
    }

    pub(crate) fn events(&self) -> &T::Events {
        &self.shared.events
    }

    pub(crate) fn queue(&self) -> &Rc<EventQueue> {
        &self.shared.queue
    }

    /// Wraps a task allocated by a C function.
    ///
    /// # Safety
    ///
    /// As for [`TaskTable::adopt`], with this context.
    pub(crate) unsafe fn adopt(
        &self,
        operation: &'static str,
        task: *mut sys::doca_task,
        bufs: [Option<&Buf>; 2],
        token: u64,
    ) -> Result<Task> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.adopt_with(operation, task, bufs, None, token) }
    }

    /// As [`adopt`](Self::adopt), for a task that uses more than bufs.
    ///
    /// # Safety
    ///
    /// As for [`TaskTable::adopt`], with this context.
    pub(crate) unsafe fn adopt_with(
        &self,
        operation: &'static str,
        task: *mut sys::doca_task,
        bufs: [Option<&Buf>; 2],
        keep: Option<Rc<dyn Any>>,
        token: u64,
    ) -> Result<Task> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.tasks
                .adopt(operation, task, self.queue(), bufs, keep, token)
        }
    }

    /// Gives each slot its task with the number `task`.
    ///
    /// # Safety
    ///
    /// `allocate` returns a task for the buffers of a slot, just allocated from this context, whose callbacks are those
    /// of `H`, with the worker of the engine.
    pub(crate) unsafe fn adopt_slots<H: CompletionHandler>(
        &self,
        operation: &'static str,
        slots: &Slots<H::State, H::Buffers>,
        task: usize,
        allocate: impl FnMut(&BuffersOf<H>) -> Result<*mut sys::doca_task>,
    ) -> Result<()> {
        slots.check(operation, self.queue(), task)?;
        // First: tasks are freed when only some can be allocated.
        self.slots.borrow_mut().push((slots.tasks(), task));
        // SAFETY: guaranteed by the caller; `stop_until_idle` frees the tasks.
        unsafe { slots.adopt(operation, task, allocate) }
    }

    pub(crate) fn state(&self) -> CtxState {
        let mut state = sys::DOCA_CTX_STATE_IDLE;
        // SAFETY: the object is live, the out-parameter is valid. Fails only for null.
        let _ = unsafe { sys::doca_ctx_get_state(self.as_ctx(), &mut state) };
        CtxState::from_raw(state)
    }

    /// Number of tasks in flight.
    pub(crate) fn in_flight(&self) -> usize {
        let mut count = 0;
        // SAFETY: the object is live, the out-parameter is valid. Fails only for null.
        let _ = unsafe { sys::doca_ctx_get_num_inflight_tasks(self.as_ctx(), &mut count) };
        count
    }

    fn as_ctx(&self) -> *mut sys::doca_ctx {
        // SAFETY: the object is live until `close` has destroyed it, and not used afterwards.
        unsafe { T::as_ctx(self.object()) }
    }

    /// Stops and destroys the object. If that fails, its resources are leaked, because they may still be in use.
    ///
    /// Inside a completion handler it returns [`ErrorCode::IN_PROGRESS`] and takes effect at the end of the handler's
    /// progress call.
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.replace(true) {
            return Ok(());
        }
        if self.pe.is_handling() {
            let context = Self {
                object: self.object,
                pe: Rc::clone(&self.pe),
                shared: Rc::clone(&self.shared),
                tasks: Rc::clone(&self.tasks),
                slots: Rc::clone(&self.slots),
                keep: Cell::new(self.keep.take()),
                closed: Cell::new(false),
            };
            self.pe.defer(Box::new(move || drop(context)));
            return Err(stopped_later());
        }
        let result = self.stop_and_destroy();
        if result.is_err() {
            mem::forget(Rc::clone(&self.pe));
            mem::forget(Rc::clone(&self.shared));
            mem::forget(Rc::clone(&self.tasks));
            mem::forget(Rc::clone(&self.slots));
            mem::forget(self.keep.take());
        }
        result
    }

    /// Stops the object without destroying it, because dependent objects still use it: [`close`](Self::close) waits for
    /// them.
    ///
    /// Inside a completion handler, behaves as [`close`](Self::close).
    pub(crate) fn halt(self: &Rc<Self>) -> Result<()> {
        if self.pe.is_handling() {
            let context = Rc::clone(self);
            self.pe.defer(Box::new(move || {
                if let Err(error) = context.stop_until_idle() {
                    tracing::error!(%error, context = ?context.id(), "failed to stop a context");
                }
            }));
            return Err(stopped_later());
        }
        self.stop_until_idle()
    }

    /// Fails while other objects depend on this one.
    pub(crate) fn check_unused(&self) -> Result<()> {
        self.events().may_stop(self.queue()).map_err(|code| {
            Error::with_detail(
                "doca_ctx_stop",
                code,
                "consumers or producers of its connections still exist; stop them first",
            )
        })
    }

    fn stop_and_destroy(&self) -> Result<()> {
        self.check_unused()?;
        self.stop_until_idle()?;
        self.events().closing(self.queue());
        // SAFETY: the object is idle, its tasks are freed, and it is not used afterwards.
        crate::error::check(T::DESTROY, unsafe { T::destroy(self.object()) })
    }

    fn begin_stop(&self) -> Result<()> {
        if self.state() == CtxState::Idle {
            return Ok(());
        }
        // SAFETY: the object is live, and no borrow is held that a callback could need.
        match unsafe { call!(doca_ctx_stop(self.as_ctx())) } {
            // `BAD_STATE`: the context is already stopping, for example after its peer has disconnected.
            Err(error) if !matches!(error.code, ErrorCode::IN_PROGRESS | ErrorCode::BAD_STATE) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn stop_until_idle(&self) -> Result<()> {
        // A context becomes idle only if no task is allocated.
        self.free_idle();
        self.begin_stop()?;
        let idle = self.pe.progress_until(STOP_TIMEOUT, || {
            self.free_idle();
            self.state() == CtxState::Idle
        });
        if !idle {
            let (state, in_flight) = (self.state(), self.in_flight());
            let detail = format!(
                "expected the context to become idle within {STOP_TIMEOUT:?}, it is {state:?}, {in_flight} tasks in flight"
            );
            return Err(Error::with_detail(
                "doca_ctx_stop",
                ErrorCode::TIME_OUT,
                detail,
            ));
        }
        self.free_idle();
        Ok(())
    }

    fn free_idle(&self) {
        self.tasks.free_idle();
        for (slots, task) in &*self.slots.borrow() {
            slots.free_idle(*task);
        }
    }
}

fn stopped_later() -> Error {
    Error::with_detail(
        "doca_ctx_stop",
        ErrorCode::IN_PROGRESS,
        "called in a completion handler: the context is stopped when progress returns",
    )
}

impl<T: Object> Drop for Context<T> {
    fn drop(&mut self) {
        if let Err(error) = self.close()
            && error.code != ErrorCode::IN_PROGRESS
        {
            tracing::error!(%error, context = ?self.id(), "failed to stop a context; leaking it with its resources");
        }
    }
}

impl<T: Object> std::fmt::Debug for Context<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Called by DOCA after every state change.
unsafe extern "C" fn state_changed<E: Events>(
    user_data: sys::doca_data,
    _ctx: *mut sys::doca_ctx,
    previous: sys::doca_ctx_states,
    next: sys::doca_ctx_states,
) {
    // SAFETY: `Context::new` set this member.
    let Some(shared) = (unsafe { shared::<E>(user_data) }) else {
        return;
    };
    let (previous, next) = (CtxState::from_raw(previous), CtxState::from_raw(next));
    shared.queue.push(Event::State {
        context: shared.id,
        previous,
        next,
    });
    shared.events.state_changed(shared.id, &shared.queue, next);
}

/// The state to which a context's user data points.
///
/// # Safety
///
/// The user data is that of a live context whose object has these `Events`.
pub(crate) unsafe fn shared<'a, E>(user_data: sys::doca_data) -> Option<&'a Shared<E>> {
    // SAFETY: `Context::new` set the pointer to the `Shared` that lives as long as the object; it is never borrowed mutably.
    unsafe { user_data.ptr.cast::<Shared<E>>().as_ref() }
}

/// The user data of a context; null if it cannot be read.
///
/// # Safety
///
/// `ctx` is null or a live context.
pub(crate) unsafe fn user_data(ctx: *mut sys::doca_ctx) -> sys::doca_data {
    let mut data = sys::doca_data {
        ptr: ptr::null_mut::<c_void>(),
    };
    // SAFETY: guaranteed by the caller; a failure leaves null.
    let _ = unsafe { sys::doca_ctx_get_user_data(ctx, &mut data) };
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_doca() {
        let states = [0, 1, 2, 3, 4].map(CtxState::from_raw);
        assert_eq!(
            states,
            [
                CtxState::Idle,
                CtxState::Starting,
                CtxState::Running,
                CtxState::Stopping,
                CtxState::Idle
            ]
        );
    }
}
