//! Events: making them, who uses them, starting and stopping.

use doca_abi::{doca_buf, doca_ctx, doca_dev, doca_sync_event};

use super::super::doca_ctx::{destroy_ctx, give_ctx};
use super::super::task::with_driver;
use super::super::{Handle, borrow, check_out, doca_error_t, guard, guard_with, put, share};
use super::on_event;
use crate::buffer::Buf;
use crate::sync_event::{Location, Role, SyncEvent};

/// Creates an event.
///
/// # Safety
/// `event` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_create(event: *mut *mut doca_sync_event) -> doca_error_t {
    guard(|| {
        check_out(event)?;
        // SAFETY: the caller's promise.
        unsafe { put(event, give_ctx(SyncEvent::context())) }
    })
}

/// Destroys a stopped event; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `event` is NULL or a live event, used by no other thread meanwhile; on success it and its exports are dead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_destroy(event: *mut doca_sync_event) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        with_driver(event, |ctx, event: &SyncEvent| {
            // A running context answers for itself.
            ctx.expect_idle("a context is destroyed when it is idle:")?;
            event.check_stopped()
        })?;
        destroy_ctx(event)
    })
}

/// The event as a context. From then on it is used only so; NULL when it was started by itself before.
///
/// # Safety
/// `event` is NULL or a live event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_as_ctx(event: *mut doca_sync_event) -> *mut doca_ctx {
    guard_with(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let usable =
            unsafe { with_driver(event, |_, event: &SyncEvent| Ok(event.become_context())) };
        match usable {
            Ok(true) => event.cast(),
            _ => std::ptr::null_mut(),
        }
    })
}

/// Starts an event that is used by itself.
///
/// # Safety
/// `event` is NULL or a live event, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_start(event: *mut doca_sync_event) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { on_event(event, SyncEvent::start_alone) }
}

/// Stops an event that is used by itself.
///
/// # Safety
/// As [`doca_sync_event_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_stop(event: *mut doca_sync_event) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { on_event(event, SyncEvent::stop_alone) }
}

/// Defines the functions that add a location.
macro_rules! locations {
    (cpu { $($cpu:ident: $cpu_role:ident;)+ } remote { $($remote:ident: $role:ident, $location:ident, $who:literal;)+ }) => {
        $(
            /// The CPU uses the event, through a device; before the start.
            ///
            /// # Safety
            /// As [`doca_sync_event_start`]; `dev` is NULL or an open device.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $cpu(event: *mut doca_sync_event, dev: *mut doca_dev) -> doca_error_t {
                // SAFETY: the caller's promise.
                unsafe {
                    on_event(event, |event| {
                        event.add_location(Role::$cpu_role, Location::Cpu(share(dev)?))
                    })
                }
            }
        )+
        $(
            #[doc = concat!($who, " use the event; before the start.")]
            ///
            /// # Safety
            /// As [`doca_sync_event_start`].
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $remote(event: *mut doca_sync_event) -> doca_error_t {
                // SAFETY: the caller's promise.
                unsafe { on_event(event, |event| event.add_location(Role::$role, Location::$location)) }
            }
        )+
    };
}

locations! {
    cpu {
        doca_sync_event_add_publisher_location_cpu: Publisher;
        doca_sync_event_add_subscriber_location_cpu: Subscriber;
    }
    remote {
        doca_sync_event_add_publisher_location_remote_net: Publisher, RemoteNet, "Network peers";
        doca_sync_event_add_publisher_location_remote_pci: Publisher, RemotePci, "Processes across PCIe";
        doca_sync_event_add_subscriber_location_remote_pci: Subscriber, RemotePci, "Processes across PCIe";
    }
}

/// Puts the value at an address of the program, a multiple of 8; before the start.
///
/// # Safety
/// As [`doca_sync_event_start`]; `addr` is NULL or valid for 8 bytes for as long as the event is started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_set_addr(
    event: *mut doca_sync_event,
    addr: *mut u64,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe {
        on_event(event, |event| {
            check_out(addr)?;
            event.set_address(addr.expose_provenance() as u64)
        })
    }
}

/// Puts the value into the 8 bytes of data of a buf, whose memory permits everything; before the start.
///
/// # Safety
/// As [`doca_sync_event_start`]; `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_set_doca_buf(
    event: *mut doca_sync_event,
    buf: *mut doca_buf,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe {
        on_event(event, |event| {
            let buf: &<doca_buf as Handle>::Engine = borrow(buf)?;
            let buf: &Buf = buf;
            event.set_buf(buf)
        })
    }
}
