//! What the functions of all kinds of tasks have in common.

use std::ptr::NonNull;

use doca_abi::{doca_buf, doca_data, doca_devinfo, doca_task};

use super::{Handle, borrow, check_out, doca_error_t, guard, not_null, put};
use crate::buffer::BufHandle;
use crate::error::Result;
use crate::progress::{Ctx, Driver, TaskCallback, TaskOf};

/// Runs `action` on the context behind the handle of an instance, and on its driver.
///
/// # Safety
/// `instance` is NULL or a live instance, used by no other thread meanwhile.
pub(super) unsafe fn with_driver<H: Handle<Engine = Ctx>, D: Driver, T>(
    instance: *const H,
    action: impl FnOnce(&Ctx, &D) -> Result<T>,
) -> Result<T> {
    // SAFETY: the caller's promise.
    let ctx = unsafe { borrow(instance) }?;
    action(ctx, ctx.driver_as::<D>()?)
}

/// The generic task of a task of any kind: its header comes first.
pub(super) fn as_task<H: Handle<Engine = TaskOf<B>>, B>(task: *mut H) -> *mut doca_task {
    task.cast()
}

/// A buf for a task, which may be NULL.
///
/// # Safety
/// `handle` is NULL or a buf that stays valid while the task is in flight.
pub(super) unsafe fn buf(handle: *const doca_buf) -> Option<BufHandle> {
    // SAFETY: the caller's promise.
    (!handle.is_null()).then(|| unsafe { BufHandle::new(&*handle.cast()) })
}

/// The handle of a task's buf.
pub(super) fn buf_handle(buf: Option<BufHandle>) -> *mut doca_buf {
    buf.map_or(std::ptr::null_mut(), |buf| buf.as_ptr().cast())
}

/// A completion callback of one kind of task as one of all kinds.
pub(super) fn generic<H: Handle>(
    callback: Option<unsafe extern "C" fn(*mut H, doca_data, doca_data)>,
) -> Option<TaskCallback> {
    // SAFETY: the two types differ only in what the first argument, a thin pointer, points to; the task that is passed
    // is always of the kind that the callback was given for.
    callback.map(|callback| unsafe {
        std::mem::transmute::<unsafe extern "C" fn(*mut H, doca_data, doca_data), TaskCallback>(
            callback,
        )
    })
}

/// Every device can do everything.
pub(super) fn supported(devinfo: *const doca_devinfo) -> doca_error_t {
    guard(|| not_null(devinfo))
}

/// Writes a limit that all devices share.
///
/// # Safety
/// `out` is NULL or writable. `object`, which has the limit, may be any pointer.
pub(super) unsafe fn put_limit<H, T>(object: *const H, out: *mut T, limit: T) -> doca_error_t {
    guard(|| {
        not_null(object)?;
        // SAFETY: the caller's promise.
        unsafe { put(out, limit) }
    })
}

/// Writes a fresh task to an out-parameter.
///
/// # Safety
/// `out` is NULL or writable.
pub(super) unsafe fn put_task<H: Handle<Engine = TaskOf<B>>, B>(
    out: *mut *mut H,
    allocate: impl FnOnce() -> Result<NonNull<TaskOf<B>>>,
) -> Result<()> {
    check_out(out)?;
    let task = allocate()?;
    // SAFETY: the caller's promise.
    unsafe { put(out, task.as_ptr().cast::<H>()) }
}

/// Defines what every kind of accelerator's task has: `is_supported`, `set_conf`, `as_task`, and access to its bufs.
macro_rules! task_functions {
    (
        $task:ident of $instance:ident, pool $pool:expr;
        $is_supported:ident, $set_conf:ident($callback:ident), $as_task:ident,
        $set_source:ident, $get_source:ident, $set_destination:ident, $get_destination:ident
    ) => {
        /// `DOCA_SUCCESS` for every device.
        ///
        /// # Safety
        /// Safe for any pointer: it is not followed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $is_supported(
            devinfo: *const doca_abi::doca_devinfo,
        ) -> doca_abi::doca_error_t {
            $crate::capi::task::supported(devinfo)
        }

        /// Sets callbacks and number of the tasks; before the start.
        ///
        /// # Safety
        /// The instance is NULL or live, and used by no other thread meanwhile.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_conf(
            instance: *mut $instance,
            completion_cb: doca_abi::$callback,
            error_cb: doca_abi::$callback,
            num_tasks: u32,
        ) -> doca_abi::doca_error_t {
            use $crate::capi::task::{generic, with_driver};
            let (success, failure) = (generic(completion_cb), generic(error_cb));
            // SAFETY: the caller's promise.
            $crate::capi::guard(|| unsafe {
                with_driver(instance, |ctx, driver| {
                    $pool(driver).configure(ctx, success, failure, num_tasks)
                })
            })
        }

        /// The generic task.
        ///
        /// # Safety
        /// Safe for any pointer: it is not followed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $as_task(task: *mut $task) -> *mut doca_abi::doca_task {
            $crate::capi::task::as_task(task)
        }

        /// Gives the task another source; not while it is in flight.
        ///
        /// # Safety
        /// The task is NULL or live, and used by no other thread meanwhile; the buf is NULL or stays valid while the task is
        /// in flight.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_source(task: *mut $task, source: *const doca_abi::doca_buf) {
            // SAFETY: the caller's promise.
            let _ = $crate::capi::guard(|| unsafe {
                $crate::capi::borrow(task)?
                    .body
                    .source
                    .set($crate::capi::task::buf(source));
                Ok(())
            });
        }

        /// The source; NULL for NULL.
        ///
        /// # Safety
        /// The task is NULL or live, and used by no other thread meanwhile.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_source(task: *const $task) -> *const doca_abi::doca_buf {
            $crate::capi::guard_with(std::ptr::null(), || {
                // SAFETY: the caller's promise.
                let task = unsafe { $crate::capi::borrow(task) }.ok();
                $crate::capi::task::buf_handle(task.and_then(|task| task.body.source.get()))
            })
        }

        /// Gives the task another destination; not while it is in flight.
        ///
        /// # Safety
        /// As for the source.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_destination(
            task: *mut $task,
            destination: *mut doca_abi::doca_buf,
        ) {
            // SAFETY: the caller's promise.
            let _ = $crate::capi::guard(|| unsafe {
                $crate::capi::borrow(task)?
                    .body
                    .destination
                    .set($crate::capi::task::buf(destination));
                Ok(())
            });
        }

        /// The destination; NULL for NULL.
        ///
        /// # Safety
        /// As for the source.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_destination(task: *const $task) -> *mut doca_abi::doca_buf {
            $crate::capi::guard_with(std::ptr::null_mut(), || {
                // SAFETY: the caller's promise.
                let task = unsafe { $crate::capi::borrow(task) }.ok();
                $crate::capi::task::buf_handle(task.and_then(|task| task.body.destination.get()))
            })
        }
    };
}
pub(super) use task_functions;
