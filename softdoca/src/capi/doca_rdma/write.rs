//! Write tasks, with and without immediate value.

use doca_abi::{
    doca_be32_t, doca_buf, doca_data, doca_rdma, doca_rdma_connection, doca_rdma_task_write,
    doca_rdma_task_write_imm,
};

use super::super::task::{buf, task_functions, task_slots};
use super::super::{doca_error_t, guard};
use super::{allocate, connection_functions};
use crate::progress::TaskPool;
use crate::rdma::{Arguments, Operation, Rdma};

fn writes(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::Write)
}

fn writes_with_immediate(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::WriteImmediate)
}

task_functions! {
    doca_rdma_task_write of doca_rdma, pool writes;
    doca_rdma_cap_task_write_is_supported,
    doca_rdma_task_write_set_conf(doca_rdma_task_write_completion_cb_t),
    doca_rdma_task_write_as_task,
    doca_rdma_task_write_set_src_buf, doca_rdma_task_write_get_src_buf,
    doca_rdma_task_write_set_dst_buf, doca_rdma_task_write_get_dst_buf
}

connection_functions! {
    doca_rdma_task_write:
    doca_rdma_task_write_set_rdma_connection, doca_rdma_task_write_get_rdma_connection
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
            Operation::Write,
            arguments,
            user_data,
            task,
        )
    })
}

task_functions! {
    doca_rdma_task_write_imm of doca_rdma, pool writes_with_immediate;
    doca_rdma_cap_task_write_imm_is_supported,
    doca_rdma_task_write_imm_set_conf(doca_rdma_task_write_imm_completion_cb_t),
    doca_rdma_task_write_imm_as_task,
    doca_rdma_task_write_imm_set_src_buf, doca_rdma_task_write_imm_get_src_buf,
    doca_rdma_task_write_imm_set_dst_buf, doca_rdma_task_write_imm_get_dst_buf
}

task_slots! {
    doca_rdma_task_write_imm:
    doca_rdma_task_write_imm_set_immediate_data, doca_rdma_task_write_imm_get_immediate_data
        => "immediate value": immediate as doca_be32_t;
}

connection_functions! {
    doca_rdma_task_write_imm:
    doca_rdma_task_write_imm_set_rdma_connection, doca_rdma_task_write_imm_get_rdma_connection
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
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let arguments = Arguments {
            source: buf(src_buf),
            destination: buf(dst_buf),
            immediate: immediate_data,
            ..Arguments::default()
        };
        let (connection, operation) = (rdma_connection, Operation::WriteImmediate);
        allocate(rdma, connection, operation, arguments, user_data, task)
    })
}
