//! `doca_ctx.h`: contexts.

use std::rc::Rc;

use doca_abi::{
    doca_ctx, doca_ctx_state_changed_callback_t, doca_ctx_states, doca_data, doca_devinfo,
    doca_dpa, doca_gpu,
};

use super::task::put_limit;
use super::{
    Handle, Keeper, borrow, check_out, doca_error_t, give_local, guard, put, reclaim_local,
    share_local,
};
use crate::check::{self, Object};
use crate::error::{Error, Result};
use crate::progress::Ctx;

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
    // SAFETY: guaranteed by the caller; one thread at a time uses a context.
    unsafe { share_local(handle) }
}

/// Destroys a context of any kind: detaches it from its engine and drops the handle's reference.
///
/// # Safety
/// As [`share_ctx`]; on success the handle is invalid.
pub(super) unsafe fn destroy_ctx<H: Handle<Engine = Ctx>>(handle: *mut H) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let ctx = unsafe { share_ctx(handle) }?;
    ctx.disconnect()?;
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

/// Does nothing: tasks start when they are submitted, whatever the flags.
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
unsafe fn unsupported(ctx: *mut doca_ctx, what: &str) -> Result<()> {
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
    _gpu_dev: *mut doca_gpu,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { unsupported(ctx, "GPU data path") })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// As [`doca_ctx_set_datapath_on_gpu`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_ctx_set_datapath_on_dpa(
    ctx: *mut doca_ctx,
    _dpa_dev: *mut doca_dpa,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { unsupported(ctx, "DPA") })
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

doca_abi::check_definitions!(doca_ctx_functions, crate::capi::doca_ctx);
