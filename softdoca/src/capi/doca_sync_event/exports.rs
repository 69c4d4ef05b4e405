//! Events of others.

use std::sync::Arc;

use doca_abi::{doca_dev, doca_sync_event, doca_sync_event_remote_net};

use super::super::doca_ctx::give_ctx;
use super::super::{bytes, check_out, doca_error_t, give, guard, put, reclaim, share};
use super::on_event;
use crate::sync_event::{RemoteEvent, SyncEvent};

/// Describes a started event for network peers. The description lives as long as the event.
///
/// # Safety
/// `event` is NULL or a live event, used by no other thread meanwhile; the other arguments are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_export_to_remote_net(
    event: *mut doca_sync_event,
    data: *mut *const u8,
    sz: *mut usize,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe {
        on_event(event, |event| {
            check_out(data)?;
            check_out(sz)?;
            let (blob, len) = event.export_to_network()?;
            put(data, blob)?;
            put(sz, len)
        })
    }
}

/// Describes a started event for the other side of PCIe. The description lives as long as the event.
///
/// # Safety
/// As [`doca_sync_event_export_to_remote_net`]; `dev` is NULL or an open device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_export_to_remote_pci(
    event: *mut doca_sync_event,
    dev: *mut doca_dev,
    data: *mut *const u8,
    sz: *mut usize,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe {
        on_event(event, |event| {
            check_out(data)?;
            check_out(sz)?;
            let (blob, len) = event.export_to_pci(&share(dev)?)?;
            put(data, blob)?;
            put(sz, len)
        })
    }
}

/// Makes an event of what the other side of PCIe has exported. It needs no configuration, but a start.
///
/// # Safety
/// `dev` is NULL or an open device; `data` is NULL or readable for `sz` bytes; `event` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_create_from_export(
    dev: *mut doca_dev,
    data: *const u8,
    sz: usize,
    event: *mut *mut doca_sync_event,
) -> doca_error_t {
    guard(|| {
        check_out(event)?;
        // SAFETY: the caller's promise.
        unsafe {
            let imported = SyncEvent::import(bytes(data, sz)?, &share(dev)?)?;
            put(event, give_ctx(imported))
        }
    })
}

/// Makes a remote event, for RDMA tasks, of what a network peer has exported.
///
/// # Safety
/// As [`doca_sync_event_create_from_export`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_remote_net_create_from_export(
    dev: *mut doca_dev,
    data: *const u8,
    sz: usize,
    event: *mut *mut doca_sync_event_remote_net,
) -> doca_error_t {
    guard(|| {
        check_out(event)?;
        // SAFETY: the caller's promise.
        unsafe {
            let imported = RemoteEvent::import(bytes(data, sz)?, &share(dev)?)?;
            put(event, give(Arc::new(imported)))
        }
    })
}

/// Destroys a remote event. Tasks that have it keep what they need.
///
/// # Safety
/// `event` is NULL or a live remote event; it is dead afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_remote_net_destroy(
    event: *mut doca_sync_event_remote_net,
) -> doca_error_t {
    guard(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { reclaim(event) }?);
        Ok(())
    })
}
