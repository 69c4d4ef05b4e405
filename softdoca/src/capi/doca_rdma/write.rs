//! Write tasks, with and without immediate value.

use doca_abi::{
    doca_be32_t, doca_buf, doca_data, doca_devinfo, doca_rdma, doca_rdma_connection,
    doca_rdma_task_write, doca_rdma_task_write_completion_cb_t, doca_rdma_task_write_imm,
    doca_rdma_task_write_imm_completion_cb_t, doca_task,
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
pub unsafe extern "C" fn doca_rdma_cap_task_write_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supported(devinfo)
}

/// Sets callbacks and number of write tasks; before the start.
///
/// # Safety
/// `rdma` is NULL or a live instance, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_write_set_conf(
    rdma: *mut doca_rdma,
    completion_cb: doca_rdma_task_write_completion_cb_t,
    error_cb: doca_rdma_task_write_completion_cb_t,
    num_tasks: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            with(rdma, |ctx, rdma| {
                let (success, failure) = (generic(completion_cb), generic(error_cb));
                rdma.pools()
                    .write
                    .configure(ctx, success, failure, num_tasks)
            })
        }
    })
}

/// Allocates a task that writes a local buf's data to the tail of a remote buf's data.
///
/// # Safety
/// As [`doca_rdma_task_write_set_conf`]; the bufs are NULL or stay valid while the task is in flight; `task` is NULL or
/// writable. `rdma_connection` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_write_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    src_buf: *const doca_buf,
    dst_buf: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_write,
) -> doca_error_t {
    guard(|| {
        let connection = rdma_connection.cast();
        // SAFETY: the caller's promise.
        let bufs = unsafe { (buf(src_buf), buf(dst_buf)) };
        // SAFETY: the caller's promise.
        unsafe {
            put_task(task, || {
                with(rdma, |ctx, rdma| {
                    rdma.allocate_work(ctx, connection, Operation::Write, bufs, None, user_data)
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
pub unsafe extern "C" fn doca_rdma_task_write_as_task(
    task: *mut doca_rdma_task_write,
) -> *mut doca_task {
    as_task(task)
}

/// Gives the task another local source; not while it is in flight.
///
/// # Safety
/// `task` is NULL or a live task, used by no other thread meanwhile; `src_buf` as in
/// [`doca_rdma_task_write_allocate_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_write_set_src_buf(
    task: *mut doca_rdma_task_write,
    src_buf: *const doca_buf,
) {
    let _ = guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(task)?.body.source.set(buf(src_buf)) };
        Ok(())
    });
}

/// The local source; NULL for NULL.
///
/// # Safety
/// `task` is NULL or a live task, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_write_get_src_buf(
    task: *const doca_rdma_task_write,
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

/// Gives the task another remote destination; not while it is in flight.
///
/// # Safety
/// As [`doca_rdma_task_write_set_src_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_write_set_dst_buf(
    task: *mut doca_rdma_task_write,
    dst_buf: *mut doca_buf,
) {
    let _ = guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(task)?.body.destination.set(buf(dst_buf)) };
        Ok(())
    });
}

/// The remote destination; NULL for NULL.
///
/// # Safety
/// As [`doca_rdma_task_write_get_src_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_write_get_dst_buf(
    task: *const doca_rdma_task_write,
) -> *mut doca_buf {
    guard_with(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        handle(
            unsafe { borrow(task) }
                .ok()
                .and_then(|task| task.body.destination.get()),
        )
    })
}

/// Sets callbacks and number of write-with-immediate tasks; before the start.
///
/// # Safety
/// As [`doca_rdma_task_write_set_conf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_write_imm_set_conf(
    rdma: *mut doca_rdma,
    completion_cb: doca_rdma_task_write_imm_completion_cb_t,
    error_cb: doca_rdma_task_write_imm_completion_cb_t,
    num_tasks: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            with(rdma, |ctx, rdma| {
                let (success, failure) = (generic(completion_cb), generic(error_cb));
                rdma.pools()
                    .write_immediate
                    .configure(ctx, success, failure, num_tasks)
            })
        }
    })
}

/// Allocates a task that writes as [`doca_rdma_task_write_allocate_init`]'s does and then hands the peer an immediate
/// value, which takes one of its receives.
///
/// # Safety
/// As [`doca_rdma_task_write_allocate_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_write_imm_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    src_buf: *const doca_buf,
    dst_buf: *mut doca_buf,
    immediate_data: doca_be32_t,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_write_imm,
) -> doca_error_t {
    guard(|| {
        let connection = rdma_connection.cast();
        // SAFETY: the caller's promise.
        let bufs = unsafe { (buf(src_buf), buf(dst_buf)) };
        let (operation, immediate) = (Operation::Write, Some(immediate_data));
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
pub unsafe extern "C" fn doca_rdma_task_write_imm_as_task(
    task: *mut doca_rdma_task_write_imm,
) -> *mut doca_task {
    as_task(task)
}
