//! `doca_comch_producer.h`: the sending side of the fast path.

use std::ptr::{null, null_mut};

use doca_abi::{
    doca_buf, doca_comch_connection, doca_comch_producer, doca_comch_producer_task_send,
    doca_comch_producer_task_send_completion_cb_t, doca_ctx, doca_devinfo, doca_dpa_completion,
    doca_task,
};

use super::doca_comch::{limits, task_callback, unsupported};
use super::doca_comch_consumer::optional_buf;
use super::doca_ctx::{destroy_ctx, give_ctx};
use super::task::{put_limit, supported};
use super::{
    Handle, Keeper, borrow, bytes, check_out, doca_error_t, guard, guard_with, not_null, put, share,
};
use crate::comch::{
    MAX_BUF_SIZE, MAX_CONSUMERS, MAX_TASKS, Producer, ProducerSendTask, SEND_LIST_LEN,
};
use crate::error::Error;
use crate::progress::{Ctx, Task};

// SAFETY: producers are given out by `give_ctx`.
unsafe impl Handle for doca_comch_producer {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: tasks are given out as pointers to their header.
unsafe impl Handle for doca_comch_producer_task_send {
    type Engine = Task;
}

/// The body of a send task; `None` for NULL and tasks of other kinds.
///
/// # Safety
/// `task` is NULL or a live task for `'a`.
unsafe fn body<'a>(task: *const doca_comch_producer_task_send) -> Option<&'a ProducerSendTask> {
    // SAFETY: guaranteed by the caller.
    let task = unsafe { borrow(task) }.ok()?;
    Some(&task.downcast::<ProducerSendTask>()?.body)
}

/// Creates a producer on a connection. Any thread may call it.
///
/// # Safety
/// `comch_connection` is NULL or live; `producer` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_create(
    comch_connection: *mut doca_comch_connection,
    producer: *mut *mut doca_comch_producer,
) -> doca_error_t {
    guard(|| {
        check_out(producer)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let ctx = Producer::create(share(comch_connection)?)?;
            put(producer, give_ctx(ctx))
        }
    })
}

/// Destroys an idle producer.
///
/// # Safety
/// `producer` is NULL or a live producer; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_destroy(
    producer: *mut doca_comch_producer,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            borrow(producer)?.driver_as::<Producer>()?;
            destroy_ctx(producer)
        }
    })
}

/// The id by which consumers of the peer name this producer.
///
/// # Safety
/// `producer` is NULL or a live producer; `id` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_get_id(
    producer: *const doca_comch_producer,
    id: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(id, borrow(producer)?.driver_as::<Producer>()?.id()) })
}

/// The producer's context; NULL for NULL.
///
/// # Safety
/// `producer` is NULL or a live producer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_as_ctx(
    producer: *mut doca_comch_producer,
) -> *mut doca_ctx {
    producer.cast()
}

/// Sets the callbacks and the number of send tasks; before the start.
///
/// # Safety
/// `producer` is NULL or a live producer; the callbacks are NULL or functions of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_set_conf(
    producer: *mut doca_comch_producer,
    completion_cb: doca_comch_producer_task_send_completion_cb_t,
    error_cb: doca_comch_producer_task_send_completion_cb_t,
    num_send_tasks: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let ctx = unsafe { borrow(producer) }?;
        let (success, error) = (task_callback(completion_cb), task_callback(error_cb));
        ctx.driver_as::<Producer>()?
            .configure_tasks(ctx, success, error, num_send_tasks)
    })
}

/// Allocates a task that sends the data of a list of bufs, and a copy of the immediate data, to one consumer.
///
/// # Safety
/// `producer` is NULL or live; `buf` is NULL or live, and stays so while the task is submitted; `imm_data` is NULL or
/// readable for `imm_data_len` bytes; `task` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_alloc_init(
    producer: *mut doca_comch_producer,
    buf: *const doca_buf,
    imm_data: *mut u8,
    imm_data_len: u32,
    consumer_id: u32,
    task: *mut *mut doca_comch_producer_task_send,
) -> doca_error_t {
    guard(|| {
        check_out(task)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let ctx = borrow(producer)?;
            let driver = ctx.driver_as::<Producer>()?;
            let immediate = bytes(imm_data, imm_data_len as usize)?;
            let buf = optional_buf(buf)?;
            let allocated = driver.allocate(ctx, buf, immediate, consumer_id)?;
            put(task, allocated.as_ptr().cast())
        }
    })
}

/// The buf that the task sends.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_get_buf(
    task: *const doca_comch_producer_task_send,
) -> *const doca_buf {
    guard_with(null(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { body(task) }
            .and_then(ProducerSendTask::buf)
            .map_or(null(), |buf| buf.as_ptr().cast_const().cast())
    })
}

/// Sets the buf that the task sends; not while it is in flight.
///
/// # Safety
/// `task` is NULL or a live task; `buf` as in [`doca_comch_producer_task_send_alloc_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_set_buf(
    task: *mut doca_comch_producer_task_send,
    buf: *const doca_buf,
) {
    guard_with((), || {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if let (Some(body), Ok(buf)) = (body(task), optional_buf(buf)) {
                body.set_buf(buf);
            }
        }
    });
}

/// Id of the consumer that the task sends to; 0 for NULL.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_get_consumer_id(
    task: *const doca_comch_producer_task_send,
) -> u32 {
    guard_with(0, || {
        // SAFETY: guaranteed by the caller.
        unsafe { body(task) }.map_or(0, ProducerSendTask::consumer_id)
    })
}

/// Sets the consumer that the task sends to; not while it is in flight.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_set_consumer_id(
    task: *mut doca_comch_producer_task_send,
    consumer_id: u32,
) {
    guard_with((), || {
        // SAFETY: guaranteed by the caller.
        if let Some(body) = unsafe { body(task) } {
            body.set_consumer_id(consumer_id);
        }
    });
}

/// The generic task of a send task; NULL for NULL.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_as_task(
    task: *mut doca_comch_producer_task_send,
) -> *mut doca_task {
    task.cast()
}

/// Sets the task's immediate data, which is copied; not while it is in flight. Data longer than the limit is ignored.
///
/// # Safety
/// `task` is NULL or a live task; `imm_data` is NULL or readable for `imm_data_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_set_imm_data(
    task: *mut doca_comch_producer_task_send,
    imm_data: *mut u8,
    imm_data_len: u32,
) {
    guard_with((), || {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if let (Some(body), Ok(immediate)) =
                (body(task), bytes(imm_data, imm_data_len as usize))
            {
                // The error is logged; the function cannot return it.
                let _ = body.set_immediate(immediate);
            }
        }
    });
}

/// The task's copy of its immediate data; NULL if there is none.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_get_imm_data(
    task: *const doca_comch_producer_task_send,
) -> *mut u8 {
    guard_with(null_mut(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { body(task) }.map_or(null_mut(), ProducerSendTask::immediate)
    })
}

/// Length of the task's immediate data in bytes.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_get_imm_data_len(
    task: *const doca_comch_producer_task_send,
) -> u32 {
    guard_with(0, || {
        // SAFETY: guaranteed by the caller.
        unsafe { body(task) }.map_or(0, ProducerSendTask::immediate_len)
    })
}

/// `DOCA_SUCCESS` for every device.
///
/// # Safety
/// `devinfo` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_cap_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supported(devinfo)
}

limits! {
    /// Gets the maximum number of producers of one side of a connection.
    doca_comch_producer_cap_get_max_producers = MAX_CONSUMERS;
    /// Gets the maximum number of send tasks of one producer.
    doca_comch_producer_cap_get_max_num_tasks = MAX_TASKS;
    /// Gets the maximum size of a sent buf in bytes.
    doca_comch_producer_cap_get_max_buf_size = MAX_BUF_SIZE;
    /// Gets the maximum number of bufs in a sent list.
    doca_comch_producer_cap_get_max_buf_list_len = SEND_LIST_LEN;
}

unsupported! {
    doca_comch_producer_dpa_completion_attach(producer: *mut doca_comch_producer, dpa_comp: *mut doca_dpa_completion);
    doca_comch_producer_get_dpa_handle(producer: *mut doca_comch_producer, dpa_producer: *mut u64);
    doca_comch_producer_set_dev_max_num_send(producer: *mut doca_comch_producer, dev_num_send: u32);
}

doca_abi::check_definitions!(doca_comch_producer_functions, super::doca_comch_producer);
