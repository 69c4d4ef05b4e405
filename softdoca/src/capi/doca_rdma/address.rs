//! Addresses, and connections by address.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use doca_abi::{doca_data, doca_rdma, doca_rdma_addr, doca_rdma_addr_type, doca_rdma_connection};

use super::super::doca_ctx::share_ctx;
use super::super::{
    Handle, Keeper, borrow, bytes, check_out, doca_error_t, give, guard, not_null, put, reclaim,
    share,
};
use super::instance::with;
use crate::error::{Error, Result};
use crate::progress::Ctx;
use crate::rdma::{Address, Connection, Rdma};

// SAFETY: addresses are given out by `give`.
unsafe impl Handle for doca_rdma_addr {
    type Engine = Address;

    const KEEPER: Keeper = Keeper::Arc;
}

/// Makes an address: an IPv4 or IPv6 address or a GID as text, and a port.
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
        // SAFETY: not NULL, and a string by the caller's promise.
        let text = unsafe { CStr::from_ptr(address) };
        let address = Address::new(addr_type, text, port)?;
        // SAFETY: the caller's promise.
        unsafe { put(addr, give(Arc::new(address))) }
    })
}

/// Destroys an address; `DOCA_ERROR_BAD_STATE` while a connection uses it, `DOCA_ERROR_NOT_PERMITTED` for the address of a
/// connection's peer.
///
/// # Safety
/// `addr` is NULL or a live address; on success it is dead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_addr_destroy(addr: *mut doca_rdma_addr) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { share(addr) }?;
        if shared.is_peer() {
            return Err(Error::NotPermitted
                .because("the address of a connection's peer is destroyed with the connection"));
        }
        // The handle's reference, and this one.
        if Arc::strong_count(&shared) > 2 {
            return Err(Error::BadState.because("an RDMA connection uses the address"));
        }
        // SAFETY: the caller's promise.
        drop(unsafe { reclaim(addr) }?);
        Ok(())
    })
}

/// Tells what an address was made of. The text lives as long as the address.
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
        // SAFETY: the caller's promise.
        unsafe {
            let addr = borrow(addr)?;
            put(addr_type, addr.kind())?;
            put(address, addr.text().as_ptr())?;
            put(port, addr.port())
        }
    })
}

/// Takes requests for connections at a port of the instance's device.
///
/// # Safety
/// `rdma` is NULL or a live instance, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_start_listen_to_port(
    rdma: *mut doca_rdma,
    port: u16,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { with(rdma, |ctx, rdma| rdma.listen(ctx, port)) })
}

/// Takes no more requests at a port. Connections stay.
///
/// # Safety
/// As [`doca_rdma_start_listen_to_port`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_stop_listen_to_port(
    rdma: *mut doca_rdma,
    port: u16,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { with(rdma, |ctx, rdma| rdma.stop_listening(ctx, port)) })
}

/// Asks whoever listens at an address for a connection. Callbacks tell what comes of it.
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
        // SAFETY: the caller's promise.
        let (ctx, address) = unsafe { (share_ctx(rdma)?, share(addr)?) };
        let rdma = ctx.driver_as::<Rdma>()?;
        rdma.connect_to_address(&ctx, &address, connection_user_data)
    })
}

/// Runs `action` on the instance of a connection.
///
/// # Safety
/// `connection` is NULL or a connection of a live instance, used by no other thread meanwhile.
unsafe fn with_connection(
    connection: *const doca_rdma_connection,
    action: impl FnOnce(&Ctx, &Rdma, &std::rc::Rc<Connection>) -> Result<()>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let ctx = unsafe { borrow(connection) }?.ctx();
    let rdma = ctx.driver_as::<Rdma>()?;
    let connection = rdma.connection(connection.cast::<Connection>())?;
    action(ctx, rdma, &connection)
}

/// Accepts a connection that a peer has asked for; the established callback follows.
///
/// # Safety
/// `rdma_connection` is NULL or a connection of a live instance, used by no other thread meanwhile; `private_data` is NULL
/// or readable for `private_data_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_accept(
    rdma_connection: *mut doca_rdma_connection,
    private_data: *mut c_void,
    private_data_len: u8,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let len = usize::from(private_data_len);
        let private_data = bytes(private_data.cast_const().cast::<u8>(), len)?;
        with_connection(rdma_connection, |ctx, rdma, connection| {
            rdma.accept(ctx, connection, private_data)
        })
    })
}

/// Rejects a connection that a peer has asked for; the peer's failure callback is called.
///
/// # Safety
/// As [`doca_rdma_connection_accept`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_reject(
    rdma_connection: *mut doca_rdma_connection,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        with_connection(rdma_connection, |ctx, rdma, connection| {
            rdma.reject(ctx, connection)
        })
    })
}

/// Tells the address that a connection was made to, until it has ended; of a connection that a peer has asked for, the peer's address
/// with the port that it has come to, which lives as long as the connection's handle. NULL for an exported connection.
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
        // SAFETY: the caller's promise.
        let address = unsafe { borrow(rdma_connection) }?.address();
        // The handle of the program cannot be destroyed before the connection has ended; a peer's address lives with the connection.
        let handle = address.map_or(std::ptr::null(), |address| Arc::as_ptr(&address));
        // SAFETY: the caller's promise.
        unsafe { put(addr, handle.cast_mut().cast()) }
    })
}
