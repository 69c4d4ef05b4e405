//! `doca_rdma.h`: RDMA instances, connections and tasks; and `doca_rdma_bridge.h`, the bridge to rdma-core, which
//! supports only real devices.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::rc::Rc;
use std::sync::Arc;

use doca_abi::{
    doca_be32_t, doca_buf, doca_ctx, doca_data, doca_dev, doca_devinfo, doca_dpa_completion,
    doca_gpu_dev_rdma, doca_mmap, doca_mtu_size, doca_rdma, doca_rdma_addr, doca_rdma_addr_type,
    doca_rdma_connection, doca_rdma_connection_disconnection_cb_t,
    doca_rdma_connection_established_cb_t, doca_rdma_connection_failure_cb_t,
    doca_rdma_connection_request_cb_t, doca_rdma_gid, doca_rdma_opcode,
    doca_rdma_task_atomic_cmp_swp, doca_rdma_task_atomic_fetch_add, doca_rdma_task_read,
    doca_rdma_task_receive, doca_rdma_task_remote_net_sync_event_get,
    doca_rdma_task_remote_net_sync_event_notify_add,
    doca_rdma_task_remote_net_sync_event_notify_set, doca_rdma_task_send, doca_rdma_task_send_imm,
    doca_rdma_task_write, doca_rdma_task_write_imm, doca_rdma_transport_type,
    doca_sync_event_remote_net, ibv_pd, rdma_cm_id,
};

use super::doca_pe::{destroy_ctx, give_ctx, share_ctx};
use super::instance::{limit_functions, task_handles};
use super::{
    Handle, Keeper, Slot, borrow, buf, bytes, check_out, doca_error_t, get, give, guard,
    guard_with, not_null, put, put_task, reclaim, share, task_functions, task_kind, task_slots,
};
use crate::error::{Error, Result};
use crate::progress::{Ctx, TaskOf, TaskPool};
use crate::rdma::{
    Address, Arguments, Connecting, Connection, ConnectionCallbacks, Fabric, Operation, Rdma,
    Receive, Received, Work, check_transport_type, gids, limits,
};
use crate::sync_event::RemoteEvent;

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_rdma {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: connection handles are pointers to connections that the instance owns until its run ends.
unsafe impl Handle for doca_rdma_connection {
    type Engine = Connection;
}

task_handles! { Receive: doca_rdma_task_receive }
task_handles! {
    Work:
    doca_rdma_task_send,
    doca_rdma_task_send_imm,
    doca_rdma_task_read,
    doca_rdma_task_write,
    doca_rdma_task_write_imm,
    doca_rdma_task_atomic_cmp_swp,
    doca_rdma_task_atomic_fetch_add,
    doca_rdma_task_remote_net_sync_event_get,
    doca_rdma_task_remote_net_sync_event_notify_set,
    doca_rdma_task_remote_net_sync_event_notify_add
}

/// Allocates a task that acts on a connection.
///
/// # Safety
/// `rdma` is NULL or a live instance, not used by another thread during the call; `task` is NULL or writable.
/// `connection` may be any pointer.
unsafe fn allocate<H: Handle<Engine = TaskOf<Work>>>(
    rdma: *mut doca_rdma,
    connection: *mut doca_rdma_connection,
    operation: Operation,
    arguments: Arguments,
    user_data: doca_data,
    task: *mut *mut H,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        put_task(task, || {
            with(rdma, |ctx, rdma| {
                rdma.allocate_work(ctx, connection.cast(), operation, arguments, user_data)
            })
        })
    }
}

/// Sets a task's connection to another one of its instance.
fn set_connection(work: &Work, connection: *mut doca_rdma_connection) -> Result<()> {
    let connection = {
        let current = work.connection().ok_or(Error::Unexpected)?;
        let rdma = current.ctx().driver_as::<Rdma>()?;
        rdma.connection(current.ctx(), connection.cast::<Connection>())?
    };
    work.set_connection(connection);
    Ok(())
}

/// Defines the functions that set and get a task's connection.
macro_rules! connection_functions {
    ($task:ident: $set:ident, $get:ident) => {
        /// Sets the task's connection to another one of its instance; not while it is in flight. Other pointers are
        /// ignored.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call. `rdma_connection` may be any
        /// pointer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(
            task: *mut doca_abi::$task,
            rdma_connection: *mut doca_abi::doca_rdma_connection,
        ) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                $crate::capi::set(task, |work| {
                    $crate::capi::doca_rdma::set_connection(work, rdma_connection)
                });
            }
        }

        /// The task's connection; NULL for NULL.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            task: *const doca_abi::$task,
        ) -> *const doca_abi::doca_rdma_connection {
            // SAFETY: guaranteed by the caller.
            unsafe {
                $crate::capi::get(task, |work| {
                    let connection = work.connection();
                    connection.map_or(std::ptr::null(), |it| std::rc::Rc::as_ptr(&it).cast())
                })
            }
        }
    };
}

/// Runs `action` on the instance behind a handle.
///
/// # Safety
/// `rdma` is NULL or a live instance, not used by another thread during the call.
unsafe fn with<T>(
    rdma: *const doca_rdma,
    action: impl FnOnce(&Ctx, &Rdma) -> Result<T>,
) -> Result<T> {
    // SAFETY: guaranteed by the caller.
    let ctx = unsafe { borrow(rdma) }?;
    action(ctx, ctx.driver_as::<Rdma>()?)
}

/// Creates an instance that is connected as the release has it.
///
/// # Safety
/// `dev` is NULL or an open device; `rdma` is NULL or writable.
pub(super) unsafe fn create(
    dev: *mut doca_dev,
    rdma: *mut *mut doca_rdma,
    connecting: Connecting,
) -> doca_error_t {
    guard(|| {
        check_out(rdma)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(rdma, give_ctx(Rdma::context(share(dev)?, connecting))) }
    })
}

/// Creates an RDMA instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `rdma` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_create(
    dev: *mut doca_dev,
    rdma: *mut *mut doca_rdma,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { create(dev, rdma, Connecting::WhileRunning) }
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `rdma` is NULL or a live instance; on success it and its connections are dead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_destroy(rdma: *mut doca_rdma) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { destroy_ctx(rdma, Error::BadState) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_as_ctx(rdma: *mut doca_rdma) -> *mut doca_ctx {
    rdma.cast()
}

/// Sets the callbacks for connection state changes. The callback for requests may be NULL.
///
/// # Safety
/// As [`with`]; the callbacks are NULL or functions of their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_set_connection_state_callbacks(
    rdma: *mut doca_rdma,
    request_cb: doca_rdma_connection_request_cb_t,
    established_cb: doca_rdma_connection_established_cb_t,
    failure_cb: doca_rdma_connection_failure_cb_t,
    disconnect_cb: doca_rdma_connection_disconnection_cb_t,
) -> doca_error_t {
    let callbacks = ConnectionCallbacks {
        request: request_cb,
        established: established_cb,
        failure: failure_cb,
        disconnection: disconnect_cb,
    };
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { with(rdma, |ctx, rdma| rdma.set_callbacks(ctx, callbacks)) })
}

/// Defines setters and getters of properties: `set, get
macro_rules! properties {
    ($($set:ident, $get:ident($rdma:ty) => $what:literal: $c:ty; $apply:expr, $ask:expr;)+) => { $(
        #[doc = concat!("Sets ", $what, "; before the start.")]
        ///
        /// # Safety
        /// `rdma` is NULL or a live instance, not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(rdma: *mut doca_rdma, value: $c) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe { with(rdma, |ctx, rdma| $apply(ctx, rdma, value)) })
        }

        #[doc = concat!("Tells ", $what, ".")]
        ///
        /// # Safety
        /// `rdma` is NULL or a live instance, not used by another thread during the call; `value` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(rdma: $rdma, value: *mut $c) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe { put(value, with(rdma, |_, rdma| Ok($ask(rdma)))?) })
        }
    )+ };
}

/// Changes the network configuration of an idle instance.
fn fabric<T>(
    set: impl Fn(&Fabric, T) -> crate::error::Result<()>,
) -> impl Fn(&Ctx, &Rdma, T) -> crate::error::Result<()> {
    move |ctx, rdma, value| {
        ctx.expect_idle("set properties of its RDMA instance")?;
        set(rdma.fabric(), value)
    }
}

properties! {
    doca_rdma_set_permissions, doca_rdma_get_permissions(*mut doca_rdma)
        => "the permissions of peers": u32;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_permissions(ctx, value), Rdma::permissions;
    doca_rdma_set_transport_type, doca_rdma_get_transport_type(*const doca_rdma)
        => "the transport, `DOCA_RDMA_TRANSPORT_TYPE_RC` or `DOCA_RDMA_TRANSPORT_TYPE_DC`": doca_rdma_transport_type;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_transport_type(ctx, value), Rdma::transport_type;
    doca_rdma_set_max_num_connections, doca_rdma_get_max_num_connections(*mut doca_rdma)
        => "the maximum number of connections": u16;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_max_connections(ctx, value), Rdma::max_connections;
    doca_rdma_set_max_send_buf_list_len, doca_rdma_get_max_send_buf_list_len(*const doca_rdma)
        => "the maximum number of bufs in the local list of a task": u32;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_send_list_len(ctx, value), Rdma::send_list_len;
    doca_rdma_task_receive_set_dst_buf_list_len, doca_rdma_task_receive_get_dst_buf_list_len(*const doca_rdma)
        => "the maximum number of bufs in the list of a receive": u32;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_receive_list_len(ctx, value), Rdma::receive_list_len;
    doca_rdma_set_gid_index, doca_rdma_get_gid_index(*const doca_rdma)
        => "the index of the GID, which has no effect here": u32;
        fabric(Fabric::set_gid_index), |rdma: &Rdma| rdma.fabric().gid_index.get();
    doca_rdma_set_send_queue_size, doca_rdma_get_send_queue_size(*const doca_rdma)
        => "the maximum number of tasks in flight on a connection, rounded up to a power of 2; without a value, that of the \
            configured tasks": u32;
        fabric(Fabric::set_send_queue_size), Rdma::send_queue_size;
    doca_rdma_set_recv_queue_size, doca_rdma_get_recv_queue_size(*const doca_rdma)
        => "the size of the receive queue, rounded up to a power of 2": u32;
        fabric(Fabric::set_recv_queue_size), |rdma: &Rdma| rdma.fabric().recv_queue_size.get();
    doca_rdma_set_mtu, doca_rdma_get_mtu(*const doca_rdma)
        => "the MTU, which has no effect here": doca_mtu_size;
        fabric(Fabric::set_mtu), |rdma: &Rdma| rdma.fabric().mtu.get();
    doca_rdma_set_grh_enabled, doca_rdma_get_grh_enabled(*const doca_rdma)
        => "1 if packets have a global routing header, as required on Ethernet": u8;
        fabric(Fabric::set_grh_enabled), |rdma: &Rdma| rdma.fabric().grh_enabled.get();
    doca_rdma_set_sl, doca_rdma_get_sl(*const doca_rdma)
        => "the service level, which has no effect here": u32;
        fabric(Fabric::set_service_level), |rdma: &Rdma| rdma.fabric().service_level.get();
    doca_rdma_set_rnr_retry_count, doca_rdma_get_rnr_retry_count(*const doca_rdma)
        => "the number of retries for a peer without posted receives, every 0.66 s; 7 is for ever": u8;
        fabric(Fabric::set_rnr_retry_count), |rdma: &Rdma| rdma.fabric().rnr_retry_count.get();
    doca_rdma_set_connection_request_timeout, doca_rdma_get_connection_request_timeout(*const doca_rdma)
        => "the time for resolving an address, in milliseconds; softdoca needs none": u16;
        fabric(Fabric::set_request_timeout), |rdma: &Rdma| rdma.fabric().request_timeout.get();
}

limit_functions! {
    /// Gets the maximum size of the send queue.
    doca_rdma_cap_get_max_send_queue_size(*const doca_devinfo) = limits::QUEUE_SIZE, u32;
    /// Gets the maximum size of the receive queue.
    doca_rdma_cap_get_max_recv_queue_size(*const doca_devinfo) = limits::QUEUE_SIZE, u32;
    /// Gets the maximum number of bufs in the local list of a task.
    doca_rdma_cap_get_max_send_buf_list_len(*const doca_devinfo) = limits::BUF_LIST_LEN, u32;
    /// Gets the maximum message size in bytes.
    doca_rdma_cap_get_max_message_size(*const doca_devinfo) = limits::MESSAGE_SIZE, u32;
    /// Gets the number of GIDs of a device.
    doca_rdma_cap_get_gid_table_size(*const doca_devinfo) = limits::GIDS, u32;
}

/// Gets the maximum number of bufs in the list of a receive.
///
/// # Safety
/// `max_buf_list_len` is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_cap_task_receive_get_max_dst_buf_list_len(
    devinfo: *const doca_devinfo,
    transport_type: doca_rdma_transport_type,
    max_buf_list_len: *mut u32,
) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        // The documentation specifies no error for a type that is not supported.
        check_transport_type(transport_type).map_err(|_| Error::InvalidValue)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(max_buf_list_len, limits::BUF_LIST_LEN) }
    })
}

/// `DOCA_SUCCESS` for `DOCA_RDMA_TRANSPORT_TYPE_RC` and `DOCA_RDMA_TRANSPORT_TYPE_DC`, else `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_cap_transport_type_is_supported(
    devinfo: *const doca_devinfo,
    transport_type: doca_rdma_transport_type,
) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        check_transport_type(transport_type)
    })
}

/// Copies `num_entries` GIDs of a device, starting at `start_index`: the link-local GID, then the GID of its IPv4
/// address.
///
/// # Safety
/// `devinfo` is NULL or live; `gid_array` is NULL or writable for `num_entries` GIDs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_cap_get_gid(
    devinfo: *const doca_devinfo,
    start_index: u32,
    num_entries: u32,
    gid_array: *mut doca_rdma_gid,
) -> doca_error_t {
    guard(|| {
        check_out(gid_array)?;
        // SAFETY: guaranteed by the caller.
        let gids = gids(unsafe { borrow(devinfo) }?.model());
        let end = u64::from(start_index) + u64::from(num_entries);
        if num_entries == 0 || end > gids.len() as u64 {
            return Err(Error::InvalidValue.because(format_args!(
                "the table has {} GIDs, got {num_entries} from index {start_index} on",
                gids.len()
            )));
        }
        for (place, gid) in gids[start_index as usize..end as usize].iter().enumerate() {
            // SAFETY: guaranteed by the caller; `place` is below `num_entries`.
            unsafe { gid_array.add(place).write(doca_rdma_gid { raw: *gid }) };
        }
        Ok(())
    })
}

/// Creates a connection and returns its description for the peer. The description is valid as long as the connection:
/// until the instance is started again or destroyed.
///
/// # Safety
/// `rdma` is NULL or a live instance, not used by another thread during the call; the other arguments are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_export(
    rdma: *mut doca_rdma,
    details: *mut *const c_void,
    details_size: *mut usize,
    rdma_connection: *mut *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| {
        check_out(details)?;
        check_out(details_size)?;
        check_out(rdma_connection)?;
        // SAFETY: guaranteed by the caller.
        let ctx = unsafe { share_ctx(rdma) }?;
        let connection = ctx.driver_as::<Rdma>()?.export(&ctx)?;
        let description = connection.details();
        // SAFETY: guaranteed by the caller. The instance keeps the connection.
        unsafe {
            put(details, description.as_ptr().cast())?;
            put(details_size, description.len())?;
            put(rdma_connection, Rc::as_ptr(&connection).cast_mut().cast())
        }
    })
}

/// Connects to the peer whose description was received. The peer's program need not call progress.
///
/// # Safety
/// As [`doca_rdma_export`]; `details` is NULL or readable for `details_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connect(
    rdma: *mut doca_rdma,
    details: *const c_void,
    details_size: usize,
    rdma_connection: *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, details) =
            unsafe { (share_ctx(rdma)?, bytes(details.cast::<u8>(), details_size)?) };
        let rdma = ctx.driver_as::<Rdma>()?;
        let connection = rdma.connection(&ctx, rdma_connection.cast::<Connection>())?;
        rdma.connect(&ctx, &connection, details)
    })
}

/// Disconnects a connection; its tasks in flight fail. Has no effect on a closed connection.
///
/// # Safety
/// `rdma_connection` is NULL or a connection of a live instance, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_disconnect(
    rdma_connection: *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let ctx = unsafe { borrow(rdma_connection) }?.ctx();
        let rdma = ctx.driver_as::<Rdma>()?;
        let connection = rdma.connection(ctx, rdma_connection.cast::<Connection>())?;
        rdma.disconnect(ctx, &connection);
        Ok(())
    })
}

/// Sets the user data for connection callbacks.
///
/// # Safety
/// As [`doca_rdma_connection_disconnect`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_set_user_data(
    rdma_connection: *mut doca_rdma_connection,
    connection_user_data: doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(rdma_connection) }?.set_user_data(connection_user_data);
        Ok(())
    })
}

/// Gets the user data for connection callbacks; 0 by default.
///
/// # Safety
/// As [`doca_rdma_connection_disconnect`]; `connection_user_data` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_get_user_data(
    rdma_connection: *const doca_rdma_connection,
    connection_user_data: *mut doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(connection_user_data, borrow(rdma_connection)?.user_data()) })
}

/// Gets the number of the connection, which is unique within its instance.
///
/// # Safety
/// As [`doca_rdma_connection_disconnect`]; `connection_id` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_get_id(
    rdma_connection: *const doca_rdma_connection,
    connection_id: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(connection_id, borrow(rdma_connection)?.id()) })
}

// SAFETY: addresses are given out by `give`.
unsafe impl Handle for doca_rdma_addr {
    type Engine = Address;

    const KEEPER: Keeper = Keeper::Arc;
}

/// Creates an address: an IPv4 or IPv6 address or a GID as text, and a port.
///
/// # Safety
/// `address` is NULL or a string; `addr` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_addr_create(
    addr_type: doca_rdma_addr_type,
    address: *const c_char,
    port: u16,
    addr: *mut *mut doca_rdma_addr,
) -> doca_error_t {
    guard(|| {
        check_out(addr)?;
        not_null(address)?;
        // SAFETY: not NULL, and a string guaranteed by the caller.
        let text = unsafe { CStr::from_ptr(address) };
        let address = Address::new(addr_type, text, port)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(addr, give(Arc::new(address))) }
    })
}

/// Destroys an address; `DOCA_ERROR_BAD_STATE` while a connection uses it, `DOCA_ERROR_NOT_PERMITTED` for the address
/// of a connection's peer.
///
/// # Safety
/// `addr` is NULL or a live address; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_addr_destroy(addr: *mut doca_rdma_addr) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let shared = unsafe { share(addr) }?;
        if shared.is_peer() {
            return Err(Error::NotPermitted
                .because("the address of a connection's peer is destroyed with the connection"));
        }
        // The handle's reference and `shared`.
        if Arc::strong_count(&shared) > 2 {
            return Err(Error::BadState.because("an RDMA connection uses the address"));
        }
        // SAFETY: guaranteed by the caller.
        drop(unsafe { reclaim(addr) }?);
        Ok(())
    })
}

/// Gets the parameters of an address. The text is valid as long as the address.
///
/// # Safety
/// `addr` is NULL or a live address; the other arguments are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_addr_get_params(
    addr: *mut doca_rdma_addr,
    addr_type: *mut doca_rdma_addr_type,
    address: *mut *const c_char,
    port: *mut u16,
) -> doca_error_t {
    guard(|| {
        check_out(addr_type)?;
        check_out(address)?;
        check_out(port)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let addr = borrow(addr)?;
            put(addr_type, addr.kind())?;
            put(address, addr.text().as_ptr())?;
            put(port, addr.port())
        }
    })
}

/// Listens for connection requests at a port of the instance's device.
///
/// # Safety
/// `rdma` is NULL or a live instance, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_start_listen_to_port(
    rdma: *mut doca_rdma,
    port: u16,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { with(rdma, |ctx, rdma| rdma.listen(ctx, port)) })
}

/// Stops listening at a port. Existing connections remain open.
///
/// # Safety
/// As [`doca_rdma_start_listen_to_port`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_stop_listen_to_port(
    rdma: *mut doca_rdma,
    port: u16,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { with(rdma, |ctx, rdma| rdma.stop_listening(ctx, port)) })
}

/// Requests a connection to the instance that listens at an address. Callbacks report the result.
///
/// # Safety
/// As [`doca_rdma_start_listen_to_port`]; `addr` is NULL or a live address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connect_to_addr(
    rdma: *mut doca_rdma,
    addr: *mut doca_rdma_addr,
    connection_user_data: doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (ctx, address) = unsafe { (share_ctx(rdma)?, share(addr)?) };
        let rdma = ctx.driver_as::<Rdma>()?;
        rdma.connect_to_address(&ctx, &address, connection_user_data)
    })
}

/// Runs `action` on the instance of a connection.
///
/// # Safety
/// `connection` is NULL or a connection of a live instance, not used by another thread during the call.
unsafe fn with_connection(
    connection: *const doca_rdma_connection,
    action: impl FnOnce(&Ctx, &Rdma, &std::rc::Rc<Connection>) -> Result<()>,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let ctx = unsafe { borrow(connection) }?.ctx();
    let rdma = ctx.driver_as::<Rdma>()?;
    let connection = rdma.connection(ctx, connection.cast::<Connection>())?;
    action(ctx, rdma, &connection)
}

/// Accepts a connection request; the established callback follows.
///
/// # Safety
/// `rdma_connection` is NULL or a connection of a live instance, not used by another thread during the call;
/// `private_data` is NULL or readable for `private_data_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_accept(
    rdma_connection: *mut doca_rdma_connection,
    private_data: *mut c_void,
    private_data_len: u8,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        let len = usize::from(private_data_len);
        let private_data = bytes(private_data.cast_const().cast::<u8>(), len)?;
        with_connection(rdma_connection, |ctx, rdma, connection| {
            rdma.accept(ctx, connection, private_data)
        })
    })
}

/// Rejects a connection request; the peer's failure callback is called.
///
/// # Safety
/// As [`doca_rdma_connection_accept`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_reject(
    rdma_connection: *mut doca_rdma_connection,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        with_connection(rdma_connection, |ctx, rdma, connection| {
            rdma.reject(ctx, connection)
        })
    })
}

/// Gets the address to which a connection was made, valid until it is closed; for an accepted connection, the peer's
/// address with the local port, valid as long as the connection's handle. NULL for an exported connection.
///
/// # Safety
/// As [`doca_rdma_connection_accept`]; `addr` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_get_addr(
    rdma_connection: *const doca_rdma_connection,
    addr: *mut *mut doca_rdma_addr,
) -> doca_error_t {
    guard(|| {
        check_out(addr)?;
        // SAFETY: guaranteed by the caller.
        let address = unsafe { borrow(rdma_connection) }?.address();
        // The program cannot destroy its address before the connection is closed; a peer's address belongs to the
        // connection.
        let handle = address.map_or(std::ptr::null(), |address| Arc::as_ptr(&address));
        // SAFETY: guaranteed by the caller.
        unsafe { put(addr, handle.cast_mut().cast()) }
    })
}

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

/// Allocates a task that sends a buf's data; without a buf, an empty message.
///
/// # Safety
/// As [`doca_rdma_task_send_set_conf`]; `src_buf` is NULL or a buf that stays valid while the task is in flight; `task`
/// is NULL or writable. `rdma_connection` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_send_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    src_buf: *const doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_send,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
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

/// Allocates a task that sends a buf's data and an immediate value, whose bytes arrive unchanged.
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
    // SAFETY: guaranteed by the caller.
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

fn receives(rdma: &Rdma) -> &TaskPool {
    &rdma.pools().receive
}

task_kind! {
    doca_rdma_task_receive of doca_rdma, pool receives;
    doca_rdma_cap_task_receive_is_supported,
    doca_rdma_task_receive_set_conf(doca_rdma_task_receive_completion_cb_t),
    doca_rdma_task_receive_as_task
}

task_slots! {
    doca_rdma_task_receive:
    doca_rdma_task_receive_set_dst_buf, doca_rdma_task_receive_get_dst_buf
        => "destination": destination as *mut doca_buf;
}

/// Allocates a task that receives one message. Without a buf it receives messages without data, and immediates of
/// writes.
///
/// # Safety
/// As [`doca_rdma_task_receive_set_conf`]; `dst_buf` is NULL or a buf that stays valid while the task is in flight;
/// `task` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_allocate_init(
    rdma: *mut doca_rdma,
    dst_buf: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_receive,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            put_task(task, || {
                with(rdma, |ctx, rdma| {
                    rdma.allocate_receive(ctx, buf(dst_buf), user_data)
                })
            })
        }
    })
}

/// The result of a completed task; `None` for NULL.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
unsafe fn received(task: *const doca_rdma_task_receive) -> Option<Received> {
    guard_with(None, || {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(task) }
            .ok()
            .map(|task| task.body.received())
    })
}

/// Kind of the received message.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_get_result_opcode(
    task: *const doca_rdma_task_receive,
) -> doca_rdma_opcode {
    // SAFETY: guaranteed by the caller.
    unsafe { received(task) }.map_or(0, |received| received.opcode as doca_rdma_opcode)
}

/// Number of bytes received, or written by a write with immediate.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_get_result_len(
    task: *const doca_rdma_task_receive,
) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { received(task) }.map_or(0, |received| received.len)
}

/// The immediate value, with its bytes as sent; 0 if the message has none.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_get_result_immediate_data(
    task: *const doca_rdma_task_receive,
) -> doca_be32_t {
    // SAFETY: guaranteed by the caller.
    unsafe { received(task) }.map_or(0, |received| received.immediate)
}

/// The connection of the received message; NULL before the task has completed.
///
/// # Safety
/// As [`doca_rdma_task_receive_get_dst_buf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_receive_get_result_rdma_connection(
    task: *const doca_rdma_task_receive,
) -> *const doca_rdma_connection {
    // SAFETY: guaranteed by the caller.
    unsafe { received(task) }.map_or(std::ptr::null(), |received| received.connection.cast())
}

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

/// Allocates a task that appends a local buf's data to a remote buf's data.
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
    // SAFETY: guaranteed by the caller.
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

/// Allocates a task that writes like that of [`doca_rdma_task_write_allocate_init`] and then sends an immediate value,
/// which consumes one of the peer's receives.
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
    // SAFETY: guaranteed by the caller.
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

/// Allocates a task that appends the data of a remote buf to a local buf's data.
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
    // SAFETY: guaranteed by the caller.
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

/// Number of bytes that a successful task has read.
///
/// # Safety
/// `task` is NULL or a live task, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_read_get_result_len(
    task: *const doca_rdma_task_read,
) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { get(task, Work::result_len) }
}

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

/// Allocates a task that replaces the first 8 bytes of a remote buf's data by `swap_data` if they are `cmp_data`, and
/// appends the old bytes to a local buf's data. Values are in the machine's byte order.
///
/// # Safety
/// As [`doca_rdma_task_atomic_cmp_swp_set_conf`]; the bufs are NULL or stay valid while the task is in flight; `task`
/// is NULL or writable. `rdma_connection` may be any pointer.
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
    // SAFETY: guaranteed by the caller.
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

/// Allocates a task that adds `add_data` to the first 8 bytes of a remote buf's data, and appends the old bytes to a
/// local buf's data. Values are in the machine's byte order.
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
    // SAFETY: guaranteed by the caller.
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

type EventSlot = RefCell<Option<Arc<RemoteEvent>>>;

fn event_handle(slot: &EventSlot) -> *mut doca_sync_event_remote_net {
    let event = slot.borrow();
    event
        .as_ref()
        .map_or(std::ptr::null(), Arc::as_ptr)
        .cast_mut()
        .cast()
}

/// Adds a reference to the event behind a handle; `None` for NULL.
///
/// # Safety
/// `handle` is NULL or a live remote event.
unsafe fn event(handle: *const doca_sync_event_remote_net) -> Option<Arc<RemoteEvent>> {
    // SAFETY: guaranteed by the caller.
    (!handle.is_null())
        .then(|| unsafe { share(handle) }.ok())
        .flatten()
}

impl Slot<*const doca_sync_event_remote_net> for EventSlot {
    unsafe fn put(&self, value: *const doca_sync_event_remote_net) {
        // SAFETY: guaranteed by the caller.
        self.replace(unsafe { event(value) });
    }

    fn value(&self) -> *const doca_sync_event_remote_net {
        event_handle(self)
    }
}

impl Slot<*mut doca_sync_event_remote_net> for EventSlot {
    unsafe fn put(&self, value: *mut doca_sync_event_remote_net) {
        // SAFETY: guaranteed by the caller.
        self.replace(unsafe { event(value) });
    }

    fn value(&self) -> *mut doca_sync_event_remote_net {
        event_handle(self)
    }
}

fn gets(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::EventGet)
}

fn sets(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::EventSet)
}

fn adds(rdma: &Rdma) -> &TaskPool {
    rdma.pools().of(Operation::EventAdd)
}

task_kind! {
    doca_rdma_task_remote_net_sync_event_get of doca_rdma, pool gets;
    doca_rdma_cap_task_remote_net_sync_event_get_is_supported,
    doca_rdma_task_remote_net_sync_event_get_set_conf(doca_rdma_task_remote_net_sync_event_get_completion_cb_t),
    doca_rdma_task_remote_net_sync_event_get_as_task
}

task_slots! {
    doca_rdma_task_remote_net_sync_event_get:
    doca_rdma_task_remote_net_sync_event_get_set_dst_buf, doca_rdma_task_remote_net_sync_event_get_get_dst_buf
        => "destination": destination as *mut doca_buf;
    doca_rdma_task_remote_net_sync_event_get_set_sync_event, doca_rdma_task_remote_net_sync_event_get_get_sync_event
        => "remote event": event as *const doca_sync_event_remote_net;
}

connection_functions! {
    doca_rdma_task_remote_net_sync_event_get:
    doca_rdma_task_remote_net_sync_event_get_set_rdma_connection,
    doca_rdma_task_remote_net_sync_event_get_get_rdma_connection
}

/// Allocates a task that appends the 8 bytes of a remote event's value to a local buf's data.
///
/// # Safety
/// As [`doca_rdma_task_remote_net_sync_event_get_set_conf`]; `event` is NULL or live; the buf is NULL or stays valid while
/// the task is in flight; `task` is NULL or writable. `rdma_connection` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_remote_net_sync_event_get_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    event: *const doca_sync_event_remote_net,
    dst_buf: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_remote_net_sync_event_get,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        let arguments = Arguments {
            event: self::event(event),
            destination: buf(dst_buf),
            ..Arguments::default()
        };
        let (connection, operation) = (rdma_connection, Operation::EventGet);
        allocate(rdma, connection, operation, arguments, user_data, task)
    })
}

/// Number of bytes that a successful task has read: 8.
///
/// # Safety
/// `task` is NULL or a live task, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_remote_net_sync_event_get_get_result_len(
    task: *const doca_rdma_task_remote_net_sync_event_get,
) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { get(task, Work::result_len) }
}

task_kind! {
    doca_rdma_task_remote_net_sync_event_notify_set of doca_rdma, pool sets;
    doca_rdma_cap_task_remote_net_sync_event_notify_set_is_supported,
    doca_rdma_task_remote_net_sync_event_notify_set_set_conf(doca_rdma_task_remote_net_sync_event_notify_set_completion_cb_t),
    doca_rdma_task_remote_net_sync_event_notify_set_as_task
}

task_slots! {
    doca_rdma_task_remote_net_sync_event_notify_set:
    doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf, doca_rdma_task_remote_net_sync_event_notify_set_get_src_buf
        => "source": source as *const doca_buf;
    doca_rdma_task_remote_net_sync_event_notify_set_set_sync_event, doca_rdma_task_remote_net_sync_event_notify_set_get_sync_event
        => "remote event": event as *mut doca_sync_event_remote_net;
}

connection_functions! {
    doca_rdma_task_remote_net_sync_event_notify_set:
    doca_rdma_task_remote_net_sync_event_notify_set_set_rdma_connection,
    doca_rdma_task_remote_net_sync_event_notify_set_get_rdma_connection
}

/// Allocates a task that sets a remote event to the 8 bytes of a local buf's data.
///
/// # Safety
/// As [`doca_rdma_task_remote_net_sync_event_get_allocate_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    event: *mut doca_sync_event_remote_net,
    src_buf: *const doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_remote_net_sync_event_notify_set,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        let arguments = Arguments {
            event: self::event(event),
            source: buf(src_buf),
            ..Arguments::default()
        };
        let (connection, operation) = (rdma_connection, Operation::EventSet);
        allocate(rdma, connection, operation, arguments, user_data, task)
    })
}

task_kind! {
    doca_rdma_task_remote_net_sync_event_notify_add of doca_rdma, pool adds;
    doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported,
    doca_rdma_task_remote_net_sync_event_notify_add_set_conf(doca_rdma_task_remote_net_sync_event_notify_add_completion_cb_t),
    doca_rdma_task_remote_net_sync_event_notify_add_as_task
}

task_slots! {
    doca_rdma_task_remote_net_sync_event_notify_add:
    doca_rdma_task_remote_net_sync_event_notify_add_set_result_buf, doca_rdma_task_remote_net_sync_event_notify_add_get_result_buf
        => "buf for the old value": result as *mut doca_buf;
    doca_rdma_task_remote_net_sync_event_notify_add_set_add_data, doca_rdma_task_remote_net_sync_event_notify_add_get_add_data
        => "value to add": operand as u64;
    doca_rdma_task_remote_net_sync_event_notify_add_set_sync_event, doca_rdma_task_remote_net_sync_event_notify_add_get_sync_event
        => "remote event": event as *mut doca_sync_event_remote_net;
}

connection_functions! {
    doca_rdma_task_remote_net_sync_event_notify_add:
    doca_rdma_task_remote_net_sync_event_notify_add_set_rdma_connection,
    doca_rdma_task_remote_net_sync_event_notify_add_get_rdma_connection
}

/// Allocates a task that adds `add_data` to a remote event, and appends the old value to a local buf's data.
///
/// # Safety
/// As [`doca_rdma_task_remote_net_sync_event_get_allocate_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(
    rdma: *mut doca_rdma,
    rdma_connection: *mut doca_rdma_connection,
    event: *mut doca_sync_event_remote_net,
    result_buf: *mut doca_buf,
    add_data: u64,
    user_data: doca_data,
    task: *mut *mut doca_rdma_task_remote_net_sync_event_notify_add,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        let arguments = Arguments {
            event: self::event(event),
            result: buf(result_buf),
            operand: add_data,
            ..Arguments::default()
        };
        let (connection, operation) = (rdma_connection, Operation::EventAdd);
        allocate(rdma, connection, operation, arguments, user_data, task)
    })
}

fn unsupported(rdma: *mut doca_rdma, what: &str) -> Result<()> {
    not_null(rdma)?;
    Err(Error::NotSupported.because(format_args!("softdoca has no {what}")))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_get_dpa_handle(
    rdma: *mut doca_rdma,
    _dpa_rdma: *mut u64,
) -> doca_error_t {
    guard(|| unsupported(rdma, "DPA"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_dpa_completion_attach(
    rdma: *mut doca_rdma,
    _dpa_comp: *mut doca_dpa_completion,
) -> doca_error_t {
    guard(|| unsupported(rdma, "DPA"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_get_gpu_handle(
    rdma: *mut doca_rdma,
    _gpu_rdma: *mut *mut doca_gpu_dev_rdma,
) -> doca_error_t {
    guard(|| unsupported(rdma, "GPU data path"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca's devices do not exist in rdma-core.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_prepare_connection(
    rdma: *mut doca_rdma,
    _cm_id: *mut rdma_cm_id,
    _rdma_connection: *mut *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| unsupported(rdma, "bridge to rdma-core"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca's devices do not exist in rdma-core.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_accept(
    rdma: *mut doca_rdma,
    _private_data: *mut c_void,
    _private_data_len: u8,
    _rdma_connection: *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| unsupported(rdma, "bridge to rdma-core"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca's devices do not exist in rdma-core.
///
/// # Safety
/// As [`doca_rdma_get_dpa_handle`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_established(
    rdma: *mut doca_rdma,
    _rdma_connection: *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| unsupported(rdma, "bridge to rdma-core"))
}

doca_abi::check_definitions!(doca_rdma_functions, crate::capi::doca_rdma);

fn bridge_unsupported<O, T>(object: *const O, out: *mut T) -> Result<()> {
    not_null(object)?;
    check_out(out)?;
    Err(Error::NotSupported.because("softdoca's devices and memory do not exist in rdma-core"))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_get_dev_pd(
    dev: *const doca_dev,
    pd: *mut *mut ibv_pd,
) -> doca_error_t {
    guard(|| bridge_unsupported(dev, pd))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_open_dev_from_pd(
    pd: *mut ibv_pd,
    dev: *mut *mut doca_dev,
) -> doca_error_t {
    guard(|| bridge_unsupported(pd, dev))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_get_buf_mkey(
    buf: *const doca_buf,
    _dev: *mut doca_dev,
    mkey: *mut u32,
) -> doca_error_t {
    guard(|| bridge_unsupported(buf, mkey))
}

/// `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_bridge_get_mmap_mkey_from_pd(
    mmap: *const doca_mmap,
    _pd: *mut ibv_pd,
    mkey: *mut u32,
) -> doca_error_t {
    guard(|| bridge_unsupported(mmap, mkey))
}

doca_abi::check_definitions!(doca_rdma_bridge_functions, crate::capi::doca_rdma);
