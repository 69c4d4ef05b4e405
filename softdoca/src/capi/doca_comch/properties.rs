//! What devices can do with Comch, what servers, clients and connections are set to, and what they count.

use std::sync::Arc;

use doca_abi::{
    DOCA_COMCH_COUNTER_RECV_BYTES, DOCA_COMCH_COUNTER_RECV_MESSAGES, DOCA_COMCH_COUNTER_SENT_BYTES,
    DOCA_COMCH_COUNTER_SENT_MESSAGES, doca_comch_client, doca_comch_connection, doca_comch_counter,
    doca_comch_server, doca_dev, doca_dev_rep, doca_devinfo,
};

use super::super::task::put_limit;
use super::super::{borrow, doca_error_t, guard, put};
use super::{client, server};
use crate::comch::{
    Client, Counter, MAX_NAME_LEN, MAX_RECV_QUEUE, MAX_TASKS, Server, Side, max_clients,
};
use crate::error::{Error, Result};

/// A device of a DPU has representors; servers are there, and clients are not.
fn is_of_dpu(devinfo: *const doca_devinfo) -> Result<bool> {
    // SAFETY: NULL or live, as the functions below ask.
    Ok(!unsafe { borrow(devinfo) }?.model().representors.is_empty())
}

/// Whether clients can be on the device: a host's.
///
/// # Safety
/// `devinfo` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_cap_client_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    guard(|| match is_of_dpu(devinfo)? {
        false => Ok(()),
        true => {
            Err(Error::NotSupported.because("no server's representor stands for a DPU's device"))
        }
    })
}

/// Whether servers can be on the device: a DPU's.
///
/// # Safety
/// `devinfo` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_cap_server_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    guard(|| match is_of_dpu(devinfo)? {
        true => Ok(()),
        false => Err(Error::NotSupported.because("the device has no representors")),
    })
}

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident = $limit:expr;)+) => { $(
        $(#[doc = $doc])+
        ///
        /// # Safety
        /// `devinfo` is NULL or live; `limit` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(devinfo: *const doca_devinfo, limit: *mut u32) -> doca_error_t {
            // SAFETY: the caller's promise.
            unsafe { put_limit(devinfo, limit, $limit as u32) }
        }
    )+ };
}
limits! {
    /// Most clients of one server.
    doca_comch_cap_get_max_clients = max_clients();
    /// Longest name in bytes, with the terminating zero.
    doca_comch_cap_get_max_name_len = MAX_NAME_LEN + 1;
    /// Largest number of received messages that may wait.
    doca_comch_cap_get_max_recv_queue_size = MAX_RECV_QUEUE;
    /// Most send tasks of one client or server.
    doca_comch_cap_get_max_send_tasks = MAX_TASKS;
}

/// Lets [`doca_comch_connection_get_counter`] answer what has been counted until now.
///
/// # Safety
/// `comch_connection` is NULL or a live connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_connection_update_info(
    comch_connection: *mut doca_comch_connection,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(comch_connection) }?.update_traffic())
}

/// A counter of control messages, as of the last update.
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
        // SAFETY: the caller's promise.
        unsafe {
            let connection = borrow(comch_connection)?;
            put(counter_value, connection.traffic().seen(counter))
        }
    })
}

/// Ends a connection of a server. Both ends' programs are told by their callbacks.
///
/// # Safety
/// `comch_server` is NULL or a live server, `connection` NULL or a live connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_disconnect(
    comch_server: *mut doca_comch_server,
    connection: *mut doca_comch_connection,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let (ctx, connection) = unsafe { (server(comch_server)?.0, borrow(connection)?) };
        if !std::ptr::eq(connection.ctx_of(Side::Server), ctx) {
            return Err(Error::InvalidValue.because("the connection is not one of this server's"));
        }
        connection.disconnect()
    })
}

/// The server's device; the program does not close it.
///
/// # Safety
/// `comch_server` is NULL or a live server; `dev` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_get_device(
    comch_server: *const doca_comch_server,
    dev: *mut *mut doca_dev,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let driver = unsafe { borrow(comch_server) }?.driver_as::<Server>()?;
        // SAFETY: the caller's promise. A handle is the pointer of its `Arc`.
        unsafe { put(dev, Arc::as_ptr(driver.device()).cast_mut().cast()) }
    })
}

/// The server's representor; the program does not close it.
///
/// # Safety
/// `comch_server` is NULL or a live server; `rep` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_server_get_device_rep(
    comch_server: *const doca_comch_server,
    rep: *mut *mut doca_dev_rep,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let driver = unsafe { borrow(comch_server) }?.driver_as::<Server>()?;
        // SAFETY: the caller's promise. A handle is the pointer of its `Arc`.
        unsafe { put(rep, Arc::as_ptr(driver.representor()).cast_mut().cast()) }
    })
}

/// The client's device; the program does not close it.
///
/// # Safety
/// `comch_client` is NULL or a live client; `dev` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_client_get_device(
    comch_client: *const doca_comch_client,
    dev: *mut *mut doca_dev,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let driver = unsafe { borrow(comch_client) }?.driver_as::<Client>()?;
        // SAFETY: the caller's promise. A handle is the pointer of its `Arc`.
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
            // SAFETY: the caller's promise.
            guard(|| unsafe { put(size, $end(handle)?.1.$get()) })
        }
    )+ };
}
settings! {
    /// Largest message in bytes that the server is set to.
    doca_comch_server_get_max_msg_size(server: doca_comch_server) = max_message;
    /// How many received messages of the server may wait.
    doca_comch_server_get_recv_queue_size(server: doca_comch_server) = recv_queue;
    /// Largest message in bytes that the client is set to.
    doca_comch_client_get_max_msg_size(client: doca_comch_client) = max_message;
    /// How many received messages of the client may wait.
    doca_comch_client_get_recv_queue_size(client: doca_comch_client) = recv_queue;
}
