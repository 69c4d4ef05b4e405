//! Tasks on the value of an event.

use doca_abi::{
    doca_data, doca_sync_event, doca_sync_event_task_get, doca_sync_event_task_notify_add,
    doca_sync_event_task_notify_set, doca_sync_event_task_wait_eq, doca_sync_event_task_wait_neq,
};

use super::super::task::{put_task, task_kind, task_slots, with_driver};
use super::super::{Handle, check_out, doca_error_t, guard};
use crate::error::Result;
use crate::progress::{TaskOf, TaskPool};
use crate::sync_event::{Kind, SyncEvent, Work};

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
/// `event` is NULL or a live event, used by no other thread meanwhile; `task` is NULL or writable.
unsafe fn allocate<H: Handle<Engine = TaskOf<Work>>>(
    event: *mut doca_sync_event,
    work: Work,
    user_data: doca_data,
    task: *mut *mut H,
) -> Result<()> {
    // SAFETY: the caller's promise.
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
        => "place for the value": out as *mut u64;
}

/// Allocates a task that gets the value.
///
/// # Safety
/// `event` is NULL or a live event, used by no other thread meanwhile; `ret_val_ptr` is NULL or stays writable while the
/// task is in flight; `task` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_task_get_alloc_init(
    event: *mut doca_sync_event,
    ret_val_ptr: *mut u64,
    user_data: doca_data,
    task: *mut *mut doca_sync_event_task_get,
) -> doca_error_t {
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
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
        => "place for the old value": out as *mut u64;
}

/// Allocates a task that adds to the value in one step. The old value goes to `fetched_val_ptr`, unless that is NULL.
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
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
    guard(|| unsafe { allocate(event, work, user_data, task) })
}
