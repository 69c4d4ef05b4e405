//! `doca_pe.h`: progress engines and what all tasks have in common.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use doca_abi::{
    DOCA_PE_EVENT_MODE_PROGRESS_ALL, DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE,
    DOCA_TASK_SUBMIT_FLAG_FLUSH, DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS, doca_ctx, doca_data,
    doca_notification_handle_t, doca_pe, doca_pe_event_mode, doca_task, doca_task_batch,
};

use super::doca_ctx::share_ctx;
use super::{
    Handle, Keeper, borrow, check_out, doca_error_t, give_local, guard, guard_with, not_null, put,
    reclaim_local, share_local,
};
use crate::check::{self, Object};
use crate::error::{Error, Result};
use crate::progress::{Arming, Pe, Task, yield_before_retry};

// SAFETY: engines are given out by `give_local`.
unsafe impl Handle for doca_pe {
    type Engine = Pe;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: tasks are given out as pointers to their header.
unsafe impl Handle for doca_task {
    type Engine = Task;
}

/// Creates a progress engine.
///
/// # Safety
/// `pe` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_create(pe: *mut *mut doca_pe) -> doca_error_t {
    guard(|| {
        check_out(pe)?;
        // SAFETY: the caller's promise.
        unsafe { put(pe, give_local(Pe::new()?)) }?;
        check::created(Object::Engine);
        Ok(())
    })
}

/// Destroys an engine; `DOCA_ERROR_IN_USE` while contexts are connected to it.
///
/// # Safety
/// `pe` is NULL or a live engine; on success it is dead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_destroy(pe: *mut doca_pe) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(pe) }?.check_unused()?;
        // SAFETY: the caller's promise.
        unsafe { reclaim_local(pe) }.map(drop)?;
        check::destroyed(Object::Engine);
        Ok(())
    })
}

/// Delivers what has happened. 1 when anything did, 0 when not; then it may have slept up to 50 ms.
///
/// # Safety
/// `pe` is NULL or a live engine, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_progress(pe: *mut doca_pe) -> u8 {
    guard_with(0, || {
        // SAFETY: the caller's promise. The reference of its own keeps the engine through its callbacks.
        unsafe { share_local(pe) }
            .is_ok_and(|pe| pe.progress())
            .into()
    })
}

/// The descriptor that becomes readable when an armed engine has something to do.
///
/// # Safety
/// `pe` is NULL or a live engine; `handle` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_get_notification_handle(
    pe: *const doca_pe,
    handle: *mut doca_notification_handle_t,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(handle, borrow(pe)?.notification_fd().as_raw_fd()) })
}

/// Arms the engine: its descriptor becomes readable at the next event. An event that is there already is delivered
/// now, and the descriptor is readable at once.
///
/// # Safety
/// As [`doca_pe_progress`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_request_notification(pe: *mut doca_pe) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let pe = unsafe { share_local(pe) }?;
        // A ring that is older than the request says nothing about it: programs need not have cleared the last notification.
        pe.wake().drain();
        if pe.arm() != Arming::Armed {
            // Something came while arming. The program waits on the descriptor now: make it readable, so that it comes
            // back and looks at what its callbacks did.
            pe.wake().ring();
        }
        Ok(())
    })
}

/// Takes back the request after the descriptor became readable.
///
/// # Safety
/// As [`doca_pe_progress`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_clear_notification(
    pe: *mut doca_pe,
    _handle: doca_notification_handle_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let pe = unsafe { share_local(pe) }?;
        pe.wake().drain();
        pe.wake_up();
        Ok(())
    })
}

/// Both modes look at all contexts: to look is cheap.
///
/// # Safety
/// `pe` is NULL or a live engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_set_event_mode(
    pe: *mut doca_pe,
    event_mode: doca_pe_event_mode,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(pe) }?;
        match event_mode {
            DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE | DOCA_PE_EVENT_MODE_PROGRESS_ALL => Ok(()),
            other => Err(Error::InvalidValue
                .because(format_args!("{other} is no event mode; expected 0 or 1"))),
        }
    })
}

/// Tasks in flight in all contexts of the engine.
///
/// # Safety
/// As [`doca_pe_progress`]; `num_inflight_tasks` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_get_num_inflight_tasks(
    pe: *const doca_pe,
    num_inflight_tasks: *mut usize,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(num_inflight_tasks, borrow(pe)?.tasks_in_flight()) })
}

/// Puts an idle context under the engine.
///
/// # Safety
/// Both are NULL or live, and used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_connect_ctx(pe: *mut doca_pe, ctx: *mut doca_ctx) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { share_local(pe)?.connect(&share_ctx(ctx)?) })
}

fn answer(submitted: Result<()>) -> Result<()> {
    if submitted == Err(Error::Again) {
        yield_before_retry();
    }
    submitted
}

/// Submits a task. `DOCA_ERROR_AGAIN`: not now; try again.
///
/// # Safety
/// `task` is NULL or a live task; its context is used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_submit(task: *mut doca_task) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| answer(unsafe { borrow(task) }?.submit()))
}

/// As [`doca_task_submit`], after a look at what the task is given: what would make it fail is answered at once.
///
/// # Safety
/// As [`doca_task_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_try_submit(task: *mut doca_task) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| answer(unsafe { borrow(task) }?.try_submit()))
}

/// As [`doca_task_submit`]. A task never waits for others to be submitted, whatever the flags; unknown ones are
/// `DOCA_ERROR_INVALID_VALUE`.
///
/// # Safety
/// As [`doca_task_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_submit_ex(task: *mut doca_task, flags: u32) -> doca_error_t {
    const KNOWN: u32 = DOCA_TASK_SUBMIT_FLAG_FLUSH | DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS;
    guard(|| {
        if flags & !KNOWN != 0 {
            return Err(Error::InvalidValue.because(format_args!(
                "expected flags among {KNOWN:#x}, got {flags:#x}"
            )));
        }
        // SAFETY: the caller's promise.
        answer(unsafe { borrow(task) }?.submit())
    })
}

/// Frees a task. One that is in flight is freed when its completion has been delivered.
///
/// # Safety
/// As [`doca_task_submit`]; the task is dead afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_free(task: *mut doca_task) {
    let _ = guard(|| {
        let task = NonNull::new(task.cast::<Task>()).ok_or(Error::InvalidValue)?;
        // SAFETY: the caller's promise.
        unsafe { Task::free(task) }
    });
}

/// Result of the task's last run.
///
/// # Safety
/// As [`doca_task_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_get_status(task: *const doca_task) -> doca_error_t {
    guard_with(Error::Unexpected.code(), || {
        // SAFETY: the caller's promise.
        unsafe { borrow(task) }.map_or_else(Error::code, Task::status)
    })
}

/// Sets the data that the task's callbacks get.
///
/// # Safety
/// As [`doca_task_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_set_user_data(task: *mut doca_task, user_data: doca_data) {
    let _ = guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(task) }?.set_user_data(user_data);
        Ok(())
    });
}

/// The data that the task's callbacks get; zero for NULL.
///
/// # Safety
/// As [`doca_task_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_get_user_data(task: *const doca_task) -> doca_data {
    let none = doca_data { u64: 0 };
    guard_with(none, || {
        // SAFETY: the caller's promise.
        unsafe { borrow(task) }.map_or(none, Task::user_data)
    })
}

/// The context of the task; NULL for NULL.
///
/// # Safety
/// As [`doca_task_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_get_ctx(task: *const doca_task) -> *mut doca_ctx {
    guard_with(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        unsafe { borrow(task) }.map_or(std::ptr::null_mut(), |task| {
            std::ptr::from_ref(task.ctx()).cast_mut().cast()
        })
    })
}

const NONE: doca_data = doca_data { u64: 0 };

fn unsupported(batch: *const doca_task_batch) -> Result<()> {
    not_null(batch)?;
    Err(Error::NotSupported.because("no context in software has batches of tasks"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_submit(task_batch: *mut doca_task_batch) -> doca_error_t {
    guard(|| unsupported(task_batch))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_try_submit(
    task_batch: *mut doca_task_batch,
) -> doca_error_t {
    guard(|| unsupported(task_batch))
}

/// Does nothing: there is no batch to free.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_free(_task_batch: *mut doca_task_batch) {}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_status(
    task_batch: *const doca_task_batch,
) -> doca_error_t {
    guard(|| unsupported(task_batch))
}

/// Does nothing: there is no batch that could have data.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_set_user_data(
    _task_batch: *mut doca_task_batch,
    _user_data: doca_data,
) {
}

/// Zero.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_user_data(
    _task_batch: *const doca_task_batch,
) -> doca_data {
    NONE
}

/// NULL.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_ctx(
    _task_batch: *const doca_task_batch,
) -> *mut doca_ctx {
    std::ptr::null_mut()
}

/// Zero.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_ctx_user_data(
    _task_batch: *const doca_task_batch,
) -> doca_data {
    NONE
}

/// Zero.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_tasks_num(_task_batch: *mut doca_task_batch) -> u16 {
    0
}

doca_abi::check_definitions!(doca_pe_functions, crate::capi::doca_pe);
