//! `doca_comm_channel.h` of 2.5 and 2.6: the first Comm Channel, without contexts and callbacks.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;

use doca_abi::{
    DOCA_CC_MSG_FLAG_NONE, doca_comm_channel_addr_t, doca_comm_channel_ep_t, doca_dev,
    doca_dev_rep, doca_devinfo, doca_event_channel_t,
};

use super::{
    Handle, Keeper, borrow, check_out, doca_error_t, give, guard, not_null, put, put_limit,
    reclaim, share, text,
};
use crate::comch::{
    Counter, Endpoint, MAX_MESSAGE_SIZE, MAX_NAME_LEN, MAX_RECV_QUEUE, Peer, max_clients,
};
use crate::error::{Error, Result};

// SAFETY: endpoints are given out by `give`.
unsafe impl Handle for doca_comm_channel_ep_t {
    type Engine = Endpoint;

    const KEEPER: Keeper = Keeper::Arc;
}

// SAFETY: peers are given out as pointers into the `Arc<Peer>` that their endpoint keeps.
unsafe impl Handle for doca_comm_channel_addr_t {
    type Engine = Peer;
}

fn address(peer: &Arc<Peer>) -> *mut doca_comm_channel_addr_t {
    // The endpoint keeps a reference; the handle does not own one.
    Arc::as_ptr(peer).cast_mut().cast()
}

fn descriptor(fd: BorrowedFd<'_>) -> doca_event_channel_t {
    fd.as_raw_fd()
}

/// Gets the maximum length of a service name in bytes, with the terminating NUL.
///
/// # Safety
/// `max_service_name_len` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_get_max_service_name_len(
    max_service_name_len: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(max_service_name_len, MAX_NAME_LEN as u32 + 1) })
}

/// Defines functions that get a limit of a device.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident = $limit:expr;)+) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// `devinfo` is NULL or live; `limit` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(devinfo: *mut doca_devinfo, limit: *mut u32) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            unsafe { put_limit(devinfo.cast_const(), limit, $limit) }
        }
    )+ };
}

limits! {
    /// Gets the maximum size of a message in bytes.
    doca_comm_channel_get_max_message_size = MAX_MESSAGE_SIZE;
    /// Gets the maximum size of a send queue in messages.
    doca_comm_channel_get_max_send_queue_size = MAX_RECV_QUEUE;
    /// Gets the maximum size of a receive queue in messages.
    doca_comm_channel_get_max_recv_queue_size = MAX_RECV_QUEUE;
}

/// Gets the maximum number of clients of a service on a DPU's device; `DOCA_ERROR_NOT_SUPPORTED` for a host's.
///
/// # Safety
/// `devinfo` is NULL or live; `max_num_connections` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_get_service_max_num_connections(
    devinfo: *mut doca_devinfo,
    max_num_connections: *mut u32,
) -> doca_error_t {
    guard(|| {
        check_out(max_num_connections)?;
        // SAFETY: guaranteed by the caller.
        let info = unsafe { borrow(devinfo.cast_const()) }?;
        if info.model().representors.is_empty() {
            // A regular result, which is not logged as an error.
            return Err(Error::NotSupported);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { put(max_num_connections, max_clients() as u32) }
    })
}

/// Creates an endpoint.
///
/// # Safety
/// `ep` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_create(
    ep: *mut *mut doca_comm_channel_ep_t,
) -> doca_error_t {
    guard(|| {
        check_out(ep)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(ep, give(Endpoint::new())) }
    })
}

/// Ends all connections of an endpoint, and destroys it with its addresses and descriptors.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_destroy(
    local_ep: *mut doca_comm_channel_ep_t,
) -> doca_error_t {
    guard(|| {
        if local_ep.is_null() {
            return Err(Error::NotConnected.because("expected an endpoint, got NULL"));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { reclaim(local_ep) }.map(drop)
    })
}

/// Gets the endpoint's device; NULL if none was set.
///
/// # Safety
/// `ep` is NULL or a live endpoint; `device` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_get_device(
    ep: *mut doca_comm_channel_ep_t,
    device: *mut *mut doca_dev,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller. A device's handle is the address of its object.
        unsafe {
            let found = borrow(ep)?.device();
            let handle = found.map_or(std::ptr::null_mut(), |it| Arc::as_ptr(&it).cast_mut());
            put(device, handle.cast())
        }
    })
}

/// Gets the endpoint's representor; NULL if none was set.
///
/// # Safety
/// `ep` is NULL or a live endpoint; `device_rep` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_get_device_rep(
    ep: *mut doca_comm_channel_ep_t,
    device_rep: *mut *mut doca_dev_rep,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller. A representor's handle is the address of its object.
        unsafe {
            let found = borrow(ep)?.representor();
            let handle = found.map_or(std::ptr::null_mut(), |it| Arc::as_ptr(&it).cast_mut());
            put(device_rep, handle.cast())
        }
    })
}

/// Sets the endpoint's device; only before it is active.
///
/// # Safety
/// `ep` is NULL or a live endpoint; `device` is NULL or an open device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_set_device(
    ep: *mut doca_comm_channel_ep_t,
    device: *mut doca_dev,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(ep)?.set_device(share(device)?) })
}

/// Sets the representor of a service's clients; only before the endpoint is active.
///
/// # Safety
/// `ep` is NULL or a live endpoint; `device_rep` is NULL or an open representor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_set_device_rep(
    ep: *mut doca_comm_channel_ep_t,
    device_rep: *mut doca_dev_rep,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(ep)?.set_representor(share(device_rep)?) })
}

/// Defines the functions that get and set a size.
macro_rules! sizes {
    ($($(#[$doc:meta])* $get:ident, $set:ident = $read:ident, $write:ident;)+) => { $(
        /// Gets
        $(#[$doc])*
        ///
        /// # Safety
        /// `ep` is NULL or a live endpoint; `size` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(ep: *mut doca_comm_channel_ep_t, size: *mut u16) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe { put(size, borrow(ep)?.$read()) })
        }

        /// Sets, before the endpoint is active,
        $(#[$doc])*
        ///
        /// # Safety
        /// `ep` is NULL or a live endpoint.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(ep: *mut doca_comm_channel_ep_t, size: u16) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe { borrow(ep) }?.$write(size))
        }
    )+ };
}

sizes! {
    /// the maximum size of a message in bytes.
    doca_comm_channel_ep_get_max_msg_size, doca_comm_channel_ep_set_max_msg_size = max_message, set_max_message;
    /// the size of the send queue in messages, which is rounded up to a power of two.
    doca_comm_channel_ep_get_send_queue_size, doca_comm_channel_ep_set_send_queue_size = send_queue, set_send_queue;
    /// the size of the receive queue in messages, which is rounded up to a power of two.
    doca_comm_channel_ep_get_recv_queue_size, doca_comm_channel_ep_set_recv_queue_size = recv_queue, set_recv_queue;
}

/// Gets the descriptors that become readable when messages can be sent, and when one can be received. One of the
/// pointers may be NULL.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint; the pointers are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_get_event_channel(
    local_ep: *mut doca_comm_channel_ep_t,
    send_event_channel: *mut doca_event_channel_t,
    recv_event_channel: *mut doca_event_channel_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let endpoint = unsafe { borrow(local_ep) }?;
        if send_event_channel.is_null() {
            check_out(recv_event_channel)?;
        }
        let (send, receive) = endpoint
            .with_event_channels(|send, receive| (descriptor(send), descriptor(receive)))?;
        for (out, fd) in [(send_event_channel, send), (recv_event_channel, receive)] {
            if !out.is_null() {
                // SAFETY: not NULL, and writable, guaranteed by the caller.
                unsafe { out.write(fd) };
            }
        }
        Ok(())
    })
}

/// Gets the descriptor that becomes readable when a client connects or disconnects.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint; `service_event_channel` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_get_service_event_channel(
    local_ep: *mut doca_comm_channel_ep_t,
    service_event_channel: *mut doca_event_channel_t,
) -> doca_error_t {
    guard(|| {
        check_out(service_event_channel)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let fd = borrow(local_ep)?.with_service_channel(descriptor)?;
            put(service_event_channel, fd)
        }
    })
}

/// Makes the send descriptor readable once a message can be sent.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_event_handle_arm_send(
    local_ep: *mut doca_comm_channel_ep_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(local_ep) }?.arm_send();
        Ok(())
    })
}

/// Accepted without effect: the receive descriptor is readable as long as there is something to receive.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_event_handle_arm_recv(
    local_ep: *mut doca_comm_channel_ep_t,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(local_ep) }.map(drop))
}

/// Makes the endpoint a service with this name.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint; `name` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_listen(
    local_ep: *mut doca_comm_channel_ep_t,
    name: *const c_char,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(local_ep)?.listen(text(name)?) })
}

/// Connects to a service. The connection is established once `doca_comm_channel_peer_addr_update_info` says so.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint; `name` is NULL or a string; `peer_addr` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_connect(
    local_ep: *mut doca_comm_channel_ep_t,
    name: *const c_char,
    peer_addr: *mut *mut doca_comm_channel_addr_t,
) -> doca_error_t {
    guard(|| {
        check_out(peer_addr)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let peer = share(local_ep)?.connect(text(name)?)?;
            put(peer_addr, address(&peer))
        }
    })
}

/// Refuses flags: there are none.
fn check_flags(flags: c_int) -> Result<()> {
    if flags as u32 == DOCA_CC_MSG_FLAG_NONE {
        return Ok(());
    }
    Err(Error::InvalidValue.because(format_args!("expected no flags, got {flags:#x}")))
}

/// Sends a copy of a message.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint, `peer_addr` NULL or one of its addresses; `msg` is NULL or readable for `len`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_sendto(
    local_ep: *mut doca_comm_channel_ep_t,
    msg: *const c_void,
    len: usize,
    flags: c_int,
    peer_addr: *mut doca_comm_channel_addr_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let endpoint = unsafe { borrow(local_ep) }?;
        not_null(msg)?;
        check_flags(flags)?;
        if peer_addr.is_null() {
            return Err(Error::NotConnected.because("expected an address, got NULL"));
        }
        // A longer message is refused without reading it.
        let readable = len.min(MAX_MESSAGE_SIZE as usize + 1);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let message = std::slice::from_raw_parts(msg.cast::<u8>(), readable);
            endpoint.send(message, borrow(peer_addr)?)
        }
    })
}

/// Receives a message of any peer. `len` is the size of the buffer, then that of the message.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint; `len` is NULL or readable and writable, `peer_addr` NULL or writable, and `msg`
/// NULL or writable for `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_recvfrom(
    local_ep: *mut doca_comm_channel_ep_t,
    msg: *mut c_void,
    len: *mut usize,
    flags: c_int,
    peer_addr: *mut *mut doca_comm_channel_addr_t,
) -> doca_error_t {
    guard(|| {
        check_out(msg)?;
        check_out(len)?;
        check_out(peer_addr)?;
        check_flags(flags)?;
        // SAFETY: guaranteed by the caller. The buffer may be uninitialised, so it is written by pointer only.
        unsafe {
            let endpoint = share(local_ep)?;
            let mut buffer = [0; MAX_MESSAGE_SIZE as usize];
            let room = (*len).min(buffer.len());
            let (received, peer) = endpoint.receive(&mut buffer[..room])?;
            msg.cast::<u8>()
                .copy_from_nonoverlapping(buffer.as_ptr(), received);
            put(len, received)?;
            put(peer_addr, address(&peer))
        }
    })
}

/// Ends a connection.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint, `peer_addr` NULL or one of its addresses, which becomes invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_disconnect(
    local_ep: *mut doca_comm_channel_ep_t,
    peer_addr: *mut doca_comm_channel_addr_t,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let endpoint = unsafe { borrow(local_ep) }?;
        if peer_addr.is_null() {
            return Err(Error::NotConnected.because("expected an address, got NULL"));
        }
        // SAFETY: guaranteed by the caller.
        endpoint.disconnect(unsafe { borrow(peer_addr) }?)
    })
}

/// Gets the value that the program has set for an address; 0 if none.
///
/// # Safety
/// `peer_addr` is NULL or a valid address; `user_data` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_peer_addr_get_user_data(
    peer_addr: *mut doca_comm_channel_addr_t,
    user_data: *mut u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(user_data, borrow(peer_addr)?.user_data()) })
}

/// Sets a value for an address.
///
/// # Safety
/// `peer_addr` is NULL or a valid address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_peer_addr_set_user_data(
    peer_addr: *mut doca_comm_channel_addr_t,
    user_context: u64,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(peer_addr) }?.set_user_data(user_context);
        Ok(())
    })
}

/// Updates an address's counters, and checks its connection.
///
/// # Safety
/// `peer_addr` is NULL or a valid address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_peer_addr_update_info(
    peer_addr: *mut doca_comm_channel_addr_t,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(peer_addr) }?.update())
}

/// Defines functions that get a counter of an address, as of the last update.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $counter:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// `peer_addr` is NULL or a valid address; `value` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            peer_addr: *const doca_comm_channel_addr_t,
            value: *mut u64,
        ) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe { put(value, borrow(peer_addr)?.counter(Counter::$counter)) })
        }
    )+ };
}

counters! {
    /// Gets the number of messages that were sent to an address.
    doca_comm_channel_peer_addr_get_send_messages = SentMessages;
    /// Gets the bytes in messages that were sent to an address.
    doca_comm_channel_peer_addr_get_send_bytes = SentBytes;
    /// Gets the number of messages that were received from an address.
    doca_comm_channel_peer_addr_get_recv_messages = ReceivedMessages;
    /// Gets the bytes in messages that were received from an address.
    doca_comm_channel_peer_addr_get_recv_bytes = ReceivedBytes;
}

/// Gets the number of messages that a disconnect would lose: 0, because a message that was sent reaches the peer.
///
/// # Safety
/// `peer_addr` is NULL or a valid address; `send_in_flight_messages` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_peer_addr_get_send_in_flight_messages(
    peer_addr: *const doca_comm_channel_addr_t,
    send_in_flight_messages: *mut u64,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            borrow(peer_addr)?;
            put(send_in_flight_messages, 0)
        }
    })
}

/// Admits clients of a service, and updates its list of addresses and its number of pending connections.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint. The array of the last update is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_update_service_state_info(
    local_ep: *mut doca_comm_channel_ep_t,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { share(local_ep) }?.update_service())
}

/// Gets the addresses of a service's clients, as of the last update.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint; the pointers are NULL or writable. The array belongs to the endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_get_peer_addr_list(
    local_ep: *const doca_comm_channel_ep_t,
    peer_addr_array: *mut *mut *mut doca_comm_channel_addr_t,
    peer_addr_array_len: *mut u32,
) -> doca_error_t {
    guard(|| {
        check_out(peer_addr_array)?;
        check_out(peer_addr_array_len)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (array, len) = borrow(local_ep)?.with_addresses(|array, len| (array, len))?;
            put(peer_addr_array, array)?;
            put(peer_addr_array_len, len)
        }
    })
}

/// Gets the number of a service's clients whose handshake has not begun, as of the last update.
///
/// # Safety
/// `local_ep` is NULL or a live endpoint; `pending_connections` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comm_channel_ep_get_pending_connections(
    local_ep: *const doca_comm_channel_ep_t,
    pending_connections: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(pending_connections, borrow(local_ep)?.pending()?) })
}
