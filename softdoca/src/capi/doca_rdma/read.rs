//! Read tasks.

use doca_abi::{
    doca_buf, doca_data, doca_devinfo, doca_rdma, doca_rdma_connection, doca_rdma_task_read,
    doca_rdma_task_read_completion_cb_t, doca_task,
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
pub unsafe extern "C" fn doca_rdma_cap_task_read_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supported(devinfo)
}

/// Sets callbacks and number of read tasks; before the start.
///
/// # Safety
/// `rdma` is NULL or a live instance, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_read_set_conf(
    rdma: *mut doca_rdma,
    completion_cb: doca_rdma_task_read_completion_cb_t,
    error_cb: doca_rdma_task_read_completion_cb_t,
    num_tasks: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            with(rdma, |ctx, rdma| {
                let (success, failure) = (generic(completion_cb), generic(error_cb));
                rdma.pools()
                    .read
                    .configure(ctx, success, failure, num_tasks)
            })
        }
    })
}

/// Allocates a task that reads the data of a remote buf to the tail of a local buf's data.
///
/// # Safety
/// As [`doca_rdma_task_read_set_conf`]; the bufs are NULL or stay valid while the task is in flight; `task` is NULL or
/// writable. `rdma_connection` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_read_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    src_buf: *const doca_buf,
    dst_buf: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_read,
) -> doca_error_t {
    guard(|| {
        let connection = rdma_connection.cast();
        // SAFETY: the caller's promise.
        let bufs = unsafe { (buf(src_buf), buf(dst_buf)) };
        // SAFETY: the caller's promise.
        unsafe {
            put_task(task, || {
                with(rdma, |ctx, rdma| {
                    rdma.allocate_work(ctx, connection, Operation::Read, bufs, None, user_data)
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
pub unsafe extern "C" fn doca_rdma_task_read_as_task(
    task: *mut doca_rdma_task_read,
) -> *mut doca_task {
    as_task(task)
}

/// Gives the task another remote source; not while it is in flight.
///
/// # Safety
/// `task` is NULL or a live task, used by no other thread meanwhile; `src_buf` as in
/// [`doca_rdma_task_read_allocate_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_read_set_src_buf(
    task: *mut doca_rdma_task_read,
    src_buf: *const doca_buf,
) {
    let _ = guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(task)?.body.source.set(buf(src_buf)) };
        Ok(())
    });
}

/// The remote source; NULL for NULL.
///
/// # Safety
/// `task` is NULL or a live task, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_read_get_src_buf(
    task: *const doca_rdma_task_read,
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

/// Gives the task another local destination; not while it is in flight.
///
/// # Safety
/// As [`doca_rdma_task_read_set_src_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_read_set_dst_buf(
    task: *mut doca_rdma_task_read,
    dst_buf: *mut doca_buf,
) {
    let _ = guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(task)?.body.destination.set(buf(dst_buf)) };
        Ok(())
    });
}

/// The local destination; NULL for NULL.
///
/// # Safety
/// As [`doca_rdma_task_read_get_src_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_read_get_dst_buf(
    task: *const doca_rdma_task_read,
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

/// How many bytes a successful task has read.
///
/// # Safety
/// As [`doca_rdma_task_read_get_src_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_read_get_result_len(
    task: *const doca_rdma_task_read,
) -> u32 {
    guard_with(0, || {
        // SAFETY: the caller's promise.
        unsafe { borrow(task) }.map_or(0, |task| task.body.result_len())
    })
}
