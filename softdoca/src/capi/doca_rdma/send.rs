//! Send tasks, with and without immediate value.

use doca_abi::{
    doca_be32_t, doca_buf, doca_data, doca_devinfo, doca_rdma, doca_rdma_connection,
    doca_rdma_task_send, doca_rdma_task_send_completion_cb_t, doca_rdma_task_send_imm,
    doca_rdma_task_send_imm_completion_cb_t, doca_task,
};

use super::super::{borrow, doca_error_t, guard, guard_with};
use super::instance::with;
use super::{as_task, buf, generic, handle, put_task, supported};
use crate::rdma::Operation;

/// `DOCA_SUCCESS` for every device.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_cap_task_send_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supported(devinfo)
}

/// Sets callbacks and number of send tasks; before the start.
///
/// # Safety
/// `rdma` is NULL or a live instance, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_send_set_conf(
    rdma: *mut doca_rdma,
    completion_cb: doca_rdma_task_send_completion_cb_t,
    error_cb: doca_rdma_task_send_completion_cb_t,
    num_tasks: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            with(rdma, |ctx, rdma| {
                let (success, failure) = (generic(completion_cb), generic(error_cb));
                rdma.pools()
                    .send
                    .configure(ctx, success, failure, num_tasks)
            })
        }
    })
}

/// Allocates a task that sends a buf's data; no buf is an empty message.
///
/// # Safety
/// As [`doca_rdma_task_send_set_conf`]; `src_buf` is NULL or a buf that stays valid while the task is in flight; `task` is
/// NULL or writable. `rdma_connection` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_send_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    src_buf: *const doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_send,
) -> doca_error_t {
    guard(|| {
        let connection = rdma_connection.cast();
        // SAFETY: the caller's promise.
        let bufs = unsafe { (buf(src_buf), None) };
        // SAFETY: the caller's promise.
        unsafe {
            put_task(task, || {
                with(rdma, |ctx, rdma| {
                    rdma.allocate_work(ctx, connection, Operation::Send, bufs, None, user_data)
                })
            })
        }
    })
}

/// The generic task.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_send_as_task(
    task: *mut doca_rdma_task_send,
) -> *mut doca_task {
    as_task(task)
}

/// Gives the task another source; not while it is in flight.
///
/// # Safety
/// `task` is NULL or a live task, used by no other thread meanwhile; `src_buf` as in
/// [`doca_rdma_task_send_allocate_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_send_set_src_buf(
    task: *mut doca_rdma_task_send,
    src_buf: *const doca_buf,
) {
    let _ = guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(task)?.body.source.set(buf(src_buf)) };
        Ok(())
    });
}

/// The source; NULL for NULL.
///
/// # Safety
/// `task` is NULL or a live task, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_send_get_src_buf(
    task: *const doca_rdma_task_send,
) -> *const doca_buf {
    guard_with(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        handle(
            unsafe { borrow(task) }
                .ok()
                .and_then(|task| task.body.source.get()),
        )
    })
}

/// `DOCA_SUCCESS` for every device.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_cap_task_send_imm_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supported(devinfo)
}

/// Sets callbacks and number of send-with-immediate tasks; before the start.
///
/// # Safety
/// As [`doca_rdma_task_send_set_conf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_send_imm_set_conf(
    rdma: *mut doca_rdma,
    completion_cb: doca_rdma_task_send_imm_completion_cb_t,
    error_cb: doca_rdma_task_send_imm_completion_cb_t,
    num_tasks: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            with(rdma, |ctx, rdma| {
                let (success, failure) = (generic(completion_cb), generic(error_cb));
                rdma.pools()
                    .send_immediate
                    .configure(ctx, success, failure, num_tasks)
            })
        }
    })
}

/// Allocates a task that sends a buf's data and an immediate value, whose bytes arrive as they are given.
///
/// # Safety
/// As [`doca_rdma_task_send_allocate_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_send_imm_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    src_buf: *const doca_buf,
    immediate_data: doca_be32_t,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_send_imm,
) -> doca_error_t {
    guard(|| {
        let connection = rdma_connection.cast();
        // SAFETY: the caller's promise.
        let bufs = unsafe { (buf(src_buf), None) };
        let (operation, immediate) = (Operation::Send, Some(immediate_data));
        // SAFETY: the caller's promise.
        unsafe {
            put_task(task, || {
                with(rdma, |ctx, rdma| {
                    rdma.allocate_work(ctx, connection, operation, bufs, immediate, user_data)
                })
            })
        }
    })
}

/// The generic task.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_send_imm_as_task(
    task: *mut doca_rdma_task_send_imm,
) -> *mut doca_task {
    as_task(task)
}
