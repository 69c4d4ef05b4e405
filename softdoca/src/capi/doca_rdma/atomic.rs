//! Atomic tasks on 8 bytes of remote memory. Values are in the machine's byte order.

use doca_abi::{
    doca_buf, doca_data, doca_rdma, doca_rdma_connection, doca_rdma_task_atomic_cmp_swp,
    doca_rdma_task_atomic_fetch_add,
};

use super::super::task::{buf, task_kind, task_slots};
use super::super::{doca_error_t, guard};
use super::{allocate, connection_functions};
use crate::progress::TaskPool;
use crate::rdma::{Arguments, Operation, Rdma};

fn compare_and_swaps(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::CompareSwap)
}

fn fetch_and_adds(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::FetchAdd)
}

task_kind! {
    doca_rdma_task_atomic_cmp_swp of doca_rdma, pool compare_and_swaps;
    doca_rdma_cap_task_atomic_cmp_swp_is_supported,
    doca_rdma_task_atomic_cmp_swp_set_conf(doca_rdma_task_atomic_cmp_swp_completion_cb_t),
    doca_rdma_task_atomic_cmp_swp_as_task
}

task_slots! {
    doca_rdma_task_atomic_cmp_swp:
    doca_rdma_task_atomic_cmp_swp_set_dst_buf, doca_rdma_task_atomic_cmp_swp_get_dst_buf
        => "destination": destination as *mut doca_buf;
    doca_rdma_task_atomic_cmp_swp_set_result_buf, doca_rdma_task_atomic_cmp_swp_get_result_buf
        => "buf for the old value": result as *mut doca_buf;
    doca_rdma_task_atomic_cmp_swp_set_cmp_data, doca_rdma_task_atomic_cmp_swp_get_cmp_data
        => "value to compare with": compare as u64;
    doca_rdma_task_atomic_cmp_swp_set_swap_data, doca_rdma_task_atomic_cmp_swp_get_swap_data
        => "value to swap in": operand as u64;
}

connection_functions! {
    doca_rdma_task_atomic_cmp_swp:
    doca_rdma_task_atomic_cmp_swp_set_rdma_connection,
    doca_rdma_task_atomic_cmp_swp_get_rdma_connection
}

/// Allocates a task that replaces the first 8 bytes of a remote buf's data by `swap_data` if they are `cmp_data`, and appends
/// what they were to a local buf's data.
///
/// # Safety
/// As [`doca_rdma_task_atomic_cmp_swp_set_conf`]; the bufs are NULL or stay valid while the task is in flight; `task` is
/// NULL or writable. `rdma_connection` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_atomic_cmp_swp_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    dst_buf: *mut doca_buf,
    result_buf: *mut doca_buf,
    cmp_data: u64,
    swap_data: u64,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_atomic_cmp_swp,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let arguments = Arguments {
            destination: buf(dst_buf),
            result: buf(result_buf),
            compare: cmp_data,
            operand: swap_data,
            ..Arguments::default()
        };
        let (connection, operation) = (rdma_connection, Operation::CompareSwap);
        allocate(rdma, connection, operation, arguments, user_data, task)
    })
}

task_kind! {
    doca_rdma_task_atomic_fetch_add of doca_rdma, pool fetch_and_adds;
    doca_rdma_cap_task_atomic_fetch_add_is_supported,
    doca_rdma_task_atomic_fetch_add_set_conf(doca_rdma_task_atomic_fetch_add_completion_cb_t),
    doca_rdma_task_atomic_fetch_add_as_task
}

task_slots! {
    doca_rdma_task_atomic_fetch_add:
    doca_rdma_task_atomic_fetch_add_set_dst_buf, doca_rdma_task_atomic_fetch_add_get_dst_buf
        => "destination": destination as *mut doca_buf;
    doca_rdma_task_atomic_fetch_add_set_result_buf, doca_rdma_task_atomic_fetch_add_get_result_buf
        => "buf for the old value": result as *mut doca_buf;
    doca_rdma_task_atomic_fetch_add_set_add_data, doca_rdma_task_atomic_fetch_add_get_add_data
        => "value to add": operand as u64;
}

connection_functions! {
    doca_rdma_task_atomic_fetch_add:
    doca_rdma_task_atomic_fetch_add_set_rdma_connection,
    doca_rdma_task_atomic_fetch_add_get_rdma_connection
}

/// Allocates a task that adds `add_data` to the first 8 bytes of a remote buf's data, and appends what they were to a local
/// buf's data.
///
/// # Safety
/// As [`doca_rdma_task_atomic_cmp_swp_allocate_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_atomic_fetch_add_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    dst_buf: *mut doca_buf,
    result_buf: *mut doca_buf,
    add_data: u64,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_atomic_fetch_add,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let arguments = Arguments {
            destination: buf(dst_buf),
            result: buf(result_buf),
            operand: add_data,
            ..Arguments::default()
        };
        let (connection, operation) = (rdma_connection, Operation::FetchAdd);
        allocate(rdma, connection, operation, arguments, user_data, task)
    })
}
