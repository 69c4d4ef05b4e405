use std::fmt;
use std::ops::Deref;

use doca_sys as sys;

use crate::Task;

/// A receive [`Task`] that tells what it received.
pub struct ReceiveTask {
    task: Task,
    raw: *mut sys::doca_rdma_task_receive,
}

/// What a receive task got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The peer has sent a message.
    Message {
        /// Bytes of data.
        len: u32,
        /// The immediate value, if it came with one.
        immediate: Option<u32>,
    },
    /// The peer has written to memory of this side.
    Written {
        /// Bytes that were written.
        len: u32,
        /// The immediate value.
        immediate: u32,
    },
}

impl ReceiveTask {
    pub(super) fn new(task: Task, raw: *mut sys::doca_rdma_task_receive) -> Self {
        Self { task, raw }
    }

    /// What it received. `None` unless the last completion that was taken from the progress engine was a success, and none
    /// is to come.
    pub fn received(&self) -> Option<Received> {
        if !self.task.has_succeeded() {
            return None;
        }
        // SAFETY: the C task is allocated, and nobody else's at the moment.
        let (opcode, len, immediate) = unsafe {
            (
                sys::doca_rdma_task_receive_get_result_opcode(self.raw),
                sys::doca_rdma_task_receive_get_result_len(self.raw),
                u32::from_be(sys::doca_rdma_task_receive_get_result_immediate_data(
                    self.raw,
                )),
            )
        };
        Some(match opcode {
            sys::DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM => Received::Written { len, immediate },
            sys::DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM => Received::Message {
                len,
                immediate: Some(immediate),
            },
            _ => Received::Message {
                len,
                immediate: None,
            },
        })
    }
}

impl Deref for ReceiveTask {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl fmt::Debug for ReceiveTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveTask")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}
