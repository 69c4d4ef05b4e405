//! `doca_rdma.h`: RDMA instances, connections and tasks.

mod connection;
mod instance;
mod read;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod write;

use std::ptr::NonNull;

use doca_abi::{
    doca_buf, doca_devinfo, doca_rdma, doca_rdma_connection, doca_rdma_task_read,
    doca_rdma_task_receive, doca_rdma_task_send, doca_rdma_task_send_imm, doca_rdma_task_write,
    doca_rdma_task_write_imm, doca_task,
};

pub use connection::*;
pub use instance::*;
pub use read::*;
pub use receive::*;
pub use send::*;
pub use write::*;

use super::{Handle, doca_error_t, guard, not_null};
use crate::buffer::BufHandle;
use crate::error::Result;
use crate::progress::{Ctx, TaskCallback, TaskOf};
use crate::rdma::{Connection, Receive, Work};

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_rdma {
    type Engine = Ctx;
}

// SAFETY: connections are given out as pointers to what the instance owns; they live as long as its run.
unsafe impl Handle for doca_rdma_connection {
    type Engine = Connection;
}

macro_rules! task_handles {
    ($($task:ty => $body:ty,)*) => {
        $(
            // SAFETY: tasks of this kind are given out as pointers to what `TaskPool::allocate` made of this body.
            unsafe impl Handle for $task {
                type Engine = TaskOf<$body>;
            }
        )*
    };
}

task_handles! {
    doca_rdma_task_receive => Receive,
    doca_rdma_task_send => Work,
    doca_rdma_task_send_imm => Work,
    doca_rdma_task_read => Work,
    doca_rdma_task_write => Work,
    doca_rdma_task_write_imm => Work,
}

/// The generic task of a task of any kind: its header comes first.
fn as_task<H: Handle<Engine = TaskOf<B>>, B>(task: *mut H) -> *mut doca_task {
    task.cast()
}

/// A buf for a task, which may be NULL.
///
/// # Safety
/// `handle` is NULL or a buf that stays valid while the task is in flight.
unsafe fn buf(handle: *const doca_buf) -> Option<BufHandle> {
    // SAFETY: the caller's promise.
    (!handle.is_null()).then(|| unsafe { BufHandle::new(&*handle.cast()) })
}

/// The handle of a task's buf.
fn handle(buf: Option<BufHandle>) -> *mut doca_buf {
    buf.map_or(std::ptr::null_mut(), |buf| buf.as_ptr().cast())
}

/// A completion callback of one kind of task as one of all kinds.
fn generic<H: Handle>(
    callback: Option<unsafe extern "C" fn(*mut H, doca_abi::doca_data, doca_abi::doca_data)>,
) -> Option<TaskCallback> {
    // SAFETY: the two types differ only in what the first argument, a thin pointer, points to; the task that is passed
    // is always of the kind that the callback was given for.
    callback.map(|callback| unsafe {
        std::mem::transmute::<
            unsafe extern "C" fn(*mut H, doca_abi::doca_data, doca_abi::doca_data),
            TaskCallback,
        >(callback)
    })
}

/// Every device can do everything.
fn supported(devinfo: *const doca_devinfo) -> doca_error_t {
    guard(|| not_null(devinfo))
}

/// Writes a fresh task to an out-parameter.
///
/// # Safety
/// `out` is NULL or writable.
unsafe fn put_task<H: Handle<Engine = TaskOf<B>>, B>(
    out: *mut *mut H,
    allocate: impl FnOnce() -> Result<NonNull<TaskOf<B>>>,
) -> Result<()> {
    super::check_out(out)?;
    let task = allocate()?;
    // SAFETY: the caller's promise.
    unsafe { super::put(out, task.as_ptr().cast::<H>()) }
}

doca_abi::check_definitions!(doca_rdma_functions, crate::capi::doca_rdma);
