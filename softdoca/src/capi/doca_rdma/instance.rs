//! Instances and their properties.

use doca_abi::{
    doca_ctx, doca_dev, doca_rdma, doca_rdma_connection_disconnection_cb_t,
    doca_rdma_connection_established_cb_t, doca_rdma_connection_failure_cb_t,
    doca_rdma_connection_request_cb_t,
};

use super::super::doca_ctx::{destroy_ctx, give_ctx};
use super::super::{borrow, check_out, doca_error_t, guard, put, share};
use crate::error::Result;
use crate::progress::Ctx;
use crate::rdma::{ConnectionCallbacks, Rdma};

/// Runs `action` on the instance behind a handle.
///
/// # Safety
/// `rdma` is NULL or a live instance, used by no other thread meanwhile.
pub(super) unsafe fn with<T>(
    rdma: *const doca_rdma,
    action: impl FnOnce(&Ctx, &Rdma) -> Result<T>,
) -> Result<T> {
    // SAFETY: the caller's promise.
    let ctx = unsafe { borrow(rdma) }?;
    action(ctx, ctx.driver_as::<Rdma>()?)
}

/// Creates an RDMA instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `rdma` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_create(
    dev: *mut doca_dev,
    rdma: *mut *mut doca_rdma,
) -> doca_error_t {
    guard(|| {
        check_out(rdma)?;
        // SAFETY: the caller's promise.
        unsafe { put(rdma, give_ctx(Rdma::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `rdma` is NULL or a live instance; on success it and its connections are dead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_destroy(rdma: *mut doca_rdma) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { destroy_ctx(rdma) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_as_ctx(rdma: *mut doca_rdma) -> *mut doca_ctx {
    rdma.cast()
}

/// Sets the functions that are called when connections change. The one for requests may be NULL.
///
/// # Safety
/// As [`with`]; the callbacks are NULL or functions of their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_set_connection_state_callbacks(
    rdma: *mut doca_rdma,
    request_cb: doca_rdma_connection_request_cb_t,
    established_cb: doca_rdma_connection_established_cb_t,
    failure_cb: doca_rdma_connection_failure_cb_t,
    disconnect_cb: doca_rdma_connection_disconnection_cb_t,
) -> doca_error_t {
    let callbacks = ConnectionCallbacks {
        request: request_cb,
        established: established_cb,
        failure: failure_cb,
        disconnection: disconnect_cb,
    };
    // SAFETY: the caller's promise.
    guard(|| unsafe { with(rdma, |ctx, rdma| rdma.set_callbacks(ctx, callbacks)) })
}
