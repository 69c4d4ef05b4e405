//! `doca_pe.h` and `doca_ctx.h`: progress engines, tasks and contexts.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::rc::Rc;

use doca_abi::{
    DOCA_PE_EVENT_MODE_PROGRESS_ALL, DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE,
    DOCA_TASK_SUBMIT_FLAG_FLUSH, DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS, doca_ctx,
    doca_ctx_state_changed_callback_t, doca_ctx_states, doca_data, doca_devinfo, doca_dpa,
    doca_gpu, doca_notification_handle_t, doca_pe, doca_pe_event_mode, doca_task, doca_task_batch,
};

use super::{
    Handle, Keeper, borrow, check_out, doca_error_t, give_local, guard, guard_with, not_null, put,
    put_limit, reclaim_local, share_local,
};
use crate::check::{self, Object};
use crate::error::{Error, Result};
use crate::progress::{Arming, Ctx, Pe, Task, yield_before_retry};

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
        // SAFETY: guaranteed by the caller.
        unsafe { put(pe, give_local(Pe::new()?)) }?;
        check::created(Object::Engine);
        Ok(())
    })
}

/// Destroys an engine; `DOCA_ERROR_IN_USE` while contexts are connected to it.
///
/// # Safety
/// `pe` is NULL or a live engine; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_destroy(pe: *mut doca_pe) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let engine = unsafe { borrow(pe) }?;
        engine.check_unused()?;
        if !engine.retire() {
            // SAFETY: guaranteed by the caller.
            unsafe { reclaim_local(pe) }.map(drop)?;
        }
        check::destroyed(Object::Engine);
        Ok(())
    })
}

/// Delivers pending events. Returns 1 if there were any, otherwise 0; in the latter case, it may have slept for up to 1
/// ms, or longer if the thread has been idle for more than 5 s; `SOFTDOCA_IDLE` can change that.
///
/// # Safety
/// `pe` is NULL or a live engine, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_progress(pe: *mut doca_pe) -> u8 {
    guard_with(0, || {
        // SAFETY: guaranteed by the caller. An engine that a callback destroys lives until `drop_retired`.
        let Ok(engine) = (unsafe { borrow(pe) }) else {
            return 0;
        };
        let found = engine.progress();
        if engine.is_retired() {
            drop_retired(pe);
        }
        found.into()
    })
}

/// Drops an engine that was destroyed in a callback, after the outermost call of progress.
#[cold]
fn drop_retired(pe: *mut doca_pe) {
    // SAFETY: `doca_pe_destroy` has left the handle's reference to this call, and the program does not use the handle
    // any more.
    let _ = unsafe { reclaim_local(pe) }.map(drop);
}

/// Gets the descriptor that becomes readable when an armed engine has events to process. From now on, the program is
/// expected to wait on it, and calls of progress do not sleep.
///
/// # Safety
/// `pe` is NULL or a live engine; `handle` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_get_notification_handle(
    pe: *const doca_pe,
    handle: *mut doca_notification_handle_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let pe = unsafe { borrow(pe) }?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(handle, pe.notification_fd().as_raw_fd()) }?;
        pe.set_notifies();
        Ok(())
    })
}

/// Arms the engine: its descriptor becomes readable at the next event. A pending event is delivered immediately, in
/// which case the descriptor is readable immediately.
///
/// # Safety
/// As [`doca_pe_progress`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_request_notification(pe: *mut doca_pe) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let pe = unsafe { share_local(pe) }?;
        pe.set_notifies();
        // A wake-up before the request is irrelevant; programs are not required to clear the last notification.
        pe.wake().drain();
        if pe.arm() != Arming::Armed {
            // An event was delivered while arming. The program will now wait on the descriptor, so it is made readable,
            // and the program continues with the results of its callbacks.
            pe.wake().ring();
        }
        Ok(())
    })
}

/// Cancels the request after the descriptor became readable.
///
/// # Safety
/// As [`doca_pe_progress`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_clear_notification(
    pe: *mut doca_pe,
    _handle: doca_notification_handle_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let pe = unsafe { share_local(pe) }?;
        // Drained after disarming: peers ring an armed engine.
        pe.wake_up();
        pe.wake().drain();
        Ok(())
    })
}

/// Accepted without effect: both modes poll all contexts, which is inexpensive.
///
/// # Safety
/// `pe` is NULL or a live engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_set_event_mode(
    pe: *mut doca_pe,
    event_mode: doca_pe_event_mode,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(pe) }?;
        match event_mode {
            DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE | DOCA_PE_EVENT_MODE_PROGRESS_ALL => Ok(()),
            other => Err(Error::InvalidValue.because(format_args!(
                "{other} is not an event mode; expected 0 or 1"
            ))),
        }
    })
}

/// Gets the number of tasks in flight in all contexts of the engine.
///
/// # Safety
/// As [`doca_pe_progress`]; `num_inflight_tasks` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_get_num_inflight_tasks(
    pe: *const doca_pe,
    num_inflight_tasks: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(num_inflight_tasks, borrow(pe)?.tasks_in_flight()) })
}

/// Connects an idle context to the engine.
///
/// # Safety
/// Both are NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_pe_connect_ctx(pe: *mut doca_pe, ctx: *mut doca_ctx) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { share_local(pe)?.connect(&share_ctx(ctx)?) })
}

fn answer(submitted: Result<()>) -> Result<()> {
    if submitted == Err(Error::Again) {
        yield_before_retry();
    }
    submitted
}

/// Submits a task. `DOCA_ERROR_AGAIN`: the queue is full; try again.
///
/// # Safety
/// `task` is NULL or a live task; its context is not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_submit(task: *mut doca_task) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| answer(unsafe { borrow(task) }?.submit()))
}

/// As [`doca_task_submit`], with the arguments checked: most errors with which the task would fail are returned
/// immediately.
///
/// # Safety
/// As [`doca_task_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_try_submit(task: *mut doca_task) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| answer(unsafe { borrow(task) }?.try_submit()))
}

/// As [`doca_task_submit`]. A task never waits for the submission of others, regardless of the flags; unknown flags are
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
        // SAFETY: guaranteed by the caller.
        answer(unsafe { borrow(task) }?.submit())
    })
}

/// Frees a task. A task in flight is freed after its completion was delivered.
///
/// # Safety
/// As [`doca_task_submit`]; the task is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_free(task: *mut doca_task) {
    let _ = guard(|| {
        let task = NonNull::new(task.cast::<Task>()).ok_or(Error::InvalidValue)?;
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(task) }.map_or_else(Error::code, Task::status)
    })
}

/// Sets the user data for the task's callbacks.
///
/// # Safety
/// As [`doca_task_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_set_user_data(task: *mut doca_task, user_data: doca_data) {
    let _ = guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(task) }?.set_user_data(user_data);
        Ok(())
    });
}

/// The user data for the task's callbacks; zero for NULL.
///
/// # Safety
/// As [`doca_task_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_get_user_data(task: *const doca_task) -> doca_data {
    let none = doca_data { u64: 0 };
    guard_with(none, || {
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(task) }.map_or(std::ptr::null_mut(), |task| {
            std::ptr::from_ref(task.ctx()).cast_mut().cast()
        })
    })
}

const NONE: doca_data = doca_data { u64: 0 };

fn batch_unsupported(batch: *const doca_task_batch) -> Result<()> {
    not_null(batch)?;
    Err(Error::NotSupported.because("no context in software has batches of tasks"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: only Ethernet queues, which softdoca does not have, allocate batches.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_submit(task_batch: *mut doca_task_batch) -> doca_error_t {
    guard(|| batch_unsupported(task_batch))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_try_submit(
    task_batch: *mut doca_task_batch,
) -> doca_error_t {
    guard(|| batch_unsupported(task_batch))
}

/// Has no effect, because batches do not exist.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_free(_task_batch: *mut doca_task_batch) {}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_status(
    task_batch: *const doca_task_batch,
) -> doca_error_t {
    guard(|| batch_unsupported(task_batch))
}

/// Has no effect, because batches do not exist.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_set_user_data(
    _task_batch: *mut doca_task_batch,
    _user_data: doca_data,
) {
}

/// Zero.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_user_data(
    _task_batch: *const doca_task_batch,
) -> doca_data {
    NONE
}

/// NULL.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_ctx(
    _task_batch: *const doca_task_batch,
) -> *mut doca_ctx {
    std::ptr::null_mut()
}

/// Zero.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_ctx_user_data(
    _task_batch: *const doca_task_batch,
) -> doca_data {
    NONE
}

/// Zero.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_tasks_num(_task_batch: *mut doca_task_batch) -> u16 {
    0
}

doca_abi::check_definitions!(doca_pe_functions, crate::capi::doca_pe);

// SAFETY: contexts are given out as pointers from `Rc::into_raw(Rc<Ctx>)`.
unsafe impl Handle for doca_ctx {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

/// Creates a handle, of `doca_ctx` or of any kind of context, that owns one reference.
pub(super) fn give_ctx<H: Handle<Engine = Ctx>>(ctx: Rc<Ctx>) -> *mut H {
    check::created(Object::Context);
    give_local(ctx)
}

/// Adds a reference to the context behind a handle.
///
/// # Safety
/// `handle` is NULL or a live handle from [`give_ctx`].
pub(super) unsafe fn share_ctx<H: Handle<Engine = Ctx>>(handle: *const H) -> Result<Rc<Ctx>> {
    // SAFETY: guaranteed by the caller; a context is used by one thread at a time.
    unsafe { share_local(handle) }
}

/// Destroys a context of any kind: detaches it from its engine and drops the handle's reference. `active` is the error
/// of a context that is not idle: the documentation specifies `IN_USE` for some kinds and `BAD_STATE` for others.
///
/// # Safety
/// As [`share_ctx`]; on success the handle is invalid.
pub(super) unsafe fn destroy_ctx<H: Handle<Engine = Ctx>>(
    handle: *mut H,
    active: Error,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let ctx = unsafe { share_ctx(handle) }?;
    ctx.disconnect(active)?;
    // SAFETY: guaranteed by the caller; `ctx` is a second reference.
    unsafe { reclaim_local(handle) }.map(drop)?;
    check::destroyed(Object::Context);
    Ok(())
}

/// Starts the context: `DOCA_SUCCESS`, or `DOCA_ERROR_IN_PROGRESS` if it will be running later.
///
/// # Safety
/// `ctx` is NULL or a live context, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_start(ctx: *mut doca_ctx) -> doca_error_t {
    // SAFETY: guaranteed by the caller. The extra reference keeps the context alive through its callback.
    guard(|| unsafe { share_ctx(ctx) }?.start())
}

/// Stops the context: `DOCA_SUCCESS` if it is idle, `DOCA_ERROR_IN_PROGRESS` while it is stopping.
///
/// # Safety
/// As [`doca_ctx_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_stop(ctx: *mut doca_ctx) -> doca_error_t {
    // SAFETY: as in `doca_ctx_start`.
    guard(|| unsafe { share_ctx(ctx) }?.stop())
}

/// Has no effect: tasks start when they are submitted, regardless of the flags.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_flush_tasks(_ctx: *mut doca_ctx) {}

/// Gets the number of tasks in flight.
///
/// # Safety
/// As [`doca_ctx_start`]; `num_inflight_tasks` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_get_num_inflight_tasks(
    ctx: *const doca_ctx,
    num_inflight_tasks: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(num_inflight_tasks, borrow(ctx)?.tasks_in_flight()) })
}

/// Sets the user data passed to every callback of the context.
///
/// # Safety
/// As [`doca_ctx_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_set_user_data(
    ctx: *mut doca_ctx,
    user_data: doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(ctx) }?.set_user_data(user_data);
        Ok(())
    })
}

/// Gets the user data; zero by default.
///
/// # Safety
/// As [`doca_ctx_start`]; `user_data` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_get_user_data(
    ctx: *const doca_ctx,
    user_data: *mut doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(user_data, borrow(ctx)?.user_data()) })
}

/// Sets the state change callback; only while the context is idle.
///
/// # Safety
/// As [`doca_ctx_start`]; the callback is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_set_state_changed_cb(
    ctx: *mut doca_ctx,
    cb: doca_ctx_state_changed_callback_t,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(ctx) }?.set_state_changed(cb))
}

/// Gets the state of the context.
///
/// # Safety
/// As [`doca_ctx_start`]; `state` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_get_state(
    ctx: *const doca_ctx,
    state: *mut doca_ctx_states,
) -> doca_error_t {
    guard(|| {
        check_out(state)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(state, borrow(ctx)?.state() as doca_ctx_states) }
    })
}

/// Number of completion vectors of every device.
const VECTORS: u32 = 1;

/// # Safety
/// `ctx` is NULL or a live context, not used by another thread during the call.
unsafe fn datapath_unsupported<D>(ctx: *mut doca_ctx, on: *mut D, what: &str) -> Result<()> {
    not_null(on)?;
    // SAFETY: guaranteed by the caller.
    unsafe { borrow(ctx) }?.expect_idle("set its data path")?;
    Err(Error::NotSupported.because(format_args!("softdoca has no {what}")))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// `ctx` is NULL or a live context, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_set_datapath_on_gpu(
    ctx: *mut doca_ctx,
    gpu_dev: *mut doca_gpu,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { datapath_unsupported(ctx, gpu_dev, "GPU data path") })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// As [`doca_ctx_set_datapath_on_gpu`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_set_datapath_on_dpa(
    ctx: *mut doca_ctx,
    dpa_dev: *mut doca_dpa,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { datapath_unsupported(ctx, dpa_dev, "DPA") })
}

/// Gets the number of completion vectors of a device, which is 1.
///
/// # Safety
/// `num_comp_vectors` is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_cap_get_num_completion_vectors(
    devinfo: *const doca_devinfo,
    num_comp_vectors: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, num_comp_vectors, VECTORS) }
}

/// Sets the completion vector of an idle context; only 0 exists.
///
/// # Safety
/// As [`doca_ctx_set_datapath_on_gpu`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_set_completion_vector(
    ctx: *mut doca_ctx,
    comp_vector: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(ctx) }?.expect_idle("set its completion vector")?;
        if comp_vector >= VECTORS {
            return Err(Error::InvalidValue.because(format_args!(
                "expected a completion vector below {VECTORS}, got {comp_vector}"
            )));
        }
        Ok(())
    })
}

doca_abi::check_definitions!(doca_ctx_functions, crate::capi::doca_pe);
