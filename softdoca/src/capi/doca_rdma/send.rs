//! Send tasks, with and without immediate value.

use doca_abi::{
    doca_be32_t, doca_buf, doca_data, doca_rdma, doca_rdma_connection, doca_rdma_task_send,
    doca_rdma_task_send_imm,
};

use super::super::task::{buf, task_kind, task_slots};
use super::super::{doca_error_t, guard};
use super::{allocate, connection_functions};
use crate::progress::TaskPool;
use crate::rdma::{Arguments, Operation, Rdma};

fn sends(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::Send)
}

fn sends_with_immediate(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::SendImmediate)
}

task_kind! {
    doca_rdma_task_send of doca_rdma, pool sends;
    doca_rdma_cap_task_send_is_supported,
    doca_rdma_task_send_set_conf(doca_rdma_task_send_completion_cb_t),
    doca_rdma_task_send_as_task
}

task_slots! {
    doca_rdma_task_send:
    doca_rdma_task_send_set_src_buf, doca_rdma_task_send_get_src_buf
        => "source": source as *const doca_buf;
}

connection_functions! {
    doca_rdma_task_send:
    doca_rdma_task_send_set_rdma_connection, doca_rdma_task_send_get_rdma_connection
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
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let arguments = Arguments {
            source: buf(src_buf),
            ..Arguments::default()
        };
        let connection = rdma_connection;
        allocate(
            rdma,
            connection,
            Operation::Send,
            arguments,
            user_data,
            task,
        )
    })
}

task_kind! {
    doca_rdma_task_send_imm of doca_rdma, pool sends_with_immediate;
    doca_rdma_cap_task_send_imm_is_supported,
    doca_rdma_task_send_imm_set_conf(doca_rdma_task_send_imm_completion_cb_t),
    doca_rdma_task_send_imm_as_task
}

task_slots! {
    doca_rdma_task_send_imm:
    doca_rdma_task_send_imm_set_src_buf, doca_rdma_task_send_imm_get_src_buf
        => "source": source as *const doca_buf;
    doca_rdma_task_send_imm_set_immediate_data, doca_rdma_task_send_imm_get_immediate_data
        => "immediate value": immediate as doca_be32_t;
}

connection_functions! {
    doca_rdma_task_send_imm:
    doca_rdma_task_send_imm_set_rdma_connection, doca_rdma_task_send_imm_get_rdma_connection
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
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let arguments = Arguments {
            source: buf(src_buf),
            immediate: immediate_data,
            ..Arguments::default()
        };
        let (connection, operation) = (rdma_connection, Operation::SendImmediate);
        allocate(rdma, connection, operation, arguments, user_data, task)
    })
}
