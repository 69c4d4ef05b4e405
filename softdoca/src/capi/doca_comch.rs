//! Comch: `doca_comch.h` (servers, clients, connections and control messages), `doca_comch_consumer.h` and
//! `doca_comch_producer.h` (the receiving and the sending side of the fast path).

#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use doca_abi::{
    DOCA_COMCH_COUNTER_RECV_BYTES, DOCA_COMCH_COUNTER_RECV_MESSAGES, DOCA_COMCH_COUNTER_SENT_BYTES,
    DOCA_COMCH_COUNTER_SENT_MESSAGES, doca_buf, doca_comch_client, doca_comch_connection,
    doca_comch_consumer, doca_comch_consumer_completion, doca_comch_consumer_task_post_recv,
    doca_comch_consumer_task_post_recv_completion_cb_t, doca_comch_counter,
    doca_comch_event_connection_status_changed_cb_t, doca_comch_event_consumer_cb_t,
    doca_comch_event_msg_recv_cb_t, doca_comch_producer, doca_comch_producer_task_send,
    doca_comch_producer_task_send_completion_cb_t, doca_comch_server, doca_comch_task_send,
    doca_comch_task_send_completion_cb_t, doca_ctx, doca_data, doca_dev, doca_dev_rep,
    doca_devinfo, doca_dpa_completion, doca_dpa_thread, doca_mmap, doca_task,
};

use super::doca_pe::{destroy_ctx, give_ctx};
use super::instance::limit_functions;
use super::{
    Handle, Keeper, borrow, bytes, check_out, doca_error_t, guard, guard_with, not_null, put,
    share, supported, text,
};
use crate::buffer::BufHandle;
use crate::comch::{
    Client, Connection, Consumer, ControlPath, Counter, MAX_BUF_SIZE, MAX_CONSUMERS, MAX_IMMEDIATE,
    MAX_MESSAGE_SIZE, MAX_NAME_LEN, MAX_RECV_QUEUE, MAX_TASKS, PostRecv, Producer,
    ProducerSendTask, RECEIVE_LIST_LEN, SEND_LIST_LEN, Server, Side, max_clients,
};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskCallback};

// SAFETY: connections are given out as pointers into the `Arc<Connection>` that their server or client keeps.
unsafe impl Handle for doca_comch_connection {
    type Engine = Connection;
}

// SAFETY: servers are given out by `give_ctx`.
unsafe impl Handle for doca_comch_server {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: clients are given out by `give_ctx`.
unsafe impl Handle for doca_comch_client {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

/// Converts a completion callback of one kind of task to the engine's callback type.
fn task_callback<T>(
    callback: Option<unsafe extern "C" fn(*mut T, doca_data, doca_data)>,
) -> Option<TaskCallback> {
    type Of<T> = unsafe extern "C" fn(*mut T, doca_data, doca_data);
    // SAFETY: the two differ only in the pointee of the first pointer, and the engine calls the function only with
    // tasks of the kind that it was set for.
    callback.map(|callback| unsafe { std::mem::transmute::<Of<T>, TaskCallback>(callback) })
}

/// The context and the driver of a server.
unsafe fn server<'a>(handle: *const doca_comch_server) -> Result<(&'a Ctx, &'a ControlPath)> {
    // SAFETY: guaranteed by the caller.
    let ctx = unsafe { borrow(handle) }?;
    Ok((ctx, ctx.driver_as::<Server>()?.control()))
}

/// The context and the driver of a client.
unsafe fn client<'a>(handle: *const doca_comch_client) -> Result<(&'a Ctx, &'a ControlPath)> {
    // SAFETY: guaranteed by the caller.
    let ctx = unsafe { borrow(handle) }?;
    Ok((ctx, ctx.driver_as::<Client>()?.control()))
}

/// Sets the user data of a connection.
///
/// # Safety
/// `connection` is NULL or a live connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_connection_set_user_data(
    connection: *mut doca_comch_connection,
    user_data: doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(connection) }?.set_user_data(user_data);
        Ok(())
    })
}

/// The user data of a connection; zero by default and for NULL.
///
/// # Safety
/// `connection` is NULL or a live connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_connection_get_user_data(
    connection: *const doca_comch_connection,
) -> doca_data {
    let none = doca_data { u64: 0 };
    guard_with(none, || {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(connection) }.map_or(none, Connection::user_data)
    })
}

/// The server of a connection; NULL on the client's side.
///
/// # Safety
/// `connection` is NULL or a live connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_get_server_ctx(
    connection: *const doca_comch_connection,
) -> *mut doca_comch_server {
    guard_with(null_mut(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(connection) }.map_or(null_mut(), |connection| {
            connection.ctx_of(Side::Server).cast()
        })
    })
}

/// The client of a connection; NULL on the server's side.
///
/// # Safety
/// `connection` is NULL or a live connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_get_client_ctx(
    connection: *const doca_comch_connection,
) -> *mut doca_comch_client {
    guard_with(null_mut(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(connection) }.map_or(null_mut(), |connection| {
            connection.ctx_of(Side::Client).cast()
        })
    })
}

/// Gets the upper limit of the maximum message size, in bytes.
///
/// # Safety
/// `devinfo` is NULL or live; `size` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_cap_get_max_msg_size(
    devinfo: *const doca_devinfo,
    size: *mut u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            borrow(devinfo)?;
            put(size, MAX_MESSAGE_SIZE)
        }
    })
}

/// Creates a server called `name` for clients on the represented function.
///
/// # Safety
/// The handles are NULL or live, `name` is NULL or a string, `comch_server` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_create(
    dev: *mut doca_dev,
    repr: *mut doca_dev_rep,
    name: *const c_char,
    comch_server: *mut *mut doca_comch_server,
) -> doca_error_t {
    guard(|| {
        check_out(comch_server)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let ctx = Server::create(share(dev)?, share(repr)?, text(name)?)?;
            put(comch_server, give_ctx(ctx))
        }
    })
}

/// Destroys an idle server.
///
/// # Safety
/// `comch_server` is NULL or a live server; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_destroy(
    comch_server: *mut doca_comch_server,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            server(comch_server)?;
            destroy_ctx(comch_server, Error::InUse)
        }
    })
}

/// Sets the maximum message size in bytes; only before the start, and to the same value on the clients' side.
///
/// # Safety
/// `comch_server` is NULL or a live server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_set_max_msg_size(
    comch_server: *mut doca_comch_server,
    size: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { server(comch_server) }?;
        control.set_max_message(ctx, size)
    })
}

/// Sets the maximum number of received messages queued for progress; only before the start.
///
/// # Safety
/// `comch_server` is NULL or a live server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_set_recv_queue_size(
    comch_server: *mut doca_comch_server,
    size: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { server(comch_server) }?;
        control.set_recv_queue(ctx, size)
    })
}

/// The server's context; NULL for NULL.
///
/// # Safety
/// `comch_server` is NULL or a live server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_as_ctx(
    comch_server: *mut doca_comch_server,
) -> *mut doca_ctx {
    comch_server.cast()
}

/// Creates a client of the server called `name`.
///
/// # Safety
/// `dev` is NULL or a live device, `name` is NULL or a string, `comch_client` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_create(
    dev: *mut doca_dev,
    name: *const c_char,
    comch_client: *mut *mut doca_comch_client,
) -> doca_error_t {
    guard(|| {
        check_out(comch_client)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let ctx = Client::create(share(dev)?, text(name)?)?;
            put(comch_client, give_ctx(ctx))
        }
    })
}

/// Destroys an idle client.
///
/// # Safety
/// `comch_client` is NULL or a live client; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_destroy(
    comch_client: *mut doca_comch_client,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            client(comch_client)?;
            destroy_ctx(comch_client, Error::InUse)
        }
    })
}

/// Sets the maximum message size in bytes; only before the start, and to the same value as on the server.
///
/// # Safety
/// `comch_client` is NULL or a live client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_set_max_msg_size(
    comch_client: *mut doca_comch_client,
    size: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { client(comch_client) }?;
        control.set_max_message(ctx, size)
    })
}

/// Sets the maximum number of received messages queued for progress; only before the start.
///
/// # Safety
/// `comch_client` is NULL or a live client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_set_recv_queue_size(
    comch_client: *mut doca_comch_client,
    size: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { client(comch_client) }?;
        control.set_recv_queue(ctx, size)
    })
}

/// The client's context; NULL for NULL.
///
/// # Safety
/// `comch_client` is NULL or a live client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_as_ctx(
    comch_client: *mut doca_comch_client,
) -> *mut doca_ctx {
    comch_client.cast()
}

/// The connection of a running client. Valid as long as the client, until its next start.
///
/// # Safety
/// `comch_client` is NULL or a live client; `connection` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_get_connection(
    comch_client: *const doca_comch_client,
    connection: *mut *mut doca_comch_connection,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let ctx = unsafe { borrow(comch_client) }?;
        let own = ctx.driver_as::<Client>()?.connection()?;
        // The client keeps a reference; the handle does not own one.
        let handle = Arc::as_ptr(&own).cast_mut().cast();
        // SAFETY: guaranteed by the caller.
        unsafe { put(connection, handle) }
    })
}

/// Sets the callbacks and the number of a server's send tasks; only before the start.
///
/// # Safety
/// `comch_server` is NULL or a live server; the callbacks are NULL or functions of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_task_send_set_conf(
    comch_server: *mut doca_comch_server,
    completion_cb: doca_comch_task_send_completion_cb_t,
    error_cb: doca_comch_task_send_completion_cb_t,
    num_send_tasks: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { server(comch_server) }?;
        let (success, error) = (task_callback(completion_cb), task_callback(error_cb));
        control.configure_send_tasks(ctx, success, error, num_send_tasks)
    })
}

/// Sets the callbacks and the number of a client's send tasks; only before the start.
///
/// # Safety
/// `comch_client` is NULL or a live client; the callbacks are NULL or functions of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_task_send_set_conf(
    comch_client: *mut doca_comch_client,
    completion_cb: doca_comch_task_send_completion_cb_t,
    error_cb: doca_comch_task_send_completion_cb_t,
    num_send_tasks: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { client(comch_client) }?;
        let (success, error) = (task_callback(completion_cb), task_callback(error_cb));
        control.configure_send_tasks(ctx, success, error, num_send_tasks)
    })
}

/// Allocates a task for a connection of the given server or client.
///
/// # Safety
/// `peer` is NULL or a live connection; `task` is NULL or writable.
unsafe fn allocate(
    (ctx, control): (&Ctx, &ControlPath),
    side: Side,
    peer: *mut doca_comch_connection,
    (msg, len): (*const c_void, u32),
    task: *mut *mut doca_comch_task_send,
) -> Result<()> {
    check_out(task)?;
    // SAFETY: guaranteed by the caller.
    let connection = unsafe { share(peer) }?;
    if !std::ptr::eq(connection.ctx_of(side), ctx) {
        return Err(Error::InvalidValue
            .because("expected a connection of the server or client that the task is of"));
    }
    let allocated = control.allocate(ctx, connection, msg, len)?;
    // SAFETY: guaranteed by the caller.
    unsafe { put(task, allocated.as_ptr().cast()) }
}

/// Allocates a task that sends one message to a client.
///
/// # Safety
/// The handles are NULL or live; `msg` is readable for `len` bytes, and not written, while the task is submitted; `task` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_task_send_alloc_init(
    comch_server: *mut doca_comch_server,
    peer: *mut doca_comch_connection,
    msg: *const c_void,
    len: u32,
    task: *mut *mut doca_comch_task_send,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { allocate(server(comch_server)?, Side::Server, peer, (msg, len), task) })
}

/// Allocates a task that sends one message to the server.
///
/// # Safety
/// As [`doca_comch_server_task_send_alloc_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_task_send_alloc_init(
    comch_client: *mut doca_comch_client,
    peer: *mut doca_comch_connection,
    msg: *const c_void,
    len: u32,
    task: *mut *mut doca_comch_task_send,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { allocate(client(comch_client)?, Side::Client, peer, (msg, len), task) })
}

/// The generic task of a send task; NULL for NULL.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_task_send_as_task(
    task: *mut doca_comch_task_send,
) -> *mut doca_task {
    NonNull::new(task).map_or(null_mut(), |task| task.as_ptr().cast())
}

/// Sets the callback for received messages; only before the start.
///
/// # Safety
/// `comch_server` is NULL or a live server; the callback is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_event_msg_recv_register(
    comch_server: *mut doca_comch_server,
    recv_event_cb: doca_comch_event_msg_recv_cb_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { server(comch_server) }?;
        control.events().on_message(ctx, recv_event_cb)
    })
}

/// Sets the callback for received messages; only before the start.
///
/// # Safety
/// `comch_client` is NULL or a live client; the callback is NULL or a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_event_msg_recv_register(
    comch_client: *mut doca_comch_client,
    recv_event_cb: doca_comch_event_msg_recv_cb_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { client(comch_client) }?;
        control.events().on_message(ctx, recv_event_cb)
    })
}

/// Sets the callbacks for connecting and disconnecting clients; only before the start.
///
/// # Safety
/// `comch_server` is NULL or a live server; the callbacks are NULL or functions of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_event_connection_status_changed_register(
    comch_server: *mut doca_comch_server,
    connect_event_cb: doca_comch_event_connection_status_changed_cb_t,
    disconnect_event_cb: doca_comch_event_connection_status_changed_cb_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { server(comch_server) }?;
        control
            .events()
            .on_connections(ctx, connect_event_cb, disconnect_event_cb)
    })
}

/// Sets the callbacks for new and expired consumers of clients; only before the start.
///
/// # Safety
/// `comch_server` is NULL or a live server; the callbacks are NULL or functions of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_event_consumer_register(
    comch_server: *mut doca_comch_server,
    new_consumer_event_cb: doca_comch_event_consumer_cb_t,
    expired_consumer_event_cb: doca_comch_event_consumer_cb_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { server(comch_server) }?;
        control
            .events()
            .on_consumers(ctx, new_consumer_event_cb, expired_consumer_event_cb)
    })
}

/// Sets the callbacks for new and expired consumers of the server; only before the start.
///
/// # Safety
/// `comch_client` is NULL or a live client; the callbacks are NULL or functions of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_event_consumer_register(
    comch_client: *mut doca_comch_client,
    new_consumer_event_cb: doca_comch_event_consumer_cb_t,
    expired_consumer_event_cb: doca_comch_event_consumer_cb_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, control) = unsafe { client(comch_client) }?;
        control
            .events()
            .on_consumers(ctx, new_consumer_event_cb, expired_consumer_event_cb)
    })
}

/// `true` for a device of a DPU, which has representors. Servers run on DPUs, clients on hosts.
fn is_of_dpu(devinfo: *const doca_devinfo) -> Result<bool> {
    // SAFETY: NULL or live, as the functions below ask.
    Ok(!unsafe { borrow(devinfo) }?.model().representors.is_empty())
}

/// `DOCA_SUCCESS` for a device of a host, where clients run.
///
/// # Safety
/// `devinfo` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_cap_client_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    guard(|| match is_of_dpu(devinfo)? {
        false => Ok(()),
        // A regular result, which is not logged as an error.
        true => Err(Error::NotSupported),
    })
}

/// `DOCA_SUCCESS` for a device of a DPU, where servers run.
///
/// # Safety
/// `devinfo` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_cap_server_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    guard(|| match is_of_dpu(devinfo)? {
        true => Ok(()),
        false => Err(Error::NotSupported),
    })
}

/// Defines functions that make sense only with a DPA.
macro_rules! unsupported {
    ($($name:ident($object:ident: $ty:ty $(, $argument:ident: $argument_ty:ty)*);)+) => { $(
        /// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
        ///
        /// # Safety
        /// Safe for any pointers: they are not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($object: $ty $(, $argument: $argument_ty)*) -> doca_error_t {
            $(let _ = $argument;)*
            guard(|| {
                not_null($object as *const _)?;
                Err(Error::NotSupported.because("softdoca has no DPA"))
            })
        }
    )+ };
}

limit_functions! {
    /// Gets the maximum number of clients of one server.
    doca_comch_cap_get_max_clients(*const doca_devinfo) = max_clients(), u32;
    /// Gets the maximum length of a name in bytes, with the terminating NUL.
    doca_comch_cap_get_max_name_len(*const doca_devinfo) = MAX_NAME_LEN + 1, u32;
    /// Gets the maximum number of queued received messages.
    doca_comch_cap_get_max_recv_queue_size(*const doca_devinfo) = MAX_RECV_QUEUE, u32;
    /// Gets the maximum number of send tasks of one client or server.
    doca_comch_cap_get_max_send_tasks(*const doca_devinfo) = MAX_TASKS, u32;
}

/// Updates the values of [`doca_comch_connection_get_counter`].
///
/// # Safety
/// `comch_connection` is NULL or a live connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_connection_update_info(
    comch_connection: *mut doca_comch_connection,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(comch_connection) }?.update_traffic())
}

/// Gets a counter of control messages, as of the last update.
///
/// # Safety
/// `comch_connection` is NULL or a live connection; `counter_value` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_connection_get_counter(
    comch_connection: *const doca_comch_connection,
    counter_type: doca_comch_counter,
    counter_value: *mut u64,
) -> doca_error_t {
    guard(|| {
        let counter = match counter_type {
            DOCA_COMCH_COUNTER_SENT_MESSAGES => Counter::SentMessages,
            DOCA_COMCH_COUNTER_SENT_BYTES => Counter::SentBytes,
            DOCA_COMCH_COUNTER_RECV_MESSAGES => Counter::ReceivedMessages,
            DOCA_COMCH_COUNTER_RECV_BYTES => Counter::ReceivedBytes,
            other => {
                return Err(Error::InvalidValue
                    .because(format_args!("expected a counter of 1 to 4, got {other}")));
            }
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            let connection = borrow(comch_connection)?;
            put(counter_value, connection.traffic().seen(counter))
        }
    })
}

/// Disconnects a connection of a server. The callbacks of both sides are called.
///
/// # Safety
/// `comch_server` is NULL or a live server, `connection` NULL or a live connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_disconnect(
    comch_server: *mut doca_comch_server,
    connection: *mut doca_comch_connection,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, connection) = unsafe { (server(comch_server)?.0, borrow(connection)?) };
        if !std::ptr::eq(connection.ctx_of(Side::Server), ctx) {
            return Err(Error::InvalidValue.because("expected a connection of this server"));
        }
        connection.disconnect()
    })
}

/// Gets the server's device; the program must not close it.
///
/// # Safety
/// `comch_server` is NULL or a live server; `dev` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_get_device(
    comch_server: *const doca_comch_server,
    dev: *mut *mut doca_dev,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let driver = unsafe { borrow(comch_server) }?.driver_as::<Server>()?;
        // SAFETY: guaranteed by the caller. A handle is the pointer of its `Arc`.
        unsafe { put(dev, Arc::as_ptr(driver.device()).cast_mut().cast()) }
    })
}

/// Gets the server's representor; the program must not close it.
///
/// # Safety
/// `comch_server` is NULL or a live server; `rep` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_get_device_rep(
    comch_server: *const doca_comch_server,
    rep: *mut *mut doca_dev_rep,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let driver = unsafe { borrow(comch_server) }?.driver_as::<Server>()?;
        // SAFETY: guaranteed by the caller. A handle is the pointer of its `Arc`.
        unsafe { put(rep, Arc::as_ptr(driver.representor()).cast_mut().cast()) }
    })
}

/// Gets the client's device; the program must not close it.
///
/// # Safety
/// `comch_client` is NULL or a live client; `dev` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_get_device(
    comch_client: *const doca_comch_client,
    dev: *mut *mut doca_dev,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let driver = unsafe { borrow(comch_client) }?.driver_as::<Client>()?;
        // SAFETY: guaranteed by the caller. A handle is the pointer of its `Arc`.
        unsafe { put(dev, Arc::as_ptr(driver.device()).cast_mut().cast()) }
    })
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident($end:ident: $handle:ty) = $get:ident;)+) => { $(
        $(#[doc = $doc])+
        ///
        /// # Safety
        /// The handle is NULL or live; `size` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *const $handle, size: *mut u32) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe { put(size, $end(handle)?.1.$get()) })
        }
    )+ };
}
settings! {
    /// Gets the maximum message size of the server in bytes.
    doca_comch_server_get_max_msg_size(server: doca_comch_server) = max_message;
    /// Gets the maximum number of queued received messages of the server.
    doca_comch_server_get_recv_queue_size(server: doca_comch_server) = recv_queue;
    /// Gets the maximum message size of the client in bytes.
    doca_comch_client_get_max_msg_size(client: doca_comch_client) = max_message;
    /// Gets the maximum number of queued received messages of the client.
    doca_comch_client_get_recv_queue_size(client: doca_comch_client) = recv_queue;
}

doca_abi::check_definitions!(doca_comch_functions, super::doca_comch);

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
unsafe fn received_body<'a>(
    task: *const doca_comch_consumer_task_post_recv,
) -> Option<&'a PostRecv> {
    // SAFETY: guaranteed by the caller.
    let task = unsafe { borrow(task) }.ok()?;
    Some(&task.downcast::<PostRecv>()?.body)
}

/// A buf argument that may be NULL.
///
/// # Safety
/// `buf` is NULL or a live buf, and stays so while a task that it is given to is submitted.
unsafe fn optional_buf(buf: *const doca_buf) -> Result<Option<BufHandle>> {
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
            destroy_ctx(consumer, Error::InUse)
        }
    })
}

/// The id by which producers of the peer address this consumer.
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

/// Sets the callbacks and the number of receive tasks; only before the start.
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
        unsafe { received_body(task) }
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
            if let (Some(body), Ok(buf)) = (received_body(task), optional_buf(buf)) {
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
    guard_with(0, || {
        // SAFETY: guaranteed by the caller.
        unsafe { received_body(task) }.map_or(0, PostRecv::producer)
    })
}

/// Immediate data of the received message, valid until the task is submitted or freed; NULL if the message has none.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_get_imm_data(
    task: *const doca_comch_consumer_task_post_recv,
) -> *const u8 {
    guard_with(null(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { received_body(task) }.map_or(null(), PostRecv::immediate)
    })
}

/// Length of the immediate data in bytes; 0 if the message has none.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_task_post_recv_get_imm_data_len(
    task: *const doca_comch_consumer_task_post_recv,
) -> u32 {
    guard_with(0, || {
        // SAFETY: guaranteed by the caller.
        unsafe { received_body(task) }.map_or(0, PostRecv::immediate_len)
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

/// Sets the maximum length of received immediate data in bytes; only before the start. Longer data fails the receive task.
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

limit_functions! {
    /// Gets the maximum number of consumers of one side of a connection.
    doca_comch_consumer_cap_get_max_consumers(*const doca_devinfo) = MAX_CONSUMERS, u32;
    /// Gets the maximum number of receive tasks of one consumer.
    doca_comch_consumer_cap_get_max_num_tasks(*const doca_devinfo) = MAX_TASKS, u32;
    /// Gets the maximum size of a receive buf in bytes.
    doca_comch_consumer_cap_get_max_buf_size(*const doca_devinfo) = MAX_BUF_SIZE, u32;
    /// Gets the maximum number of bufs in a receive list.
    doca_comch_consumer_cap_get_max_buf_list_len(*const doca_devinfo) = RECEIVE_LIST_LEN, u32;
    /// Gets the maximum length of immediate data in bytes.
    doca_comch_consumer_cap_get_max_imm_data_len(*const doca_devinfo) = MAX_IMMEDIATE, u32;
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

doca_abi::check_definitions!(doca_comch_consumer_functions, super::doca_comch);

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
unsafe fn sent_body<'a>(
    task: *const doca_comch_producer_task_send,
) -> Option<&'a ProducerSendTask> {
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
            destroy_ctx(producer, Error::InUse)
        }
    })
}

/// The id by which consumers of the peer address this producer.
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

/// Sets the callbacks and the number of send tasks; only before the start.
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
        unsafe { sent_body(task) }
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
            if let (Some(body), Ok(buf)) = (sent_body(task), optional_buf(buf)) {
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
        unsafe { sent_body(task) }.map_or(0, ProducerSendTask::consumer_id)
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
        if let Some(body) = unsafe { sent_body(task) } {
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

/// Sets the task's immediate data, which is copied; not allowed while the task is in flight. Data longer than the limit
/// is ignored.
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
                (sent_body(task), bytes(imm_data, imm_data_len as usize))
            {
                // The error is logged, because the function cannot return it.
                let _ = body.set_immediate(immediate);
            }
        }
    });
}

/// The task's copy of its immediate data; NULL if it has none.
///
/// # Safety
/// `task` is NULL or a live task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_producer_task_send_get_imm_data(
    task: *const doca_comch_producer_task_send,
) -> *mut u8 {
    guard_with(null_mut(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { sent_body(task) }.map_or(null_mut(), ProducerSendTask::immediate)
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
        unsafe { sent_body(task) }.map_or(0, ProducerSendTask::immediate_len)
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

limit_functions! {
    /// Gets the maximum number of producers of one side of a connection.
    doca_comch_producer_cap_get_max_producers(*const doca_devinfo) = MAX_CONSUMERS, u32;
    /// Gets the maximum number of send tasks of one producer.
    doca_comch_producer_cap_get_max_num_tasks(*const doca_devinfo) = MAX_TASKS, u32;
    /// Gets the maximum size of a sent buf in bytes.
    doca_comch_producer_cap_get_max_buf_size(*const doca_devinfo) = MAX_BUF_SIZE, u32;
    /// Gets the maximum number of bufs in a sent list.
    doca_comch_producer_cap_get_max_buf_list_len(*const doca_devinfo) = SEND_LIST_LEN, u32;
}

unsupported! {
    doca_comch_producer_dpa_completion_attach(producer: *mut doca_comch_producer, dpa_comp: *mut doca_dpa_completion);
    doca_comch_producer_get_dpa_handle(producer: *mut doca_comch_producer, dpa_producer: *mut u64);
    doca_comch_producer_set_dev_max_num_send(producer: *mut doca_comch_producer, dev_num_send: u32);
}

doca_abi::check_definitions!(doca_comch_producer_functions, super::doca_comch);
