//! `doca_rdma.h`: RDMA instances, connections and tasks.

mod address;
mod atomic;
mod capabilities;
mod connection;
mod instance;
mod properties;
mod read;
mod receive;
mod remote_event;
mod send;
#[cfg(test)]
mod tests;
mod unsupported;
mod write;

use doca_abi::{
    doca_data, doca_rdma, doca_rdma_connection, doca_rdma_task_atomic_cmp_swp,
    doca_rdma_task_atomic_fetch_add, doca_rdma_task_read, doca_rdma_task_receive,
    doca_rdma_task_remote_net_sync_event_get, doca_rdma_task_remote_net_sync_event_notify_add,
    doca_rdma_task_remote_net_sync_event_notify_set, doca_rdma_task_send, doca_rdma_task_send_imm,
    doca_rdma_task_write, doca_rdma_task_write_imm,
};

pub use address::*;
pub use atomic::*;
pub use capabilities::*;
pub use connection::*;
pub use instance::*;
pub use properties::*;
pub use read::*;
pub use receive::*;
pub use remote_event::*;
pub use send::*;
pub use unsupported::*;
pub use write::*;

use super::task::put_task;
use super::{Handle, Keeper};
use crate::error::{Error, Result};
use crate::progress::{Ctx, TaskOf};
use crate::rdma::{Arguments, Connection, Operation, Rdma, Receive, Work};

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_rdma {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
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
    doca_rdma_task_atomic_cmp_swp => Work,
    doca_rdma_task_atomic_fetch_add => Work,
    doca_rdma_task_remote_net_sync_event_get => Work,
    doca_rdma_task_remote_net_sync_event_notify_set => Work,
    doca_rdma_task_remote_net_sync_event_notify_add => Work,
}

/// Allocates a task that acts on a connection.
///
/// # Safety
/// `rdma` is NULL or a live instance, used by no other thread meanwhile; `task` is NULL or writable. `connection` may be any
/// pointer.
unsafe fn allocate<H: Handle<Engine = TaskOf<Work>>>(
    rdma: *mut doca_rdma,
    connection: *mut doca_rdma_connection,
    operation: Operation,
    arguments: Arguments,
    user_data: doca_data,
    task: *mut *mut H,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        put_task(task, || {
            instance::with(rdma, |ctx, rdma| {
                rdma.allocate_work(ctx, connection.cast(), operation, arguments, user_data)
            })
        })
    }
}

/// Gives a task another connection of its instance.
fn set_connection(work: &Work, connection: *mut doca_rdma_connection) -> Result<()> {
    let connection = {
        let current = work.connection().ok_or(Error::Unexpected)?;
        let rdma = current.ctx().driver_as::<Rdma>()?;
        rdma.connection(connection.cast::<Connection>())?
    };
    work.set_connection(connection);
    Ok(())
}

/// Defines the functions that set and get a task's connection.
macro_rules! connection_functions {
    ($task:ident: $set:ident, $get:ident) => {
        /// Gives the task another connection of its instance; not while it is in flight. Any other pointer changes nothing.
        ///
        /// # Safety
        /// The task is NULL or live, and used by no other thread meanwhile. `rdma_connection` may be any pointer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(
            task: *mut doca_abi::$task,
            rdma_connection: *mut doca_abi::doca_rdma_connection,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                $crate::capi::task::set(task, |work| {
                    $crate::capi::doca_rdma::set_connection(work, rdma_connection)
                });
            }
        }

        /// The connection that the task acts on; NULL for NULL.
        ///
        /// # Safety
        /// The task is NULL or live, and used by no other thread meanwhile.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            task: *const doca_abi::$task,
        ) -> *const doca_abi::doca_rdma_connection {
            // SAFETY: the caller's promise.
            unsafe {
                $crate::capi::task::get(task, |work| {
                    let connection = work.connection();
                    connection.map_or(std::ptr::null(), |it| std::rc::Rc::as_ptr(&it).cast())
                })
            }
        }
    };
}
use connection_functions;

doca_abi::check_definitions!(doca_rdma_functions, crate::capi::doca_rdma);
