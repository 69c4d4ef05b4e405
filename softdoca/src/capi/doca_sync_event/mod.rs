//! `doca_sync_event.h`: events that others can wait for.

mod capabilities;
mod event;
mod exports;
mod tasks;
#[cfg(test)]
mod tests;
mod unsupported;
mod values;

use doca_abi::{
    doca_sync_event, doca_sync_event_remote_net, doca_sync_event_task_get,
    doca_sync_event_task_notify_add, doca_sync_event_task_notify_set, doca_sync_event_task_wait_eq,
    doca_sync_event_task_wait_neq,
};

pub use capabilities::*;
pub use event::*;
pub use exports::*;
pub use tasks::*;
pub use unsupported::*;
pub use values::*;

use super::task::with_driver;
use super::{Handle, Keeper, doca_error_t, guard};
use crate::error::Result;
use crate::progress::{Ctx, TaskOf};
use crate::sync_event::{RemoteEvent, SyncEvent, Work};

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

macro_rules! task_handles {
    ($($task:ty),*) => {
        $(
            // SAFETY: tasks of this kind are given out as pointers to what `TaskPool::allocate` made of this body.
            unsafe impl Handle for $task {
                type Engine = TaskOf<Work>;
            }
        )*
    };
}

task_handles! {
    doca_sync_event_task_get, doca_sync_event_task_notify_set, doca_sync_event_task_notify_add,
    doca_sync_event_task_wait_eq, doca_sync_event_task_wait_neq
}

/// Runs a C function's `action` on the event behind a handle.
///
/// # Safety
/// `event` is NULL or a live event. Other threads may use its value meanwhile.
unsafe fn on_event(
    event: *const doca_sync_event,
    action: impl FnOnce(&SyncEvent) -> Result<()>,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { with_driver(event, |_, event: &SyncEvent| action(event)) })
}

doca_abi::check_definitions!(doca_sync_event_functions, crate::capi::doca_sync_event);
