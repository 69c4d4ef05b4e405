//! `doca_rdma.h`: RDMA instances, connections and tasks.

mod connection;
mod instance;
mod read;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod write;

use doca_abi::{
    doca_rdma, doca_rdma_connection, doca_rdma_task_read, doca_rdma_task_receive,
    doca_rdma_task_send, doca_rdma_task_send_imm, doca_rdma_task_write, doca_rdma_task_write_imm,
};

pub use connection::*;
pub use instance::*;
pub use read::*;
pub use receive::*;
pub use send::*;
pub use write::*;

use super::Handle;
use super::task::{as_task, buf, buf_handle as handle, generic, put_task, supported};
use crate::progress::{Ctx, TaskOf};
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

doca_abi::check_definitions!(doca_rdma_functions, crate::capi::doca_rdma);
