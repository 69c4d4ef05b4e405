//! Batches of tasks. Only Ethernet queues allocate them, so a program cannot have one.

use doca_abi::{doca_ctx, doca_data, doca_task_batch};

use super::super::{doca_error_t, guard, not_null};
use crate::error::{Error, Result};

const NONE: doca_data = doca_data { u64: 0 };

fn unsupported(batch: *const doca_task_batch) -> Result<()> {
    not_null(batch)?;
    Err(Error::NotSupported.because("no context in software has batches of tasks"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_submit(task_batch: *mut doca_task_batch) -> doca_error_t {
    guard(|| unsupported(task_batch))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_try_submit(
    task_batch: *mut doca_task_batch,
) -> doca_error_t {
    guard(|| unsupported(task_batch))
}

/// Does nothing: there is no batch to free.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_free(_task_batch: *mut doca_task_batch) {}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_status(
    task_batch: *const doca_task_batch,
) -> doca_error_t {
    guard(|| unsupported(task_batch))
}

/// Does nothing: there is no batch that could have data.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_set_user_data(
    _task_batch: *mut doca_task_batch,
    _user_data: doca_data,
) {
}

/// Zero.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_user_data(
    _task_batch: *const doca_task_batch,
) -> doca_data {
    NONE
}

/// NULL.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_ctx(
    _task_batch: *const doca_task_batch,
) -> *mut doca_ctx {
    std::ptr::null_mut()
}

/// Zero.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_ctx_user_data(
    _task_batch: *const doca_task_batch,
) -> doca_data {
    NONE
}

/// Zero.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_task_batch_get_tasks_num(_task_batch: *mut doca_task_batch) -> u16 {
    0
}
