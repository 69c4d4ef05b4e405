//! Tasks on sync events of peers. Values are in the machine's byte order.

use std::cell::RefCell;
use std::sync::Arc;

use doca_abi::{
    doca_buf, doca_data, doca_rdma, doca_rdma_connection, doca_rdma_task_remote_net_sync_event_get,
    doca_rdma_task_remote_net_sync_event_notify_add,
    doca_rdma_task_remote_net_sync_event_notify_set, doca_sync_event_remote_net,
};

use super::super::task::{Slot, buf, get, task_kind, task_slots};
use super::super::{doca_error_t, guard, share};
use super::{allocate, connection_functions};
use crate::progress::TaskPool;
use crate::rdma::{Arguments, Operation, Rdma, Work};
use crate::sync_event::RemoteEvent;

type EventSlot = RefCell<Option<Arc<RemoteEvent>>>;

fn event_handle(slot: &EventSlot) -> *mut doca_sync_event_remote_net {
    let event = slot.borrow();
    event
        .as_ref()
        .map_or(std::ptr::null(), Arc::as_ptr)
        .cast_mut()
        .cast()
}

/// One more reference to the event behind a handle; `None` for NULL.
///
/// # Safety
/// `handle` is NULL or a live remote event.
unsafe fn event(handle: *const doca_sync_event_remote_net) -> Option<Arc<RemoteEvent>> {
    // SAFETY: the caller's promise.
    (!handle.is_null())
        .then(|| unsafe { share(handle) }.ok())
        .flatten()
}

impl Slot<*const doca_sync_event_remote_net> for EventSlot {
    unsafe fn put(&self, value: *const doca_sync_event_remote_net) {
        // SAFETY: the caller's promise.
        self.replace(unsafe { event(value) });
    }

    fn value(&self) -> *const doca_sync_event_remote_net {
        event_handle(self)
    }
}

impl Slot<*mut doca_sync_event_remote_net> for EventSlot {
    unsafe fn put(&self, value: *mut doca_sync_event_remote_net) {
        // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
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

/// How many bytes a successful task has read: 8.
///
/// # Safety
/// `task` is NULL or a live task, used by no other thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_task_remote_net_sync_event_get_get_result_len(
    task: *const doca_rdma_task_remote_net_sync_event_get,
) -> u32 {
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
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
