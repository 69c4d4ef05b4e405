//! Receive tasks.

use doca_abi::{
    doca_be32_t, doca_buf, doca_data, doca_rdma, doca_rdma_connection, doca_rdma_opcode,
    doca_rdma_task_receive,
};

use super::super::task::{buf, put_task, task_kind, task_slots};
use super::super::{borrow, doca_error_t, guard, guard_with};
use super::instance::with;
use crate::progress::TaskPool;
use crate::rdma::{Rdma, Received};

fn receives(rdma: &Rdma) -> &TaskPool {
    &rdma.pools().receive
}

task_kind! {
    doca_rdma_task_receive of doca_rdma, pool receives;
    doca_rdma_cap_task_receive_is_supported,
    doca_rdma_task_receive_set_conf(doca_rdma_task_receive_completion_cb_t),
    doca_rdma_task_receive_as_task
}

task_slots! {
    doca_rdma_task_receive:
    doca_rdma_task_receive_set_dst_buf, doca_rdma_task_receive_get_dst_buf
        => "destination": destination as *mut doca_buf;
}

/// Allocates a task that receives one message. Without a buf it takes messages without data, and immediates of writes.
///
/// # Safety
/// As [`doca_rdma_task_receive_set_conf`]; `dst_buf` is NULL or a buf that stays valid while the task is in flight; `task` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_allocate_init(
    rdma: *mut doca_rdma,
    dst_buf: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_receive,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            put_task(task, || {
                with(rdma, |ctx, rdma| {
                    rdma.allocate_receive(ctx, buf(dst_buf), user_data)
                })
            })
        }
    })
}

/// The result of a task that has completed; `None` for NULL.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
unsafe fn received(task: *const doca_rdma_task_receive) -> Option<Received> {
    guard_with(None, || {
        // SAFETY: the caller's promise.
        unsafe { borrow(task) }
            .ok()
            .map(|task| task.body.received())
    })
}

/// What was received.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_get_result_opcode(
    task: *const doca_rdma_task_receive,
) -> doca_rdma_opcode {
    // SAFETY: the caller's promise.
    unsafe { received(task) }.map_or(0, |received| received.opcode as doca_rdma_opcode)
}

/// How many bytes were received, or written by a write with immediate.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_get_result_len(
    task: *const doca_rdma_task_receive,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { received(task) }.map_or(0, |received| received.len)
}

/// The immediate value, with its bytes as the sender gave them; 0 when there was none.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_get_result_immediate_data(
    task: *const doca_rdma_task_receive,
) -> doca_be32_t {
    // SAFETY: the caller's promise.
    unsafe { received(task) }.map_or(0, |received| received.immediate)
}

/// The connection that the message came over; NULL before the task has completed.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_get_result_rdma_connection(
    task: *const doca_rdma_task_receive,
) -> *const doca_rdma_connection {
    // SAFETY: the caller's promise.
    unsafe { received(task) }.map_or(std::ptr::null(), |received| received.connection.cast())
}
