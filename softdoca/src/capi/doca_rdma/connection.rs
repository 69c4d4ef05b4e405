//! Connections.

use std::ffi::c_void;
use std::rc::Rc;

use doca_abi::{doca_data, doca_rdma, doca_rdma_connection};

use super::super::doca_ctx::share_ctx;
use super::super::{borrow, bytes, check_out, doca_error_t, guard, put};
use crate::rdma::{Connection, Rdma};

/// Makes a connection and describes it for the peer. The description lives as long as the connection: until the
/// instance is started again or destroyed.
///
/// # Safety
/// `rdma` is NULL or a live instance, used by no other thread meanwhile; the other arguments are NULL or writable.
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
        // SAFETY: the caller's promise.
        let ctx = unsafe { share_ctx(rdma) }?;
        let connection = ctx.driver_as::<Rdma>()?.export(&ctx)?;
        let description = connection.details();
        // SAFETY: the caller's promise. The instance keeps the connection.
        unsafe {
            put(details, description.as_ptr().cast())?;
            put(details_size, description.len())?;
            put(rdma_connection, Rc::as_ptr(&connection).cast_mut().cast())
        }
    })
}

/// Connects with the peer whose description was received. Its program need not be awake.
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
        // SAFETY: the caller's promise.
        let (ctx, details) =
            unsafe { (share_ctx(rdma)?, bytes(details.cast::<u8>(), details_size)?) };
        let rdma = ctx.driver_as::<Rdma>()?;
        let connection = rdma.connection(rdma_connection.cast::<Connection>())?;
        rdma.connect(&ctx, &connection, details)
    })
}

/// Ends a connection; its tasks in flight fail. Nothing happens to one that has ended.
///
/// # Safety
/// `rdma_connection` is NULL or a connection of a live instance, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_disconnect(
    rdma_connection: *mut doca_rdma_connection,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        let ctx = unsafe { borrow(rdma_connection) }?.ctx();
        let rdma = ctx.driver_as::<Rdma>()?;
        let connection = rdma.connection(rdma_connection.cast::<Connection>())?;
        rdma.disconnect(ctx, &connection);
        Ok(())
    })
}

/// Sets the value that connection callbacks get.
///
/// # Safety
/// As [`doca_rdma_connection_disconnect`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_set_user_data(
    rdma_connection: *mut doca_rdma_connection,
    connection_user_data: doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(rdma_connection) }?.set_user_data(connection_user_data);
        Ok(())
    })
}

/// The value that connection callbacks get; 0 before it was set.
///
/// # Safety
/// As [`doca_rdma_connection_disconnect`]; `connection_user_data` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_get_user_data(
    rdma_connection: *const doca_rdma_connection,
    connection_user_data: *mut doca_data,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(connection_user_data, borrow(rdma_connection)?.user_data()) })
}

/// Number of the connection, which no other connection of its instance has.
///
/// # Safety
/// As [`doca_rdma_connection_disconnect`]; `connection_id` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_connection_get_id(
    rdma_connection: *const doca_rdma_connection,
    connection_id: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put(connection_id, borrow(rdma_connection)?.id()) })
}
