//! `doca_comch_consumer.h`: the receiving side of the fast path.

use std::ptr::{null, null_mut};

use doca_abi::{
    doca_buf, doca_comch_connection, doca_comch_consumer, doca_comch_consumer_completion,
    doca_comch_consumer_task_post_recv, doca_comch_consumer_task_post_recv_completion_cb_t,
    doca_ctx, doca_devinfo, doca_dpa_thread, doca_mmap, doca_task,
};

use super::doca_comch::{limits, task_callback, unsupported};
use super::doca_ctx::{destroy_ctx, give_ctx};
use super::task::{put_limit, supported};
use super::{
    Handle, Keeper, borrow, check_out, doca_error_t, guard, guard_with, not_null, put, share,
};
use crate::buffer::BufHandle;
use crate::comch::{
    Consumer, MAX_BUF_SIZE, MAX_CONSUMERS, MAX_IMMEDIATE, MAX_TASKS, PostRecv, RECEIVE_LIST_LEN,
};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task};

// SAFETY: consumers are given out by `give_ctx`.
unsafe impl Handle for doca_comch_consumer {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: tasks are given out as pointers to their header.
unsafe impl Handle for doca_comch_consumer_task_post_recv {
    type Engine = Task;
}

/// The body of a receive task; `None` for NULL and tasks of other kinds.
///
/// # Safety
/// `task` is NULL or a live task for `'a`.
unsafe fn body<'a>(task: *const doca_comch_consumer_task_post_recv) -> Option<&'a PostRecv> {
    // SAFETY: guaranteed by the caller.
    let task = unsafe { borrow(task) }.ok()?;
    Some(&task.downcast::<PostRecv>()?.body)
}

/// A buf argument that may be NULL.
///
/// # Safety
/// `buf` is NULL or a live buf, and stays so while a task that it is given to is submitted.
pub(super) unsafe fn optional_buf(buf: *const doca_buf) -> Result<Option<BufHandle>> {
    if buf.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    Ok(Some(unsafe { BufHandle::new(borrow(buf)?) }))
}

/// Creates a consumer on a connection, which receives into bufs of one memory map. Any thread may call it.
///
/// # Safety
/// The handles are NULL or live; `consumer` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_create(
    comch_connection: *mut doca_comch_connection,
    buf_mmap: *mut doca_mmap,
    consumer: *mut *mut doca_comch_consumer,
) -> doca_error_t {
    guard(|| {
        check_out(consumer)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let ctx = Consumer::create(share(comch_connection)?, share(buf_mmap)?)?;
            put(consumer, give_ctx(ctx))
        }
    })
}

/// Destroys an idle consumer.
///
/// # Safety
/// `consumer` is NULL or a live consumer; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_destroy(
    consumer: *mut doca_comch_consumer,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            borrow(consumer)?.driver_as::<Consumer>()?;
            destroy_ctx(consumer)
        }
    })
}

/// The id by which producers of the peer name this consumer.
///
/// # Safety
/// `consumer` is NULL or a live consumer; `id` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_get_id(
    consumer: *const doca_comch_consumer,
    id: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(id, borrow(consumer)?.driver_as::<Consumer>()?.id()) })
}

/// The consumer's context; NULL for NULL.
///
/// # Safety
/// `consumer` is NULL or a live consumer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_as_ctx(
    consumer: *mut doca_comch_consumer,
) -> *mut doca_ctx {
    consumer.cast()
}

/// Sets the callbacks and the number of receive tasks; before the start.
///
/// # Safety
/// `consumer` is NULL or a live consumer; the callbacks are NULL or functions of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_set_conf(
    consumer: *mut doca_comch_consumer,
    completion_cb: doca_comch_consumer_task_post_recv_completion_cb_t,
    error_cb: doca_comch_consumer_task_post_recv_completion_cb_t,
    num_post_recv_tasks: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let ctx = unsafe { borrow(consumer) }?;
        let (success, error) = (task_callback(completion_cb), task_callback(error_cb));
        ctx.driver_as::<Consumer>()?
            .configure_tasks(ctx, success, error, num_post_recv_tasks)
    })
}

/// Allocates a task that receives one message into a buf, after its data. With NULL it receives only messages without
/// data.
///
/// # Safety
/// `consumer` is NULL or live; `buf` is NULL or live, and stays so while the task is submitted; `task` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_alloc_init(
    consumer: *mut doca_comch_consumer,
    buf: *mut doca_buf,
    task: *mut *mut doca_comch_consumer_task_post_recv,
) -> doca_error_t {
    guard(|| {
        check_out(task)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let ctx = borrow(consumer)?;
            let buf = optional_buf(buf)?;
            let allocated = ctx.driver_as::<Consumer>()?.allocate(ctx, buf)?;
            put(task, allocated.as_ptr().cast())
        }
    })
}

/// The buf that the task receives into.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_get_buf(
    task: *const doca_comch_consumer_task_post_recv,
) -> *mut doca_buf {
    guard_with(null_mut(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { body(task) }
            .and_then(PostRecv::buf)
            .map_or(null_mut(), |buf| buf.as_ptr().cast())
    })
}

/// Sets the buf that the task receives into; not while it is in flight.
///
/// # Safety
/// `task` is NULL or a live task; `buf` as in [`doca_comch_consumer_task_post_recv_alloc_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_set_buf(
    task: *mut doca_comch_consumer_task_post_recv,
    buf: *mut doca_buf,
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

/// Id of the producer that sent the received message; 0 before the first.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_get_producer_id(
    task: *const doca_comch_consumer_task_post_recv,
) -> u32 {
    // SAFETY: guaranteed by the caller.
    guard_with(0, || unsafe { body(task) }.map_or(0, PostRecv::producer))
}

/// Immediate data of the received message, valid until the task is submitted or freed; NULL if there is none.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_get_imm_data(
    task: *const doca_comch_consumer_task_post_recv,
) -> *const u8 {
    guard_with(null(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { body(task) }.map_or(null(), PostRecv::immediate)
    })
}

/// Length of the immediate data in bytes; 0 if there is none.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_get_imm_data_len(
    task: *const doca_comch_consumer_task_post_recv,
) -> u32 {
    guard_with(0, || {
        // SAFETY: guaranteed by the caller.
        unsafe { body(task) }.map_or(0, PostRecv::immediate_len)
    })
}

/// The generic task of a receive task; NULL for NULL.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_as_task(
    task: *mut doca_comch_consumer_task_post_recv,
) -> *mut doca_task {
    task.cast()
}

/// Sets the maximum length of received immediate data in bytes; before the start. A longer one fails the receive task.
///
/// # Safety
/// `consumer` is NULL or a live consumer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_set_imm_data_len(
    consumer: *mut doca_comch_consumer,
    imm_data_len: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let ctx = unsafe { borrow(consumer) }?;
        ctx.driver_as::<Consumer>()?
            .set_most_immediate(ctx, imm_data_len)
    })
}

/// Gets the maximum length of received immediate data in bytes.
///
/// # Safety
/// `consumer` is NULL or a live consumer; `imm_data_len` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_get_imm_data_len(
    consumer: *const doca_comch_consumer,
    imm_data_len: *mut u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let driver = unsafe { borrow(consumer) }?.driver_as::<Consumer>()?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(imm_data_len, driver.most_immediate()) }
    })
}

/// `DOCA_SUCCESS` for every device.
///
/// # Safety
/// `devinfo` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_cap_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supported(devinfo)
}

limits! {
    /// Gets the maximum number of consumers of one side of a connection.
    doca_comch_consumer_cap_get_max_consumers = MAX_CONSUMERS;
    /// Gets the maximum number of receive tasks of one consumer.
    doca_comch_consumer_cap_get_max_num_tasks = MAX_TASKS;
    /// Gets the maximum size of a receive buf in bytes.
    doca_comch_consumer_cap_get_max_buf_size = MAX_BUF_SIZE;
    /// Gets the maximum number of bufs in a receive list.
    doca_comch_consumer_cap_get_max_buf_list_len = RECEIVE_LIST_LEN;
    /// Gets the maximum length of immediate data in bytes.
    doca_comch_consumer_cap_get_max_imm_data_len = MAX_IMMEDIATE;
}

unsupported! {
    doca_comch_consumer_completion_create(consumer_comp: *mut *mut doca_comch_consumer_completion);
    doca_comch_consumer_completion_destroy(consumer_comp: *mut doca_comch_consumer_completion);
    doca_comch_consumer_completion_start(consumer_comp: *mut doca_comch_consumer_completion);
    doca_comch_consumer_completion_stop(consumer_comp: *mut doca_comch_consumer_completion);
    doca_comch_consumer_completion_set_max_num_recv(consumer_comp: *mut doca_comch_consumer_completion, max_num_recv: u32);
    doca_comch_consumer_completion_get_max_num_recv(consumer_comp: *const doca_comch_consumer_completion, max_num_recv: *mut u32);
    doca_comch_consumer_completion_set_max_num_consumers(consumer_comp: *mut doca_comch_consumer_completion, max_num_consumers: u32);
    doca_comch_consumer_completion_get_max_num_consumers(consumer_comp: *const doca_comch_consumer_completion, max_num_consumers: *mut u32);
    doca_comch_consumer_completion_set_imm_data_len(consumer_comp: *mut doca_comch_consumer_completion, imm_data_len: u32);
    doca_comch_consumer_completion_get_imm_data_len(consumer_comp: *const doca_comch_consumer_completion, imm_data_len: *mut u32);
    doca_comch_consumer_completion_set_dpa_thread(consumer_comp: *mut doca_comch_consumer_completion, dpa_thread: *mut doca_dpa_thread);
    doca_comch_consumer_completion_get_dpa_handle(consumer_comp: *mut doca_comch_consumer_completion, consumer_comp_handle: *mut u64);
    doca_comch_consumer_get_dpa_handle(consumer: *mut doca_comch_consumer, dpa_consumer: *mut u64);
    doca_comch_consumer_set_completion(consumer: *mut doca_comch_consumer, consumer_comp: *mut doca_comch_consumer_completion, user_data: u32);
    doca_comch_consumer_set_dev_max_num_recv(consumer: *mut doca_comch_consumer, dev_num_recv: u32);
}

doca_abi::check_definitions!(doca_comch_consumer_functions, super::doca_comch_consumer);
