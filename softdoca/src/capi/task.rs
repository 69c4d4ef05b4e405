//! Functions common to all kinds of tasks.

use std::cell::Cell;
use std::ptr::NonNull;

use doca_abi::{doca_buf, doca_data, doca_devinfo, doca_task};

use super::{Handle, borrow, check_out, doca_error_t, guard, not_null, put};
use crate::accelerator::BufSlot;
use crate::buffer::BufHandle;
use crate::error::Result;
use crate::progress::{Ctx, Driver, TaskCallback, TaskOf};

/// Runs `action` on the context behind an instance's handle, and on its driver.
///
/// # Safety
/// `instance` is NULL or a live instance, not used by another thread during the call.
pub(super) unsafe fn with_driver<H: Handle<Engine = Ctx>, D: Driver, T>(
    instance: *const H,
    action: impl FnOnce(&Ctx, &D) -> Result<T>,
) -> Result<T> {
    // SAFETY: guaranteed by the caller.
    let ctx = unsafe { borrow(instance) }?;
    action(ctx, ctx.driver_as::<D>()?)
}

/// The generic task of a task of any kind, which starts with the header.
pub(super) fn as_task<H: Handle<Engine = TaskOf<B>>, B>(task: *mut H) -> *mut doca_task {
    task.cast()
}

/// Converts a buf argument of a task, which may be NULL.
///
/// # Safety
/// `handle` is NULL or a buf that stays valid while the task is in flight.
pub(super) unsafe fn buf(handle: *const doca_buf) -> Option<BufHandle> {
    // SAFETY: guaranteed by the caller.
    (!handle.is_null()).then(|| unsafe { BufHandle::new(&*handle.cast()) })
}

/// The handle of a task's buf.
pub(super) fn buf_handle(buf: Option<BufHandle>) -> *mut doca_buf {
    buf.map_or(std::ptr::null_mut(), |buf| buf.as_ptr().cast())
}

/// Converts a completion callback of one kind of task to the generic type.
pub(super) fn generic<H: Handle>(
    callback: Option<unsafe extern "C" fn(*mut H, doca_data, doca_data)>,
) -> Option<TaskCallback> {
    // SAFETY: the two types differ only in the pointee of the first argument, a thin pointer; the passed task is always
    // of the kind that the callback was set for.
    callback.map(|callback| unsafe {
        std::mem::transmute::<unsafe extern "C" fn(*mut H, doca_data, doca_data), TaskCallback>(
            callback,
        )
    })
}

/// `DOCA_SUCCESS` for every device.
pub(super) fn supported(devinfo: *const doca_devinfo) -> doca_error_t {
    guard(|| not_null(devinfo))
}

/// Writes a limit common to all devices.
///
/// # Safety
/// `out` is NULL or writable. `object`, which has the limit, may be any pointer.
pub(super) unsafe fn put_limit<H, T>(object: *const H, out: *mut T, limit: T) -> doca_error_t {
    guard(|| {
        not_null(object)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(out, limit) }
    })
}

/// Allocates a task and writes it to an out-parameter.
///
/// # Safety
/// `out` is NULL or writable.
pub(super) unsafe fn put_task<H: Handle<Engine = TaskOf<B>>, B>(
    out: *mut *mut H,
    allocate: impl FnOnce() -> Result<NonNull<TaskOf<B>>>,
) -> Result<()> {
    check_out(out)?;
    let task = allocate()?;
    // SAFETY: guaranteed by the caller.
    unsafe { put(out, task.as_ptr().cast::<H>()) }
}

/// A field of a task's body that can be set and read as a C type.
pub(super) trait Slot<C> {
    /// # Safety
    /// If the value is a pointer, it is NULL or stays valid while the task is in flight.
    unsafe fn put(&self, value: C);

    fn value(&self) -> C;
}

impl Slot<*mut doca_buf> for BufSlot {
    unsafe fn put(&self, value: *mut doca_buf) {
        // SAFETY: guaranteed by the caller.
        self.set(unsafe { buf(value) });
    }

    fn value(&self) -> *mut doca_buf {
        buf_handle(self.get())
    }
}

impl Slot<*const doca_buf> for BufSlot {
    unsafe fn put(&self, value: *const doca_buf) {
        // SAFETY: guaranteed by the caller.
        self.set(unsafe { buf(value) });
    }

    fn value(&self) -> *const doca_buf {
        buf_handle(self.get())
    }
}

macro_rules! plain_slots {
    ($($c:ty),*) => { $(
        impl Slot<$c> for Cell<$c> {
            unsafe fn put(&self, value: $c) {
                self.set(value);
            }

            fn value(&self) -> $c {
                self.get()
            }
        }
    )* };
}
plain_slots!(u32, u64, *mut u64);

/// Value returned for a NULL task.
pub(super) trait Nothing {
    const NOTHING: Self;
}

impl<T> Nothing for *mut T {
    const NOTHING: Self = std::ptr::null_mut();
}

impl<T> Nothing for *const T {
    const NOTHING: Self = std::ptr::null();
}

impl Nothing for u8 {
    const NOTHING: Self = 0;
}

impl Nothing for u32 {
    const NOTHING: Self = 0;
}

impl Nothing for u64 {
    const NOTHING: Self = 0;
}

/// Changes the body of a task; no effect on NULL.
///
/// # Safety
/// `task` is NULL or a live task, not used by another thread during the call.
pub(super) unsafe fn set<H: Handle<Engine = TaskOf<B>>, B: 'static>(
    task: *mut H,
    change: impl FnOnce(&B) -> Result<()>,
) {
    // SAFETY: guaranteed by the caller.
    let _ = guard(|| change(&unsafe { borrow(task) }?.body));
}

/// Reads the body of a task.
///
/// # Safety
/// As [`set`].
pub(super) unsafe fn get<H: Handle<Engine = TaskOf<B>>, B: 'static, C: Nothing>(
    task: *const H,
    look: impl FnOnce(&B) -> C,
) -> C {
    // SAFETY: guaranteed by the caller.
    super::guard_with(C::NOTHING, || match unsafe { borrow(task) } {
        Ok(task) => look(&task.body),
        Err(_) => C::NOTHING,
    })
}

/// Defines `is_supported`, `set_conf` and `as_task` of a kind of task. `$pool` maps the driver to the pool.
macro_rules! task_kind {
    (
        $task:ident of $instance:ident, pool $pool:expr;
        $is_supported:ident, $set_conf:ident($callback:ident), $as_task:ident
    ) => {
        /// `DOCA_SUCCESS` for every device.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $is_supported(
            devinfo: *const doca_abi::doca_devinfo,
        ) -> doca_abi::doca_error_t {
            $crate::capi::task::supported(devinfo)
        }

        /// Sets the callbacks and the number of tasks; before the start.
        ///
        /// # Safety
        /// The instance is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_conf(
            instance: *mut $instance,
            completion_cb: doca_abi::$callback,
            error_cb: doca_abi::$callback,
            num_tasks: u32,
        ) -> doca_abi::doca_error_t {
            use $crate::capi::task::{generic, with_driver};
            let (success, failure) = (generic(completion_cb), generic(error_cb));
            // SAFETY: guaranteed by the caller.
            $crate::capi::guard(|| unsafe {
                with_driver(instance, |ctx, driver| {
                    $pool(driver).configure(ctx, success, failure, num_tasks)
                })
            })
        }

        /// The generic task.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $as_task(task: *mut $task) -> *mut doca_abi::doca_task {
            $crate::capi::task::as_task(task)
        }
    };
}
pub(super) use task_kind;

/// Defines setters and getters of fields of a task's body: `set, get
macro_rules! task_slots {
    ($task:ident: $($set:ident, $get:ident => $what:literal: $slot:ident as $c:ty;)+) => { $(
        #[doc = concat!("Sets the task's ", $what, "; not while it is in flight.")]
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call; a pointer is NULL or stays valid
        /// while the task is in flight.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(task: *mut $task, value: $c) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                $crate::capi::task::set(task, |body| {
                    $crate::capi::task::Slot::<$c>::put(&body.$slot, value);
                    Ok(())
                });
            }
        }

        #[doc = concat!("The ", $what, "; 0 or NULL for a NULL task.")]
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(task: *const $task) -> $c {
            // SAFETY: guaranteed by the caller.
            unsafe {
                $crate::capi::task::get(task, |body| {
                    $crate::capi::task::Slot::<$c>::value(&body.$slot)
                })
            }
        }
    )+ };
}
pub(super) use task_slots;

/// Defines the functions of an accelerator's kind of task: [`task_kind!`] and the accessors of its bufs.
macro_rules! task_functions {
    (
        $task:ident of $instance:ident, pool $pool:expr;
        $is_supported:ident, $set_conf:ident($callback:ident), $as_task:ident,
        $set_source:ident, $get_source:ident, $set_destination:ident, $get_destination:ident
    ) => {
        $crate::capi::task::task_kind! {
            $task of $instance, pool $pool;
            $is_supported, $set_conf($callback), $as_task
        }
        $crate::capi::task::task_slots! {
            $task:
            $set_source, $get_source => "source": source as *const doca_abi::doca_buf;
            $set_destination, $get_destination => "destination": destination as *mut doca_abi::doca_buf;
        }
    };
}
pub(super) use task_functions;
