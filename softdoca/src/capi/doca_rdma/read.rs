//! Read tasks.

use doca_abi::{doca_buf, doca_data, doca_rdma, doca_rdma_connection, doca_rdma_task_read};

use super::super::task::{buf, get, task_functions};
use super::super::{doca_error_t, guard};
use super::{allocate, connection_functions};
use crate::progress::TaskPool;
use crate::rdma::{Arguments, Operation, Rdma, Work};

fn reads(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::Read)
}

task_functions! {
    doca_rdma_task_read of doca_rdma, pool reads;
    doca_rdma_cap_task_read_is_supported,
    doca_rdma_task_read_set_conf(doca_rdma_task_read_completion_cb_t),
    doca_rdma_task_read_as_task,
    doca_rdma_task_read_set_src_buf, doca_rdma_task_read_get_src_buf,
    doca_rdma_task_read_set_dst_buf, doca_rdma_task_read_get_dst_buf
}

connection_functions! {
    doca_rdma_task_read:
    doca_rdma_task_read_set_rdma_connection, doca_rdma_task_read_get_rdma_connection
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
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let arguments = Arguments {
            source: buf(src_buf),
            destination: buf(dst_buf),
            ..Arguments::default()
        };
        let connection = rdma_connection;
        allocate(
            rdma,
            connection,
            Operation::Read,
            arguments,
            user_data,
            task,
        )
    })
}

/// How many bytes a successful task has read.
///
/// # Safety
/// `task` is NULL or a live task, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_read_get_result_len(
    task: *const doca_rdma_task_read,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { get(task, Work::result_len) }
}
