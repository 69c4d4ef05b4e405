//! `doca_comch.h`: servers, clients, connections and control messages.

#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use doca_abi::{
    DOCA_COMCH_COUNTER_RECV_BYTES, DOCA_COMCH_COUNTER_RECV_MESSAGES, DOCA_COMCH_COUNTER_SENT_BYTES,
    DOCA_COMCH_COUNTER_SENT_MESSAGES, doca_comch_client, doca_comch_connection, doca_comch_counter,
    doca_comch_event_connection_status_changed_cb_t, doca_comch_event_consumer_cb_t,
    doca_comch_event_msg_recv_cb_t, doca_comch_server, doca_comch_task_send,
    doca_comch_task_send_completion_cb_t, doca_ctx, doca_data, doca_dev, doca_dev_rep,
    doca_devinfo, doca_task,
};

use super::doca_ctx::{destroy_ctx, give_ctx};
use super::task::put_limit;
use super::{Handle, Keeper, borrow, check_out, doca_error_t, guard, guard_with, put, share, text};
use crate::comch::{
    Client, Connection, ControlPath, Counter, MAX_MESSAGE_SIZE, MAX_NAME_LEN, MAX_RECV_QUEUE,
    MAX_TASKS, Server, Side, max_clients,
};
use crate::error::{Error, Result};
use crate::progress::{Ctx, TaskCallback};

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
pub(super) fn task_callback<T>(
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
            destroy_ctx(comch_server)
        }
    })
}

/// Sets the maximum message size in bytes; before the start, and to the same value on the clients' side.
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

/// Sets the maximum number of received messages queued for progress; before the start.
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
            destroy_ctx(comch_client)
        }
    })
}

/// Sets the maximum message size in bytes; before the start, and to the same value as on the server.
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

/// Sets the maximum number of received messages queued for progress; before the start.
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
        // The client keeps a reference; the handle has none.
        let handle = Arc::as_ptr(&own).cast_mut().cast();
        // SAFETY: guaranteed by the caller.
        unsafe { put(connection, handle) }
    })
}

/// Sets the callbacks and the number of a server's send tasks; before the start.
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

/// Sets the callbacks and the number of a client's send tasks; before the start.
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

/// Sets the callback for received messages; before the start.
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

/// Sets the callback for received messages; before the start.
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

/// Sets the callbacks for connecting and disconnecting clients; before the start.
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

/// Sets the callbacks for new and expired consumers of clients; before the start.
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

/// Sets the callbacks for new and expired consumers of the server; before the start.
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
        // An expected answer, which is not logged as an error.
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

/// Defines functions that write a limit common to all devices.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident = $limit:expr;)+) => { $(
        $(#[doc = $doc])+
        ///
        /// # Safety
        /// `devinfo` is NULL or live; `limit` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(devinfo: *const doca_devinfo, limit: *mut u32) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            unsafe { put_limit(devinfo, limit, $limit as u32) }
        }
    )+ };
}
pub(super) use limits;

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
pub(super) use unsupported;

limits! {
    /// Gets the maximum number of clients of one server.
    doca_comch_cap_get_max_clients = max_clients();
    /// Gets the maximum length of a name in bytes, with the terminating NUL.
    doca_comch_cap_get_max_name_len = MAX_NAME_LEN + 1;
    /// Gets the maximum number of queued received messages.
    doca_comch_cap_get_max_recv_queue_size = MAX_RECV_QUEUE;
    /// Gets the maximum number of send tasks of one client or server.
    doca_comch_cap_get_max_send_tasks = MAX_TASKS;
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
