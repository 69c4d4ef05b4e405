//! `doca_sync_event.h`: events that other processes and devices can wait for.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use doca_abi::{
    doca_buf, doca_ctx, doca_data, doca_dev, doca_devinfo, doca_dpa, doca_gpu, doca_sync_event,
    doca_sync_event_remote_net, doca_sync_event_task_get, doca_sync_event_task_notify_add,
    doca_sync_event_task_notify_set, doca_sync_event_task_wait_eq, doca_sync_event_task_wait_neq,
};

use super::doca_pe::{destroy_ctx, give_ctx};
use super::instance::task_handles;
use super::{
    Handle, Keeper, borrow, bytes, check_out, doca_error_t, give, guard, guard_with, not_null, put,
    put_task, reclaim, share, supported, task_kind, task_slots, with_driver,
};
use crate::buffer::Buf;
use crate::error::{Error, Result};
use crate::progress::{Ctx, CtxState, TaskOf, TaskPool};
use crate::sync_event::{Condition, Kind, Location, RemoteEvent, Role, SyncEvent, Work};

// SAFETY: events are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_sync_event {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: remote events are given out by `give`.
unsafe impl Handle for doca_sync_event_remote_net {
    type Engine = RemoteEvent;

    const KEEPER: Keeper = Keeper::Arc;
}

task_handles! {
    Work:
    doca_sync_event_task_get, doca_sync_event_task_notify_set, doca_sync_event_task_notify_add,
    doca_sync_event_task_wait_eq, doca_sync_event_task_wait_neq
}

/// Runs `action` on the event behind a handle.
///
/// # Safety
/// `event` is NULL or a live event. Other threads may use its value concurrently.
unsafe fn on_event(
    event: *const doca_sync_event,
    action: impl FnOnce(&SyncEvent) -> Result<()>,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { with_driver(event, |_, event: &SyncEvent| action(event)) })
}

macro_rules! capabilities {
    (supported { $($yes:ident)+ } unsupported { $($no:ident)+ }) => {
        $(
            /// `DOCA_SUCCESS` for every device.
            ///
            /// # Safety
            /// Safe for any pointer: it is not dereferenced.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $yes(devinfo: *const doca_devinfo) -> doca_error_t {
                supported(devinfo)
            }
        )+
        $(
            /// `DOCA_ERROR_NOT_SUPPORTED` for every device.
            ///
            /// # Safety
            /// Safe for any pointer: it is not dereferenced.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $no(devinfo: *const doca_devinfo) -> doca_error_t {
                guard(|| {
                    not_null(devinfo)?;
                    Err(Error::NotSupported)
                })
            }
        )+
    };
}

capabilities! {
    supported {
    doca_sync_event_cap_is_create_from_export_supported
    doca_sync_event_cap_is_export_to_remote_net_supported
    doca_sync_event_cap_is_export_to_remote_pci_supported
    doca_sync_event_cap_remote_net_is_create_from_export_supported
    }
    unsupported {
    doca_sync_event_cap_is_export_to_dpa_supported
    doca_sync_event_cap_is_export_to_gpu_supported
    doca_sync_event_cap_remote_net_is_export_to_dpa_supported
    doca_sync_event_cap_remote_net_is_export_to_gpu_supported
    }
}

/// Creates an event.
///
/// # Safety
/// `event` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_create(event: *mut *mut doca_sync_event) -> doca_error_t {
    guard(|| {
        check_out(event)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(event, give_ctx(SyncEvent::context())) }
    })
}

/// Destroys a stopped event; `DOCA_ERROR_IN_USE` while it is started, or tasks of it are allocated.
///
/// # Safety
/// `event` is NULL or a live event, not used by another thread during the call; on success, it and its exports are invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_destroy(event: *mut doca_sync_event) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        with_driver(event, |ctx, event: &SyncEvent| {
            // The context reports a mistake in a running state itself.
            match ctx.state() {
                CtxState::Idle => event.check_stopped(),
                _ => Ok(()),
            }
        })?;
        destroy_ctx(event, Error::InUse)
    })
}

/// The event as a context. Afterwards, it can be used only as a context. Returns NULL if it was started without a
/// context.
///
/// # Safety
/// `event` is NULL or a live event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_as_ctx(event: *mut doca_sync_event) -> *mut doca_ctx {
    guard_with(std::ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let usable =
            unsafe { with_driver(event, |_, event: &SyncEvent| Ok(event.become_context())) };
        match usable {
            Ok(true) => event.cast(),
            _ => std::ptr::null_mut(),
        }
    })
}

/// Starts an event that is not used as a context.
///
/// # Safety
/// `event` is NULL or a live event, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_start(event: *mut doca_sync_event) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { on_event(event, SyncEvent::start_alone) }
}

/// Stops an event that is not used as a context.
///
/// # Safety
/// As [`doca_sync_event_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_stop(event: *mut doca_sync_event) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { on_event(event, SyncEvent::stop_alone) }
}

/// Defines the functions that add a location.
macro_rules! locations {
    (cpu { $($cpu:ident: $cpu_role:ident;)+ } remote { $($remote:ident: $role:ident, $location:ident, $who:literal;)+ }) => {
        $(
            /// Adds the CPU as a location, through a device; only before the start.
            ///
            /// # Safety
            /// As [`doca_sync_event_start`]; `dev` is NULL or an open device.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $cpu(event: *mut doca_sync_event, dev: *mut doca_dev) -> doca_error_t {
                // SAFETY: guaranteed by the caller.
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
                // SAFETY: guaranteed by the caller.
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

/// Sets the address of the value in the program's memory, a multiple of 8; only before the start.
///
/// # Safety
/// As [`doca_sync_event_start`]; `addr` is NULL or valid for 8 bytes for as long as the event is started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_set_addr(
    event: *mut doca_sync_event,
    addr: *mut u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on_event(event, |event| {
            check_out(addr)?;
            event.set_address(addr.expose_provenance() as u64)
        })
    }
}

/// Uses the 8 bytes of data of a buf, whose memory has all permissions, as the value; only before the start.
///
/// # Safety
/// As [`doca_sync_event_start`]; `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_set_doca_buf(
    event: *mut doca_sync_event,
    buf: *mut doca_buf,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on_event(event, |event| {
            let buf: &<doca_buf as Handle>::Engine = borrow(buf)?;
            let buf: &Buf = buf;
            event.set_buf(buf)
        })
    }
}

/// Gets the value.
///
/// # Safety
/// `event` is NULL or a live event; `value` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_get(
    event: *mut doca_sync_event,
    value: *mut u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on_event(event, |event| {
            check_out(value)?;
            put(value, event.get()?)
        })
    }
}

/// Sets the value.
///
/// # Safety
/// `event` is NULL or a live event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_update_set(
    event: *mut doca_sync_event,
    value: u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { on_event(event, |event| event.set(value)) }
}

/// Adds to the value atomically, and gets the old value.
///
/// # Safety
/// As [`doca_sync_event_get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_update_add(
    event: *mut doca_sync_event,
    value: u64,
    fetched: *mut u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on_event(event, |event| {
            check_out(fetched)?;
            put(fetched, event.add(value)?)
        })
    }
}

/// Defines the functions that wait.
macro_rules! waits {
    ($($wait:ident, $wait_yield:ident => $condition:ident, $what:literal;)+) => { $(
        #[doc = concat!("Blocks until the value, masked with `mask`, ", $what, " `value`.")]
        ///
        /// # Safety
        /// `event` is NULL or a live event that is not stopped during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wait(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            unsafe { on_event(event, |event| event.wait(Condition::$condition(value), mask)) }
        }

        #[doc = concat!("The same as [`", stringify!($wait), "`], but yields to other threads.")]
        ///
        /// # Safety
        #[doc = concat!("As [`", stringify!($wait), "`].")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wait_yield(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            unsafe { $wait(event, value, mask) }
        }
    )+ };
}

waits! {
    doca_sync_event_wait_eq, doca_sync_event_wait_eq_yield => Equal, "equals";
    doca_sync_event_wait_neq, doca_sync_event_wait_neq_yield => Different, "differs from";
    doca_sync_event_wait_gt, doca_sync_event_wait_gt_yield => Greater, "is greater than";
}

/// Exports a started event for network peers. The export is valid as long as the event.
///
/// # Safety
/// `event` is NULL or a live event, not used by another thread during the call; the other arguments are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_export_to_remote_net(
    event: *mut doca_sync_event,
    data: *mut *const u8,
    sz: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
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

/// Exports a started event for the other side of PCIe. The export is valid as long as the event.
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
    // SAFETY: guaranteed by the caller.
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

/// Creates an event from an export of the other side of PCIe. It needs no configuration, but has to be started.
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
        // SAFETY: guaranteed by the caller.
        unsafe {
            let imported = SyncEvent::import(bytes(data, sz)?, &share(dev)?)?;
            put(event, give_ctx(imported))
        }
    })
}

/// Creates a remote event, for RDMA tasks, from an export of a network peer.
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
        // SAFETY: guaranteed by the caller.
        unsafe {
            let imported = RemoteEvent::import(bytes(data, sz)?, &share(dev)?)?;
            put(event, give(Arc::new(imported)))
        }
    })
}

/// Destroys a remote event. Tasks that use it remain valid.
///
/// # Safety
/// `event` is NULL or a live remote event; it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_remote_net_destroy(
    event: *mut doca_sync_event_remote_net,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { reclaim(event) }?);
        Ok(())
    })
}

fn gets(event: &SyncEvent) -> &TaskPool {
    event.pools().of(Kind::Get)
}

fn sets(event: &SyncEvent) -> &TaskPool {
    event.pools().of(Kind::Set)
}

fn adds(event: &SyncEvent) -> &TaskPool {
    event.pools().of(Kind::Add)
}

fn waits_for_equal(event: &SyncEvent) -> &TaskPool {
    event.pools().of(Kind::WaitEqual)
}

fn waits_for_different(event: &SyncEvent) -> &TaskPool {
    event.pools().of(Kind::WaitDifferent)
}

/// Allocates a task.
///
/// # Safety
/// `event` is NULL or a live event, not used by another thread during the call; `task` is NULL or writable.
pub(super) unsafe fn allocate<H: Handle<Engine = TaskOf<Work>>>(
    event: *mut doca_sync_event,
    work: Work,
    user_data: doca_data,
    task: *mut *mut H,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        put_task(task, || {
            with_driver(event, |ctx, event: &SyncEvent| {
                event.allocate(ctx, work, user_data)
            })
        })
    }
}

task_kind! {
    doca_sync_event_task_get of doca_sync_event, pool gets;
    doca_sync_event_cap_task_get_is_supported,
    doca_sync_event_task_get_set_conf(doca_sync_event_task_get_completion_cb_t),
    doca_sync_event_task_get_as_doca_task
}

task_slots! {
    doca_sync_event_task_get:
    doca_sync_event_task_get_set_ret_val_ptr, doca_sync_event_task_get_get_ret_val_ptr
        => "destination of the value": out as *mut u64;
}

/// Allocates a task that gets the value.
///
/// # Safety
/// `event` is NULL or a live event, not used by another thread during the call; `ret_val_ptr` is NULL or stays writable
/// while the task is in flight; `task` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_task_get_alloc_init(
    event: *mut doca_sync_event,
    ret_val_ptr: *mut u64,
    user_data: doca_data,
    task: *mut *mut doca_sync_event_task_get,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        check_out(ret_val_ptr)?;
        allocate(
            event,
            Work::new(Kind::Get, 0, 0, ret_val_ptr),
            user_data,
            task,
        )
    })
}

task_kind! {
    doca_sync_event_task_notify_set of doca_sync_event, pool sets;
    doca_sync_event_cap_task_notify_set_is_supported,
    doca_sync_event_task_notify_set_set_conf(doca_sync_event_task_notify_set_completion_cb_t),
    doca_sync_event_task_notify_set_as_doca_task
}

task_slots! {
    doca_sync_event_task_notify_set:
    doca_sync_event_task_notify_set_set_set_val, doca_sync_event_task_notify_set_get_set_val
        => "value to set": operand as u64;
}

/// Allocates a task that sets the value.
///
/// # Safety
/// As [`doca_sync_event_task_get_alloc_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_task_notify_set_alloc_init(
    event: *mut doca_sync_event,
    set_val: u64,
    user_data: doca_data,
    task: *mut *mut doca_sync_event_task_notify_set,
) -> doca_error_t {
    let work = Work::new(Kind::Set, set_val, 0, std::ptr::null_mut());
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { allocate(event, work, user_data, task) })
}

task_kind! {
    doca_sync_event_task_notify_add of doca_sync_event, pool adds;
    doca_sync_event_cap_task_notify_add_is_supported,
    doca_sync_event_task_notify_add_set_conf(doca_sync_event_task_notify_add_completion_cb_t),
    doca_sync_event_task_notify_add_as_doca_task
}

task_slots! {
    doca_sync_event_task_notify_add:
    doca_sync_event_task_notify_add_set_inc_val, doca_sync_event_task_notify_add_get_inc_val
        => "value to add": operand as u64;
    doca_sync_event_task_notify_add_set_fetched_val_ptr, doca_sync_event_task_notify_add_get_fetched_val_ptr
        => "destination of the old value": out as *mut u64;
}

/// Allocates a task that adds to the value atomically. The old value is written to `fetched_val_ptr` unless that is
/// NULL.
///
/// # Safety
/// As [`doca_sync_event_task_get_alloc_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_task_notify_add_alloc_init(
    event: *mut doca_sync_event,
    inc_val: u64,
    fetched_val_ptr: *mut u64,
    user_data: doca_data,
    task: *mut *mut doca_sync_event_task_notify_add,
) -> doca_error_t {
    let work = Work::new(Kind::Add, inc_val, 0, fetched_val_ptr);
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { allocate(event, work, user_data, task) })
}

task_kind! {
    doca_sync_event_task_wait_eq of doca_sync_event, pool waits_for_equal;
    doca_sync_event_cap_task_wait_eq_is_supported,
    doca_sync_event_task_wait_eq_set_conf(doca_sync_event_task_wait_eq_completion_cb_t),
    doca_sync_event_task_wait_eq_as_doca_task
}

task_slots! {
    doca_sync_event_task_wait_eq:
    doca_sync_event_task_wait_eq_set_wait_val, doca_sync_event_task_wait_eq_get_wait_val
        => "value to compare with": operand as u64;
    doca_sync_event_task_wait_eq_set_mask, doca_sync_event_task_wait_eq_get_mask
        => "mask": mask as u64;
}

/// Allocates a task that completes when the value, masked with `mask`, equals `wait_val`.
///
/// # Safety
/// As [`doca_sync_event_task_get_alloc_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_task_wait_eq_alloc_init(
    event: *mut doca_sync_event,
    wait_val: u64,
    mask: u64,
    user_data: doca_data,
    task: *mut *mut doca_sync_event_task_wait_eq,
) -> doca_error_t {
    let work = Work::new(Kind::WaitEqual, wait_val, mask, std::ptr::null_mut());
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { allocate(event, work, user_data, task) })
}

task_kind! {
    doca_sync_event_task_wait_neq of doca_sync_event, pool waits_for_different;
    doca_sync_event_cap_task_wait_neq_is_supported,
    doca_sync_event_task_wait_neq_set_conf(doca_sync_event_task_wait_neq_completion_cb_t),
    doca_sync_event_task_wait_neq_as_doca_task
}

task_slots! {
    doca_sync_event_task_wait_neq:
    doca_sync_event_task_wait_neq_set_wait_val, doca_sync_event_task_wait_neq_get_wait_val
        => "value to compare with": operand as u64;
    doca_sync_event_task_wait_neq_set_mask, doca_sync_event_task_wait_neq_get_mask
        => "mask": mask as u64;
}

/// Allocates a task that completes when the value, masked with `mask`, differs from `wait_val`.
///
/// # Safety
/// As [`doca_sync_event_task_get_alloc_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_task_wait_neq_alloc_init(
    event: *mut doca_sync_event,
    wait_val: u64,
    mask: u64,
    user_data: doca_data,
    task: *mut *mut doca_sync_event_task_wait_neq,
) -> doca_error_t {
    let work = Work::new(Kind::WaitDifferent, wait_val, mask, std::ptr::null_mut());
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { allocate(event, work, user_data, task) })
}

macro_rules! unsupported {
    ($($name:ident($event:ty $(, $argument:ident: $ty:ty)*), $what:literal;)+) => { $(
        #[doc = concat!("`DOCA_ERROR_NOT_SUPPORTED`: softdoca has no ", $what, ".")]
        ///
        /// # Safety
        /// Safe for any pointers: they are not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(event: *mut $event $(, $argument: $ty)*) -> doca_error_t {
            $(let _ = $argument;)*
            guard(|| {
                not_null(event)?;
                Err(Error::NotSupported.because(concat!("softdoca has no ", $what)))
            })
        }
    )+ };
}

unsupported! {
    doca_sync_event_add_publisher_location_dpa(doca_sync_event, dpa: *mut doca_dpa), "DPA";
    doca_sync_event_add_subscriber_location_dpa(doca_sync_event, dpa: *mut doca_dpa), "DPA";
    doca_sync_event_get_dpa_handle(doca_sync_event, dpa: *mut doca_dpa, handle: *mut u64), "DPA";
    doca_sync_event_remote_net_get_dpa_handle(doca_sync_event_remote_net, dpa: *mut doca_dpa, handle: *mut u64), "DPA";
    doca_sync_event_add_publisher_location_gpu(doca_sync_event, gpu: *mut doca_gpu), "GPU data path";
    doca_sync_event_add_subscriber_location_gpu(doca_sync_event, gpu: *mut doca_gpu), "GPU data path";
    doca_sync_event_get_gpu_handle(doca_sync_event, gpu: *mut doca_gpu, handle: *mut *mut u64), "GPU data path";
    doca_sync_event_remote_net_get_gpu_handle(doca_sync_event_remote_net, gpu: *mut doca_gpu, handle: *mut u64), "GPU data path";
}

doca_abi::check_definitions!(doca_sync_event_functions, crate::capi::doca_sync_event);
