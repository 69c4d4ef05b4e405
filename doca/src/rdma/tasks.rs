use std::ops::Deref;
use std::rc::Rc;
use std::{fmt, ptr};

use doca_sys as sys;

use super::{Rdma, RdmaConnection};
use crate::context::{NO_DATA, Task};
use crate::error::call;
use crate::{Buf, RemoteSyncEvent, Result};

impl Rdma {
    /// Makes a task that receives one message to the tail of the data of `buf`.
    ///
    /// # Errors
    ///
    /// [`BAD_STATE`](crate::ErrorCode::BAD_STATE) when the instance is not running,
    /// [`NO_MEMORY`](crate::ErrorCode::NO_MEMORY) when it has all its receive tasks.
    pub fn receive_task(&self, buf: &Buf, token: u64) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_receive_allocate_init";
        let mut task = ptr::null_mut();
        // SAFETY: instance and buf are live, the result has a place. The buf is kept by the task's cell.
        unsafe {
            call!(doca_rdma_task_receive_allocate_init(
                self.context.object(),
                buf.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            self.context.adopt(
                OPERATION,
                sys::doca_rdma_task_receive_as_task(task),
                [Some(buf), None],
                token,
            )
        }
    }

    /// Makes a task that sends the data of `buf`; a receive task of the peer gets it.
    ///
    /// # Errors
    ///
    /// [`INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) for a connection of another instance,
    /// [`NOT_CONNECTED`](crate::ErrorCode::NOT_CONNECTED) for one that has ended,
    /// [`BAD_STATE`](crate::ErrorCode::BAD_STATE) when the instance is not running,
    /// [`NO_MEMORY`](crate::ErrorCode::NO_MEMORY) when it has all its tasks of this kind.
    pub fn send_task(&self, connection: &RdmaConnection, buf: &Buf, token: u64) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_send_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and buf are live, the result has a place. The buf is kept by the task's cell.
        unsafe {
            call!(doca_rdma_task_send_allocate_init(
                self.context.object(),
                connection,
                buf.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            self.context.adopt(
                OPERATION,
                sys::doca_rdma_task_send_as_task(task),
                [Some(buf), None],
                token,
            )
        }
    }

    /// Makes a task that reads the peer's memory, the data of `source`, to the tail of the data of `destination`.
    /// `source` is a buf of a map that the peer exported ([`Mmap::import`](crate::Mmap::import)).
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn read_task(
        &self,
        connection: &RdmaConnection,
        source: &Buf,
        destination: &Buf,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_read_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and bufs are live, the result has a place. The bufs are kept by the task's cell.
        unsafe {
            call!(doca_rdma_task_read_allocate_init(
                self.context.object(),
                connection,
                source.as_ptr(),
                destination.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_read_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(source), Some(destination)], token)
        }
    }

    /// Makes a task that writes the data of `source` to the peer's memory, to the tail of the data of `destination`.
    /// `destination` is a buf of a map that the peer exported ([`Mmap::import`](crate::Mmap::import)).
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn write_task(
        &self,
        connection: &RdmaConnection,
        source: &Buf,
        destination: &Buf,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_write_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and bufs are live, the result has a place. The bufs are kept by the task's cell.
        unsafe {
            call!(doca_rdma_task_write_allocate_init(
                self.context.object(),
                connection,
                source.as_ptr(),
                destination.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_write_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(source), Some(destination)], token)
        }
    }

    /// Makes a task that receives one message to the tail of the data of `buf`, or without a buf a message without data or the
    /// immediate value of a remote write. In contrast to [`receive_task`](Self::receive_task) it tells what it received.
    ///
    /// # Errors
    ///
    /// As for [`receive_task`](Self::receive_task).
    pub fn receive_any_task(&self, buf: Option<&Buf>, token: u64) -> Result<ReceiveTask> {
        const OPERATION: &str = "doca_rdma_task_receive_allocate_init";
        let mut task = ptr::null_mut();
        let buf_ptr = buf.map_or(ptr::null_mut(), Buf::as_ptr);
        // SAFETY: the instance and the buf, if there is one, are live, the result has a place. The task's cell keeps the buf.
        let adopted = unsafe {
            call!(doca_rdma_task_receive_allocate_init(
                self.context.object(),
                buf_ptr,
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_receive_as_task(task);
            self.context.adopt(OPERATION, task, [buf, None], token)
        }?;
        Ok(ReceiveTask::new(adopted, task))
    }

    /// Makes a task that sends the data of `buf`, or none, and an immediate value; a receive task of the peer gets both.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn send_immediate_task(
        &self,
        connection: &RdmaConnection,
        buf: Option<&Buf>,
        immediate: u32,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_send_imm_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let (mut task, buf_ptr) = (ptr::null_mut(), buf.map_or(ptr::null_mut(), Buf::as_ptr));
        // SAFETY: instance, connection and buf are live, the result has a place. The buf is kept by the task's cell.
        unsafe {
            call!(doca_rdma_task_send_imm_allocate_init(
                self.context.object(),
                connection,
                buf_ptr,
                immediate.to_be(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_send_imm_as_task(task);
            self.context.adopt(OPERATION, task, [buf, None], token)
        }
    }

    /// Makes a task that writes as [`write_task`](Self::write_task)'s does, and then hands an immediate value to a receive task of
    /// the peer. Nothing is written before the peer has posted one.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn write_immediate_task(
        &self,
        connection: &RdmaConnection,
        source: &Buf,
        destination: &Buf,
        immediate: u32,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_write_imm_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and bufs are live, the result has a place. The bufs are kept by the task's cell.
        unsafe {
            call!(doca_rdma_task_write_imm_allocate_init(
                self.context.object(),
                connection,
                source.as_ptr(),
                destination.as_ptr(),
                immediate.to_be(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_write_imm_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(source), Some(destination)], token)
        }
    }

    /// Makes a task that replaces the first 8 bytes of the data of `remote`, as a number in the machine's byte order, by `swap`
    /// if they are `compare`, in one step. What they were goes to the tail of the data of `result`.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn compare_swap_task(
        &self,
        connection: &RdmaConnection,
        remote: &Buf,
        result: &Buf,
        (compare, swap): (u64, u64),
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_atomic_cmp_swp_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: as in `write_immediate_task`.
        unsafe {
            call!(doca_rdma_task_atomic_cmp_swp_allocate_init(
                self.context.object(),
                connection,
                remote.as_ptr(),
                result.as_ptr(),
                compare,
                swap,
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_atomic_cmp_swp_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(remote), Some(result)], token)
        }
    }

    /// Makes a task that adds `add` to the first 8 bytes of the data of `remote`, a number in the machine's byte order, in one
    /// step. What they were goes to the tail of the data of `result`.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn fetch_add_task(
        &self,
        connection: &RdmaConnection,
        remote: &Buf,
        result: &Buf,
        add: u64,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_atomic_fetch_add_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: as in `write_immediate_task`.
        unsafe {
            call!(doca_rdma_task_atomic_fetch_add_allocate_init(
                self.context.object(),
                connection,
                remote.as_ptr(),
                result.as_ptr(),
                add,
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_atomic_fetch_add_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(remote), Some(result)], token)
        }
    }

    /// Makes a task that gets the value of a peer's event, 8 bytes in the machine's byte order, to the tail of the data of `buf`.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn event_get_task(
        &self,
        connection: &RdmaConnection,
        event: &RemoteSyncEvent,
        buf: &Buf,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_remote_net_sync_event_get_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection, event and buf are live, the result has a place. The task's cell keeps event and buf.
        unsafe {
            call!(doca_rdma_task_remote_net_sync_event_get_allocate_init(
                self.context.object(),
                connection,
                event.as_ptr(),
                buf.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_remote_net_sync_event_get_as_task(task);
            let keep: Rc<dyn std::any::Any> = event.keep();
            self.context
                .adopt_with(OPERATION, task, [Some(buf), None], Some(keep), token)
        }
    }

    /// Makes a task that sets a peer's event to the data of `buf`, 8 bytes in the machine's byte order.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn event_set_task(
        &self,
        connection: &RdmaConnection,
        event: &RemoteSyncEvent,
        buf: &Buf,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_remote_net_sync_event_notify_set_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: as in `event_get_task`.
        unsafe {
            call!(
                doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(
                    self.context.object(),
                    connection,
                    event.as_ptr(),
                    buf.as_ptr(),
                    NO_DATA,
                    &mut task
                )
            )?;
            let task = sys::doca_rdma_task_remote_net_sync_event_notify_set_as_task(task);
            let keep: Rc<dyn std::any::Any> = event.keep();
            self.context
                .adopt_with(OPERATION, task, [Some(buf), None], Some(keep), token)
        }
    }

    /// Makes a task that adds `add` to a peer's event in one step. What it was goes to the tail of the data of `result`.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn event_add_task(
        &self,
        connection: &RdmaConnection,
        event: &RemoteSyncEvent,
        result: &Buf,
        add: u64,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_remote_net_sync_event_notify_add_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: as in `event_get_task`.
        unsafe {
            call!(
                doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(
                    self.context.object(),
                    connection,
                    event.as_ptr(),
                    result.as_ptr(),
                    add,
                    NO_DATA,
                    &mut task
                )
            )?;
            let task = sys::doca_rdma_task_remote_net_sync_event_notify_add_as_task(task);
            let keep: Rc<dyn std::any::Any> = event.keep();
            self.context
                .adopt_with(OPERATION, task, [Some(result), None], Some(keep), token)
        }
    }
}

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
